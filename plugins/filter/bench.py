# SPDX-License-Identifier: Apache-2.0
"""Measurements as data: one result out of what a box said, the baseline that is kept, lines for a reader. Pure."""

from __future__ import annotations

import base64
import json
import statistics

FORMAT = 1
#: How many configurations' baselines a box keeps: enough to go back and forth, few enough to read.
KEPT = 8


def bench_outputs(results):
    """The `outputs` of bench_result out of a task's results, one per case: what could not be measured is skipped."""
    return {one["item"]: json.loads(one["stdout"]) if one["rc"] == 0 else _unmeasured(one) for one in results}


def _unmeasured(one):
    """With the program's sentence, and the last of the client's lines, which is what went wrong."""
    lines = one["stderr"].strip().splitlines() or ["it said nothing"]
    return {"skipped": "could not be measured: " + " ".join(dict.fromkeys([lines[0], lines[-1]]))}


def bench_result(outputs, recipes, box, endpoint, at, tandem=None):
    """One result (roles/bench/files/bench.schema.json, `result`) of what bench-run printed.

    outputs   {case: what bench-run printed for it, or {skipped: reason}}, of at least one there is an output
    recipes   {case: {recipe, expects}} of the role
    endpoint  the engine's entry of __vllm_endpoints
    at        when, ISO 8601
    tandem    the commit of this project, or None
    """
    measured = next(output for output in outputs.values() if "about" in output)
    about = measured["about"]
    cases = {}
    for name, output in outputs.items():
        if "skipped" in output:
            cases[name] = {"skipped": output["skipped"]}
            continue
        runs = output["runs"]
        acceptance = [run["acceptance"] for run in runs if run["acceptance"] is not None]
        cases[name] = {
            # as the same name may stand for other texts tomorrow
            "recipe": {**recipes[name]["recipe"], "prompts_sha256": output["prompts_sha256"]},
            "expects": recipes[name]["expects"],
            "value": statistics.median(run["value"] for run in runs),
            "acceptance": statistics.median(acceptance) if acceptance else None,
            "runs": runs,
        }
    return {
        "format": FORMAT,
        "box": box,
        "engine": endpoint["engine"],
        # of what runs: an inventory that was changed and not yet rolled out says nothing about it, the box may
        "profile": endpoint.get("profile") if about["hash"] == endpoint.get("hash") else measured["profile"],
        "at": at,
        "seconds": round(sum(run["seconds"] for case in cases.values() for run in case.get("runs", [])), 1),
        "simulated": about["simulated"],
        "lock_mhz": _lock(about["clocks"] or {}),
        "tandem": tandem,
        "about": about,
        "cases": cases,
    }


def bench_baseline(stored, result, replace=False):
    """The content of the baseline's file with `result` in it. `stored` is what the file held, or None.

    {format, engine, latest: hash, results: {hash: result}}: `latest` is the configuration that was measured last. Of a
    configuration that has a baseline already only new cases and new runs are added, so that a baseline does not sink
    with each fall that was still allowed; `replace` puts the new measurement in place of the old one's cases. With
    another clock or power limit everything earlier of it is replaced: it is no measure any more.
    """
    results = dict((stored or {}).get("results") or {})
    name = result["about"]["hash"] or "unlabelled"
    earlier = results.pop(name, None)
    if earlier and _clocks(earlier) != _clocks(result):
        earlier = None
    cases = dict(earlier["cases"]) if earlier else {}
    for case, told in result["cases"].items():
        if "skipped" not in told:
            comparable = case in cases and cases[case]["recipe"] == told["recipe"]
            cases[case] = _more_runs(cases[case], told) if comparable and not replace else told
    results[name] = {**(result if replace or not earlier else earlier), "cases": cases}
    kept = dict(list(results.items())[-KEPT:])
    return {"format": FORMAT, "engine": result["engine"], "latest": name, "results": kept}


def _lock(clocks):
    """Unlocked cards keep the clock that they would be locked to in their settings."""
    return clocks.get("max_mhz") if clocks.get("state", "locked") == "locked" else None


def _clocks(result):
    return result["lock_mhz"], (result["about"]["clocks"] or {}).get("power_limit_w")


def _more_runs(old, new):
    """`old` with those runs of `new` that have other prompts."""
    runs = {run["seed"]: run for run in [*new["runs"], *old["runs"]]}
    runs = [runs[seed] for seed in sorted(runs)]
    return {**old, "runs": runs, "value": statistics.median(run["value"] for run in runs)}


