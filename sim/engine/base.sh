#!/usr/bin/env bash
# base.sh: the image `tandem-sim/base:bookworm`, Debian 12 with just what the engine needs of it; from a registry's debian image
# where one answers, else from Debian's packages.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../scripts/lib.sh"
. "$here/common.sh"
started=$SECONDS
# libstdc++6: torch links against the system's; libnuma1: so does vLLM; procps: people look at processes in containers
packages=python3,libstdc++6,libnuma1,ca-certificates,procps
slim=(--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*')

key=$(hash_of "$here/base.sh")
if image_is "$BASE_IMAGE" "$key"; then
  say "engine base image: current"
  exit 0
fi

# The Debian mirror and proxy that this machine uses already; the public mirror where it is no Debian.
mirror=${TANDEM_DEBIAN_MIRROR:-$(apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null | sed -n 's/^Debian //p' | grep -v security | head -n 1)}
proxy=$(apt-config shell P Acquire::http::Proxy 2>/dev/null | sed -n "s/^P='\(.*\)'$/\1/p")

from_registry() {
  timeout 30 docker pull -q debian:bookworm-slim >/dev/null 2>&1 && build_image "$BASE_IMAGE" "$key" - <<D
FROM debian:bookworm-slim
RUN apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ${packages//,/ } >/dev/null && rm -rf /var/lib/apt/lists/*
D
}

from_packages() {
  command -v mmdebstrap >/dev/null || die "no registry answers for debian:bookworm-slim, and mmdebstrap is not installed: apt-get install mmdebstrap"
  # variant essential: without apt, which a container has no use for
  mmdebstrap --quiet --variant=essential --include="$packages" "${slim[@]}" ${proxy:+--aptopt="Acquire::http::Proxy \"$proxy\""} \
    bookworm - "${mirror:-http://deb.debian.org/debian/}" \
    | docker import --change "LABEL tandem.key=$key" - "$BASE_IMAGE" >/dev/null
}

from_registry || from_packages
say "engine base image: built in $((SECONDS - started)) s"
