#!/usr/bin/env bash
# molecule.sh [SCENARIO...]: scenarios on simulated boxes of their own. Without a name: those of `make test`, in two lanes beside each other, as
# a scenario mostly waits; each line of output begins with the time and its scenario.
set -euo pipefail
. "$(dirname "$0")/../scripts/lib.sh"
cd "$ROOT"
export PATH=$VENV/bin:$PATH
lanes=("default host power" "roll engine clocks")
# Another quarter of an hour, which CI does not have: make test-long.
long="faults"

# What comes in, with time and scenario before each line.
stamped() { while IFS= read -r line; do printf '%(%H:%M:%S)T %s: %s\n' -1 "$1" "$line"; done; }

# lane LAB NETWORK SCENARIO...
lane() {
  local log
  export TANDEM_SIM_LAB=$1 TANDEM_SIM_NETWORK=$2
  shift 2
  # molecule keeps its state of a scenario by the project's path: lanes never share a scenario
  log=$(mktemp)
  for scenario in "$@"; do
    local started=$SECONDS
    say "molecule: $scenario"
    if ! molecule test --scenario-name "$scenario" 2>&1 | tee "$log" | stamped "$scenario"; then
      say "molecule: $scenario FAILED after $((SECONDS - started)) s"
      rm -f "$log"
      return 1
    fi
    # molecule only warns of a step whose playbook it does not find
    ! grep -q 'Missing playbook' "$log" || die "molecule skipped a step of scenario $scenario"
    say "molecule: $scenario passed in $((SECONDS - started)) s"
  done
  rm -f "$log"
}

sim/lab.sh build
if [ $# -gt 0 ]; then
  lane "${TANDEM_SIM_LAB:-molecule}" "${TANDEM_SIM_NETWORK:-10.98.78}" "$@"
  exit
fi
# of both lanes, so made before they begin
sim/packages/build.sh "$CACHE/sim-packages-newer" --with-newer
lane molecule 10.98.78 ${lanes[0]} &
first=$!
lane molecule2 10.98.79 ${lanes[1]} &
second=$!
status=0
wait "$first" || status=1
wait "$second" || status=1
[ "$(wc -w <<<"${lanes[*]} $long")" = "$(ls -d molecule/*/ | wc -l)" ] || die "a scenario of molecule/ is in no lane of tests/molecule.sh"
exit "$status"
