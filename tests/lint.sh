#!/usr/bin/env bash
# The static checks, and what ansible-playbook itself says of the shipped lab.
set -euo pipefail
cd "$(dirname "$0")/.."
ruff check .
ruff format --check .
yamllint --strict .
ansible-lint --offline
ansible-playbook site.yml -i inventory/lab --syntax-check
ansible-playbook site.yml -i inventory/lab --list-tasks >/dev/null
