# SPDX-License-Identifier: Apache-2.0
"""Filter unknown_role_variables: misspelled role variables, which argument_specs let pass."""

from __future__ import annotations

import difflib


def unknown_role_variables(names, spec):
    """Sentences about the `names` that `spec` does not know, with the nearest known name; empty when all are known.

    names  variable names, as `query('ansible.builtin.varnames', '^role_')` gives them
    spec   the options of the role's entry point in meta/argument_specs.yml
    """
    known = set(spec)
    sentences = []
    for name in sorted(set(names) - known):
        near = difflib.get_close_matches(name, sorted(known), n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}."
        sentences.append(f"{name} is not a variable of this role: {hint}")
    return sentences


class FilterModule:
    """Ansible's entry point."""

    def filters(self):
        return {"unknown_role_variables": unknown_role_variables}
