"""Clients that say nothing, half of it, or wrong keys; engines that hang while clients wait. Through a real HAProxy."""

import http.client
import json
import os
import socket
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from ansible.plugins.test.core import version_compare
from gateway_lab import CLIENT_KEY, ENGINE_KEY, Gateway, haproxy_version, wait_for

ASK = {"model": "model", "prompt": "hello", "max_tokens": 2}


@pytest.fixture
def make(tmp_path, engines):
    """make(short, **variables): a gateway whose engines are UP."""
    made = []

    def start(short=None, **changes):
        gateway = Gateway(Path(os.path.realpath(tmp_path)), engines, short, **changes)
        made.append(gateway)
        wait_for(gateway.answers, what="HAProxy")
        wait_for(lambda: all(gateway.status(name) == "UP" for name in engines), what="UP")
        return gateway

    yield start
    for gateway in made:
        gateway.stop()


def say(gateway, text, seconds=5.0):
    """All that comes back until the gateway closes; `<open>` at its end where it does not within `seconds`."""
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=seconds) as connection:
        connection.sendall(text if isinstance(text, bytes) else text.encode())
        said = b""
        try:
            while piece := connection.recv(65536):
                said += piece
        except TimeoutError:
            return said.decode() + "<open>"
        except ConnectionResetError:
            pass
        return said.decode()


def post(body, length):
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {CLIENT_KEY}\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"


def error_of(text):
    """The JSON error that an answer's text has in it."""
    return json.loads(text[text.index("\r\n\r\n") :])["error"]


def from_address(address, gateway, timeout=5):
    """Status of a good request from another loopback address; None where it is refused."""
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=timeout, source_address=(address, 0))
    try:
        connection.request("GET", "/v1/models", headers={"Authorization": f"Bearer {CLIENT_KEY}"})
        return connection.getresponse().status
    except ConnectionError:
        return None


def test_silent_connections_of_one_address_leave_room_for_others(make):
    short = {"timeout http-request 10s": "timeout http-request 4s"}
    gateway = make(short, gateway_client_connections=20, __gateway_connections=50)
    with ExitStack() as stack:
        silent = []
        for _ in range(60):
            # a refusal may be there before connect() has returned
            with suppress(ConnectionResetError):
                connection = stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port), timeout=9))
                silent.append(connection)
        started = time.monotonic()
        assert from_address("127.0.0.2", gateway) == 200 and time.monotonic() - started < 4
        assert gateway.ask("show table clients").count("127.0.0.1") == 1 and "conn_cur=20" in gateway.ask(
            "show table clients"
        )
        assert from_address("127.0.0.1", gateway) is None
        # and those that were let in are not for ever
        wait_for(lambda: from_address("127.0.0.1", gateway) == 200, 9, "room for the same address")
        assert silent[0].recv(1) in (b"", b"H")  # HTTP/1.1 408


def test_a_half_body_holds_no_engine(make, engines, run_module, monkeypatch):
    import ansible.module_utils.tandem_gateway as logic

    short = {"timeout http-request 10s": "timeout http-request 500ms", "timeout client 60s": "timeout client 400ms"}
    gateway = make(short)
    said = say(gateway, post("half", 100), 2)
    assert error_of(said.removesuffix("<open>"))["code"] == 408 and not any(map(gateway.started, engines))
    # Larger than a buffer: an engine has it by then. Before 2.8 no silence of a client counts that a server waits for.
    with socket.create_connection(("127.0.0.1", gateway.port)) as connection:
        connection.sendall(post("x" * 40000, 50000).encode())
        name = wait_for(lambda: next((name for name in engines if gateway.sessions(name)), None), what="its session")
        if version_compare(haproxy_version(), "2.8", ">="):
            wait_for(lambda: not gateway.sessions(name), 4, "the end of its session")
            assert b" 400 " in connection.recv(65536).splitlines()[0]
            connection.sendall(b"")
    # that client is gone, so what is seen next is the other's
    wait_for(lambda: not any(gateway.sessions(name) for name in engines), 9, what="the end of the first")
    # so a drain does not wait for one of which the engine knows nothing
    with socket.create_connection(("127.0.0.1", gateway.port)) as connection:
        connection.sendall(post("x" * 40000, 50000).encode())
        name = wait_for(lambda: next((name for name in engines if gateway.sessions(name)), None), what="its session")
        gateway.ask(f"set server engines/{name} state drain")
        params = {"state": "idle", "servers": [name], "socket": gateway.socket, "timeout": 0.3}
        if not version_compare(haproxy_version(), "2.8", ">="):
            assert "1 sessions" in run_module(params)["msg"]
        monkeypatch.setattr(logic, "LINGER_SECONDS", 1)
        urls = {name: f"http://127.0.0.1:{engines[name].port}/metrics"}
        found = run_module(params | {"metrics_urls": urls, "timeout": 5})
        assert not found["failed"], found
        gateway.ask(f"set server engines/{name} state ready")
    # What an engine thinks about is no silence of the client, before its first word and between two.
    for engine in engines.values():
        engine.pace = 0.8
    assert gateway.request(body=ASK | {"max_tokens": 1})[0] == 200
    status, text, _ = gateway.request(body=ASK | {"stream": True})
    assert status == 200 and text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("how", ["hung", "sick"])
