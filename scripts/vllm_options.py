# SPDX-License-Identifier: Apache-2.0
"""Prints the options of `vllm serve` as the files of roles/vllm/files/options have them.

Runs inside an image of vLLM and needs no GPU:

docker run --rm -i --entrypoint python3 IMAGE - < scripts/vllm_options.py > roles/vllm/files/options/VERSION.json
"""

import argparse
import importlib
import json
import os
import sys

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")


def parser():
    """vLLM's own parser; the module that makes it has moved twice."""
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    for name in ("common", "launchers", "openai"):
        try:
            module = importlib.import_module(f"vllm.entrypoints.{name}.cli_args")
        except ModuleNotFoundError:
            continue
        return module.make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))
    sys.exit("none of the places where vllm.entrypoints had its parser until 0.33 has it; look for make_arg_parser")


def kind(action):
    """flag (has a form that switches it off), switch (has none), number, a list of choices, or any."""
    if isinstance(action, argparse.BooleanOptionalAction):
        return "flag"
    if action.nargs == 0:
        return "switch"
    if action.choices:
        return sorted(str(choice) for choice in action.choices)
    if isinstance(action.default, (int, float)) and not isinstance(action.default, bool):
        return "number"
    return "any"


def main():
    options = {}
    for action in parser()._actions:
        names = [name[2:] for name in action.option_strings if name.startswith("--")]
        for name in names:
            if not (name.startswith("no-") and name[3:] in names):
                options[name] = kind(action)
    lines = (f"{json.dumps(name)}: {json.dumps(options[name])}" for name in sorted(options))
    print("{\n" + ",\n".join(lines) + "\n}")


main()
