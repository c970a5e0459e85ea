"""What load is planned, and what is said of a run."""

import copy
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import validate
from stress import (
    CAUSES,
    LOCK_SHARE,
    OUTPUT_TOKENS,
    SHORTEST,
    stress_bursts,
    stress_gone,
    stress_plan_text,
    stress_report,
    stress_tried,
    stress_verdict,
)

SCHEMA = json.loads((Path(__file__).parents[3] / "roles/stress/files/stress.schema.json").read_text())
ENDPOINT = {"engine": "main", "model": "m", "image": "i:1", "profile": "p", "hash": "abc"}
GPU = {
    "index": 0,
    "sm_mhz": {"min": 2085, "median": 2100, "max": 2100},
    "power_w": {"min": 150, "median": 181, "max": 249},
    "above_lock": None,
}
GOOD = {
    "boot_id": "a",
    "boot_id_now": "a",
    "started": "2026-11-30T12:00:00Z",
    "end": "time",
    "last_s": 600.2,
    "longest_prompt": 262079,
    "lock_mhz": 2100,
    "waiting": None,
    "nvml": None,
    "requests": {"completed": 40, "failed": 0, "failures": []},
    "xids": [],
    "engine": [],
    "gpus": [GPU, {**GPU, "index": 1}],
    "series": [
        [0.0, 210, 20.0, 210, 21.0],
        [10.0, 2100, 240.0, 2100, 244.0],
        [12.0, 2100, 181.0, 2100, 180.0],
        [600.0, 2100, 181.0, 2100, 180.0],
    ],
}

WAITING = {"prompt_tokens": 4608, "at_once": 1, "estimated_s": 4.1, "age_s": 20.0}


def result(**changes):
    return {**copy.deepcopy(GOOD), **changes}


@given(
    st.integers(5000, 300_000), st.integers(1, 64), st.integers(10, 3600), st.one_of(st.none(), st.integers(500, 9000))
)
def test_bursts_rise_stay_within_engine_and_time_and_keep_the_extremes(length, width, seconds, speed):
    bursts = stress_bursts(length, width, seconds, speed)
    tokens = [burst["prompt_tokens"] * burst["at_once"] for burst in bursts]
    assert tokens == sorted(tokens)
    longest = max(burst["prompt_tokens"] for burst in bursts)
    assert longest <= max(SHORTEST, length - OUTPUT_TOKENS - 1)
    assert longest <= max(SHORTEST, LOCK_SHARE * (speed or 3000) * seconds / 3)
    assert max(tokens) <= longest
    assert min(burst["prompt_tokens"] for burst in bursts) == SHORTEST
    assert max(burst["at_once"] for burst in bursts) <= width
    # long enough a time has everything
    if LOCK_SHARE * (speed or 3000) * seconds / 3 >= length:
        assert longest == length - OUTPUT_TOKENS - 1


def test_the_default_run_reaches_the_longest_prompt_and_sixteen_at_once():
    bursts = stress_bursts(262144, 16, 600, 5016)
    assert bursts[0] == {"prompt_tokens": 4608, "at_once": 1, "estimated_s": 4.1}
    assert max(burst["prompt_tokens"] for burst in bursts) == 262079
    assert max(burst["at_once"] for burst in bursts) == 16
    assert sum(burst["estimated_s"] for burst in bursts) <= 600


def test_an_engine_without_long_prompts_is_refused():
    with pytest.raises(ValueError, match="max-model-len is 4096"):
        stress_bursts(4096, 16, 600)


def test_the_plan_as_a_sentence():
    assert "for 60 s, bursts of 1 to" in stress_plan_text(stress_bursts(32768, 4, 60), 60)


@pytest.mark.parametrize(
    ("trial", "says"),
    [
        (None, "as the box is set"),
        ({"max_mhz": 2400}, "at most 2400 MHz"),
        ({"state": "unlocked", "power_limit_w": 150}, "cards unlocked, power limit 150 W"),
        ({"power_limit_w": "default"}, "power limit default"),
    ],
)
def test_what_is_tried(trial, says):
    assert stress_tried(trial) == says


def test_survived():
    verdict = stress_verdict(result())
    assert verdict["outcome"] == "survived"
    assert "600 s and 40 requests of up to 262079 tokens" in verdict["says"]
    assert verdict["sm_mhz"] == [2100, 2100]


