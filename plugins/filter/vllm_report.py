# SPDX-License-Identifier: Apache-2.0
"""Verdicts and fit as lines for a reader: pure functions."""

from __future__ import annotations

import json

WORDS = {"refuse": "REFUSED", "warn": "WARNING", "advise": "advice", "note": "note"}


def vllm_lines(verdicts, severities=None):
    """A line for each of `verdicts` (of vllm_verdicts), or only for those of `severities`, a list."""
    lines = []
    for verdict in verdicts:
        if severities and verdict["severity"] not in severities:
            continue
        word = "acknowledged" if verdict["acknowledged"] else WORDS[verdict["severity"]]
        lines.append(
            f"{word} [{verdict['id']}] {verdict['says']}. Way out: {verdict['way_out']}. Source: {verdict['source']}"
        )
    return lines


def vllm_summary(judgements):
    """Lines for all boxes; a configuration that several boxes share is told once.

    judgements  dicts with `box`, `profile`, `image`, `verdicts` and `fit` (its sentence)
    """
    lines = []
    for boxes, told in _distinct(judgements):
        lines.append(f"{', '.join(boxes)}: {told['profile']}, {told['image']}")
        lines += [f"  {line}" for line in vllm_lines(told["verdicts"])]
        lines.append(f"  fit: {told['fit']}")
    return lines


def vllm_refusal(judgements):
    """One text with every refusal, each configuration once, or an empty text when there is none."""
    lines = []
    for boxes, told in _distinct(judgements):
        refused = vllm_lines(told["verdicts"], ["refuse"])
        if refused:
            lines.append(f"{', '.join(boxes)}: {told['profile']} ({told['image']}) is refused; nothing was changed.")
            lines += [f"- {line}" for line in refused]
            ids = sorted({verdict["id"] for verdict in told["verdicts"] if verdict["severity"] == "refuse"})
            lines.append(f"  If you know better: vllm_acknowledge: {json.dumps(ids)}")
    return "\n".join(lines)


def vllm_table(rows):
    """Lines of a table of profiles.

    `rows` are dicts with `profile`, `description`, `verdicts` and `fit` (a vllm_fit). The numbers are: requests of 8K
    tokens that fit at once, the set max-model-len, requests of that length.
    """
    table = [("profile", "verdict", "8K requests", "max length", "of max length", "description")]
    for row in rows:
        fit = row["fit"]
        known = fit["known"] and fit["concurrency"] is not None
        worst = row["verdicts"][0]["severity"] if row["verdicts"] else "note"
        ids = list(dict.fromkeys(verdict["id"] for verdict in row["verdicts"] if verdict["severity"] == worst))
        verdict = {"refuse": "refused", "warn": "warned", "advise": "advised"}.get(worst, "well")
        table.append(
            (
                row["profile"],
                f"{verdict} ({', '.join(ids)})" if worst != "note" else verdict,
                str(fit["requests"].get(8192, "?")) if known else "?",
                f"{fit['length']:,}" if known else "?",
                f"{fit['concurrency']:.2f}" if known else "?",
                row["description"],
            )
        )
    widths = [max(len(line[column]) for line in table) for column in range(5)]
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[5]]).rstrip()
        for line in table
    ]


def vllm_reasons(rows):
    """Lines with each distinct verdict on `rows` (of vllm_table) and the profiles that it is about."""
    told = {}
    for row in rows:
        for line in vllm_lines(row["verdicts"]):
            told.setdefault(line, []).append(row["profile"])
    return [f"{line}\n    ({', '.join(profiles)})" for line, profiles in told.items()]


def _distinct(judgements):
    """(boxes, judgement) for each distinct configuration and what is said of it, in the order of the boxes."""
    told = {}
    for judgement in judgements:
        key = json.dumps({name: value for name, value in judgement.items() if name != "box"}, sort_keys=True)
        told.setdefault(key, ([], judgement))[0].append(judgement["box"])
    return list(told.values())


class FilterModule:
    """Ansible's entry point."""

    def filters(self):
        return {
            "vllm_summary": vllm_summary,
            "vllm_refusal": vllm_refusal,
            "vllm_table": vllm_table,
            "vllm_reasons": vllm_reasons,
        }
