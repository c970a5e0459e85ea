"""Each rule by itself: what it fires on, what it lets pass, and what it says."""

import json
from pathlib import Path

import pytest
import yaml
from vllm_fit import vllm_blocks, vllm_fit  # plugins/filter/, see conftest.py
from vllm_rules import ORDER, RULES, vllm_unknown_rules, vllm_verdicts

ROLE = Path(__file__).parents[2] / "roles/vllm"
DEFAULT = yaml.safe_load((ROLE / "vars/profiles/qwen3.8-27b-int4.yml").read_text())
PARSERS = json.loads((ROLE / "files/parsers.json").read_text())
BOX = {
    "cards": 2,
    "memory_mib": 24564,
    "capability": "8.9",
    "names": ["NVIDIA GeForce RTX 4090"],
    "driver": "580.95.05",
}
FP8_BLOCK = vllm_blocks("qwen3.8-27b", 2, 1, 2, True)["bytes"]


def options(version):
    path = ROLE / f"files/options/{version}.json"
    return json.loads(path.read_text()) if path.exists() else None


def judge(args=None, *, env=None, box=None, version="0.33.0", profile=DEFAULT, acknowledge=None, no_box=False, **more):
    """The verdicts on the default profile with `args`, `env` and `box` laid over; a value of None removes."""

    def over(base, changes):
        return {key: value for key, value in {**base, **(changes or {})}.items() if value is not None}

    merged = over(profile["args"], args)
    config = {
        "args": merged,
        "env": over(profile["env"], env),
        "image": f"vllm/vllm-openai:v{version}@sha256:{'0' * 64}",
        "version": version,
        "minimum_driver": profile.get("minimum_driver"),
        "parsers": PARSERS,
        "stop": [60, 75, 90],
        **more,
    }
    seen = None if no_box else {**BOX, **(box or {})}
    fit = vllm_fit(merged, profile, seen, version)
    return vllm_verdicts(config, fit, options(version), seen, acknowledge)


def found(verdicts, rule):
    """The one verdict of `rule`, or None."""
    matching = [verdict for verdict in verdicts if verdict["id"] == rule]
    assert len(matching) <= 1, matching
    return matching[0] if matching else None


def severity(verdicts, rule):
    verdict = found(verdicts, rule)
    return verdict and verdict["severity"]


def test_the_default_gets_its_two_advisories_and_nothing_else():
    assert [(verdict["id"], verdict["severity"]) for verdict in judge()] == [("E3", "advise"), ("E4", "advise")]


def card(index, **more):
    """A card as a vllm_box has it."""
    name, seen = "NVIDIA GeForce RTX 4090", {"display_active": False, "memory_used_mib": 0}
    return {"index": index, "name": name, "memory_mib": 24564, "capability": "8.9", **seen, **more}


