# SPDX-License-Identifier: Apache-2.0
"""Filter bench_verdict: is an engine as fast as it was, or as it should be? Pure.

Statistics. Each run of a case has its own seed, and so its own prompts; how fast a run is depends on them (speculative
decoding gains more on some texts than on others). So runs are paired by seed: ratio = after / before of the same
prompts, and the median of the ratios is what is judged. Two runs of one engine differ by a relative standard deviation
s, so one ratio has s * sqrt(2), the median of three 0.67 of that: about 0.95 s. s is estimated from the ratios' spread.

- From three pairs on: a fall of more than max(8 %, 4 s) fails. With s up to 2 % an unchanged engine fails in fewer than
  1 of 1,000 comparisons, and one that lost 20 % passes in fewer than 1 of 1,000 (tests/unit/bench simulates both).
- Fewer pairs tell nothing about s: only a fall of more than 20 % fails. That is enough for "halved", the field report's
  bf16 KV cache, and takes a third of the time.
- Where 4 s is more than 16 %, runs differ too much to tell anything but a greater fall: inconclusive.

Without a baseline the profile's expectation is the measure, at 75 %: the report's own lock costs it 10 to 15 %, and its
logs go from 58 to 86 tok/s around a mean of 67.6. With a baseline the expectation is only told.
"""

from __future__ import annotations

import math
import statistics

#: Allowed fall of the median of three or more pairs, and the most that noise may widen it to.
FALL, NOISE = 0.08, 0.16
#: Allowed fall where fewer pairs say nothing about noise.
FALL_UNKNOWN_NOISE = 0.20
#: Share of a profile's expectation that is enough without a baseline; and of its acceptance, always (0.849 -> 0.51).
OF_EXPECTED, OF_ACCEPTANCE = 0.75, 0.6
#: A decode run of fewer tokens is over before it says anything.
FEWEST_TOKENS = 100
#: Share of samples with a slowdown that is no coincidence, and the share of the locked clock that a busy card keeps.
THROTTLED, AT_LOCK = 0.1, 0.95
#: NVML's event reasons that slow a card down against its will. A power cap shows as a clock below the lock.
SLOWDOWNS = ("hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake")
CLOCK_STEP_MHZ = 15
#: A health check's tokens, in and out; a request of more is load.
CHECK_TOKENS = 64


def bench_verdict(before, after, expects=None, judge_before=False):
    """{outcome: pass|fail|inconclusive, reason: sentence, figures: {case: {...}}} of the result `after`.

    before   the baseline, a result as well (roles/bench/files/bench.schema.json, `result`), or None
    after    the result to judge
    expects  the profile's: {decode_tok_s: {value, source}, prefill_tok_s: ..., acceptance: ...}, or None
    judge_before  whether a run of `before` that says nothing makes its case inconclusive. A baseline was judged when it
                  was stored; a comparison measures both sides

    figures: per case `unit`, `against` (baseline, expectation or nothing), `before`, `after`, `change` (relative, of
    the pairs), `tolerance`, `pairs`, `expected`, `source`, `outcome` and `reason`; None where there is nothing. A
    failed case fails the whole, else an inconclusive one makes it inconclusive; those with nothing to compare with
    count only where there is no other.
    """
    figures = {
        name: _case(
            name,
            ((before or {}).get("cases") or {}).get(name),
            case,
            expects or {},
            after.get("lock_mhz"),
            (before or {}).get("lock_mhz") if judge_before else False,
        )
        for name, case in after["cases"].items()
        if "skipped" not in case
    }
    judged = {name: figure for name, figure in figures.items() if figure["against"] != "nothing"} or figures
    for outcome in ("fail", "inconclusive", "pass"):
        reasons = [f"{name}: {figure['reason']}" for name, figure in judged.items() if figure["outcome"] == outcome]
        if reasons:
            return {"outcome": outcome, "reason": "; ".join(reasons), "figures": figures}
    return {"outcome": "inconclusive", "reason": "nothing was measured", "figures": {}}


def run_problems(run, recipe, lock_mhz):
    """Why a run says nothing about the engine's speed, as sentences; empty where it does."""
    problems = []
    if run["failed"] or run["completed"] < recipe["requests"]:
        problems.append(f"{run['completed']} of {recipe['requests']} requests succeeded, {run['failed']} failed")
    if run["aborted"]:
        problems.append(f"the engine aborted {run['aborted']} requests")
    problems += _prefill_problems(run, recipe) if recipe["figure"] == "prefill_tok_s" else _output_problems(run, recipe)
    # A gateway's check asks for one token now and then, also of a drained engine.
    checks = run["other_tokens"] <= CHECK_TOKENS * max(1, run["other_requests"])
    if not checks or run["most_in_flight"] > recipe["concurrency"] + 1:
        problems.append(
            f"other load on the engine: {run['other_requests']} other requests ended meanwhile, {run['other_tokens']} "
            f"tokens were not the measurement's, {run['most_in_flight']} requests were in flight at once where it had "
            f"{recipe['concurrency']}"
        )
    return problems + _clock_problems(run, lock_mhz)


def _output_problems(run, recipe):
    wanted = recipe["requests"] * recipe["output_tokens"]
    if run["output_tokens"] >= max(0.9 * wanted, FEWEST_TOKENS):
        return []
    return [f"too few tokens: {run['output_tokens']} of {wanted}, needed are {FEWEST_TOKENS} at least"]


