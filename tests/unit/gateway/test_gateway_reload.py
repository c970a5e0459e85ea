"""What a reload leaves behind: the process that it replaced goes on with its connections, where no drain reaches it."""

import http.client
import json
import os
import pwd
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from gateway_lab import CLIENT_KEY, ROOT, Gateway, load, render, wait_for

ASK = {"model": "model", "prompt": "hello", "max_tokens": 2}
HEADERS = {"Authorization": f"Bearer {CLIENT_KEY}", "Content-Type": "application/json"}
SERVERS = ("box1-main", "box2-main")
CONNECT = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"


class Client:
    """One connection that is kept, as clients keep theirs."""

    def __init__(self, gateway):
        self.connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)

    def ask(self, **changes):
        self.connection.request("POST", "/v1/completions", json.dumps(ASK | changes), HEADERS)
        answer = self.connection.getresponse()
        answer.read()
        return answer.status

    def begin(self, tokens):
        """A stream of which the first line has been read."""
        self.connection.request(
            "POST", "/v1/completions", json.dumps(ASK | {"stream": True, "max_tokens": tokens}), HEADERS
        )
        self.answer = self.connection.getresponse()
        assert self.answer.readline().startswith(b"data: {")

    def end(self):
        assert self.answer.read().endswith(b"data: [DONE]\n\n")


@pytest.fixture
def act(gateway, run_module):
    def run(state, servers=("box1-main",), check=False, **params):
        sockets = {"socket": gateway.socket, "master_socket": gateway.master}
        return run_module({"state": state, "servers": list(servers), "timeout": 20} | sockets | params, check)

    return run


@pytest.fixture
def clients(gateway, engines):
    """Idle connections and streams of before the reload; streams on both engines."""
    for engine in engines.values():
        engine.slots = threading.Semaphore(16)
    idle = [Client(gateway) for _ in range(4)]
    assert [client.ask() for client in idle] == [200] * 4
    streams = [Client(gateway) for _ in range(4)]
    for client in streams:
        client.begin(150)
    assert all(engine.running for engine in engines.values())
    yield idle, streams
    for client in idle + streams:
        client.connection.close()


def old_processes(gateway):
    logic = load("tandem_gateway", ROOT / "module_utils/tandem_gateway.py")
    return logic.Master(gateway.master).replaced()


@pytest.mark.parametrize("reloads", [1, 3])
def test_connections_of_before_a_reload_are_drained_too(gateway, engines, act, clients, reloads):
    idle, streams = clients
    for _ in range(reloads):
        gateway.reload()
    assert len(old_processes(gateway)) >= 1
    assert act("drained")["changed"]
    before = len(engines["box1-main"].seen)
    assert [client.ask() for client in idle] == [200] * 4
    for client in streams:
        client.end()
        assert client.ask() == 200
    assert len(engines["box1-main"].seen) == before
    # and again when it is back
    back = act("up")
    assert not back["failed"], back
    assert back["up"] == list(SERVERS)
    assert act("drained", ["box2-main"])["changed"]
    before = len(engines["box2-main"].seen)
    assert [client.ask() for client in idle + streams] == [200] * 8
    assert len(engines["box2-main"].seen) == before and len(engines["box1-main"].seen) >= 8


def test_a_reload_between_a_drain_and_its_end(gateway, engines, act, clients):
    idle, streams = clients
    act("drained")
    for _ in range(2):
        gateway.reload()
    act("up")
    act("drained", ["box2-main"])
    before = len(engines["box2-main"].seen)
    for client in streams:
        client.end()
    assert [client.ask() for client in idle + streams] == [200] * 8
    assert len(engines["box2-main"].seen) == before


def test_what_a_replaced_process_still_streams_counts(gateway, engines, act, clients):
    """Without asking the engine, which knows of a request only when all of it has arrived."""
    _, streams = clients
    gateway.reload()
    gateway.reload()
    act("drained")
    found = act("status")["servers"]["box1-main"]["after"]["sessions"]
    assert found == engines["box1-main"].running > 0
    assert f"box1-main has {found} sessions" in act("idle", timeout=0.2)["msg"]
    assert not act("idle")["failed"]
    assert engines["box1-main"].running == 0
    for client in streams:
        client.end()


def test_a_replaced_process_that_ends_meanwhile_is_no_error(gateway, act, clients, monkeypatch):
    import ansible.module_utils.tandem_gateway as logic

    gateway.reload()
    first = old_processes(gateway)
    assert first
    real = logic.Master.replaced

    def replaced(self):
        for pid in real(self):
            os.kill(int(pid), signal.SIGKILL)
            wait_for(lambda pid=pid: pid not in real(self), what="its end")
        return first

    monkeypatch.setattr(logic.Master, "replaced", replaced)
    found = act("status")
    assert not found["failed"], found
    assert found["servers"]["box1-main"]["after"]["sessions"] == 0


def test_without_a_masters_socket_the_engines_tell(gateway, act, engines, clients):
    gateway.reload()
    act("drained")
    params = {"master_socket": f"{gateway.folder}/none.sock"}
    assert act("status", **params)["servers"]["box1-main"]["after"]["sessions"] == 0
    urls = {"box1-main": f"http://127.0.0.1:{engines['box1-main'].port}/metrics"}
    assert "the engine of box1-main works on" in act("idle", metrics_urls=urls, timeout=0.2, **params)["msg"]


