"""Real vLLM by Docker (sim/engine: its CPU build with a tiny model), started once for all tests that only ask it.

A start is 20 s of a core. So one pytest-xdist worker gets all the files that ask one (TOGETHER), and fixture
`real_engine` is the same one for all of them.
"""

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

ENGINE = Path(__file__).parents[2] / "sim/engine"
IMAGE = "tandem-sim/vllm-cpu:0.32.0"
TOGETHER = ("/test_bench_engines.py", "/test_engine_image.py", "/test_engine_requests.py", "/test_standin_contract.py")
KEY = "a-key-that-nobody-may-see"
# docs: the field report's final configuration
FIELD_REPORT = [
    *("/models", "--tensor-parallel-size", "2", "--kv-cache-dtype", "fp8", "--enable-prefix-caching"),
    *("--speculative-config", '{"method": "mtp", "num_speculative_tokens": 2}'),
    *("--max-num-seqs", "16", "--max-num-batched-tokens", "4096", "--gpu-memory-utilization", "0.93"),
    *("--max-model-len", "262144", "--reasoning-parser", "qwen3", "--enable-auto-tool-choice"),
    *("--tool-call-parser", "qwen3_xml", "--served-model-name", "m"),
]
# a box's own restrictions on its engine, as far as a machine without a simulated driver can have them
RESTRICTED = ["--init", "--ipc", "private", "--shm-size", "1g", "--cap-drop", "ALL"]
NO_DRIVER = ["--env", "TANDEM_SIM_REQUIRE_GPU=0"]


def docker(*arguments, timeout=300):
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=timeout, check=False)


def why_not(image=IMAGE):
    if shutil.which("docker") is None:
        return "docker is not installed"
    if docker("version").returncode:
        return "no Docker Engine answers"
    if docker("image", "inspect", image).returncode:
        return f"there is no image {image}: sim/lab.sh build makes it"
    return None


def needed():
    """The mark of a file all of whose tests need the image."""
    reason = why_not()
    return pytest.mark.skipif(reason is not None, reason=str(reason))


def make_model(folder):
    """The tiny model in a folder, which is then to be /models."""
    subprocess.run([ENGINE / "model.sh", folder], check=True, capture_output=True)
    return folder


class Container:
    """A running engine, on a free port of 127.0.0.1 inside and outside alike, with KEY."""

    def __init__(self, folder, model, arguments, image=IMAGE, options=()):
        """folder: for the file of secrets, which is where role vllm has it in a container."""
        self.secrets = folder / "vllm.env"
        self.secrets.write_text(f"VLLM_API_KEY='{KEY}'\n")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        started = docker(
            *("run", "--detach", "--network", "host", *RESTRICTED, *NO_DRIVER, "--env", f"VLLM_API_KEY={KEY}"),
            *("--volume", f"{model}:/models:ro", "--volume", f"{self.secrets}:/run/secrets/vllm.env:ro", *options),
            *(image, *arguments, "--host", "127.0.0.1", "--port", str(self.port)),
        )
        assert started.returncode == 0, started.stderr
        self.container, self.stopping = started.stdout.strip(), None

    def log(self):
        return docker("logs", self.container).stdout

    def wait_ready(self, seconds=240):
        deadline = time.monotonic() + seconds
        while True:
            try:
                urllib.request.urlopen(self.url + "/health", timeout=5).close()
                return
            except (urllib.error.URLError, OSError):
                running = docker("inspect", "-f", "{{.State.Running}}", self.container).stdout.strip()
                assert running == "true" and time.monotonic() < deadline, self.log()[-5000:]
                time.sleep(0.5)

    def stop(self):
        """`docker stop`, without waiting for it."""
        self.stopping = subprocess.Popen(
            ["docker", "stop", "--time", "60", self.container], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def exit_code(self):
        assert self.stopping.wait(90) == 0
        return json.loads(docker("inspect", "-f", "{{.State.ExitCode}}", self.container).stdout)

    def remove(self):
        docker("rm", "--force", self.container)


class Shared:
    """The engine that every test may ask. After a test that has stopped it, the next one gets a new one."""

    def __init__(self, make_folder, model):
        self.make_folder, self.model, self.engine = make_folder, model, None

    def get(self):
        if self.engine and self.engine.stopping:
            self.remove()
        if not self.engine:
            arguments = [*FIELD_REPORT, "--shutdown-timeout", "60"]
            self.engine = Container(self.make_folder("vllm"), self.model, arguments)
            self.engine.wait_ready()
        return self.engine

    def remove(self):
        if self.engine:
            self.engine.remove()
        self.engine = None
