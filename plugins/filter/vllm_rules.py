# SPDX-License-Identifier: Apache-2.0
"""What is known to go wrong with an engine's configuration: a table of rules, and a function that applies it."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable
from typing import NamedTuple

REPORT = "field report, August 2026"
WHEELS = "read in vLLM's published wheels"
TLS = "gateway_tls_certificate and gateway_tls_key, as the gateway and the box speak plain HTTP to an engine"


class Case(NamedTuple):
    """What a rule looks at."""

    args: dict  # vLLM's options by name, resolved
    env: dict
    version: tuple  # (0, 33, 0), or () where the image's tag names none
    image: str
    box: dict  # a vllm_box; empty while no box was looked at
    fit: dict  # a vllm_fit
    options: dict  # the options of this version by name (roles/vllm/files/options), empty where there is no list
    more: dict  # the whole config of vllm_verdicts

    @property
    def tokens(self):
        return self.fit["speculative_tokens"] or 0

    @property
    def mtp(self):
        """How many tokens MTP speculates, 0 without it. What is known of MTP is not known of other methods."""
        return self.tokens if self.fit["speculative_method"] == "mtp" else 0

    @property
    def gdn(self):
        return bool(self.fit["architecture"] and self.fit["architecture"]["gdn"])

    @property
    def backend(self):
        config = self.args.get("attention-config")
        found = self.args.get("attention-backend") or (config.get("backend") if isinstance(config, dict) else None)
        return str(found or self.env.get("VLLM_ATTENTION_BACKEND") or "").upper()

    @property
    def kv_dtype(self):
        return str(self.args.get("kv-cache-dtype", "auto"))

    def number(self, name, default=None):
        value = self.args.get(name, default)
        try:
            return None if isinstance(value, bool) or value is None else float(value)
        except (TypeError, ValueError):
            return None


def flash_attn_fp8(case):
    if case.backend != "FLASH_ATTN" or not case.kv_dtype.startswith("fp8"):
        return
    capability = case.box.get("capability")
    both = f"attention-backend FLASH_ATTN with kv-cache-dtype {case.kv_dtype}"
    needs = "an fp8 KV cache needs FlashAttention 3 on compute capability 9.0 or 4 on 10.0"
    way_out = "remove attention-backend (null in vllm_args): vLLM then takes FlashInfer, which has it; keep fp8"
    if capability is None:
        yield f"{both}: {needs}, and that of these cards is not known", way_out, "warn"
    elif capability.split(".")[0] not in ("9", "10"):
        yield f"{both} does not start: {needs}, and these cards have {capability}", way_out


def bf16_kv_cache(case):
    if case.gdn and case.kv_dtype in ("auto", "bfloat16", "float16"):
        set_to = case.args.get("kv-cache-dtype", "not set")
        yield (
            f"kv-cache-dtype is {set_to}, so the KV cache is 16-bit: a clean log, and 31.7 tok/s instead of 67.6 (one "
            "stream, two RTX 4090s)",
            "set kv-cache-dtype to fp8, without an attention-backend",
        )


def prefix_cache_with_mtp(case):
    prefix = case.args.get("enable-prefix-caching")
    if case.gdn and case.mtp and prefix is not False and not case.args.get("disable-prefix-caching"):
        yield (
            f"prefix caching ({'on' if prefix else 'not set'}) with {case.mtp} speculative tokens on a model with "
            "GDN layers: output has been seen to go wrong slowly, and to clear at a restart",
            "watch answers; if they degrade, set enable-prefix-caching to false, or remove speculative-config",
        )


def xid_31(case):
    if case.gdn and case.mtp and case.backend in ("", "FLASHINFER") and case.kv_dtype.startswith("fp8"):
        yield (
            "MTP with FlashInfer and an fp8 KV cache: illegal memory access (Xid 31) has been seen under sustained "
            "load; it is a fault of the software, not of the card",
            "let the unit restart the engine; if it recurs, remove speculative-config",
        )


def too_many_tokens(case):
    if not case.gdn or case.tokens <= 4:
        return
    method = case.fit["speculative_method"]
    if method == "mtp":
        yield (
            f"num_speculative_tokens is {case.tokens}; more than 4 crash GDN layers",
            "set it to 0 to 4; the field report's is 2",
        )
    elif method is None:
        yield (
            f"num_speculative_tokens is {case.tokens} and speculative-config names no method; with mtp more than 4 "
            "crash GDN layers",
            "name the method; without one and without a model vLLM does not start",
            "warn",
        )
    else:
        yield (
            f"num_speculative_tokens is {case.tokens} with the method {method}: more than 4 have crashed GDN layers "
            "with mtp; of other methods that is not known, and 7 of dflash have run this model on two RTX 3090s "
            "(club-3090 PR 1056)",
            "watch the engine after the change, or set 4 or fewer",
            "advise",
        )


def draft_model(case):
    """A draft model that the container does not have: it has vllm_model alone."""
    config = case.args.get("speculative-config")
    model = config.get("model") if isinstance(config, dict) else None
    model = str(model or case.args.get("spec-model") or "")
    way_out = "put its folder into the folder of vllm_model, and write /models/FOLDER"
    if not model or model in ("ngram", "[ngram]", "suffix", "ngram_gpu") or re.match(r"/models(/|$)", model):
        return
    if model.startswith(("/", "~", ".")):
        yield f"the draft model of speculative-config is {model}, which the engine's container does not have", way_out
    elif case.fit["speculative_method"] not in ("custom_class", "mtp"):
        yield (
            f"the draft model of speculative-config is {model}, of a hub: each start of the engine fetches it anew, "
            "unchecked",
            way_out,
            "advise",
        )


def too_many_sequences(case):
    if not case.fit["known"]:
        return
    most, wanted = case.fit["max_num_seqs"], case.number("max-num-seqs")
    if wanted is None:
        yield (
            f"max-num-seqs is not set, and vLLM's default may be above the {most} state blocks that fit",
            f"set max-num-seqs <= {most}",
            "advise",
        )
    elif wanted > most > 0:
        yield (
            f"max-num-seqs is {wanted:.0f}, and {most} state blocks fit; vLLM does not start",
            f"set max-num-seqs <= {most}",
        )
    elif (at_8k := case.fit["requests"].get(8192)) is not None and wanted > at_8k > 0:
        yield (
            f"max-num-seqs is {wanted:.0f}, and {at_8k} requests of 8K tokens fit at once; more are evicted and "
            "computed anew",
            f"set max-num-seqs to {at_8k} or less, or keep requests short",
            "advise",
        )


def no_headroom(case):
    if not case.fit["known"] or case.fit["enough"] is not False:
        return
    blocks, needed, length = case.fit["blocks"], case.fit["needed"], case.fit["max_model_len"]
    if blocks < needed:
        says = f"one request of max-model-len needs {needed} blocks, {blocks} fit; vLLM does not start"
    else:
        says = (
            f"one request of max-model-len needs {needed} blocks, {blocks} fit; below 1.05 requests a long one is "
            "evicted and computed anew for ever, while all looks healthy"
        )
    yield says, f"set max-model-len <= {length}" if length else "use fewer bytes of weights per card, or more cards"


def all_reduce(case):
    if (case.number("tensor-parallel-size", 1) or 1) <= 1:
        return
    custom = case.args.get("disable-custom-all-reduce") is not True
    allocator = next(
        (case.env[name] for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF") if name in case.env), ""
    )
    if custom and "expandable_segments:true" in str(allocator).lower():
        yield (
            f"custom all-reduce is on and PyTorch's allocator is set to {allocator}; the two crash together",
            "set disable-custom-all-reduce to true",
            "refuse",
        )
        return
    names = case.box.get("names")
    if names and not any("GeForce" in name for name in names):
        return
    if custom:
        yield (
            "disable-custom-all-reduce is not true; without peer-to-peer access between the cards, which consumer "
            "cards do not have, the custom all-reduce has been seen to hang or to add wrongly",
            "set disable-custom-all-reduce to true",
        )
    if str(case.env.get("NCCL_P2P_DISABLE", "")) != "1":
        yield (
            "NCCL_P2P_DISABLE is not 1; consumer cards have no peer-to-peer access, without which sums over two "
            "cards have been seen to hang",
            'set NCCL_P2P_DISABLE to "1" in vllm_env',
        )


def driver_floor(case):
    driver, minimum = case.box.get("driver"), case.more.get("minimum_driver")
    if case.more.get("cuda_finding"):
        yield case.more["cuda_finding"], "a newer driver, or an image for an older CUDA"
    elif driver and minimum and _numbers(driver) < _numbers(minimum):
        yield (
            f"driver {driver} is loaded, the profile's minimum_driver is {minimum}",
            f'set nvidia_driver_branch to "{minimum.split(".")[0]}" or newer',
        )


def stop_order(case):
    shutdown, docker, systemd = case.more.get("stop") or (0, 1, 2)
    if not shutdown < docker < systemd:
        yield (
            f"shutdown-timeout {shutdown}, docker stop {docker} and TimeoutStopSec {systemd} must each be longer than "
            "the one before, or requests that still run are killed",
            "raise the later ones, such as 60, 75, 90",
            "refuse",
        )
    if not case.number("shutdown-timeout", 0):
        yield (
            "shutdown-timeout is 0: a stop ends requests in flight with HTTP 200 and finish_reason abort, which "
            "clients take for an answer",
            "set shutdown-timeout to 60",
        )


def gdn_kernel(case):
    if case.gdn and not case.version:
        yield f"cannot be judged, as the tag of {case.image} names no version", "take a released image", "note"
    elif case.gdn and case.version < (0, 29, 0):
        yield (
            f"vLLM {_dotted(case.version)} has no fused GDN decode kernel for this model",
            "it comes with 0.29.0, full CUDA graphs with MTP with 0.33.0; what they gain on a 4090 is unmeasured",
        )
    elif case.gdn and case.mtp and case.version < (0, 33, 0):
        yield (
            f"vLLM {_dotted(case.version)} falls back to PIECEWISE CUDA graphs with FlashInfer and MTP on these cards",
            "0.33.0 keeps them full; what that gains is unmeasured",
        )


def unknown_option(case):
    if not case.options:
        return
    for name in case.args:
        base = name[3:] if name.startswith("no-") else name
        if name in case.options or case.options.get(base) == "flag":
            continue
        near = difflib.get_close_matches(name, sorted(case.options), n=1)
        yield (
            f"{name} is no option of vLLM {_dotted(case.version)}",
            f"did you mean {near[0]}? Else remove it" if near else "remove it",
        )


def option_type(case):
    for name, value in case.args.items():
        kind = case.options.get(name)
        if kind == "flag" and not isinstance(value, bool):
            yield f"{name} is {value!r}; it is a switch", f"write {name}: true or {name}: false"
        elif kind == "switch" and value is not True:
            yield f"{name} is {value!r}; it can only be switched on", f"write {name}: true, or null to remove it"
        elif kind in ("number", "any") and isinstance(value, bool):
            yield f"{name} is {str(value).lower()}; it takes a value", f"write {name}: VALUE, or null to remove it"
        elif kind == "number" and name not in INTEGERS and not _numeric(value):
            yield f"{name} is {value!r}; it takes a number", f"write {name}: NUMBER"
        elif name in INTEGERS and not _whole(value, INTEGERS[name]):
            yield f"{name} is {value!r}; it takes a whole number above 0", f"write {name}: NUMBER"


# Whole numbers above 0, and whether vLLM takes k, K, m and M behind them.
INTEGERS = {
    "tensor-parallel-size": False,
    "pipeline-parallel-size": False,
    "max-num-seqs": False,
    "max-num-batched-tokens": True,
}


def option_choice(case):
    config, methods = case.args.get("speculative-config"), case.options.get("spec-method")
    method = config.get("method") if isinstance(config, dict) else None
    if method is not None and isinstance(methods, list) and str(method).strip("[]") not in methods:
        near = difflib.get_close_matches(str(method).lower(), methods, n=1)
        yield (
            f"the method of speculative-config is {method}; vLLM {_dotted(case.version)} has "
            f"{', '.join(each for each in methods if each != 'None')}",
            f"did you mean {near[0]}?" if near else "take one of them",
        )
    for name, value in case.args.items():
        choices = case.options.get(name)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(choices, list) and str(item) not in choices:
                near = difflib.get_close_matches(str(item), choices, n=1)
                yield (
                    f"{name} is {item}; allowed are {', '.join(choices)}",
                    f"did you mean {near[0]}?" if near else "take one of them",
                )


def no_option_list(case):
    if not case.options:
        which = (
            f"vLLM {_dotted(case.version)}"
            if case.version
            else f"the version of {case.image}, which its tag does not name"
        )
        yield (
            f"there is no list of options for {which}; names, types and choices were not checked",
            "the image itself checks",
        )


def utilization(case):
    if "device-memory-utilization" in case.args:
        yield "device-memory-utilization is another name of gpu-memory-utilization", "write gpu-memory-utilization"
    value = case.number("gpu-memory-utilization")
    if value is None or 0 < value <= 1:
        return
    way_out = f"write {value / 100:g}" if 1 < value <= 100 else "write a fraction, such as 0.93"
    yield f"gpu-memory-utilization is {value:g}; it is a fraction of the card's memory, above 0 and at most 1", way_out


def heads(case):
    if not case.fit["architecture"]:
        return
    size, allowed = case.number("tensor-parallel-size", 1), case.fit["architecture"]["tensor_parallel"]
    if size is not None and size not in allowed:
        model = case.fit["architecture"]
        yield (
            f"tensor-parallel-size is {size:g}; it must divide the model's {model['query_heads']} query heads and "
            f"{model['kv_heads']} KV heads",
            f"set it to one of {', '.join(map(str, allowed))}",
        )


def cards(case):
    have = case.box.get("cards")
    sizes = ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size", "prefill-context-parallel-size")
    parts = {name: case.number(name, 1) for name in sizes}
    # of several machines this box has a part of the replicas alone
    if "data-parallel-size-local" in case.args:
        parts["data-parallel-size"] = case.number("data-parallel-size-local")
    if not have or None in parts.values():
        return
    wanted = int(math.prod(parts.values()))
    said = ", ".join(f"{name} {size:g}" for name, size in parts.items() if size != 1) or "tensor-parallel-size 1"
    # the largest that the model allows, of what the others leave
    allowed = (case.fit["architecture"] or {}).get("tensor_parallel") or range(1, have + 1)
    others = wanted / (parts["tensor-parallel-size"] or 1)
    largest = max((size for size in allowed if size * others <= have), default=None)
    if wanted > have:
        yield (
            f"{wanted} cards are wanted ({said}), the box has {have}",
            f"set tensor-parallel-size to {largest}" if largest else "set the sizes so that their product is smaller",
        )
    elif wanted < have and _unlike(case.box):
        names = "; ".join(f"{gpu['index']} {gpu['name']}" for gpu in case.box["gpus"])
        best = sorted(case.box["gpus"], key=lambda gpu: -(gpu.get("memory_mib") or 0))[:wanted]
        yield (
            f"{wanted} of {have} cards are used ({said}), and the engine is given all of them, which are not alike "
            f"({names}): it would be judged by the smallest",
            f"give it its cards, vllm_engines: [{{name: main, gpus: {sorted(gpu['index'] for gpu in best)}}}]",
        )
    elif wanted < have:
        more = largest and largest * others > wanted
        yield (
            f"{wanted} of {have} cards are used ({said})",
            f"set tensor-parallel-size to {largest} if the model is to have them all"
            if more and largest * others == have
            else "give the others to a second engine, or this one its own cards (gpus in vllm_engines); the model "
            f"allows tensor-parallel-size {', '.join(map(str, allowed))}",
            "advise",
        )


def _unlike(box):
    return len({gpu["name"] for gpu in box.get("gpus") or []}) > 1


def experts(case):
    if case.args.get("enable-expert-parallel") is True and case.fit["architecture"]:
        yield (
            "enable-expert-parallel is set, and this model has no experts; vLLM does not start",
            "remove it, or set tensor-parallel-size",
        )


def dummy_weights(case):
    if case.args.get("load-format") == "dummy":
        yield "load-format is dummy: the engine answers with random words, whatever vllm_model has", "remove it"


def activations(case):
    left, wanted, of_step = (case.fit[name] for name in ("left_mib", "left_wanted_mib", "activations_gib"))
    if left is None or left >= wanted:
        return
    setting = "kv-cache-memory-bytes" if "kv-cache-memory-bytes" in case.args else "gpu-memory-utilization"
    says = f"{setting} {case.args[setting]} leaves {left:.0f} MiB of each card for what vLLM does not plan"
    if of_step is not None:
        steps = case.args.get("max-num-batched-tokens", "not set")
        says += f"; steps of this size (max-num-batched-tokens {steps}) take about {of_step:.1f} GiB of activations"
    says += f", so that {wanted:.0f} MiB should be left (an estimate): engines with less have died of long prompts"
    way_out = f"set {setting} lower"
    if setting == "gpu-memory-utilization":
        way_out = f"set gpu-memory-utilization <= {_leaves(case, wanted):.2f}"
    if of_step is not None and case.fit["steps_for_left"]:
        way_out += f", or max-num-batched-tokens <= {case.fit['steps_for_left']}"
    yield says, way_out


def _leaves(case, mib):
    """The largest gpu-memory-utilization that leaves `mib`."""
    return math.floor((1 - mib / case.fit["card_mib"]) * 100) / 100


def display(case):
    """Memory of the cards that a display or its programs have."""
    left, wanted = case.fit["left_mib"], case.fit["left_wanted_mib"]
    for gpu in case.box.get("gpus") or []:
        used = gpu.get("memory_used_mib")
        if not gpu.get("display_active") and (used or 0) < OTHERS_MIB:
            continue
        takes = "an unknown amount" if used is None else f"{used} MiB"
        what = "a display is attached to it and takes" if gpu.get("display_active") else "others than engines take"
        says = f"card {gpu['index']} ({gpu['name']}): {what} {takes}"
        way_out = "plug the display into another card or the board, or boot without a desktop"
        if left is not None:
            says += f"; {left:.0f} MiB are left for that and for what vLLM does not plan"
            if used is not None and used > left:
                says += ", so vLLM does not start (free memory is less than desired)"
            if case.number("gpu-memory-utilization", 0) > _leaves(case, wanted + (used or 0)):
                way_out += f"; or set gpu-memory-utilization <= {_leaves(case, wanted + (used or 0)):.2f}"
        yield says, way_out


# What a driver alone may have on a card is less.
OTHERS_MIB = 200


def parser_name(case):
    parsers = case.more.get("parsers") or {}
    for name in ("tool-call-parser", "reasoning-parser"):
        value, known = case.args.get(name), parsers.get(name, [])
        # A parser of the user's own is loaded from a file.
        if not value or not known or value in known or case.args.get(name.replace("-call", "") + "-plugin"):
            continue
        near = difflib.get_close_matches(str(value), known, n=1)
        way_out = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
        same = _dotted(case.version) == parsers["version"]
        yield f"{name} is {value}, which vLLM {parsers['version']} does not have", way_out, "refuse" if same else "warn"


def tool_choice(case):
    if case.args.get("enable-auto-tool-choice") is True and not case.args.get("tool-call-parser"):
        yield (
            "enable-auto-tool-choice needs a tool-call-parser; vLLM does not start",
            "set tool-call-parser, such as qwen3_xml",
        )


def batched_tokens(case):
    tokens, sequences = case.number("max-num-batched-tokens"), case.number("max-num-seqs")
    if tokens is not None and sequences is not None and tokens < sequences:
        yield (
            f"max-num-batched-tokens ({tokens:.0f}) is below max-num-seqs ({sequences:.0f}); vLLM does not start",
            f"set max-num-batched-tokens to {sequences:.0f} or more",
        )


def fixed_option(case):
    places = {
        "host": "vllm_listen",
        "port": "vllm_port",
        "api-key": "vllm_api_key, as ps shows the options to everybody",
        "model": "vllm_model",
        "config": "vllm_args, as vLLM ignores --config=FILE without a word",
        "uds": "vllm_listen and vllm_port, where the gateway and the box look for the engine",
        "ssl-keyfile": TLS,
        "ssl-certfile": TLS,
        "root-path": "nothing in its place: vLLM takes it off a path before it decides whether to ask for the key",
    }
    for name, place in places.items():
        if name in case.args:
            yield f"{name} is set among the options", f"remove it and use {place}"


def environment(case):
    """YAML's types are no text, and an environment has text alone."""
    for name, value in case.env.items():
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            yield f"vllm_env has the name {name!r}", "write letters, digits and _, such as NCCL_DEBUG"
        elif isinstance(value, bool):
            yield (
                f"{name} is {str(value).lower()}, which would be the text {value}; vLLM reads most of its switches as "
                "numbers and dies of it",
                f'write {name}: "{int(value)}", or the text that this variable takes, in quotes',
            )
        elif isinstance(value, (dict, list, tuple)):
            yield (
                f"{name} is a {'mapping' if isinstance(value, dict) else 'list'}, and a variable has text",
                f"write {name}: '...' in quotes, as JSON or with commas, whichever it takes",
            )
        elif isinstance(value, float) and not math.isfinite(value):
            yield f"{name} is {value}, which YAML calls a number", "write the text that is meant in quotes"
        elif isinstance(value, float):
            yield (
                f"{name} is the number {value}, and may have been written in another way (1.10, 1.0e+6)",
                f'write it in quotes, {name}: "{value}"',
                "advise",
            )
        elif isinstance(value, str) and re.search(r"[\x00-\x1f\x7f]", value):
            yield f"{name} has a line break or another control character, which a unit cannot hold", "remove it"


