"""bench-run on real engines: vLLM's CPU build and the stand-in, each with the client of its own image."""

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
ROLE = ROOT / "roles/bench"
RECIPES = yaml.safe_load((ROLE / "vars/main.yml").read_text())["__bench_recipes"]
KEY = "a-key-that-nobody-may-see"
IMAGES = {"vllm": "tandem-sim/vllm-cpu:0.32.0", "standin": "tandem-sim/standin:0.32.0"}
SERVE = ["/models", "--served-model-name", "m", "--host", "127.0.0.1", "--max-model-len", "16384"]


def docker(*arguments):
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module", params=IMAGES)
def order(request, tmp_path_factory):
    """What bench-run is told to do, for a running engine."""
    image = IMAGES[request.param]
    if shutil.which("docker") is None or docker("image", "inspect", image).returncode:
        pytest.skip(f"there is no image {image}: sim/lab.sh build makes it")
    folder = tmp_path_factory.mktemp("engine")
    (folder / "vllm.env").write_text(f"VLLM_API_KEY='{KEY}'\n")
    subprocess.run([ROOT / "sim/engine/model.sh", folder / "model"], check=True, capture_output=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    started = docker(
        *(
            "run",
            "--detach",
            "--network",
            "host",
            "--shm-size",
            "1g",
            "--cap-drop",
            "ALL",
            "--env",
            "SIM_LOAD_SECONDS=0",
        ),
        *("--env", "TANDEM_SIM_REQUIRE_GPU=0", "--env", f"VLLM_API_KEY={KEY}", "--env", "SIM_TIME_SCALE=10"),
        *("--volume", f"{folder}/model:/models:ro", "--volume", f"{folder}/vllm.env:/run/secrets/vllm.env:ro"),
        *(image, *SERVE, "--port", port),
    )
    assert started.returncode == 0, started.stderr
    container, url = started.stdout.strip(), f"http://127.0.0.1:{port}"
    try:
        wait_for(container, url)
        yield {
            "engine": {"container": container, "url": url, "model": "m", "secrets": str(folder / "vllm.env")},
            **{"seeds": [0], "under_load": False, "timeout": 240},
        }
    finally:
        docker("rm", "--force", container)


def wait_for(container, url):
    deadline = time.monotonic() + 240
    while True:
        try:
            urllib.request.urlopen(url + "/health", timeout=5)
            return
        except (urllib.error.URLError, OSError):
            running = docker("inspect", "-f", "{{.State.Running}}", container).stdout.strip()
            assert running == "true" and time.monotonic() < deadline, docker("logs", "--tail", "50", container).stdout
            time.sleep(1)


@pytest.mark.parametrize("case", ["decode_chat", "prefill_2k"])
def test_a_case(order, case, tmp_path):
    recipe = RECIPES[case]["recipe"]
    prompts = ROLE / f"files/prompts/{recipe['prompts']}.json"
    done = subprocess.run(
        [sys.executable, "-B", ROLE / "files/bench-run"],
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
