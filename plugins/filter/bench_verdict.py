# SPDX-License-Identifier: Apache-2.0
"""Filters bench_verdict and bench_sound: is an engine as fast as it was, or as it should be; and which figures may be a
baseline? Pure.

Statistics. Each run of a case has its own seed, and so its own prompts; how fast a run is depends on them (speculative
decoding gains more on some texts than on others). So runs are paired by seed: ratio = after / before of the same
prompts, and the median of the ratios is what is judged. Two runs of one engine differ by a relative standard deviation
s, so one ratio has s * sqrt(2), the median of three 0.67 of that: about 0.95 s. s is estimated from the ratios' spread.

- From three pairs on: a fall of more than max(8 %, 4 s) fails. With s up to 2 % an unchanged engine fails in fewer than
  1 of 1,000 comparisons, and one that lost 20 % passes in fewer than 1 of 1,000 (tests/unit/bench simulates both).
- Fewer pairs tell nothing about s: only a fall of more than 20 % fails. That is enough for "halved", the field report's
  bf16 KV cache, and takes a third of the time. An engine that lost just 20 % passes every second time; one that lost
  30 % passes in fewer than 1 of 100 with s up to 3 %.
- Where 4 s is more than 16 %, runs differ too much to tell anything but a greater fall: inconclusive.

Without a baseline the profile's expectation is the measure, at 75 %: the report's own lock costs it 10 to 15 %, and its
logs go from 58 to 86 tok/s around a mean of 67.6. A baseline that was measured with another clock or power limit is
none. With a baseline, what falls below those 75 % is inconclusive however small the fall, so that speed does not sink
from change to change. A baseline of the same profile that is below them itself decides alone: the gate stores no such
baseline, so an owner did.
"""

from __future__ import annotations

import json
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
    judge_before  for a comparison, which measures both sides: a run of `before` that says nothing, or another clock,
                  makes its case inconclusive; the expectation is only told. A baseline holds sound runs (bench_sound)

    figures: per case `unit`, `against` (baseline, expectation or nothing), `before`, `after`, `change` (relative, of
    the pairs), `tolerance`, `pairs`, `expected`, `source`, `outcome` and `reason`; None where there is nothing. A
    failed case fails the whole, else an inconclusive one makes it inconclusive; those with nothing to compare with
    count only where there is no other.
    """
    figures = {
        name: _case(name, case, before, after, expects or {}, judge_before)
        for name, case in after["cases"].items()
        if "skipped" not in case
    }
    judged = {name: figure for name, figure in figures.items() if figure["against"] != "nothing"} or figures
    for outcome in ("fail", "inconclusive", "pass"):
        reasons = [f"{name}: {figure['reason']}" for name, figure in judged.items() if figure["outcome"] == outcome]
        if reasons:
            return {"outcome": outcome, "reason": "; ".join(reasons), "figures": figures}
    return {"outcome": "inconclusive", "reason": "nothing was measured", "figures": {}}


def bench_sound(result):
    """`result` with only those cases whose every run says something about the engine's speed: what may be a baseline.

    The others are skipped, with the reason.
    """
    cases = {}
    for name, case in result["cases"].items():
        problems = [] if "skipped" in case else _problems(case, result)
        cases[name] = {"skipped": "; ".join(problems)} if problems else case
    return {**result, "cases": cases}


def _problems(case, result):
    """Sentences, each once, about the runs of a case of `result`."""
    lock, cap = result.get("lock_mhz"), _power_limit(result)
    return list(dict.fromkeys(text for run in case["runs"] for text in run_problems(run, case["recipe"], lock, cap)))


def _power_limit(result):
    """The power limit that somebody has chosen for the box, else None."""
    limit = ((result.get("about") or {}).get("clocks") or {}).get("power_limit_w")
    return None if limit == "default" else limit


def _clocks(result):
    """What a figure depends on and the configuration's hash does not know."""
    lock, cap = result.get("lock_mhz"), _power_limit(result)
    return ("unlocked cards" if lock is None else f"a lock of {lock} MHz") + (f" and {cap} W" if cap else "")


def run_problems(run, recipe, lock_mhz, power_limit_w=None):
    """Why a run says nothing about the engine's speed, as sentences; empty where it does."""
    problems = []
    if run["value"] <= 0:
        problems.append("its figure is 0")
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
    return problems + _clock_problems(run, lock_mhz, power_limit_w)


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


def _clock_problems(run, lock_mhz, power_limit_w):
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
        elif _below_lock(gpu, lock_mhz) and not slowed and not (power_limit_w and _capped(gpu)):
            problems.append(f"{name} ran at {gpu['sm_mhz']['median']:g} MHz, below its lock of {lock_mhz} MHz")
    return problems


def _below_lock(gpu, lock_mhz):
    return gpu["utilization"]["median"] >= 50 and gpu["sm_mhz"]["median"] < AT_LOCK * lock_mhz


def _capped(gpu):
    return gpu["events"].get("sw_power_cap", 0) >= THROTTLED


