#!/usr/bin/env bash
# molecule.sh [SCENARIO[+SCENARIO...]...]: scenarios on simulated boxes of their own. Without a name: those of `make test`, two at a time, as
# a scenario mostly waits; each line of output begins with the time and its scenario.
set -euo pipefail
. "$(dirname "$0")/../scripts/lib.sh"
cd "$ROOT"
export PATH=$VENV/bin:$PATH
shopt -s extglob
# With + between them scenarios follow each other on the same boxes: the later ones converge what is there instead of bare boxes. They are
# scenarios of the stand-in engine; default, host and clocks are about bare boxes. The longest first.
all="roll+engine+power default host clocks"
# Not in `make test`; tests/long.sh says why.
long="faults"

# with_times SCENARIO: what comes in, with time and scenario before each line; how long each step took goes to the table of times
with_times() {
  local line steps=() step='' at=0 number=-1 rows=() row
  while IFS= read -r line; do
    # colours are for a terminal
    line=${line//$'\e['*([0-9;])m/}
    printf '%(%H:%M:%S)T %s: %s\n' -1 "$1" "$line"
    case $line in
      *'scenario test matrix: '*) IFS=, read -ra steps <<<"${line##*matrix: }" ;;
      'INFO '*': Executing') number=$((number + 1)) step=${steps[number]:-after a failure} step=${step# } at=$SECONDS ;;
      'INFO '*': Executed: '*) rows+=("$step|$((SECONDS - at))|${line##*Executed: }") ;;
    esac
  done
  # together, as another scenario writes there too
  for row in "${rows[@]}"; do
    IFS='|' read -r step at line <<<"$row"
    took "  $1: $step" "$at" "$line"
  done
}

# scenario NAME ARGUMENT...
scenario() {
  local name=$1 log status=0
  shift
  log=$(mktemp)
  # molecule only warns of a step whose playbook it does not find
  molecule test --scenario-name "$name" "$@" 2>&1 | tee "$log" | with_times "$name" || status=1
  ! grep -q 'Missing playbook' "$log" || { say "molecule skipped a step of scenario $name"; status=1; }
  rm -f "$log"
  return $status
}

# together SCENARIO[+SCENARIO...]: one after another in the lab that the environment names, until one fails
together() {
  local names=${1//+/ } name status=0
  if [ "$names" = "$1" ]; then
    part "scenario $1" scenario "$1"
    return
  fi
  ansible-playbook -i inventory/sim-roll sim/playbooks/down.yml >/dev/null
  for name in $names; do
    part "scenario $name" scenario "$name" --destroy=never || { status=1; break; }
  done
  ansible-playbook -i inventory/sim-roll sim/playbooks/down.yml >/dev/null
  return $status
}

# of the two that run beside each other, by number; the first is the lab of `molecule converge`
lane=${TANDEM_LANE:-0} lab=molecule${TANDEM_LANE:-}
export TANDEM_SIM_LAB=${TANDEM_SIM_LAB:-${lab%0}} TANDEM_SIM_NETWORK=${TANDEM_SIM_NETWORK:-10.98.$((78 + lane))}
if [ "${1:-}" = --built ]; then
  together "$2"
  exit
fi
[ "$(tr '+ ' '\n\n' <<<"$all $long" | sort)" = "$(ls molecule | sort)" ] || die "tests/molecule.sh names a scenario of molecule/ not at all, or twice"
part "what the lab is made of" sim/lab.sh build
if [ $# -gt 0 ]; then
  for names in "$@"; do together "$names"; done
  exit
fi
# of two scenarios, so made before they begin
sim/packages/build.sh "$CACHE/sim-packages-newer" --with-newer
# molecule keeps its state of a scenario by the project's path, so no scenario is tried twice at a time
unset TANDEM_SIM_LAB TANDEM_SIM_NETWORK
printf '%s\n' $all | xargs -P 2 -n 1 --process-slot-var=TANDEM_LANE tests/molecule.sh --built
