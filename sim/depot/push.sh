#!/usr/bin/env bash
# push.sh IMAGE NAME:TAG: IMAGE of this machine's Docker into the storage that every depot serves (a volume), once per image.
# Not `docker push`: a registry without TLS would have to be entered in the daemon's settings, which may not be ours to change.
set -euo pipefail
. "$(dirname "$0")/../../scripts/lib.sh"
image=$1 name=$2 started=$SECONDS
volume=tandem-sim-registry
id=$(docker image inspect -f '{{.Id}}' "$image")
marks=/var/lib/docker-registry/tandem
if docker run --rm --entrypoint grep -v "$volume:/var/lib/docker-registry" tandem-sim/depot -qxF "$id" "$marks/${name//\//_}" 2>/dev/null; then
  say "registry: $name is current"
  exit 0
fi
docker save "$image" | docker run --rm -i --entrypoint fill -v "$volume:/var/lib/docker-registry" tandem-sim/depot "$name"
docker run --rm --entrypoint sh -v "$volume:/var/lib/docker-registry" tandem-sim/depot \
  -c "mkdir -p $marks && echo $id >$marks/${name//\//_}"
say "registry: $name pushed in $((SECONDS - started)) s"
