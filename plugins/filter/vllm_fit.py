# SPDX-License-Identifier: Apache-2.0
"""Does it fit? Blocks, pool and concurrency of a model on given cards, before an engine is started: a pure function.

The model of blocks was derived from published start-up logs of vLLM 0.25 to 0.28 and gives their twelve pools exactly
(tests/unit/test_vllm_fit.py has them). From 0.29 on, where Model Runner V2 is the default, it is unchecked.
"""

from __future__ import annotations

import math
import re

GIB = 2**30
LENGTHS = [8192, 16384, 32768, 65536, 131072, 262144]

# Only what is known of a model; there is no guessing for others. GDN layers (linear attention) keep a state of constant
# size per request, attention layers a cache that grows with it.
ARCHITECTURES = {
    "qwen3.8-27b": {
        "gdn": True,
        "query_heads": 24,
        "kv_heads": 4,
        "head_size": 256,
        "attention_layers": 16,
        "mtp_layers": 1,
        "gdn_value_heads": 48,
        "gdn_state": 128 * 128,
        "gdn_convolution": 10240,
        "gdn_state_groups": 3,
        "tensor_parallel": [1, 2, 4],
    },
}

# A 24 GB card as NVML counts it.
CARD_MIB = 24564
# Beside weights and KV cache, per card: CUDA graphs 0.5 GiB, activations 2 GiB in steps of 4096 tokens (field report).
# Activations are taken to grow with the tokens of a step (club-3090#47: half the tokens, about half of it). An estimate
# from one model at tensor-parallel-size 2.
GRAPHS_GIB = 0.5
ACTIVATIONS_GIB = 2.0
ACTIVATIONS_TOKENS = 4096
# vLLM's own for cards below 70 GB, or A100.
DEFAULT_BATCHED_TOKENS = 2048
# What an engine takes later beyond what it planned at its start, as a part of the activations of a step, and the least
# of it: with 1.7 GiB left and steps of 4096 tokens the field report's engine lives; with 0.6 GiB one like it died of an
# 88K prompt (club-3090#487), and one with 0.5 GiB of 8K (club-3090#1064).
LEFT_PART = 0.75
LEFT_LEAST_MIB = 768

# Options with which the figures are others than the ones that were derived and measured: the values with which nothing
# changes, and what changes else. The first two groups change the blocks, the third what weights leave of a card.
ONE_STAGE = {
    "pipeline-parallel-size": ([1], "gives each card the layers of its stage alone"),
    "nnodes": ([1], "shares the model out over machines"),
}
BLOCKS = {
    "decode-context-parallel-size": ([1], "shares the KV cache out over the cards"),
    "prefill-context-parallel-size": ([1], "shares prompts out over the cards"),
    "block-size": ([], "changes the blocks"),
    "mamba-block-size": ([], "changes the blocks"),
    "mamba-cache-mode": ([], "changes what a request keeps of its state"),
    "mamba-cache-dtype": (["auto"], "changes the size of a state"),
    "mamba-ssm-cache-dtype": (["auto", "float32"], "changes the size of a state"),
    "use-replayssm": ([False], "changes what a request keeps of its state"),
    "kv-cache-dtype-skip-layers": ([], "changes the size of a token"),
    "kv-offloading-size": ([0], "moves KV cache to the host's memory"),
    "kv-transfer-config": ([], "moves KV cache elsewhere"),
    "disable-hybrid-kv-cache-manager": ([False], "changes the blocks"),
    "enable-hybrid-kv-cache-manager": ([True], "changes the blocks"),
    "hf-overrides": ([], "changes the model"),
    "dtype": (["auto", "bfloat16"], "changes the size of weights and states"),
}
WEIGHTS = {
    "cpu-offload-gb": ([0], "moves weights to the host's memory"),
    "offload-group-size": ([0], "moves layers to the host's memory"),
    "quantization": (
        # names of what the weights are already
        ["awq", "awq_marlin", "gptq", "gptq_marlin", "auto-round", "auto_round", "inc", "compressed-tensors"],
        "changes the size of the weights as they are loaded",
    ),
    "enable-lora": ([False], "takes memory for adapters"),
}

KV_BYTES = {"auto": 2, "float16": 2, "bfloat16": 2, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1}
VERIFIED = ((0, 25, 0), (0, 29, 0))

# With less than this many maximal requests in the pool a long one is evicted and computed anew, for ever (vllm#52520).
HEADROOM = 1.05