def test_clients_of_an_engine_that_is_down_get_an_error_now(make, engines, how):
    gateway = make()
    gateway.start_probe()
    for engine in engines.values():
        engine.pace, engine.slots = 0.3, threading.Semaphore(16)
    open_ = {}
    for name in engines:
        # one stream on each, and one that has no first word yet
        gateway.ask(f"set server engines/{next(other for other in engines if other != name)} state drain")
        open_[name] = []
        for number, body in enumerate((ASK | {"stream": True, "max_tokens": 14}, ASK | {"max_tokens": 14}), 1):
            connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=25)
            headers = {"Authorization": f"Bearer {CLIENT_KEY}", "Content-Type": "application/json"}
            connection.request("POST", "/v1/completions", json.dumps(body), headers)
            open_[name].append(connection)
            wait_for(lambda name=name, count=number: engines[name].running == count, what="its start")
        for other in engines:
            gateway.ask(f"set server engines/{other} state ready")
    stream = open_["box1-main"][0].getresponse()
    assert stream.readline().startswith(b"data: {")
    setattr(engines["box1-main"], how, True)
    # a drain leaves what runs alone
    gateway.ask("set server engines/box2-main state drain")
    wait_for(lambda: gateway.status("box1-main").startswith("DOWN"), what="DOWN")
    started = time.monotonic()
    with pytest.raises(http.client.IncompleteRead):
        stream.read()
    # from 3.0 on it just closes, which clients take for an error as well
    with suppress(http.client.RemoteDisconnected):
        waiting = open_["box1-main"][1].getresponse()
        assert waiting.status in (502, 503) and json.loads(waiting.read())["error"]["message"]
    assert time.monotonic() - started < 2
    assert gateway.status("box2-main").startswith("DRAIN")
    answers = [connection.getresponse() for connection in open_["box2-main"]]
    assert [answer.status for answer in answers] == [200, 200]
    assert answers[0].read().endswith(b"data: [DONE]\n\n")


def test_who_guesses_keys_is_slowed_down_and_no_log_is_filled(make):
    gateway = make()
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port)
    got = []
    for number in range(300):
        path = "/v1/models" if number % 3 else "/wp-login.php"
        connection.request("GET", path, headers={"Authorization": f"Bearer wrong-key-{number:010}"})
        answer = connection.getresponse()
        text = answer.read()
        got.append(answer.status)
    assert set(got[:100]) == {401, 404} and set(got[110:]) == {429}
    assert json.loads(text)["error"]["code"] == 429 and answer.getheader("Retry-After") == "60"
    # others, and who has a key, from the same address as well
    assert gateway.request("/v1/models")[0] == 200 and from_address("127.0.0.2", gateway) == 200
    log = wait_for(lambda: (text := (gateway.folder / "haproxy.log").read_text()).count(" alice GET ") >= 2 and text)
    assert 90 <= log.count(" - GET ") <= 110


def accepted(gateway, path, *lines):
    """Status of a POST with these header lines."""
    body = json.dumps(ASK)
    head = "".join(f"{line}\r\n" for line in lines)
    text = f"POST {path} HTTP/1.1\r\nHost: x\r\n{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    return int(say(gateway, text).split()[1])


def test_ways_to_show_a_key(make, engines):
    gateway = make()
    key, chat, messages = CLIENT_KEY, "/v1/chat/completions", "/v1/messages"
    for scheme in ("Bearer", "bearer", "BEARER", "bEaReR"):
        assert accepted(gateway, chat, f"Authorization: {scheme} {key}") == 200, scheme
    # RFC 9110: one space or more, and what stands around a value is no part of it
    for value in (f"Bearer   {key}", f"Bearer {key}  ", f"  Bearer {key}\t"):
        assert accepted(gateway, chat, f"Authorization: {value}") == 200, value
    for value in (
        f"Bearer\t{key}",
        f"Bearer{key}",
        f"Basic {key}",
        f"Token {key}",
        "Bearer",
        f"Bearer Bearer {key}",
        "",
    ):
        assert accepted(gateway, chat, f"Authorization: {value}") == 401, value
    for path in (messages, f"{messages}/count_tokens"):
        assert accepted(gateway, path, f"x-api-key: {key}") == 200, path
        assert accepted(gateway, path, f"X-Api-Key:  {key} ") == 200, path
    assert accepted(gateway, messages, f"Authorization: Bearer {key}") == 200
    # an Authorization that is there decides
    assert accepted(gateway, messages, f"x-api-key: {key}", "Authorization: Bearer wrong") == 401
    assert accepted(gateway, messages, "x-api-key: wrong", f"Authorization: Bearer {key}") == 200
    for lines in ((f"x-api-key: {key}", f"x-api-key: {key}"), ("x-api-key:",), (f"x-api-key: Bearer {key}",)):
        assert accepted(gateway, messages, *lines) == 401, lines
    for path in (chat, "/v1/messagesx", "/v1/completions", "/v1/models"):
        assert accepted(gateway, path, f"x-api-key: {key}") == 401, path
    seen = [headers for engine in engines.values() for _, headers, _ in engine.seen]
    assert seen and all({"x-api-key"}.isdisjoint(map(str.lower, headers)) for headers in seen)
    assert all(
        CLIENT_KEY not in str(headers) and headers["authorization"] == f"Bearer {ENGINE_KEY}" for headers in seen
    )
    assert CLIENT_KEY not in (gateway.folder / "haproxy.log").read_text()


