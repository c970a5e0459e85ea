# SPDX-License-Identifier: Apache-2.0
"""Charts as inline SVG, drawn by pygal. What they look like is in page.css; what they show is told in title and desc.

There are no axis numbers: every number in a chart is one that was measured, and stands at its bar or point.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import NamedTuple

from markupsafe import Markup

SVG = "http://www.w3.org/2000/svg"
# In the drawing's own units, which on a phone are about one pixel each.
WIDTH, BAR, TEXT = 400, 19, 13


class Point(NamedTuple):
    """A value to draw, and its text; a value of None is a gap. A quiet point's text is in the alternative only."""

    value: float | None
    text: str = ""
    quiet: bool = False


class Series(NamedTuple):
    """What is drawn in one colour: `look` is a class of page.css, such as measured or expected."""

    name: str
    look: str
    points: list


def bars(name, title, labels, series):
    """Horizontal bars, a group for each of `labels`, in it one for each of `series`."""
    import pygal

    values = [point.value for one in series for point in one.points if point.value is not None]
    top = max([*values, 0]) or 1
    drawn = [one for one in series if any(point.value is not None for point in one.points)]
    height = len(labels) * (BAR * max(len(drawn), 1) + 12) + 8
    # room for the text behind the longest bar
    room = max(len(point.text) for one in drawn for point in one.points) * 7.5 if drawn else 0
    chart = pygal.HorizontalBar(
        **_options(height),
        range=(0, top * (1 + room / (WIDTH * 0.45))),
        # of values: horizontal bars have them below
        show_x_labels=False,
        show_y_guides=False,
        rounded_bars=2,
    )
    # it draws from the bottom up
    chart.x_labels = [_short(label) for label in reversed(labels)]
    for one in drawn:
        chart.add(one.name, [_value(point) for point in reversed(one.points)])
    tree = _drawn(chart, [one.look for one in drawn])
    for text in tree.iter("text"):
        if text.get("class") == "value":
            text.set("text-anchor", "start")
    return _finished(tree, name, title, _told(labels, series))


def line(name, title, labels, series):
    """One point for each of `labels`, in their order, joined by a line; the first and the last label are shown."""
    import pygal

    chart = pygal.Line(**_options(190), range=_range(series), dots_size=4, show_y_labels=False, show_x_guides=False)
    chart.x_labels = labels
    chart.x_labels_major = [labels[0], labels[-1]]
    chart.show_minor_x_labels = False
    for one in series:
        chart.add(one.name, [_value(point) for point in one.points], show_dots=one.look != "expected")
    tree = _placed(_drawn(chart, [one.look for one in series]))
    return _finished(tree, name, title, _told(labels, series))


def scatter(name, title, xs, series, shown_xs, height=220):
    """Points at `xs`, (number, text) for each; a series is joined by a line where its look has `curve`, and
    has no dots where it has `bare`.

    shown_xs  numbers to name below, the most important first; one that would stand in another's way is left out
    """
    import pygal

    texts = dict(xs)
    apart = (max(texts) - min(texts)) * 0.25
    named = []
    for x in shown_xs:
        if all(abs(x - other) >= apart for other in named):
            named.append(x)
    chart = pygal.XY(
        **_options(height),
        range=_range(series),
        xrange=_wider(min(texts), max(texts), 0.12),
        dots_size=5,
        show_y_labels=False,
        show_x_guides=False,
        x_value_formatter=lambda x: texts.get(x, ""),
    )
    chart.x_labels = sorted(named)
    series = [one for one in series if any(point.value is not None for point in one.points)]
    for one in series:
        placed = [(x, point) for (x, _), point in zip(xs, one.points, strict=True) if point.value is not None]
        chart.add(
            one.name,
            [{**_value(point), "value": (x, point.value)} for x, point in sorted(placed)],
            stroke="curve" in one.look.split(),
            show_dots="bare" not in one.look.split(),
        )
    tree = _placed(_drawn(chart, [one.look for one in series]))
    return _finished(tree, name, title, _told([text for _, text in xs], series))


def _options(height):
    from pygal.style import Style

    # Only the sizes matter here, by which it leaves room for texts; colours are page.css's.
    sizes = {f"{what}_font_size": TEXT for what in ("label", "major_label", "value", "value_label")}
    return {
        "width": WIDTH,
        "height": height,
        "margin": 6,
        "style": Style(font_family="sans-serif", **sizes),
        "js": (),
        "css": (),
        "show_legend": False,
        "no_prefix": True,
        "print_values": True,
        "print_values_position": "top",
        "truncate_label": -1,
    }


def _value(point):
    text = "" if point.quiet else point.text
    return None if point.value is None else {"value": point.value, "formatter": lambda _: text}


def _short(label, most=22):
    return label if len(label) <= most else f"{label[: most - 1]}…"


def _wider(low, high, share):
    """A range around low..high, with room for texts at its ends."""
    room = (high - low) * share or abs(high) * share or 1
    return low - room, high + room


def _range(series):
    """From zero where the values are far apart, else close around them: a flat line at the top tells nothing."""
    values = [point.value for one in series for point in one.points if point.value is not None]
    low, high = _wider(min(values), max(values), 0.35)
    return max(low, 0), high


def _drawn(chart, looks):
    """pygal's drawing without scripts, styles and notes of its own, each series with its class of page.css."""
    root = ET.fromstring(chart.render(is_unicode=True))
    for element in root.iter():
        element.tag = element.tag.removeprefix(f"{{{SVG}}}")
    for parent in list(root.iter()):
        for child in list(parent):
            nothing = child.tag == "text" and not (child.text or "").strip() and len(child) == 0
            if child.tag in ("defs", "title", "desc", "script", "style") or nothing:
                parent.remove(child)
    for element in root.iter("g"):
        for index, look in enumerate(looks):
            if f"serie-{index}" in element.get("class", "").split():
                element.set("class", f"series {look}")
    return root


def _placed(root):
    """Texts of points above them, where pygal has them below and to the right; none beyond the picture's edges.

    A point's text ends at it where there is room: curves rise, so what is to the right of a point is where it would be.
    """
    for text in root.iter("text"):
        x = float(text.get("x", 0))
        if text.get("class") == "value":
            x -= TEXT
            text.set("y", f"{float(text.get('y')) - 2 * TEXT - 2:.1f}")
            ends = x > len(text.text or "") * 7
            text.set("x", f"{x + TEXT / 3 if ends else x:.1f}")
            text.set("text-anchor", "end" if ends else "start")
            continue
        text.set("text-anchor", "start" if x < WIDTH * 0.2 else "end" if x > WIDTH * 0.75 else "middle")
    return root


def _finished(root, name, title, told):
    """As HTML, with what the picture shows in words."""
    for attribute in ("id", "class"):
        root.attrib.pop(attribute, None)
    root.set("xmlns", SVG)
    root.set("role", "img")
    root.set("aria-labelledby", f"{name}-title {name}-desc")
    for tag, text in (("desc", told), ("title", title)):
        element = ET.Element(tag, {"id": f"{name}-{tag}"})
        element.text = text
        root.insert(0, element)
    # ElementTree escapes every text and attribute
    return Markup(ET.tostring(root, encoding="unicode"))


def _told(labels, series):
    """All points in words: the text alternative."""
    parts = []
    for index, label in enumerate(labels):
        points = [(one.name, one.points[index].text) for one in series if one.points[index].text]
        if points:
            parts.append(f"{label}: " + ", ".join(f"{name} {text}" for name, text in points))
    return "; ".join(parts) + "."