# What the image, or this role, says of these; and who is to say it.
FIXED_ENV = {
    "PATH": ("refuse", "the image finds its programs by it", "remove it"),
    "HOME": ("warn", "the caches that are kept are those of /root", "remove it"),
    "VLLM_CACHE_ROOT": ("warn", "the cache that is kept over restarts is /root/.cache/vllm", "remove it"),
    "LD_LIBRARY_PATH": ("warn", "it replaces the image's own, in which CUDA's libraries are", "remove it"),
    "LD_PRELOAD": ("warn", "each program of the engine loads it", "remove it"),
    "PYTHONPATH": ("warn", "it goes before the image's own vLLM", "remove it"),
    "PYTHONHOME": ("refuse", "Python finds none of its modules with it", "remove it"),
    "CUDA_VISIBLE_DEVICES": (
        "warn",
        "the unit gives the engine its cards",
        "remove it; gpus in vllm_engines says which",
    ),
    "NVIDIA_VISIBLE_DEVICES": (
        "warn",
        "the unit gives the engine its cards",
        "remove it; gpus in vllm_engines says which",
    ),
}


def fixed_env(case):
    for name, (severity, why, way_out) in FIXED_ENV.items():
        if name in case.env:
            yield f"{name} is {case.env[name]} in vllm_env; {why}", way_out, severity