def _held_by_cap(case, result):
    """A remark on cards that a chosen power limit keeps below their lock: no fault, as it was chosen; else empty."""
    lock, cap = result.get("lock_mhz"), _power_limit(result)
    if not cap or lock is None:
        return ""
    held = [
        gpu["sm_mhz"]["median"]
        for run in case["runs"]
        for gpu in run["gpus"]
        if _below_lock(gpu, lock) and _capped(gpu)
    ]
    return f"; the chosen power limit of {cap:g} W held a card at {min(held):g} MHz" if held else ""


def _case(name, case, before, after, expects, judge_before):
    recipe, expected = case["recipe"], expects.get(case["expects"]) or {}
    earlier, old = {}, ((before or {}).get("cases") or {}).get(name) or {"skipped": ""}
    remark = "no baseline"
    if "skipped" in old:
        pass
    elif old["recipe"] != recipe or not {run["seed"] for run in old["runs"]} & {run["seed"] for run in case["runs"]}:
        remark = "its baseline was measured in another way"
    elif _clocks(before) != _clocks(after):
        remark = f"its baseline was measured with {_clocks(before)}, this with {_clocks(after)}"
    else:
        earlier = {run["seed"]: run["value"] for run in old["runs"] if run["value"] > 0}
    pairs = [(earlier[run["seed"]], run["value"]) for run in case["runs"] if run["seed"] in earlier]
    figure = {
        "unit": "tok/s",
        "against": "baseline" if pairs else "nothing" if expected.get("value") is None else "expectation",
        "before": statistics.median(then for then, _ in pairs) if pairs else None,
        # of the same prompts as before, where there is something to compare with
        "after": statistics.median(now for _, now in pairs) if pairs else case["value"],
        "change": None,
        "tolerance": None,
        "pairs": len(pairs),
        "expected": expected.get("value"),
        "source": expected.get("source"),
    }

    def said(outcome, reason):
        return {**figure, "outcome": outcome, "reason": reason}

    problems = _problems(case, after)
    if judge_before and "skipped" not in old:
        problems += [f"before the change, {text}" for text in _problems(old, before)]
        if _clocks(before) != _clocks(after):
            problems.append(remark)
    if problems:
        return said("inconclusive", "; ".join(problems))
    held = _held_by_cap(case, after)
    floor = OF_ACCEPTANCE * float((expects.get("acceptance") or {}).get("value") or 0)
    acceptance = case["acceptance"]
    if recipe["figure"] == "decode_tok_s" and acceptance is not None and acceptance < floor:
        was = f", before {figure['before']:.1f}" if pairs else ""
        return said(
            "fail",
            f"{acceptance:.0%} of the drafted tokens were accepted, {floor:.0%} is the least ({OF_ACCEPTANCE:.0%} of "
            f"what is expected: {_source(expects['acceptance'])}); {figure['after']:.1f} tok/s{was}{held}",
        )
    if not pairs:
        outcome, reason = _against_expected(figure, remark)
        return said(outcome, reason + held)
    outcome, reason = _against_baseline(figure, pairs)
    if outcome == "pass" and not judge_before and _sunk(figure, before.get("profile") == after.get("profile")):
        outcome = "inconclusive"
        reason += (
            f", but less than {OF_EXPECTED:.0%} of what is expected, {figure['expected']:g} ({_source(expected)}), "
            "which no baseline of this profile was"
        )
    return said(outcome, reason + held)


def _sunk(figure, same_profile):
    """Whether a figure is below what is enough without a baseline, and its baseline is no owner's word for that."""
    least = OF_EXPECTED * (figure["expected"] or 0)
    return figure["after"] < least and not (same_profile and figure["before"] < least)


def _source(expected):
    return expected.get("source") or "of no source"


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
    says = f"{value:.1f} tok/s, {remark}, expected {expected:g} ({figure['change']:+.0%}; {_source(figure)})"
    return ("pass" if value >= OF_EXPECTED * expected else "fail"), says


def bench_expects(profile, about):
    """What `profile` expects of the engine that was measured.

    Its acceptance is of its own way to speculate: of 7 tokens that dflash drafts a smaller part is accepted than of the
    2 of MTP, and the engine is the faster for it.

    about  of the measurement: `arguments` of vllm serve
    """
    expects = profile.get("expects") or {}
    words = [word for word in about.get("arguments") or [] if word.startswith("--spec")]
    wanted = (profile.get("args") or {}).get("speculative-config")
    try:
        runs = [json.loads(word.partition("=")[2]) for word in words if word.startswith("--speculative-config=")]
    except ValueError:
        runs = [None]
    same = not about.get("arguments") or (runs == ([wanted] if wanted else []) and len(words) == len(runs))
    return expects if same else {name: value for name, value in expects.items() if name != "acceptance"}


class FilterModule:
    """Ansible's entry point."""

    def filters(self):
        return {"bench_expects": bench_expects, "bench_verdict": bench_verdict, "bench_sound": bench_sound}
