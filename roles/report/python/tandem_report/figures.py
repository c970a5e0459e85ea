# SPDX-License-Identifier: Apache-2.0
"""What the page shows: each figure with its chart, its legend, the numbers as a table, and what was expected."""

from __future__ import annotations

from dataclasses import dataclass, field

from markupsafe import Markup

from . import charts
from .charts import Point, Series
from .documents import ACCEPTANCE, DECODE, PREFILL
from .numbers import data, key, minute, said, shown, time

MEASURES = {
    # measure: (its name, how its number is written, its unit)
    DECODE: ("Decode, one stream", "rate", "tok/s"),
    PREFILL: ("Prefill", "rate", "tok/s"),
    ACCEPTANCE: ("MTP acceptance", "percent", ""),
}
OUTCOMES = {"pass": "good", "survived": "good", "fail": "bad", "failed": "bad", "inconclusive": "unsure"}


@dataclass
class Figure:
    """`legend`: (look, name) of each colour; `notes`: sentences, as HTML; `head`, `rows`: the numbers as a table."""

    name: str
    title: str
    simulated: bool
    legend: list = field(default_factory=list)
    charts: list = field(default_factory=list)
    notes: list = field(default_factory=list)
    head: list = field(default_factory=list)
    rows: list = field(default_factory=list)


def expectations(measurement, measures=tuple(MEASURES)):
    """A sentence for each measure of which the profile expects something, with its source."""
    told = []
    for measure in measures:
        value, source = measurement.expected(measure)
        name, kind, unit = MEASURES[measure]
        if value:
            told.append(
                Markup("Expected: {} {}, {}.").format(
                    name.lower().replace("mtp", "MTP"), data(value, kind, unit), said(source)
                )
            )
    return told


def key_measures(name, measurement):
    """The article's first figure: what counts, side by side, each on its own scale."""
    figure = Figure(name, "Key measures", measurement.simulated, head=["", "case", "measured", "before", "expected"])
    labels, measured, before, expected = [], [], [], []
    for measure, (title, kind, unit) in MEASURES.items():
        value, (wanted, _) = measurement.measured(measure), measurement.expected(measure)
        if not value:
            continue
        case = measurement.case(measure)
        earlier = case.verdict.get("before") if case.verdict and measure != ACCEPTANCE else None
        nodes = [value, earlier, wanted]
        scale = max(node.number() for node in nodes if node) or 1
        labels.append(title)
        for points, node in zip((measured, before, expected), nodes, strict=True):
            points.append(Point(node.number() / scale, _text(node, kind, unit)) if node else Point(None))
        figure.rows.append([title, key(case.name), *(data(node, kind, unit) for node in nodes)])
        if measure not in (ACCEPTANCE, measurement.meant(case)):
            told = Markup("{}: of case {}, which no expectation of a profile is about.")
            figure.notes.append(told.format(title, key(case.name)))
    series = [
        Series("measured", "measured", measured),
        Series("before", "before", before),
        Series("expected", "expected", expected),
    ]
    _draw_bars(figure, labels, series)
    figure.notes = expectations(measurement) + figure.notes
    return figure


def throughput(name, measurement):
    """The article's second figure: tokens per second, case by case."""
    figure = Figure(name, "Throughput", measurement.simulated)
    figure.head = ["case", "measured", "requests × at once", "tokens in, out", "verdict"]  # noqa: RUF001 -- times
    for title, wanted in (
        ("Tokens out", lambda figure: figure != PREFILL),
        ("Prompt tokens in", lambda figure: figure == PREFILL),
    ):
        cases = [case for case in measurement.cases if wanted(case.figure)]
        if not cases:
            continue
        points = [Point(case.value.number(), _text(case.value, "rate", "tok/s")) for case in cases]
        series = [Series("measured", "measured", points)]
        part = f"{name}-{len(figure.charts)}"
        drawn = charts.bars(
            part, _titled(f"{title} per second", measurement), [case.name.key for case in cases], series
        )
        figure.charts.append((title, drawn))
        for case in cases:
            recipe, told = case.recipe, case.verdict
            figure.rows.append(
                [
                    key(case.name),
                    data(case.value, "rate", "tok/s"),
                    Markup("{} × {}").format(  # noqa: RUF001 -- times
                        data(recipe.get("requests"), "plain"), data(recipe.get("concurrency"), "plain")
                    ),
                    Markup("{}, {}").format(
                        data(recipe.get("input_tokens"), "plain"), data(recipe.get("output_tokens"), "plain")
                    ),
                    said(told.get("outcome")) if told else "",
                ]
            )
    figure.notes = expectations(measurement, [DECODE, PREFILL])
    figure.notes += [Markup("Skipped: {}, {}.").format(key(case), said(why)) for case, why in measurement.skipped]
    return figure


