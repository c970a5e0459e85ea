# SPDX-License-Identifier: Apache-2.0
"""What a roll decides and what it says: pure functions."""

from __future__ import annotations

import base64
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
    """Whether any box can leave service and no client notices: there are gateways, and the others' engines are enough.

    `gateway_min_up` is the gateways' own, as role gateway's drain reads it, and 1 where they do not say. It counts
    engines; one of another box there must be even where it is 0.
    """
    gateways, boxes = groups.get("gateways", []), groups["gpu_boxes"]
    least = max([1, *(int(hostvars[gateway].get("gateway_min_up", 1)) for gateway in gateways)])
    # of a box outside --limit only that it is there is known
    engines = [len(hostvars.get(box, {}).get("__vllm_endpoints") or [None]) for box in boxes]
    return bool(gateways) and sum(engines) - max(engines) >= least


def roll_serial_of(groups):
    """Ansible's `serial` out of the names of `groups` in which the plan has left it, or None."""
    names = sorted(name for name in groups if name.startswith("tandem_serial_"))
    return [name.split("_")[3].replace("percent", "%") for name in names] or None


def roll_start_time(lines):
    """How long engines took to start and to get warm; `lines` are what vllm-wait-ready wrote, JSON each."""
    starts = [start for start in map(_start, lines) if start]
    if not starts:
        return "no engine has started in this boot"
    parts = (f"{s['ready_s'] + s['warm_s']:.0f} s ({s['warm_s']:.0f} s of it to warm up)" for s in starts)
    return "the start of the engine took " + ", ".join(parts)


def _start(line):
    """A line of vllm-wait-ready, or None for one that is damaged."""
    try:
        start = json.loads(line)
        return {name: float(start[name]) for name in ("ready_s", "warm_s")}
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def roll_mark(read):
    """What the mark of an unfinished change says, {} for none, out of slurp's result. A damaged one is a mark."""
    if not read or read.get("skipped"):
        return {}
    try:
        mark = json.loads(base64.b64decode(read["content"]).decode())
    except (ValueError, KeyError, TypeError, RecursionError):
        mark = None
    return mark if isinstance(mark, dict) and mark else {"who": "unknown"}


def roll_failure(result):
    """What `ansible_failed_result` says went wrong: a command's own words, or those of each item that failed."""
    failed = [item for item in result.get("results") or [] if item.get("failed") or item.get("unreachable")]
    texts = []
    for item in failed or [result]:
        # Ansible's "non-zero return code" says nothing; over a terminal `script` has all words on standard output
        wordless = item.get("rc") or item.get("msg") == "non-zero return code"
        said = [item.get("stderr"), item.get("stdout")] if wordless else []
        text = next((str(text).strip() for text in [*said, item.get("msg")] if text and str(text).strip()), "")
        if text and text not in texts:
            texts.append(text)
    return "; ".join(texts) or "it did not say why; its output is above"


def roll_not_up(gateways, box, endpoints):
    """Sentences about engines of `box` that a gateway does not send requests; arguments as of roll_states."""
    problems = []
    for asked in gateways:
        gateway = asked["item"]
        if "servers" not in asked:
            problems.append(f"{gateway} cannot be asked")
            continue
        for endpoint in endpoints:
            name = f"{box}-{endpoint['engine']}"
            now = _on_gateway(asked, name)
            # one that somebody drained on purpose is no surprise
            if now.get("status", "unknown") != "UP" and now.get("admin") != "drain":
                problems.append(f"{name} is {now.get('status', 'unknown')} on {gateway}")
    return problems


