#!/usr/bin/env bash
# model.sh [DIR]: the tiny random-weight model that simulated boxes serve, made by running the engine image (build.sh comes
# first); DIR is $CACHE/sim-model unless given. The same bytes every time.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../scripts/lib.sh"
. "$here/common.sh"
started=$SECONDS
model=${1:-$CACHE/sim-model}

docker image inspect "$ENGINE_IMAGE" >/dev/null 2>&1 || die "there is no image $ENGINE_IMAGE: run sim/engine/build.sh first"
key=$(hash_of "$here/make_model.py" "$here/requirements.lock")
if [ "$(cat "$model/.key" 2>/dev/null)" = "$key" ]; then
  say "engine model: current"
  exit 0
fi

mkdir -p "$(dirname "$model")"
work=$(mktemp -d "$model.XXXXXX")
trap 'rm -rf "$work"' EXIT
# by a stream, not by a mount: the daemon may see other folders than this script does
docker run --rm -i --network none --entrypoint sh "$ENGINE_IMAGE" \
  -c 'python3 - /tmp/model >&2 && tar -C /tmp/model -c .' <"$here/make_model.py" | tar -C "$work" -x --no-same-owner
[ -s "$work/model.safetensors" ] || die "make_model.py wrote no model.safetensors"
echo "$key" >"$work/.key"
chmod 0755 "$work"
rm -rf "$model"
mv "$work" "$model"
say "engine model: built in $((SECONDS - started)) s"
