"""The probe: hung engines get no requests, busy ones keep theirs. Through a real HAProxy, and by a clock of our own."""

import importlib.machinery
import importlib.util
import socket
import threading
import time

import pytest
from gateway_lab import ENGINE_KEY, ROLE, wait_for

ASK = {"model": "model", "prompt": "hello", "max_tokens": 2}


def agent(gateway, name):
    with socket.create_connection(("127.0.0.1", gateway.probe_port), 5) as connection:
        connection.sendall(f"{name}\n".encode())
        return b"".join(iter(lambda: connection.recv(1000), b"")).decode().strip()


@pytest.fixture
def probed(gateway, engines):
    gateway.start_probe()

    def told():
        try:
            return all(agent(gateway, name) == "up" for name in engines)
        except OSError:
            return False

    wait_for(told, what="the probe's first words")
    return gateway


def tokens_asked(engine):
    return sum(b'"max_tokens": 1,' in body for _, _, body in engine.seen)


def test_a_hung_engine_gets_no_requests_and_comes_back(probed, engines):
    hung = engines["box1-main"]
    hung.hung = True
    # what the cheap check sees
    assert probed.request("/v1/models")[0] == 200
    wait_for(lambda: probed.status("box1-main") == "DOWN (agent)", 6, "the ejection")
    assert "no token and no progress" in probed.ask("show stat")
    assert [probed.request(body=ASK, timeout=3)[0] for _ in range(4)] == [200] * 4
    hung.hung = False
    wait_for(lambda: probed.status("box1-main") == "UP", 6, "the return")


def test_a_full_engine_is_not_hung_for_a_probe_that_has_just_started(gateway, engines):
    """Nothing is known of it yet, and its token waits its turn; "hung" would cut all of its clients off."""
    busy = engines["box1-main"]
    gateway.ask("set server engines/box2-main state drain")
    busy.pace = 0.05
    requests = [
        threading.Thread(target=gateway.request, kwargs={"body": ASK | {"max_tokens": 60}, "timeout": 60})
        for _ in range(6)
    ]
    for request in requests:
        request.start()
    wait_for(lambda: busy.waiting >= 4)
    gateway.start_probe()
    end, states = time.monotonic() + 3, set()
    while time.monotonic() < end:
        states.add(gateway.status("box1-main"))
        time.sleep(0.05)
    assert states == {"UP"} and busy.waiting
    busy.pace = 0
    for request in requests:
        request.join()


def test_an_engine_whose_queue_is_full_stays(probed, engines):
    """Two places, both taken by long answers, and eight more wait: a token asked for now comes in many seconds."""
    busy = engines["box1-main"]
    probed.ask("set server engines/box2-main state drain")
    busy.pace = 0.05
    requests = [
        threading.Thread(target=probed.request, kwargs={"body": ASK | {"max_tokens": 60}, "timeout": 60})
        for _ in range(10)
    ]
    for request in requests:
        request.start()
    wait_for(lambda: busy.waiting >= 8)
    asked, end, states = tokens_asked(busy), time.monotonic() + 4, set()
    # four times the seconds after which a silent engine counts as hung
    while time.monotonic() < end:
        states.add(probed.status("box1-main"))
        time.sleep(0.05)
    assert states == {"UP"} and busy.waiting
    # and nothing was asked of it, as its counters move
    assert tokens_asked(busy) - asked <= 1
    busy.pace = 0
    for request in requests:
        request.join()


def test_an_engine_in_a_long_prefill_stays(probed, engines):
    """No token for many seconds; the cache fills, though."""
    busy = engines["box1-main"]
    busy.slots, busy.prefill = threading.Semaphore(1), 4.0
    probed.ask("set server engines/box2-main state drain")
    request = threading.Thread(target=probed.request, kwargs={"body": ASK, "timeout": 60})
    request.start()
    wait_for(lambda: busy.running == 1)
    tokens, end, states = busy.tokens, time.monotonic() + 3, set()
    while time.monotonic() < end:
        states.add(probed.status("box1-main"))
        time.sleep(0.05)
    assert states == {"UP"} and busy.tokens == tokens
    request.join()


def test_a_full_engine_that_hangs_is_found(probed, engines):
    busy = engines["box1-main"]
    busy.pace = 0.05
    probed.ask("set server engines/box2-main state drain")
    requests = [
        threading.Thread(target=probed.request, kwargs={"body": ASK | {"max_tokens": 60}, "timeout": 60}, daemon=True)
        for _ in range(4)
    ]
    for request in requests:
        request.start()
    wait_for(lambda: busy.waiting >= 2)
    busy.hung = True
    wait_for(lambda: probed.status("box1-main") == "DOWN (agent)", 6, "the ejection")
    busy.hung, busy.pace = False, 0
    wait_for(lambda: probed.status("box1-main") == "UP", 6, "the return")


