"""Several engines on one box: the list, the cards, the box's need."""

import json

import pytest
from vllm_engines import (  # plugins/filter/vllm_engines.py
    vllm_canary_failures,
    vllm_canary_line,
    vllm_canary_words,
    vllm_clients_notice,
    vllm_engine_box,
    vllm_engine_remarks,
    vllm_engines_findings,
    vllm_greatest_need,
    vllm_in_the_way,
    vllm_other_cards,
    vllm_uuids,
    vllm_what_changes,
)

MAIN = {"name": "main"}
LEFT, RIGHT = {"name": "left", "gpus": [0]}, {"name": "right", "gpus": [1], "port": 8001}
NVML = {"available": True, "gpus": [{"index": 0, "uuid": "GPU-a"}, {"index": 1, "uuid": "GPU-b"}]}


@pytest.mark.parametrize("engines", [[MAIN], [LEFT, RIGHT], [{"name": "a", "gpus": [0, 1], "port": 9000}]])
def test_lists_that_are_well(engines):
    assert vllm_engines_findings(engines, 8000, 2) == []


@pytest.mark.parametrize(
    ("engines", "words"),
    [
        ([], ["vllm_engines is empty", "main"]),
        ([{"name": "Big_One"}], ["'Big_One'", "a-z"]),
        ([{"name": "a-"}], ["'a-'"]),
        ([{"name": "cache"}], ["named cache", "another name"]),
        ([LEFT, {**RIGHT, "name": "left"}], ["2 engines named left"]),
        ([LEFT, {**RIGHT, "port": None}], ["left and right share port 8000"]),
        ([LEFT, {**RIGHT, "port": "8000"}], ["left and right share port 8000"]),
        ([LEFT, {**RIGHT, "gpus": [0, 1]}], ["left and right share card 0"]),
        ([LEFT, {"name": "right", "port": 8001}], ["engine right has no gpus", "[0]"]),
        ([{"name": "a", "gpus": [2]}], ["engine a wants card 2", "the box has 2", "0 to 1"]),
        ([{"name": "a", "gpus": ["GPU-a"]}], ["'GPU-a'", "indexes"]),
    ],
)
def test_what_is_wrong_is_said_once_with_the_way_out(engines, words):
    findings = vllm_engines_findings(engines, 8000, 2)
    assert len(findings) == 1, findings
    assert all(word in findings[0] for word in words)


def test_the_number_of_cards_counts_only_where_it_is_known():
    assert vllm_engines_findings([{"name": "a", "gpus": [7]}], 8000) == []


def test_an_engine_on_one_card_is_judged_for_one():
    box = {"cards": 2, "memory_mib": 24564, "gpus": [{"index": 0}, {"index": 1}]}
    assert vllm_engine_box(box, [1]) == {"cards": 1, "memory_mib": 24564, "gpus": [{"index": 1}]}
    assert vllm_engine_box({"cards": 2}, None) == {"cards": 2}
    assert vllm_engine_box(None, [1]) is None
    assert vllm_engine_box({"cards": None}, [1]) == {"cards": None}


def test_cards_by_index():
    assert vllm_uuids(NVML, None) == ["GPU-a", "GPU-b"]
    assert vllm_uuids(NVML, [1]) == vllm_uuids(NVML, ["1"]) == ["GPU-b"]
    assert len(vllm_uuids({"available": False, "gpus": []}, [0, 1])) == 2


@pytest.mark.parametrize(
    ("needs", "greatest"),
    [([], "nothing"), (["nothing", "start"], "start"), (["restart", "start", "nothing"], "restart")],
)
def test_the_box_needs_what_its_neediest_engine_needs(needs, greatest):
    assert vllm_greatest_need(needs) == greatest


