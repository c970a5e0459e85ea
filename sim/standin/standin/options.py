"""The command line of `vllm serve`, by the list of options that vLLM's own parser gave (roles/vllm/files/options)."""

from __future__ import annotations

import argparse
import json
import pathlib

HERE = pathlib.Path(__file__).resolve().parent.parent
#: what vLLM's parsers gave: beside the program in the image, with role vllm in the repository
FILES = HERE if (HERE / "options").is_dir() else HERE.parent.parent / "roles" / "vllm" / "files"
#: options that the list calls "any" and that take a whole number, of those that the simulation reads
WHOLE = {"max-num-seqs", "max-num-batched-tokens", "max-num-queued-reqs"}
#: whole numbers where the list says "number"
INTEGERS = {"port", "tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size", "shutdown-timeout", "seed"}
LISTS = {"served-model-name", "lora-modules", "middleware", "device-ids", "allowed-media-domains", "api-key"}
JSON_OPTIONS = {"speculative-config", "compilation-config", "kv-transfer-config", "default-chat-template-kwargs"}
SHORT = {
    "tensor-parallel-size": ["-tp"],
    "pipeline-parallel-size": ["-pp"],
    "data-parallel-size": ["-dp"],
    "speculative-config": ["-sc"],
}


class Refused(Exception):
    """vLLM would have parsed this, and refused it when it builds its configuration: exit code 1."""


class Parser(argparse.ArgumentParser):
    def format_usage(self):
        return (
            "usage: vllm serve [model_tag] [options]\n"
            if self.prog.endswith("serve")
            else "usage: vllm [options] {serve,bench}\n"
        )


def human_int(text):
    """vLLM's human-readable whole numbers: 64k is 64,000, 64K is 65,536."""
    factors = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
    if text[-1:] in factors:
        return int(float(text[:-1]) * factors[text[-1]])
    return int(text)


human_int.__name__ = "int"


def number(text):
    return float(text)


number.__name__ = "float"


def add_options(parser, listed):
    parser.add_argument("model_tag", nargs="?")
    for name, kind in listed.items():
        if name == "help":
            continue
        names, dest = [f"--{name}", *SHORT.get(name, [])], name.replace("-", "_")
        if kind == "flag":
            parser.add_argument(*names, dest=dest, action=argparse.BooleanOptionalAction)
        elif kind == "switch":
            parser.add_argument(*names, dest=dest, action="store_true")
        elif name in LISTS:
            parser.add_argument(*names, dest=dest, nargs="+")
        elif name in JSON_OPTIONS:
            parser.add_argument(*names, dest=dest, type=as_json)
        elif name in WHOLE or name == "max-model-len":
            parser.add_argument(*names, dest=dest, type=human_int)
        elif kind == "number":
            parser.add_argument(*names, dest=dest, type=int if name in INTEGERS else number)
        elif isinstance(kind, list):
            parser.add_argument(*names, dest=dest, choices=kind)
        else:
            parser.add_argument(*names, dest=dest)


def as_json(text):
    try:
        return json.loads(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"Value {text} cannot be converted to <function loads>.") from None


def spelled(arguments):
    """--max_num_seqs as --max-num-seqs, which vLLM does too."""
    out = []
    for argument in arguments:
        if argument.startswith("--"):
            name, equals, value = argument.partition("=")
            argument = name.replace("_", "-") + equals + value
        out.append(argument)
    return out


def parse(arguments, version, folder=FILES):
    """The parsed namespace. Ends the process as argparse does (exit code 2, vLLM's words) for what the parser refuses;
    raises Refused for what vLLM's own configuration refuses afterwards, whatever the cards."""
    listed = json.loads((folder / "options" / f"{version}.json").read_text())
    parser = Parser(prog="vllm", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", metavar="{serve,bench}")
    serve = commands.add_parser("serve", prog="vllm serve", allow_abbrev=False)
    add_options(serve, listed)
    parsed = parser.parse_args(["serve", *spelled(arguments)])
    refuse(parsed, listed, json.loads((folder / "parsers.json").read_text()))
    return parsed


def refuse(parsed, listed, parsers):
    if parsed.enable_auto_tool_choice and not parsed.tool_call_parser:
        raise Refused("TypeError: Error: --enable-auto-tool-choice requires --tool-call-parser")
    for option in ("tool-call-parser", "reasoning-parser"):
        value = getattr(parsed, option.replace("-", "_"))
        if value and value not in parsers[option]:
            known = ",".join(parsers[option])
            raise Refused(f"KeyError: 'invalid {option.replace('-', ' ')}: {value} (chose from {{ {known} }})'")
    utilization = parsed.gpu_memory_utilization
    if utilization is not None and not 0 < utilization <= 1:
        should = "greater than 0" if utilization <= 0 else "less than or equal to 1"
        raise Refused(
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for CacheConfig\ngpu_memory_utilization\n"
            f"  Input should be {should} [input_value={utilization}, input_type=float]"
        )
    port = parsed.port
    if port is not None and not 0 < port < 65536:
        raise Refused(f"--port: {port} is not between 1 and 65535")
    speculative = parsed.speculative_config
    if speculative is not None:
        methods = listed.get("spec-method", [])
        if not isinstance(speculative, dict):
            raise Refused("TypeError: --speculative-config must be a JSON object")
        method, count = speculative.get("method"), speculative.get("num_speculative_tokens")
        if method is not None and isinstance(methods, list) and method not in methods:
            raise Refused(
                "pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig\nmethod\n"
                f"  Input should be one of {', '.join(methods)} [type=literal_error, input_value={method!r}]"
            )
        if count is not None and (not isinstance(count, int) or count < 1):
            raise Refused(
                "pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig\n"
                f"num_speculative_tokens\n  Input should be greater than 0 [type=greater_than, input_value={count!r}]"
            )
    if (parsed.max_num_seqs or 1) < 1:
        raise Refused(f"ValueError: max_num_seqs must be at least 1, got {parsed.max_num_seqs}")


def refuse_on_these_cards(parsed):
    """What vLLM refuses on RTX 4090s, and cannot know without them."""
    if parsed.attention_backend == "FLASH_ATTN" and str(parsed.kv_cache_dtype).startswith("fp8"):
        raise Refused(
            "ValueError: Selected backend AttentionBackendEnum.FLASH_ATTN is not valid for this configuration. Reason: "
            "['kv_cache_dtype not supported', 'FP8 KV cache requires FA3 on SM90 or FA4 on SM100']"
        )
