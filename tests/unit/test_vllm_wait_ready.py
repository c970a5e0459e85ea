"""The readiness check against a small server that answers, or fails, as engines have been seen to."""

import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "roles/vllm/files/vllm-wait-ready"
KEY = "a-key-of-these-tests-0123"


class Engine:
    """What the server does: `healthy_after` refusals of /health, `models` listed, `completion` status for prompts.

    `dies_after`: number of completions after which the others fail; `finish`: their finish_reason.
    """

    def __init__(self, healthy_after=0, models=("tiny",), completion=200, dies_after=10**6, finish="length"):
        self.healthy_after, self.models, self.completion = healthy_after, models, completion
        self.dies_after, self.finish = dies_after, finish
        self.prompts, self.keys, self.bodies = [], set(), []
        self.open, self.most_open, self.lock = 0, 0, threading.Lock()


@pytest.fixture
def serve():
    servers = []

    def start(engine):
        class Handler(BaseHTTPRequestHandler):
            def answer(self, status, body=None):
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode() if body is not None else b"")

            def do_GET(self):
                engine.keys.add(self.headers.get("Authorization"))
                if self.path == "/health":
                    engine.healthy_after -= 1
                    self.answer(200 if engine.healthy_after < 0 else 503)
                else:
                    self.answer(200, {"data": [{"id": name} for name in engine.models]})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with engine.lock:
                    engine.prompts.append(body["prompt"])
                    engine.bodies.append(body)
                    engine.open += 1
                    engine.most_open = max(engine.most_open, engine.open)
                    dead = len(engine.prompts) > engine.dies_after
                time.sleep(0.02)
                with engine.lock:
                    engine.open -= 1
                if dead or engine.completion != 200:
                    self.answer(engine.completion if not dead else 500, {"error": "EngineDead"})
                else:
                    self.answer(200, {"choices": [{"text": "x", "finish_reason": engine.finish}]})

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()


def wait(tmp_path, url, container="running 0", timeout=10):
    """Runs the program beside a `docker` that says `container` of every container's state."""
    docker = tmp_path / "docker"
    docker.write_text(f"#!/bin/sh\necho '{container}'\n" if container else "#!/bin/sh\nexit 1\n")
    docker.chmod(0o755)
    secrets = tmp_path / "env"
    secrets.write_text(f"# comment\nVLLM_API_KEY='{KEY}'\n")
    command = [
        sys.executable,
        PROGRAM,
        "--container",
        "vllm-main",
        "--url",
        url,
        "--model",
        "tiny",
        "--prompt-tokens",
        "4097",
    ]
    command += ["--secrets", secrets, "--timeout", str(timeout), "--record", tmp_path / "run/ready"]
    return subprocess.run(
        command,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_ready_means_that_a_prompt_longer_than_a_chunk_was_answered(tmp_path, serve):
    engine = Engine(healthy_after=1)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/vllm-main.starts").write_text("of vllm-back-off")
    done = wait(tmp_path, serve(engine))
    assert not (tmp_path / "run/vllm-main.starts").exists()
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("vllm-main is ready after 1 s, warm after ")
    assert len(engine.prompts[0]) == 4097
    assert engine.keys == {f"Bearer {KEY}"}


def test_it_is_warmed_up_by_several_lengths_greedy_sampled_and_together(tmp_path, serve):
    engine = Engine()
    before = time.time()
    assert wait(tmp_path, serve(engine)).returncode == 0
    alone, together = engine.bodies[1:-8], engine.bodies[-8:]
    assert {(len(body["prompt"]), body["temperature"] > 0) for body in alone} == {
        (length, sampled) for length in (1, 17, 130, 1100) for sampled in (False, True)
    }
    assert engine.most_open > 1 and {len(body["prompt"]) for body in together} == {1, 17, 130, 1100}
    # the prefix cache would answer for the kernels
    starts = [tuple(prompt[:16]) for prompt in engine.prompts if len(prompt) > 1]
    assert len(set(starts)) == len(starts)
    record = json.loads((tmp_path / "run/ready").read_text())
    assert set(record) == {"ready_s", "warm_s", "at"} and before - 1 <= record["at"] <= time.time() + 1


def test_an_engine_that_works_is_ready_where_the_record_cannot_be_written(tmp_path, serve):
    for name in ("ready", "vllm-main.starts"):
        (tmp_path / "run" / name / "folder").mkdir(parents=True)
    done = wait(tmp_path, serve(Engine()))
    assert done.returncode == 0 and "could not be written down" in done.stdout, done.stderr


@pytest.mark.parametrize("answered", [1, 5, 12])
def test_an_engine_that_fails_while_it_is_warmed_up_is_not_ready(tmp_path, serve, answered):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/ready").write_text("of the start before")
    (tmp_path / "run/vllm-main.starts").write_text("of vllm-back-off")
    done = wait(tmp_path, serve(Engine(dies_after=answered)))
    assert (tmp_path / "run/vllm-main.starts").exists()
    assert done.returncode == 1
    assert "failed while it was warmed up: HTTP 500" in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "run/ready").exists()