def test_the_canary_asks_what_the_engine_can_do():
    assert vllm_canary_words({}, 0.5) == []
    # what is healthy is known of MTP alone
    assert vllm_canary_words({"speculative-config": {"method": "dflash", "num_speculative_tokens": 7}}, 0.5) == []
    assert vllm_canary_words({"spec-method": "qwen3_5_mtp", "spec-tokens": 2}, 0.5) == ["--min-acceptance=0.5"]
    args = {
        "enable-auto-tool-choice": True,
        "tool-call-parser": "qwen3_xml",
        "reasoning-parser": "qwen3",
        "kv-cache-dtype": "fp8",
        "speculative-config": {"method": "mtp"},
    }
    assert vllm_canary_words(args, 0.5) == ["--tools", "--reasoning", "--kv-cache-dtype=fp8", "--min-acceptance=0.5"]


def need(unit="vllm-main.service", need="restart", **more):
    return {"unit": unit, "need": need, "runs": "aa", "unverified": False, "cards": ["GPU-a"], "port": 8000, **more}


def test_one_engine_as_it_should_be_is_no_remark():
    assert vllm_engine_remarks([need()], {}, False) == []


def test_several_engines_are_told_apart_and_a_half_done_one_is_named():
    lines = vllm_engine_remarks([need(), need("vllm-b.service", "nothing", unverified=True)], {}, False)
    assert lines[0] == "vllm-main.service: restart"
    assert lines[1].startswith("vllm-b.service runs aa, which no run has seen to work yet")
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("container", "removes", "words"),
    [
        (
            {"running": True, "labels": {}, "active": True},
            False,
            ["vllm-old.service", "runs", "vllm_remove_engines=true"],
        ),
        (None, False, ["does not run", "left alone"]),
        (None, True, ["is stopped and removed"]),
    ],
)
def test_what_is_left_over_is_named(container, removes, words):
    (line,) = vllm_engine_remarks([need()], {"vllm-old": container}, removes)
    assert all(word in line for word in words)


@pytest.mark.parametrize(
    ("labels", "holds"),
    [
        ({"tandem.cards": "GPU-a,GPU-b", "tandem.port": "8000"}, "card GPU-a and port 8000"),
        ({"tandem.cards": "GPU-b", "tandem.port": "8000"}, "port 8000"),
        ({}, "card GPU-a"),
        ({"tandem.cards": "GPU-b", "tandem.port": "8001"}, None),
    ],
)
def test_what_is_left_over_may_stand_in_the_way(labels, holds):
    left = {"vllm-old": {"running": True, "labels": labels, "active": True}}
    said = vllm_in_the_way([need()], left)
    assert [f"holds {holds}, which vllm-main.service" in line for line in said] == ([True] if holds else [])


def test_nothing_stands_in_the_way_of_an_engine_that_stays_or_when_it_does_not_run():
    left = {"vllm-old": {"running": True, "labels": {}, "active": True}}
    assert vllm_in_the_way([need(need="nothing")], left) == []
    assert vllm_in_the_way([need()], {"vllm-old": {**left["vllm-old"], "running": False}, "vllm-x": None}) == []


ABOUT = {"image": "vllm:v1", "arguments": ["/models", "--max-num-seqs=16", "--flag", "--gone=1", "--same=2"]}


@pytest.mark.parametrize(
    ("about", "image", "options", "changes"),
    [
        (
            ABOUT,
            "vllm:v1",
            ["--max-num-seqs=16", "--flag", "--gone=1", "--same=2"],
            ["its key, environment, weights, shared memory or list of cards"],
        ),
        (ABOUT, "vllm:v2", ["--max-num-seqs=16", "--flag", "--gone=1", "--same=2"], ["image vllm:v1 -> vllm:v2"]),
        (
            ABOUT,
            "vllm:v1",
            ["--same=2", "--max-num-seqs=8", "--new=3"],
            ["max-num-seqs 16 -> 8", "flag on -> not set", "gone 1 -> not set", "new not set -> 3"],
        ),
        (None, "vllm:v1", [], ["runs a configuration of which no run kept the options"]),
    ],
)
def test_what_a_restart_is_for(about, image, options, changes):
    assert vllm_what_changes(about, image, ["/models", *options]) == changes


