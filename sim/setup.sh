#!/usr/bin/env bash
# `make setup`: what the simulation and the tests need of this machine. Running it again changes nothing and is quick.
#
#   distribution packages, if any are missing (needs root and apt; without them it says what to install)
#   the controller: .venv and the collections (scripts/controller.sh)
#   what tests ask as a witness: NVIDIA's own nvidia-smi, unpacked into the cache (sim/nvml/witness.sh)
#   a Docker Engine that answers (sim/docker.sh)
set -euo pipefail
. "$(dirname "$0")/../scripts/lib.sh"
started=$SECONDS

# where Debian keeps dockerd and iptables is not on everybody's path
PATH=$PATH:/usr/sbin:/sbin

# command that shows it is there : package that brings it
needs="
docker:docker.io
dockerd:docker.io
iptables:iptables
mmdebstrap:mmdebstrap
cc:gcc
gpg:gnupg
haproxy:haproxy
nft:nftables
apt-ftparchive:apt-utils
dpkg-deb:dpkg
ssh:openssh-client
ssh-keygen:openssh-client
make:make
chromium:chromium
strip:binutils
systemd-analyze:systemd
"
missing=$(for need in $needs; do command -v "${need%%:*}" >/dev/null || echo "${need##*:}"; done | sort -u)
[ -e /usr/include/stdio.h ] || missing="$missing libc6-dev"
[ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || missing="$missing debian-archive-keyring"
"$(base_python)" -c 'import venv, ensurepip' 2>/dev/null || missing="$missing python3-venv"
# Debian 13 and Ubuntu 24.04 split the client from the daemon
case " $missing " in *docker.io*) apt-cache show docker-cli >/dev/null 2>&1 && missing="$missing docker-cli" ;; esac
# a daemon that answers already, here or elsewhere, needs no dockerd of ours
if timeout 10 docker version >/dev/null 2>&1; then missing=$(echo $missing | tr ' ' '\n' | grep -vxE 'docker.io|docker-cli|iptables' || true); fi
missing=$(echo $missing)

if [ -n "$missing" ]; then
  command -v apt-get >/dev/null \
    || die "this machine lacks: $missing (names of Debian's packages), and has no apt-get; install their like by hand and run this again"
  [ "$(id -u)" = 0 ] || die "this machine lacks: $missing; install them and run this again: sudo apt-get install $missing"
  say "packages: $missing"
  # the packages of a service must not start it where there may be no service manager
  policy=/usr/sbin/policy-rc.d
  if [ ! -d /run/systemd/system ] && [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  # shellcheck disable=SC2086 # a list of packages
  apt-get install -qq -y --no-install-recommends $missing >"$CACHE/apt.log" 2>&1 || { tail -n 20 "$CACHE/apt.log" >&2; die "apt-get install failed"; }
fi

"$ROOT/scripts/controller.sh"
# a simulated lab does without; the tests that ask it then say so
"$ROOT/sim/nvml/witness.sh" >/dev/null || say "going on without nvidia-smi: tests that ask it are skipped, which is an error in make test"
"$ROOT/sim/docker.sh" start
say "setup: ready in $((SECONDS - started)) s"