def vllm_integer(value):
    """`value` as an integer, with vLLM's suffixes (k = 1000, K = 1024, so m g t, M G T); None for what is none."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgtKMGT]?)", str(value).strip())
    if isinstance(value, bool) or not match:
        return None
    suffix = match[2]
    base = 1000 if suffix.islower() else 1024
    return int(float(match[1]) * base ** (" kmgt".index(suffix.lower()) if suffix else 0))


def vllm_speculative_tokens(args):
    """How many tokens `args` let the engine speculate: 0 without speculation; None where that cannot be read."""
    config = args.get("speculative-config") or {}
    if not isinstance(config, dict):
        return None
    # without a number it is the draft model's own
    number = config.get("num_speculative_tokens", args.get("spec-tokens"))
    if number is None:
        return None if vllm_speculative_method(args) else 0
    return vllm_integer(number)


def vllm_speculative_method(args):
    """How the engine speculates, as vLLM's SpeculativeConfig reads it: "" for not at all, "mtp" for all names of MTP.

    None where that cannot be read, or where neither method nor model is named.
    """
    config = args.get("speculative-config") or {}
    if not isinstance(config, dict):
        return None
    method, model = config.get("method", args.get("spec-method")), config.get("model", args.get("spec-model"))
    if method:
        # qwen3_5_mtp, deepseek_mtp and so on are older names of it
        return "mtp" if str(method).endswith("mtp") else str(method).strip("[]")
    if model:
        return "ngram" if model in ("ngram", "[ngram]") else "draft_model"
    return None if config or args.get("spec-tokens") else ""


def vllm_activations_gib(args):
    """GiB of activations of one step on a card, estimated (see ACTIVATIONS_GIB); None for no number of tokens."""
    tokens = vllm_integer(args.get("max-num-batched-tokens", DEFAULT_BATCHED_TOKENS))
    return None if tokens is None else ACTIVATIONS_GIB * tokens / ACTIVATIONS_TOKENS


def _left(args, profile, box, model):
    card = box.get("memory_mib") or CARD_MIB
    activations = vllm_activations_gib(args) if model else None
    left = _left_mib(args, profile, card)
    steps = int((left or 0) / LEFT_PART / 1024 / ACTIVATIONS_GIB * ACTIVATIONS_TOKENS) // 512 * 512
    return {
        "card_mib": card,
        "left_mib": left,
        "left_wanted_mib": max(LEFT_LEAST_MIB, LEFT_PART * (activations or 0) * 1024),
        "activations_gib": activations,
        "steps_for_left": steps if (left or 0) >= LEFT_LEAST_MIB else 0,
    }


def _left_mib(args, profile, card):
    if "kv-cache-memory-bytes" not in args:
        try:
            share = float(args["gpu-memory-utilization"])
        except (KeyError, TypeError, ValueError):
            return None
        return (1 - share) * card if 0 < share <= 1 else None
    # the cache has its size whatever that leaves
    kv, weights = vllm_integer(args["kv-cache-memory-bytes"]), (profile.get("model") or {}).get("weights_gb")
    activations = vllm_activations_gib(args)
    if None in (kv, weights, activations) or _moved(args, {**ONE_STAGE, **WEIGHTS}):
        return None
    parts = vllm_integer(args.get("tensor-parallel-size", 1)) or 1
    return card - (weights * 1e9 / GIB / parts + kv / GIB + GRAPHS_GIB + activations) * 1024


def _moved(args, table):
    """A clause about the first option of `args` with which `table` says that the figures are others; else nothing."""
    for name, (harmless, why) in table.items():
        value = args.get(name)
        if value is not None and str(value).lower() not in [str(each).lower() for each in harmless]:
            return f"{name} {value if not isinstance(value, bool) else str(value).lower()} {why}"
    return ""


def vllm_blocks(architecture, tensor_parallel, kv_bytes, speculative_tokens, prefix_cache):
    """Sizes of the blocks into which vLLM cuts a card's KV cache, for a key of ARCHITECTURES.

    Returns a dict: `tokens` in a block, `bytes` of a block, and `state_blocks`, which each running request needs beside
    those for its tokens.
    """
    a = ARCHITECTURES[architecture]
    per_token = 2 * a["kv_heads"] * a["head_size"] * kv_bytes // tensor_parallel
    page = (
        a["gdn_value_heads"] // tensor_parallel * a["gdn_state"] * 4
        + a["gdn_convolution"] // tensor_parallel * (3 + speculative_tokens) * 2
    )
    tokens = 16 * math.ceil(page / (16 * per_token))
    layers = a["attention_layers"] + (a["mtp_layers"] if speculative_tokens else 0)
    states = a["gdn_state_groups"] * (speculative_tokens + (2 if prefix_cache else 1))
    return {"tokens": tokens, "bytes": layers * tokens * per_token, "state_blocks": states}


def vllm_fit(args, profile=None, box=None, version=None):
    """What fits on the cards of a box.

    args     vLLM's options by name, as resolved
    profile  keys `architecture` (of ARCHITECTURES, or null), `memory` (see kv_gib) and `model`, whose `weights_gb` are
             10^9 bytes, all cards together
    box      keys `cards` and `memory_mib` (of one card); null or absent stands for 24 GB cards
    version  vLLM's, as "0.33.0", or null

    Returns a dict. `architecture` is what is known of the model or null, `speculative_tokens` their number or null,
    `speculative_method` how, as vllm_speculative_method says it. `left_mib` is what of each card (`card_mib`) vLLM does
    not plan for, or null, and `left_wanted_mib` what should be left, beside `activations_gib` of a step (null where the
    model is not known); `steps_for_left` is the max-num-batched-tokens that goes with what is left.
    `known` is false where the answer would be a guess, and `sentence` says why. Else there are as well:

    blocks, block_tokens     in the pool of a card, and tokens in one of them
    kv_gib, kv_from          GiB per card for the pool, and what that figure comes from
    pool                     tokens, as vLLM prints it at start-up; null, as all that needs it, without a max-model-len
    concurrency              requests of full length at once
    length                   max-model-len in tokens
    needed                   blocks that one request of full length needs
    requests                 by length in tokens: how many requests of that length run at once
    max_num_seqs             the largest with which vLLM starts
    max_model_len            the largest for which the pool holds 1.05 requests; the model's own limit may be lower
    enough                   whether the set max-model-len is at most that
    sentence                 all of it for a reader
    """
    profile, box = profile or {}, _of_used_cards(args, box or {})
    architecture = profile.get("architecture")
    model = ARCHITECTURES.get(architecture)
    fit = {
        "architecture": model,
        "speculative_tokens": vllm_speculative_tokens(args),
        "speculative_method": vllm_speculative_method(args),
        **_left(args, profile, box, model),
        "known": False,
    }
    return {**fit, **_fit(args, profile, box, version, architecture, fit)}


def _of_used_cards(args, box):
    """`box` with the memory of the cards that are used: of unlike ones the largest, as one for a screen is small."""
    memories = sorted((gpu.get("memory_mib") or 0 for gpu in box.get("gpus") or []), reverse=True)
    sizes = ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size")
    used = math.prod(vllm_integer(args.get(name, 1)) or 1 for name in sizes)
    return {**box, "memory_mib": memories[used - 1]} if 0 not in memories and used < len(memories) else box


def _fit(args, profile, box, version, architecture, speculation):
    if architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        return _unknown(f"the profile's architecture is {architecture or 'not set'}, known is {known}")
    tensor_parallel = vllm_integer(args.get("tensor-parallel-size", 1))
    if tensor_parallel not in ARCHITECTURES[architecture]["tensor_parallel"]:
        return _unknown(f"tensor-parallel-size {args.get('tensor-parallel-size')} does not divide the model")
    dtype = str(args.get("kv-cache-dtype", "auto"))
    if dtype not in KV_BYTES:
        return _unknown(f"the size of a token with kv-cache-dtype {dtype} is not known here")
    method, tokens = speculation["speculative_method"], speculation["speculative_tokens"]
    if method is None or (tokens is None and method in ("", "mtp")):
        return _unknown("speculative-config is not readable: it names no method, or no num_speculative_tokens")
    if method not in ("", "mtp"):
        return _unknown(
            f"speculative-config has the method {method}, whose weights and KV cache are not known here, only those of "
            "mtp"
        )
    weights = (profile.get("model") or {}).get("weights_gb")
    if moved := _moved(args, ONE_STAGE):
        stages = vllm_integer(args.get("pipeline-parallel-size", 1)) or 1
        share = f", about {weights * 1e9 / GIB / tensor_parallel / stages:.1f} GiB of weights" if weights else ""
        return _unknown(f"{moved}{share}; the blocks were derived for one stage on one machine")
    if moved := _moved(args, BLOCKS):
        return _unknown(moved)
    kv, kv_from = kv_gib(args, profile.get("memory") or {}, weights, tensor_parallel, box)
    if kv is None and "num-gpu-blocks-override" not in args:
        return _unknown(kv_from)
    if kv is not None and not box.get("memory_mib") and kv_from != "kv-cache-memory-bytes":
        kv_from += ", for 24 GB cards"

    # Whether vLLM caches prefixes of this model when nobody says is a matter of its version: take the larger need.
    block = vllm_blocks(architecture, tensor_parallel, KV_BYTES[dtype], tokens, args.get("enable-prefix-caching", True))
    if "num-gpu-blocks-override" in args:
        blocks = vllm_integer(args["num-gpu-blocks-override"])
        if blocks is None:
            return _unknown(f"num-gpu-blocks-override {args['num-gpu-blocks-override']} is not readable")
        kv, kv_from = blocks * block["bytes"] / GIB, "num-gpu-blocks-override"
    else:
        blocks = max(0, int(kv * GIB // block["bytes"]))
    size, states = block["tokens"], block["state_blocks"]

    def needs(length):
        return math.ceil(length / size) + states

    length = vllm_integer(args["max-model-len"]) if "max-model-len" in args else None
    needed = needs(length) if length else None
    fit = {
        "known": True,
        "blocks": blocks,
        "block_tokens": size,
        "kv_gib": round(kv, 2),
        "kv_from": kv_from,
        "length": length,
        "needed": needed,
        "pool": blocks * length // needed if length else None,
        "concurrency": round(blocks / needed, 2) if length else None,
        "requests": {each: blocks // needs(each) for each in LENGTHS if not length or each <= length},
        "max_num_seqs": blocks,
        "max_model_len": max(0, (int(blocks / HEADROOM) - states) * size),
        "enough": blocks >= HEADROOM * needed if length else None,
    }
    return {**fit, "sentence": _sentence(fit, length, version, vllm_integer(args.get("data-parallel-size", 1)) or 1)}


def kv_gib(args, memory, weights_gb, tensor_parallel, box):
    """GiB per card for the KV cache, and a clause about where the figure comes from; None and the reason if unknown.

    `memory` holds what was found: `kv_gib_per_card` at `gpu_memory_utilization` on cards of `card_mib`, with
    `tensor_parallel_size`, in steps of ACTIVATIONS_TOKENS. Larger steps leave less. Without it the rest is estimated
    from the weights. kv-cache-memory-bytes goes before both.
    """
    if "kv-cache-memory-bytes" in args:
        given = vllm_integer(args["kv-cache-memory-bytes"])
        if given is None:
            return None, f"kv-cache-memory-bytes {args['kv-cache-memory-bytes']} is not readable"
        return given / GIB, "kv-cache-memory-bytes"
    if moved := _moved(args, WEIGHTS):
        return None, moved
    activations = vllm_activations_gib(args)
    if activations is None:
        return None, f"max-num-batched-tokens {args['max-num-batched-tokens']} is not readable"
    card_mib = box.get("memory_mib") or CARD_MIB
    if "gpu-memory-utilization" not in args:
        return None, "gpu-memory-utilization is not set, and vLLM's default is a matter of its version"
    try:
        usable = float(args["gpu-memory-utilization"]) * card_mib / 1024
    except (TypeError, ValueError):
        return None, f"gpu-memory-utilization {args['gpu-memory-utilization']} is not a number"
    measured_tp = memory.get("tensor_parallel_size", tensor_parallel)
    if memory.get("kv_gib_per_card") is not None and measured_tp == tensor_parallel:
        # What is no cache there, weights and graphs and activations, is none here either.
        other = memory["gpu_memory_utilization"] * memory["card_mib"] / 1024 - memory["kv_gib_per_card"]
        more = max(0.0, activations - ACTIVATIONS_GIB)
        clause = f"estimate from {memory['kv_gib_per_card']} GiB at {memory['gpu_memory_utilization']}"
        clause += f", less {more:.1f} for max-num-batched-tokens {args['max-num-batched-tokens']}" if more else ""
        return usable - other - more, clause
    if weights_gb is not None:
        weights = weights_gb * 1e9 / GIB / tensor_parallel
        other = GRAPHS_GIB + activations
        clause = f"estimate: {weights:.1f} GiB of weights and {other:.1f} GiB of graphs and activations taken off"
        return usable - weights - other, clause
    return None, "the profile says neither memory.kv_gib_per_card nor model.weights_gb"


def _unknown(why):
    return {"sentence": f"whether it fits is not known: {why}"}


def _sentence(fit, length, version, replicas):
    said = f"each of {replicas} replicas: " if replicas > 1 else ""
    said += (
        f"{fit['blocks']} blocks of {fit['block_tokens']} tokens in {fit['kv_gib']} GiB of KV cache per card "
        f"({fit['kv_from']})"
    )
    if length:
        said += f"; pool {fit['pool']:,} tokens, {fit['concurrency']:.2f} requests of {length:,} tokens"
    many = "/".join(str(count) for count in fit["requests"].values())
    names = "/".join(f"{each // 1024}K" for each in fit["requests"])
    said += f"; requests at once of {names} tokens each: {many}" if many else ""
    said += f"; fits max-num-seqs <= {fit['max_num_seqs']}, max-model-len <= {fit['max_model_len']:,}"
    numbers = tuple(int(part) for part in version.split(".")) if version else None
    if numbers is None or not VERIFIED[0] <= numbers < VERIFIED[1]:
        said += f" (from logs of vLLM 0.25 to 0.28, unchecked for {version or 'this image'})"
    return said


class FilterModule:
    """Ansible's entry point."""

    def filters(self):
        return {"vllm_fit": vllm_fit, "vllm_integer": vllm_integer}
