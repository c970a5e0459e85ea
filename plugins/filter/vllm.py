# SPDX-License-Identifier: Apache-2.0
"""Pure functions that turn a profile and its overrides into what an engine is started with."""

from __future__ import annotations

import hashlib
import json

from ansible.errors import AnsibleFilterError


def vllm_merge(base: dict, *overrides: dict | None) -> dict:
    """`base` with each of `overrides` laid over it by key, in order.

    A value of null removes the key; lists and dicts are replaced whole: half of somebody else's list is never meant.
    The result is sorted by key: the order in which a person wrote settings down must not restart an engine.
    """
    merged = dict(base)
    for override in overrides:
        merged.update(override or {})
    # YAML reads some names as numbers or as true (7, on, yes): the rules tell of them
    return {key: merged[key] for key in sorted(merged, key=str) if merged[key] is not None}


def vllm_arguments(args: dict) -> list[str]:
    """The command-line words for `args`, a dict of vLLM's option names without the dashes.

    true -> `--name`, false -> `--no-name`, a dict -> one word of compact JSON, a list -> the option with all its words,
    of which dicts and lists are JSON again, anything else -> `--name=value`. Raises AnsibleFilterError for what vLLM
    would take and our merge and rules would not recognise: a name with its dashes or underscores, a dotted name, JSON
    as text.
    """
    words: list[str] = []
    for name, value in args.items():
        if not isinstance(name, str):
            raise AnsibleFilterError(
                f"vllm_args: {name!r} is no name of an option; write a name that is meant in quotes"
            )
        if name.startswith("-") or "_" in name:
            raise AnsibleFilterError(
                f"vllm_args: {name!r} is not written as vLLM documents it; write {name.lstrip('-').replace('_', '-')!r}"
            )
        if "." in name:
            head, _, key = name.partition(".")
            raise AnsibleFilterError(f"vllm_args: write {name!r} as a mapping, {head}: {{{key}: {value}}}")
        if isinstance(value, str) and value.lstrip().startswith("{") and name != "chat-template":
            raise AnsibleFilterError(
                f"vllm_args: {name} is JSON as text ({value}); write it as a mapping, without quotes"
            )
        if value is True:
            words.append(f"--{name}")
        elif value is False:
            words.append(f"--no-{name}")
        elif isinstance(value, dict):
            words.append(f"--{name}={_json(value)}")
        elif isinstance(value, (list, tuple)):
            words += [f"--{name}", *(_json(item) if isinstance(item, (dict, list)) else str(item) for item in value)]
        else:
            words.append(f"--{name}={value}")
    return words


def _json(value):
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def vllm_env_file(secrets: dict) -> str:
    """The text of an engine's file of secrets: a line NAME='value' for each, which a shell and our programs read."""
    head = "# Written by tandem. Read by the engine's entry point and by the readiness check.\n"
    return head + "".join(f"{name}='{value}'\n" for name, value in secrets.items())


def config_hash(config) -> str:
    """Sixteen hexadecimal digits over `config`, anything that JSON can hold; the order of keys does not count."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]


def vllm_option_hints(options):
    """Sentences about vLLM's `options`, by the names that somebody may take for variables of role vllm."""
    return {
        f"vllm_{option.replace('-', '_')}": f"{option} is an option of vLLM; write vllm_args: {{{option}: ...}}."
        for option in options
    }


class FilterModule:
    """Ansible's entry point."""

    def filters(self):
        return {
            "vllm_merge": vllm_merge,
            "vllm_option_hints": vllm_option_hints,
            "vllm_arguments": vllm_arguments,
            "vllm_env_file": vllm_env_file,
            "config_hash": config_hash,
        }
