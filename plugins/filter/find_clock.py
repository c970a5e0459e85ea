# SPDX-License-Identifier: Apache-2.0
"""Filters of role find_clock: the search for the highest clock at which a box survives stress. Pure.

A search is one JSON document (roles/find_clock/files/find_clock.schema.json), which is its state and its report: what
comes next follows from the steps that it holds and nothing else. So a search that was cut off, at whatever moment, goes
on where it was: the step under way has the same name as before, and its run on the box is looked up by that name.

A clock counts as survived after `survive` runs (2) without a failure, as failed after one. Where a lower clock failed
although a higher one had survived, the lower failure wins.
"""

from __future__ import annotations

import copy

FORMAT = {"format": 1, "kind": "find_clock"}
#: Runs in a row that say nothing about a clock before a person has to look.
INCONCLUSIVE_AT_MOST = 3
#: What of a verdict (filter stress_verdict) counts against a clock. An engine that died or refused without a reboot and
#: without an Xid may have done so at any clock.
COUNTS_AGAINST = ("reboot", "xid")
#: What a search sets on a box, of its desired state.
CLOCKS_AND_POWER = ("state", "min_mhz", "max_mhz", "power_limit_w")


def find_clock_begin(settings, box, card, wish, started):
    """The document of a new search.

    settings  {low_mhz, high_mhz, step_mhz, survive, margin_mhz, seconds, power_limits_w: [...], power_state}
    box       {name, driver, simulated, gpus, engines: [...]}
    card      {min_mhz, max_mhz, step_mhz}: the grid of the box's cards
    wish      the box's desired state (/etc/tandem/gpu-clocks.json) as it was found; it is put back at the end
    started   ISO 8601, UTC; it names the search's runs on the box
    """
    return {
        **FORMAT,
        "box": box,
        "card": card,
        "settings": settings,
        "wish_before": wish,
        "started": started,
        "finished": None,
        "state": "searching",
        "steps": [],
        "result": None,
    }


def find_clock_card(gpus):
    """{min_mhz, max_mhz, step_mhz, power_min_w, power_max_w} that every card takes; gpus: as module gpu_info has them.

    Cards whose grids differ have no clock in common that one setting could name: step_mhz is None then.
    """
    clocks = [gpu["supported_clocks"] for gpu in gpus]
    grids = {(one["graphics_min_mhz"], one["graphics_step_mhz"] or 15) for one in clocks}

    def known(name, choose):
        values = [gpu.get(name) for gpu in gpus]
        return None if None in values else choose(values)

    return {
        "min_mhz": max(one["graphics_min_mhz"] for one in clocks),
        "max_mhz": min(one["graphics_max_mhz"] for one in clocks),
        "step_mhz": grids.pop()[1] if len(grids) == 1 else None,
        "power_min_w": known("power_min_limit_w", max),
        "power_max_w": known("power_max_limit_w", min),
    }


def find_clock_problems(settings, card):
    """Sentences about settings that make no search on these cards; empty where they do."""
    if card["step_mhz"] is None:
        return ["the cards take different clocks, and a search sets one clock for all of them"]
    low, high, step, grid = settings["low_mhz"], settings["high_mhz"], settings["step_mhz"], card["step_mhz"]
    problems = []
    if low > high:
        problems.append(
            f"find_clock_low_mhz ({low}) is above find_clock_high_mhz ({high}): lower the one or raise the other"
        )
    for name, value in (("low", low), ("high", high)):
        if not card["min_mhz"] <= value <= card["max_mhz"]:
            problems.append(
                f"find_clock_{name}_mhz ({value}) is outside of what the cards take, "
                f"{card['min_mhz']} to {card['max_mhz']} MHz"
            )
    if step < grid or step % grid:
        problems.append(f"find_clock_step_mhz ({step}) must be a multiple of the cards' step, {grid} MHz")
    least, most = card.get("power_min_w"), card.get("power_max_w")
    problems += [
        f"find_clock_power_limits_w has {watts}, which is outside of what the cards take, {least:.0f} to {most:.0f} W"
        for watts in settings["power_limits_w"]
        if least is not None and most is not None and not least <= watts <= most
    ]
    if not problems and not _clocks(settings, card, low, high):
        problems.append(
            f"there is no clock of the cards (steps of {grid} MHz) between find_clock_low_mhz ({low}) and "
            f"find_clock_high_mhz ({high})"
        )
    return problems


def find_clock_resumable(search, settings, box_name):
    """Whether the document `search` (or None) is an unfinished search of this box with these settings.

    One that has its result and was cut off before the box got its clocks is unfinished, too.
    """
    return bool(
        _is_search(search)
        and search["finished"] is None
        and search["settings"] == settings
        and search["box"]["name"] == box_name
    )


