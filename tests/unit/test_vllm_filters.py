"""The pure path from a profile to an engine's command line."""

import json
from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from hypothesis import given
from hypothesis import strategies as st
from vllm import config_hash, vllm_arguments, vllm_env_file, vllm_merge  # plugins/filter/vllm.py, see conftest.py

PROFILES = Path(__file__).parents[2] / "roles/vllm/vars/profiles"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"max-num-seqs": 16}, ["--max-num-seqs=16"]),
        ({"gpu-memory-utilization": 0.93}, ["--gpu-memory-utilization=0.93"]),
        ({"enable-prefix-caching": True}, ["--enable-prefix-caching"]),
        ({"enable-prefix-caching": False}, ["--no-enable-prefix-caching"]),
        (
            {"speculative-config": {"num_speculative_tokens": 2, "method": "mtp"}},
            ['--speculative-config={"method":"mtp","num_speculative_tokens":2}'],
        ),
        ({"served-model-name": ["a", "b"]}, ["--served-model-name", "a", "b"]),
        (
            {"lora-modules": [{"path": "/b", "name": "a"}, "x=/y"]},
            ["--lora-modules", '{"name":"a","path":"/b"}', "x=/y"],
        ),
        ({"chat-template": "{% if a %}"}, ["--chat-template={% if a %}"]),
        ({"chat-template": "a b%c$d"}, ["--chat-template=a b%c$d"]),
    ],
)
def test_arguments(args, words):
    assert vllm_arguments(args) == words


@pytest.mark.parametrize("name", ["--max-num-seqs", "max_num_seqs", "-tp"])
def test_an_option_written_otherwise_is_refused_with_the_right_name(name):
    with pytest.raises(AnsibleFilterError) as error:
        vllm_arguments({name: 1})
    assert repr(name) in str(error.value)
    assert repr(name.lstrip("-").replace("_", "-")) in str(error.value)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"speculative-config.method": "mtp"}, ["'speculative-config.method'", "speculative-config: {method: mtp}"]),
        ({"speculative-config": '{"method": "mtp"}'}, ["speculative-config", "write it as a mapping"]),
    ],
)
def test_what_rules_could_not_read_is_refused_with_the_right_form(args, words):
    with pytest.raises(AnsibleFilterError) as error:
        vllm_arguments(args)
    assert all(word in str(error.value) for word in words)


def test_merge_replaces_by_key_and_null_removes():
    profile = {"b": [1, 2], "a": {"x": 1}, "c": 3}
    assert vllm_merge(profile, {"b": [3], "a": {"y": 2}}, {"c": None, "d": False}) == {
        "a": {"y": 2},
        "b": [3],
        "d": False,
    }
    assert profile == {"b": [1, 2], "a": {"x": 1}, "c": 3}


def test_merge_takes_no_override_for_none():
    assert vllm_merge({"a": 1}, None, {}) == {"a": 1}


VALUES = st.one_of(
    st.integers(), st.booleans(), st.text(max_size=5), st.dictionaries(st.text(max_size=3), st.integers())
)


@given(st.dictionaries(st.text(max_size=5), VALUES), st.randoms())
def test_the_order_of_keys_never_changes_the_hash(config, random):
    items = list(config.items())
    random.shuffle(items)
    assert config_hash(dict(items)) == config_hash(config)


def test_the_hash_tells_configurations_apart():
    assert config_hash({"max-num-seqs": 16}) != config_hash({"max-num-seqs": 8})


def test_the_default_profile_is_the_field_reports_final_configuration():
    profile = yaml.safe_load((PROFILES / "qwen3.8-27b-int4.yml").read_text())
    report = {
        "tensor-parallel-size": 2,
        "kv-cache-dtype": "fp8",
        "speculative-config": {"method": "mtp", "num_speculative_tokens": 2},
        "enable-prefix-caching": True,
        "max-num-seqs": 16,
        "max-num-batched-tokens": 4096,
        "gpu-memory-utilization": 0.93,
        "max-model-len": 262144,
        "reasoning-parser": "qwen3",
        "enable-auto-tool-choice": True,
        "tool-call-parser": "qwen3_xml",
    }
    assert {name: profile["args"][name] for name in report} == report
    assert "attention-backend" not in profile["args"]


def test_every_profile_has_what_an_engine_needs_and_renders():
    profiles = sorted(PROFILES.glob("*.yml"))
    assert profiles
    for path in profiles:
        profile = yaml.safe_load(path.read_text())
        assert set(profile) >= {"description", "image", "args"}, path.name
        assert ":" in profile["image"], path.name
        assert len(vllm_arguments(vllm_merge(profile["args"]))) == len(profile["args"]), path.name
        json.dumps(profile)


def test_the_file_of_secrets_is_what_a_shell_reads():
    assert vllm_env_file({"VLLM_API_KEY": "k"}).splitlines()[1:] == ["VLLM_API_KEY='k'"]
    assert vllm_env_file({}).startswith("#")
