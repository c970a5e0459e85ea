#!/usr/bin/env bash
# What a change must pass, and at the end how long each part of it took. What this leaves out is in tests/long.sh.
set -euo pipefail
. "$(dirname "$0")/../scripts/lib.sh"
cd "$ROOT"
export TANDEM_TIMES=$ROOT/.cache/times.test
: >"$TANDEM_TIMES"
trap times_table EXIT

# One of them leaves a core idle, so they run beside each other.
part lint make --no-print-directory lint &
lint=$!
part "unit tests" make --no-print-directory unit &
unit=$!
status=0
wait "$lint" || status=1
wait "$unit" || status=1
[ "$status" = 0 ] || die "lint or unit tests failed; the scenarios were not tried"
part scenarios make --no-print-directory molecule