def find_clock_done(search, settings, box):
    """Whether the document `search` (or None) has found the clock of this very box with these settings."""
    return bool(
        _is_search(search)
        and search["finished"] is not None
        and search["state"] == "found"
        and search["settings"] == settings
        and search["box"] == box
    )


def find_clock_own_wish(wish, search):
    """The box's own desired state: `wish`, as it was read on the box, unless that is what `search` left there.

    A search that was cut off leaves the clock at which the box rests between two runs. Its document may lack the last
    setting of it, which is made after the document is written.
    """
    if not _is_search(search) or search["finished"] is not None:
        return wish
    steps = search["steps"]
    rests = [find_clock_resting({**search, "steps": steps[:count]}) for count in (len(steps), max(0, len(steps) - 1))]
    left = any(all(rest.get(name) == wish.get(name) for name in CLOCKS_AND_POWER) for rest in rests)
    return search["wish_before"] if left else wish


def find_clock_given_up(search, ended):
    """The document of a search that other settings have taken the place of."""
    search = copy.deepcopy(search)
    search["result"] = search["result"] or _result(search)
    if search["state"] == "searching":
        search["state"] = "stopped"
    return {**search, "finished": ended}


def _is_search(search):
    """Whether that is one of our documents; anything else, as a damaged file, counts as none."""
    names = {"finished", "settings", "box", "state", "steps", "wish_before"}
    return isinstance(search, dict) and {name: search.get(name) for name in FORMAT} == FORMAT and names <= search.keys()


def find_clock_next(search):
    """The next step, {kind, max_mhz, power_limit_w, try, run, trial}; or None where the search is at its end.

    kind   clock | power
    try    which of the `survive` runs it is, from 1
    run    name of its run on the box
    trial  what to set for it, over the box's own wish: what `stress_trial` takes
    """
    if search["state"] != "searching":
        return None
    clock = _next_clock(search)
    if clock is not None:
        return _step(search, "clock", clock, None)
    settings = search["settings"]
    for watts in settings.get("power_limits_w") or []:
        survived, failed = _count(search, "power_limit_w", watts, "power")
        open_ = not failed and survived < settings["survive"] and watts < _lowest_failed_limit(search)
        # one of which nothing can be learnt is left undecided
        if open_ and _outcomes(search, "power_limit_w", watts, "power").count("inconclusive") < INCONCLUSIVE_AT_MOST:
            return _step(search, "power", None, watts)
    return None


def find_clock_record(search, step, verdict, result=None):
    """A new document with the step's outcome; with `state` and `result` where the search is at its end.

    verdict  of filter stress_verdict
    result   what it was made of, for speeds, readings and the curve; None where the box told nothing
    """
    search = copy.deepcopy(search)
    result = result or {}
    if verdict["outcome"] == "survived":
        outcome = "survived"
    else:
        outcome = "failed" if verdict["what"] in COUNTS_AGAINST else "inconclusive"
    search["steps"].append(
        {
            "number": len(search["steps"]) + 1,
            **{name: step[name] for name in ("kind", "max_mhz", "power_limit_w", "try", "run", "trial")},
            "outcome": outcome,
            **{name: verdict[name] for name in ("what", "says", "at_s", "power_w", "sm_mhz")},
            "started": result.get("started"),
            "seconds": result.get("last_s"),
            "speeds": result.get("speeds"),
            "gpus": result.get("gpus", []),
        }
    )
    last = search["steps"][-INCONCLUSIVE_AT_MOST:]
    # Not for a power limit: that the clock was found is true whatever comes of it.
    if len(last) == INCONCLUSIVE_AT_MOST and all(
        (item["kind"], item["outcome"], item["max_mhz"]) == ("clock", "inconclusive", step["max_mhz"]) for item in last
    ):
        search["state"] = "stopped"
        search["result"] = _result(search)
    elif find_clock_next(search) is None:
        search["result"] = _result(search)
        search["state"] = "found" if search["result"]["highest_mhz"] is not None else "none"
    return search


def find_clock_rest(search):
    """The highest clock in MHz that the box may have between two runs: what a reboot comes back to.

    Its own wish, unless that is unlocked, above the bounds, or has been shown to fail; then the highest clock that
    survived, else the low bound, else one step below the lowest failure.
    """
    wish, settings = search["wish_before"], search["settings"]
    best, fail = _best_and_fail(search)
    own = wish["max_mhz"] if wish.get("state") == "locked" else None
    if own is not None and own <= settings["high_mhz"] and (fail is None or own < fail):
        return own
    if best is not None:
        return best
    if fail is None or settings["low_mhz"] < fail:
        return settings["low_mhz"]
    return max(search["card"]["min_mhz"], fail - settings["step_mhz"])


