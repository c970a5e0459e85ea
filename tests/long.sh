#!/usr/bin/env bash
# long.sh [LANE...]: what `make test` leaves out, and why; one after another, all of them even where one fails. For each night, and before a release.
#
#   faults    runs that are cut short: a quarter of an hour of waiting on three boxes, and what it tests changes seldom
#   bookworm  Debian 12 boxes from bare to a chat, and a second run that changes nothing: the roles' second path costs another image, Docker's own
#             packages and a second converge
#   newest    a box is converged by Debian 13's Python and the newest ansible-core that there is: it can fail for what others have published
#   starts    tests/long: what only shows when it is done often, such as twenty starts of real vLLM
set -euo pipefail
. "$(dirname "$0")/../scripts/lib.sh"
cd "$ROOT"
export PATH=$VENV/bin:$PATH ANSIBLE_CONFIG=$ROOT/ansible.cfg

# lab NAME NETWORK: a simulated lab for this lane, which goes with it
lab() {
  export TANDEM_SIM_LAB=$1 TANDEM_SIM_NETWORK=$2
  down=(ansible-playbook -i inventory/sim sim/playbooks/down.yml)
  "${down[@]}" >/dev/null
  trap '"${down[@]}" >/dev/null' EXIT
}

# unchanged COMMAND...: COMMAND, which must change nothing on any machine
unchanged() {
  local log
  log=$(mktemp)
  "$@" | tee "$log"
  ! grep -E ' changed=[1-9]' "$log" || die "the second run changed something"
  rm -f "$log"
}

faults() { tests/molecule.sh faults; }

bookworm() {
  export TANDEM_SIM_SUITE=bookworm
  lab bookworm 10.98.80
  sim/lab.sh up
  sim/lab.sh site
  sim/lab.sh chat
  unchanged sim/lab.sh site
}

newest() {
  lab newest 10.98.81
  sim/lab.sh up
  tests/newest_ansible.sh
}

starts() {
  sim/lab.sh build
  "$PYTHON" -m pytest tests/long
}

lanes=(faults bookworm newest starts)
if [ "${1:-}" = --lane ]; then
  "$2"
  exit
fi
[ $# = 0 ] || lanes=("$@")
export TANDEM_TIMES=$ROOT/.cache/times.long
: >"$TANDEM_TIMES"
trap times_table EXIT
status=0
for lane in "${lanes[@]}"; do
  grep -q "^#   $lane " "$0" || die "$lane is no lane; those are: faults bookworm newest starts"
  # a shell of its own, which ends at the first command that fails
  part "$lane" "$0" --lane "$lane" || status=1
done
exit "$status"
