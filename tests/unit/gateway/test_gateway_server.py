"""Module gateway_server and its logic against a real HAProxy with the role's configuration."""

import json
import threading
import time

import pytest
from gateway_lab import ROOT, wait_for

SERVERS = ["box1-main", "box2-main"]


@pytest.fixture
def act(gateway, run_module):
    def run(state, servers=("box1-main",), check=False, **params):
        params = {"state": state, "servers": list(servers), "socket": gateway.socket, "timeout": 5} | params
        params |= {"master_socket": gateway.master}
        return run_module(params, check)

    return run


@pytest.fixture
def urls(engines):
    return {name: f"http://127.0.0.1:{engine.port}/metrics" for name, engine in engines.items()}


def test_drain_and_restore(gateway, act):
    done = act("drained")
    assert done["changed"] and done["actions"] == ["drain box1-main"]
    assert done["servers"]["box1-main"]["before"]["admin"] == "ready"
    assert done["servers"]["box1-main"]["after"]["admin"] == "drain"
    assert done["up"] == ["box2-main"]
    assert gateway.status("box1-main").startswith("DRAIN")
    assert not act("drained")["changed"]

    done = act("up")
    assert done["changed"] and done["up"] == SERVERS and gateway.status("box1-main") == "UP"
    assert not act("up")["changed"]


def test_check_mode_predicts_and_touches_nothing(gateway, act):
    done = act("drained", check=True)
    assert done["changed"] and gateway.status("box1-main") == "UP"
    assert done["servers"]["box1-main"]["after"]["admin"] == "drain"
    assert done["diff"][0]["before"] == {"status": "UP", "admin": "ready"}
    assert done["diff"][0]["after"] == {"status": "DRAIN", "admin": "drain"}
    act("drained")
    done = act("up", check=True)
    assert done["changed"] and done["servers"]["box1-main"]["after"]["status"] == "UP"
    assert gateway.status("box1-main").startswith("DRAIN")
    assert not act("idle", check=True)["changed"]


def test_never_below_the_minimum(gateway, act):
    assert "would leave 0 of 2 servers UP, gateway_min_up is 1" in act("drained", SERVERS)["msg"]
    assert [gateway.status(name) for name in SERVERS] == ["UP", "UP"]
    assert "would leave 1 of 2" in act("drained", minimum_up=2)["msg"]
    act("drained")
    refused = act("drained", ["box2-main"])
    assert "would leave 0 of 2" in refused["msg"] and "box1-main DRAIN" in refused["msg"]
    assert gateway.status("box2-main") == "UP"
    assert "would leave" in act("drained", ["box2-main"], check=True)["msg"]


def test_a_dead_server_does_not_count_and_may_be_drained(gateway, engines, act):
    engines["box1-main"].stop()
    wait_for(lambda: gateway.status("box1-main") == "DOWN", what="DOWN")
    refused = act("drained", ["box2-main"])
    assert "would leave 0 of 2" in refused["msg"] and "box1-main DOWN" in refused["msg"]
    assert act("drained", ["box1-main"])["changed"]


def test_a_dead_engine_is_not_up(gateway, engines, act):
    act("drained")
    engines["box1-main"].sick = True
    wait_for(lambda: " 0 8 " in next(x for x in gateway.ask("show servers state").splitlines() if "box1" in x))
    failed = act("up", timeout=1)
    assert "box1-main is DOWN" in failed["msg"] and "L7STS 503" in failed["msg"]
    assert "packet filter" not in failed["msg"]
    # `ready` was given, so it comes back by itself
    engines["box1-main"].sick = False
    assert act("up", timeout=5)["up"] == SERVERS