@pytest.mark.parametrize(("status", "why"), [(500, "answers 500"), (401, "answers 401"), (404, "answers 404")])
def test_an_engine_that_refuses_a_token(probed, engines, status, why):
    engines["box1-main"].status = status
    wait_for(lambda: probed.status("box1-main") == "DOWN (agent)", 6, "the ejection")
    assert why in agent(probed, "box1-main")
    engines["box1-main"].status = 200
    wait_for(lambda: probed.status("box1-main") == "UP", 6, "the return")


def test_an_engine_that_started_anew_is_up_after_a_token_only(probed, engines):
    from fake_engine import FakeEngine

    port = engines["box1-main"].port
    engines["box1-main"].stop()
    wait_for(lambda: "unreachable" in agent(probed, "box1-main"))
    engines["box1-main"] = FakeEngine(port)
    engines["box1-main"].hung = True
    wait_for(lambda: "L7OK" in next(x for x in probed.ask("show stat").splitlines() if "box1" in x))
    time.sleep(0.7)
    assert probed.status("box1-main").startswith("DOWN")
    engines["box1-main"].hung = False
    wait_for(lambda: probed.status("box1-main") == "UP", 6, "the return")


def test_a_probe_that_died_changes_nothing(probed, engines):
    probed.probe.kill()
    probed.probe.wait()
    time.sleep(0.7)
    assert [probed.status(name) for name in engines] == ["UP", "UP"]


def test_an_unknown_server_is_told_nothing(probed):
    assert agent(probed, "box9-main") == ""


def test_it_asks_with_the_engines_key(probed, engines):
    _, headers, _ = engines["box1-main"].seen[0]
    assert headers["Authorization"] == f"Bearer {ENGINE_KEY}"


# By hand, with a clock that the test sets.


@pytest.fixture
def engine(capsys):
    loader = importlib.machinery.SourceFileLoader("gateway_probe", str(ROLE / "files/gateway-probe"))
    probe = importlib.util.module_from_spec(importlib.util.spec_from_loader("gateway_probe", loader))
    loader.exec_module(probe)
    settings = {"hang_seconds": 20, "idle_seconds": 10, "look_seconds": 2}
    made = probe.Engine("e", {}, None, settings, clock=lambda: made.now)
    made.now, made.module = 1000.0, probe
    return made


def test_nothing_is_known_at_first(engine):
    engine.looked((1.0, 0.0, 0.0))
    engine.looked((2.0, 0.0, 0.0))
    assert engine.verdict is None and engine.owes()


def test_idle_engines_are_asked_every_ten_seconds(engine):
    engine.works()
    assert not engine.owes()
    engine.now += 10
    assert engine.owes()


def test_moving_counters_are_proof_and_silence_is_not(engine):
    engine.works()
    engine.looked((1.0, 0.0, 0.0))
    engine.asked = engine.now
    for _ in range(100):
        engine.now += 10
        engine.looked((engine.seen[0] + 1, 0.0, 0.0))
        engine.judge()
        assert engine.verdict == "up"
    engine.now += 19
    engine.looked(engine.seen)
    engine.judge()
    assert engine.verdict == "up"
    engine.now += 1
    engine.judge()
    assert engine.verdict.startswith("down #hung")
    # it goes on
    engine.looked((engine.seen[0] + 1, 0.0, 0.0))
    assert engine.verdict == "up"


def test_one_failure_is_chance_and_two_are_not(engine):
    engine.works()
    engine.fails("why")
    assert engine.verdict == "up"
    engine.fails("why")
    assert engine.verdict == "down #why"
    # counters that differ after a restart are no proof
    engine.looked((5.0, 0.0, 0.0))
    engine.looked((0.0, 0.0, 0.0))
    assert engine.verdict == "down #why" and engine.owes()
    engine.works()
    assert engine.verdict == "up"


def test_progress_adds_up_all_engines_of_a_page(engine):
    page = (
        "# HELP vllm:generation_tokens_total x\n"
        'vllm:generation_tokens_total{engine="0",model_name="m"} 5.0\n'
        'vllm:generation_tokens_total{engine="1",model_name="m"} 7.0\n'
        'vllm:generation_tokens_created{engine="0"} 1.7e+09\n'
        'vllm:kv_cache_usage_perc{engine="0"} 0.25\n'
    )
    assert engine.module.progress(page) == (12.0, 0.0, 0.25)
