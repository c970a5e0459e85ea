# SPDX-License-Identifier: Apache-2.0
"""Filters of role gpu_clocks: which settings make no sense, and whether the power supply carries the cards."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

PREFIX = "gpu_clocks_"

# Measured by the field report on one box with two RTX 4090s under long prefills; no figure of ours.
FIELD_REPORT = "two RTX 4090s locked at 2100 MHz drew about 180 W each, with short peaks of 250 W"
FIELD_REPORT_LOCK_MHZ = 2100
FIELD_REPORT_PEAK_W = 250


def _wish_module():
    # The same rules as on the box, from the same file: plain Python, so it can be loaded without Ansible's importer.
    path = Path(__file__).resolve().parents[3] / "module_utils" / "tandem_gpu_wish.py"
    name = "tandem_gpu_wish_of_gpu_clocks"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


def gpu_clocks_problems(wish, limits):
    """Sentences about role variables that make no sense; empty when all is well.

    wish    the module's settings, named without the role's prefix
    limits  {name without prefix: (lowest, highest)} of further numbers
    """
    problems = []
    rules = _wish_module()
    try:
        rules.Wish.parse(wish, PREFIX)
    except rules.WishError as exc:
        problems += exc.problems
    for name, (value, low, high) in limits.items():
        if value is not None and not low <= float(value) <= high:
            problems.append(f"{PREFIX}{name} ({value}) is out of range: give {low} to {high}")
    return problems


def gpu_clocks_power_budget(wish, cards, psu_watts, host_watts, card_watts):
    """{carried, sentence}: whether the power supply carries host and cards at their limits. All in watts.

    Limits count, a lock does not: a limit is kept by the card, and what a lock does to the draw is known from one
    report only. The sentence tells what that report suggests.
    """
    limit = wish["power_limit_w"]
    watts = float(card_watts if limit in (None, "", "default") else limit)
    total = int(cards) * watts + float(host_watts)
    source = f"{PREFIX}card_watts" if limit in (None, "", "default") else f"{PREFIX}power_limit_w"
    sum_text = f"{cards} cards x {watts:g} W ({source}) + {float(host_watts):g} W ({PREFIX}host_watts) = {total:g} W"
    if total <= float(psu_watts):
        return {
            "carried": True,
            "sentence": f"{sum_text} of {float(psu_watts):g} W ({PREFIX}psu_watts)",
        }
    sentence = f"{sum_text}, more than the {float(psu_watts):g} W of {PREFIX}psu_watts."
    room = (float(psu_watts) - float(host_watts)) / int(cards)
    if room >= 1:
        sentence += (
            f" Set {PREFIX}power_limit_w to at most {int(room)} (no less than the card takes), or fit a larger supply."
        )
    if wish["state"] == "locked" and wish["max_mhz"] is not None and int(wish["max_mhz"]) <= FIELD_REPORT_LOCK_MHZ:
        peak = int(cards) * FIELD_REPORT_PEAK_W + float(host_watts)
        sentence += (
            f" A power limit reacts too slowly to short peaks, which a clock lock avoids: in the field report"
            f" {FIELD_REPORT} (one box, not measured by tandem), which would make {peak:g} W here."
        )
    else:
        sentence += (
            f" A power limit reacts too slowly to short peaks: lock the clocks as well ({PREFIX}max_mhz of"
            f" {FIELD_REPORT_LOCK_MHZ} or less; in the field report {FIELD_REPORT}, on one box)."
        )
    sentence += f" To go on all the same set {PREFIX}psu_acknowledged to true."
    return {"carried": False, "sentence": sentence}


def gpu_clocks_above_lock(gpus, selected, max_mhz, needs_load):
    """Sentences about GPUs (of gpu_info with samples) whose SM clock was more than a step above the lock, or idle."""
    problems = []
    names = None if selected == "all" else {str(name) for name in selected}
    for gpu in gpus:
        if names is not None and gpu["uuid"] not in names and str(gpu["index"]) not in names:
            continue
        seen = gpu["samples"]
        step = gpu["supported_clocks"]["graphics_step_mhz"] or 15
        name = f"GPU {gpu['index']} ({gpu['uuid']})"
        if seen["busy"] and seen["sm_mhz_max"] > int(max_mhz) + step:
            problems.append(
                f"{name} ran at {seen['sm_mhz_max']} MHz under load, {PREFIX}max_mhz is {max_mhz}: the lock is not"
                " held; `tandem-gpu-clocks status` on the box tells what is believed (see also"
                " NVIDIA/open-gpu-kernel-modules#1314)"
            )
        elif not seen["busy"] and needs_load:
            problems.append(
                f"{name} was idle in all {seen['count']} samples, which proves nothing: verify while the engine works, "
                f"or set {PREFIX}verify_needs_load to false"
            )
    return problems


def gpu_clocks_seen_text(gpus, max_mhz):
    """One line about what verify saw."""
    return "; ".join(
        f"GPU {gpu['index']}: at most {gpu['samples']['sm_mhz_max']} MHz in {gpu['samples']['busy']} busy samples"
        f" (lock {max_mhz} MHz), at most {gpu['samples']['power_max_w']} W"
        for gpu in gpus
    )


def gpu_clocks_reasons(gpus):
    """Sentences about what is not as wished; `gpus` as module gpu_clocks returns them."""
    cards = {}
    for gpu in gpus:
        for change in gpu["changes"]:
            cards.setdefault((change["setting"], change["before"], change["after"]), []).append(str(gpu["index"]))
    return [
        f"{setting} of GPU {' and '.join(indexes)} is {before}, wanted is {after}"
        for (setting, before, after), indexes in cards.items()
    ]


class FilterModule:
    """Ansible's entry point."""

    def filters(self):
        return {
            "gpu_clocks_problems": gpu_clocks_problems,
            "gpu_clocks_reasons": gpu_clocks_reasons,
            "gpu_clocks_power_budget": gpu_clocks_power_budget,
            "gpu_clocks_above_lock": gpu_clocks_above_lock,
            "gpu_clocks_seen_text": gpu_clocks_seen_text,
        }
