"""Decisions of a roll: locks, batches, and the states that are told at its end."""

import pytest
from roll import (
    lock_others,
    lock_refusal,
    lock_takes,
    roll_interrupts_nobody,
    roll_serial_of,
    roll_start_time,
    roll_states,
)

ME = {"run": "a:boot:1:2", "who": "me@a", "since": "2026-11-30T12:00:00"}
YOU = {"run": "b:boot:3:4", "who": "you@b", "pid": 3, "since": "2026-11-30T11:00:00"}


def lock(machine, holder, mine=False):
    return {"item": machine, "holder": holder, "mine": mine}


def test_free_and_own_locks_are_nobody_elses():
    assert lock_others([lock("box1", None), lock("box2", ME, mine=True)]) == []


def test_a_run_that_goes_on_is_refused_by_name_with_its_machines_once():
    others = lock_others([lock("box1", YOU), lock("gw1", YOU)])
    text = lock_refusal(others, ["going", "going"])
    assert text.count("you@b (process 3) since 2026-11-30T11:00:00") == 1
    assert "box1, gw1" in text and "wait for its end" in text
    assert lock_takes(others, ["going", "going"], take=True) == {}
    assert lock_refusal(others, ["going", "going"], take=True)


def test_a_run_elsewhere_is_taken_over_only_when_asked():
    others = lock_others([lock("box1", YOU)])
    assert "roll_take_lock=true" in lock_refusal(others, ["unknown"])
    assert lock_takes(others, ["unknown"]) == {}
    assert lock_refusal(others, ["unknown"], take=True) == ""
    assert lock_takes(others, ["unknown"], take=True) == {"box1": YOU["run"]}


def test_a_run_that_is_over_is_taken_over():
    others = lock_others([lock("box1", YOU)])
    assert lock_refusal(others, ["over"]) == ""
    assert lock_takes(others, ["over"]) == {"box1": YOU["run"]}


@pytest.mark.parametrize(
    ("groups", "serial"),
    [
        (["all", "gpu_boxes"], None),
        (["tandem_serial_000_1", "tandem_serial_001_25percent"], ["1", "25%"]),
        (["tandem_serial_001_3", "all", "tandem_serial_000_1", "tandem_serial_002_3"], ["1", "3", "3"]),
    ],
)
def test_batches_come_back_in_order(groups, serial):
    assert roll_serial_of(groups) == serial


def container(hash_, running=True, active=True):
    return {"running": running, "active": active, "labels": {"tandem.config": hash_}}


@pytest.mark.parametrize(
    ("now", "says"),
    [
        (container("new"), "serves the new configuration (new)"),
        (container("old"), "serves what it served before (old)"),
        (container("odd"), "serves another configuration (odd)"),
        (container("new", active=False), "serves nothing"),
        (None, "serves nothing"),
    ],
)
def test_states(now, says):
    variables = {
        "box1": {
            "__vllm_endpoints": [{"container": "vllm-main", "hash": "new"}],
            "__roll_before": {"vllm-main": container("old")},
        }
    }
    looks = [{"item": "box1", "host_info": {"containers": {"vllm-main": now}}}]
    assert roll_states(looks, variables) == [f"box1: vllm-main {says}"]


def test_state_of_a_box_that_cannot_be_reached():
    variables = {"box1": {"__vllm_endpoints": [{"container": "vllm-main", "hash": "new"}], "__roll_before": {}}}
    assert "cannot be reached" in roll_states([{"item": "box1", "unreachable": True}], variables)[0]


def test_how_long_an_engine_took():
    line = '{"ready_s": 241.2, "warm_s": 8.9, "at": 1}'
    assert roll_start_time([line]) == "the start of the engine took 250 s (9 s of it to warm up)"
    assert roll_start_time([]) == "no engine has started in this boot"


@pytest.mark.parametrize(
    ("boxes", "gateways", "nobody"),
    [
        (["box1", "box2"], {}, False),
        (["box1"], {"gw1": {}}, False),
        (["box1", "box2"], {"gw1": {}}, True),
        (["box1"], {"gw1": {"gateway_min_up": "0"}}, True),
        (["box1", "box2"], {"gw1": {"gateway_min_up": 2}}, False),
        (["box1", "box2"], {"gw1": {}, "gw2": {"gateway_min_up": 2}}, False),
    ],
)
def test_a_box_may_leave_only_where_each_gateway_has_another(boxes, gateways, nobody):
    assert roll_interrupts_nobody({"gpu_boxes": boxes, "gateways": list(gateways)}, gateways) is nobody


def test_a_lab_without_the_group_of_gateways():
    assert roll_interrupts_nobody({"gpu_boxes": ["box1", "box2"]}, {}) is False