@pytest.mark.parametrize(
    ("label", "uuids", "available", "other"),
    [
        ("GPU-a,GPU-b", ["GPU-a", "GPU-b"], True, False),
        # the same cards, counted in another order
        ("GPU-a,GPU-b", ["GPU-b", "GPU-a"], True, False),
        # engine 0 and engine 1 of a box of which two cards have changed slots
        ("GPU-a", ["GPU-b"], True, True),
        ("GPU-a,GPU-b", ["GPU-a", "GPU-c"], True, True),
        ("GPU-a,GPU-b", ["GPU-a"], True, True),
        # a container of before the label, and a driver that says nothing
        ("", ["GPU-a"], True, False),
        (None, ["GPU-a"], True, False),
        ("GPU-a", ["GPU-all-known-once-the-driver-runs"], False, False),
    ],
)
def test_f21_other_cards_than_the_unit_names(label, uuids, available, other):
    assert vllm_other_cards(label, uuids, available) is other


def test_f21_the_plan_says_which_cards():
    command = ABOUT["arguments"]
    changes = vllm_what_changes(ABOUT, "vllm:v1", command, ["GPU-a,GPU-b", ["GPU-b", "GPU-c"]])
    assert changes == ["cards GPU-a -> GPU-c (changed slots, or were replaced)"]
    assert vllm_what_changes(ABOUT, "vllm:v2", command, ["GPU-a", ["GPU-c"]])[1:] == ["image vllm:v1 -> vllm:v2"]
    assert vllm_what_changes(None, "vllm:v1", command, ["GPU-a", ["GPU-a", "GPU-c"]]) == [
        "cards none -> GPU-c (changed slots, or were replaced)"
    ]


LABELS = {"tandem.port": "8000", "tandem.models": "old,older"}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, None),
        ({"labels": {}, "port": 8001, "models": ["new"]}, None),
        ({"need": "nothing", "other_key": True}, None),
        ({"need": "start", "port": 8001}, None),
        ({"models": ["new", "older"]}, None),
        ({"other_key": True}, "serves with another key than vllm_api_key"),
        ({"port": 8001}, "serves on port 8000, vllm_port is 8001"),
        ({"models": ["new"]}, "serves the model as old and older, wanted is new"),
    ],
)
def test_what_clients_of_a_gateway_would_notice(more, words):
    sentences = vllm_clients_notice(
        [need(**{"other_key": False, "models": ["old"], "labels": LABELS, **more})], {}, True
    )
    assert [words in sentence for sentence in sentences] == ([True] if words else [])


def test_an_engine_that_is_removed_is_not_drained():
    left = {"vllm-old": {"running": True, "labels": {}, "active": True}, "vllm-x": None}
    (sentence,) = vllm_clients_notice([], left, True)
    assert sentence.startswith("vllm-old.service serves and is to be removed")
    assert vllm_clients_notice([], left, False) == []


def test_what_the_canary_says():
    checks = [
        {"name": "integrity", "outcome": "fail", "says": "other answer"},
        {"name": "tools", "outcome": "skipped", "says": "not asked for"},
        {"name": "text", "outcome": "pass", "says": "well"},
    ]
    text = json.dumps({"ok": False, "checks": checks})
    assert vllm_canary_failures(text) == "integrity: other answer"
    assert vllm_canary_line(text) == "integrity fail, tools skipped (not asked for), text pass"
    assert vllm_canary_failures("no route to host") == "no route to host"
    assert vllm_canary_failures("") == "it said nothing"


@pytest.mark.parametrize("starts", [None, {"failed": 0, "since": 1796000000}, {"failed": 1, "since": 1796000000}])
def test_one_failed_start_is_no_loop(starts):
    need = {"unit": "vllm-main.service", "need": "start", "runs": "", "unverified": False, "starts": starts}
    assert vllm_engine_remarks([need], {}, False) == []


def test_a_loop_of_failed_starts_is_told_with_its_beginning():
    starts = {"failed": 7, "since": 1796000000}
    need = {"unit": "vllm-main.service", "need": "start", "runs": "", "unverified": False, "starts": starts}
    (told,) = vllm_engine_remarks([need], {}, False)
    assert told.startswith("vllm-main.service: 7 starts in a row have failed, the first at 2026-11-30 00:53:20 UTC")
    assert "journalctl -u vllm-main" in told
