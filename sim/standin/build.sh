#!/usr/bin/env bash
# build.sh: the images `tandem-sim/standin:0.32.0` and `:0.33.0`, the stand-in engine as two releases of vLLM whose options differ.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../scripts/lib.sh"
started=$SECONDS
versions="0.32.0 0.33.0"
files=$ROOT/roles/vllm/files

"$here/../engine/base.sh"
base_key=$(docker image inspect -f '{{index .Config.Labels "tandem.key"}}' tandem-sim/base:bookworm)
# shellcheck disable=SC2046 # a list of files
sources=$(hash_of "$base_key" "$here"/{Dockerfile,build.sh,vllm,parse-check,speeds.json} $(find "$here/standin" -name '*.py' | LC_ALL=C sort) "$files/parsers.json")
built=
for version in $versions; do
  image=tandem-sim/standin:$version
  key=$(hash_of "$sources" "$version" "$files/options/$version.json")
  image_is "$image" "$key" && continue
  work=$(mktemp -d "$CACHE/standin-build.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  mkdir -p "$work/standin-root/options"
  cp -r "$here/standin" "$here/speeds.json" "$files/parsers.json" "$work/standin-root"
  cp "$files/options/$version.json" "$work/standin-root/options"
  install -m 0755 "$here/vllm" "$here/parse-check" "$work/standin-root"
  rm -rf "$work/standin-root/standin/__pycache__"
  cp "$here/Dockerfile" "$work"
  build_image "$image" "$key" --network none --build-arg "VERSION=$version" "$work"
  rm -rf "$work"
  built=1
done
if [ -z "$built" ]; then say "stand-in engine image: current"; else say "stand-in engine image: built in $((SECONDS - started)) s"; fi
