# SPDX-License-Identifier: Apache-2.0
"""Figures of the clock search and of stress runs (roles/find_clock, roles/stress)."""

from __future__ import annotations

from markupsafe import Markup

from . import charts
from .charts import Point, Series
from .figures import Figure
from .numbers import data, said, shown, time

LOOKS = {"survived": "curve", "failed": "bad", "inconclusive": "expected"}


def search(name, document):
    """The clock search: speed and power at each clock, what survived and what did not, and what it proposes."""
    root = document.root
    title = "Highest stable clock"
    figure = Figure(name, title, document.simulated)
    figure.head = [
        "step",
        "tried",
        "run",
        "outcome",
        "prefill, tok/s",
        "decode, tok/s",
        "highest power, W",
        "what happened",
    ]
    steps = list(root.get("steps"))
    clocks = [step for step in steps if step.value["kind"] == "clock"]
    curves = (
        ("Prefill speed by clock", lambda step: step.get("speeds", "prefill_tok_s"), "rate", "tok/s"),
        ("Decode speed by clock", lambda step: step.get("speeds", "decode_tok_s"), "rate", "tok/s"),
        ("Highest power of a card by clock", _highest_power, "plain", "W"),
    )
    marked = {key: root.get("result", key) for key in ("highest_mhz", "lowest_failed_mhz", "proposed_mhz")}
    for said_of, value_of, kind, unit in curves:
        drawn = _curve(f"{name}-{len(figure.charts)}", said_of, document, clocks, marked, value_of, kind, unit)
        if drawn:
            figure.charts.append((said_of, drawn))
    limits = [step for step in steps if step.value["kind"] == "power" and step.get("speeds", "prefill_tok_s")]
    if limits:
        speeds = [step.get("speeds", "prefill_tok_s") for step in limits]
        points = [
            Point(node.number(), f"{shown(node)} tok/s, {step.value['outcome']}")
            for step, node in zip(limits, speeds, strict=True)
        ]
        series = [Series("prefill", "measured", points)]
        labels = [f"{shown(step.get('power_limit_w'), 'plain')} W" for step in limits]
        said_of = "Prefill speed by power limit, clocks free"
        drawn = charts.bars(f"{name}-{len(figure.charts)}", _titled(said_of, document), labels, series)
        figure.charts.append((said_of, drawn))
    seen = {step.value["outcome"] for step in steps}
    figure.legend = [(LOOKS[outcome], outcome) for outcome in LOOKS if outcome in seen]
    if "failed" in seen and figure.charts:
        figure.notes.append(Markup("A step without a figure of its own stands at the bottom of its curve."))
    if marked["proposed_mhz"]:
        figure.notes.append(
            Markup("<strong>Proposed: {}</strong>, {} below the highest that survived ({}).").format(
                data(marked["proposed_mhz"], "plain", "MHz"),
                data(root.get("result", "margin_mhz"), "plain", "MHz"),
                data(marked["highest_mhz"], "plain", "MHz"),
            )
        )
    figure.notes += [said(root.get("result", "says"))] if root.get("result") else [Markup("The search is under way.")]
    settings = root.get("settings")
    figure.notes.append(
        Markup("Searched from {} to {}, begun {}.").format(
            data(settings.get("low_mhz"), "plain"),
            data(settings.get("high_mhz"), "plain", "MHz"),
            time(root.get("started")),
        )
    )
    for step in steps:
        tried = ("max_mhz", "MHz") if step.value["kind"] == "clock" else ("power_limit_w", "W")
        figure.rows.append(
            [
                data(step.get("number"), "plain"),
                data(step.get(tried[0]), "plain", tried[1]),
                data(step.get("try"), "plain"),
                _outcome(step.get("outcome")),
                data(step.get("speeds", "prefill_tok_s")),
                data(step.get("speeds", "decode_tok_s")),
                data(_highest_power(step), "plain"),
                said(step.get("says")),
            ]
        )
    return figure


def _curve(name, title, document, steps, marked, value_of, kind, unit):
    """One curve over the clocks that were tried, or None where nothing was measured.

    A failure without a figure of its own stands at the bottom.
    """
    values = [(step, value_of(step)) for step in steps]
    numbers = [node.number() for _, node in values if node]
    if not numbers:
        return None
    bottom = min(numbers)
    xs, points = [], {outcome: [] for outcome in LOOKS}
    highest = marked["highest_mhz"] and marked["highest_mhz"].value
    worst = max((step.value["max_mhz"] for step in steps if step.value["outcome"] == "failed"), default=None)
    unnamed = {highest, worst} - {None}
    for step, node in values:
        clock = step.get("max_mhz")
        xs.append((clock.number(), f"{shown(clock, 'plain')} MHz"))
        outcome = step.value["outcome"]
        text = ", ".join(
            [
                *([f"{shown(node, kind)} {unit}"] if node else []),
                *([step.value["what"]] if outcome != "survived" else []),
            ]
        )
        # a word at each point would be too many; the others are in the table, and in the words for who cannot see it
        point = Point(node.number() if node else bottom, text, clock.value not in unnamed)
        unnamed.discard(clock.value)
        for each, collected in points.items():
            collected.append(point if each == outcome else Point(None))
    series = [
        Series(outcome, LOOKS[outcome], points[outcome])
        for outcome in LOOKS
        if any(point.text for point in points[outcome])
    ]
    clocks = [x for x, _ in xs]
    shown_at = [x for x in (highest, worst, min(clocks), max(clocks)) if x is not None]
    return charts.scatter(name, _titled(title, document), xs, series, shown_at)


