#!/usr/bin/env bash
# Makes this machine an Ansible controller: .venv with the locked packages, and the collections. Changes nothing else.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
started=$SECONDS

base=$(base_python)
command -v "$base" >/dev/null || die "no $base on this machine; install Python 3.11 or newer, or name one: TANDEM_PYTHON=/path/to/python3"
"$base" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
  || die "$base is $("$base" -V); Python 3.11 or newer is needed: name one with TANDEM_PYTHON=/path/to/python3"
"$base" -c 'import venv, ensurepip' 2>/dev/null \
  || die "$base cannot make virtual environments; install them: apt-get install python3-venv"

key=$(hash_of "$ROOT/requirements.lock" "$("$base" -V)")
if [ "$(cat "$VENV/.tandem-key" 2>/dev/null)" != "$key" ]; then
  say "python packages of requirements.lock into .venv"
  rm -rf "$VENV"
  "$base" -m venv "$VENV"
  trust_machine
  "$VENV/bin/python" -m pip install -qq --disable-pip-version-check --require-hashes -r "$ROOT/requirements.lock"
  printf '%s\n' "$key" >"$VENV/.tandem-key"
fi
"$ROOT/scripts/collections.sh"
say "controller: ready in $((SECONDS - started)) s"
