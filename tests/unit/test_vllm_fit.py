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
    assert set(fit) == {"architecture", "speculative_tokens", "known", "sentence"}
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


def test_an_assumed_card_is_said():
    assert ", for 24 GB cards" in vllm_fit(ARGS, PROFILE)["sentence"]
    assert "24 GB" not in vllm_fit(ARGS, PROFILE, {"memory_mib": 24564})["sentence"]


def test_weights_alone_give_an_estimate():
    gib, clause = kv_gib(ARGS, {}, 21.0, 2, {})
    assert gib == pytest.approx(0.93 * 24564 / 1024 - 21e9 / GIB / 2 - 2.5)
    assert clause.startswith("estimate")


def test_weights_that_leave_nothing_leave_no_blocks():
    fit = vllm_fit({**ARGS, "tensor-parallel-size": 1}, {"architecture": "qwen3.8-27b", "model": {"weights_gb": 31}})
    assert (fit["blocks"], fit["pool"], fit["enough"]) == (0, 0, False)


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
