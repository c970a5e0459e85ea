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
    return {key: merged[key] for key in sorted(merged) if merged[key] is not None}


def vllm_arguments(args: dict) -> list[str]:
    """The command-line words for `args`, a dict of vLLM's option names without the dashes.

    true -> `--name`, false -> `--no-name`, a dict -> one word of compact JSON, a list -> the option with all its words,
    anything else -> `--name=value`. Raises AnsibleFilterError for a name with its dashes or underscores: vLLM would
    take it, and our merge would not recognise it as the same option.
    """
    words: list[str] = []
    for name, value in args.items():
        if name.startswith("-") or "_" in name:
            raise AnsibleFilterError(
                f"vllm_args: {name!r} is not written as vLLM documents it; write {name.lstrip('-').replace('_', '-')!r}"
            )
        if value is True:
            words.append(f"--{name}")
        elif value is False:
            words.append(f"--no-{name}")
        elif isinstance(value, dict):
            words.append(f"--{name}={json.dumps(value, separators=(',', ':'), sort_keys=True)}")
        elif isinstance(value, (list, tuple)):
            words += [f"--{name}", *map(str, value)]
        else:
            words.append(f"--{name}={value}")
    return words


def config_hash(config) -> str:
    """Sixteen hexadecimal digits over `config`, anything that JSON can hold; the order of keys does not count."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]


class FilterModule:
    def filters(self):
        return {"vllm_merge": vllm_merge, "vllm_arguments": vllm_arguments, "config_hash": config_hash}
