"""Rules and fit through the role's own variables, as a run prints them for two boxes."""

from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
BOX = {
    "cards": 2,
    "memory_mib": 24564,
    "capability": "8.9",
    "names": ["NVIDIA GeForce RTX 4090"],
    "driver": "580.95.05",
}
PLAY = {
    "hosts": "all",
    "connection": "local",
    "gather_facts": False,
    "tasks": [
        {
            "ansible.builtin.import_role": {"name": "vllm", "tasks_from": "judge"},
            "vars": {"__vllm_box": "{{ test_box }}"},
        },
        {
            "ansible.builtin.debug": {
                "msg": "{{ ansible_play_hosts | map('extract', hostvars, '__vllm_judgements')"
                " | flatten | vllm_summary }}"
            },
            "run_once": True,
        },
    ],
}


@pytest.fixture
def judge(run_play):
    return lambda box=BOX, **settings: run_play(PLAY, "box1,box2", test_box=box, **settings)


def test_the_default_is_told_once_with_its_advice_and_its_fit(judge):
    code, said = judge()
    assert code == 0, said
    assert said.count("[E3]") == said.count("[E4]") == 1
    assert "box1, box2: qwen3.8-27b-int4" in said
    assert "375 blocks" in said and "20/16/11/7/3/2" in said
    assert "REFUSED" not in said and "WARNING [" not in said


def test_the_refusal_names_both_settings_the_capability_and_the_way_out(judge):
    code, said = judge(vllm_profile="qwen3.8-27b-int4-flash-attn-fp8")
    assert code != 0
    for words in [
        "box1, box2: qwen3.8-27b-int4-flash-attn-fp8",
        "nothing was changed",
        "attention-backend FLASH_ATTN with kv-cache-dtype fp8",
        "these cards have 8.9",
        "remove attention-backend",
    ]:
        assert words in said
    assert "fit:" not in said


def test_an_acknowledged_refusal_lets_the_run_go_on(judge):
    code, said = judge(vllm_profile="qwen3.8-27b-int4-flash-attn-fp8", vllm_acknowledge=["E1"])
    assert code == 0, said
    assert "acknowledged [E1]" in said


def test_bf16_is_warned_of_and_goes_on(judge):
    code, said = judge(vllm_profile="qwen3.8-27b-int4-flash-attn-bf16")
    assert code == 0, said
    assert "WARNING [E2]" in said and "31.7" in said and "67.6" in said and "field report" in said


def test_a_users_own_profile_from_the_inventory_alone(judge):
    profile = {"image": "lab:5000/vllm:v0.29.0", "args": {"tensor-parallel-size": 2, "max-model-len": 32768}}
    code, said = judge(vllm_profile="mine", vllm_profiles={"mine": profile})
    assert code == 0, said
    assert "no list of options for vLLM 0.29.0" in said
    assert "whether it fits is not known" in said
    assert "WARNING [E11]" in said and "[E3]" not in said


def test_the_readmes_own_profile(judge):
    readme = (ROOT / "roles/vllm/README.md").read_text()
    settings = yaml.safe_load(readme.split("```yaml\n")[1].split("```")[0])
    code, said = judge(**settings)
    assert code == 0, said
    assert "box1, box2: my-model" in said and "WARNING [" not in said


def test_an_image_for_a_newer_cuda_than_the_driver_is_refused(judge):
    code, said = judge({**BOX, "driver": "570.172.08"})
    assert code != 0
    assert "REFUSED [E13]" in said and "570.172.08" in said and "580" in said


def test_settings_alone_are_judged_before_a_box_is_reached(judge):
    code, said = judge(None, vllm_args={"max-num-seq": 8})
    assert code != 0
    assert "max-num-seq is no option of vLLM 0.33.0" in said and "did you mean max-num-seqs?" in said


def test_each_engine_is_judged_for_its_own_cards(judge):
    engines = [
        {"name": "left", "gpus": [0], "args": {"tensor-parallel-size": 1}},
        {"name": "right", "gpus": [1], "port": 8001},
    ]
    code, said = judge(vllm_engines=engines, vllm_acknowledge=["E8", "E9"])
    assert code != 0
    assert "box1 (engine right), box2 (engine right): qwen3.8-27b-int4" in said
    assert "2 cards are wanted (tensor-parallel-size 2), the box has 1" in said
    assert "(engine left)" not in said