def test_a_browser(make, engines):
    gateway = make()
    ask = {"Origin": "http://page", "Access-Control-Request-Method": "POST"}

    def options(path, headers, **more):
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=10)
        connection.request("OPTIONS", path, headers=headers, **more)
        answer = connection.getresponse()
        answer.read()
        return answer

    allowed = "Access-Control-Allow-Origin"
    # as the engine says
    answer = options("/v1/chat/completions", ask | {"Access-Control-Request-Headers": "authorization"})
    assert answer.status == 200 and answer.getheader(allowed) == "engine-says"
    method, headers = next(one for engine in engines.values() for one in engine.asked)
    assert method == "OPTIONS" and "authorization" not in map(str.lower, headers)
    # what is no such question asks for a key, and reaches nobody
    count = sum(len(engine.asked) for engine in engines.values())
    for headers in ({}, {"Origin": "http://page"}, {"Access-Control-Request-Method": "POST"}):
        assert options("/v1/chat/completions", headers).status == 401
    assert options("/v1/chat/completions", ask, body=b"{}").status == 401
    assert options("/v1/chat/completions", ask | {"Transfer-Encoding": "chunked"}, body=b"0\r\n\r\n").status == 401
    assert options("/metrics", ask).status == 404 and options("/v1/../metrics", ask).status == 404
    assert sum(len(engine.asked) for engine in engines.values()) == count
    # a page sees the gateway's errors, and of an engine's answers what the engine lets it see
    page = {"Origin": "http://page"}
    assert {
        gateway.request("/v1/models", key, headers=page)[2].get("access-control-allow-origin")
        for key in (None, "wrong")
    } == {"*"}
    assert "access-control-allow-origin" not in gateway.request("/v1/models", headers=page)[2]
    assert "access-control-allow-origin" not in gateway.request("/v1/models", None)[2]
    for name in engines:
        gateway.ask(f"set server engines/{name} state maint")
    status, _, headers = gateway.request("/v1/models", headers=page)
    assert (status, headers["access-control-allow-origin"]) == (503, "*")
    assert options("/v1/models", ask).status == 503


def test_nothing_that_the_socket_prints_has_a_key(make):
    gateway = make()
    assert gateway.request(body=ASK)[0] == 200
    commands = ["show map", "show acl", "show env", "show table clients", "show sess all", "show stat", "show info"]
    commands += [f"show map {name}" for name in gateway.ask("show map").split() if name.startswith("/")]
    commands += ["get var proc.engine_key", "show startup-logs", "show table strangers"]
    for command in commands:
        said = gateway.ask(command)
        assert ENGINE_KEY not in said and CLIENT_KEY not in said, command
    assert "clients.map" in gateway.ask("show map")
    for path in (gateway.socket, f"{gateway.folder}/relay.sock"):
        assert os.stat(path).st_mode & 0o777 == 0o600


def test_one_hot_session_spreads_and_the_others_keep_their_engine(make, engines):
    gateway = make(gateway_affinity_header="X-Session-Id")

    def begin(session, tokens=2):
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
        headers = {"Authorization": f"Bearer {CLIENT_KEY}", "X-Session-Id": session}
        connection.request("POST", "/v1/completions", json.dumps(ASK | {"max_tokens": tokens}), headers)
        return connection

    def engine_of(session):
        wait_for(lambda: not any(gateway.sessions(name) for name in engines), what="quiet")
        before = {name: gateway.started(name) for name in engines}
        assert begin(session).getresponse().status == 200
        return next(name for name in engines if gateway.started(name) > before[name])

    homes = {session: engine_of(session) for session in map(str, range(12))}
    assert set(homes.values()) == set(engines)
    assert all(engine_of(session) == home for session, home in homes.items())
    for engine in engines.values():
        engine.pace = 1
    before = {name: gateway.started(name) for name in engines}
    hot = [begin("hot") for _ in range(16)]
    wait_for(lambda: sum(gateway.started(name) - before[name] for name in engines) == 16, what="all of them")
    counts = sorted(gateway.started(name) - before[name] for name in engines)
    # half as much again as its share of 8, and one for rounding
    assert counts[0] >= 4 and counts[1] <= 13, counts
    for connection in hot:
        connection.close()