def bench_stored(read):
    """What a baseline's file holds, out of slurp's result; None for none, for a damaged one and for another format.

    Of its results those are left out that are not as bench_baseline writes them.
    """
    try:
        stored = json.loads(base64.b64decode((read or {})["content"]).decode())
        if stored["format"] != FORMAT or not isinstance(stored["latest"], str):
            return None
        return {**stored, "results": {name: one for name, one in stored["results"].items() if _is_result(one)}}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _is_result(one):
    try:
        cases = one["cases"].values()
        return all(
            "value" in case and isinstance(case["recipe"], dict) and isinstance(case["runs"], list) for case in cases
        ) and (isinstance(_clocks(one), tuple))
    except (KeyError, TypeError, AttributeError):
        return False


def bench_before(stored):
    """The result of the configuration that was measured last, out of a baseline's file or None."""
    return ((stored or {}).get("results") or {}).get((stored or {}).get("latest"))


def bench_compares(stored, case, recipe, clocks):
    """Whether a baseline's file, or None, has a measure for `case` of a box whose cards are set to `clocks` now.

    recipe  what would be measured, with prompts_sha256
    clocks  /etc/tandem/gpu-clocks.json of the box, or None
    """
    latest, clocks = bench_before(stored), clocks or {}
    if not latest or case not in latest["cases"]:
        return False
    same_recipe = latest["cases"][case]["recipe"] == recipe
    return same_recipe and _clocks(latest) == (_lock(clocks), clocks.get("power_limit_w"))


def bench_not_as_wished(endpoints, containers):
    """Names out of `containers` (of host_info) that do not serve the configuration that the inventory says."""
    told = []
    for endpoint in endpoints:
        found = containers.get(endpoint["container"]) or {}
        serves = (found.get("running") and found.get("active")) and found["labels"].get("tandem.config")
        if serves != endpoint["hash"]:
            told.append(endpoint["container"])
    return told


def bench_too_slow(engines):
    """A sentence for each engine of a report (bench.schema.json, `engines`) whose verdict is fail."""
    told = []
    for name, said in engines.items():
        if said["verdict"]["outcome"] == "fail":
            marked = " (simulated figures)" if said["result"]["simulated"] else ""
            told.append(f"{name} is too slow: {said['verdict']['reason']}{marked}")
    return told


def bench_lines(result, verdict):
    """Lines for a reader: what was measured on one engine, and what is thought of it."""
    runs = [run for case in result["cases"].values() for run in case.get("runs", [])]
    marked = ", simulated figures" if result["simulated"] else ""
    profile, version = result["profile"] or "no profile", result["about"]["vllm_version"]
    counted = f"{len(runs)} {'run' if len(runs) == 1 else 'runs'} in {result['seconds']:.0f} s"
    lines = [f"{result['box']} {result['engine']}: {profile}, vLLM {version}, {counted}{marked}"]
    for name, case in result["cases"].items():
        if "skipped" in case:
            lines.append(f"  {name:<14} skipped: {case['skipped']}")
            continue
        told = (verdict or {}).get("figures", {}).get(name, {})
        lines.append(
            f"  {name:<14} {case['value']:9.1f} tok/s  {_first(case):<24} {_cards(case):<44} {told.get('outcome', '')}"
        )
    if verdict:
        lines.append(f"  {verdict['outcome']}: {verdict['reason']}")
    return [line.rstrip() for line in lines]


def _first(case):
    """Time to the first token and, where there is speculation, acceptance."""
    ttft = statistics.median(run["ttft_ms"]["median"] for run in case["runs"])
    accepted = "" if case["acceptance"] is None else f", {case['acceptance']:.0%} accepted"
    return f"first {ttft / 1000:.2f} s{accepted}"


def _cards(case):
    """Clock, power and temperature over all cards and runs."""
    seen = [gpu for run in case["runs"] for gpu in run["gpus"]]
    if not seen:
        return "cards not seen"
    clock = [f(gpu["sm_mhz"][key] for gpu in seen) for f, key in ((min, "min"), (max, "max"))]
    power, heat = max(gpu["power_w"]["max"] for gpu in seen), max(gpu["temperature_c"]["max"] for gpu in seen)
    return f"{clock[0]:g}-{clock[1]:g} MHz, up to {power:.0f} W, {heat:g} C"


class FilterModule:
    """Ansible's entry point."""

    def filters(self):
        return {
            "bench_outputs": bench_outputs,
            "bench_result": bench_result,
            "bench_baseline": bench_baseline,
            "bench_stored": bench_stored,
            "bench_before": bench_before,
            "bench_compares": bench_compares,
            "bench_not_as_wished": bench_not_as_wished,
            "bench_too_slow": bench_too_slow,
            "bench_lines": bench_lines,
        }
