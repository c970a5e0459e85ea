#!/usr/bin/env bash
# build.sh OUTDIR [--with-newer]: the vendor's apt repositories with stand-in packages, for a plain HTTP server:
#
#   OUTDIR/cuda/debian13/x86_64/                   driver 590 and 595, as that repository has no older one; key 8793F200.pub
#   OUTDIR/cuda/debian12/x86_64/                   driver 580; key 3bf863cc.pub
#   OUTDIR/libnvidia-container/stable/deb/amd64/   container toolkit; key OUTDIR/libnvidia-container/gpgkey
#
# --with-newer publishes a newer driver and toolkit beside the default ones, as a vendor does one day. Each repository is
# signed by a key of its own, made at the first build and kept in the cache. Built anew only when something it is made of changes.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../../scripts/lib.sh"
usage="usage: sim/packages/build.sh OUTDIR [--with-newer]"

debian12=(580.95.05)
debian13=(590.48.01 595.71.05)
toolkits=(1.18.0)
out=
for argument in "$@"; do
  case $argument in
    --with-newer) debian12+=(580.126.09) debian13+=(595.91.07) toolkits+=(1.18.1 1.20.0) ;;
    -*) die "$argument: unknown option; $usage" ;;
    *) [ -z "$out" ] || die "$argument: one OUTDIR only; $usage"; out=$argument ;;
  esac
done
[ -n "$out" ] || die "$usage"
command -v cc >/dev/null || die "cc is missing: make setup"
mkdir -p "$out"
out=$(cd "$out" && pwd)
. "$here/lib/signing.sh"
for name in cuda-debian12 cuda-debian13 libnvidia-container; do signing_key "$name"; done

# shellcheck disable=SC2046 # lists of files
key=$(hash_of $(find "$here" "$here/../nvml" -type f -not -name README.md -not -path '*/__pycache__/*' | LC_ALL=C sort) "$signing_keys"/{cuda-debian12,cuda-debian13,libnvidia-container}.asc "${debian12[@]}" "${debian13[@]}" "${toolkits[@]}")
if [ "$(cat "$out/.key" 2>/dev/null)" = "$key" ]; then
  say "packages: current"
  exit
fi
started=$SECONDS

# fill FILE VERSION-WITHOUT-REVISION: the text with @VERSION@, @UPSTREAM@, @BRANCH@ and the programs' `from nvml import` filled in
fill() { sed -e "s/@VERSION@/$2-1/g; s/@UPSTREAM@/$2/g; s/@BRANCH@/${2%%.*}/g" -e "/^from nvml import/{r $here/lib/nvml.py
d}" "$1"; }

# package SOURCE-DIRECTORY VERSION-WITHOUT-REVISION POOL: one .deb, from
#   control, preinst, postinst, prerm, postrm, triggers   dpkg's own
#   install                                               lines of: file in the directory, path on the box, mode
# FILE@VERSION is FILE of that version, where it differs. Files under etc/ are configuration files, as with debhelper.
package() {
  local source=$1 version=$2 pool=$3 name root file path mode
  of() { if [ -e "$source/$1@$version" ]; then echo "$source/$1@$version"; else echo "$source/$1"; fi; }
  name=$(fill "$(of control)" "$version" | sed -n 's/^Package: //p')
  root=$work/$name-$version
  mkdir -p "$root/DEBIAN" "$pool"
  for file in control preinst postinst prerm postrm triggers; do
    [ ! -e "$(of "$file")" ] || fill "$(of "$file")" "$version" >"$root/DEBIAN/$file"
    case $file in pre* | post*) [ ! -e "$(of "$file")" ] || chmod 0755 "$root/DEBIAN/$file" ;; esac
  done
  if [ -e "$(of install)" ]; then
    while read -r file path mode; do
      mkdir -p "$root/$(dirname "$path")"
      fill "$(of "$file")" "$version" >"$root/$path"
      chmod "$mode" "$root/$path"
    done < <(fill "$(of install)" "$version")
  fi
  if [ "$name" = libnvidia-ml1 ]; then
    "$here/../nvml/build.sh" "$CACHE/packages/nvml-$version" "$version" >/dev/null
    path=$root/usr/lib/x86_64-linux-gnu
    mkdir -p "$path"
    install -m 0644 "$CACHE/packages/nvml-$version/libnvidia-ml.so.1" "$path/libnvidia-ml.so.$version"
    ln -s "libnvidia-ml.so.$version" "$path/libnvidia-ml.so.1"
  fi
  (
    cd "$root"
    [ ! -d etc ] || find etc -type f -printf '/%p\n' | LC_ALL=C sort >DEBIAN/conffiles
    find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0r md5sum >DEBIAN/md5sums
  )
  dpkg-deb --build --root-owner-group -Zgzip "$root" "$pool" >/dev/null
}

# index DIRECTORY KEY LABEL: makes a directory of packages a flat repository, signed with its key
index() {
  signing_key "$2"
  (cd "$1" && apt-ftparchive packages . >Packages && gzip -kn Packages)
  sign "$1" -o APT::FTPArchive::Release::Origin=NVIDIA -o "APT::FTPArchive::Release::Label=$3"
}

new=$out/.new
rm -rf "$new"
for version in "${debian12[@]}"; do
  for source in "$here"/cuda/*/; do package "$source" "$version" "$new/cuda/debian12/x86_64"; done
done
for version in "${debian13[@]}"; do
  for source in "$here"/cuda/*/; do package "$source" "$version" "$new/cuda/debian13/x86_64"; done
done
for version in "${toolkits[@]}"; do
  for source in "$here"/toolkit/*/; do package "$source" "$version" "$new/libnvidia-container/stable/deb/amd64"; done
done
index "$new/cuda/debian12/x86_64" cuda-debian12 "NVIDIA CUDA"
publish_key "$new/cuda/debian12/x86_64/3bf863cc.pub"
index "$new/cuda/debian13/x86_64" cuda-debian13 "NVIDIA CUDA"
publish_key "$new/cuda/debian13/x86_64/8793F200.pub"
index "$new/libnvidia-container/stable/deb/amd64" libnvidia-container libnvidia-container
publish_key "$new/libnvidia-container/gpgkey"

# OUTDIR itself stays, as a server may have it mounted; a cut-short exchange leaves no .key and is done anew.
rm -f "$out/.key"
for tree in cuda libnvidia-container; do
  rm -rf "${out:?}/$tree"
  mv "$new/$tree" "$out/$tree"
done
rm -rf "$new"
echo "$key" >"$out/.key"
say "packages: built in $((SECONDS - started)) s (driver ${debian12[*]} ${debian13[*]}, toolkit ${toolkits[*]})"
