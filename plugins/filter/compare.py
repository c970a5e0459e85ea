# SPDX-License-Identifier: Apache-2.0
"""Filters of playbooks/compare.yml: a candidate beside the configuration that a box serves. Pure."""

from __future__ import annotations

import difflib
import statistics

#: What a candidate may change: what an engine is, not where it listens or which cards it has.
SETTINGS = ("vllm_profile", "vllm_image", "vllm_image_digest", "vllm_args", "vllm_env", "vllm_model")
#: Runs of the n-th round have seed ROUND * n + their own, so that pairs are made within a round.
ROUND = 100
BAR = 30


def compare_findings(candidate):
    """What is wrong with the variable `candidate`, as sentences; empty where nothing is."""
    example = '-e \'{"candidate": {"vllm_image": "vllm/vllm-openai:v0.33.0"}}\''
    if not isinstance(candidate, dict) or not candidate:
        return [f"candidate must be a dict of what is to be tried, any of {', '.join(SETTINGS)}; for example {example}"]
    told = []
    for name in sorted(set(candidate) - set(SETTINGS)):
        near = difflib.get_close_matches(str(name), SETTINGS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"it may have {', '.join(SETTINGS)}."
        told.append(f"candidate has {name}, which is nothing that can be tried: {hint}")
    for name in ("vllm_args", "vllm_env"):
        if not isinstance(candidate.get(name, {}), dict):
            told.append(f"{name} of the candidate is {candidate[name]!r}; it must be a dict, as in the inventory.")
    for name in sorted(set(SETTINGS) & set(candidate) - {"vllm_args", "vllm_env"}):
        if not isinstance(candidate[name], str) or not candidate[name]:
            told.append(f"{name} of the candidate is {candidate[name]!r}; it must be a text.")
    return told


def compare_engines(engines, name, candidate):
    """The list vllm_engines with `candidate` laid over the engine `name`; arguments and environment by key.

    An engine's own keys win over the role's variables, so this is a candidate whatever the inventory says.
    """
    return [_laid_over(engine, candidate) if engine["name"] == name else engine for engine in engines]


def _laid_over(engine, candidate):
    made = dict(engine)
    if "vllm_image" in candidate:
        # a digest belongs to the image that it was set beside
        made.pop("image_digest", None)
    for setting, value in candidate.items():
        key = setting.removeprefix("vllm_")
        # null removes, as in vllm_args, so it has to stay
        made[key] = {**(made.get(key) or {}), **value} if key in ("args", "env") else value
    return made


def compare_settings(candidate):
    """`candidate` for a report that others read: of its environment the names alone, as a value may be a token."""
    told = dict(candidate)
    if "vllm_env" in told:
        told["vllm_env"] = sorted(told["vllm_env"])
    return told


def compare_pool(results):
    """One result (bench.schema.json, `result`) of those of several rounds, measured with the same configuration."""
    if len({result["about"]["hash"] for result in results}) > 1:
        hashes = ", ".join(str(result["about"]["hash"]) for result in results)
        raise ValueError(f"the rounds measured different configurations: {hashes}")
    cases = {}
    for name in results[0]["cases"]:
        told = [result["cases"][name] for result in results]
        if any("skipped" in case for case in told):
            cases[name] = next(case for case in told if "skipped" in case)
            continue
        runs = [{**run, "seed": ROUND * index + run["seed"]} for index, case in enumerate(told) for run in case["runs"]]
        acceptance = [run["acceptance"] for run in runs if run["acceptance"] is not None]
        cases[name] = {
            **told[0],
            "value": statistics.median(run["value"] for run in runs),
            "acceptance": statistics.median(acceptance) if acceptance else None,
            "runs": runs,
        }
    seconds = round(sum(result["seconds"] for result in results), 1)
    return {**results[-1], "seconds": seconds, "cases": cases}


def compare_lines(document):
    """Lines for a reader of a comparison (roles/bench/files/compare.schema.json), its bars included."""
    current, candidate = (document[side]["result"] for side in ("current", "candidate"))
    verdict = document["verdict"]
    marked = "; simulated figures" if document["simulated"] else ""
    lines = [
        f"{document['box']} {document['engine']}: current against candidate, {_rounds(document['rounds'])}{marked}",
        f"  current    {_about(current)}",
        f"  candidate  {_about(candidate)}",
    ]
    for name, case in candidate["cases"].items():
        before = current["cases"].get(name, {"skipped": "it was not measured with the current configuration"})
        skipped = case.get("skipped") or before.get("skipped")
        if skipped:
            lines.append(f"  {name}: skipped, {skipped}")
            continue
        figure = verdict["figures"][name]
        most = max(before["value"], case["value"]) or 1
        change = "" if figure["change"] is None else f" {figure['change']:+.1%}"
        lines.append(f"  {name}: {figure['outcome']}{change}")
        for label, side in (("current", before), ("candidate", case)):
            bar = "#" * round(BAR * side["value"] / most)
            accepted = "" if side["acceptance"] is None else f", {side['acceptance']:.0%} accepted"
            lines.append(f"    {label:<10} {bar:<{BAR}} {side['value']:8.1f} tok/s{accepted}")
    lines.append(f"  {verdict['outcome']}: {verdict['reason']}")
    return lines


def _rounds(number):
    return f"{number} round{'' if number == 1 else 's'}, in turns"


def _about(result):
    about = result["about"]
    return f"{result['profile'] or 'no profile'}, {about['image']}, vLLM {about['vllm_version']}, {about['hash']}"


class FilterModule:
    """Ansible's entry point."""

    def filters(self):
        return {
            "compare_findings": compare_findings,
            "compare_engines": compare_engines,
            "compare_pool": compare_pool,
            "compare_settings": compare_settings,
            "compare_lines": compare_lines,
        }
