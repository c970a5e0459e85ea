"""Filter bench_verdict: by table, and by simulation of false alarms and misses."""

import random

import pytest
from bench_results import a_recipe, case, gpu, result
from bench_verdict import bench_verdict

EXPECTS = {
    "decode_tok_s": {"value": 67.6, "source": "field report"},
    "prefill_tok_s": {"value": 5016, "source": "field report"},
    "acceptance": {"value": 0.849, "source": "field report"},
}


def outcome(before, after, **over):
    return bench_verdict(result(before) if before else None, result(after, **over), EXPECTS)["outcome"]


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        ([60, 61, 62], [60, 61, 62], "pass"),
        ([60, 61, 62], [70, 71, 72], "pass"),
        # -7 % and -9 %, without noise
        ([60, 60, 60], [55.8, 55.8, 55.8], "pass"),
        ([60, 60, 60], [54.6, 54.6, 54.6], "fail"),
        # prompts that differ by half in speed are no noise: each is compared with itself
        ([50, 60, 75], [50, 60, 75], "pass"),
        ([50, 60, 75], [42, 50.4, 63], "fail"),
        # one bad run of three does not count
        ([60, 60, 60], [60, 30, 60], "inconclusive"),
        # noise of 3 % widens the tolerance to 13 %
        ([60, 60, 60], [54, 52, 56.5], "pass"),
        # much noise, but halved is halved
        ([60, 60, 60], [24, 28, 33], "fail"),
        # the field report's bf16 KV cache, by one run
        ([67.6], [31.7], "fail"),
        ([67.6], [56], "pass"),
        ([67.6, 67.6], [53, 53], "fail"),
    ],
)
def test_against_the_baseline(before, after, wanted):
    assert outcome(before, after) == wanted


def test_a_quick_run_is_compared_with_the_baseline_s_run_of_the_same_prompts():
    verdict = bench_verdict(result([50, 60, 75]), result([50]))
    assert verdict["figures"]["decode_chat"]["before"] == 50
    assert verdict["outcome"] == "pass"
    assert verdict["figures"]["decode_chat"]["pairs"] == 1


def test_both_figures_are_told():
    verdict = bench_verdict(result([67.6, 67.6, 67.6]), result([31.7, 31.7, 31.7]))
    assert verdict["outcome"] == "fail"
    assert verdict["reason"] == "decode_chat: 31.7 tok/s, before 67.6 (-53.1%; allowed is -8% of 3 runs)"


@pytest.mark.parametrize(
    ("value", "wanted"), [(67.6, "pass"), (51, "pass"), (50, "fail"), (31.7, "fail"), (400, "pass")]
)
def test_without_a_baseline_the_expectation_is_the_measure(value, wanted):
    verdict = bench_verdict(None, result([value]), EXPECTS)
    assert verdict["outcome"] == wanted
    assert "no baseline, expected 67.6" in verdict["reason"] and "field report" in verdict["reason"]


def test_with_a_baseline_the_expectation_does_not_decide():
    verdict = bench_verdict(result([40, 40, 40]), result([40, 40, 40]), EXPECTS)
    assert verdict["outcome"] == "pass"
    assert verdict["figures"]["decode_chat"]["expected"] == 67.6


def test_neither_baseline_nor_expectation():
    verdict = bench_verdict(None, result([40]), None)
    assert verdict["outcome"] == "inconclusive"
    assert verdict["figures"]["decode_chat"]["against"] == "nothing"


@pytest.mark.parametrize(
    ("spoilt", "says"),
    [
        ({"failed": 1, "completed": 3}, "3 of 4 requests succeeded, 1 failed"),
        ({"completed": 3}, "3 of 4 requests succeeded"),
        ({"aborted": 2}, "aborted 2 requests"),
        ({"output_tokens": 90}, "too few tokens: 90 of 512"),
        ({"output_tokens": 400}, "too few tokens: 400 of 512"),
        ({"other_requests": 1, "other_tokens": 300}, "other load on the engine: 1 other requests ended meanwhile"),
        ({"other_tokens": 300}, "300 tokens were not the measurement's"),
        ({"most_in_flight": 3}, "3 requests were in flight at once where it had 1"),
        ({"nvml": "the driver is gone"}, "could not be watched: the driver is gone"),
        ({"gpus": [gpu(1, events={"hw_thermal": 0.5})]}, "GPU 1 was throttled: hw_thermal in 50% of the samples"),
        ({"gpus": [gpu(sm_mhz={"min": 2100, "median": 2100, "max": 2520})]}, "GPU 0 ran at 2520 MHz, above its lock"),
        ({"gpus": [gpu(sm_mhz={"min": 1200, "median": 1500, "max": 2100})]}, "GPU 0 ran at 1500 MHz, below its lock"),
    ],
)
def test_inconclusive_with_the_reason(spoilt, says):
    verdict = bench_verdict(result([60, 60, 60]), result([20, 20, 20], **spoilt), EXPECTS)
    assert verdict["outcome"] == "inconclusive"
    assert says in verdict["reason"]


@pytest.mark.parametrize(
    "harmless",
    [
        {"gpus": [gpu(events={"hw_thermal": 0.05})]},
        {"gpus": [gpu(events={"sw_power_cap": 1.0})]},
        {"gpus": [gpu(sm_mhz={"min": 2085, "median": 2100, "max": 2115})]},
        # an idle card's clock says nothing
        {"gpus": [gpu(sm_mhz={"min": 210, "median": 210, "max": 210}, utilization={"min": 0, "median": 0, "max": 0})]},
        {"prefix_cache_hit_rate": 0.9},
        # a gateway's checks of one token each
        {"other_requests": 10, "other_tokens": 200, "most_in_flight": 2},
    ],
)
def test_what_does_not_matter(harmless):
    assert outcome([60, 60, 60], [60, 60, 60], **harmless) == "pass"


