# SPDX-License-Identifier: Apache-2.0
"""Filters of role stress: what load to put on an engine, and what a run of it says about the box. Pure.

What reboots a box is a long prompt: its prefill is compute-bound, both cards go from idle to full power together, and
the power supply answers too slowly (field report, August 2026; prompts over 4K tokens). So the load is bursts: several
long prompts sent at the same moment to an idle engine, then a pause, then the next burst.
"""

from __future__ import annotations

import operator

#: Above the 4K tokens from which the field report saw reboots, and above one prefill chunk of 4096.
SHORTEST = 4608
#: Decoded after each prompt, so that prefill of one request and decode of another meet.
OUTPUT_TOKENS = 64
#: Where a profile has no prefill speed: what a plan is computed with, tok/s. Assumed.
PREFILL_TOK_S = 3000
#: Seconds of idleness between two bursts; the step from idle to full power is what hurts.
PAUSE_S = 1.0
#: What a plan reckons with: share of the expected prefill that is left at a lock, and seconds of a burst's decode. Both
#: assumed: a lock of 2100 MHz costs 10 to 15 % (field report), and the rest is room, as the expectation is a peak.
LOCK_SHARE, DECODE_S = 0.8, 2.0
#: Share of the time that one burst may take, so that a run is never one single prompt.
LARGEST_SHARE = 1 / 3
CLOCK_STEP_MHZ = 15

#: What can be said of a run, the worst first. `failed`: the box or a card did not survive. `inconclusive`: says nothing
#: about clock or power.
CAUSES = {
    "gone": "failed",
    "reboot": "failed",
    "xid": "failed",
    "engine": "failed",
    "clock": "inconclusive",
    "error": "inconclusive",
    "requests": "failed",
    "hang": "inconclusive",
    "nothing": "inconclusive",
}
#: A request that at the end has waited this much longer than was reckoned, plus seconds, hangs. The report's costliest
#: setting, 150 W, makes prefill half as fast, 1.6 times the reckoned time.
HANG_TIMES, HANG_S = 2, 30
#: Seconds without a reading of the cards, four a second, after which nobody has watched them.
UNWATCHED_S = 10


