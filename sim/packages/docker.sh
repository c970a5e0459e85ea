#!/usr/bin/env bash
# docker.sh OUTDIR: a stand-in for Docker's own apt repository, for Debian 12 boxes, whose own Docker 20.10 knows no CDI:
#
#   OUTDIR/docker/linux/debian/dists/bookworm/   docker-ce, docker-ce-cli, containerd.io; key OUTDIR/docker/linux/debian/gpg
#
# Under Docker's names are Debian 13's packages of the same programs, which need nothing newer than Debian 12 has; the
# distribution's runc and tini complete them. They are downloaded inside the image of a Debian 13 box.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../../scripts/lib.sh"
[ $# = 1 ] || die "usage: sim/packages/docker.sh OUTDIR"
mkdir -p "$1"
out=$(cd "$1" && pwd)
. "$here/lib/signing.sh"

signing_key docker
key=$(hash_of "$here/docker.sh" "$here/lib/signing.sh" "$signing_keys/docker.asc")
if [ "$(cat "$out/docker/.key" 2>/dev/null)" = "$key" ]; then
  say "Docker's repository: current"
  exit
fi
started=$SECONDS

docker run --rm --network host --entrypoint sh -v "$work:/out" -w /out tandem-sim/box:trixie -euc \
  'apt-get update -qq && apt-get download -qq -o APT::Sandbox::User=root docker.io docker-cli containerd' >"$work/log" 2>&1 \
  || { cat "$work/log" >&2; die "downloading Debian 13's Docker failed"; }

# repack NAME FROM VERSION DEPENDS CONFLICTS: Debian's package FROM under the name and with the relations of Docker's NAME
repack() {
  local name=$1 from=$2 version=$3 root=$work/$1
  dpkg-deb -R "$work/${from}"_*.deb "$root"
  cat >"$root/DEBIAN/control" <<CONTROL
Package: $name
Version: $version
Architecture: amd64
Section: admin
Priority: optional
Maintainer: tandem <simulated@localhost>
Depends: $4
Conflicts: $5
Replaces: $5
Description: Debian 13's $from under Docker's name (simulated stand-in)
CONTROL
  dpkg-deb --build --root-owner-group -Zgzip -z1 "$root" "$pool" >/dev/null
  rm -rf "$root"
}

new=$out/.new-docker
pool=$new/linux/debian/dists/bookworm/pool/stable/amd64
index=$new/linux/debian/dists/bookworm/stable/binary-amd64
rm -rf "$new"
mkdir -p "$pool" "$index"
docker_version=$(dpkg-deb -f "$work"/docker.io_*.deb Version)
containerd_version=$(dpkg-deb -f "$work"/containerd_*.deb Version)
version=5:${docker_version%%+*}-1~debian.12~bookworm
# Docker's containerd.io has a runc of its own in it.
repack containerd.io containerd "${containerd_version%%~*}-1" 'libc6 (>= 2.34), runc' containerd
repack docker-ce-cli docker-cli "$version" 'libc6 (>= 2.34)' 'docker.io (<< 26.1.4+dfsg1-7~), docker-cli'
repack docker-ce docker.io "$version" \
  'containerd.io (>= 1.6.24), docker-ce-cli, libc6 (>= 2.34), libsystemd0, adduser, iptables, sysvinit-utils, tini' docker.io
(cd "$new/linux/debian" && apt-ftparchive packages dists/bookworm/pool) >"$index/Packages"
gzip -kn "$index/Packages"
sign "$new/linux/debian/dists/bookworm" -o APT::FTPArchive::Release::Origin=Docker -o APT::FTPArchive::Release::Suite=bookworm \
  -o APT::FTPArchive::Release::Codename=bookworm -o APT::FTPArchive::Release::Components=stable
publish_key "$new/linux/debian/gpg"

echo "$key" >"$new/.key"
rm -rf "$out/docker"
mv "$new" "$out/docker"
say "Docker's repository: built in $((SECONDS - started)) s (docker-ce $version)"
