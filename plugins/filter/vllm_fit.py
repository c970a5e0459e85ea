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
# Beside weights and KV cache, per card: CUDA graphs 0.5 and activations 2 (field report).
OTHER_GIB = 2.5

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
    return vllm_integer(config.get("num_speculative_tokens", args.get("spec-tokens", 0)))


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

    Returns a dict. `architecture` is what is known of the model or null, `speculative_tokens` their number or null.
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
    profile, box = profile or {}, box or {}
    architecture = profile.get("architecture")
    model = ARCHITECTURES.get(architecture)
    fit = {"architecture": model, "speculative_tokens": vllm_speculative_tokens(args), "known": False}
    return {**fit, **_fit(args, profile, box, version, architecture, fit["speculative_tokens"])}


def _fit(args, profile, box, version, architecture, tokens):
    if architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        return _unknown(f"the profile's architecture is {architecture or 'not set'}, known is {known}")
    tensor_parallel = vllm_integer(args.get("tensor-parallel-size", 1))
    if tensor_parallel not in ARCHITECTURES[architecture]["tensor_parallel"]:
        return _unknown(f"tensor-parallel-size {args.get('tensor-parallel-size')} does not divide the model")
    dtype = str(args.get("kv-cache-dtype", "auto"))
    if dtype not in KV_BYTES:
        return _unknown(f"the size of a token with kv-cache-dtype {dtype} is not known here")
    if tokens is None:
        return _unknown("speculative-config is not readable")
    weights = (profile.get("model") or {}).get("weights_gb")
    kv, kv_from = kv_gib(args, profile.get("memory") or {}, weights, tensor_parallel, box)
    if kv is None:
        return _unknown(kv_from)
    if not box.get("memory_mib") and kv_from != "kv-cache-memory-bytes":
        kv_from += ", for 24 GB cards"

    # Whether vLLM caches prefixes of this model when nobody says is a matter of its version: take the larger need.
    block = vllm_blocks(architecture, tensor_parallel, KV_BYTES[dtype], tokens, args.get("enable-prefix-caching", True))
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
    return {**fit, "sentence": _sentence(fit, length, version)}


def kv_gib(args, memory, weights_gb, tensor_parallel, box):
    """GiB per card for the KV cache, and a clause about where the figure comes from; None and the reason if unknown.

    `memory` holds what was found: `kv_gib_per_card` at `gpu_memory_utilization` on cards of `card_mib`, with
    `tensor_parallel_size`. Without it the rest is estimated from the weights. kv-cache-memory-bytes goes before both.
    """
    if "kv-cache-memory-bytes" in args:
        given = vllm_integer(args["kv-cache-memory-bytes"])
        if given is None:
            return None, f"kv-cache-memory-bytes {args['kv-cache-memory-bytes']} is not readable"
        return given / GIB, "kv-cache-memory-bytes"
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
        return usable - other, f"estimate from {memory['kv_gib_per_card']} GiB at {memory['gpu_memory_utilization']}"
    if weights_gb is not None:
        weights = weights_gb * 1e9 / GIB / tensor_parallel
        clause = f"estimate: {weights:.1f} GiB of weights and {OTHER_GIB} GiB of graphs and activations taken off"
        return usable - weights - OTHER_GIB, clause
    return None, "the profile says neither memory.kv_gib_per_card nor model.weights_gb"


def _unknown(why):
    return {"sentence": f"whether it fits is not known: {why}"}


def _sentence(fit, length, version):
    said = (
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