def find_clock_wish(search, set_it=False):
    """The desired state at the end: as it was found, or with the proposed clock where `set_it`.

    A wish that has been shown to fail is not put back: find_clock_rest says what stays then.
    """
    wish, result = dict(search["wish_before"]), search.get("result") or {}
    if set_it and result.get("proposed_mhz"):
        clock = result["proposed_mhz"]
    elif _shown_to_fail(search):
        clock = find_clock_rest(search)
    else:
        return wish
    return {**wish, "state": "locked", "max_mhz": clock, "min_mhz": min(wish.get("min_mhz") or 0, clock)}


def find_clock_resting(search):
    """The desired state between two runs of the search: the box's own with find_clock_rest's clock."""
    wish, clock = search["wish_before"], find_clock_rest(search)
    if wish.get("state") == "locked" and wish["max_mhz"] == clock:
        return dict(wish)
    return {**wish, "state": "locked", "max_mhz": clock, "min_mhz": min(wish.get("min_mhz") or 0, clock)}


def find_clock_step_text(step, survive):
    """What is about to be tried."""
    what = (
        f"at most {step['max_mhz']} MHz" if step["kind"] == "clock" else f"a power limit of {step['power_limit_w']} W"
    )
    return f"{what}, run {step['try']} of {survive}"


def find_clock_text(search):
    """The search as lines for a person: one per step, then the end."""
    lines = [
        f"{search['box']['name']}: {'simulated cards; ' if search['box']['simulated'] else ''}bounds {_bounds(search)}"
    ]
    for step in search["steps"]:
        tried = f"{step['max_mhz']} MHz" if step["kind"] == "clock" else f"{step['power_limit_w']} W"
        speeds = step["speeds"] or {}
        shown = ", ".join(
            f"{name} {speeds[key]:.1f} tok/s"
            for name, key in (("prefill", "prefill_tok_s"), ("decode", "decode_tok_s"))
            if speeds.get(key)
        )
        power = "/".join(f"{gpu['power_w']['median']:.0f}" for gpu in step["gpus"])
        peak = "/".join(f"{gpu['power_w']['max']:.0f}" for gpu in step["gpus"])
        lines.append(
            f"{step['number']:>3}  {tried:>9}  run {step['try']}  {step['outcome']:<12}  {shown or 'no speed':<42}"
            + (f"  median {power} W, highest {peak} W" if power else "")
        )
        if step["outcome"] != "survived":
            lines.append(f"{'':21}{step['says']}")
    if search["result"]:
        lines.append(search["result"]["says"])
    return lines


def _bounds(search):
    settings = search["settings"]
    bounds = f"{settings['low_mhz']}-{settings['high_mhz']} MHz in steps of {settings['step_mhz']}"
    return f"{bounds}, {settings['seconds']} s a run"


def _clocks(settings, card, low, high):
    """Clocks to try between low and high, both included, on the card's grid."""
    grid = range(card["min_mhz"], card["max_mhz"] + 1, card["step_mhz"])
    first = next((clock for clock in grid if clock >= settings["low_mhz"]), card["max_mhz"])
    return [clock for clock in grid if low <= clock <= high and (clock - first) % settings["step_mhz"] == 0]


def _outcomes(search, name, value, kind):
    return [step["outcome"] for step in search["steps"] if step["kind"] == kind and step[name] == value]


def _count(search, name, value, kind):
    """(survived, failed) runs of what is tried."""
    outcomes = _outcomes(search, name, value, kind)
    return outcomes.count("survived"), outcomes.count("failed")


def _best_and_fail(search):
    """(highest clock survived often enough and below any failure, lowest clock that failed); None for none."""
    clocks = {step["max_mhz"] for step in search["steps"] if step["kind"] == "clock"}
    counts = {clock: _count(search, "max_mhz", clock, "clock") for clock in clocks}
    fail = min((clock for clock, (_, failed) in counts.items() if failed), default=None)
    good = [
        clock
        for clock, (survived, failed) in counts.items()
        if survived >= search["settings"]["survive"] and not failed and (fail is None or clock < fail)
    ]
    return max(good, default=None), fail


