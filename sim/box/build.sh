#!/usr/bin/env bash
# build.sh [trixie|bookworm]...: the simulated box's image `tandem-sim/box:SUITE`, from a registry's debian image where one
# answers, else from Debian's packages. Built anew only when what it is made of changes.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../scripts/lib.sh"
packages=systemd,systemd-sysv,dbus,python3,python3-apt,ca-certificates,curl,iproute2,iptables,procps,sudo,openssh-server
slim=(--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*')

# The Debian mirror that this machine uses already; the public one where it is no Debian.
mirror() {
  local found=${TANDEM_DEBIAN_MIRROR:-}
  [ -n "$found" ] || found=$(apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null | sed -n 's/^Debian //p' | grep -v security | head -n 1)
  echo "${found:-http://deb.debian.org/debian/}"
}

# Of its own key: a change of what is laid over it needs no new bootstrap. A month old is new enough for a simulated box.
base() { # suite
  local name=tandem-sim/box-base:$1 key
  key=$(hash_of "$packages" "${slim[*]}" "$1" "$(date +%Y-%m)")
  image_is "$name" "$key" && return
  if timeout 60 docker pull -q "debian:$1" >/dev/null 2>&1; then
    docker build -q --label "tandem.key=$key" -t "$name" - >/dev/null <<D
FROM debian:$1
RUN apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ${packages//,/ } >/dev/null
D
  elif command -v mmdebstrap >/dev/null; then
    mmdebstrap --quiet --variant=minbase --include="$packages" "${slim[@]}" "$1" - "$(mirror)" | docker import --change "LABEL tandem.key=$key" - "$name" >/dev/null
  else
    die "no registry answers for debian:$1, and mmdebstrap is not installed: apt-get install mmdebstrap"
  fi
}

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
cp -r "$here/rootfs" "$here/Dockerfile" "$context"
# a look into the simulated cards, for people and tests
install -m 0755 "$here/../nvml/simctl" "$context/rootfs/usr/local/sbin/sim-nvml"
# the power supply, which the stand-in engine can overload
units=$context/rootfs/etc/systemd/system
install -m 0644 -t "$units" "$here"/../standin/box/sim-power.{path,service}
mkdir -p "$units/multi-user.target.wants"
ln -s ../sim-power.path "$units/multi-user.target.wants/sim-power.path"
# a private CA that this machine trusts, the boxes trust too
mkdir "$context/ca-certificates"
cp /usr/local/share/ca-certificates/*.crt "$context/ca-certificates/" 2>/dev/null || true

for suite in $(printf "%s\n" "$@" | sort -u); do
  started=$SECONDS
  # shellcheck disable=SC2046 # a list of files
  key=$(hash_of $(find "$context" -type f | sort) "$packages" "$suite")
  image=tandem-sim/box:$suite
  if image_is "$image" "$key"; then
    say "box image $suite: current"
    continue
  fi
  base "$suite"
  build_image "$image" "$key" --build-arg "BASE=tandem-sim/box-base:$suite" "$context"
  say "box image $suite: built in $((SECONDS - started)) s"
done
