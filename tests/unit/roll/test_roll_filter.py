"""Decisions of a roll: locks, batches, and the states that are told at its end."""

import json

import pytest
from roll import (
    lock_others,
    lock_refusal,
    lock_takes,
    roll_back_engines,
    roll_back_targets,
    roll_failure,
    roll_interrupts_nobody,
    roll_not_up,
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
            "__vllm_endpoints": [{"container": "vllm-main", "engine": "main", "hash": "new"}],
            "__roll_before": {"vllm-main": container("old")},
        }
    }
    looks = [{"item": "box1", "host_info": {"containers": {"vllm-main": now}}}]
    assert roll_states(looks, variables) == [f"box1: vllm-main {says}"]


def test_state_of_a_box_that_cannot_be_reached():
    variables = {
        "box1": {"__vllm_endpoints": [{"container": "vllm-main", "engine": "main", "hash": "new"}], "__roll_before": {}}
    }
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
        (["box1"], {"gw1": {"gateway_min_up": "0"}}, False),
        (["box1", "box2"], {"gw1": {"gateway_min_up": "0"}}, True),
        (["box1", "box2"], {"gw1": {"gateway_min_up": 2}}, False),
        (["box1", "box2"], {"gw1": {}, "gw2": {"gateway_min_up": 2}}, False),
    ],
)
def test_a_box_may_leave_only_where_each_gateway_has_another(boxes, gateways, nobody):
    assert roll_interrupts_nobody({"gpu_boxes": boxes, "gateways": list(gateways)}, gateways) is nobody


def test_a_lab_without_the_group_of_gateways():
    assert roll_interrupts_nobody({"gpu_boxes": ["box1", "box2"]}, {}) is False


@pytest.mark.parametrize(
    ("result", "says"),
    [
        ({"msg": "too slow"}, "too slow"),
        ({"failed": True, "msg": "no"}, "no"),
        ({"failed": True, "msg": "non-zero return code", "stderr": "run x is under way\n"}, "run x is under way"),
        (
            {
                "failed": True,
                "msg": "One or more items failed",
                "results": [{"failed": False}, {"failed": True, "msg": "drain"}],
            },
            "drain",
        ),
        ({"msg": "non-zero return code", "rc": 1, "stderr": "it died\n", "stdout": ""}, "it died"),
        ({"msg": "non-zero return code", "rc": 1, "stderr": "", "stdout": "it died"}, "it died"),
        (
            {
                "msg": "One or more items failed",
                "results": [
                    {"msg": "fine"},
                    {"failed": True, "msg": "gw1: no"},
                    {"unreachable": True, "msg": "gw2: gone"},
                ],
            },
            "gw1: no; gw2: gone",
        ),
        ({"results": [{"failed": True, "msg": "same"}, {"failed": True, "msg": "same"}]}, "same"),
        ({}, "it did not say why; its output is above"),
    ],
)
def test_the_reason_is_found_wherever_a_module_puts_it(result, says):
    assert roll_failure(result) == says


def on_gateway(name, status, admin="ready", item="gw1"):
    return {"item": item, "servers": {name: {"after": {"status": status, "admin": admin}}}}


def test_an_engine_that_a_gateway_does_not_send_requests_is_named():
    main = [{"engine": "main"}]
    assert roll_not_up([on_gateway("box1-main", "UP")], "box1", main) == []
    assert roll_not_up([on_gateway("box1-main", "DOWN")], "box1", main) == ["box1-main is DOWN on gw1"]
    assert roll_not_up([on_gateway("box1-main", "DRAIN", "drain")], "box1", main) == []
    assert roll_not_up([{"item": "gw2", "unreachable": True}], "box1", main) == ["gw2 cannot be asked"]
    assert roll_not_up([on_gateway("box2-main", "UP")], "box1", main) == ["box1-main is unknown on gw1"]


def test_states_say_what_every_gateway_thinks():
    variables = {
        "box1": {
            "__vllm_endpoints": [{"container": "vllm-main", "engine": "main", "hash": "new"}],
            "__roll_before": {"vllm-main": container("old")},
        }
    }
    looks = [{"item": "box1", "host_info": {"containers": {"vllm-main": container("new")}}}]
    gateways = [on_gateway("box1-main", "DRAIN"), {"item": "gw2", "unreachable": True}]
    said = "box1: vllm-main serves the new configuration (new), DRAIN on gw1, unknown on gw2"
    assert roll_states(looks, variables, gateways) == [said]


def about(hash_):
    return {"hash": hash_, "profile": "p", "image": "i", "since": "then"}


def serving(runs, current, previous=None):
    kept = {"main": {"current": current and about(current), "previous": previous and about(previous)}}
    endpoint = {"engine": "main", "container": "vllm-main", "unit": "vllm-main.service"}
    return roll_back_engines([endpoint], {"vllm-main": container(runs) if runs else None}, json.dumps(kept))


def test_where_a_box_goes_back_to():
    assert serving("b", "b", "a")[0]["target"]["hash"] == "a"
    assert serving("c", "b", "a")[0]["target"]["hash"] == "b", "cut short: to what was seen to work"
    assert serving("", "b", "a")[0]["target"]["hash"] == "b"
    assert roll_back_engines([{"engine": "main", "container": "c", "unit": "u"}], {"c": None}, "")[0]["target"] is None


def test_after_a_roll_that_stopped_only_what_it_changed_goes_back():
    plan = roll_back_targets({"box1": serving("c", "c", "b"), "box2": serving("b", "b", "a")})
    assert (plan["go"], plan["stay"], plan["problem"]) == (["box1"], ["box2"], "")
    assert "back to b" in plan["lines"][0] and "left alone" in plan["lines"][1]


def test_boxes_alike_go_back_together():
    plan = roll_back_targets({"box1": serving("c", "c", "b"), "box2": serving("c", "c", "b")})
    assert (plan["go"], plan["problem"]) == (["box1", "box2"], "")


def test_a_rollback_that_nobody_can_mean_asks():
    plan = roll_back_targets({"box1": serving("c", "c", "b"), "box2": serving("b", "b", "c")})
    assert plan["go"] == [] and "--limit" in plan["problem"]
    plan = roll_back_targets({"box1": serving("c", "c", "b"), "box2": serving("x", "x")})
    assert plan["problem"].startswith("box2 has no earlier")
