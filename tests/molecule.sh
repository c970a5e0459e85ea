#!/usr/bin/env bash
# molecule.sh [SCENARIO...]: scenarios on simulated boxes of their own. Without a name: those of `make test`, in two lanes beside each other, as
# a scenario mostly waits; each line of output begins with the time and its scenario.
set -euo pipefail
. "$(dirname "$0")/../scripts/lib.sh"
cd "$ROOT"
export PATH=$VENV/bin:$PATH
shopt -s extglob
# With + between them scenarios follow each other on the same boxes: the later ones converge what is there instead of bare boxes. They are
# scenarios of the stand-in engine; default, host and clocks are about bare boxes.
lanes=("default host" "roll+engine+power clocks")
# Not in `make test`; tests/long.sh says why.
long="faults"

# with_times SCENARIO: what comes in, with time and scenario before each line; how long each step took goes to the table of times
with_times() {
  local line steps=() step='' at=0 number=-1
  while IFS= read -r line; do
    # colours are for a terminal
    line=${line//$'\e['*([0-9;])m/}
    printf '%(%H:%M:%S)T %s: %s\n' -1 "$1" "$line"
    case $line in
      *'scenario test matrix: '*) IFS=, read -ra steps <<<"${line##*matrix: }" ;;
      'INFO '*': Executing') number=$((number + 1)) step=${steps[number]# } at=$SECONDS ;;
      'INFO '*': Executed: '*) took "  $1: $step" $((SECONDS - at)) "${line##*Executed: }" ;;
    esac
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

# lane LAB NETWORK SCENARIO[+SCENARIO...]...: until one fails. molecule keeps its state of a scenario by the project's path, so no
# scenario is in two lanes.
lane() {
  local together names name status=0
  export TANDEM_SIM_LAB=$1 TANDEM_SIM_NETWORK=$2
  shift 2
  for together in "$@"; do
    names=${together//+/ }
    if [ "$names" = "$together" ]; then
      part "scenario $together" scenario "$together" || return 1
      continue
    fi
    ansible-playbook -i inventory/sim-roll sim/playbooks/down.yml >/dev/null
    for name in $names; do
      part "scenario $name" scenario "$name" --destroy=never || { status=1; break; }
    done
    ansible-playbook -i inventory/sim-roll sim/playbooks/down.yml >/dev/null
    [ "$status" = 0 ] || return 1
  done
}

[ "$(tr '+ ' '\n\n' <<<"${lanes[*]} $long" | sort)" = "$(ls molecule | sort)" ] || die "a scenario of molecule/ is in no lane of tests/molecule.sh, or in two"
part "what the lab is made of" sim/lab.sh build
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
exit "$status"
