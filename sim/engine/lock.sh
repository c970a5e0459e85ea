#!/bin/bash
# lock.sh -- resolves requirements.in into requirements.lock. Run it by hand after a change of requirements.in; needs an index.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../scripts/lib.sh"
. "$here/common.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$PYTHON" -m pip install -q --dry-run --ignore-installed --no-cache-dir --target "$work/none" \
  "${PIP_TARGET[@]}" --report "$work/report.json" -r "$ENGINE_DIR/requirements.in"
{
  echo "# Made by sim/engine/lock.sh from requirements.in: every distribution in the engine image (CPython 3.11, x86_64)."
  {
    sed -n 's/^# no-deps: //p' "$ENGINE_DIR/requirements.in"
    "$PYTHON" - "$work/report.json" <<'P'
import json
import re
import sys

for item in json.load(open(sys.argv[1]))["install"]:
    meta = item["metadata"]
    print(re.sub(r"[-_.]+", "-", meta["name"]).lower() + "==" + meta["version"])
P
  } | LC_ALL=C sort
} > "$work/lock"
mv "$work/lock" "$ENGINE_DIR/requirements.lock"
echo "requirements.lock: $(grep -c '==' "$ENGINE_DIR/requirements.lock") distributions"