def stress(name, document):
    """A stress run: what became of it, and the cards' power and clock over its time."""
    result, verdict = document.root.get("result"), document.root.get("verdict")
    figure = Figure(name, "Stress run", document.simulated, head=["", "value"])
    figure.notes = [Markup("{}: {}.").format(_outcome(verdict.get("outcome")), said(verdict.get("says")))]
    figure.notes.append(Markup("Begun {}, with {}.").format(time(document.at), _tried(result)))
    cards = list(result.get("gpus") or [])
    names = [f"GPU {shown(card.get('index'), 'plain')}" for card in cards]
    looks = [f"profile-{index % 4}" for index in range(len(cards))]
    rows = list(result.get("series") or [])
    for title, offset, unit in (("Power", 2, "W"), ("SM clock", 1, "MHz")):
        if len(rows) < 2 or not cards:
            continue
        xs = [(row.get(0).number(), f"{shown(row.get(0))} s") for row in rows]
        columns = [offset + 2 * index for index in range(len(cards))]
        series = [
            Series(
                one, f"curve bare {look}", [Point(value.number() if value else None) for value in _column(rows, column)]
            )
            for column, one, look in zip(columns, names, looks, strict=True)
        ]
        # one word in the picture: at the highest of all cards
        value, at, index = _peak(rows, columns)
        if value:
            text = f"{shown(value, 'plain')} {unit}"
            peak = [Point(value.number(), text) if row is at else Point(None) for row in rows]
            series.append(Series(names[index], looks[index], peak))
            told = Markup("{} after {} s").format(data(value, "plain", unit), data(at.get(0)))
            figure.rows.append([f"{title.lower().replace('sm', 'SM')}, highest drawn", told])
        drawn = charts.scatter(
            f"{name}-{len(figure.charts)}", _titled(f"{title} over time", document), xs, series, [xs[-1][0], xs[0][0]]
        )
        figure.charts.append((f"{title} over time", drawn))
        figure.legend = [
            (look, Markup("GPU {}").format(data(card.get("index"), "plain")))
            for look, card in zip(looks, cards, strict=True)
        ]
    if figure.charts:
        drawn_from = Markup("{} to {} s").format(data(rows[0].get(0)), data(rows[-1].get(0)))
        figure.rows.append(["drawn", drawn_from])
    for card in cards:
        for title, measure, unit in (("highest power", "power_w", "W"), ("highest SM clock", "sm_mhz", "MHz")):
            head = Markup("GPU {}, {}").format(data(card.get("index"), "plain"), title)
            figure.rows.append([head, data(card.get(measure, "max"), "plain", unit)])
    for title, keys, unit in (
        ("planned", ("seconds",), "s"),
        ("lasted", ("last_s",), "s"),
        ("box without an answer", ("gone",), "s"),
        ("requests answered", ("requests", "completed"), ""),
        ("requests failed", ("requests", "failed"), ""),
        ("longest prompt answered", ("longest_prompt",), "tokens"),
        ("clock lock", ("lock_mhz",), "MHz"),
        ("prefill, alone", ("speeds", "prefill_tok_s"), "tok/s"),
        ("decode, alone", ("speeds", "decode_tok_s"), "tok/s"),
    ):
        if result.get(*keys):
            figure.rows.append([title, data(result.get(*keys), "plain", unit)])
    return figure


def _tried(result):
    """What the cards were set to for the time of the run, as HTML."""
    trial = result.get("trial")
    if not trial:
        return "the cards as they are set"
    free, clock, limit = trial.value.get("state") == "unlocked", trial.get("max_mhz"), trial.get("power_limit_w")
    told = [Markup("the cards unlocked")] if free else []
    if clock and not free:
        told.append(Markup("a clock lock of {}").format(data(clock, "plain", "MHz")))
    if limit:
        told.append(
            Markup("a power limit of {}").format(data(limit, "plain", "W"))
            if limit.number() is not None
            else Markup("the {} power limit").format(said(limit))
        )
    return Markup(" and ").join(told) or "the cards as they are set"


def _column(rows, column):
    return [row.get(column) for row in rows]


def _peak(rows, columns):
    """(value, row, which of the columns) of the first highest value, or Nones."""
    seen = [(row.get(column), row, index) for row in rows for index, column in enumerate(columns)]
    seen = [one for one in seen if one[0] and one[0].number() is not None]
    return max(seen, key=lambda one: one[0].number(), default=(None, None, None))


def _highest_power(step):
    """The node of the highest power that any card drew in a step, or None."""
    seen = [power for gpu in step.get("gpus") or [] if (power := gpu.get("power_w", "max"))]
    return max(seen, key=lambda node: node.number()) if seen else None


def _outcome(node):
    return Markup('<span class="outcome {}">{}</span>').format(node.value, said(node))


def _titled(title, document):
    return f"{title}{', simulated' if document.simulated else ''}"
