# SPDX-License-Identifier: Apache-2.0
"""What lies under reports/: which file is what, and the few shapes that the page is drawn from."""

from __future__ import annotations

import json
from typing import NamedTuple

from .numbers import Node

# The measures that a profile's `expects` speaks of, and how they are told.
DECODE, PREFILL, ACCEPTANCE = "decode_tok_s", "prefill_tok_s", "acceptance"


class Case(NamedTuple):
    """One case of a measurement; every field but the first two is a Node, or None where the file has nothing."""

    name: Node
    figure: str
    value: Node
    acceptance: Node | None
    length: list
    recipe: Node
    verdict: Node | None


class Measurement(NamedTuple):
    """One engine, measured once (roles/bench/files/bench.schema.json)."""

    result: Node
    verdict: Node
    expects: Node | None
    cases: list
    skipped: list

    @property
    def box(self):
        return self.result.value["box"]

    @property
    def engine(self):
        return self.result.value["engine"]

    @property
    def profile(self):
        return self.result.value.get("profile") or "no profile"

    @property
    def at(self):
        return self.result.get("at")

    @property
    def simulated(self):
        return bool(self.result.value["simulated"])

    @property
    def configuration(self):
        """What a change is told of: the engine's configuration, and what its cards are set to, which no hash knows."""
        result = self.result.value
        return (
            result["about"].get("hash") or tuple(result["about"]["arguments"]),
            result["lock_mhz"],
            self.power_limit and self.power_limit.value,
        )

    @property
    def power_limit(self):
        """Of each card, or None where nobody set one."""
        limit = self.result.get("about", "clocks", "power_limit_w")
        return limit if limit and limit.number() is not None else None

    def case(self, measure):
        """The case that the profile's expectation of `measure` is about, else the first of its kind."""
        if measure == ACCEPTANCE:
            return next((case for case in self.cases if case.acceptance), None)
        of_kind = [case for case in self.cases if case.figure == measure]
        meant = [case for case in of_kind if self.meant(case) == measure]
        return next(iter(meant + of_kind), None)

    def measured(self, measure):
        case = self.case(measure)
        return case and (case.acceptance if measure == ACCEPTANCE else case.value)

    def meant(self, case):
        """The measure of the profile's expectation that is about this case, or None."""
        return self.result.value["cases"][case.name.value]["expects"]

    def expected(self, measure):
        """(value, source), nodes, of the profile's expectation, or (None, None).

        So too where what was measured is another case: the report's prefill peak says nothing about a prompt of 2K.
        """
        case = self.case(measure)
        if measure != ACCEPTANCE and not (case and self.meant(case) == measure):
            return None, None
        if self.expects:
            return self.expects.get(measure, "value"), self.expects.get(measure, "source")
        told = None if measure == ACCEPTANCE else case.verdict
        return (told.get("expected"), told.get("source")) if told else (None, None)


class Run(NamedTuple):
    """A clock search, or a stress run (the schemas in roles/find_clock/files and roles/stress/files)."""

    root: Node
    box: str
    simulated: bool
    at: Node


class Comparison(NamedTuple):
    """A candidate beside what the box served (roles/bench/files/compare.schema.json)."""

    root: Node
    box: str
    simulated: bool
    at: Node
    current: Measurement
    candidate: Measurement


class Documents(NamedTuple):
    """Everything that was read, each list in the order of time; `unknown`: (file, why) of what was not understood."""

    files: list
    measurements: list
    comparisons: list
    searches: list
    stresses: list
    unknown: list

    @property
    def everything(self):
        return [*self.measurements, *self.comparisons, *self.searches, *self.stresses]


def parse(texts):
    """Documents of {path below the folder: text}."""
    found = Documents([], [], [], [], [], [])
    for file, text in sorted(texts.items()):
        try:
            root = Node(json.loads(text), file)
            _sort_in(root, found)
            found.files.append(root)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            found.unknown.append((file, f"{type(error).__name__}: {error}"))
    for one in (found.measurements, found.comparisons, found.searches, found.stresses):
        one.sort(key=lambda document: (document.at.value, document.box))
    return found


def _sort_in(root, found):
    if not isinstance(root.value, dict):
        raise ValueError("not an object")
    kind = root.value.get("kind", "bench" if "engines" in root.value else None)
    if kind == "bench":
        # all of them, or none of the file
        found.measurements.extend(
            [_measurement(entry, entry.get("verdict")) for _, entry in root.get("engines").items()]
        )
    elif kind == "compare":
        # neither is a measurement of the box as it serves: they stand in no history
        current, candidate = (_measurement(root.get(side), root.get("verdict")) for side in ("current", "candidate"))
        simulated = current.simulated or candidate.simulated
        found.comparisons.append(Comparison(root, candidate.box, simulated, _there(root, "at"), current, candidate))
    elif kind == "find_clock":
        found.searches.append(
            Run(
                root,
                root.value["box"]["name"],
                bool(root.value["box"]["simulated"]),
                root.get("finished") or _there(root, "started"),
            )
        )
    elif kind == "stress":
        simulated = bool(root.value["result"]["simulated"])
        found.stresses.append(Run(root, _name(root.value["box"]), simulated, _there(root, "result", "started")))
    else:
        raise ValueError("neither a measurement nor a comparison nor a clock search nor a stress run")


def _name(box):
    return box["name"] if isinstance(box, dict) else box


def _there(node, *keys):
    found = node.get(*keys)
    if found is None:
        raise ValueError(f"it has no {'.'.join(keys)}")
    return found


def _measurement(entry, verdict):
    result = entry.get("result")
    cases, skipped = [], []
    for name, case in result.get("cases").items():
        if "skipped" in case.value:
            skipped.append((Node(name, case.file, case.pointer), case.get("skipped")))
            continue
        cases.append(
            Case(
                name=Node(name, case.file, case.pointer),
                figure=case.value["recipe"]["figure"],
                value=case.get("value"),
                acceptance=case.get("acceptance"),
                length=[length for run in case.get("runs") if (length := run.get("acceptance_length"))],
                recipe=case.get("recipe"),
                verdict=verdict.get("figures", name),
            )
        )
    # the file is sorted by name; a reader wants 2K before 32K, one stream before sixteen
    kinds = [DECODE, "throughput_tok_s", PREFILL]
    cases.sort(
        key=lambda case: (
            kinds.index(case.figure),
            case.recipe.value["concurrency"],
            case.recipe.value["input_tokens"] or 0,
            case.name.value,
        )
    )
    made = Measurement(result, verdict, entry.get("expects"), cases, skipped)
    # what is missing shows here, not in the middle of the page
    _ = made.box, made.engine, made.simulated, made.configuration, made.at.value, verdict.value["outcome"]
    return made
