# SPDX-License-Identifier: Apache-2.0
"""Filters about misspelled role variables, which argument_specs let pass."""

from __future__ import annotations

import difflib
import functools
from pathlib import Path

import yaml

ROLES = Path(__file__).parents[2] / "roles"


def unknown_role_variables(names, spec, elsewhere=None):
    """Sentences about the `names` that `spec` does not know, with the nearest known name; empty when all are known.

    names      variable names, as `query('ansible.builtin.varnames', '^role_')` gives them
    spec       the options of the role's entry point in meta/argument_specs.yml
    elsewhere  sentences about names that somebody may take for variables, by name
    """
    known = set(spec)
    sentences = []
    for name in sorted(set(names) - known):
        if name in (elsewhere or {}):
            sentences.append(f"{name} is not a variable of this role: {elsewhere[name]}")
            continue
        near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.75)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}."
        sentences.append(f"{name} is not a variable of this role: {hint}")
    return sentences


@functools.cache
def all_role_variables(folder=ROLES):
    """Names of the variables of all roles."""
    specs = (yaml.safe_load(path.read_text())["argument_specs"] for path in folder.glob("*/meta/argument_specs.yml"))
    return [name for spec in specs for name in spec["main"]["options"]]


def misspelled_prefixes(names, known=None):
    """Sentences about those of `names`, of all variables, that are nearly one of `known`: all roles' variables."""
    known = all_role_variables() if known is None else known
    sentences = []
    for name in sorted(set(names) - set(known)):
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.9)
        if near:
            sentences.append(f"{name} is read by nothing: did you mean {near[0]}?")
    return sentences


class FilterModule:
    """Ansible's entry point."""

    def filters(self):
        return {"unknown_role_variables": unknown_role_variables, "misspelled_prefixes": misspelled_prefixes}
