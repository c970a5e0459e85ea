"""Filter bench_verdict: by table, and by simulation of false alarms and misses."""

import random

import pytest
from bench_results import a_recipe, case, gpu, result
from bench_verdict import bench_expects, bench_verdict

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


def test_speed_does_not_sink_from_change_to_change():
    """One change after another loses 19 %, which a single run may."""
    speeds = [67.6, 54.8, 44.4, 36.0]
    outcomes = [
        outcome([before], [after]) if number else outcome(None, [before])
        for number, (before, after) in enumerate(zip([speeds[0], *speeds], speeds, strict=False))
    ]
    assert outcomes[:2] == ["pass", "pass"]
    verdict = bench_verdict(result([54.8]), result([44.4]), EXPECTS)
    assert verdict["outcome"] == "inconclusive"
    assert "44.4 tok/s, before 54.8" in verdict["reason"]
    assert "less than 75% of what is expected, 67.6 (field report)" in verdict["reason"]


def test_a_slow_box_whose_owner_took_it_for_a_baseline_can_change():
    slow, same = result([40, 40, 40]), result([40, 40, 40])
    assert bench_verdict({**slow, "profile": "a"}, {**same, "profile": "a"}, EXPECTS)["outcome"] == "pass"
    # the owner's word was about another profile, with another expectation
    assert bench_verdict({**slow, "profile": "b"}, {**same, "profile": "a"}, EXPECTS)["outcome"] == "inconclusive"


def test_a_comparison_only_tells_the_expectation():
    verdict = bench_verdict(result([54, 54, 54]), result([50, 50, 50]), EXPECTS, judge_before=True)
    assert verdict["outcome"] == "pass"
    assert verdict["figures"]["decode_chat"]["expected"] == 67.6


CHANGED_CLOCKS = [
    ({"lock_mhz": 2520}, {"lock_mhz": 2100}, "with a lock of 2520 MHz, this with a lock of 2100 MHz"),
    ({"lock_mhz": None}, {"lock_mhz": 2100}, "with unlocked cards, this with a lock of 2100 MHz"),
    ({}, {"about": {"clocks": {"power_limit_w": 200}}}, "this with a lock of 2100 MHz and 200 W"),
]


@pytest.mark.parametrize(("then", "now", "says"), CHANGED_CLOCKS)
def test_a_baseline_with_other_clocks_is_none(then, now, says):
    faster = [gpu(sm_mhz={"min": 2085, "median": 2100, "max": 2100})]
    before, after = {**result([67, 67, 67]), **then}, {**result([60, 60, 60], gpus=faster), **now}
    verdict = bench_verdict(before, after, EXPECTS)
    assert (verdict["outcome"], verdict["figures"]["decode_chat"]["against"]) == ("pass", "expectation")
    assert says in verdict["reason"]
    assert bench_verdict(before, after)["figures"]["decode_chat"]["against"] == "nothing"
    # beside each other they were to have the same
    compared = bench_verdict(before, after, EXPECTS, judge_before=True)
    assert compared["outcome"] == "inconclusive" and says in compared["reason"]


def test_a_power_limit_that_somebody_chose_is_told_and_is_no_fault():
    held = [gpu(sm_mhz={"min": 1700, "median": 1785, "max": 2100}, events={"sw_power_cap": 0.9})]
    chosen = {"about": {"clocks": {"power_limit_w": 150}}}
    verdict = bench_verdict({**result([60]), **chosen}, {**result([58], gpus=held), **chosen}, EXPECTS)
    assert verdict["outcome"] == "pass"
    assert "the chosen power limit of 150 W held a card at 1785 MHz" in verdict["reason"]
    for not_chosen in (
        {},
        {"about": {"clocks": {"power_limit_w": None}}},
        {"about": {"clocks": {"power_limit_w": "default"}}},
    ):
        verdict = bench_verdict(result([60]), {**result([58], gpus=held), **not_chosen}, EXPECTS)
        assert "GPU 0 ran at 1785 MHz, below its lock" in verdict["reason"]
    # below the lock for another reason
    slow = [gpu(sm_mhz={"min": 1700, "median": 1785, "max": 2100})]
    verdict = bench_verdict({**result([60]), **chosen}, {**result([58], gpus=slow), **chosen}, EXPECTS)
    assert verdict["outcome"] == "inconclusive"


def test_an_expectation_of_nothing_is_none():
    unknown = {"decode_tok_s": {"value": None, "source": "not measured"}}
    verdict = bench_verdict(None, result([40]), unknown)
    assert verdict["figures"]["decode_chat"]["against"] == "nothing"
    assert bench_verdict(result([40]), result([40]), unknown)["outcome"] == "pass"


def test_a_profile_of_one_s_own_may_have_no_sources():
    own = {"decode_tok_s": {"value": 60}, "acceptance": {"value": 0.8}}
    assert "of no source" in bench_verdict(None, result([60]), own)["reason"]
    assert bench_verdict(None, result([60], acceptance=0.1), own)["outcome"] == "fail"


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
    before, after = result([60], lock_mhz=None, gpus=fast), result([60], lock_mhz=None, gpus=fast)
    assert bench_verdict(before, after)["outcome"] == "pass"


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
    assert shares(-0.3, noise, 1)["pass"] < 0.01
    assert shares(0, noise, 1)["fail"] == 0


@pytest.mark.parametrize(
    ("words", "same"),
    [
        (['--speculative-config={"method":"mtp","num_speculative_tokens":2}', "--max-num-seqs=8"], True),
        (['--speculative-config={"num_speculative_tokens": 2, "method": "mtp"}'], True),
        ([], True),
        (['--speculative-config={"method":"dflash","num_speculative_tokens":7}'], False),
        (['--speculative-config={"method":"mtp","num_speculative_tokens":4}'], False),
        (["--spec-method=dflash", "--spec-tokens=7"], False),
        (["--max-num-seqs=8"], False),
        (["--speculative-config=?"], False),
    ],
)
def test_the_acceptance_that_a_profile_expects_is_that_of_its_own_speculation(words, same):
    profile = {"args": {"speculative-config": {"method": "mtp", "num_speculative_tokens": 2}}, "expects": EXPECTS}
    expects = bench_expects(profile, {"arguments": ["/models", *words] if words else []})
    assert ("acceptance" in expects) is same
    assert {"decode_tok_s", "prefill_tok_s"} <= set(expects)
    assert bench_expects({"expects": None}, {"arguments": None}) == {}