def acceptance(name, measurement):
    """The article's third figure: the share of drafted tokens that was accepted; None where nothing was drafted."""
    cases = [case for case in measurement.cases if case.acceptance]
    if not cases:
        return None
    figure = Figure(
        name, "MTP acceptance", measurement.simulated, head=["case", "accepted", "tokens per step, each run"]
    )
    wanted, _ = measurement.expected(ACCEPTANCE)
    series = [Series("measured", "measured", [_point(case.acceptance, "percent") for case in cases])]
    if wanted:
        series.append(Series("expected", "expected", [_point(wanted, "percent") for _ in cases]))
    _draw_bars(figure, [case.name.key for case in cases], series)
    for case in cases:
        lengths = Markup(", ").join(data(length) for length in case.length)
        figure.rows.append([key(case.name), data(case.acceptance, "percent"), lengths or "–"])  # noqa: RUF001
    figure.notes = expectations(measurement, [ACCEPTANCE])
    return figure


def profiles(name, measurements):
    """The key measures of several profiles on one box, side by side, each measure on its own scale."""
    figure = Figure(name, "Profiles side by side", any(one.simulated for one in measurements))
    figure.head = ["profile", *(title for title, _, _ in MEASURES.values()), "measured at"]
    series = [Series(one.profile, f"profile-{index % 4}", []) for index, one in enumerate(measurements)]
    labels = []
    for measure, (title, kind, unit) in MEASURES.items():
        values = [one.measured(measure) if one in _alike(measurements, measure) else None for one in measurements]
        if not any(values):
            continue
        labels.append(title)
        scale = max(value.number() for value in values if value) or 1
        for one, value in zip(series, values, strict=True):
            one.points.append(Point(value.number() / scale, _text(value, kind, unit)) if value else Point(None))
    _draw_bars(figure, labels, series)
    figure.legend = [(drawn.look, _profile(one)) for drawn, one in zip(series, measurements, strict=True)]
    for one in measurements:
        figure.rows.append([_profile(one), *_cells(one, measurements), time(one.at)])
    return figure


def change(name, before, after, title="Before and after", sides=("before", "after")):
    """Before and after of a change of configuration, of the cases that both measured; None where there are none."""
    earlier = {case.name.value: case for case in before.cases}
    pairs = [(earlier[case.name.value], case) for case in after.cases if case.name.value in earlier]
    if not pairs:
        return None
    figure = Figure(name, title, before.simulated or after.simulated, head=["case", *sides])
    labels, points = [], ([], [])
    for pair in pairs:
        labels.append(pair[1].name.key)
        scale = max(case.value.number() for case in pair) or 1
        for column, case in zip(points, pair, strict=True):
            column.append(Point(case.value.number() / scale, _text(case.value, "rate", "tok/s")))
        figure.rows.append([key(pair[1].name), *(data(case.value, "rate", "tok/s") for case in pair)])
        if all(case.acceptance for case in pair):
            figure.rows.append(
                [Markup("{}, accepted").format(key(pair[1].name)), *(data(case.acceptance, "percent") for case in pair)]
            )
    looks = ("before", "measured")
    _draw_bars(figure, labels, [Series(*one) for one in zip(sides, looks, points, strict=True)])
    figure.notes = [
        Markup("From {} ({}) to {} ({}).").format(_profile(before), time(before.at), _profile(after), time(after.at))
    ]
    figure.notes += _differences(before, after)
    return figure


def comparison(name, document):
    """A candidate beside what the box served: before and after, the verdict, and each case's change."""
    current, candidate, verdict = document.current, document.candidate, document.root.get("verdict")
    title, sides = "Candidate against current", ("current", "candidate")
    figure = change(name, current, candidate, title, sides)
    # nothing that both measured: the verdict says why
    figure = figure or Figure(name, title, document.simulated, head=["case", *sides])
    figure.head += ["change", "verdict"]
    told = {key(case.name): case.verdict for case in candidate.cases if case.verdict}
    for row in figure.rows:
        of_case = told.get(row[0])
        row += [data(of_case.get("change"), "change"), said(of_case.get("outcome"))] if of_case else ["", ""]
    if document.root.get("rounds"):
        figure.notes.append(Markup("Measured in turns, rounds: {}.").format(data(document.root.get("rounds"), "plain")))
    outcome = Markup('<span class="outcome {}">{}</span>').format(
        verdict.value["outcome"], said(verdict.get("outcome"))
    )
    figure.notes.insert(0, Markup("{} {}").format(outcome, said(verdict.get("reason"))))
    return figure


