"""The stand-in engine: its modules importable, and itself as a process on a free port."""

import contextlib
import os
import subprocess
import sys
import time

import pytest
from real_vllm import FIELD_REPORT, KEY
from standin_client import STANDIN, StandIn, free_port


@contextlib.contextmanager
def starter(folder):
    """start(arguments, SIM_FAULT="hang", ready=True): a stand-in, ended with the context."""
    started = []

    def start_one(*arguments, ready=True, **environment):
        port, log = free_port(), folder / f"log{len(started)}"
        settings = {"TANDEM_SIM_REQUIRE_GPU": "0", "SIM_LOAD_SECONDS": "0", "VLLM_API_KEY": KEY, "SIM_TIME_SCALE": "20"}
        with log.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, STANDIN / "vllm", "serve", *(arguments or FIELD_REPORT), "--port", str(port)],
                env={**os.environ, **settings, **environment},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        engine = StandIn(port, process, log)
        started.append(engine)
        deadline = time.monotonic() + 10
        while ready:
            with contextlib.suppress(OSError):
                engine.ask("GET", "/health")
                break
            assert process.poll() is None and time.monotonic() < deadline, engine.output()
            time.sleep(0.03)
        return engine

    try:
        yield start_one
    finally:
        for engine in started:
            engine.process.kill()
            engine.process.wait()


@pytest.fixture
def start(tmp_path):
    with starter(tmp_path) as start_one:
        yield start_one


@pytest.fixture(scope="module")
def standin(tmp_path_factory):
    """One for tests that only ask it; it has time to finish at a stop."""
    with starter(tmp_path_factory.mktemp("standin")) as start_one:
        yield start_one(*FIELD_REPORT, "--shutdown-timeout", "60")
