"""The parse check against a package `vllm` of these tests: where the parser is, what is refused, and in whose words.

That it works with vLLM itself is shown by test_vllm_real_parsers.py.
"""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "roles/vllm/files/vllm-parse-check"

CLI_ARGS = """
import os
def make_arg_parser(parser):
    assert "HF_HUB_OFFLINE" not in os.environ
    parser.add_argument("model_tag", nargs="?")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--max-num-seqs", type=int)
    parser.add_argument("--tool-call-parser")
    parser.add_argument("--reasoning-parser")
    parser.add_argument("--enable-auto-tool-choice", action="store_true")
    parser.add_argument("--gpu-memory-utilization", type=float, default=0.9)
    parser.add_argument("--kv-cache-dtype", default="auto")
    parser.add_argument("--attention-backend")
    parser.add_argument("--speculative-config", type=__import__("json").loads)
    return parser
def validate_parsed_serve_args(args):
    if args.enable_auto_tool_choice and not args.tool_call_parser:
        raise TypeError("Error: --enable-auto-tool-choice requires --tool-call-parser")
"""
PARSER = """
import argparse
print("INFO a line that vLLM logs to stdout")
class FlexibleArgumentParser(argparse.ArgumentParser):
    pass
"""
CONFIG = """
from pydantic import ValidationError
class CacheConfig:
    def __init__(self, gpu_memory_utilization, cache_dtype):
        if gpu_memory_utilization > 1:
            raise ValueError("1 validation error\\n  less than or equal to 1\\n  For further information visit https://x")
class AttentionConfig:
    def __init__(self, backend):
        if backend == "SLOW":
            raise ValueError("Unknown attention backend: 'SLOW'")
class SpeculativeConfig:
    def __init__(self, method=None, **other):
        wrong = {"type": "unexpected_keyword_argument", "msg": "Unexpected keyword argument"}
        errors = [{**wrong, "loc": (name,)} for name in other]
        if method == "draft":
            errors.append({"type": "value_error", "loc": (), "msg": "there is no model"})
        if method == "assert":
            raise AssertionError("no target model")
        if errors:
            raise ValidationError(errors)
"""
ENGINE = """
class AsyncEngineArgs:
    @classmethod
    def from_cli_args(cls, args):
        self = cls()
        self.__dict__.update(vars(args))
        return self
"""
PYDANTIC = """
class ValidationError(ValueError):
    def __init__(self, errors):
        self.found = errors
    def errors(self):
        return self.found
"""
MANAGER = """
class {0}:
    @staticmethod
    def list_registered():
        return ["qwen3", "hermes"]
"""
LAYOUTS = {
    "0.33": "vllm/entrypoints/common/cli_args.py",
    "0.29 to 0.32": "vllm/entrypoints/launchers/cli_args.py",
    "to 0.28": "vllm/entrypoints/openai/cli_args.py",
}


@pytest.fixture
def check(tmp_path):
    """Runs the check on a command line, with the parser where `layout` has it."""

    def run(*words, layout="0.33", environment=None, changes=None):
        files = {
            LAYOUTS[layout]: CLI_ARGS,
            "vllm/__init__.py": '__version__ = "9.9.9"',
            "vllm/utils/argparse_utils.py": PARSER,
            "vllm/config.py": CONFIG,
            "vllm/engine/arg_utils.py": ENGINE,
            "vllm/reasoning.py": MANAGER.format("ReasoningParserManager"),
            "vllm/tool_parsers.py": MANAGER.format("ToolParserManager"),
            "pydantic.py": PYDANTIC,
            **(changes or {}),
        }
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(textwrap.dedent(content))
        return subprocess.run(
            [sys.executable, PROGRAM, "--", "/models", *words],
            env={**os.environ, "PYTHONPATH": str(tmp_path), "HF_HUB_OFFLINE": "1", **(environment or {})},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_good_command_line_is_answered_with_the_version_alone(check, layout):
    done = check("--port=8001", '--speculative-config={"method": "mtp"}', layout=layout)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"version": "9.9.9"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--no-such-flag=3"], "unrecognized arguments: --no-such-flag=3"),
        (["--max-num-seqs=many"], "argument --max-num-seqs: invalid int value: 'many'"),
        (["--enable-auto-tool-choice"], "Error: --enable-auto-tool-choice requires --tool-call-parser"),
        (["--tool-call-parser=x"], "--tool-call-parser: 'x' is not registered (choose from hermes, qwen3)"),
        (["--reasoning-parser=x"], "--reasoning-parser: 'x' is not registered (choose from hermes, qwen3)"),
        (["--port=0"], "--port: 0 is not between 1 and 65535"),
        (["--gpu-memory-utilization=93"], "1 validation error less than or equal to 1"),
        (["--attention-backend=SLOW"], "Unknown attention backend: 'SLOW'"),
        (['--speculative-config={"x": 1}'], "--speculative-config x: Unexpected keyword argument"),
        (["--speculative-config=3"], "--speculative-config: 3 is no JSON object"),
        (["--help"], "one of the options prints something and ends: nothing would be served"),
    ],
)
def test_a_refusal_is_one_line_in_vllms_words(check, words, said):
    done = check(*words)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == f"vLLM 9.9.9 refuses its command line: {said}"