def against_baseline(name, measurement):
    """What the verdict compared: the baseline's figures and these; None where there was no baseline."""
    compared = [case for case in measurement.cases if case.verdict and case.verdict.get("before")]
    if not compared:
        return None
    figure = Figure(
        name,
        "Against the baseline",
        measurement.simulated,
        head=["case", "before", "after", "change", "allowed", "verdict"],
    )
    labels, before, after = [], [], []
    for case in compared:
        told = case.verdict
        nodes = told.get("before"), told.get("after")
        scale = max(node.number() for node in nodes) or 1
        labels.append(case.name.key)
        for points, node in zip((before, after), nodes, strict=True):
            points.append(Point(node.number() / scale, _text(node, "rate", "tok/s")))
        figure.rows.append(
            [
                key(case.name),
                *(data(node, "rate", "tok/s") for node in nodes),
                data(told.get("change"), "change"),
                Markup("−{}").format(data(told.get("tolerance"), "percent")) if told.get("tolerance") else "",  # noqa: RUF001 -- minus
                said(told.get("outcome")),
            ]
        )
    _draw_bars(figure, labels, [Series("before", "before", before), Series("after", "measured", after)])
    figure.notes = [Markup("Of the runs with the same prompts only: a case's figure of all its runs can differ.")]
    return figure


def history(name, measurements):
    """The key measures over time; None where there is only one point."""
    figure = Figure(name, "History", any(one.simulated for one in measurements))
    figure.head = ["measured at", "profile", *(title for title, _, _ in MEASURES.values()), "verdict"]
    for measure, (title, kind, unit) in MEASURES.items():
        seen = _alike(measurements, measure)
        if len(seen) < 2:
            continue
        points = [_point(one.measured(measure), kind, unit, quiet=one not in (seen[0], seen[-1])) for one in seen]
        series = [Series("measured", "measured", points)]
        wanted = [one.expected(measure)[0] for one in seen]
        if all(wanted):
            series.append(Series("expected", "expected", [_point(node, kind, unit, quiet=True) for node in wanted]))
        labels = [minute(one.at) for one in seen]
        drawn = charts.line(f"{name}-{len(figure.charts)}", _titled(f"{title} over time", *seen), labels, series)
        figure.charts.append((title, drawn))
        figure.legend = [(one.look, one.name) for one in series] if len(series) > len(figure.legend) else figure.legend
    if not figure.charts:
        return None
    for one in measurements:
        row = [time(one.at), _profile(one), *_cells(one, measurements), said(one.verdict.get("outcome"))]
        figure.rows.append(row)
    if len(figure.legend) > 1:
        figure.notes = expectations(measurements[-1])
    return figure


def _draw_bars(figure, labels, series):
    series = [one for one in series if any(point.value is not None for point in one.points)]
    title = f"{figure.title}{', simulated' if figure.simulated else ''}"
    figure.charts = [("", charts.bars(f"{figure.name}-chart", title, labels, series))]
    figure.legend = [(one.look, one.name) for one in series]


def _differences(before, after):
    """The options, image and clock that differ, as sentences."""
    told = []
    for name in ("image", "vllm_version", "driver"):
        nodes = before.result.get("about", name), after.result.get("about", name)
        if all(nodes) and nodes[0].value != nodes[1].value:
            told.append(Markup("{}: {} → {}.").format(nodes[0].key, said(nodes[0]), said(nodes[1])))
    for title, unit, nodes in (
        ("Clock lock", "MHz", [one.result.get("lock_mhz") for one in (before, after)]),
        ("Power limit", "W", [one.power_limit for one in (before, after)]),
    ):
        if len({node and node.value for node in nodes}) > 1:
            values = [data(node, "plain", unit) if node else "none" for node in nodes]
            told.append(Markup("{}: {} → {}.").format(title, *values))
    arguments = [one.result.get("about", "arguments") for one in (before, after)]
    for sign, here, there in (("−", *arguments), ("+", *reversed(arguments))):  # noqa: RUF001 -- minus
        told += [
            Markup("<code>{} {}</code>").format(sign, said(node)) for node in here if node.value not in there.value
        ]
    return told


def _alike(measurements, measure):
    """Those that measured it with the same case as the newest of them: prompts of 2K and of 8K are no history."""
    seen = [one for one in measurements if one.measured(measure)]
    if measure == ACCEPTANCE or not seen:
        return seen
    newest = max(seen, key=lambda one: one.at.value)
    return [one for one in seen if one.case(measure).name.value == newest.case(measure).name.value]


def _cells(measurement, measurements):
    """Each measure beside what is expected; with the case's name where the others' is another."""
    cells = []
    for measure, (_, kind, unit) in MEASURES.items():
        node, (wanted, _) = measurement.measured(measure), measurement.expected(measure)
        cell = data(node, kind, unit)
        if wanted:
            cell = Markup("{} <small>of {}</small>").format(cell, data(wanted, kind))
        if node and measurement not in _alike(measurements, measure):
            cell = Markup("{} <small>{}</small>").format(cell, key(measurement.case(measure).name))
        cells.append(cell)
    return cells


def _profile(measurement):
    node = measurement.result.get("profile")
    return said(node) if node else Markup("no profile")


def _text(node, kind, unit=""):
    return f"{shown(node, kind)} {unit}".strip()


def _point(node, kind, unit="", quiet=False):
    return Point(node.number(), _text(node, kind, unit), quiet)


def _titled(title, *measurements):
    return f"{title}{', simulated' if any(one.simulated for one in measurements) else ''}"
