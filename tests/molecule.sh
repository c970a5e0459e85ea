#!/usr/bin/env bash
# molecule.sh [SCENARIO...]: the scenarios, one after another, on boxes of their own. Without a name: all.
set -euo pipefail
. "$(dirname "$0")/../scripts/lib.sh"
cd "$ROOT"
export PATH=$VENV/bin:$PATH
sim/lab.sh build
for scenario in "${@:-$(basename -a molecule/*/)}"; do
  for name in $scenario; do
    say "molecule: $name"
    molecule test --scenario-name "$name"
  done
done
