# SPDX-License-Identifier: Apache-2.0
"""Entries in APT's source files: a pure function of a file's text."""

from __future__ import annotations

import re

LINE = re.compile(r"^\s*deb(-src)?\s+(\[[^\]]*\]\s*)?(?P<uri>\S+)")
URIS = re.compile(r"^URIs:(?P<uris>.*(?:\n(?:[ \t].*|#.*))*)", re.MULTILINE | re.IGNORECASE)


def apt_without(text: str, path: str, pattern: str) -> str:
    """`text` of the APT source file at `path` without the addresses that match `pattern`, a regular expression.

    Searched are addresses alone: an entry's options and its other fields may look like one. A line has one address; a
    stanza of a `.sources` file may have several, and goes when none is left. Empty when no entry is left in the file.
    """
    if path.endswith(".sources"):
        parts = re.split(r"(\n(?:[ \t]*\n)+)", text)
        stanzas, joints = parts[::2], parts[1::2]
        kept = [_stanza_without(stanza, pattern) for stanza in stanzas]
        if not any(_without_comments(stanza).strip() for stanza in kept):
            return ""
        pairs = zip(kept, [*joints, ""], strict=True)
        return "".join(stanza + joint for stanza, joint in pairs if stanza).strip() + "\n"
    lines = [line for line in text.splitlines() if not _line_matches(line, pattern)]
    if not any(line.strip() for line in _without_comments("\n".join(lines)).splitlines()):
        return ""
    return "\n".join(lines) + "\n"


def _line_matches(line, pattern):
    found = LINE.match(line)
    return bool(found and re.search(pattern, found["uri"]))


def _stanza_without(stanza, pattern):
    """The stanza with its other addresses, or "" when it has none. APT passes over one that is off."""
    field = URIS.search(stanza)
    if not field or re.search(
        r"^Enabled:\s*(no|false|without|off|disable|0)\s*$", stanza, re.MULTILINE | re.IGNORECASE
    ):
        return stanza
    uris = _without_comments(field["uris"]).split()
    others = [uri for uri in uris if not re.search(pattern, uri)]
    if others == uris:
        return stanza
    return f"{stanza[: field.start()]}URIs: {' '.join(others)}{stanza[field.end() :]}" if others else ""


def _without_comments(entry):
    return "\n".join(line for line in entry.splitlines() if not line.lstrip().startswith("#"))


class FilterModule:
    """Ansible's entry point."""

    def filters(self):
        return {"apt_without": apt_without}
