# Sourced after scripts/lib.sh by the scripts that publish repositories: a place to work in, and the one key that signs them
# all, kept in the cache. Sets $work, which is removed at the end, and $signing_key.
# shellcheck shell=bash
for tool in dpkg-deb apt-ftparchive gpg gpgconf; do
  command -v "$tool" >/dev/null || die "$tool is missing: make setup"
done
mkdir -p "$CACHE/packages"

# One build at a time: they share the key, and perhaps the directory they publish to.
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

# The vendor's key, without a passphrase: it signs nothing but stand-ins.
signing_key=$CACHE/packages/signing-key.asc
if [ ! -e "$signing_key" ]; then
  gpg --batch --quiet --passphrase '' --quick-generate-key 'tandem simulated vendor (signs stand-ins only)' ed25519 sign never 2>/dev/null
  (umask 077 && gpg --batch --armor --export-secret-keys >"$signing_key.new")
  mv "$signing_key.new" "$signing_key"
else
  gpg --batch --quiet --import "$signing_key" 2>/dev/null
fi

# sign DIRECTORY OPTION...: writes Release, Release.gpg and InRelease over the indexes below DIRECTORY; options of apt-ftparchive
# name what is in it
sign() {
  (
    cd "$1"
    shift
    apt-ftparchive -o APT::FTPArchive::Release::Architectures=amd64 \
      -o "APT::FTPArchive::Release::Description=simulated stand-ins" "$@" release . >"$work/Release"
    mv "$work/Release" Release
    gpg --batch --quiet --yes --armor --detach-sign -o Release.gpg Release
    gpg --batch --quiet --yes --clear-sign -o InRelease Release
  )
}