def test_without_a_lock_the_clock_is_not_judged():
    fast = [gpu(sm_mhz={"min": 2700, "median": 2745, "max": 2760})]
    assert bench_verdict(result([60]), result([60], lock_mhz=None, gpus=fast))["outcome"] == "pass"


def test_acceptance_has_a_floor():
    verdict = bench_verdict(result([60, 60, 60]), result([60, 60, 60], acceptance=0.1), EXPECTS)
    assert verdict["outcome"] == "fail"
    assert "10% of the drafted tokens were accepted, 51% is the least" in verdict["reason"]
    assert bench_verdict(result([60]), result([60], acceptance=0.605), EXPECTS)["outcome"] == "pass"
    assert bench_verdict(result([60]), result([60], acceptance=0.1), None)["outcome"] == "pass"


def test_prefill_out_of_the_cache_says_nothing():
    prefill = a_recipe(figure="prefill_tok_s", input_tokens=100, output_tokens=1)
    cached = case([9000], expects="prefill_tok_s", recipe=prefill, prefix_cache_hit_rate=0.9, output_tokens=4)
    verdict = bench_verdict(None, {"lock_mhz": 2100, "cases": {"prefill": cached}}, EXPECTS)
    assert "90% of the prompts came out of the prefix cache" in verdict["reason"]
    short = case([5000], expects="prefill_tok_s", recipe=prefill, input_tokens=200, output_tokens=4)
    assert "200 of 400 went in" in bench_verdict(None, {"cases": {"prefill": short}}, EXPECTS)["reason"]


def test_with_another_recipe_or_other_prompts_there_is_no_baseline():
    other_recipe = result([60, 60, 60], recipe=a_recipe(output_tokens=64))
    other_prompts = result([60])
    other_prompts["cases"]["decode_chat"]["runs"][0]["seed"] = 7
    for before in (other_recipe, other_prompts):
        verdict = bench_verdict(before, result([64]), EXPECTS)
        assert verdict["outcome"] == "pass"
        assert "its baseline was measured in another way, expected 67.6" in verdict["reason"]
        assert verdict["figures"]["decode_chat"]["against"] == "expectation"
        assert bench_verdict(before, result([64]))["outcome"] == "inconclusive"


def test_one_failed_case_fails_the_whole():
    def of(*names_and_values):
        return {"lock_mhz": 2100, "cases": {name: case(values) for name, values in names_and_values}}

    before = of(("a", [60, 60, 60]), ("b", [60, 60, 60]), ("c", [60, 60, 60]))
    after = of(("a", [60, 60, 60]), ("b", [30, 30, 30]), ("c", [60, 30, 60]))
    verdict = bench_verdict(before, after)
    assert verdict["outcome"] == "fail" and verdict["reason"].startswith("b: ")
    assert [verdict["figures"][name]["outcome"] for name in "abc"] == ["pass", "fail", "inconclusive"]


def test_a_case_with_nothing_to_compare_with_does_not_count_beside_others():
    after = result([60])
    after["cases"]["decode_code"] = case([80], expects=None)
    verdict = bench_verdict(None, after, EXPECTS)
    assert verdict["outcome"] == "pass"
    assert verdict["figures"]["decode_code"]["outcome"] == "inconclusive"


def test_a_skipped_case_is_left_out():
    after = result([60])
    after["cases"]["prefill_32k"] = {"skipped": "max-model-len is 16384"}
    assert list(bench_verdict(result([60]), after)["figures"]) == ["decode_chat"]
    assert bench_verdict(None, {"cases": {"a": {"skipped": "x"}}})["outcome"] == "inconclusive"


def shares(change, noise, runs, times=4000):
    """How often each outcome comes, for engines whose speed changes by `change`, and runs that differ by `noise`."""
    chance = random.Random(f"{change} {noise} {runs}")
    counts = dict.fromkeys(("pass", "fail", "inconclusive"), 0)
    for _ in range(times):
        speeds = [chance.uniform(50, 80) for _ in range(runs)]
        before = [speed * chance.gauss(1, noise) for speed in speeds]
        after = [speed * (1 + change) * chance.gauss(1, noise) for speed in speeds]
        counts[bench_verdict(result(before), result(after))["outcome"]] += 1
    return {name: count / times for name, count in counts.items()}


@pytest.mark.parametrize("noise", [0.005, 0.01, 0.02])
def test_next_to_no_false_alarms(noise):
    assert shares(0, noise, 3)["fail"] <= 0.001


@pytest.mark.parametrize("noise", [0.005, 0.01, 0.02])
def test_a_fifth_lost_is_caught(noise):
    assert shares(-0.2, noise, 3)["pass"] <= 0.001


def test_noise_makes_it_inconclusive_and_not_wrong():
    unchanged, lost = shares(0, 0.06, 3), shares(-0.2, 0.06, 3)
    assert unchanged["fail"] < 0.05
    assert lost["inconclusive"] > 0.4 and lost["pass"] < 0.15


@pytest.mark.parametrize("noise", [0.01, 0.03])
def test_one_run_is_enough_for_halved(noise):
    assert shares(-0.5, noise, 1)["fail"] == 1
    assert shares(0, noise, 1)["fail"] == 0
