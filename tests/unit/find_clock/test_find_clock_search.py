"""The search against a model of a box that fails above a limit: from any bounds and any wish, cut at any step."""

import json
from pathlib import Path

import pytest
from find_clock import (
    find_clock_begin,
    find_clock_card,
    find_clock_done,
    find_clock_given_up,
    find_clock_next,
    find_clock_own_wish,
    find_clock_problems,
    find_clock_record,
    find_clock_rest,
    find_clock_resting,
    find_clock_resumable,
    find_clock_text,
    find_clock_wish,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import validate

CARD = {"min_mhz": 210, "max_mhz": 3105, "step_mhz": 15}
SCHEMA = json.loads((Path(__file__).parents[3] / "roles/find_clock/files/find_clock.schema.json").read_text())
BOX = {"name": "box1", "driver": "580.95.05", "simulated": True, "gpus": [], "engines": []}
LOCKED = {"state": "locked", "min_mhz": 0, "max_mhz": 2100, "power_limit_w": None, "wait_seconds": 60}
UNLOCKED = {"state": "unlocked", "min_mhz": 0, "max_mhz": None, "power_limit_w": None}
DEFAULTS = {
    "low_mhz": 1800,
    "high_mhz": 2520,
    "step_mhz": 15,
    "survive": 2,
    "margin_mhz": 45,
    "seconds": 180,
    "power_limits_w": [],
    "power_state": "unlocked",
}


def search_of(wish=LOCKED, **changes):
    return find_clock_begin({**DEFAULTS, **changes}, BOX, CARD, wish, "2026-11-30T12:00:00Z")


def verdict(outcome, what=None):
    what = what or {"survived": "survived", "failed": "reboot", "inconclusive": "requests"}[outcome]
    return {"outcome": outcome, "what": what, "says": what, "at_s": 1.5, "power_w": [180, 181], "sm_mhz": [2100, 2100]}


def run(search, limit_mhz, limit_w=150, cut=None):
    """Steps until the end, each through JSON, as the document goes through a file. cut: steps after which to stop."""
    steps = 0
    while (step := find_clock_next(search)) is not None and (cut is None or steps < cut):
        bad = step["max_mhz"] > limit_mhz if step["kind"] == "clock" else step["power_limit_w"] > limit_w
        search = find_clock_record(search, step, verdict("failed" if bad else "survived"))
        search = json.loads(json.dumps(search))
        steps += 1
        assert steps < 60
    return search


on_grid = st.integers(0, 193).map(lambda number: 210 + 15 * number)


@settings(max_examples=300, deadline=None)
@given(
    bounds=st.tuples(on_grid, on_grid).map(sorted),
    limit=st.integers(210, 3200),
    own=st.one_of(st.none(), on_grid),
    cut=st.integers(0, 12),
)
def test_the_limit_is_found_from_any_bounds_when_cut_anywhere(bounds, limit, own, cut):
    low, high = bounds
    wish = UNLOCKED if own is None else {**LOCKED, "max_mhz": own}
    search = run(run(search_of(wish, low_mhz=low, high_mhz=high), limit, cut=cut), limit)
    assert search["state"] == "found"
    best = search["result"]["highest_mhz"]
    assert best == min(high, 210 + (limit - 210) // 15 * 15)
    tried = [step["max_mhz"] for step in search["steps"]]
    assert max(tried) <= high
    assert [step["outcome"] for step in search["steps"] if step["max_mhz"] == best] == ["survived", "survived"]
    assert len({step["run"] for step in search["steps"]}) == len(tried)


@settings(max_examples=200, deadline=None)
@given(limit=st.integers(210, 2600), own=on_grid, cut=st.integers(0, 20))
def test_a_reboot_never_comes_back_to_a_clock_that_has_failed(limit, own, cut):
    search = run(search_of({**LOCKED, "max_mhz": own}), limit, cut=cut)
    failed = [step["max_mhz"] for step in search["steps"] if step["outcome"] == "failed"]
    assert all(find_clock_rest(search) < clock for clock in failed)
    assert find_clock_resting(search)["state"] == "locked"


@settings(max_examples=100, deadline=None)
@given(step=st.integers(1, 8).map(lambda number: number * 15), limit=st.integers(1800, 2600))
def test_coarser_steps_stay_on_their_own_grid(step, limit):
    search = run(search_of(UNLOCKED, step_mhz=step), limit)
    best = search["result"]["highest_mhz"]
    assert (best - 1800) % step == 0
    assert best <= limit < best + step or best + step > 2520


def test_the_default_search_takes_few_steps():
    search = run(search_of(), 2250)
    assert search["result"]["highest_mhz"] == 2250
    assert search["result"]["proposed_mhz"] == 2205
    assert len(search["steps"]) <= 14
    assert sum(step["outcome"] == "failed" for step in search["steps"]) <= 6


def test_what_the_box_has_comes_first():
    assert find_clock_next(search_of())["max_mhz"] == 2100
    assert find_clock_next(search_of(UNLOCKED))["max_mhz"] == 2160


def test_below_the_bounds_what_the_box_has_comes_first_too():
    search = search_of(low_mhz=2400)
    while (step := find_clock_next(search))["max_mhz"] >= 2400:
        search = find_clock_record(search, step, verdict("failed"))
    assert step["max_mhz"] == 2100


def test_one_survival_is_not_enough():
    search = search_of()
    search = find_clock_record(search, find_clock_next(search), verdict("survived"))
    again = find_clock_next(search)
    assert (again["max_mhz"], again["try"]) == (2100, 2)
    search = find_clock_record(search, again, verdict("failed"))
    assert find_clock_next(search)["max_mhz"] < 2100


def test_a_lower_failure_wins_over_a_higher_survival():
    search = search_of()
    for clock, outcome in ((2250, "survived"), (2250, "survived"), (2235, "failed")):
        step = {**find_clock_next(search), "max_mhz": clock}
        search = find_clock_record(search, step, verdict(outcome))
    assert find_clock_next(search)["max_mhz"] < 2235
    assert run(search, 2000)["result"]["highest_mhz"] == 1995


def test_an_engine_that_dies_says_nothing_about_the_clock_and_three_of_them_stop_the_search():
    search = search_of()
    for _ in range(3):
        assert find_clock_next(search)["max_mhz"] == 2100
        search = find_clock_record(search, find_clock_next(search), verdict("failed", "engine"))
    assert search["state"] == "stopped"
    assert find_clock_next(search) is None
    assert "engine" in search["result"]["says"]
    assert [step["run"][-3:] for step in search["steps"]] == ["001", "002", "003"]


def test_an_xid_counts():
    search = search_of()
    search = find_clock_record(search, find_clock_next(search), verdict("failed", "xid"))
    assert search["steps"][0]["outcome"] == "failed"


def test_nothing_survives():
    search = run(search_of(low_mhz=2400), 0)
    assert search["state"] == "none"
    assert search["result"]["proposed_mhz"] is None
    assert min(step["max_mhz"] for step in search["steps"]) == 210


def test_a_power_sweep_follows_and_leaves_the_lock_out():
    search = run(search_of(power_limits_w=[150, 200]), 2250)
    power = [step for step in search["steps"] if step["kind"] == "power"]
    assert [(step["power_limit_w"], step["outcome"]) for step in power] == [
        (150, "survived"),
        (150, "survived"),
        (200, "failed"),
    ]
    assert power[0]["trial"] == {"state": "unlocked", "power_limit_w": 150}
    assert search["result"]["power_limits"] == [
        {"power_limit_w": 150, "outcome": "survived"},
        {"power_limit_w": 200, "outcome": "failed"},
    ]


def test_a_limit_above_one_that_failed_is_not_tried():
    search = run(search_of(power_limits_w=[200, 250, 150]), 2250)
    assert [step["power_limit_w"] for step in search["steps"] if step["kind"] == "power"] == [200, 150, 150]
    assert "200 W failed, 250 W not tried, 150 W survived" in search["result"]["says"]


def test_limits_of_which_nothing_can_be_learnt_do_not_spoil_the_clock():
    search = run(search_of(power_limits_w=[200, 150]), 2250, cut=len(run(search_of(), 2250)["steps"]))
    while (step := find_clock_next(search)) is not None:
        search = find_clock_record(search, step, verdict("inconclusive"))
        assert len(search["steps"]) < 40
    assert (search["state"], search["result"]["highest_mhz"]) == ("found", 2250)
    assert [step["power_limit_w"] for step in search["steps"] if step["kind"] == "power"] == [200] * 3 + [150] * 3
    assert "200 W undecided, 150 W undecided" in search["result"]["says"]


def test_where_nothing_failed_it_is_said_that_nothing_above_is_tried():
    says = run(search_of(high_mhz=2100), 2250)["result"]["says"]
    assert "nothing failed up to find_clock_high_mhz (2100)" in says and "raise it" in says


def test_the_wish_is_put_back_or_the_clock_is_set():
    search = run(search_of(), 2250)
    assert find_clock_wish(search) == LOCKED
    assert find_clock_wish(search, True) == {**LOCKED, "max_mhz": 2205}


def test_a_wish_that_fails_is_not_put_back():
    search = run(search_of({**LOCKED, "max_mhz": 2400}), 2250)
    assert find_clock_wish(search)["max_mhz"] == 2250
    search = run(search_of(UNLOCKED), 2250)
    assert find_clock_wish(search)["state"] == "locked"


def test_a_search_cut_before_any_step_leaves_an_unlocked_box_at_the_low_bound():
    assert find_clock_resting(search_of(UNLOCKED))["max_mhz"] == 1800


def test_what_is_resumed():
    search = run(search_of(), 2250, cut=3)
    assert find_clock_resumable(search, DEFAULTS, "box1")
    assert not find_clock_resumable(search, {**DEFAULTS, "seconds": 60}, "box1")
    assert not find_clock_resumable(search, DEFAULTS, "box2")
    assert not find_clock_resumable(None, DEFAULTS, "box1")
    found = run(search, 2250)
    # cut off between its last run and its end: the box has not got its clocks yet
    assert find_clock_resumable(found, DEFAULTS, "box1") and find_clock_next(found) is None
    found["finished"] = "2026-11-30T12:30:00Z"
    assert not find_clock_resumable(found, DEFAULTS, "box1")


def test_what_is_done_is_not_searched_again_by_the_same_command():
    found = run(search_of(), 2250)
    assert not find_clock_done(found, DEFAULTS, BOX)
    found["finished"] = "2026-11-30T12:30:00Z"
    assert find_clock_done(found, DEFAULTS, BOX)
    assert not find_clock_done(found, {**DEFAULTS, "high_mhz": 2400}, BOX)
    assert not find_clock_done(found, DEFAULTS, {**BOX, "driver": "590.1"})
    assert not find_clock_done(None, DEFAULTS, BOX)
    none = {**run(search_of(low_mhz=2400), 0), "finished": "2026-11-30T12:30:00Z"}
    assert not find_clock_done(none, {**DEFAULTS, "low_mhz": 2400}, BOX)


@settings(max_examples=200, deadline=None)
@given(cut=st.integers(0, 12), late=st.booleans(), own=st.one_of(st.none(), on_grid))
def test_other_settings_after_a_search_that_was_cut_off_keep_the_boxs_own_wish(cut, late, own):
    wish = UNLOCKED if own is None else {**LOCKED, "max_mhz": own}
    search = run(search_of(wish, high_mhz=2300), 2250, cut=cut)
    # killed after the box was set for the next step, or before
    steps = search["steps"][:-1] if late and search["steps"] else search["steps"]
    left = find_clock_resting({**search, "steps": steps})
    assert find_clock_own_wish(left, search) == wish
    second = find_clock_begin({**DEFAULTS, "high_mhz": 2250}, BOX, CARD, find_clock_own_wish(left, search), "x")
    assert find_clock_own_wish(find_clock_resting(second), second) == wish


def test_what_somebody_set_since_is_the_boxs_own_wish():
    search = run(search_of({**LOCKED, "max_mhz": 2400}, high_mhz=2300), 2250, cut=3)
    since = {**LOCKED, "max_mhz": 1950}
    assert find_clock_own_wish(since, search) == since
    assert find_clock_own_wish(since, {**search, "finished": "2026-11-30T12:30:00Z"}) == since
    assert find_clock_own_wish(since, None) == since


def test_a_search_whose_place_another_takes_comes_to_its_end():
    box = {**BOX, "engines": [{"engine": "main", "model": "m", "image": "i", "profile": "p", "hash": "h"}]}
    for cut, state in ((0, "stopped"), (3, "stopped"), (None, "found")):
        search = {**run(search_of(), 2250, cut=cut), "box": box}
        ended = find_clock_given_up(search, "2026-11-30T12:30:00Z")
        assert (ended["state"], ended["finished"]) == (state, "2026-11-30T12:30:00Z")
        validate(ended, SCHEMA)
        assert not find_clock_resumable(ended, DEFAULTS, "box1")


GPU = {
    "supported_clocks": {"graphics_min_mhz": 210, "graphics_max_mhz": 3105, "graphics_step_mhz": 15},
    "power_min_limit_w": 150.0,
    "power_max_limit_w": 600.0,
}


def test_what_every_card_takes():
    other = {
        "supported_clocks": {**GPU["supported_clocks"], "graphics_max_mhz": 2850},
        "power_min_limit_w": 100,
        "power_max_limit_w": 450,
    }
    card = find_clock_card([GPU, other])
    assert card == {"min_mhz": 210, "max_mhz": 2850, "step_mhz": 15, "power_min_w": 150.0, "power_max_w": 450}
    assert "3000) is outside" in find_clock_problems({**DEFAULTS, "high_mhz": 3000}, card)[0]
    limits = {**DEFAULTS, "power_limits_w": [50, 200, 500]}
    assert [problem.split(",")[0] for problem in find_clock_problems(limits, card)] == [
        "find_clock_power_limits_w has 50",
        "find_clock_power_limits_w has 500",
    ]
    assert find_clock_problems(limits, find_clock_card([GPU, {**other, "power_min_limit_w": None}])) == []
    odd = {**other, "supported_clocks": {**GPU["supported_clocks"], "graphics_step_mhz": 7}}
    assert "different clocks" in find_clock_problems(DEFAULTS, find_clock_card([GPU, odd]))[0]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"low_mhz": 2600}, "find_clock_low_mhz (2600) is above find_clock_high_mhz (2520)"),
        ({"high_mhz": 4000}, "find_clock_high_mhz (4000) is outside"),
        ({"step_mhz": 20}, "find_clock_step_mhz (20) must be a multiple"),
        ({"low_mhz": 2101, "high_mhz": 2110}, "there is no clock of the cards"),
    ],
)
def test_settings_that_make_no_search(changes, says):
    assert any(says in problem for problem in find_clock_problems({**DEFAULTS, **changes}, CARD))


