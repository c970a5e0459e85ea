# Thin: each target is one line of a real tool or script.
SHELL := /bin/bash
BIN := .venv/bin
.DEFAULT_GOAL := help
# set where an image is to stay small; here everything would be compiled again and again
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help setup controller profiles build sim sim-chat sim-down replay test test-long lint unit molecule bench lock

help: ## what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

controller: ## make this machine an Ansible controller (.venv, collections); enough for real boxes
	@scripts/controller.sh

profiles: controller ## the profiles, and what is known of them on two RTX 4090s
	@$(BIN)/ansible-playbook playbooks/profiles.yml

setup: ## controller, plus what simulation and tests need: distribution packages, Docker
	@sim/setup.sh

sim: setup ## two simulated boxes, converged by site.yml, and a chat answer from each
	@sim/lab.sh sim

sim-chat: ## ask the simulated boxes again
	@sim/lab.sh chat

sim-down: ## remove the simulated lab
	@sim/lab.sh down

replay: setup ## the field report replayed on a simulated box, some fifteen minutes; says nothing about hardware
	@$(BIN)/python sim/replay.py

test: setup ## everything that a change must pass
	@tests/run.sh

lint: setup ## ansible-lint, yamllint, ruff
	@PATH=$(CURDIR)/$(BIN):$$PATH tests/lint.sh

build: setup ## what the simulated lab is made of: images, packages, model; quick when nothing has changed
	@sim/lab.sh build

unit: build ## pytest; some of it asks the engine's image
	@$(BIN)/python -m pytest -n 2 --dist loadfile --durations 15 --strict-skips tests/unit

molecule: setup ## the scenarios, each on its own simulated boxes
	@tests/molecule.sh

test-long: setup ## what that has no time for: tests/long.sh says what and why; an hour
	@tests/long.sh

bench: setup ## how long module gpu_clocks takes beside a bare nvmlInit
	@$(BIN)/python tests/bench/gpu_clocks_time.py

lock: ## pin the controller's dependencies anew (needs uv)
	uv pip compile --universal --python-version 3.11 --generate-hashes --extra test --extra report pyproject.toml -o requirements.lock
