"""The rendered unit: through Ansible's templating with the role's own variables, and through systemd's parser."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GPUS = ["GPU-11111111-2222-3333-4444-555555555555", "GPU-66666666-7777-8888-9999-000000000000"]
KEY = "a-key-of-these-tests-0123"


@pytest.fixture(scope="module")
def render(tmp_path_factory):
    """Renders the unit with `settings` over the role's defaults; returns its text."""
    folder = tmp_path_factory.mktemp("unit")
    play = [
        {
            "hosts": "localhost",
            "connection": "local",
            "gather_facts": False,
            "tasks": [
                {
                    "ansible.builtin.include_role": {"name": "vllm", "tasks_from": "render_for_tests"},
                }
            ],
        }
    ]
    # the role's templates, defaults and variables, without its tasks
    role = folder / "roles/vllm"
    shutil.copytree(ROOT / "roles/vllm", role)
    (role / "tasks/render_for_tests.yml").write_text(
        json.dumps(
            [
                {
                    "ansible.builtin.template": {"src": "vllm.service.j2", "dest": "{{ rendered }}", "mode": "0600"},
                }
            ]
        )
    )
    (folder / "play.yml").write_text(json.dumps(play))

    def run(**settings):
        rendered = folder / "vllm-main.service"
        nvml = {"gpu_info": {"available": True, "gpus": [{"uuid": uuid} for uuid in GPUS]}}
        variables = {"rendered": str(rendered), "__vllm_nvml": nvml, "vllm_api_key": KEY, **settings}
        (folder / "vars.json").write_text(json.dumps(variables))
        done = subprocess.run(
            ["ansible-playbook", "-i", "localhost,", str(folder / "play.yml"), "-e", f"@{folder / 'vars.json'}"],
            cwd=ROOT,
            env={**os.environ, "ANSIBLE_ROLES_PATH": str(folder / "roles")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return rendered.read_text()

    return run


@pytest.fixture(scope="module")
def unit(render):
    return render()


def seconds(unit, name):
    return int(next(line.split("=")[1] for line in unit.splitlines() if line.startswith(name + "=")))


def test_systemd_takes_it(unit, tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    for name, text in {
        "vllm-main.service": unit,
        "docker.service": "[Service]\nExecStart=/bin/true\n",
        "tandem-gpu-clocks.service": "[Service]\nExecStart=/bin/true\n",
        "tandem-vllm-filter.service": (ROOT / "roles/vllm/files/tandem-vllm-filter.service").read_text(),
        "nvidia-cdi-refresh.service": "[Service]\nExecStart=/bin/true\n",
    }.items():
        # what the unit calls need not be on this machine
        (tmp_path / name).write_text(
            re.sub("/usr/local/lib/tandem/vllm-(back-off|cards-free|wait-ready)", "/bin/echo", text).replace(
                "/usr/bin/docker", "/bin/echo"
            )
        )
    done = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / "vllm-main.service")], capture_output=True, text=True, check=False
    )
    assert "vllm-main.service" not in done.stderr, done.stderr