def secret_in_env(case):
    for name in ("VLLM_API_KEY", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        if name in case.env:
            yield (
                f"{name} is in the engine's environment, which docker inspect and the unit show",
                "take it from a vault: vllm_api_key",
            )


def dev_mode(case):
    if str(case.env.get("VLLM_SERVER_DEV_MODE", "0")) not in ("0", ""):
        yield "VLLM_SERVER_DEV_MODE is set; it opens endpoints that let anybody put the engine to sleep", "remove it"


def open_routes(case):
    if why := case.more.get("open"):
        if "vllm_filter" in why:
            way_out = "take vllm_filter: false out, or have the engines listen on 127.0.0.1"
        elif "everybody" in why:
            way_out = (
                "narrow vllm_allowed_sources, or the gateways' gateway_source_addresses, to who is to reach the port"
            )
        else:
            way_out = (
                "leave vllm_listen unset and put a gateway into the inventory (a box may be its own: docs/engine.md), "
                "or name in vllm_allowed_sources who may reach every route"
            )
        yield (
            f"{why}: vLLM asks for its key under /v1 alone, so anybody on the network gets completions "
            "without one (/invocations, /inference) and all its other routes",
            way_out,
        )


def remote_code(case):
    if case.args.get("trust-remote-code") is True:
        yield (
            "trust-remote-code has vLLM run the Python files beside the weights, with the engine's key and cards",
            "remove it, as vLLM has this model's code itself; else read those files and pin the weights' revision",
        )


def trusted_clients(case):
    """Options that vLLM's own documentation keeps for clients that are trusted."""
    names = ("allowed-local-media-path", "trust-request-chat-template", "trust-request-mm-kwargs")
    names += ("enable-prompt-embeds", "enable-mm-embeds", "enable-scale-out", "profiler-config", "tool-server")
    variables = ("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "VLLM_ALLOW_INSECURE_SERIALIZATION", "VLLM_TORCH_PROFILER_DIR")
    found = [name for name in names if case.args.get(name) not in (None, False, "")]
    found += [name for name in variables if str(case.env.get(name, "0")).lower() not in ("0", "", "false")]
    if found:
        yield (
            f"{', '.join(found)}: whoever may ask the engine may then do more than ask (read files, crash it, load "
            "code, fill the disk, as the option allows)",
            "remove what your clients do not need",
        )


def other_ports(case):
    names = (
        "kv-events-config",
        "kv-transfer-config",
        "ec-transfer-config",
        "grpc",
        "grpc-port",
        "data-parallel-address",
    )
    found = [name for name in names if case.args.get(name) not in (None, False, "")]
    if found:
        yield (
            f"{', '.join(found)} may open ports of its own, which the packet filter does not know",
            "have it listen on 127.0.0.1, or filter its port yourself",
        )


def image_tag(case):
    if "@sha256:" not in case.image:
        yield (
            f"{case.image} is named by a tag, which its publisher may lay upon another image, so two boxes may come to "
            "run two",
            "pin it: vllm_image_digest, as docker pull prints it",
        )


class Rule(NamedTuple):
    """`check` yields (what it says, the way out) for each finding, and a severity where it differs from the rule's."""

    id: str
    severity: str  # refuse | warn | advise | note
    check: Callable
    source: str
    versions: str = "all"  # that it is known of, for readers; where it matters the check looks at the version
    needs_box: bool = False


RULES = [
    Rule("E1", "refuse", flash_attn_fp8, f"{REPORT}; {WHEELS}", "0.20.2 to 0.33.0", needs_box=True),
    Rule("E2", "warn", bf16_kv_cache, REPORT),
    Rule("E3", "advise", prefix_cache_with_mtp, "vllm#53912, vllm#47194", "open on 0.28, since then unknown"),
    Rule("E4", "advise", xid_31, "vllm#40756, vllm#55775", "open"),
    Rule("E5", "refuse", too_many_tokens, "vllm PR 50021, vllm#37035"),
    Rule("draft-model", "refuse", draft_model, "this role mounts vllm_model alone"),
    Rule("E8", "refuse", too_many_sequences, "vllm#49064; computed", "computed for 0.25 to 0.28", needs_box=True),
    Rule("E9", "refuse", no_headroom, "vllm#52520; computed", "computed for 0.25 to 0.28", needs_box=True),
    Rule("E11", "warn", all_reduce, "vllm#42609, nccl-tests#117"),
    Rule("E13", "refuse", driver_floor, "vllm#5510; CUDA toolkit release notes", needs_box=True),
    Rule("S1", "warn", stop_order, "vllm#24885"),
    Rule("gdn-kernel", "advise", gdn_kernel, f"{WHEELS}; vllm PR 51674", "before 0.33.0"),
    Rule("unknown-option", "refuse", unknown_option, WHEELS, "those with a list"),
    Rule("option-type", "refuse", option_type, WHEELS, "those with a list"),
    Rule("option-choice", "refuse", option_choice, WHEELS, "those with a list"),
    Rule("option-list", "note", no_option_list, "roles/vllm/files/options", "those without a list"),
    Rule("utilization", "refuse", utilization, "vLLM's documentation"),
    Rule("heads", "refuse", heads, "the model's config.json"),
    Rule("cards", "refuse", cards, "what the box has", needs_box=True),
    Rule("experts", "refuse", experts, "read in vLLM 0.32.0, config/model.py"),
    Rule("dummy-weights", "warn", dummy_weights, "vLLM's documentation"),
    Rule(
        "activations",
        "warn",
        activations,
        f"{REPORT}; club-3090#487, club-3090#1064; estimate",
        "all, of one model",
    ),
    Rule("display", "warn", display, "NVML; vLLM 0.32.0, v1/worker/utils.py: request_memory", needs_box=True),
    Rule("parser", "warn", parser_name, WHEELS, "0.32.0"),
    Rule("tool-choice", "refuse", tool_choice, WHEELS, "0.32.0"),
    Rule("batched-tokens", "refuse", batched_tokens, WHEELS, "0.32.0"),
    Rule("fixed-option", "refuse", fixed_option, "this role; " + WHEELS),
    Rule("environment", "refuse", environment, "vllm-metal#517; read in vLLM 0.32.0, envs.py"),
    Rule("fixed-env", "warn", fixed_env, "this role"),
    Rule("secret", "refuse", secret_in_env, "this role"),
    Rule("dev-mode", "refuse", dev_mode, WHEELS),
    Rule("open-routes", "refuse", open_routes, f"vLLM's security guide; {WHEELS}", "0.32.0"),
    Rule("remote-code", "advise", remote_code, "vLLM's documentation"),
    Rule("trusted-clients", "advise", trusted_clients, f"vLLM's documentation; {WHEELS}", "0.32.0"),
    Rule("other-ports", "advise", other_ports, f"vLLM's documentation; {WHEELS}", "0.32.0"),
    Rule("image-tag", "advise", image_tag, "Docker's documentation"),
]
ORDER = {"refuse": 0, "warn": 1, "advise": 2, "note": 3}


def vllm_verdicts(config, fit, options=None, box=None, acknowledge=None):
    """What the rules have to say, the gravest first.

    config       keys `args`, `env`, `image`, `version` ("" is unknown); where known `minimum_driver`, `cuda_finding` (a
                 sentence of the filter of that name), `stop` (seconds of shutdown-timeout, docker stop,
                 TimeoutStopSec), `open` (of vllm_open_to_all) and `parsers` (roles/vllm/files/parsers.json)
    fit          a vllm_fit
    options      the options that this version knows (roles/vllm/files/options); null or empty where there is no list
    box          a vllm_box; null judges settings alone and leaves out the rules that ask about cards
    acknowledge  ids of rules whose refusals, warnings and advice are to be notes

    Each verdict is a dict: id, severity (refuse, warn, advise, note), says, way_out, source, acknowledged.
    """
    version = _numbers(config["version"]) if config["version"] else ()
    case = Case(config["args"], config["env"], version, config["image"], box or {}, fit, options or {}, config)
    verdicts = []
    for rule in RULES:
        if rule.needs_box and box is None:
            continue
        for says, way_out, *other in rule.check(case):
            severity = other[0] if other else rule.severity
            acknowledged = rule.id in (acknowledge or []) and severity != "note"
            verdicts.append(
                {
                    "id": rule.id,
                    "severity": "note" if acknowledged else severity,
                    "says": says,
                    "way_out": way_out,
                    "source": rule.source,
                    "acknowledged": acknowledged,
                }
            )
    return sorted(verdicts, key=lambda verdict: ORDER[verdict["severity"]])


def vllm_unknown_rules(ids):
    """A sentence for each of `ids` that is no rule's."""
    known = [rule.id for rule in RULES]
    return [
        f"vllm_acknowledge names {each}, which is no rule; known are {', '.join(known)}"
        for each in ids
        if each not in known
    ]


def _numeric(value):
    try:
        # some numbers take a suffix
        float(re.sub(r"(?<=\d)[kKmMgGtT]$", "", str(value)))
    except (TypeError, ValueError):
        return False
    return True


def _whole(value, suffix):
    """Whether `value` is a whole number above 0, written with vLLM's k, K, m or M where it takes a suffix."""
    return re.fullmatch(r"0*[1-9]\d*" + (r"(\.\d+)?[kKmM]|0*[1-9]\d*" if suffix else ""), str(value)) is not None


def _numbers(version):
    return tuple(int(part) for part in version.split("."))


def _dotted(version):
    return ".".join(map(str, version))


class FilterModule:
    """Ansible's entry point."""

    def filters(self):
        return {"vllm_verdicts": vllm_verdicts, "vllm_unknown_rules": vllm_unknown_rules}
