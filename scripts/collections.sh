#!/usr/bin/env bash
# The collections of requirements.yml into .cache/collections: from Galaxy where it answers, else the same versions out of
# PyPI's `ansible` package, which carries them (one large download, kept in the cache).
set -euo pipefail
. "$(dirname "$0")/lib.sh"
package=ansible==12.3.0
wanted=$ROOT/requirements.yml
dest=$ROOT/.cache/collections
kept=$CACHE/collections-$(hash_of "$wanted" "$package")
galaxy="$VENV/bin/ansible-galaxy collection install -r $wanted"
export ANSIBLE_COLLECTIONS_PATH=$dest PATH=$VENV/bin:$PATH

if [ "$(readlink "$dest" 2>/dev/null)" = "$kept" ] && [ -d "$kept" ]; then exit 0; fi
if [ ! -d "$kept" ]; then
  tmp=$(mktemp -d "$CACHE/collections.XXXXXX")
  trap 'rm -rf "$tmp"' EXIT
  trust_machine
  if timeout "${GALAXY_TIMEOUT:-60}" $galaxy -p "$tmp/c" >/dev/null 2>&1; then
    say "collections: from Galaxy"
  else
    say "collections: Galaxy does not answer; taking them out of PyPI's $package"
    "$PYTHON" -m pip download -qq --disable-pip-version-check --no-deps -d "$tmp" "$package"
    "$PYTHON" "$ROOT/scripts/collections_from_wheel.py" "$tmp"/ansible-*.whl "$wanted" "$tmp/c"
    # the versions satisfy requirements.yml, or this fails
    ANSIBLE_COLLECTIONS_PATH=$tmp/c $galaxy -p "$tmp/c" --offline >/dev/null
  fi
  mv "$tmp/c" "$kept"
fi
ln -sfn "$kept" "$dest"
