# SPDX-License-Identifier: Apache-2.0
"""A number on the page always knows which file, and which place in it, it was read from."""

from __future__ import annotations

import math
from datetime import datetime

from markupsafe import Markup

# no line ends between a number and its unit
SPACE = "\N{NO-BREAK SPACE}"


class Node:
    """A place in a JSON file.

    value    what stands there
    file     the file's path below the folder of results
    pointer  the place, as a JSON pointer (RFC 6901)
    """

    def __init__(self, value, file, pointer=""):
        self.value, self.file, self.pointer = value, file, pointer

    def get(self, *keys):
        """The node below, or None where there is nothing, or null."""
        node = self
        for key in keys:
            below = node.value
            if isinstance(below, dict):
                if below.get(key) is None:
                    return None
            elif not (isinstance(below, list) and isinstance(key, int) and key < len(below)):
                return None
            node = node._below(key)
        return node

    def items(self):
        """(key, node) of an object; what is null is left out."""
        return [(key, self._below(key)) for key, value in self.value.items() if value is not None]

    def __iter__(self):
        return (self._below(index) for index in range(len(self.value)))

    def _below(self, key):
        step = str(key).replace("~", "~0").replace("/", "~1")
        return Node(self.value[key], self.file, f"{self.pointer}/{step}")

    @property
    def place(self):
        return f"{self.file}#{self.pointer}"

    @property
    def key(self):
        """The last step of the pointer, for a reader: prefill_8k -> prefill 8k."""
        return self.pointer.rpartition("/")[2].replace("~1", "/").replace("~0", "~").replace("_", " ")

    def number(self):
        """The value as a number that can be drawn, or None."""
        usable = isinstance(self.value, int | float) and not isinstance(self.value, bool) and math.isfinite(self.value)
        return self.value if usable else None


def shown(node, kind="rate"):
    """The node's number as text: rate | percent | change | plain. Without a number: a dash."""
    value = node.number() if node else None
    if value is None:
        return "–"  # noqa: RUF001 -- a dash, as typography has it
    if kind == "percent":
        return f"{value * 100:.1f}{SPACE}%"
    if kind == "change":
        return f"{value * 100:+.1f}{SPACE}%"
    if kind == "plain":
        return f"{value:.10g}"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.1f}"


def data(node, kind="rate", unit=""):
    """`shown` as HTML, with the raw value and its place."""
    if node is None or node.number() is None:
        return Markup("–")  # noqa: RUF001
    html = Markup('<data value="{}" data-from="{}">{}</data>')
    told = html.format(node.value, node.place, shown(node, kind))
    return told + (Markup("{}{}").format(SPACE, unit) if unit else "")


def said(node):
    """A text out of a file, as HTML with its place."""
    return Markup('<span data-from="{}">{}</span>').format(node.place, node.value) if node else Markup("")


def key(node):
    """The name under which something stands in a file, as HTML."""
    return Markup('<span data-key="{}">{}</span>').format(node.place, node.key)


def minute(node):
    """2026-11-30T05:45:12Z -> 2026-11-30 05:45. What is no such time stays as it is."""
    text = str(node.value)
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return text
    return text[:16].replace("T", " ")


def time(node):
    """A time out of a file, as HTML."""
    if node is None:
        return Markup("–")  # noqa: RUF001
    return Markup('<time datetime="{}" data-from="{}">{}</time>').format(node.value, node.place, minute(node))