# id, what is laid over the default, severity or None
CASES = [
    ("E1", {"args": {"attention-backend": "FLASH_ATTN"}}, "refuse"),
    ("E1", {"args": {"attention-backend": "flash_attn", "kv-cache-dtype": "fp8_e5m2"}}, "refuse"),
    ("E1", {"args": {"attention-config": {"backend": "FLASH_ATTN"}}}, "refuse"),
    ("E1", {"env": {"VLLM_ATTENTION_BACKEND": "FLASH_ATTN"}}, "refuse"),
    ("E1", {"args": {"attention-backend": "FLASH_ATTN"}, "box": {"capability": "9.0"}}, None),
    ("E1", {"args": {"attention-backend": "FLASH_ATTN"}, "box": {"capability": "10.0"}}, None),
    ("E1", {"args": {"attention-backend": "FLASH_ATTN"}, "box": {"capability": "12.0"}}, "refuse"),
    ("E1", {"args": {"attention-backend": "FLASH_ATTN"}, "box": {"capability": None}}, "warn"),
    ("E1", {"args": {"attention-backend": "FLASH_ATTN"}, "no_box": True}, None),
    ("E1", {"args": {"attention-backend": "FLASH_ATTN", "kv-cache-dtype": "auto"}}, None),
    ("E1", {"args": {"attention-backend": "FLASHINFER"}}, None),
    ("E2", {"args": {"kv-cache-dtype": "auto"}}, "warn"),
    ("E2", {"args": {"kv-cache-dtype": "bfloat16"}}, "warn"),
    ("E2", {"args": {"kv-cache-dtype": None}}, "warn"),
    ("E2", {"args": {"kv-cache-dtype": "fp8_e4m3"}}, None),
    ("E2", {"args": {"kv-cache-dtype": "auto"}, "profile": {**DEFAULT, "architecture": None}}, None),
    ("E3", {}, "advise"),
    ("E3", {"args": {"enable-prefix-caching": None}}, "advise"),
    ("E3", {"args": {"enable-prefix-caching": False}}, None),
    ("E3", {"args": {"speculative-config": None}}, None),
    ("E3", {"args": {"speculative-config": None, "spec-method": "mtp", "spec-tokens": 2}}, "advise"),
    ("E3", {"args": {"speculative-config": {"method": "ngram", "num_speculative_tokens": 2}}}, None),
    ("E3", {"profile": {**DEFAULT, "architecture": None}}, None),
    ("E4", {}, "advise"),
    ("E4", {"args": {"attention-backend": "FLASHINFER"}}, "advise"),
    ("E4", {"args": {"attention-backend": "TRITON_ATTN"}}, None),
    ("E4", {"args": {"kv-cache-dtype": "auto"}}, None),
    ("E4", {"args": {"speculative-config": None}}, None),
    ("E5", {"args": {"speculative-config": {"method": "mtp", "num_speculative_tokens": 5}}}, "refuse"),
    ("E5", {"args": {"speculative-config": {"method": "mtp", "num_speculative_tokens": 4}}}, None),
    # F5: the limit is MTP's, by each of its names
    ("E5", {"args": {"speculative-config": {"method": "qwen3_5_mtp", "num_speculative_tokens": 5}}}, "refuse"),
    ("E5", {"args": {"speculative-config": {"method": "deepseek_mtp", "num_speculative_tokens": 5}}}, "refuse"),
    ("E5", {"args": {"speculative-config": None, "spec-method": "mtp", "spec-tokens": 5}}, "refuse"),
    ("E5", {"args": {"speculative-config": {"method": "dflash", "num_speculative_tokens": 7}}}, "advise"),
    ("E5", {"args": {"speculative-config": {"method": "eagle3", "num_speculative_tokens": 5}}}, "advise"),
    ("E5", {"args": {"speculative-config": {"method": "ngram", "num_speculative_tokens": 8}}}, "advise"),
    ("E5", {"args": {"speculative-config": {"model": "/models/d", "num_speculative_tokens": 5}}}, "advise"),
    ("E5", {"args": {"speculative-config": None, "spec-method": "medusa", "spec-tokens": 5}}, "advise"),
    ("E5", {"args": {"speculative-config": {"num_speculative_tokens": 5}}}, "warn"),
    ("E5", {"args": {"speculative-config": {"method": "suffix"}}}, None),
    ("E5", {"args": {"speculative-config": {"method": "dflash", "num_speculative_tokens": 4}}}, None),
    ("E4", {"args": {"speculative-config": {"method": "dflash", "num_speculative_tokens": 7}}}, None),
    ("draft-model", {"args": {"speculative-config": {"method": "dflash", "model": "/srv/models/draft"}}}, "refuse"),
    ("draft-model", {"args": {"speculative-config": {"method": "eagle", "model": "~/draft"}}}, "refuse"),
    ("draft-model", {"args": {"speculative-config": None, "spec-model": "/modelsdraft"}}, "refuse"),
    ("draft-model", {"args": {"speculative-config": {"method": "dflash", "model": "incoai/x-DFlash2"}}}, "advise"),
    ("draft-model", {"args": {"speculative-config": {"method": "dflash", "model": "/models/draft"}}}, None),
    ("draft-model", {"args": {"speculative-config": {"model": "ngram", "num_speculative_tokens": 5}}}, None),
    ("draft-model", {}, None),
    ("E8", {"args": {"max-num-seqs": 376}}, "refuse"),
    ("E8", {"args": {"max-num-seqs": 375}}, "advise"),
    ("E8", {"args": {"max-num-seqs": 21}}, "advise"),
    ("E8", {"args": {"max-num-seqs": 20}}, None),
    ("E8", {"args": {"max-num-seqs": None}}, "advise"),
    ("E8", {"args": {"max-num-seqs": 376}, "profile": {**DEFAULT, "architecture": None}}, None),
    ("E9", {"args": {"max-model-len": 552000}}, None),
    ("E9", {"args": {"max-model-len": 552001}}, "refuse"),
    ("E9", {"args": {"gpu-memory-utilization": 0.5}}, "refuse"),
    # F4: half of the weights on each card, so that it may fit; the fit says that it is not known
    ("E9", {"args": {"tensor-parallel-size": 1}, "profile": {**DEFAULT, "memory": {}}}, "refuse"),
    (
        "E9",
        {"args": {"tensor-parallel-size": 1, "pipeline-parallel-size": 2}, "profile": {**DEFAULT, "memory": {}}},
        None,
    ),
    (
        "E8",
        {"args": {"tensor-parallel-size": 1, "pipeline-parallel-size": 2}, "profile": {**DEFAULT, "memory": {}}},
        None,
    ),
    ("E9", {"args": {"tensor-parallel-size": 1, "cpu-offload-gb": 8}, "profile": {**DEFAULT, "memory": {}}}, None),
    ("E9", {"args": {"gpu-memory-utilization": 0.5, "decode-context-parallel-size": 2}}, None),
    ("E9", {"args": {"gpu-memory-utilization": 0.5, "data-parallel-size": 1}}, "refuse"),
    ("experts", {"args": {"enable-expert-parallel": True}}, "refuse"),
    ("experts", {"args": {"enable-expert-parallel": False}}, None),
    ("experts", {"args": {"enable-expert-parallel": True}, "profile": {**DEFAULT, "architecture": None}}, None),
    ("dummy-weights", {"args": {"load-format": "dummy"}}, "warn"),
    ("dummy-weights", {"args": {"load-format": "auto"}}, None),
    # F19
    ("activations", {"args": {"gpu-memory-utilization": 0.98}}, "warn"),
    ("activations", {"args": {"gpu-memory-utilization": 0.98}, "no_box": True}, "warn"),
    (
        "activations",
        {
            "args": {
                "gpu-memory-utilization": 0.92,
                "max-num-batched-tokens": 8192,
                "speculative-config": {"method": "mtp", "num_speculative_tokens": 3},
            }
        },
        "warn",
    ),
    ("activations", {"args": {"max-num-batched-tokens": "8K"}}, "warn"),
    ("activations", {"args": {"gpu-memory-utilization": 0.95, "max-num-batched-tokens": 2048}}, None),
    ("activations", {"args": {"gpu-memory-utilization": 0.95, "max-num-batched-tokens": None}}, None),
    ("activations", {"args": {"gpu-memory-utilization": 0.97, "max-num-batched-tokens": 1024}}, "warn"),
    ("activations", {"args": {"gpu-memory-utilization": 0.85, "max-num-batched-tokens": 8192}}, None),
    ("activations", {"args": {"kv-cache-memory-bytes": "9.75G"}}, None),
    ("activations", {"args": {"kv-cache-memory-bytes": "12G"}}, "warn"),
    ("activations", {"args": {"gpu-memory-utilization": 1.0}, "profile": {**DEFAULT, "architecture": None}}, "warn"),
    ("activations", {"args": {"gpu-memory-utilization": 0.95}, "box": {"memory_mib": 49140}}, None),
    ("activations", {"args": {"gpu-memory-utilization": 93}}, None),
    # F20
    ("display", {"box": {"gpus": [card(0, display_active=True, memory_used_mib=431), card(1)]}}, "warn"),
    ("display", {"box": {"gpus": [card(0, display_active=True, memory_used_mib=None)]}}, "warn"),
    ("display", {"box": {"gpus": [card(0, display_active=None, memory_used_mib=900)]}}, "warn"),
    ("display", {"box": {"gpus": [card(0, memory_used_mib=30), card(1, memory_used_mib=None)]}}, None),
    ("display", {"box": {"gpus": []}}, None),
    # F16
    ("environment", {"env": {"VLLM_USE_FLASHINFER_SAMPLER": True}}, "refuse"),
    ("environment", {"env": {"VLLM_USE_FLASHINFER_SAMPLER": False}}, "refuse"),
    ("environment", {"env": {"VLLM_X": {"a": 1}}}, "refuse"),
    ("environment", {"env": {"VLLM_X": [0, 1]}}, "refuse"),
    ("environment", {"env": {"VLLM_X": "a\nb"}}, "refuse"),
    ("environment", {"env": {"VLLM_X": "a\x00b"}}, "refuse"),
    ("environment", {"env": {"NCCL P2P": "1"}}, "refuse"),
    ("environment", {"env": {"1X": "1"}}, "refuse"),
    ("environment", {"env": {"X=Y": "1"}}, "refuse"),
    ("environment", {"env": {7: "1"}}, "refuse"),
    ("environment", {"env": {True: "1"}}, "refuse"),
    ("environment", {"env": {"VLLM_X": float("inf")}}, "refuse"),
    ("environment", {"env": {"VLLM_X": 1.1}}, "advise"),
    ("environment", {"env": {"VLLM_X": 1, "VLLM_Y": "yes", "VLLM_Z": "", "_": "1_000", "NCCL_P2P_DISABLE": 1}}, None),
    ("fixed-env", {"env": {"PATH": "/opt/bin"}}, "refuse"),
    ("fixed-env", {"env": {"CUDA_VISIBLE_DEVICES": "0"}}, "warn"),
    ("fixed-env", {"env": {"VLLM_CACHE_ROOT": "/tmp"}}, "warn"),
    ("fixed-env", {"env": {"MY_PATH": "/x"}}, None),
    ("E11", {}, None),
    ("E11", {"args": {"disable-custom-all-reduce": None}}, "warn"),
    ("E11", {"env": {"NCCL_P2P_DISABLE": None}}, "warn"),
    ("E11", {"env": {"NCCL_P2P_DISABLE": None}, "box": {"names": []}}, "warn"),
    ("E11", {"env": {"NCCL_P2P_DISABLE": None}, "box": {"names": ["NVIDIA H100 PCIe"]}}, None),
    ("E11", {"env": {"NCCL_P2P_DISABLE": None}, "args": {"tensor-parallel-size": 1}}, None),
    (
        "E11",
        {
            "args": {"disable-custom-all-reduce": False},
            "env": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        },
        "refuse",
    ),
    ("E11", {"env": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}}, None),
    ("E13", {"box": {"driver": "570.172.08"}}, "refuse"),
    ("E13", {"box": {"driver": "580.65.06"}}, None),
    ("E13", {"box": {"driver": None}}, None),
    ("E13", {"cuda_finding": "the image is made for CUDA 13"}, "refuse"),
    ("S1", {"args": {"shutdown-timeout": None}}, "warn"),
    ("S1", {"args": {"shutdown-timeout": 0}}, "warn"),
    ("S1", {"stop": [60, 75, 90]}, None),
    ("S1", {"stop": [60, 30, 90]}, "refuse"),
    ("S1", {"stop": [60, 75, 75]}, "refuse"),
    ("gdn-kernel", {"version": "0.28.0"}, "advise"),
    ("gdn-kernel", {"version": "0.30.0"}, "advise"),
    ("gdn-kernel", {"version": "0.30.0", "args": {"speculative-config": None}}, None),
    ("gdn-kernel", {"version": "0.33.0"}, None),
    ("gdn-kernel", {"version": ""}, "note"),
    ("gdn-kernel", {"version": "", "profile": {**DEFAULT, "architecture": None}}, None),
    ("unknown-option", {"args": {"max-num-seq": 8}}, "refuse"),
    ("unknown-option", {"args": {"no-enable-prefix-caching": True}}, None),
    ("unknown-option", {"args": {"no-headless": True}}, "refuse"),
    ("unknown-option", {"args": {"calculate-kv-scales": True}, "version": "0.28.0"}, "refuse"),
    ("unknown-option", {"args": {"calculate-kv-scales": True}, "version": "0.20.2"}, None),
    ("unknown-option", {"args": {"max-num-queued-reqs": 8}, "version": "0.28.0"}, "refuse"),
    ("unknown-option", {"args": {"max-num-queued-reqs": 8}, "version": "0.30.0"}, None),
    ("unknown-option", {"args": {"max-num-seq": 8}, "version": "0.29.0"}, None),
    ("option-type", {"args": {"enable-prefix-caching": "yes"}}, "refuse"),
    ("option-type", {"args": {"max-num-seqs": True}}, "refuse"),
    ("option-type", {"args": {"tensor-parallel-size": "two"}}, "refuse"),
    ("option-type", {"args": {"tensor-parallel-size": 1.5}}, "refuse"),
    ("option-type", {"args": {"tensor-parallel-size": "2k"}}, "refuse"),
    ("option-type", {"args": {"max-num-seqs": 0}}, "refuse"),
    ("option-type", {"args": {"max-num-seqs": "16"}}, None),
    ("option-type", {"args": {"max-num-batched-tokens": "4k"}}, None),
    ("option-type", {"args": {"safetensors-prefetch-block-size": "16M"}}, None),
    ("option-type", {"args": {"gpu-memory-utilization": "0.93"}}, None),
    ("option-type", {"args": {"gpu-memory-utilization": "most"}}, "refuse"),
    ("option-type", {"args": {"headless": False}}, "refuse"),
    ("option-choice", {"args": {"dtype": "bf16"}}, "refuse"),
    ("option-choice", {"args": {"dtype": "bfloat16"}}, None),
    ("option-choice", {"args": {"speculative-config": {"method": "MTP", "num_speculative_tokens": 2}}}, "refuse"),
    ("option-choice", {"args": {"speculative-config": {"method": "dflush"}}}, "refuse"),
    ("option-choice", {"args": {"speculative-config": {"method": "dflash"}}}, None),
    ("option-choice", {"args": {"kv-cache-dtype": "fp16"}, "version": "0.26.0"}, "refuse"),
    ("option-list", {"version": "0.29.0"}, "note"),
    ("option-list", {"version": ""}, "note"),
    ("option-list", {"version": "0.26.0"}, None),
    ("utilization", {"args": {"gpu-memory-utilization": 93}}, "refuse"),
    ("utilization", {"args": {"gpu-memory-utilization": 0}}, "refuse"),
    ("utilization", {"args": {"device-memory-utilization": 0.9}}, "refuse"),
    ("utilization", {"args": {"gpu-memory-utilization": 1.0}}, None),
    ("heads", {"args": {"tensor-parallel-size": 3}}, "refuse"),
    ("heads", {"args": {"tensor-parallel-size": 8}}, "refuse"),
    ("heads", {"args": {"tensor-parallel-size": 1}}, None),
    ("heads", {"args": {"tensor-parallel-size": 3}, "profile": {**DEFAULT, "architecture": None}}, None),
    ("cards", {"args": {"tensor-parallel-size": 4}}, "refuse"),
    ("cards", {"args": {"data-parallel-size": 2}}, "refuse"),
    ("cards", {"args": {"tensor-parallel-size": 1}}, "advise"),
    ("cards", {"args": {"tensor-parallel-size": 1, "data-parallel-size": 2}}, None),
    ("cards", {"args": {"tensor-parallel-size": 4}, "box": {"cards": None}}, None),
    ("cards", {"args": {"data-parallel-size": 2, "data-parallel-size-local": 1}}, None),
    ("cards", {"box": {"cards": 3}}, "advise"),
    ("cards", {"box": {"cards": 3, "gpus": [card(0), card(1), card(2, name="NVIDIA GeForce GT 1030")]}}, "refuse"),
    # of two cards that are not alike both are used
    ("cards", {"box": {"cards": 2, "gpus": [card(0), card(1, name="NVIDIA GeForce RTX 4090 D")]}}, None),
    ("parser", {"args": {"tool-call-parser": "qwen3xml"}, "version": "0.32.0"}, "refuse"),
    ("parser", {"args": {"tool-call-parser": "qwen3xml"}}, "warn"),
    ("parser", {"args": {"reasoning-parser": "qwen"}}, "warn"),
    ("parser", {"args": {"tool-call-parser": "mine", "tool-parser-plugin": "/models/mine.py"}}, None),
    ("parser", {"args": {"reasoning-parser": "mine", "reasoning-parser-plugin": "/models/mine.py"}}, None),
    ("tool-choice", {"args": {"tool-call-parser": None}}, "refuse"),
    ("tool-choice", {"args": {"tool-call-parser": None, "enable-auto-tool-choice": None}}, None),
    ("batched-tokens", {"args": {"max-num-batched-tokens": 8}}, "refuse"),
    ("batched-tokens", {"args": {"max-num-batched-tokens": 16}}, None),
    ("fixed-option", {"args": {"port": 8001}}, "refuse"),
    ("fixed-option", {"args": {"config": "/models/x.yml"}}, "refuse"),
    ("secret", {"env": {"VLLM_API_KEY": "x"}}, "refuse"),
    ("dev-mode", {"env": {"VLLM_SERVER_DEV_MODE": "1"}}, "refuse"),
    ("dev-mode", {"env": {"VLLM_SERVER_DEV_MODE": "0"}}, None),
    # another port, another protocol, no key: neither the gateway nor the box would find it, or anybody would
    ("fixed-option", {"args": {"uds": "/tmp/vllm.sock"}}, "refuse"),
    ("fixed-option", {"args": {"ssl-certfile": "/models/a.pem"}}, "refuse"),
    ("fixed-option", {"args": {"root-path": "/v1"}}, "refuse"),
    ("open-routes", {"open": "vllm_listen is 0.0.0.0"}, "refuse"),
    ("open-routes", {"open": ""}, None),
    ("remote-code", {"args": {"trust-remote-code": True}}, "advise"),
    ("remote-code", {"args": {"trust-remote-code": False}}, None),
    ("trusted-clients", {"args": {"allowed-local-media-path": "/srv"}}, "advise"),
    ("trusted-clients", {"args": {"allowed-local-media-path": ""}}, None),
    ("trusted-clients", {"args": {"enable-prompt-embeds": False}}, None),
    ("trusted-clients", {"args": {"tool-server": "demo", "enable-scale-out": True}}, "advise"),
    ("trusted-clients", {"env": {"VLLM_ALLOW_INSECURE_SERIALIZATION": "1"}}, "advise"),
    ("trusted-clients", {"env": {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "False"}}, None),
    ("other-ports", {"args": {"kv-events-config": {"enable_kv_cache_events": True}}}, "advise"),
    ("other-ports", {"args": {"grpc-port": 50051}}, "advise"),
    ("other-ports", {}, None),
    ("image-tag", {"image": "vllm/vllm-openai:v0.33.0"}, "advise"),
    ("image-tag", {"image": "registry.lan:5000/vllm:latest"}, "advise"),
    ("image-tag", {}, None),
]