def test_good_settings_have_no_problems():
    assert find_clock_problems(DEFAULTS, CARD) == []


def test_the_text_marks_what_is_simulated_and_shows_each_step():
    search = run(search_of(), 2250)
    lines = find_clock_text(search)
    assert "simulated" in lines[0] and "simulated" in lines[-1]
    assert "gpu_clocks_max_mhz: 2205" in lines[-1]
    assert sum("2250 MHz" in line for line in lines) >= 2


@pytest.mark.parametrize("cut", [0, 1, 4, None])
def test_the_document_fits_its_schema_at_any_moment(cut):
    box = {**BOX, "engines": [{"engine": "main", "model": "m", "image": "i", "profile": "p", "hash": "h"}]}
    search = {**run(search_of(power_limits_w=[150, 200]), 2250, cut=cut), "box": box}
    validate(search, SCHEMA)


def test_a_step_keeps_what_the_run_measured():
    spread = {"min": 1, "median": 2, "max": 3}
    card = {"index": 0, "uuid": "GPU-0", "name": "n", "samples": 9, "events": {}, "above_lock": None}
    gpu = {**card, "sm_mhz": spread, "power_w": spread, "temperature_c": spread}
    result = {
        "started": "2026-11-30T12:00:01Z",
        "last_s": 180.2,
        "gpus": [gpu],
        "speeds": {"prefill_tok_s": 4300.0, "decode_tok_s": 60.8},
    }
    search = search_of()
    search = find_clock_record(search, find_clock_next(search), verdict("survived"), result)
    search["box"] = {**BOX, "engines": [{"engine": "main", "model": "m", "image": "i", "profile": None, "hash": "h"}]}
    validate(search, SCHEMA)
    assert "prefill 4300.0 tok/s, decode 60.8 tok/s" in "\n".join(find_clock_text(search))
