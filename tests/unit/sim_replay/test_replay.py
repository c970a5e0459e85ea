"""The replay of the field report: its judges, and that its steps ask for settings that exist. Starts no box."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "sim"))
spec = importlib.util.spec_from_file_location("replay", ROOT / "sim/replay.py")
replay = importlib.util.module_from_spec(spec)
spec.loader.exec_module(replay)
SPEEDS = json.loads(replay.SPEEDS.read_text())
STEPS = replay.steps(SPEEDS, "/reports")


@pytest.mark.parametrize(("limit", "clock"), [(2100, 2100), (2250, 2250), (2114, 2100), (2115, 2115), (9999, 3105)])
def test_the_clock_that_the_model_implies_is_on_the_grid(limit, clock):
    assert replay.implied_clock({"power": {"survives_up_to_mhz": limit}}) == clock


def test_speeds_follow_the_report():
    assert replay.speed_at(SPEEDS, "decode", 2520) == 1
    assert replay.speed_at(SPEEDS, "decode", 2100) == 0.9
    assert 0.85 <= replay.speed_at(SPEEDS, "prefill", 2100) <= 0.9
    assert replay.speed_at(SPEEDS, "decode", 2300) == pytest.approx(0.95)
    assert replay.speed_at(SPEEDS, "decode", 1050) == pytest.approx(0.45)


def bench(decode, prefill, acceptance):
    cases = {"decode_chat": {"value": decode, "acceptance": acceptance}, "prefill_2k": {"value": prefill}}
    return [{"engines": {"main": {"result": {"cases": cases}}}}]


@pytest.mark.parametrize(
    ("seen", "good"),
    [
        ((67.6, 5016, 0.849), True),
        ((66, 4700, 0.83), True),
        ((60.8, 4364, 0.849), False),
        ((67.6, 4364, 0.849), False),
        ((67.6, 5016, 0.763), False),
    ],
)
def test_a_measurement_is_as_reported_or_not(seen, good):
    assert replay.judge_speed(67.6, 5016, 0.849)("", bench(*seen))[1] is good


@pytest.mark.parametrize(
    ("output", "good"),
    [
        ("FLASH_ATTN does not\n  take fp8 ... changed=0", True),
        ("FLASH_ATTN does not take fp8 ... changed=2", False),
        ("another error ... changed=0", False),
    ],
)
def test_a_refusal_names_its_reason_and_has_changed_nothing(output, good):
    assert replay.judge_refused("does not take fp8")(output, [])[1] is good


@pytest.mark.parametrize(
    ("verdict", "wanted", "good"),
    [
        ({"outcome": "survived", "what": "survived"}, "survived", True),
        ({"outcome": "failed", "what": "reboot"}, "reboot", True),
        ({"outcome": "failed", "what": "engine"}, "reboot", False),
        ({"outcome": "inconclusive", "what": "clock"}, "survived", False),
    ],
)
def test_a_stress_run_ends_as_reported_or_not(verdict, wanted, good):
    assert replay.judge_stress(wanted)("", [{"verdict": {**verdict, "says": "x"}}])[1] is good


@pytest.mark.parametrize(
    ("result", "good"),
    [
        ({"highest_mhz": 2100, "lowest_failed_mhz": 2115}, True),
        ({"highest_mhz": 2085, "lowest_failed_mhz": 2100}, False),
        ({"highest_mhz": 2100, "lowest_failed_mhz": 2130}, False),
        (None, False),
    ],
)
def test_the_search_lands_on_the_step_or_not(result, good):
    assert replay.judge_search(2100)("", [{"result": result}])[1] is good


def test_a_report_without_a_page_or_with_a_wrong_one_is_not_as_it_should_be(tmp_path):
    assert replay.judge_page(tmp_path)("", []) == ("no page was written", False)
    (tmp_path / "a.json").write_text('{"value": 67.6}')
    (tmp_path / "index.html").write_text('<p>simulated <data value="67.5" data-from="a.json#/value">67.5</data></p>')
    seen, good = replay.judge_page(tmp_path)("", [])
    assert not good and "67.5, but a.json#/value is 67.6" in seen


def test_it_goes_through_everything_that_the_report_tried():
    tried = [step.settings.get("vllm_profile", "").removeprefix("qwen3.8-27b-int4") for step in STEPS]
    assert list(dict.fromkeys(tried)) == ["-initial", "-flash-attn-fp8", "-flash-attn-bf16", ""]
    trials = [step.settings["stress_trial"] for step in STEPS if step.playbook == "playbooks/stress"]
    assert [trial.get("power_limit_w") or trial.get("max_mhz") for trial in trials if trial] == [150, 200, 2400, 2100]
    assert [step.playbook for step in STEPS][-2:] == ["playbooks/find_clock", "playbooks/report"]


def known(role):
    options = yaml.safe_load((ROOT / f"roles/{role}/meta/argument_specs.yml").read_text())["argument_specs"]
    return {name for entry in options.values() for name in entry["options"]}


def test_every_setting_of_every_step_exists():
    names = {"tandem_allow_interruption"}.union(*map(known, ("vllm", "gpu_clocks", "bench", "stress", "find_clock")))
    names |= known("report") | known("roll")
    for step in STEPS:
        assert (ROOT / f"{step.playbook}.yml").is_file()
        assert set(step.settings) <= names, step.title


def test_what_it_prints_says_simulated():
    lines = replay.table([("a", "runs", "runs", True), ("b", "", "died", False)])
    assert [line for line in lines if "simulated:" in line] == lines[2:3] + lines[4:]
    assert lines[0].split() == ["as", "reported", "a"] and lines[3].split() == ["NOT", "SO", "b"]
    assert "nothing about hardware" in replay.SIMULATED
