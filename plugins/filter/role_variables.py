# SPDX-License-Identifier: Apache-2.0
"""Filter unknown_role_variables: misspelled role variables, which argument_specs let pass."""

from __future__ import annotations

import difflib


def unknown_role_variables(names, spec):
    """Sentences about the `names` that `spec` does not know, with the nearest known name; empty when all are known.

    names  variable names, as `query('ansible.builtin.varnames', '^role_')` gives them
    spec   the parsed meta/argument_specs.yml, its `argument_specs`, or the options of one entry point
    """
    known = set(_option_names(spec))
    sentences = []
    for name in sorted(set(names) - known):
        near = difflib.get_close_matches(name, sorted(known), n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}."
        sentences.append(f"{name} is not a variable of this role: {hint}")
    return sentences


def _option_names(spec):
    entry_points = spec.get("argument_specs", spec)
    if all(isinstance(entry, dict) and "options" in entry for entry in entry_points.values()):
        for entry in entry_points.values():
            yield from entry["options"]
    else:
        yield from entry_points


class FilterModule:
    """Ansible's entry point."""

    def filters(self):
        return {"unknown_role_variables": unknown_role_variables}