def _next_clock(search):
    settings, card, own = search["settings"], search["card"], search["wish_before"]
    best, fail = _best_and_fail(search)
    candidates = [
        clock
        for clock in _clocks(settings, card, card["min_mhz"], settings["high_mhz"])
        if (best is None or clock > best) and (fail is None or clock < fail)
    ]
    # Above the bounds nothing is ever tried. Below them only when everything within has failed: lower is safer.
    inside = [clock for clock in candidates if clock >= settings["low_mhz"]]
    if not inside and best is not None and best >= settings["low_mhz"]:
        return None
    candidates = inside or candidates
    if not candidates:
        return None
    # What the box has now comes first: if that survives, every later reboot comes back to something known.
    if best is None and own.get("state") == "locked" and own["max_mhz"] in candidates:
        return own["max_mhz"]
    begun = [clock for clock in candidates if _count(search, "max_mhz", clock, "clock")[0]]
    return begun[-1] if begun else candidates[(len(candidates) - 1) // 2]


def _step(search, kind, clock, watts):
    wish, settings = search["wish_before"], search["settings"]
    survived = _count(search, *(("max_mhz", clock) if kind == "clock" else ("power_limit_w", watts)), kind)[0]
    if kind == "clock":
        trial = {"state": "locked", "max_mhz": clock, "min_mhz": min(wish.get("min_mhz") or 0, clock)}
    else:
        # The limit alone is on trial, so the lock is not to help it.
        trial = {"state": settings.get("power_state", "unlocked"), "power_limit_w": watts}
    stamp = "".join(letter for letter in search["started"] if letter.isdigit())[:14]
    return {
        "kind": kind,
        "max_mhz": clock,
        "power_limit_w": watts,
        "try": survived + 1,
        "run": f"find-clock-{stamp}-{len(search['steps']) + 1:03d}",
        "trial": trial,
    }


def _lowest_failed_limit(search):
    failed = [step for step in search["steps"] if step["kind"] == "power" and step["outcome"] == "failed"]
    return min((step["power_limit_w"] for step in failed), default=float("inf"))


def _shown_to_fail(search):
    wish, fail = search["wish_before"], _best_and_fail(search)[1]
    return fail is not None and (wish.get("state") != "locked" or wish["max_mhz"] >= fail)


def _result(search):
    settings, card = search["settings"], search["card"]
    best, fail = _best_and_fail(search)
    proposed = None
    if best is not None:
        grid = range(card["min_mhz"], card["max_mhz"] + 1, card["step_mhz"])
        proposed = max((clock for clock in grid if clock <= best - settings["margin_mhz"]), default=card["min_mhz"])
    power = []
    for watts in settings.get("power_limits_w") or []:
        survived, failed = _count(search, "power_limit_w", watts, "power")
        power.append(
            {
                "power_limit_w": watts,
                "outcome": "failed" if failed else "survived" if survived >= settings["survive"] else None,
            }
        )
    return {
        "highest_mhz": best,
        "lowest_failed_mhz": fail,
        "margin_mhz": settings["margin_mhz"],
        "proposed_mhz": proposed,
        "power_limits": power,
        "says": _says(search, best, fail, proposed, power),
    }


def _says(search, best, fail, proposed, power):
    settings = search["settings"]
    name = search["box"]["name"]
    runs = f"{settings['survive']} run{'' if settings['survive'] == 1 else 's'}"
    mark = " (simulated cards: this says nothing about real ones)" if search["box"]["simulated"] else ""
    if best is None:
        last = next(
            (step["says"] for step in reversed(search["steps"]) if step["outcome"] != "survived"), "nothing was tried"
        )
        says = f"{name}: no clock survived {runs}; the last word: {last}"
    else:
        end = (
            f"{fail} MHz failed"
            if fail is not None
            else f"nothing failed up to find_clock_high_mhz ({settings['high_mhz']}), and nothing above it is ever "
            "tried: raise it to look further"
        )
        says = (
            f"{name}: {best} MHz survived {runs} of {settings['seconds']} s; {end}. "
            f"With a margin of {settings['margin_mhz']} MHz: gpu_clocks_max_mhz: {proposed}"
        )
    told = [
        f"{row['power_limit_w']} W "
        + (row["outcome"] or ("not tried" if row["power_limit_w"] > _lowest_failed_limit(search) else "undecided"))
        for row in power
    ]
    return says + (f". Power limits alone: {', '.join(told)}" if told else "") + mark


class FilterModule:
    """Ansible's entry point."""

    def filters(self):
        return {
            name: globals()[name]
            for name in (
                "find_clock_begin",
                "find_clock_card",
                "find_clock_done",
                "find_clock_given_up",
                "find_clock_own_wish",
                "find_clock_problems",
                "find_clock_resumable",
                "find_clock_next",
                "find_clock_record",
                "find_clock_rest",
                "find_clock_resting",
                "find_clock_wish",
                "find_clock_step_text",
                "find_clock_text",
            )
        }