def test_what_runs_beside_the_engine_may_do_little(unit, tmp_path):
    """2.6, and 9.6 without any of it. Left open are the device files, which NVML needs, and the network."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    (tmp_path / "vllm-main.service").write_text(unit)
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=30", str(tmp_path / "vllm-main.service")],
        capture_output=True,
        text=True,
        check=False,
    )
    if "unrecognized option" in done.stderr:
        pytest.skip("systemd before 250 cannot judge a file")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_cards_are_free_before_an_engine_is_made(unit):
    started = [line.partition("=")[2] for line in unit.splitlines() if line.startswith("ExecStartPre=")]
    programs = [re.search(r"(docker|vllm-[a-z-]+)( |$)", line)[1] for line in started]
    assert programs == ["vllm-back-off", "docker", "vllm-cards-free", "docker"]
    assert started[1].startswith("-/usr/bin/docker rm --force")
    assert f"--gpus {','.join(GPUS)}" in started[2]
    assert "--fraction 0.93" in unit


def test_an_engine_of_several_has_its_own_unit_cards_port_and_files(render):
    entry = {
        "name": "right",
        "gpus": [1],
        "port": 8001,
        "model": "/srv/models/small",
        "args": {"tensor-parallel-size": 1, "max-num-seqs": 4},
        "env": {"A": "2"},
    }
    text = render(vllm_engines=[entry], vllm_args={"max-num-seqs": 8}, vllm_env={"A": "1", "B": "1"})
    for words in [
        "--name vllm-right",
        "/etc/tandem/vllm/right.env",
        f"--device nvidia.com/gpu={GPUS[1]}",
        f"--label tandem.cards={GPUS[1]}",
        "source=/srv/models/small,",
        '"--port=8001"',
        "http://127.0.0.1:8001",
        '"--max-num-seqs=4"',
        '"--tensor-parallel-size=1"',
        '--env "A=2"',
        '--env "B=1"',
    ]:
        assert words in text
    assert GPUS[0] not in text
    assert "main" not in re.sub("(After|Requires|Wants|WantedBy)=.*", "", text)


def test_an_entry_alone_named_main_is_the_same_engine(render, unit):
    assert render(vllm_engines=[{"name": "main"}]) == unit


def test_a_digest_is_not_laid_upon_an_engines_own_image(render):
    text = render(vllm_image_digest="sha256:" + "0" * 64, vllm_engines=[{"name": "main", "image": "lab:5000/vllm:2"}])
    assert '"lab:5000/vllm:2"' in text


def test_an_engine_requires_the_lock_and_follows_it(unit):
    requires = next(line for line in unit.splitlines() if line.startswith("Requires="))
    after = next(line for line in unit.splitlines() if line.startswith("After="))
    assert "tandem-gpu-clocks.service" in requires
    assert "tandem-gpu-clocks.service" in after


def test_cards_come_through_cdi_by_uuid(unit):
    for uuid in GPUS:
        assert f"--device nvidia.com/gpu={uuid}" in unit
    assert "--gpus" not in unit[unit.index("docker create") :]
    assert "--runtime" not in unit


def test_stopping_gives_each_layer_time(unit):
    docker = int(
        next(line for line in unit.splitlines() if "docker stop --time" in line).split("--time ")[1].split()[0]
    )
    assert 60 < docker < seconds(unit, "TimeoutStopSec")
    assert '"--shutdown-timeout=60"' in unit


def test_the_model_has_time_to_load_and_no_number_of_failed_starts_is_the_last(unit):
    assert seconds(unit, "TimeoutStartSec") >= 900
    # not in systemd before 254, and never reset by an engine that works in between
    assert seconds(unit, "StartLimitIntervalSec") == 0 and "RestartSteps" not in unit


def test_an_engine_requires_the_packet_filter_and_follows_it(unit, render):
    def needed(text):
        lines = [line for line in text.splitlines() if line.startswith(("Requires=", "After="))]
        return ["tandem-vllm-filter.service" in line for line in lines]

    assert needed(unit) == [True, True]
    assert needed(render(vllm_filter=False)) == [False, False]


def test_what_the_processes_of_an_engine_say_to_each_other_is_nobody_elses(unit, render):
    for setting in ("VLLM_HOST_IP=127.0.0.1", "GLOO_SOCKET_IFNAME=lo", "NCCL_SOCKET_IFNAME==lo"):
        assert f'--env "{setting}"' in unit
    text = render(vllm_env={"NCCL_SOCKET_IFNAME": "eth0", "VLLM_HOST_IP": None})
    assert '--env "NCCL_SOCKET_IFNAME=eth0"' in text and "VLLM_HOST_IP" not in text


def test_an_engine_that_ends_with_0_is_started_again(unit):
    assert "Restart=always" in unit


def test_a_process_that_a_signal_ends_says_where_it_was_unless_the_user_says_otherwise(unit, render):
    assert unit.count("--env PYTHONFAULTHANDLER=1") == 1
    # the last one counts
    text = render(vllm_env={"PYTHONFAULTHANDLER": "0"})
    assert text.index("PYTHONFAULTHANDLER=1") < text.index("PYTHONFAULTHANDLER=0")
    label = re.compile(r"tandem\.config=(\w+)")
    assert label.search(unit)[1] != label.search(text)[1]


def test_no_zombies_and_no_shared_memory_left_behind(unit):
    assert "--init" in unit
    assert "--ipc private --shm-size" in unit


def test_no_key_in_the_unit(unit):
    assert KEY not in unit


def test_consumer_cards_defaults(unit):
    assert '"--disable-custom-all-reduce"' in unit
    assert '--env "NCCL_P2P_DISABLE=1"' in unit


def test_awkward_values_survive(render):
    text = render(vllm_args={"override-generation-config": {"stop": ["100% $HOME"]}}, vllm_image="lab:5000/vllm:1")
    assert r'"--override-generation-config={\"stop\":[\"100%% $$HOME\"]}"' in text
    assert '"lab:5000/vllm:1"' in text


def test_a_digest_pins_the_image(render):
    digest = "sha256:" + "0" * 64
    assert f"vllm-openai:v0.33.0@{digest}" in render(vllm_image_digest=digest)


def test_every_setting_that_needs_a_restart_changes_the_label(render):
    def label(text):
        return next(line for line in text.splitlines() if "tandem.config=" in line)

    labels = {label(render())}
    changes = [
        {"vllm_args": {"max-num-seqs": 8}},
        {"vllm_env": {"A": "1"}},
        {"vllm_image": "lab:5000/vllm:1"},
        {"vllm_model": "/srv/models/other"},
        {"vllm_port": 8001},
        {"vllm_api_key": KEY + "x"},
        {"vllm_shm_size": "4g"},
        {"vllm_listen": "0.0.0.0"},
        {"vllm_engines": [{"name": "main", "gpus": [0, 1]}]},
    ]
    for change in changes:
        labels.add(label(render(**change)))
    assert len(labels) == 1 + len(changes)
