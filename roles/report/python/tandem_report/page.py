# SPDX-License-Identifier: Apache-2.0
"""The page: documents in, HTML out. The same documents give the same bytes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from . import figures, searches
from .documents import Measurement, parse
from .figures import MEASURES
from .numbers import data, said, shown, time

TEMPLATES = Path(__file__).resolve().parents[2] / "templates"


class Page(NamedTuple):
    """`day` of the newest result, 2026-11-30; the HTML; how many `files` it is of; `unknown`: (file, why)."""

    day: str
    html: str
    files: int
    unknown: list


def page(texts):
    """The Page of {path below the folder of results: text of the JSON file}.

    Raises ValueError with a sentence where no file has anything to show.
    """
    documents = parse(texts)
    everything = documents.everything
    if not everything:
        read = "; ".join(f"{file}: {why}" for file, why in documents.unknown) or "there is no JSON file"
        raise ValueError(
            f"nothing to report ({read}). Measure first, with playbooks/bench.yml or playbooks/find_clock.yml"
        )
    # autoescape: names and reasons come out of files, and may hold anything
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(data=data, said=said, shown=shown, time=time, measures=MEASURES)
    style = Markup((TEMPLATES / "page.css").read_text(encoding="utf-8"))
    html = environment.get_template("page.html.j2").render(style=style, **_view(documents))
    # plain text for whoever takes it
    return Page(max(one.at.value for one in everything)[:10], "".join(html), len(documents.files), documents.unknown)


def _view(documents):
    everything = documents.everything
    simulated = [one.simulated for one in everything]
    names = sorted({one.box for one in everything})
    return {
        "newest": max((one.at for one in everything), key=lambda at: at.value),
        "simulated": "all" if all(simulated) else "some" if any(simulated) else "none",
        "boxes": [_box(f"box-{index}", name, documents) for index, name in enumerate(names)],
        "files": [root.file for root in documents.files],
        "unknown": documents.unknown,
    }


def _box(anchor, name, documents):
    """Everything of one box, the newest first."""
    mine = [one for one in documents.measurements if one.box == name]
    engines = sorted({one.engine for one in mine})
    found = [one for one in documents.searches if one.box == name]
    compared = [one for one in documents.comparisons if one.box == name]
    stressed = [one for one in documents.stresses if one.box == name]
    return {
        "anchor": anchor,
        "name": _box_name((mine or compared or found or stressed)[0]),
        "simulated": any(one.simulated for one in [*mine, *compared, *found, *stressed]),
        "engines": [
            _engine(f"{anchor}-{index}", engine, [one for one in mine if one.engine == engine])
            for index, engine in enumerate(engines)
        ],
        "several": len(engines) > 1,
        "comparisons": [
            figures.comparison(f"{anchor}-compare-{index}", one) for index, one in enumerate(reversed(compared))
        ],
        "searches": [searches.search(f"{anchor}-search-{index}", one) for index, one in enumerate(reversed(found))],
        "stresses": [searches.stress(f"{anchor}-stress-{index}", one) for index, one in enumerate(reversed(stressed))],
    }


def _box_name(document):
    if isinstance(document, Measurement):
        return document.result.get("box")
    return document.root.get("box", "name") or document.root.get("box")


def _engine(anchor, name, measurements):
    """One engine: its latest measurement of each profile, what changed, and its history; they come oldest first."""
    latest = {}
    for one in measurements:
        latest.pop(one.profile, None)
        latest[one.profile] = one
    newest_first = list(reversed(latest.values()))
    changes = [
        figures.change(f"{anchor}-change-{index}", before, after)
        for index, (before, after) in enumerate(pairwise(measurements))
        if before.configuration != after.configuration
    ]
    return {
        "name": measurements[0].result.get("engine"),
        "side_by_side": figures.profiles(f"{anchor}-profiles", newest_first) if len(newest_first) > 1 else None,
        "profiles": [
            {"measurement": one, "figures": _figures(f"{anchor}-profile-{index}", one)}
            for index, one in enumerate(newest_first)
        ],
        # the newest first, as the reader's question is the last change
        "changes": [figure for figure in reversed(changes) if figure],
        "history": figures.history(f"{anchor}-history", measurements),
    }


def _figures(anchor, measurement):
    drawn = [
        figures.key_measures(f"{anchor}-key", measurement),
        figures.throughput(f"{anchor}-throughput", measurement),
        figures.acceptance(f"{anchor}-acceptance", measurement),
        figures.against_baseline(f"{anchor}-baseline", measurement),
    ]
    return [figure for figure in drawn if figure and figure.charts]
