# Sourced by the scripts of this repository: where things are, and how to say what is going on.
# shellcheck shell=bash
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Expensive artefacts, keyed by what they are made of, outlive a clone.
CACHE=${TANDEM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tandem}
export TANDEM_CACHE=$CACHE
VENV=$ROOT/.venv
PYTHON=${PYTHON:-$VENV/bin/python}
export PYTHON
# What sets this means to keep an image small; here it has every ansible-playbook of hundreds compile the same files.
unset PYTHONDONTWRITEBYTECODE
mkdir -p "$CACHE" "$ROOT/.cache"

# The Python that makes .venv: the distribution's where it is new enough, as one that pyenv has built is a quarter slower.
base_python() {
  local candidate
  for candidate in "${TANDEM_PYTHON:-/usr/bin/python3}" "${TANDEM_PYTHON:-python3}"; do
    "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break
  done
  printf '%s\n' "$candidate"
}

say() { printf '== %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# trust_machine: Python's tools trust the authorities that the machine does, a private one among them. A distribution's Python does so by
# itself; others, and pip, bring a list of their own. What the user has set stays.
trust_machine() {
  local bundle
  for bundle in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem /etc/ssl/cert.pem; do
    [ -r "$bundle" ] || continue
    export SSL_CERT_FILE=${SSL_CERT_FILE:-$bundle}
    if [ -z "${PIP_CERT:-}" ] && ! "$PYTHON" -m pip config get global.cert >/dev/null 2>&1; then export PIP_CERT=$SSL_CERT_FILE; fi
    return 0
  done
}

# hash_of WORD-OR-FILE...: sixteen hexadecimal digits over the files' contents and the words
hash_of() {
  local part
  for part in "$@"; do
    if [ -f "$part" ]; then cat "$part"; else printf '%s\n' "$part"; fi
  done | sha256sum | cut -c1-16
}

# image_is IMAGE KEY: whether IMAGE exists and was made of what KEY says
image_is() { [ "$(docker image inspect -f '{{index .Config.Labels "tandem.key"}}' "$1" 2>/dev/null)" = "$2" ]; }

# build_image IMAGE KEY ARGUMENT...: docker build, quiet unless it fails. The classic builder, as BuildKit cannot be had
# everywhere that Debian's Docker runs.
build_image() {
  local image=$1 key=$2 output
  shift 2
  output=$(DOCKER_BUILDKIT=0 docker build --label "tandem.key=$key" -t "$image" "$@" 2>&1) || { printf '%s\n' "$output" >&2; die "building $image failed"; }
}

# took WHAT SECONDS [RESULT]: a line for the table of times, where somebody prints one
took() { [ -z "${TANDEM_TIMES:-}" ] || printf '%s\t%s\t%s\n' "$2" "$1" "${3:-}" >>"$TANDEM_TIMES"; }

# part WHAT COMMAND...: COMMAND, told with its time when it ends, and in the table. Fails as COMMAND does.
part() {
  local what=$1 since=$SECONDS result=passed
  shift
  say "$what"
  "$@" || result=FAILED
  say "$what: $result in $((SECONDS - since)) s"
  took "$what" $((SECONDS - since)) "$result"
  [ "$result" = passed ]
}

# times_table: what `part` and `took` have noted, and how long all of it took
times_table() {
  [ -s "${TANDEM_TIMES:-}" ] || return 0
  say "what each part took"
  awk -F'\t' '{ printf "%4d:%02d  %s%s\n", $1 / 60, $1 % 60, $2, ($3 == "" || $3 == "passed" || $3 == "Successful") ? "" : "  " $3 }' "$TANDEM_TIMES"
  printf '%4d:%02d  all together\n' $((SECONDS / 60)) $((SECONDS % 60))
}
