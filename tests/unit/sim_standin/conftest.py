"""The stand-in engine: its modules importable, and itself as a process on a free port."""

import contextlib
import os
import subprocess
import sys
import time

import pytest
from standin_client import FIELD_REPORT, KEY, STANDIN, StandIn, free_port


@pytest.fixture
def start(tmp_path):
    """start(arguments, SIM_FAULT="hang", ready=True): a stand-in, ended with the test."""
    started = []

    def start_one(*arguments, ready=True, **environment):
        port, log = free_port(), tmp_path / f"log{len(started)}"
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

    yield start_one
    for engine in started:
        engine.process.kill()
        engine.process.wait()
