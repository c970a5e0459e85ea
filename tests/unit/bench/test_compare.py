"""Filters of playbooks/compare.yml: the candidate as engines, rounds as one result, what a reader is told."""

import random

import pytest
from bench_results import case, gpu, result
from bench_verdict import bench_verdict
from compare import compare_engines, compare_findings, compare_lines, compare_pool, compare_settings

IMAGE = {"vllm_image": "vllm/vllm-openai:v0.33.0"}


@pytest.mark.parametrize(
    ("candidate", "says"),
    [
        (None, "candidate must be a dict"),
        ({}, "candidate must be a dict"),
        ("vllm_image=x", "candidate must be a dict"),
        ({"vllm_imgae": "x"}, "did you mean vllm_image?"),
        ({"gpu_clocks_max_mhz": 2400}, "it may have vllm_profile, vllm_image,"),
        ({"vllm_port": 8001}, "vllm_port, which is nothing that can be tried"),
        ({"vllm_args": "--max-num-seqs=8"}, "it must be a dict, as in the inventory"),
        ({"vllm_image": ""}, "it must be a text"),
        ({"vllm_profile": ["a"]}, "it must be a text"),
    ],
)
def test_what_is_no_candidate_is_named(candidate, says):
    assert says in " ".join(compare_findings(candidate))


@pytest.mark.parametrize(
    "candidate", [IMAGE, {"vllm_args": {"max-num-seqs": 8, "enable-prefix-caching": None}}, {"vllm_profile": "a"}]
)
def test_what_is_one_passes(candidate):
    assert compare_findings(candidate) == []


def test_a_candidate_is_laid_over_its_engine_alone_and_by_key():
    engines = [{"name": "main", "args": {"a": 1, "b": 2}, "port": 8001}, {"name": "other"}]
    made = compare_engines(engines, "main", {"vllm_args": {"b": None, "c": 3}, "vllm_env": {"X": "1"}})
    assert made == [
        {"name": "main", "args": {"a": 1, "b": None, "c": 3}, "env": {"X": "1"}, "port": 8001},
        {"name": "other"},
    ]
    assert engines[0]["args"] == {"a": 1, "b": 2}


def test_a_report_has_the_names_of_the_environment_alone():
    told = compare_settings({**IMAGE, "vllm_env": {"HF_TOKEN": "hf_1", "A": "2"}})
    assert told == {**IMAGE, "vllm_env": ["A", "HF_TOKEN"]}
    assert compare_settings(IMAGE) == IMAGE


def test_a_digest_goes_with_its_image():
    pinned = [{"name": "main", "image": "a:1", "image_digest": "sha256:1"}]
    assert compare_engines(pinned, "main", IMAGE) == [{"name": "main", "image": IMAGE["vllm_image"]}]
    both = {**IMAGE, "vllm_image_digest": "sha256:2"}
    assert compare_engines(pinned, "main", both)[0]["image_digest"] == "sha256:2"
    assert compare_engines(pinned, "main", {"vllm_args": {}})[0]["image_digest"] == "sha256:1"


def measured(values, config="a"):
    made = result(values)
    for run in made["cases"]["decode_chat"]["runs"]:
        run["acceptance"] = None
    about = {"hash": config, "image": "i:1", "vllm_version": "0.32.0"}
    return {**made, "about": about, "seconds": 10.04, "profile": "p", "at": f"at {values[0]}"}


def test_rounds_become_one_result_whose_pairs_stay_within_a_round():
    pooled = compare_pool([measured([60, 70, 50]), measured([62, 72, 52])])
    told = pooled["cases"]["decode_chat"]
    assert [run["seed"] for run in told["runs"]] == [0, 1, 2, 100, 101, 102]
    assert told["value"] == 61
    assert (pooled["seconds"], pooled["at"]) == (20.1, "at 62")
    # a box that grows warmer, and slower, in each round alike: no difference between the two
    first, second = [60, 70, 50], [54, 63, 45]
    verdict = bench_verdict(
        compare_pool([measured(first), measured(second)]), compare_pool([measured(first), measured(second)])
    )
    assert verdict["figures"]["decode_chat"]["pairs"] == 6
    assert verdict["figures"]["decode_chat"]["change"] == 0


def test_rounds_of_different_configurations_are_no_result():
    with pytest.raises(ValueError, match="different configurations: a, b"):
        compare_pool([measured([60]), measured([60], config="b")])


def test_acceptance_and_skipped_cases_are_pooled_too():
    rounds = [measured([60, 61]), measured([60, 61])]
    for share, run in zip(
        (0.7, 0.8, 0.9, None), [run for one in rounds for run in one["cases"]["decode_chat"]["runs"]], strict=True
    ):
        run["acceptance"] = share
    assert compare_pool(rounds)["cases"]["decode_chat"]["acceptance"] == 0.8
    skipped = measured([60])
    skipped["cases"]["prefill_32k"] = {"skipped": "too long"}
    assert compare_pool([skipped, skipped])["cases"]["prefill_32k"] == {"skipped": "too long"}


@pytest.mark.parametrize(
    ("before", "says"),
    [
        ({"most_in_flight": 5}, "before the change, other load"),
        ({"failed": 1}, "before the change, 4 of 4 requests succeeded, 1 failed"),
        (
            {"gpus": [gpu(sm_mhz={"min": 2000, "median": 2200, "max": 2400})]},
            "before the change, GPU 0 ran at 2400 MHz",
        ),
    ],
)
def test_a_current_side_that_says_nothing_makes_it_inconclusive(before, says):
    current, candidate = result([60, 60, 60], **before), result([60, 60, 60])
    verdict = bench_verdict(current, candidate, judge_before=True)
    assert verdict["outcome"] == "inconclusive"
    assert says in verdict["reason"]
    # a baseline holds sound runs only
    assert bench_verdict(current, candidate)["outcome"] == "pass"


def test_two_rounds_find_a_fall_and_no_false_one():
    """Runs that differ by 2 %, two rounds of three: by simulation, as of the verdict."""
    chance = random.Random(7)

    def rounds(speed):
        return compare_pool([measured([speed * chance.gauss(1, 0.02) for _ in range(3)]) for _ in range(2)])

    outcomes = [bench_verdict(rounds(60), rounds(60), judge_before=True)["outcome"] for _ in range(2000)]
    assert outcomes.count("fail") <= 2
    outcomes = [bench_verdict(rounds(60), rounds(48), judge_before=True)["outcome"] for _ in range(2000)]
    assert outcomes.count("pass") <= 2


def test_lines_show_both_as_bars_and_the_verdict():
    current, candidate = compare_pool([measured([60])]), compare_pool([measured([30], config="b")])
    candidate["cases"]["prefill_32k"] = {"skipped": "it needs 32769 tokens"}
    current["cases"]["prefill_32k"] = case([5000])
    verdict = bench_verdict(current, candidate, judge_before=True)
    lines = compare_lines(
        {
            "box": "box1",
            "engine": "main",
            "rounds": 1,
            "simulated": True,
            "current": {"result": current},
            "candidate": {"result": candidate},
            "verdict": verdict,
        }
    )
    assert lines[0] == "box1 main: current against candidate, 1 round, in turns; simulated figures"
    assert lines[3] == "  decode_chat: fail -50.0%"
    assert lines[4].count("#") == 30 and "60.0 tok/s" in lines[4]
    assert lines[5].count("#") == 15 and "30.0 tok/s" in lines[5]
    assert "skipped, it needs 32769 tokens" in lines[6]
    assert lines[-1].startswith("  fail: decode_chat: 30.0 tok/s, before 60.0")