def test_from_maint_no_request_meets_an_engine_that_was_not_checked(gateway, engines, act):
    """`ready` after `maint` is "UP 1/2" before any check, and requests go to an engine that is not there."""
    gateway.ask("set server engines/box1-main state maint")
    engines["box1-main"].stop()
    seen = set()
    stop = threading.Event()

    def watch():
        while not stop.is_set():
            seen.add(gateway.status("box1-main"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    failed = act("up", timeout=2)
    stop.set()
    watcher.join()
    assert "box1-main is DOWN" in failed["msg"] and "packet filter of the box admit it" in failed["msg"]
    assert not [status for status in seen if status.startswith("UP")], seen


def test_maint_becomes_drain_so_that_checks_go_on(gateway, act):
    gateway.ask("set server engines/box1-main state maint")
    assert act("drained")["servers"]["box1-main"]["after"]["admin"] == "drain"


def test_restore_without_waiting(gateway, engines, act):
    act("drained")
    engines["box1-main"].sick = True
    wait_for(lambda: " 0 8 " in next(x for x in gateway.ask("show servers state").splitlines() if "box1" in x))
    done = act("up", wait=False)
    assert done["changed"] and done["servers"]["box1-main"]["after"]["status"] == "DOWN"


def test_idle_waits_for_the_stream(gateway, engines, act, urls):
    stream = threading.Thread(
        target=gateway.request, kwargs={"body": {"model": "model", "prompt": "hello", "max_tokens": 100}}
    )
    stream.start()
    name = wait_for(lambda: next((n for n, engine in engines.items() if engine.running), None))
    act("drained", [name])
    late = act("idle", [name], metrics_urls={name: urls[name]}, timeout=0.2)
    assert f"{name} has 1 sessions" in late["msg"] and "works on 1 requests" in late["msg"]
    assert not act("idle", [name], metrics_urls={name: urls[name]})["failed"]
    assert engines[name].running == 0
    stream.join()


def test_idle_counts_what_came_past_the_gateway(gateway, engines, act, urls):
    act("drained")
    engines["box1-main"].waiting = 2
    assert (
        "the engine of box1-main works on 2 requests"
        in act("idle", metrics_urls={"box1-main": urls["box1-main"]}, timeout=0.5)["msg"]
    )


def test_idle_of_an_engine_that_ended(gateway, engines, act, urls):
    act("drained")
    engines["box1-main"].stop()
    assert not act("idle", metrics_urls={"box1-main": urls["box1-main"]})["failed"]


def test_idle_refuses_a_server_that_gets_requests(act):
    assert "drain it first" in act("idle")["msg"]


def test_idle_does_not_believe_a_page_without_figures(gateway, act, engines):
    act("drained")
    url = f"http://127.0.0.1:{engines['box1-main'].port}/health"
    assert "has none of" in act("idle", metrics_urls={"box1-main": url}, timeout=0.2)["msg"]


def test_status_of_all(act):
    done = act("status", [])
    assert not done["changed"] and sorted(done["servers"]) == SERVERS and done["up"] == SERVERS
    assert done["configuration"] == "tandem 0123" and done["version"].startswith(("2.", "3."))


@pytest.mark.parametrize("state", ["drained", "idle", "up", "status"])
def test_unknown_server(act, state):
    assert "has no server box9-main; it has box1-main, box2-main" in act(state, ["box9-main"])["msg"]


def test_unknown_backend(act):
    assert "backend nobody is not one of this HAProxy; it has " in act("status", backend="nobody")["msg"]


def test_no_haproxy(run_module, tmp_path):
    failed = run_module({"state": "status", "socket": str(tmp_path / "none.sock")})
    assert "no HAProxy answers there" in failed["msg"]


def test_nothing_named(run_module):
    assert "servers is empty" in run_module({"state": "drained"})["msg"]


def test_a_drain_survives_a_reload(gateway, act):
    act("drained")
    gateway.reload()
    assert gateway.status("box1-main").startswith("DRAIN") and gateway.status("box2-main") == "UP"
    assert act("up")["up"] == SERVERS


def test_an_address_that_changed_is_taken_at_a_reload(gateway, engines):
    """The file of states must not bring the old address or port back."""
    from fake_engine import FakeEngine

    new = FakeEngine()
    old = engines["box1-main"]
    engines["box1-main"] = new
    gateway.write()
    gateway.reload()
    old.stop()
    wait_for(lambda: gateway.status("box1-main") == "UP")
    time.sleep(0.5)
    answers = [gateway.request(body={"model": "m", "prompt": "x", "max_tokens": 1})[0] for _ in range(6)]
    assert answers == [200] * 6 and len(new.seen) >= 2


def test_documentation_matches_the_arguments():
    import yaml

    text = (ROOT / "library/gateway_server.py").read_text()
    documentation = yaml.safe_load(text.split('DOCUMENTATION = r"""')[1].split('"""')[0])
    for name in documentation["options"]:
        assert f'"{name}": {{"type":' in text
    assert json.dumps(yaml.safe_load(text.split('RETURN = r"""')[1].split('"""')[0]))
