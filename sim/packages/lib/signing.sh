# Sourced after scripts/lib.sh by the scripts that publish repositories: a place to work in, and a key for each of them, kept in
# the cache. Sets $work, which is removed at the end.
# shellcheck shell=bash
for tool in dpkg-deb apt-ftparchive gpg gpgconf; do
  command -v "$tool" >/dev/null || die "$tool is missing: make setup"
done
mkdir -p "$CACHE/packages"

# One build at a time: they share the keys, and perhaps the directory they publish to.
exec 9>"$CACHE/packages/lock"
flock 9

work=$(mktemp -d)
export GNUPGHOME=$work/gnupg # in /tmp, as a socket's path must be short
finish() {
  gpgconf --kill all 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT
mkdir -m 0700 "$GNUPGHOME"

# signing_key NAME: from now on `sign` signs with the key of the repository NAME, as each of the vendors' repositories has its
# own. Without a passphrase: they sign nothing but stand-ins. Its fingerprint is kept beside it, for the inventory.
signing_keys=$CACHE/packages/keys
signing_key() {
  local file=$signing_keys/$1.asc
  mkdir -p "$signing_keys"
  if [ ! -s "$file" ]; then
    gpg --batch --quiet --passphrase '' --quick-generate-key "tandem simulated vendor of $1 (signs stand-ins only)" ed25519 sign never 2>/dev/null
    (umask 077 && gpg --batch --armor --export-secret-keys "vendor of $1 (signs" >"$file.new")
    mv "$file.new" "$file"
  else
    gpg --batch --quiet --import "$file" 2>/dev/null
  fi
  signing_fingerprint=$(gpg --with-colons --show-keys "$file" | sed -n '/^fpr/{s/^fpr:*//; s/:$//; p; q}')
  echo "$signing_fingerprint" >"$signing_keys/$1.fingerprint"
}

# sign DIRECTORY OPTION...: writes Release, Release.gpg and InRelease over the indexes below DIRECTORY; options of apt-ftparchive
# name what is in it
sign() {
  (
    cd "$1"
    shift
    apt-ftparchive -o APT::FTPArchive::Release::Architectures=amd64 \
      -o "APT::FTPArchive::Release::Description=simulated stand-ins" "$@" release . >"$work/Release"
    mv "$work/Release" Release
    gpg --batch --quiet --yes --no-auto-check-trustdb -u "$signing_fingerprint" --armor --detach-sign -o Release.gpg Release
    gpg --batch --quiet --yes --no-auto-check-trustdb -u "$signing_fingerprint" --clear-sign -o InRelease Release
  )
}

# publish_key FILE: the public part of what `sign` signs with
publish_key() { gpg --batch --armor --export "$signing_fingerprint" >"$1"; }
