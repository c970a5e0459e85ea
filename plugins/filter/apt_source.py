# SPDX-License-Identifier: Apache-2.0
"""Entries in APT's source files: a pure function of a file's text."""

from __future__ import annotations

import re


def apt_without(text: str, path: str, pattern: str) -> str:
    """`text` of the APT source file at `path` without the entries that match `pattern`, a regular expression.

    In a `.sources` file an entry is a stanza, in any other a line. Empty when no entry is left.
    """
    if path.endswith(".sources"):
        entries, joint = re.split(r"\n[ \t]*\n", text), "\n\n"
    else:
        entries, joint = text.splitlines(), "\n"
    kept = [entry for entry in entries if not re.search(pattern, _without_comments(entry))]
    if not any(_without_comments(entry).strip() for entry in kept):
        return ""
    return joint.join(kept).rstrip("\n") + "\n"


def _without_comments(entry):
    return "\n".join(line for line in entry.splitlines() if not line.lstrip().startswith("#"))


class FilterModule:
    """Ansible's entry point."""

    def filters(self):
        return {"apt_without": apt_without}