def _prefill_problems(run, recipe):
    problems = []
    wanted = recipe["requests"] * recipe["input_tokens"]
    if run["input_tokens"] < 0.9 * wanted:
        problems.append(f"too few tokens: {run['input_tokens']} of {wanted} went in")
    hits = run["prefix_cache_hit_rate"]
    if hits is not None and hits > 0.05:
        problems.append(f"{hits:.0%} of the prompts came out of the prefix cache")
    return problems


def _clock_problems(run, lock_mhz):
    if run["nvml"]:
        return [f"the clocks could not be watched: {run['nvml']}"]
    problems = []
    for gpu in run["gpus"]:
        name = f"GPU {gpu['index']}"
        slowed = {reason: gpu["events"].get(reason, 0) for reason in SLOWDOWNS}
        slowed = {reason: share for reason, share in slowed.items() if share >= THROTTLED}
        if slowed:
            says = ", ".join(f"{reason} in {share:.0%} of the samples" for reason, share in slowed.items())
            problems.append(f"{name} was throttled: {says}, up to {gpu['temperature_c']['max']:g} C")
        if lock_mhz is None:
            continue
        if gpu["sm_mhz"]["max"] > lock_mhz + CLOCK_STEP_MHZ:
            problems.append(f"{name} ran at {gpu['sm_mhz']['max']:g} MHz, above its lock of {lock_mhz} MHz")
        elif gpu["utilization"]["median"] >= 50 and gpu["sm_mhz"]["median"] < AT_LOCK * lock_mhz and not slowed:
            problems.append(f"{name} ran at {gpu['sm_mhz']['median']:g} MHz, below its lock of {lock_mhz} MHz")
    return problems


def _case(name, before, after, expects, lock_mhz, lock_before):
    recipe, expected = after["recipe"], expects.get(after["expects"]) or {}
    earlier = {}
    remark = "no baseline"
    if before is not None and "skipped" not in before:
        earlier = {run["seed"]: run["value"] for run in before["runs"]} if before["recipe"] == recipe else {}
        remark = "its baseline was measured in another way"
    pairs = [(earlier[run["seed"]], run["value"]) for run in after["runs"] if run["seed"] in earlier]
    figure = {
        "unit": "tok/s",
        "against": "baseline" if pairs else "expectation" if expected else "nothing",
        "before": statistics.median(then for then, _ in pairs) if pairs else None,
        # of the same prompts as before, where there is something to compare with
        "after": statistics.median(now for _, now in pairs) if pairs else after["value"],
        "change": None,
        "tolerance": None,
        "pairs": len(pairs),
        "expected": expected.get("value"),
        "source": expected.get("source"),
    }

    def said(outcome, reason):
        return {**figure, "outcome": outcome, "reason": reason}

    problems = list(dict.fromkeys(text for run in after["runs"] for text in run_problems(run, recipe, lock_mhz)))
    # False is: not to be judged; None is a lock, or rather none
    if lock_before is not False and before is not None and "skipped" not in before:
        found = [text for run in before["runs"] for text in run_problems(run, before["recipe"], lock_before)]
        problems += [f"before the change, {text}" for text in dict.fromkeys(found)]
    if problems:
        return said("inconclusive", "; ".join(problems))
    floor = OF_ACCEPTANCE * float((expects.get("acceptance") or {}).get("value") or 0)
    acceptance = after["acceptance"]
    if recipe["figure"] == "decode_tok_s" and acceptance is not None and acceptance < floor:
        was = f", before {figure['before']:.1f}" if pairs else ""
        return said(
            "fail",
            f"{acceptance:.0%} of the drafted tokens were accepted, {floor:.0%} is the least ({OF_ACCEPTANCE:.0%} of "
            f"what is expected: {expects['acceptance']['source']}); {figure['after']:.1f} tok/s{was}",
        )
    return said(*(_against_baseline(figure, pairs) if pairs else _against_expected(figure, remark)))


def _against_baseline(figure, pairs):
    ratios = [now / then for then, now in pairs]
    change = figure["change"] = statistics.median(ratios) - 1
    noise = 0.0
    tolerance = FALL_UNKNOWN_NOISE
    if len(pairs) >= 3:
        noise = 4 * statistics.stdev(math.log(ratio) for ratio in ratios) / math.sqrt(2)
        tolerance = max(FALL, noise)
    figure["tolerance"] = tolerance
    says = (
        f"{figure['after']:.1f} tok/s, before {figure['before']:.1f} ({change:+.1%}; allowed is -{tolerance:.0%} of "
        f"{len(pairs)} {'run' if len(pairs) == 1 else 'runs'})"
    )
    if change < -tolerance:
        return "fail", says
    if noise > NOISE:
        return "inconclusive", f"{says}: the runs differ too much to tell"
    return "pass", says


def _against_expected(figure, remark):
    value, expected = figure["after"], figure["expected"]
    if expected is None:
        return "inconclusive", f"{value:.1f} tok/s, {remark}, and no expectation to compare it with"
    figure["change"] = value / expected - 1
    figure["tolerance"] = 1 - OF_EXPECTED
    says = f"{value:.1f} tok/s, {remark}, expected {expected:g} ({figure['change']:+.0%}; {figure['source']})"
    return ("pass" if value >= OF_EXPECTED * expected else "fail"), says


class FilterModule:
    """Ansible's entry point."""

    def filters(self):
        return {"bench_verdict": bench_verdict}