def test_an_aborted_answer_is_none(tmp_path, serve):
    done = wait(tmp_path, serve(Engine(finish="abort")))
    assert done.returncode == 1
    assert "did not answer a prompt of 4097 tokens: an answer that ended with finish_reason abort" in done.stderr


def test_healthy_is_not_ready_when_the_long_prompt_fails(tmp_path, serve):
    done = wait(tmp_path, serve(Engine(completion=500)))
    assert done.returncode == 1
    assert "did not answer a prompt of 4097 tokens" in done.stderr
    assert "EngineDead" in done.stderr


def test_another_model_is_not_ready(tmp_path, serve):
    done = wait(tmp_path, serve(Engine(models=("other",))))
    assert done.returncode == 1
    assert "it serves other, not tiny" in done.stderr


def test_a_container_that_ended_is_reported_at_once(tmp_path):
    done = wait(tmp_path, "http://127.0.0.1:9", container="exited 1", timeout=600)
    assert done.returncode == 1
    assert "its container is exited (exit code 1)" in done.stderr


DEATHS = Path(__file__).parent / "fixtures/engine_deaths"
ENDED = [
    ("exited 0", "SIGILL.log", "its container is exited (exit code 0): Fatal Python error: Illegal instruction\n"),
    ("exited 0", "SIGSEGV.log", "its container is exited (exit code 0): !!! Segfault encountered !!!\n"),
    # no word of any process: neither is what only follows from it
    ("exited 0", "SIGKILL.log", "its container is exited (exit code 0)\n"),
    (
        "exited 132",
        "Loading safetensors: 10%|#Fatal Python error: Illegal instruction\n",
        "(exit code 132: SIGILL ended it): Fatal Python error: Illegal instruction\n",
    ),
    ("exited 137", None, "its container is exited (exit code 137: SIGKILL ended it)\n"),
    ("exited 1", None, "its container is exited (exit code 1)\n"),
    (
        "exited 1",
        "(EngineCore pid=7) ERROR 11-30 03:12:07 [core.py:1] ValueError: No available memory for the cache blocks.\n"
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n",
        "its container is exited (exit code 1): ValueError: No available memory for the cache blocks.\n",
    ),
]


@pytest.mark.parametrize(("container", "log", "says"), ENDED)
def test_the_last_line_of_a_start_that_failed_is_its_cause(tmp_path, monkeypatch, container, log, says):
    """The log is this start's, which systemd names."""
    (tmp_path / "log").write_text((DEATHS / log).read_text() if log and log.endswith(".log") else log or "")
    journalctl = tmp_path / "journalctl"
    journalctl.write_text(f'#!/bin/sh\necho "$@" | grep -q _SYSTEMD_INVOCATION_ID=abc && cat {tmp_path / "log"}\n')
    journalctl.chmod(0o755)
    monkeypatch.setenv("INVOCATION_ID", "abc")
    done = wait(tmp_path, "http://127.0.0.1:9", container=container, timeout=600)
    assert done.returncode == 1 and done.stderr.endswith(says), done.stderr


def test_a_container_that_is_not_there_is_reported(tmp_path):
    done = wait(tmp_path, "http://127.0.0.1:9", container=None, timeout=600)
    assert done.returncode == 1
    assert "its container is absent" in done.stderr


def test_an_engine_that_never_answers_ends_in_a_sentence(tmp_path):
    done = wait(tmp_path, "http://127.0.0.1:9", timeout=0.5)
    assert done.returncode == 1
    assert "is not ready after" in done.stderr
    assert "refused" in done.stderr


def test_no_key_is_on_the_command_line():
    assert "VLLM_API_KEY" not in (PROGRAM.parents[1] / "templates/vllm.service.j2").read_text()
