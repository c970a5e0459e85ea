# SPDX-License-Identifier: Apache-2.0
"""What a roll decides and what it says: pure functions."""

from __future__ import annotations

import json


def lock_others(locks):
    """Holders of `locks`, results of the module site_lock, that are not this run, each with its `machine`."""
    return [{**lock["holder"], "machine": lock["item"]} for lock in locks if lock["holder"] and not lock["mine"]]


def lock_refusal(others, states, take=False):
    """Why a run must not begin beside `others` (of lock_others), or an empty text.

    states  going | over | unknown for each of them, as lookup this_run says it
    take    take over what nobody here can know to be over
    """
    told = {}
    for other, state in zip(others, states, strict=False):
        if state == "over" or (state == "unknown" and take):
            continue
        since = f" since {other['since']}" if other.get("since") else ""
        process = f" (process {other['pid']})" if other.get("pid") else ""
        told.setdefault((f"{other.get('who', 'unknown')}{process}{since}", state), []).append(other["machine"])
    lines = []
    for (holder, state), machines in told.items():
        way_out = (
            "It still goes on; wait for its end."
            if state == "going"
            else "If you know that it is over, take its place with -e roll_take_lock=true."
        )
        lines.append(f"A run of {holder} holds the lock of {', '.join(machines)}. Nothing was changed. {way_out}")
    return " ".join(lines)


def lock_takes(others, states, take=False):
    """By machine the `run` whose lock may be taken over; arguments as of lock_refusal."""
    return {
        other["machine"]: other["run"]
        for other, state in zip(others, states, strict=False)
        if state == "over" or (state == "unknown" and take)
    }


def roll_interrupts_nobody(groups, hostvars):
    """Whether a box can leave service without a client noticing: there are gateways, and each has another box to ask.

    `gateway_min_up` is the gateways' own, as role gateway's drain reads it, and 1 where they do not say.
    """
    least = [int(hostvars[gateway].get("gateway_min_up", 1)) for gateway in groups.get("gateways", [])]
    return bool(least) and len(groups["gpu_boxes"]) > max(least)


def roll_serial_of(groups):
    """Ansible's `serial` out of the names of `groups` in which the plan has left it, or None."""
    names = sorted(name for name in groups if name.startswith("tandem_serial_"))
    return [name.split("_")[3].replace("percent", "%") for name in names] or None


def roll_start_time(lines):
    """How long engines took to start and to get warm; `lines` are what vllm-wait-ready wrote, JSON each."""
    starts = [json.loads(line) for line in lines]
    if not starts:
        return "no engine has started in this boot"
    parts = (f"{s['ready_s'] + s['warm_s']:.0f} s ({s['warm_s']:.0f} s of it to warm up)" for s in starts)
    return "the start of the engine took " + ", ".join(parts)


def roll_states(looks, hostvars):
    """A line for each engine of the roll: what its box serves now.

    looks     results of the module host_info, one for each box (`item`), asked for the containers of its engines
    hostvars  by box: `__vllm_endpoints`, what was wanted, and `__roll_before`, the containers before the roll
    """
    lines = []
    for look in looks:
        box = look["item"]
        containers = (look.get("host_info") or {}).get("containers")
        for endpoint in hostvars[box]["__vllm_endpoints"]:
            name = endpoint["container"]
            if containers is None:
                lines.append(f"{box}: {name} unknown, the box cannot be reached")
                continue
            now, before = _serves(containers[name]), _serves(hostvars[box]["__roll_before"][name])
            if not now:
                what = "serves nothing"
            elif now == endpoint["hash"]:
                what = f"serves the new configuration ({now})"
            elif now == before:
                what = f"serves what it served before ({now})"
            else:
                what = f"serves another configuration ({now})"
            lines.append(f"{box}: {name} {what}")
    return lines


def _serves(container):
    """The configuration's hash of an engine that serves, else an empty text."""
    serving = bool(container) and container["running"] and container["active"]
    return container["labels"].get("tandem.config", "unlabelled") if serving else ""


class FilterModule:
    """Ansible's entry point."""

    def filters(self):
        return {
            "lock_others": lock_others,
            "lock_refusal": lock_refusal,
            "lock_takes": lock_takes,
            "roll_interrupts_nobody": roll_interrupts_nobody,
            "roll_serial_of": roll_serial_of,
            "roll_start_time": roll_start_time,
            "roll_states": roll_states,
        }
