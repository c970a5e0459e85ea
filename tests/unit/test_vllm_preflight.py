"""Settings of role vllm that no rule judges, and where the engine is then asked: through the role's own preflight."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PLAY = {
    "hosts": "all",
    "connection": "local",
    "gather_facts": False,
    "tasks": [
        {"ansible.builtin.import_role": {"name": "vllm", "tasks_from": "preflight"}},
        {"ansible.builtin.debug": {"msg": "asked at {{ __vllm_endpoints[0].url }}"}},
    ],
}


@pytest.fixture
def preflight(run_play):
    return lambda **settings: run_play(PLAY, "box1", **{"vllm_api_key": "a-key-of-these-tests-0123", **settings})


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("10.0.0.7", "http://10.0.0.7:8000"),
        ("::", "http://127.0.0.1:8000"),
        ("::1", "http://[::1]:8000"),
    ],
)
def test_where_an_engine_is_asked(preflight, listen, url):
    code, said = preflight(vllm_listen=listen, vllm_allowed_sources=["192.0.2.30"])
    assert (code, f"asked at {url}" in said) == (0, True), said


def test_without_a_gateway_an_engine_is_the_boxs_own_unless_somebody_knows_better(preflight):
    code, said = preflight(vllm_api_key=None)
    assert (code, "asked at http://127.0.0.1:8000" in said) == (0, True), said
    code, said = preflight(vllm_listen="0.0.0.0")
    assert code != 0
    assert "REFUSED [open-routes] vllm_listen is 0.0.0.0" in said and 'vllm_acknowledge: ["open-routes"]' in said
    code, said = preflight(vllm_listen="0.0.0.0", vllm_acknowledge=["open-routes"])
    assert code == 0, said


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"vllm_prot": 8001}, ["vllm_prot is not a variable of this role: did you mean vllm_port?"]),
        ({"vllm_max_num_seqs": 8}, ["max-num-seqs is an option of vLLM; write vllm_args: {max-num-seqs: ...}"]),
        ({"vllm_port": 70000}, ["vllm_port is 70000", "1024 to 65535"]),
        ({"vllm_profile": "qwen-42"}, ["vllm_profile is qwen-42", "qwen3.8-27b-int4"]),
        ({"vllm_args": {"max-num-seq": 8}}, ["did you mean max-num-seqs"]),
        (
            {"vllm_api_key": None, "vllm_allowed_sources": ["192.0.2.30"]},
            ["vllm_api_key is not set", "listens on 0.0.0.0, as others are to reach it", "vault"],
        ),
        ({"vllm_allowed_sources": ["192.0.2.7/24"]}, ["vllm_allowed_sources has '192.0.2.7/24'", "write 192.0.2.7 or"]),
        (
            {"vllm_engines": [{"name": "a", "gpus": [0]}, {"name": "b", "gpus": [0, 1]}]},
            ["engines a and b share port 8000", "engines a and b share card 0"],
        ),
        ({"vllm_engines": [{"name": "main", "prot": 8001}]}, ["vllm_engines.prot"]),
        # what Docker or vLLM would refuse after the drain
        (
            {"vllm_env": {"VLLM_USE_FLASHINFER_SAMPLER": True, "VLLM X": "1"}},
            ['write VLLM_USE_FLASHINFER_SAMPLER: "1"', "vllm_env has the name 'VLLM X'"],
        ),
        ({"vllm_listen": "box1.lan"}, ["vllm_listen is box1.lan; it must be an address of the box"]),
        ({"vllm_shm_size": "8 GiB"}, ["vllm_shm_size is 8 GiB; it must be a number with b, k, m or g"]),
        ({"vllm_shm_size": "0"}, ["vllm_shm_size is 0; it must be"]),
    ],
)
def test_bad_settings_are_refused_with_name_value_and_way_out(preflight, settings, words):
    code, said = preflight(**settings)
    assert code != 0
    assert [word for word in words if word not in said] == []


def test_f21_an_engine_on_other_cards_than_the_wanted_ones_restarts(run_play):
    """By the role's own variables; the cards are no part of the hash."""

    def runs(cards, **more):
        container = {"running": True, "active": True, "labels": {"tandem.config": "{{ __vllm_wanted_hash }}"}}
        return {**container, "labels": {**container["labels"], "tandem.cards": cards}, **more}

    containers = {
        "same": runs("GPU-a,GPU-b"),
        "order": runs("GPU-b,GPU-a"),
        "replaced": runs("GPU-a,GPU-x"),
        "loading": runs("GPU-a,GPU-x", active=False),
        "older": {"running": True, "active": True, "labels": {"tandem.config": "{{ __vllm_wanted_hash }}"}},
    }
    says = "{{ item.key }} needs {{ __vllm_need }}."
    show = {
        "loop": "{{ containers | dict2items }}",
        "vars": {"__vllm_container": "{{ item.value }}", "role_path": f"{ROOT}/roles/vllm"},
    }
    # the role's variables without its tasks
    role = {**PLAY["tasks"][0], "tags": ["never"]}
    play = {**PLAY, "tasks": [role, {"ansible.builtin.debug": {"msg": says}, **show}]}
    gpus = [{"index": index, "uuid": f"GPU-{uuid}"} for index, uuid in enumerate("ab")]
    code, said = run_play(
        play,
        "box1",
        vllm_api_key="a-key-of-these-tests-0123",
        containers=containers,
        __vllm_nvml={"gpu_info": {"available": True, "gpus": gpus}},
    )
    assert code == 0, said
    wanted = {"same": "nothing", "order": "nothing", "replaced": "restart", "loading": "start", "older": "nothing"}
    assert [name for name, need in wanted.items() if f"{name} needs {need}." not in said] == []


def test_why_knows_the_tasks_that_start_an_engine():
    names = {
        task["name"]
        for file in ("engine", "back")
        for entry in yaml.safe_load((ROOT / f"roles/vllm/tasks/{file}.yml").read_text())
        for task in entry.get("block", [entry])
    }
    known = re.search(r"ansible_failed_task.name in (\[.*?\])", (ROOT / "roles/vllm/tasks/why.yml").read_text())[1]
    assert set(yaml.safe_load(known)) <= names
