"""The readiness check against a small server that answers, or fails, as engines have been seen to."""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "roles/vllm/files/vllm-wait-ready"
KEY = "a-key-of-these-tests-0123"


class Engine:
    """What the server does: `healthy_after` refusals of /health, `models` listed, `completion` status for prompts."""

    def __init__(self, healthy_after=0, models=("tiny",), completion=200):
        self.healthy_after, self.models, self.completion = healthy_after, models, completion
        self.prompts, self.keys = [], set()


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
                engine.prompts.append(body["prompt"])
                self.answer(
                    engine.completion,
                    {"choices": [{"text": "x"}]} if engine.completion == 200 else {"error": "EngineDead"},
                )

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
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
    command += ["--secrets", secrets, "--timeout", str(timeout)]
    return subprocess.run(
        command,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_ready_means_that_a_prompt_longer_than_a_chunk_was_answered(tmp_path, serve):
    engine = Engine(healthy_after=1)
    done = wait(tmp_path, serve(engine))
    assert done.returncode == 0, done.stderr
    assert "vllm-main is ready" in done.stdout
    assert [len(prompt) for prompt in engine.prompts] == [4097]
    assert engine.keys == {f"Bearer {KEY}"}


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
