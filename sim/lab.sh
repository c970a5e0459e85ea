#!/usr/bin/env bash
# lab.sh sim|build|up|site|chat|down: the simulated lab on this machine. sim is up, site, chat.
#
#   build  what the lab is made of, where something has changed
#   up     builds what is missing and starts depot and boxes, bare
#   site   converges them with the site.yml that real boxes get
#   chat   asks each box for a chat completion
#   down   removes everything that runs; built images and downloads stay
#
# A second lab beside the first, as the tests use it: TANDEM_SIM_LAB=name TANDEM_SIM_NETWORK=10.98.78 (the first three numbers).
# TANDEM_SIM_INVENTORY=inventory/sim-roll is a lab of three boxes with the stand-in engine.
set -euo pipefail
. "$(dirname "$0")/../scripts/lib.sh"
cd "$ROOT"
export PATH=$VENV/bin:$PATH ANSIBLE_CONFIG=$ROOT/ansible.cfg
inventory=${TANDEM_SIM_INVENTORY:-inventory/sim}
started=$SECONDS

phase() { say "[$((SECONDS - started)) s] $*"; }

build() {
  phase "what the lab is made of: boxes, packages, engine (the first time takes minutes)"
  trust_machine
  sim/box/build.sh trixie ${TANDEM_SIM_SUITE:-}  # the depot is always a trixie
  sim/depot/build.sh
  sim/packages/build.sh .cache/sim-packages
  [ "${TANDEM_SIM_SUITE:-}" != bookworm ] || sim/packages/docker.sh .cache/sim-packages
  sim/engine/build.sh
  sim/engine/model.sh
  sim/standin/build.sh
  sim/depot/push.sh tandem-sim/vllm-cpu:0.32.0 vllm-cpu:0.32.0
  sim/depot/push.sh tandem-sim/standin:0.32.0 vllm-standin:0.32.0
  sim/depot/push.sh tandem-sim/standin:0.33.0 vllm-standin:0.33.0
}

up() {
  build
  phase "boxes"
  ansible-playbook -i "$inventory" sim/playbooks/up.yml
}

site() {
  phase "site.yml, as on real boxes"
  ansible-playbook -i "$inventory" site.yml "$@"
}

chat() {
  phase "a chat with each box"
  ansible-playbook -i "$inventory" playbooks/chat.yml "$@"
}

down() {
  command -v ansible-playbook >/dev/null || die "the tools are not set up in this clone: make setup"
  ansible-playbook -i "$inventory" sim/playbooks/down.yml
  # a daemon that was started for the simulation goes with its last lab
  [ -n "$(docker ps -q --filter label=tandem.lab)" ] || sim/docker.sh stop
}

further() {
  phase "the simulated lab is up"
  cat <<TEXT
Look further:
  ssh -i .cache/sim/sim/id_ed25519 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null lab@10.98.77.11
                                                              a box, as Ansible reaches it
    sudo journalctl -u vllm-main -f                           its engine
    sudo tandem-gpu-clocks status                             its clock lock
  curl --noproxy '*' http://10.98.77.20:8080/v1/chat/completions -H 'Authorization: Bearer simulated-client-key-0123456789' \\
    -H 'Content-Type: application/json' -d '{"model": "qwen3.8-27b-int4", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 16}'
                                                              the gateway, as a client does
  ansible-playbook site.yml -i inventory/sim                  again: changes nothing (needs . .venv/bin/activate)
  make sim-down                                               removes what runs; images and downloads stay
TEXT
}

case ${1:-} in
  sim) up && site && chat && further ;;
  up | build | site | chat | down) command=$1; shift; "$command" "$@" ;;
  *) die "usage: sim/lab.sh sim|up|site|chat|down" ;;
esac
