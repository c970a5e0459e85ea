#!/usr/bin/env bash
# build.sh: the depot's image `tandem-sim/depot`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../scripts/lib.sh"
started=$SECONDS
key=$(hash_of "$here"/{Dockerfile,serve,fill,registry.yml} "$(docker image inspect -f '{{.Id}}' tandem-sim/box:trixie)")
if image_is tandem-sim/depot "$key"; then
  say "depot image: current"
else
  chmod 0755 "$here/serve" "$here/fill"
  build_image tandem-sim/depot "$key" "$here"
  say "depot image: built in $((SECONDS - started)) s"
fi
