"""The load client: each way in which an answer goes wrong is counted, and none of a good one."""

import json
import os
import socket
import subprocess
import sys
import threading

import pytest
from gateway_lab import ROOT

HEAD = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(text):
    return f"{len(text):x}\r\n{text}\r\n"


def event(finish=None, text="word", **more):
    choice = {"index": 0, "delta": {"content": text} if text else {}, "finish_reason": finish}
    return chunk(f"data: {json.dumps({'choices': [choice]} | more)}\n\n")


DONE = chunk("data: [DONE]\n\n")
END = "0\r\n\r\n"


@pytest.fixture
def serve():
    """serve(answer): a server that answers every request on a connection with `answer`, and closes after it if told."""
    servers = []

    def start(answer, close=False):
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)

        def one(connection):
            with connection:
                while True:
                    text = b""
                    while b"}" not in text[-2:]:
                        piece = connection.recv(65536)
                        if not piece:
                            return
                        text += piece
                    connection.sendall(answer.encode())
                    if close:
                        return

        def accept():
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=one, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        return server.getsockname()[1]

    yield start
    for server in servers:
        server.close()


def run(port, *options):
    command = [sys.executable, str(ROOT / "tests/load/load.py"), "--url", f"http://127.0.0.1:{port}", "--model", "m"]
    environment = os.environ | {"OPENAI_API_KEY": "a-key"}
    done = subprocess.run(
        [*command, "--clients", "1", *(options or ("--requests", "3"))], env=environment, capture_output=True, text=True
    )
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("close", [False, True])
def test_good_answers(serve, close):
    code, outcome = run(serve(HEAD + event() + event("stop", "") + DONE + END, close))
    assert code == 0 and outcome["requests"] == 3 and outcome["failed"] == 0
    assert outcome["ttft_s"]["p50"] <= outcome["request_s"]["p99"]


@pytest.mark.parametrize(
    ("answer", "close", "reason"),
    [
        (HEAD + event() + event("abort", "") + DONE + END, False, "aborted by the engine"),
        (HEAD + event() + event("stop", "") + END, False, "no [DONE]"),
        (HEAD + event() + DONE + END, False, "no finish_reason"),
        (HEAD + event("stop", "") + DONE + END, False, "no text"),
        (HEAD + event(), True, "cut short"),
        (HEAD + event()[:-9], True, "cut short"),
        (HEAD + event("stop") + DONE, True, "cut short"),
        (HEAD + chunk('data: {"error": {"message": "boom"}}\n\n') + DONE + END, False, "error in the stream"),
        (HEAD + chunk("data: nonsense\n\n") + END, False, "no proper answer"),
        ("HTTP/1.1 503 No\r\nContent-Length: 4\r\n\r\nbusy", False, "status 503: busy"),
        ("", True, "closed before the answer, on a new connection"),
    ],
)
def test_bad_answers(serve, answer, close, reason):
    code, outcome = run(serve(answer, close))
    assert code == 1 and outcome["failed"] == outcome["requests"] == 3
    assert all(told.startswith(reason) for told in outcome["reasons"]), outcome
    assert [failure["reason"] for failure in outcome["failures"]] == list(outcome["reasons"]) * 3


def test_no_server():
    code, outcome = run(1)
    assert code == 1 and list(outcome["reasons"]) == ["no connection: Connect call failed ('127.0.0.1', 1)"]


def test_no_request_is_no_success(serve, tmp_path):
    (tmp_path / "stop").touch()
    code, outcome = run(serve(""), "--stop-file", str(tmp_path / "stop"))
    assert code == 1 and outcome["requests"] == 0


def test_it_ends_where_nobody_writes_the_stop_file(serve, tmp_path):
    code, outcome = run(
        serve(HEAD + event()), "--stop-file", str(tmp_path / "never"), "--timeout", "0.2", "--seconds", "0.1"
    )
    assert code == 1 and outcome["seconds"] < 5


def test_silence_is_a_failure(serve):
    code, outcome = run(serve(HEAD + event()), "--requests", "1", "--timeout", "0.3")
    assert code == 1 and list(outcome["reasons"]) == ["no end within 0.3 s"]


def test_it_must_know_when_to_end():
    command = [sys.executable, str(ROOT / "tests/load/load.py"), "--url", "http://x", "--model", "m"]
    assert "never end" in subprocess.run(command, capture_output=True, text=True).stderr
