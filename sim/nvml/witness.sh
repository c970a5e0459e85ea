#!/usr/bin/env bash
# NVIDIA's own nvidia-smi and libnvidia-ml.so.1, of Debian's non-free, in the cache: what the simulated NVML is checked
# against. Unpacked, never installed; apt checks their signature, in lists of its own. Needs no root.
# usage: witness.sh [SUITE...]      default: bookworm (535) and trixie (550)
# Prints a folder for each, with nvidia-smi, libnvidia-ml.so.1 and version.
set -euo pipefail
. "$(dirname "$0")/../../scripts/lib.sh"
[ $# -gt 0 ] || set -- bookworm trixie

keyring=/usr/share/keyrings/debian-archive-keyring.gpg
# The Debian mirror that this machine uses already; the public one where it is no Debian.
mirror=$(apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null | sed -n 's/^Debian //p' | grep -v security | head -n 1 || true)

work=
# bash does not end at a failed command of a function whose failure is asked for, so it is asked here
leave() {
  local code=$?
  [ -z "$work" ] || rm -rf "$work"
  [ "$code" = 0 ] || printf 'error: nvidia-smi of Debian %s non-free cannot be had from %s\n' "${suite:-}" "${mirror:-http://deb.debian.org/debian/}" >&2
}
trap leave EXIT

get() {
  local option tree=$work/tree apt=(apt-get -qq)
  mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/found" "$tree"
  echo "deb [arch=amd64 signed-by=$keyring] ${mirror:-http://deb.debian.org/debian/} $suite non-free" >"$work/sources.list"
  for option in "Dir::Etc::sourcelist=$work/sources.list" Dir::Etc::sourceparts=/dev/null "Dir::State::lists=$work/lists" \
    "Dir::Cache=$work" Debug::NoLocking=1 APT::Sandbox::User=root Acquire::http::Timeout=10 Acquire::Retries=1; do
    apt+=("-o$option")
  done
  "${apt[@]}" update
  cd "$work"
  "${apt[@]}" download nvidia-smi libnvidia-ml1
  for deb in *.deb; do dpkg-deb -x "$deb" "$tree"; done
  cp "$tree"/usr/lib/nvidia/*/nvidia-smi "$work/found/"
  cp "$tree"/usr/lib/x86_64-linux-gnu/nvidia/*/libnvidia-ml.so.1 "$work/found/"
  find "$tree" -name 'libnvidia-ml.so.*.*' -printf '%f\n' | sed 's/libnvidia-ml[.]so[.]//' >"$work/found/version"
  mkdir -p "$(dirname "$folder")"
  rm -rf "$folder"
  mv "$work/found" "$folder"
  cd /
}

for suite in "$@"; do
  folder=$CACHE/nvml-witness/$suite
  if [ ! -s "$folder/version" ]; then
    [ -e "$keyring" ] || die "no $keyring, which Debian's packages are checked with: apt-get install debian-archive-keyring"
    work=$(mktemp -d)
    get
    rm -rf "$work"
  fi
  echo "$folder"
done