def roll_states(looks, hostvars, gateways=()):
    """A line for each engine of the roll: what its box serves now, and what the gateways think of it.

    looks     results of the module host_info, one for each box (`item`), asked for the containers of its engines
    hostvars  by box: `__vllm_endpoints`, what was wanted, and `__roll_before`, the containers before the roll
    gateways  results of the module gateway_server, one for each gateway (`item`)
    """
    lines = []
    for look in looks:
        box = look["item"]
        containers = (look.get("host_info") or {}).get("containers")
        for endpoint in hostvars[box]["__vllm_endpoints"]:
            name = endpoint["container"]
            if containers is None:
                what = "unknown, the box cannot be reached"
            else:
                now, before = _serves(containers[name]), _serves(hostvars[box]["__roll_before"][name])
                if not now:
                    what = "serves nothing"
                elif now == endpoint["hash"]:
                    what = f"serves the new configuration ({now})"
                elif now == before:
                    what = f"serves what it served before ({now})"
                else:
                    what = f"serves another configuration ({now})"
            server = f"{box}-{endpoint['engine']}"
            seen = [f"{_on_gateway(asked, server).get('status', 'unknown')} on {asked['item']}" for asked in gateways]
            lines.append(", ".join([f"{box}: {name} {what}", *seen]))
    return lines


def roll_back_engines(endpoints, containers, kept):
    """What roll_back_targets wants of a box.

    endpoints   `__vllm_endpoints`
    containers  as module host_info found them
    kept        what `vllm-last-good status` printed, or an empty text
    """
    about = json.loads(kept or "{}")
    engines = []
    for endpoint in endpoints:
        runs = ((containers.get(endpoint["container"]) or {}).get("labels") or {}).get("tandem.config", "")
        its = about.get(endpoint["engine"]) or {}
        # as role vllm: where something else runs than what was seen to work, that was cut short and goes first
        target = its.get("previous") if runs and runs == (its.get("current") or {}).get("hash") else its.get("current")
        engines.append({"unit": endpoint["unit"], "runs": runs, "target": target})
    return engines


def roll_back_targets(boxes):
    """{go, stay, lines, problem}: which boxes a rollback is about, and what to say of each.

    boxes  by name, of roll_back_engines: each engine's unit, the hash that it runs, and an about.json or None

    After a roll that stopped, some boxes serve already what the others go back to: going back with them too would take
    them a step further than anybody means. They are left alone, unless the boxes are each other's target.
    """
    runs = {box: [engine["runs"] for engine in engines] for box, engines in boxes.items()}
    targets = {box: [(engine["target"] or {}).get("hash") for engine in engines] for box, engines in boxes.items()}
    stay = [box for box in boxes if any(runs[box] == targets[other] for other in boxes if other != box)]
    go = [box for box in boxes if box not in stay]
    lines = []
    for box, engines in boxes.items():
        for engine in engines:
            target = engine["target"] or {}
            where = "nothing to go back to"
            if box in stay and go:
                where = "already what others go back to, left alone"
            elif target:
                known = f"profile {target['profile']}, {target['image']}, found to work {target['since']}"
                where = f"back to {target['hash']}, {known}"
            lines.append(f"{box}: {engine['unit']} serves {engine['runs'] or 'nothing'}; {where}")
    empty = [box for box in go if not all(targets[box])]
    problem = ""
    if boxes and not go:
        problem = "each of these boxes serves what another would go back to. Say which is meant with --limit"
    elif empty:
        problem = (
            f"{', '.join(empty)} has no earlier configuration that was seen to work; one is kept from the second "
            "change on. Leave it out with --limit"
        )
    return {"go": go, "stay": stay, "lines": lines, "problem": problem}


def _on_gateway(asked, server):
    """How a result of the module gateway_server has `server`: {status, admin, ...}, or {}."""
    return ((asked.get("servers") or {}).get(server) or {}).get("after") or {}


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
            "roll_back_engines": roll_back_engines,
            "roll_back_targets": roll_back_targets,
            "roll_failure": roll_failure,
            "roll_mark": roll_mark,
            "roll_interrupts_nobody": roll_interrupts_nobody,
            "roll_not_up": roll_not_up,
            "roll_serial_of": roll_serial_of,
            "roll_start_time": roll_start_time,
            "roll_states": roll_states,
        }