def stress_bursts(max_model_len, at_most, seconds, prefill_tok_s=None):
    """The bursts of one round, in their order: [{prompt_tokens, at_once, estimated_s}]. A run repeats the round.

    max_model_len   the engine's, in tokens
    at_most         highest number of prompts at once
    seconds         how long the run is to last
    prefill_tok_s   expected speed of prefill; None where it is not known

    Prompts double from SHORTEST to the longest that the engine takes, prompts at once double from 1 to `at_most`. No
    burst has more tokens than the longest prompt, nor than a third of the time allows. Where time is short, bursts are
    left out, but never the first, the longest prompt and the widest burst. Raises ValueError with a sentence.
    """
    longest = int(max_model_len) - OUTPUT_TOKENS - 1
    if longest < SHORTEST:
        raise ValueError(
            f"max-model-len is {max_model_len}: the engine takes prompts of up to {longest} tokens, and stress begins "
            f"at {SHORTEST}; raise max-model-len"
        )
    speed = LOCK_SHARE * float(prefill_tok_s or PREFILL_TOK_S)
    longest = max(SHORTEST, min(longest, int(speed * seconds * LARGEST_SHARE)))
    pairs = [
        (length, width)
        for width in _doubling(1, at_most)
        for length in _doubling(SHORTEST, longest)
        if length * width <= longest
    ]
    if not any(width == at_most for _, width in pairs):
        # the widest burst that the longest prompt's tokens are enough for
        pairs.append((SHORTEST, max(1, min(at_most, longest // SHORTEST))))
    pairs = sorted(set(pairs), key=lambda pair: (pair[0] * pair[1], pair[1]))
    kept = {pairs[0], (longest, 1), max(pairs, key=lambda pair: pair[1])}
    spent = sum(_estimate(*pair, speed) for pair in kept)
    for pair in pairs:
        if pair not in kept and spent + _estimate(*pair, speed) <= seconds:
            kept.add(pair)
            spent += _estimate(*pair, speed)
    return [
        {"prompt_tokens": length, "at_once": width, "estimated_s": round(_estimate(length, width, speed), 1)}
        for length, width in pairs
        if (length, width) in kept
    ]


def _doubling(first, last):
    values = []
    while first < last:
        values.append(first)
        first *= 2
    return [*values, last]


def _estimate(length, width, speed):
    return length * width / speed + DECODE_S + PAUSE_S


def stress_plan_text(bursts, seconds):
    """What a round is, as a sentence."""
    lengths = [burst["prompt_tokens"] for burst in bursts]
    widths = [burst["at_once"] for burst in bursts]
    return (
        f"for {seconds} s, bursts of 1 to {max(widths)} prompts at once, of {min(lengths)} to {max(lengths)} tokens "
        f"each ({len(bursts)} kinds, {sum(map(operator.mul, lengths, widths))} tokens in a round)"
    )


def stress_engines(endpoints):
    """What the program on the box is told of its engines, entries of the fact __vllm_endpoints."""
    return [
        {
            **{name: endpoint[name] for name in ("engine", "unit", "url", "model")},
            "secrets": f"/etc/tandem/vllm/{endpoint['engine']}.env",
        }
        for endpoint in endpoints
    ]


def stress_report(result, verdict, box, run, endpoints):
    """The document that is written for people and for the report page (roles/stress/files/stress.schema.json)."""
    return {
        "format": 1,
        "kind": "stress",
        "box": box,
        "run": run,
        "engines": [
            {name: endpoint[name] for name in ("engine", "model", "image", "profile", "hash")} for endpoint in endpoints
        ],
        "verdict": verdict,
        "result": result,
    }


def stress_gone(watched, seconds, trial):
    """What action stress_watch saw of a box that did not come back, in the shape of `stress-run result`."""
    look = watched["last_seen"] or {}
    last_s, cards = look.get("seconds", 0), (look.get("last") or {}).get("gpus") or []
    none = {"completed": 0, "failed": 0, "failures": [], "prompt_tokens": 0, "output_tokens": 0}
    return {
        "gone": watched["gone"],
        "boot_id": look.get("boot_id"),
        "boot_id_now": None,
        "started": look.get("started"),
        "driver": None,
        "simulated": look.get("simulated", False),
        "seconds": seconds,
        "trial": trial,
        "lock_mhz": None,
        "end": None,
        "last_s": last_s,
        "longest_prompt": 0,
        "requests": none,
        "bursts": [],
        "speeds": None,
        "xids": [],
        "engine": [],
        "waiting": None,
        "nvml": None,
        "gpus": [],
        "series": [[last_s, *(value for gpu in cards for value in gpu[:2])]] if cards else [],
    }


def stress_tried(trial):
    """A trial's settings as a person reads them; None is the box's own wish."""
    if not trial:
        return "as the box is set"
    parts = ["cards unlocked" if trial.get("state") == "unlocked" else None]
    if trial.get("state") != "unlocked" and trial.get("max_mhz") is not None:
        parts.append(f"at most {trial['max_mhz']} MHz")
    if trial.get("power_limit_w") is not None:
        limit = trial["power_limit_w"]
        parts.append(f"power limit {limit}{'' if limit == 'default' else ' W'}")
    return ", ".join(part for part in parts if part)


def stress_verdict(result):
    """{outcome, what, says, at_s, power_w, sm_mhz, gpus_at_end} of what `stress-run result` found on the box.

    result   as `result` in roles/stress/files/stress.schema.json; {"gone": seconds} where the box did not come back

    outcome  survived | failed | inconclusive
    what     one of CAUSES, or "survived"
    says     a sentence: what happened at which second, power and clock
    at_s     seconds after the run began; None where nothing happened
    power_w, sm_mhz  of each card in the last sample before it (power as the driver tells it, an average over up to a
             second: a spike of milliseconds is not in it)
    """
    for what, outcome in CAUSES.items():
        found = _LOOK[what](result)
        if found:
            at, says = found
            last = _last_before(result, at)
            return {
                "outcome": outcome,
                "what": what,
                "says": f"{says}{_seen(last, at)}",
                "at_s": at,
                "power_w": [gpu["power_w"] for gpu in last],
                "sm_mhz": [gpu["sm_mhz"] for gpu in last],
            }
    done, cards = result["requests"]["completed"], result["gpus"]
    return {
        "outcome": "survived",
        "what": "survived",
        "says": (
            f"survived {result['last_s']:.0f} s and {done} requests of up to {result['longest_prompt']} tokens; "
            f"highest {_of(cards, 'sm_mhz', 'max')} MHz, {_of(cards, 'power_w', 'max')} W"
        ),
        "at_s": None,
        "power_w": [gpu["power_w"]["max"] for gpu in cards],
        "sm_mhz": [gpu["sm_mhz"]["max"] for gpu in cards],
    }


def _gone(result):
    if "gone" not in result:
        return None
    return result.get("last_s"), f"the box did not come back within {result['gone']:.0f} s: switch it on and run again"


def _reboot(result):
    # A run that never began put no load on the box, so a reboot says nothing of it: _error.
    if not result["started"] or result["boot_id"] == result["boot_id_now"] or result["end"]:
        return None
    return result["last_s"], "the box rebooted (its boot id changed)"


def _xid(result):
    if not result.get("xids"):
        return None
    first = result["xids"][0]
    return first["at_s"], f"the driver reported Xid {first['xid']}: {first['says']}"


def _engine(result):
    if not result.get("engine"):
        return None
    first = result["engine"][0]
    return first["at_s"], first["says"]


def _clock(result):
    lock = result.get("lock_mhz")
    for gpu in result.get("gpus", []):
        above = gpu.get("above_lock")
        if lock is not None and above and above["mhz"] > lock + CLOCK_STEP_MHZ:
            return above["at_s"], (
                f"GPU {gpu['index']} ran at {above['mhz']} MHz, above its lock of {lock} MHz: the driver does not hold "
                "it, so the run says nothing about that clock"
            )
    return None


def _error(result):
    if not result["started"]:
        rebooted = result["boot_id"] not in (None, result["boot_id_now"])
        why = result["end"] or ("the box rebooted before it" if rebooted else "its program was not started, or ended")
        return None, f"the load never began: {why}"
    if result.get("end") in ("time", "stopped early by a fault"):
        return None
    return result.get(
        "last_s"
    ), f"the run ended before its time: {result.get('end') or 'its program ended without a word'}"


def _requests(result):
    requests = result["requests"]
    if not requests["failed"]:
        return None
    first = requests["failures"][0]
    all_of_them = requests["failed"] + requests["completed"]
    return first["at_s"], f"{requests['failed']} of {all_of_them} requests failed, the first: {first['says']}"


def _hang(result):
    waiting = result.get("waiting")
    if not waiting or waiting["age_s"] <= HANG_TIMES * (waiting.get("estimated_s") or 0) + HANG_S:
        return None
    return result["last_s"], (
        f"an engine hangs: it had not answered a prompt of {waiting['prompt_tokens']} tokens, one of "
        f"{waiting['at_once']} at once, after {waiting['age_s']:.0f} s; about {waiting.get('estimated_s') or 0:.0f} s "
        "were reckoned"
    )


def _nothing(result):
    last = result["series"][-1][0] if result["series"] else 0
    if result["nvml"] or not result["gpus"] or result["last_s"] - last > UNWATCHED_S:
        why = result["nvml"] or "the driver stopped answering"
        return last, f"nothing was learnt: the cards were not watched to the end: {why}"
    if not result["requests"]["completed"]:
        return result["last_s"], "nothing was learnt: no request was answered within the time: make it longer"
    return None


_LOOK = {
    "gone": _gone,
    "reboot": _reboot,
    "xid": _xid,
    "engine": _engine,
    "clock": _clock,
    "error": _error,
    "requests": _requests,
    "hang": _hang,
    "nothing": _nothing,
}


def _last_before(result, at):
    """[{power_w, sm_mhz}] of the last sample not after second `at`; [] where there is none."""
    rows = [row for row in result.get("series", []) if at is None or row[0] <= at + 0.01]
    if not rows:
        return []
    values = rows[-1][1:]
    return [{"sm_mhz": mhz, "power_w": watts} for mhz, watts in zip(values[::2], values[1::2], strict=True)]


def _seen(last, at):
    when = f", {at:.1f} s after the run began" if at is not None else ""
    if not last:
        return when
    shown = "; ".join(
        f"GPU {index} at {gpu['sm_mhz']} MHz and {gpu['power_w']:.0f} W" for index, gpu in enumerate(last)
    )
    return f"{when}; last seen: {shown}"


def _of(gpus, name, key):
    return " and ".join(f"{gpu[name][key]:.0f}" for gpu in gpus)


class FilterModule:
    """Ansible's entry point."""

    def filters(self):
        return {
            "stress_bursts": stress_bursts,
            "stress_engines": stress_engines,
            "stress_report": stress_report,
            "stress_gone": stress_gone,
            "stress_plan_text": stress_plan_text,
            "stress_tried": stress_tried,
            "stress_verdict": stress_verdict,
        }
