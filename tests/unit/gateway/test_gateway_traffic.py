"""What clients get through a real HAProxy with the role's configuration."""

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time

import pytest
from gateway_lab import CLIENT_KEY, ENGINE_KEY, HAPROXY, ROOT, render, unprivileged, wait_for

ASK = {"model": "model", "prompt": "hello", "max_tokens": 2}
STREAM = ASK | {"stream": True, "max_tokens": 50}


@pytest.fixture
def load(gateway):
    def start(**options):
        command = [sys.executable, str(ROOT / "tests/load/load.py"), "--url", f"http://127.0.0.1:{gateway.port}"]
        command += ["--model", "model", "--max-tokens", "20"]
        for name, value in options.items():
            command += [f"--{name.replace('_', '-')}", str(value)]
        return subprocess.Popen(
            command, env=os.environ | {"OPENAI_API_KEY": CLIENT_KEY}, stdout=subprocess.PIPE, text=True
        )

    return start


@pytest.mark.parametrize(
    ("path", "key", "status"),
    [
        ("/v1/models", CLIENT_KEY, 200),
        ("/v1/models", None, 401),
        ("/v1/models", "wrong-key-0123456789", 401),
        ("/v1/models", ENGINE_KEY, 401),
        ("/v1/models", CLIENT_KEY + "x", 401),
        ("/v1", CLIENT_KEY, 404),
        ("/", None, 404),
        ("/health", CLIENT_KEY, 404),
        ("/metrics", CLIENT_KEY, 404),
        ("/docs", CLIENT_KEY, 404),
        ("/invocations", CLIENT_KEY, 404),
        ("/tokenize", CLIENT_KEY, 404),
        ("/v1/../metrics", CLIENT_KEY, 404),
        ("/v1/%2e%2e/metrics", CLIENT_KEY, 404),
        ("//v1/models", CLIENT_KEY, 404),
        ("/v1//models", CLIENT_KEY, 404),
        ("/V1/models", CLIENT_KEY, 404),
    ],
)
def test_only_v1_with_a_key_answers(gateway, engines, path, key, status):
    seen = sum(len(engine.seen) for engine in engines.values())
    got, text, _ = gateway.request(path, key)
    assert got == status
    if status != 200:
        error = json.loads(text)["error"]
        assert error["code"] == status and error["message"] and error["type"]
        # nothing reached an engine
        got, text, _ = gateway.request(path, key, body=ASK)
        assert got == status and sum(len(engine.seen) for engine in engines.values()) == seen


@pytest.mark.parametrize(
    "lines",
    [
        [f"Authorization: {CLIENT_KEY}"],
        [f"Authorization: Basic {CLIENT_KEY}"],
        ["Authorization: Bearer"],
        ["Authorization: Bearer "],
        [f"X-Api-Key: {CLIENT_KEY}"],
        ["Authorization: Bearer wrong", f"Authorization: Bearer {CLIENT_KEY}"],
        [f"Authorization: Bearer {CLIENT_KEY}, Bearer wrong"],
    ],
)
def test_other_ways_to_show_a_key_are_none(gateway, lines):
    with socket.create_connection(("127.0.0.1", gateway.port)) as connection:
        connection.sendall(("GET /v1/models HTTP/1.1\r\nHost: x\r\n" + "\r\n".join(lines) + "\r\n\r\n").encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 401")


def test_the_engine_gets_its_own_key_and_the_clients_address(gateway, engines):
    gateway.request(body=ASK, headers={"X-Forwarded-For": "6.6.6.6"})
    headers = next(engine.seen[0][1] for engine in engines.values() if engine.seen)
    assert headers["authorization"] == f"Bearer {ENGINE_KEY}"
    assert headers["x-forwarded-for"] == "127.0.0.1" and headers["x-forwarded-proto"] == "http"


def test_no_key_and_no_prompt_in_log_configuration_and_command_lines(gateway):
    gateway.request("/v1/completions?api_key=query-secret-0123", body=ASK | {"prompt": "prompt-secret"})
    gateway.request(key="wrong-key-0123456789", body=ASK)
    gateway.start_probe()
    log = wait_for(
        lambda: (text := (gateway.folder / "haproxy.log").read_text()).count("/v1/completions") >= 2 and text
    )
    assert re.search(r"127.0.0.1:\d+ alice POST /v1/completions box[12]-main 200", log)
    texts = {
        "log": log,
        "configuration": (gateway.folder / "haproxy.cfg").read_text(),
        "clients' map": (gateway.folder / "clients.map").read_text(),
        "status": gateway.request(port=gateway.admin_port, path="/")[1],
        "processes": subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True).stdout,
    }
    for place, text in texts.items():
        for secret in (CLIENT_KEY, ENGINE_KEY, "wrong-key-0123456789", "query-secret-0123", "prompt-secret"):
            assert secret not in text, f"{secret} in {place}"