# As vLLM has it: a table of functions, most of which read a number.
ENVS = """
import os
environment_variables = {
    "VLLM_SWITCH": lambda: bool(int(os.getenv("VLLM_SWITCH", "0"))),
    "VLLM_WORD": lambda: os.getenv("VLLM_WORD", "").lower() in ("true", "1"),
    "VLLM_MORE": lambda: __import__("a_package_that_is_missing"),
}
"""


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"VLLM_SWITCH": "True"}, "VLLM_SWITCH=True: invalid literal for int() with base 10: 'True'"),
        ({"VLLM_SWITCH": "yes"}, "VLLM_SWITCH=yes: invalid literal"),
        ({"VLLM_SWITCH": ""}, "VLLM_SWITCH=: invalid literal"),
        ({"VLLM_SWITCH": "1.0"}, "VLLM_SWITCH=1.0: invalid literal"),
        ({"VLLM_SWITCH": "1", "VLLM_WORD": "True", "VLLM_OTHER": "x", "VLLM_MORE": "1"}, None),
    ],
)
def test_a_value_that_vllm_cannot_read_is_refused_before_vllm_is_imported(check, environment, said):
    changes = {"vllm/envs.py": ENVS}
    if said:
        changes["vllm/__init__.py"] = "raise ValueError('read too early')"
    done = check("--port=8001", environment=environment, changes=changes)
    assert done.returncode == bool(said)
    assert not said or done.stderr.splitlines()[-1].startswith(f"vLLM refuses its environment: {said}")


def test_several_refusals_are_all_told(check):
    done = check("--port=0", "--tool-call-parser=x", "--attention-backend=SLOW")
    assert all(words in done.stderr for words in ("--port: 0", "'x' is not registered", "'SLOW'"))


@pytest.mark.parametrize("method", ["draft", "assert"])
def test_what_speculation_says_of_a_model_that_is_not_here_does_not_count(check, method):
    assert check(f'--speculative-config={{"method": "{method}"}}').returncode == 0


def test_an_image_without_vllm_is_said(check):
    done = check(changes={"vllm/__init__.py": "raise ImportError('libcuda.so.1: no such file')"})
    assert done.returncode == 1
    assert "cannot be asked for its options: ImportError: libcuda.so.1: no such file" in done.stderr


def test_a_parser_that_is_there_and_broken_is_not_looked_for_elsewhere(check):
    broken = {LAYOUTS["0.33"]: "import a_package_that_is_missing", LAYOUTS["to 0.28"]: CLI_ARGS}
    done = check(changes=broken)
    assert done.returncode == 1 and "a_package_that_is_missing" in done.stderr


def test_another_program_answers_where_the_image_names_one(check, tmp_path):
    program = tmp_path / "instead"
    program.write_text('#!/bin/sh\necho "$@"\nexit 1\n')
    program.chmod(0o755)
    done = check("--port=8001", environment={"TANDEM_PARSE_CHECK": str(program)})
    assert (done.returncode, done.stdout) == (1, "-- /models --port=8001\n")


def test_a_command_line_must_be_given():
    done = subprocess.run([sys.executable, PROGRAM, "--port=1"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.startswith("usage: ")