def test_a_reboot_with_second_clock_and_power():
    verdict = stress_verdict(result(boot_id_now="b", end=None, last_s=12.1))
    assert (verdict["outcome"], verdict["what"], verdict["at_s"]) == ("failed", "reboot", 12.1)
    assert verdict["power_w"] == [181.0, 180.0]
    assert "12.1 s after the run began" in verdict["says"] and "2100 MHz and 181 W" in verdict["says"]


def test_a_reboot_after_the_run_was_over_is_none():
    assert stress_verdict(result(boot_id_now="b"))["outcome"] == "survived"


def test_the_last_sample_is_the_one_before_the_fault():
    xid = {"at_s": 10.5, "xid": 31, "says": "NVRM: Xid (PCI:0000:01:00): 31, ..."}
    verdict = stress_verdict(result(xids=[xid], end="stopped early by a fault"))
    assert (verdict["what"], verdict["at_s"], verdict["power_w"]) == ("xid", 10.5, [240.0, 244.0])


@pytest.mark.parametrize(
    ("changes", "what", "outcome"),
    [
        ({"gone": 900}, "gone", "failed"),
        (
            {"engine": [{"at_s": 3.0, "says": "vllm-main.service ended"}], "end": "stopped early by a fault"},
            "engine",
            "failed",
        ),
        ({"gpus": [{**GPU, "above_lock": {"at_s": 2.0, "mhz": 2520}}]}, "clock", "inconclusive"),
        ({"end": "tandem-gpu-clocks failed"}, "error", "inconclusive"),
        ({"end": None}, "error", "inconclusive"),
        ({"requests": {"completed": 1, "failed": 1, "failures": [{"at_s": 1.0, "says": "500"}]}}, "requests", "failed"),
        ({"requests": {"completed": 0, "failed": 0, "failures": []}}, "nothing", "inconclusive"),
        ({"gpus": [], "nvml": "NVML does not answer"}, "nothing", "inconclusive"),
        # readings of the first seconds say nothing of the rest, whether NVML said so or hung
        ({"nvml": "NVML does not answer"}, "nothing", "inconclusive"),
        ({"series": GOOD["series"][:-1]}, "nothing", "inconclusive"),
        ({"waiting": {**WAITING, "age_s": 40.0}}, "hang", "inconclusive"),
        # no log at all, in the same boot and after another one: nothing was put under load
        ({"started": None, "end": None}, "error", "inconclusive"),
        ({"started": None, "end": None, "boot_id": None}, "error", "inconclusive"),
        ({"started": None, "end": None, "boot_id_now": "b"}, "error", "inconclusive"),
    ],
)
def test_what_happened(changes, what, outcome):
    verdict = stress_verdict(result(**changes))
    assert (verdict["what"], verdict["outcome"]) == (what, outcome)
    assert CAUSES[what] == outcome


def test_a_prompt_that_the_end_came_upon_is_no_hang():
    assert stress_verdict(result(waiting=WAITING))["outcome"] == "survived"


def test_a_box_that_did_not_come_back_is_judged_by_what_was_last_seen():
    last = {"gpus": [[2400, 395.0, 60, 90, 0]], "in_flight": 1, "burst": 0}
    look = {"seconds": 12.5, "last": last, "boot_id": "a", "simulated": True, "started": "2026-11-30T12:00:00Z"}
    for seen in (look, {**look, "last": None}, None):
        found = stress_gone({"gone": 900, "last_seen": seen}, 600, {"max_mhz": 2400})
        verdict = stress_verdict(found)
        assert (verdict["what"], verdict["outcome"]) == ("gone", "failed")
        validate(stress_report(found, verdict, "box1", "r", [ENDPOINT]), SCHEMA)
    assert stress_verdict(stress_gone({"gone": 900, "last_seen": look}, 600, None))["power_w"] == [395.0]


def test_one_step_above_the_lock_is_rounding():
    assert stress_verdict(result(gpus=[{**GPU, "above_lock": {"at_s": 2.0, "mhz": 2115}}]))["outcome"] == "survived"


def test_the_worst_comes_first():
    changes = {
        "boot_id_now": "b",
        "end": None,
        "requests": {"completed": 0, "failed": 2, "failures": [{"at_s": 1, "says": ""}]},
    }
    assert stress_verdict(result(**changes))["what"] == "reboot"
