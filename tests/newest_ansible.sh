#!/usr/bin/env bash
# newest_ansible.sh: converges the lab that is up, twice, from another controller: a Debian 13 container with its Python and the newest
# ansible-core that PyPI has, even one that pyproject.toml does not allow yet. Fails where the second run changes something, and where either
# prints a deprecation warning.
set -euo pipefail
. "$(dirname "$0")/../scripts/lib.sh"
cd "$ROOT"
work=$(mktemp -d "$CACHE/newest.XXXXXX")
trap 'rm -rf "$work"' EXIT

# By this machine's pip and its settings, for the container's Python, so that there nothing is installed. In two steps, as pip install judges
# by the Python that it runs on.
target=(--only-binary :all: --implementation cp --python-version 3.13 --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64)
"$PYTHON" -m pip download -qq --disable-pip-version-check "${target[@]}" -d "$work/wheels" ansible-core 'jinja2>=3.1' 'nvidia-ml-py>=13'
"$PYTHON" -m pip install -qq --disable-pip-version-check "${target[@]}" --no-deps --no-index --ignore-requires-python --target "$work/site" "$work"/wheels/*.whl

# in_container COMMAND...: the clone is where it is here, and read-only
in_container() {
  docker run --rm --network "tandem-$TANDEM_SIM_LAB" --entrypoint /usr/bin/env --volume "$ROOT:$ROOT:ro" --volume "$CACHE:$CACHE:ro" \
    --workdir "$ROOT" tandem-sim/box:trixie PYTHONPATH="$work/site" HOME=/root TANDEM_CACHE="$CACHE" TANDEM_SIM_LAB="$TANDEM_SIM_LAB" \
    TANDEM_SIM_NETWORK="$TANDEM_SIM_NETWORK" ANSIBLE_DEPRECATION_WARNINGS=1 python3 "$@"
}

say "newest: $(in_container "$work/site/bin/ansible" --version | head -n 1), Python $(in_container -V)"
for run in first second; do
  in_container "$work/site/bin/ansible-playbook" -i "${TANDEM_SIM_INVENTORY:-inventory/sim}" site.yml 2>&1 | tee "$work/$run"
  ! grep -A 6 -F 'DEPRECATION WARNING' "$work/$run" || die "the $run run prints deprecation warnings"
done
! grep -E ' changed=[1-9]' "$work/second" || die "the second run changed something"
