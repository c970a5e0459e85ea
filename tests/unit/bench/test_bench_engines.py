"""bench-run on real engines: vLLM's CPU build and the stand-in, each with the client of its own image."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import real_vllm
import yaml
from real_vllm import KEY

ROOT = Path(__file__).parents[3]
ROLE = ROOT / "roles/bench"
RECIPES = yaml.safe_load((ROLE / "vars/main.yml").read_text())["__bench_recipes"]
STANDIN = "tandem-sim/standin:0.32.0"
SERVE = ["/models", "--served-model-name", "m", "--max-model-len", "16384"]


def order_for(container):
    """What bench-run is told to do, for a running engine."""
    engine = {"container": container.container, "url": container.url, "model": "m", "secrets": str(container.secrets)}
    return {"engine": engine, "seeds": [0], "under_load": False, "timeout": 240}


@pytest.fixture(scope="module")
def standin(tmp_path_factory):
    if reason := real_vllm.why_not(STANDIN):
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("engine")
    options = ["--env", "SIM_LOAD_SECONDS=0", "--env", "SIM_TIME_SCALE=10"]
    container = real_vllm.Container(folder, folder, SERVE, STANDIN, options)
    try:
        container.wait_ready()
        yield container
    finally:
        container.remove()


@pytest.fixture(params=["real_engine", "standin"])
def order(request):
    return order_for(request.getfixturevalue(request.param))


@pytest.mark.parametrize("case", ["decode_chat", "prefill_2k"])
def test_a_case(order, case, tmp_path):
    recipe = RECIPES[case]["recipe"]
    prompts = ROLE / f"files/prompts/{recipe['prompts']}.json"
    (tmp_path / "tandem").symlink_to(ROLE.parents[1] / "module_utils")
    done = subprocess.run(
        [sys.executable, "-B", ROLE / "files/bench-run"],
        env={**os.environ, "TANDEM_LIBRARY": str(tmp_path / "tandem")},
        input=json.dumps({**order, "recipe": recipe, "prompts": str(prompts)}),
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    assert KEY not in done.stdout + done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    wanted = recipe["requests"]
    assert (run["completed"], run["failed"], run["aborted"]) == (wanted, 0, 0)
    assert run["output_tokens"] == wanted * recipe["output_tokens"]
    assert run["value"] > 0
    # counted by the engine as the client counts
    assert (run["other_requests"], run["other_tokens"]) == (0, 0)
    if recipe["figure"] == "prefill_tok_s":
        assert run["input_tokens"] >= 0.9 * wanted * recipe["input_tokens"]
        assert not run["prefix_cache_hit_rate"]