def test_a_prompt_of_262144_tokens_passes(gateway, engines):
    prompt = "word " * 600_000  # 3 MB
    assert gateway.request(body=ASK | {"prompt": prompt})[0] == 200
    body = next(engine.seen[0][2] for engine in engines.values() if engine.seen)
    assert json.loads(body)["prompt"] == prompt


def test_streams_are_not_buffered(gateway, engines):
    for engine in engines.values():
        engine.pace = 0.1
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port)
    headers = {"Authorization": f"Bearer {CLIENT_KEY}", "Content-Type": "application/json"}
    connection.request("POST", "/v1/completions", json.dumps(STREAM | {"max_tokens": 5}), headers)
    answer = connection.getresponse()
    assert answer.getheader("Content-Type").startswith("text/event-stream")
    times = []
    while line := answer.readline():
        if line.startswith(b"data: {"):
            times.append(time.monotonic())
    # all at once if they were kept until the end
    assert len(times) == 5 and times[-1] - times[0] > 0.3


def test_a_connection_is_kept_across_a_drain(gateway, engines):
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port)
    headers = {"Authorization": f"Bearer {CLIENT_KEY}", "Content-Type": "application/json"}

    def ask():
        connection.request("POST", "/v1/completions", json.dumps(ASK), headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status

    assert ask() == 200
    port = connection.sock.getsockname()
    gateway.ask("set server engines/box1-main state drain")
    before = len(engines["box1-main"].seen)
    assert [ask() for _ in range(5)] == [200] * 5
    assert connection.sock.getsockname() == port and len(engines["box1-main"].seen) == before


def test_an_engine_that_is_gone_costs_no_request(gateway, engines):
    engines["box1-main"].stop()
    # at once, before any check has noticed
    assert [gateway.request(body=ASK)[0] for _ in range(4)] == [200] * 4


def test_all_engines_gone(gateway, engines):
    for engine in engines.values():
        engine.stop()
    wait_for(lambda: all(gateway.status(name) == "DOWN" for name in engines))
    status, text, headers = gateway.request(body=ASK)
    assert status == 503 and json.loads(text)["error"]["type"] == "ServiceUnavailable"
    assert headers["retry-after"] == "10" and headers["content-type"] == "application/json"
    assert gateway.request("/health", port=gateway.admin_port)[0] == 503


def test_all_engines_drained(gateway, engines):
    for name in engines:
        gateway.ask(f"set server engines/{name} state drain")
    status, text, _ = gateway.request(body=ASK)
    assert status == 503 and "No engine is available" in json.loads(text)["error"]["message"]


def test_a_client_that_gives_up_frees_its_place(gateway, engines):
    for engine in engines.values():
        engine.pace = 10
    with socket.create_connection(("127.0.0.1", gateway.port)) as connection:
        body = json.dumps(ASK)
        head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {CLIENT_KEY}\r\n"
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        wait_for(lambda: sum(engine.running for engine in engines.values()) == 1)
    wait_for(lambda: sum(engine.running for engine in engines.values()) == 0, 3, "the end of the request")


def test_the_admin_side(gateway):
    assert gateway.request("/health", None, port=gateway.admin_port)[:1] == (200,)
    assert "haproxy_server_status" in gateway.request("/metrics", None, port=gateway.admin_port)[1]
    page = gateway.request("/", None, port=gateway.admin_port)[1]
    assert "box1-main" in page
    # only to look at
    assert 'method="post"' not in page.lower()
    assert gateway.request("/", None, port=gateway.admin_port, body=b"s=box1-main&action=drain&b=#5")[0] != 303
    assert gateway.status("box1-main") == "UP"


def test_the_socket_is_of_its_owner_alone(gateway):
    assert os.stat(gateway.socket).st_mode & 0o777 == 0o600


def test_reloads_under_load_lose_nothing(gateway, load):
    clients = load(clients=8, stop_file=gateway.folder / "stop")
    for _ in range(4):
        time.sleep(0.7)
        gateway.reload()
    (gateway.folder / "stop").touch()
    out, _ = clients.communicate(timeout=30)
    outcome = json.loads(out)
    assert outcome["failed"] == 0 and outcome["requests"] > 40, outcome


def test_keys_change_with_a_reload(gateway):
    assert gateway.request("/v1/models", "another-key-0123456789")[0] == 401
    import hashlib

    digest = hashlib.sha256(b"another-key-0123456789").hexdigest().upper()
    (gateway.folder / "clients.map").write_text(f"{digest} bob\n")
    gateway.reload()
    assert gateway.request("/v1/models", "another-key-0123456789")[0] == 200
    assert gateway.request("/v1/models", CLIENT_KEY)[0] == 401


def test_drain_restart_restore_under_load(gateway, engines, load, run_module):
    """The roll in small: each engine in turn drained, idle, replaced on its port, restored, while clients stream."""
    from fake_engine import FakeEngine

    for engine in engines.values():
        engine.slots = threading.Semaphore(16)
    clients = load(clients=8, stop_file=gateway.folder / "stop")
    wait_for(lambda: sum(engine.running for engine in engines.values()) == 8)
    for name in list(engines):
        params = {"servers": [name], "socket": gateway.socket}
        urls = {name: f"http://127.0.0.1:{engines[name].port}/metrics"}
        assert run_module(params | {"state": "drained"})["changed"]
        assert not run_module(params | {"state": "idle", "metrics_urls": urls, "timeout": 20})["failed"]
        port = engines[name].port
        engines[name].stop()
        time.sleep(1)
        engines[name] = FakeEngine(port, slots=16)
        assert run_module(params | {"state": "up", "timeout": 20})["changed"]
    (gateway.folder / "stop").touch()
    out, _ = clients.communicate(timeout=30)
    outcome = json.loads(out)
    assert outcome["failed"] == 0 and outcome["requests"] > 40, outcome


def test_the_load_client_sees_what_a_restart_without_drain_does(gateway, engines, load):
    """Else its zero would mean nothing."""
    clients = load(clients=4, requests=40)
    wait_for(lambda: engines["box1-main"].running > 0)
    engines["box1-main"].status = 500
    out, _ = clients.communicate(timeout=30)
    outcome = json.loads(out)
    assert clients.returncode == 1 and outcome["failed"] > 0
    assert any(reason.startswith("status 500") for reason in outcome["reasons"])


def test_tls(gateway):
    pem = gateway.folder / "tls.pem"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]
    key, certificate = gateway.folder / "k.pem", gateway.folder / "c.pem"
    subprocess.run([*request, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    pem.write_text(certificate.read_text() + key.read_text())
    gateway.write(gateway_tls_certificate="c.pem")
    gateway.reload()
    command = [sys.executable, str(ROOT / "tests/load/load.py"), "--url", f"https://127.0.0.1:{gateway.port}"]
    command += ["--insecure", "--model", "model", "--clients", "2", "--requests", "4", "--max-tokens", "3"]
    environment = os.environ | {"OPENAI_API_KEY": CLIENT_KEY}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_affinity_by_header_still_drains(gateway, engines):
    gateway.write(gateway_affinity_header="X-Session-Id")
    gateway.reload()

    def engine_of(session):
        # one that is still counted would be a reason to go to the other: hash-balance-factor
        wait_for(lambda: not any(gateway.sessions(name) for name in engines), what="quiet")
        before = {name: len(engine.seen) for name, engine in engines.items()}
        assert gateway.request(body=ASK, headers={"X-Session-Id": session})[0] == 200
        return next(name for name, engine in engines.items() if len(engine.seen) > before[name])

    homes = {session: engine_of(session) for session in map(str, range(12))}
    assert set(homes.values()) == set(engines)
    assert all(engine_of(session) == home for session, home in homes.items())
    gateway.ask("set server engines/box1-main state drain")
    assert {engine_of(session) for session in homes} == {"box2-main"}


@pytest.mark.parametrize("version", ["2.4", "2.6", "2.8", "3.0", "3.2"])
def test_what_depends_on_the_version(tmp_path, version):
    text = render(tmp_path, [{"name": "a", "address": "fd00::1", "port": 8000}], version)
    assert ("idle-close-on-response" in text) == (version != "2.4")
    assert ("init-state" in text) == ("bool-sample-conversion" in text) == (version == "3.2")
    assert ("timeout client-hs" in text) == (version >= "3.0")
    assert "server a [fd00::1]:8000 " in text


@pytest.mark.parametrize("version", ["2.4", "2.6"])
def test_haproxy_takes_the_configuration_without_engines_key(tmp_path, version):
    text = render(tmp_path, [{"name": "a", "address": "127.0.0.1", "port": 8000}], version, __gateway_engine_key=None)
    assert "lua" not in text
    (tmp_path / "clients.map").write_text("")
    (tmp_path / "haproxy.cfg").write_text(unprivileged(text))
    subprocess.run([HAPROXY, "-c", "-f", tmp_path / "haproxy.cfg"], check=True)
    assert "del-header Authorization" in text and "engine.map" not in text