def test_a_replaced_process_asks_no_engine_that_has_died_since(gateway, engines, act, clients):
    """It checks no server any more."""
    idle, _ = clients
    gateway.reload()
    engines["box1-main"].status = 500
    engines["box1-main"].sick = True
    wait_for(lambda: gateway.status("box1-main") == "DOWN", what="DOWN")
    assert [client.ask() for client in idle] == [200] * 4


def test_a_key_that_was_taken_away_is_refused_on_connections_of_before(gateway, clients):
    idle, _ = clients
    (gateway.folder / "clients.map").write_text("")
    gateway.reload()
    assert [client.ask() for client in idle] == [401] * 4


def test_the_address_of_a_client_comes_through(gateway, engines, clients):
    idle, _ = clients
    gateway.reload()
    seen = {name: len(engine.seen) for name, engine in engines.items()}
    own = ":".join(map(str, idle[0].connection.sock.getsockname()))
    assert idle[0].ask() == 200
    headers = next(engine.seen[-1][1] for name, engine in engines.items() if len(engine.seen) > seen[name])
    assert headers["x-forwarded-for"] == "127.0.0.1" and CLIENT_KEY not in str(headers)
    wait_for(lambda: (gateway.folder / "haproxy.log").read_text().count(f"{own} alice POST") >= 2, what="the log")


def test_the_relay_in_the_chroot_is_of_haproxys_user_alone(tmp_path, engines, monkeypatch):
    """As root with user and chroot, as on a gateway: a socket file is bound before the chroot and found inside."""
    import gateway_lab

    folder = Path(os.path.realpath(tmp_path))
    text = render(folder, [{"name": "a", "address": "127.0.0.1", "port": 1}], __gateway_relay_inside="/relay.sock")
    assert f"bind unix@{folder}/relay.sock user haproxy group haproxy mode 600 accept-proxy" in text
    assert "server gateway unix@/relay.sock send-proxy-v2" in text and "chroot /var/lib/haproxy" in text
    if os.geteuid():
        return
    for place in (folder, *folder.parents):
        place.chmod(place.stat().st_mode | 0o111)
    monkeypatch.setattr(
        gateway_lab, "unprivileged", lambda text: text.replace("chroot /var/lib/haproxy", f"chroot {folder}")
    )
    made = Gateway(folder, engines, __gateway_relay_inside="/relay.sock")
    try:
        wait_for(made.answers, what="HAProxy")
        wait_for(lambda: all(made.status(name) == "UP" for name in engines), what="UP")
        for path, user in ((f"{folder}/relay.sock", "haproxy"), (made.socket, "root")):
            found = os.stat(path)
            assert (found.st_mode & 0o777, pwd.getpwuid(found.st_uid).pw_name) == (0o600, user)
        client = Client(made)
        assert client.ask() == 200
        made.reload()
        made.ask("set server engines/box1-main state drain")
        before = len(engines["box1-main"].seen)
        assert client.ask() == 200 and len(engines["box1-main"].seen) == before
        # nobody else may say what a client's address is
        done = subprocess.run(
            ["setpriv", "--reuid", "nobody", "--clear-groups", sys.executable, "-c", CONNECT, f"{folder}/relay.sock"],
            capture_output=True,
            text=True,
        )
        assert "PermissionError" in done.stderr
    finally:
        made.stop()


@pytest.mark.parametrize(
    ("text", "pids"),
    [
        # 2.4 and 2.6, then 3.0 and newer
        (
            "#<PID>          <type>          <relative PID>  <reloads>       <uptime>        <version>      \n"
            "1162            master          0               5               0d00h02m07s     2.4.22\n"
            "# workers\n1271            worker          1               0               0d00h00m00s     2.4.22\n"
            "# old workers\n1233            worker          [was: 1]        3               0d00h00m43s     2.4.22\n"
            "# programs\n1244            foo             0               0               0d00h00m00s     -\n",
            ["1233"],
        ),
        (
            "#<PID>          <type>          <reloads>       <uptime>        <version>\n"
            "8 master 2 [failed: 0] 0d00h00m01s 3.2.1\n# workers\n12 worker 0 0d00h00m00s 3.2.1\n"
            "# old workers\n9 worker 2 0d00h00m01s 3.2.1\n10 worker 1 0d00h00m01s 3.2.1\n# programs\n\n",
            ["9", "10"],
        ),
        ("#<PID> <type>\n8 master 0\n# workers\n12 worker 0 0d00h00m00s 3.2.1\n# programs\n\n", []),
    ],
)
def test_which_processes_are_old(tmp_path, monkeypatch, text, pids):
    logic = load("tandem_gateway", ROOT / "module_utils/tandem_gateway.py")
    monkeypatch.setattr(logic.Admin, "ask", lambda self, command: text)
    assert logic.Master(str(tmp_path)).replaced() == pids


def test_a_socket_that_refuses_while_the_master_loads_is_waited_for(gateway, run_module):
    gateway.reload()
    started = time.monotonic()
    found = run_module({"state": "status", "socket": gateway.socket, "master_socket": gateway.master})
    assert not found["failed"] and time.monotonic() - started < 6
