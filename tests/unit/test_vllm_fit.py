"""The fit against pools that vLLM printed on other people's cards, and against the field report's settings."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from vllm_fit import GIB, kv_gib, vllm_blocks, vllm_fit, vllm_integer  # plugins/filter/vllm_fit.py

PROFILES = Path(__file__).parents[2] / "roles/vllm/vars/profiles"
ARGS = {
    "tensor-parallel-size": 2,
    "kv-cache-dtype": "fp8",
    "speculative-config": {"method": "mtp", "num_speculative_tokens": 2},
    "enable-prefix-caching": True,
    "gpu-memory-utilization": 0.93,
    "max-model-len": 262144,
    "max-num-seqs": 16,
}
PROFILE = {
    "architecture": "qwen3.8-27b",
    "memory": {"kv_gib_per_card": 9.75, "gpu_memory_utilization": 0.93, "card_mib": 24564},
}

# Published start-up logs of Qwen3.6/3.8-27B at TP 2, vLLM 0.25 to 0.28: the pool printed, speculative tokens, context,
# blocks; then, where it is not the common case, the cache's type and whether prefixes are cached.
POOLS = [
    (569185, 4, 262144, 393),
    (499666, 4, 262144, 345),
    (567737, 4, 262144, 392),
    (652346, 0, 262144, 433),
    (270930, 3, 262144, 185),
    (841541, 3, 262144, 565, "fp8", False),
    (518430, 3, 262144, 354),
    (619479, 3, 262144, 423),
    (622408, 3, 262144, 425),
    (620944, 3, 262144, 424),
    (302921, 0, 131072, 208),
    (123399, 0, 122633, 161, "bfloat16", False),
]


def arguments(tokens, context, dtype="fp8", prefix=True, **more):
    args = {**ARGS, "kv-cache-dtype": dtype, "enable-prefix-caching": prefix, "max-model-len": context, **more}
    args["speculative-config"] = {"method": "mtp", "num_speculative_tokens": tokens}
    if not tokens:
        del args["speculative-config"]
    return args


@pytest.mark.parametrize("row", POOLS)
def test_each_published_pool_exactly(row):
    pool, tokens, context, blocks, *rest = row
    dtype, prefix = rest or ("fp8", True)
    size = vllm_blocks("qwen3.8-27b", 2, {"fp8": 1, "bfloat16": 2}[dtype], tokens, prefix)["bytes"]
    args = arguments(tokens, context, dtype, prefix, **{"kv-cache-memory-bytes": blocks * size})
    fit = vllm_fit(args, PROFILE)
    assert (fit["blocks"], fit["pool"]) == (blocks, pool)
    # a byte less is a block less, and another pool
    args["kv-cache-memory-bytes"] -= 1
    assert vllm_fit(args, PROFILE)["pool"] != pool


@pytest.mark.parametrize(
    ("gib", "blocks", "tokens", "context", "dtype", "prefix"),
    [
        (4.99, 208, 0, 131072, "fp8", True),
        (14.68, 565, 3, 262144, "fp8", False),
        (3.86, 161, 0, 122633, "bfloat16", False),
    ],
)
def test_where_the_bytes_were_published_the_blocks_follow_from_them(gib, blocks, tokens, context, dtype, prefix):
    args = arguments(tokens, context, dtype, prefix, **{"kv-cache-memory-bytes": int(gib * GIB)})
    assert vllm_fit(args, PROFILE)["blocks"] == blocks


@pytest.mark.parametrize(("tokens", "size"), [(0, 1568), (1, 1584), (2, 1600), (3, 1600), (4, 1616)])
def test_block_sizes_at_fp8_and_two_cards(tokens, size):
    assert vllm_blocks("qwen3.8-27b", 2, 1, tokens, True)["tokens"] == size


def test_the_default_profile():
    profile = yaml.safe_load((PROFILES / "qwen3.8-27b-int4.yml").read_text())
    fit = vllm_fit(profile["args"], profile, {"cards": 2, "memory_mib": 24564}, "0.33.0")
    assert fit["kv_gib"] == 9.75
    assert fit["blocks"] == 375
    assert fit["pool"] == 558545
    assert fit["concurrency"] == 2.13
    assert list(fit["requests"].values()) == [20, 16, 11, 7, 3, 2]
    assert fit["enough"]
    for words in [
        "375 blocks of 1600 tokens in 9.75 GiB",
        "pool 558,545 tokens, 2.13 requests of 262,144 tokens",
        "8K/16K/32K/64K/128K/256K tokens each: 20/16/11/7/3/2",
        "max-num-seqs <= 375",
        "unchecked for 0.33.0",
    ]:
        assert words in fit["sentence"]


def test_a_checked_version_has_no_reservation():
    assert "unchecked" not in vllm_fit(ARGS, PROFILE, None, "0.28.0")["sentence"]
    assert "unchecked for this image" in vllm_fit(ARGS, PROFILE)["sentence"]


@given(st.integers(min_value=1, max_value=2000), st.integers(min_value=1024, max_value=400000))
def test_the_largest_length_fits_and_one_token_more_does_not(blocks, context):
    size = vllm_blocks("qwen3.8-27b", 2, 1, 2, True)["bytes"]
    args = {**ARGS, "max-model-len": context, "kv-cache-memory-bytes": blocks * size}
    fit = vllm_fit(args, PROFILE)
    assert fit["enough"] == (context <= fit["max_model_len"])
    if fit["max_model_len"]:
        assert vllm_fit({**args, "max-model-len": fit["max_model_len"]}, PROFILE)["enough"]
    assert not vllm_fit({**args, "max-model-len": fit["max_model_len"] + 1}, PROFILE)["enough"]


@pytest.mark.parametrize(("blocks", "enough"), [(179, False), (187, False), (188, True), (189, True)])
def test_a_pool_of_one_request_is_not_enough(blocks, enough):
    size = vllm_blocks("qwen3.8-27b", 2, 1, 2, True)["bytes"]
    args = {**ARGS, "max-model-len": 167 * 1600, "kv-cache-memory-bytes": blocks * size}
    fit = vllm_fit(args, PROFILE)
    assert fit["needed"] == 179
    assert fit["enough"] is enough


@pytest.mark.parametrize(
    ("profile", "args", "words"),
    [
        ({}, ARGS, "architecture is not set"),
        ({"architecture": "other"}, ARGS, "architecture is other"),
        ({"architecture": "qwen3.8-27b"}, ARGS, "neither memory.kv_gib_per_card nor model.weights_gb"),
        (PROFILE, {**ARGS, "kv-cache-dtype": "nvfp4"}, "kv-cache-dtype nvfp4"),
        (PROFILE, {**ARGS, "tensor-parallel-size": 3}, "tensor-parallel-size 3"),
        (PROFILE, {**ARGS, "gpu-memory-utilization": "much"}, "much"),
        (PROFILE, {**ARGS, "speculative-config": "{"}, "speculative-config"),
        (PROFILE, {**ARGS, "kv-cache-memory-bytes": "some"}, "some"),
    ],
)
def test_what_is_not_known_is_said_not_guessed(profile, args, words):
    fit = vllm_fit(args, profile)
    assert {"blocks", "pool", "enough"}.isdisjoint(fit)
    assert fit["known"] is False
    assert words in fit["sentence"]


def test_tokens_by_the_short_option_count_as_well():
    args = {**ARGS, "spec-method": "mtp", "spec-tokens": 2}
    del args["speculative-config"]
    assert vllm_fit(args, PROFILE) == vllm_fit(ARGS, PROFILE)


def test_without_a_length_nothing_is_said_about_it():
    args = {name: value for name, value in ARGS.items() if name != "max-model-len"}
    fit = vllm_fit(args, PROFILE)
    assert (fit["pool"], fit["concurrency"], fit["enough"]) == (None, None, None)
    assert fit["requests"][8192] == 20


def test_the_cache_follows_utilisation_and_card():
    at = vllm_fit(ARGS, PROFILE)["kv_gib"]
    assert vllm_fit({**ARGS, "gpu-memory-utilization": 0.83}, PROFILE)["kv_gib"] == round(at - 2.4, 2)
    assert vllm_fit(ARGS, PROFILE, {"memory_mib": 24564 + 1024})["kv_gib"] == round(at + 0.93, 2)


@pytest.mark.parametrize(
    ("memories", "size", "gib"),
    [
        ([24564, 2048, 24564], 2, 9.75),
        ([24564, 24564], 2, 9.75),
        # all of them are used: the smallest counts
        ([24564, 22000], 2, 7.42),
        ([24564, 24564, 22000], 1, 9.75),
    ],
)
def test_of_unlike_cards_those_count_that_are_used(memories, size, gib):
    box = {"memory_mib": min(memories), "gpus": [{"index": 0, "memory_mib": each} for each in memories]}
    assert vllm_fit({**ARGS, "tensor-parallel-size": size}, PROFILE, box)["kv_gib"] == gib


def test_an_assumed_card_is_said():
    assert ", for 24 GB cards" in vllm_fit(ARGS, PROFILE)["sentence"]
    assert "24 GB" not in vllm_fit(ARGS, PROFILE, {"memory_mib": 24564})["sentence"]


def test_weights_alone_give_an_estimate():
    gib, clause = kv_gib({**ARGS, "max-num-batched-tokens": 4096}, {}, 21.0, 2, {})
    assert gib == pytest.approx(0.93 * 24564 / 1024 - 21e9 / GIB / 2 - 2.5)
    assert clause.startswith("estimate")


def test_weights_that_leave_nothing_leave_no_blocks():
    fit = vllm_fit({**ARGS, "tensor-parallel-size": 1}, {"architecture": "qwen3.8-27b", "model": {"weights_gb": 31}})
    assert (fit["blocks"], fit["pool"], fit["enough"]) == (0, 0, False)


@pytest.mark.parametrize(
    ("tokens", "gib"),
    [(4096, 9.75), (8192, 7.75), ("8K", 7.75), ("8k", 7.84), (16384, 3.75), (2048, 9.75), (None, 9.75)],
)
def test_larger_steps_leave_less_for_the_cache_than_was_found(tokens, gib):
    args = {**ARGS, "max-num-batched-tokens": tokens} if tokens else ARGS
    fit = vllm_fit(args, PROFILE)
    assert fit["kv_gib"] == gib
    assert (f"less {9.75 - gib:.1f} for max-num-batched-tokens {tokens}" in fit["sentence"]) is (gib < 9.75)


# What moves weights or changes blocks, and is therefore not judged by the figures that were derived without it.
MOVES = [
    ({"pipeline-parallel-size": 2}, "pipeline-parallel-size 2 gives each card the layers of its stage alone"),
    ({"pipeline-parallel-size": 2, "tensor-parallel-size": 1}, "pipeline-parallel-size 2"),
    ({"nnodes": 2}, "nnodes 2"),
    ({"decode-context-parallel-size": 2}, "decode-context-parallel-size 2"),
    ({"prefill-context-parallel-size": "2"}, "prefill-context-parallel-size 2"),
    ({"cpu-offload-gb": 4}, "cpu-offload-gb 4 moves weights to the host's memory"),
    ({"offload-group-size": 8}, "offload-group-size 8"),
    ({"kv-offloading-size": 16}, "kv-offloading-size 16"),
    ({"kv-transfer-config": {"kv_connector": "x"}}, "kv-transfer-config"),
    ({"disable-hybrid-kv-cache-manager": True}, "disable-hybrid-kv-cache-manager true"),
    ({"enable-hybrid-kv-cache-manager": False}, "enable-hybrid-kv-cache-manager false"),
    ({"block-size": 32}, "block-size 32"),
    ({"mamba-ssm-cache-dtype": "float16"}, "mamba-ssm-cache-dtype float16"),
    ({"quantization": "fp8"}, "quantization fp8 changes the size of the weights"),
    ({"dtype": "float32"}, "dtype float32"),
    ({"hf-overrides": {"num_hidden_layers": 2}}, "hf-overrides"),
    ({"enable-lora": True}, "enable-lora true"),
    ({"max-num-batched-tokens": "many"}, "max-num-batched-tokens many"),
    ({"num-gpu-blocks-override": "many"}, "num-gpu-blocks-override many"),
]


@pytest.mark.parametrize(("more", "words"), MOVES)
def test_options_that_move_weights_or_blocks_make_the_fit_unknown(more, words):
    profile = {**PROFILE, "model": {"weights_gb": 21.0}}
    fit = vllm_fit({**ARGS, **more}, profile)
    assert not fit["known"] and words in fit["sentence"]


@pytest.mark.parametrize(
    "more",
    [
        {"pipeline-parallel-size": 1},
        {"decode-context-parallel-size": "1"},
        {"cpu-offload-gb": 0},
        {"quantization": "awq_marlin"},
        {"quantization": "compressed-tensors"},
        {"dtype": "bfloat16"},
        {"enable-lora": False},
        {"enable-hybrid-kv-cache-manager": True},
        {"mamba-ssm-cache-dtype": "float32"},
        {"load-format": "dummy"},
        {"data-parallel-size": 1},
    ],
)
def test_options_with_which_nothing_moves_change_nothing(more):
    assert vllm_fit({**ARGS, **more}, PROFILE) == vllm_fit(ARGS, PROFILE)


def test_stages_share_the_weights():
    profile = {"architecture": "qwen3.8-27b", "model": {"weights_gb": 21.0}}
    fit = vllm_fit({**ARGS, "tensor-parallel-size": 1, "pipeline-parallel-size": 2}, profile)
    assert "about 9.8 GiB of weights" in fit["sentence"]


def test_replicas_are_judged_one_by_one():
    fit = vllm_fit({**ARGS, "data-parallel-size": 2}, PROFILE)
    assert fit["blocks"] == vllm_fit(ARGS, PROFILE)["blocks"]
    assert fit["sentence"].startswith("each of 2 replicas: ")


def test_a_given_cache_is_known_wherever_the_weights_are():
    assert vllm_fit({**ARGS, "cpu-offload-gb": 4, "kv-cache-memory-bytes": "9G"}, PROFILE)["kv_gib"] == 9.0
    fit = vllm_fit({**ARGS, "cpu-offload-gb": 4, "num-gpu-blocks-override": 200}, PROFILE)
    assert (fit["blocks"], fit["kv_from"]) == (200, "num-gpu-blocks-override")


@pytest.mark.parametrize(
    ("config", "more", "method", "tokens"),
    [
        ({"method": "mtp", "num_speculative_tokens": 2}, {}, "mtp", 2),
        # older names, which vLLM still takes (config/speculative.py: MTPModelTypes)
        ({"method": "qwen3_5_mtp", "num_speculative_tokens": 2}, {}, "mtp", 2),
        ({"method": "qwen3_next_mtp", "num_speculative_tokens": 2}, {}, "mtp", 2),
        ({"method": "deepseek_mtp", "num_speculative_tokens": 3}, {}, "mtp", 3),
        ({"method": "mtp"}, {}, "mtp", None),
        ({"method": "dflash", "num_speculative_tokens": 7, "model": "/models/draft"}, {}, "dflash", 7),
        ({"method": "eagle3", "num_speculative_tokens": 3}, {}, "eagle3", 3),
        ({"method": "suffix"}, {}, "suffix", None),
        ({"method": "[ngram]", "num_speculative_tokens": 5}, {}, "ngram", 5),
        ({"model": "ngram", "num_speculative_tokens": 5}, {}, "ngram", 5),
        ({"model": "/models/draft", "num_speculative_tokens": 5}, {}, "draft_model", 5),
        ({"num_speculative_tokens": 5}, {}, None, 5),
        (None, {"spec-method": "mtp", "spec-tokens": 2}, "mtp", 2),
        (None, {"spec-method": "medusa", "spec-tokens": 2}, "medusa", 2),
        (None, {"spec-tokens": 2}, None, 2),
        (None, {}, "", 0),
        ({}, {}, "", 0),
    ],
)
def test_the_method_of_speculation_is_read(config, more, method, tokens):
    args = {name: value for name, value in ARGS.items() if name != "speculative-config"}
    args |= {} if config is None else {"speculative-config": config}
    fit = vllm_fit({**args, **more}, PROFILE)
    assert (fit["speculative_method"], fit["speculative_tokens"]) == (method, tokens)
    # weights and layers of drafts are known of MTP alone
    assert fit["known"] is (method in ("", "mtp") and tokens is not None)
    assert fit["known"] or (str(method) if method and method != "mtp" else "names no method") in fit["sentence"]


def test_a_measurement_at_another_tensor_parallel_size_is_not_used():
    memory = {**PROFILE["memory"], "tensor_parallel_size": 2}
    fit = vllm_fit({**ARGS, "tensor-parallel-size": 1}, {"architecture": "qwen3.8-27b", "memory": memory})
    assert not fit["known"]


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (7, 7),
        ("7", 7),
        ("256k", 256000),
        ("256K", 262144),
        ("1.5m", 1500000),
        ("9G", 9 * 2**30),
        ("2t", 2 * 10**12),
        ("x", None),
        (True, None),
        (-1, None),
    ],
)
def test_integers_as_vllm_reads_them(value, number):
    assert vllm_integer(value) == number
