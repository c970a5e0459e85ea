#!/usr/bin/env bash
# molecule.sh [SCENARIO...]: the scenarios, one after another, on boxes of their own. Without a name: all.
set -euo pipefail
. "$(dirname "$0")/../scripts/lib.sh"
cd "$ROOT"
export PATH=$VENV/bin:$PATH
sim/lab.sh build
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for scenario in "${@:-$(basename -a molecule/*/)}"; do
  for name in $scenario; do
    say "molecule: $name"
    molecule test --scenario-name "$name" 2>&1 | tee "$log"
    # molecule only warns of a step whose playbook it does not find
    ! grep -q 'Missing playbook' "$log" || die "molecule skipped a step of scenario $name"
  done
done