@pytest.mark.parametrize(("rule", "change", "expected"), CASES, ids=lambda value: str(value)[:60])
def test_each_rule(rule, change, expected):
    assert severity(judge(**change), rule) == expected


def test_every_rule_has_a_case_that_fires_and_one_that_passes():
    fires = {rule for rule, _, expected in CASES if expected}
    assert fires == {rule.id for rule in RULES}
    assert len({rule.id for rule in RULES}) == len(RULES)
    default = {verdict["id"] for verdict in judge()}
    passes = {rule for rule, _, expected in CASES if not expected}
    assert {rule.id for rule in RULES} - passes <= {rule.id for rule in RULES} - default


@pytest.mark.parametrize(
    ("rule", "change", "words"),
    [
        (
            "E1",
            {"args": {"attention-backend": "FLASH_ATTN"}},
            [
                "attention-backend FLASH_ATTN",
                "kv-cache-dtype fp8",
                "8.9",
                "9.0",
                "remove attention-backend",
                "FlashInfer",
            ],
        ),
        (
            "E2",
            {"args": {"kv-cache-dtype": "auto"}},
            ["kv-cache-dtype is auto", "31.7", "67.6", "field report", "to fp8"],
        ),
        ("E3", {}, ["vllm#53912", "vllm#47194", "enable-prefix-caching to false", "remove speculative-config"]),
        ("E4", {}, ["Xid 31", "vllm#40756", "vllm#55775", "not of the card"]),
        (
            "E5",
            {"args": {"speculative-config": {"method": "mtp", "num_speculative_tokens": 5}}},
            ["num_speculative_tokens is 5", "0 to 4"],
        ),
        (
            "E5",
            {"args": {"speculative-config": {"method": "dflash", "num_speculative_tokens": 7}}},
            ["7 with the method dflash", "of other methods that is not known", "club-3090 PR 1056"],
        ),
        ("draft-model", {"args": {"speculative-config": {"model": "/srv/d"}}}, ["is /srv/d", "write /models/FOLDER"]),
        ("option-choice", {"args": {"speculative-config": {"method": "MTP"}}}, ["is MTP", "did you mean mtp?"]),
        (
            "activations",
            {"args": {"gpu-memory-utilization": 0.98}},
            ["gpu-memory-utilization 0.98 leaves 491 MiB of each card", "1536 MiB", "<= 0.93", "club-3090#487"],
        ),
        (
            "activations",
            {"args": {"gpu-memory-utilization": 0.92, "max-num-batched-tokens": 8192}},
            [
                "leaves 1965 MiB",
                "about 4.0 GiB of activations",
                "3072 MiB",
                "<= 0.87",
                "max-num-batched-tokens <= 5120",
            ],
        ),
        (
            "activations",
            {"args": {"kv-cache-memory-bytes": "12G"}},
            ["kv-cache-memory-bytes 12G leaves", "set kv-cache"],
        ),
        (
            "display",
            {"box": {"gpus": [card(0, display_active=True, memory_used_mib=431), card(1)]}},
            ["card 0 (NVIDIA GeForce RTX 4090): a display is attached to it and takes 431 MiB", "1719 MiB", "<= 0.91"],
        ),
        (
            "display",
            {"args": {"gpu-memory-utilization": 0.98}, "box": {"gpus": [card(1, memory_used_mib=600)]}},
            ["card 1", "others than engines take 600 MiB", "vLLM does not start"],
        ),
        ("display", {"box": {"gpus": [card(0, display_active=True, memory_used_mib=None)]}}, ["an unknown amount"]),
        (
            "environment",
            {"env": {"VLLM_USE_FLASHINFER_SAMPLER": True}},
            ["VLLM_USE_FLASHINFER_SAMPLER is true", 'write VLLM_USE_FLASHINFER_SAMPLER: "1"'],
        ),
        ("environment", {"env": {"VLLM_X": {}}}, ["VLLM_X is a mapping", "as JSON"]),
        ("environment", {"env": {"VLLM X": "1"}}, ["'VLLM X'", "letters, digits and _"]),
        # F13: no advice that another rule refuses
        ("cards", {"box": {"cards": 3}}, ["2 of 3 cards", "gpus in vllm_engines", "tensor-parallel-size 1, 2, 4"]),
        ("cards", {"box": {"cards": 5}, "args": {"tensor-parallel-size": 4}}, ["4 of 5", "gpus in vllm_engines"]),
        ("cards", {"box": {"cards": 4}}, ["2 of 4 cards", "set tensor-parallel-size to 4 if"]),
        (
            "cards",
            {"box": {"cards": 3}, "args": {"tensor-parallel-size": 4}},
            ["box has 3", "tensor-parallel-size to 2"],
        ),
        (
            "cards",
            {"args": {"pipeline-parallel-size": 2}},
            ["tensor-parallel-size 2, pipeline-parallel-size 2", "to 1"],
        ),
        (
            "cards",
            {"box": {"cards": 3, "gpus": [card(0, memory_mib=2048, name="GT 1030"), card(1), card(2)]}},
            ["not alike (0 GT 1030; 1 NVIDIA", "vllm_engines: [{name: main, gpus: [1, 2]}]"],
        ),
        ("E9", {"args": {"max-model-len": 560000}}, ["362 blocks", "375 fit", "max-model-len <= 552000"]),
        ("E9", {"args": {"gpu-memory-utilization": 0.3}}, ["176 blocks, 0 fit", "more cards"]),
        ("E11", {"args": {"disable-custom-all-reduce": False}}, ["disable-custom-all-reduce", "vllm#42609"]),
        ("E13", {"box": {"driver": "570.172.08"}}, ["570.172.08", "580.65.06", 'nvidia_driver_branch to "580"']),
        ("S1", {"stop": [60, 30, 90]}, ["shutdown-timeout 60", "docker stop 30", "TimeoutStopSec 90"]),
        (
            "unknown-option",
            {"args": {"max-num-seq": 8}},
            ["max-num-seq is no option of vLLM 0.33.0", "did you mean max-num-seqs?"],
        ),
        ("option-choice", {"args": {"dtype": "bfloat"}}, ["dtype is bfloat", "bfloat16", "float16"]),
        ("option-list", {"version": ""}, ["does not name", "not checked"]),
        ("option-list", {"version": "0.29.0"}, ["vLLM 0.29.0"]),
        ("utilization", {"args": {"gpu-memory-utilization": 93}}, ["is 93", "write 0.93"]),
        ("heads", {"args": {"tensor-parallel-size": 3}}, ["is 3", "24 query heads", "1, 2, 4"]),
        ("cards", {"args": {"tensor-parallel-size": 4}}, ["4 cards", "the box has 2"]),
        ("parser", {"args": {"tool-call-parser": "qwen3xml"}}, ["qwen3xml", "did you mean qwen3_xml?", "0.32.0"]),
        ("fixed-option", {"args": {"api-key": "x"}}, ["vllm_api_key", "ps"]),
        (
            "open-routes",
            {"open": "vllm_listen is 0.0.0.0"},
            ["vllm_listen is 0.0.0.0", "/v1 alone", "/invocations", "vllm_allowed_sources"],
        ),
        ("open-routes", {"open": "vllm_listen is :: and vllm_filter is false"}, ["take vllm_filter: false out"]),
        ("open-routes", {"open": "the sources are ::/0, which is everybody"}, ["narrow vllm_allowed_sources"]),
        (
            "trusted-clients",
            {"args": {"tool-server": "demo", "trust-request-chat-template": True}},
            ["trust-request-chat-template, tool-server"],
        ),
        ("image-tag", {"image": "vllm/vllm-openai:latest"}, ["vllm/vllm-openai:latest", "vllm_image_digest"]),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_a_rule_says(rule, change, words):
    verdict = found(judge(**change), rule)
    said = f"{verdict['says']}. {verdict['way_out']} ({verdict['source']})"
    for word in words:
        assert word in said


def test_f13_a_card_for_the_screen_makes_one_refusal_and_its_way_out_none():
    screen = card(2, name="NVIDIA GeForce GT 1030", memory_mib=2048, capability="6.1")
    three = {"cards": 3, "memory_mib": 2048, "capability": "6.1", "gpus": [card(0), card(1), screen]}
    refused = [verdict["id"] for verdict in judge(box=three) if verdict["severity"] in ("refuse", "warn")]
    assert refused == ["cards"]
    # as vllm_engine_box tells of an engine with gpus [0, 1]
    assert found(judge(box={"gpus": [card(0), card(1)]}), "cards") is None


def test_the_published_case_of_too_many_sequences():
    # vllm#49064: 256 wanted, 161 fit
    size = vllm_blocks("qwen3.8-27b", 2, 2, 0, False)["bytes"]
    args = {
        "kv-cache-dtype": "bfloat16",
        "speculative-config": None,
        "enable-prefix-caching": False,
        "max-model-len": 122633,
        "kv-cache-memory-bytes": 161 * size,
    }
    verdict = found(judge({**args, "max-num-seqs": 256}), "E8")
    assert verdict["severity"] == "refuse"
    assert verdict["way_out"] == "set max-num-seqs <= 161"


@pytest.mark.parametrize(("blocks", "expected"), [(179, "refuse"), (187, "refuse"), (189, None)])
def test_the_published_case_of_a_pool_of_one_request(blocks, expected):
    args = {"max-model-len": 167 * 1600, "kv-cache-memory-bytes": blocks * FP8_BLOCK}
    assert severity(judge(args), "E9") == expected


def test_an_acknowledged_rule_becomes_a_note():
    args = {"attention-backend": "FLASH_ATTN"}
    verdicts = judge(args, acknowledge=["E1", "E3"])
    assert severity(verdicts, "E1") == severity(verdicts, "E3") == "note"
    assert found(verdicts, "E1")["acknowledged"] and found(verdicts, "E3")["acknowledged"]
    assert severity(verdicts, "E4") is None  # FLASH_ATTN is not FlashInfer
    assert "refuse" not in {verdict["severity"] for verdict in verdicts}


def test_an_acknowledgement_of_no_rule_is_told():
    assert vllm_unknown_rules(["E1", "gdn-kernel"]) == []
    (sentence,) = vllm_unknown_rules(["E1", "E99"])
    assert "E99" in sentence and "E3" in sentence


def test_the_documentation_has_every_rule():
    text = (ROLE.parents[1] / "docs/engine.md").read_text()
    assert [rule.id for rule in RULES if f"`{rule.id}`" not in text] == []


def test_the_gravest_comes_first():
    ranks = [ORDER[verdict["severity"]] for verdict in judge({"attention-backend": "FLASH_ATTN", "max-num-seqs": 21})]
    assert ranks == sorted(ranks) and len(set(ranks)) > 1


def test_settings_alone_are_judged_without_a_box():
    verdicts = judge({"max-num-seq": 8, "max-num-seqs": 400, "tensor-parallel-size": 4}, no_box=True)
    assert severity(verdicts, "unknown-option") == "refuse"
    assert {"E8", "E9", "E13", "cards"}.isdisjoint(verdict["id"] for verdict in verdicts)


def test_settings_that_are_no_numbers_are_told_and_do_not_break_the_others():
    args = dict.fromkeys(("tensor-parallel-size", "max-num-seqs", "max-num-batched-tokens", "shutdown-timeout"), "x")
    verdicts = judge({**args, "speculative-config": "x", "max-model-len": "x", "gpu-memory-utilization": "x"})
    assert {verdict["id"] for verdict in verdicts} >= {"option-type"}


PROFILES = {path.stem: yaml.safe_load(path.read_text()) for path in (ROLE / "vars/profiles").glob("*.yml")}


@pytest.mark.parametrize("version", ["0.26.0", "0.27.1", "0.28.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0"])
@pytest.mark.parametrize("name", PROFILES)
def test_every_shipped_profile_is_spelled_right_for_every_version_since_the_reports(name, version):
    ids = {verdict["id"] for verdict in judge(profile=PROFILES[name], version=version)}
    assert ids.isdisjoint({"unknown-option", "option-type", "option-choice", "option-list", "parser", "heads", "cards"})


@pytest.mark.parametrize(
    ("name", "verdicts"),
    [
        ("qwen3.8-27b-int4", [("E3", "advise"), ("E4", "advise")]),
        ("qwen3.8-27b-int4-initial", [("E3", "advise"), ("E4", "advise")]),
        ("qwen3.8-27b-int4-flash-attn-fp8", [("E1", "refuse"), ("E3", "advise")]),
        ("qwen3.8-27b-int4-flash-attn-bf16", [("E2", "warn"), ("E3", "advise")]),
        ("qwen3.8-27b-int4-concurrent", []),
    ],
)
def test_the_verdicts_on_the_shipped_profiles(name, verdicts):
    assert [(each["id"], each["severity"]) for each in judge(profile=PROFILES[name])] == verdicts


def test_the_profiles_differ_where_their_description_says():
    def difference(name):
        args, base = PROFILES[name]["args"], DEFAULT["args"]
        return {key: args.get(key) for key in args.keys() | base.keys() if args.get(key) != base.get(key)}

    prefix = "qwen3.8-27b-int4-"
    assert set(PROFILES) == {"qwen3.8-27b-int4"} | {
        prefix + each for each in ("initial", "flash-attn-fp8", "flash-attn-bf16", "concurrent")
    }
    assert difference(prefix + "initial") == dict.fromkeys(
        ["max-num-batched-tokens", "reasoning-parser", "enable-auto-tool-choice", "tool-call-parser"]
    )
    assert difference(prefix + "flash-attn-fp8") == {"attention-backend": "FLASH_ATTN"}
    assert difference(prefix + "flash-attn-bf16") == {"attention-backend": "FLASH_ATTN", "kv-cache-dtype": "auto"}
    assert difference(prefix + "concurrent") == {
        "speculative-config": None,
        "max-num-seqs": 32,
        "max-model-len": 65536,
    }


@pytest.mark.parametrize("name", PROFILES)
def test_every_figure_of_a_profile_has_a_source(name):
    profile = PROFILES[name]
    assert set(profile) >= {
        "architecture",
        "model",
        "image",
        "digest",
        "minimum_driver",
        "memory",
        "env",
        "expects",
        "notes",
    }
    for figure, expected in profile["expects"].items():
        assert set(expected) == {"value", "source"}, figure
        assert expected["source"], figure


@pytest.mark.parametrize("path", sorted((ROLE / "files/options").glob("*.json")), ids=lambda path: path.stem)
def test_the_lists_of_options_are_whole(path):
    listed = json.loads(path.read_text())
    assert len(listed) > 200
    assert all(kind in ("flag", "switch", "number", "any") or isinstance(kind, list) for kind in listed.values())
    assert listed["max-num-seqs"] == "any" and listed["enable-prefix-caching"] == "flag"
    assert not any(name.startswith("-") for name in listed)
