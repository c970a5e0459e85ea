"""The programs that the packages install, against the simulated NVML under a root of their own."""

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest
import yaml
from packages_under_test import DRIVER, NEWER_DRIVER

LIBRARY_DIR = "/usr/lib/x86_64-linux-gnu"


def uuids(box):
    done = box.smi("--query-gpu=uuid", "--format=csv,noheader")
    assert done.returncode == 0, done.stdout
    return done.stdout.split()


# nvidia-ctk


@pytest.fixture
def spec(box, tmp_path):
    path = tmp_path / "cdi/nvidia.yaml"
    done = box.ctk("cdi", "generate", f"--output={path}")
    assert done.returncode == 0, done.stderr
    assert os.stat(path).st_mode & 0o777 == 0o644
    assert os.listdir(path.parent) == ["nvidia.yaml"]
    return yaml.safe_load(path.read_text())


def test_cdi_names_each_card_by_index_and_uuid(box, spec):
    first, second = uuids(box)
    assert (spec["cdiVersion"], spec["kind"]) == ("0.5.0", "nvidia.com/gpu")
    assert [device["name"] for device in spec["devices"]] == ["0", first, "1", second, "all"]
    assert re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", first) and first != second


@pytest.mark.parametrize("given, cards", [(["1"], [1]), (["0", "1"], [0, 1]), (["all"], [0, 1])])
def test_container_sees_the_cards_it_was_given(box, spec, given, cards):
    everything = uuids(box)
    edits = {device["name"]: device["containerEdits"] for device in spec["devices"]}
    nodes = spec["containerEdits"]["deviceNodes"] + [node for name in given for node in edits[name]["deviceNodes"]]
    for node in nodes:
        path = box.root / node["path"].lstrip("/")
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert uuids(box) == [everything[card] for card in cards]


def test_cdi_index_and_uuid_give_the_same_card(box, spec):
    edits = {device["name"]: device["containerEdits"] for device in spec["devices"]}
    first, second = uuids(box)
    assert edits["0"] == edits[first] and edits["1"] == edits[second] and edits["0"] != edits["1"]


def test_cdi_mounts_the_library_of_the_driver(installed, spec):
    mounts = {mount["containerPath"]: mount for mount in spec["containerEdits"]["mounts"]}
    library = str(installed) + f"{LIBRARY_DIR}/libnvidia-ml.so.{DRIVER}"
    for name in "libnvidia-ml.so.1", f"libnvidia-ml.so.{DRIVER}":
        assert mounts[f"{LIBRARY_DIR}/{name}"]["hostPath"] == library
        assert "ro" in mounts[f"{LIBRARY_DIR}/{name}"]["options"]
    assert "rw" in mounts["/run/sim-nvml"]["options"]
    assert "ro" in mounts["/sys/module"]["options"]


def test_cdi_json_and_standard_output_say_the_same(box, spec):
    done = box.ctk("cdi", "generate", "--format=json")
    assert json.loads(done.stdout) == spec


def test_cdi_output_by_the_unit_s_variable(box, tmp_path):
    path = tmp_path / "by-variable.yaml"
    done = box.ctk("cdi", "generate", NVIDIA_CTK_CDI_OUTPUT_FILE_PATH=str(path))
    assert done.returncode == 0 and done.stdout == "" and path.exists()


@pytest.mark.parametrize("loaded, reason", [(None, "Driver Not Loaded"), (NEWER_DRIVER, ".*version mismatch")])
def test_cdi_fails_when_nvml_does_not_answer_and_keeps_the_old_file(bare, tmp_path, loaded, reason):
    if loaded:
        bare.load(loaded)
    path = tmp_path / "nvidia.yaml"
    path.write_text("old")
    done = bare.ctk("cdi", "generate", f"--output={path}")
    assert done.returncode == 1 and re.search(f"failed to initialize NVML: {reason}", done.stderr)
    assert path.read_text() == "old"


def test_cdi_fails_without_the_library(box):
    done = box.ctk("cdi", "generate", LD_LIBRARY_PATH="")
    assert done.returncode == 1 and "is the driver installed?" in done.stderr


def nodes(box):
    done = box.ctk("cdi", "generate")
    assert done.returncode == 0
    return [node["path"] for node in yaml.safe_load(done.stdout)["containerEdits"]["deviceNodes"]], done.stderr


def test_cdi_without_unified_memory_is_written_without_it_and_without_an_error(box):
    given, said = nodes(box)
    assert given == ["/dev/nvidiactl"]
    assert 'level=warning msg="Could not locate /dev/nvidia-uvm: pattern /dev/nvidia-uvm not found"' in said


def modprobe(tmp_path, box, fails=()):
    """A PATH with a modprobe that loads what `fails` does not hold."""
    program = tmp_path / "bin/modprobe"
    program.parent.mkdir(exist_ok=True)
    program.write_text(
        f"""#!/bin/sh
case " {" ".join(fails)} " in *" $1 "*) exit 1 ;; esac
module={box.root}/sys/module/$(echo $1 | tr - _)
mkdir -p $module
echo live >$module/initstate
"""
    )
    program.chmod(0o755)
    (box.root / "dev").mkdir(exist_ok=True)
    return {"PATH": f"{program.parent}:{os.environ['PATH']}"}


CREATE = ("system", "create-device-nodes", "--control-devices")


def test_device_nodes_are_made_of_the_modules_that_are_loaded(box, tmp_path):
    path = modprobe(tmp_path, box)
    done = box.ctk(*CREATE, **path)
    assert done.returncode == 1 and "nvidia-uvm: failed to determine major" in done.stderr
    for _ in range(2):
        done = box.ctk(*CREATE, "--load-kernel-modules", **path)
        assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(box.root / "dev")) == ["nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools"]
    assert "already exists" in done.stderr
    assert nodes(box)[0] == ["/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidiactl"]


def test_the_first_module_that_fails_ends_it_and_a_second_call_makes_the_others_files(box, tmp_path):
    path = modprobe(tmp_path, box, fails=["nvidia-modeset"])
    done = box.ctk(*CREATE, "--load-kernel-modules", **path)
    assert done.returncode == 1 and "failed to load module nvidia-modeset" in done.stderr
    assert os.listdir(box.root / "dev") == []
    assert box.ctk(*CREATE, **path).returncode == 0
    assert (box.root / "dev/nvidia-uvm").exists()


DROPIN = Path(__file__).parents[3] / "roles/nvidia_container_toolkit/files/refresh.conf"


@pytest.mark.parametrize("fails", [[], ["nvidia-modeset"]])
def test_the_role_has_unified_memory_made_before_each_refresh(box, tmp_path, fails):
    path = modprobe(tmp_path, box, fails)
    if fails:
        # something else has loaded it
        os.makedirs(box.root / "sys/module/nvidia_uvm")
        (box.root / "sys/module/nvidia_uvm/initstate").write_text("live")
    commands = re.findall(r"^ExecStartPre=-/usr/bin/nvidia-ctk (.*)$", DROPIN.read_text(), re.MULTILINE)
    for command in commands:
        box.ctk(*command.split(), **path)
    assert "/dev/nvidia-uvm" in nodes(box)[0]


def test_cdi_list(box, spec, tmp_path):
    (tmp_path / "cdi/other.json").write_text(
        json.dumps({"cdiVersion": "0.5.0", "kind": "example.com/net", "devices": [{"name": "eth"}]})
    )
    done = box.ctk("cdi", "list", f"--spec-dir={tmp_path}/cdi")
    first, second = uuids(box)
    gpus = [f"nvidia.com/gpu={name}" for name in ("0", first, "1", second, "all")]
    assert done.stdout.split() == [*gpus, "example.com/net=eth"]


def test_runtime_configure_keeps_foreign_keys(box, tmp_path):
    config = tmp_path / "daemon.json"
    config.write_text('{"log-level": "warn", "features": {"buildkit": true}}')
    for _ in range(2):
        done = box.ctk("runtime", "configure", "--runtime=docker", "--cdi.enabled", f"--config={config}")
        assert done.returncode == 0 and "Wrote updated config" in done.stderr
    written = json.loads(config.read_text())
    assert written["log-level"] == "warn" and written["features"] == {"cdi": True}, "the real one drops the others"
    assert written["runtimes"]["nvidia"]["path"] == "nvidia-container-runtime"


def test_runtime_configure_dry_run_writes_nothing(box, tmp_path):
    done = box.ctk("runtime", "configure", "--dry-run", f"--config={tmp_path}/daemon.json")
    assert "nvidia" in json.loads(done.stdout)["runtimes"] and os.listdir(tmp_path) == ["root"]


def test_runtime_configure_refuses_what_it_cannot_read(box, tmp_path):
    config = tmp_path / "daemon.json"
    config.write_text('{"log-level": ')
    done = box.ctk("runtime", "configure", f"--config={config}")
    assert done.returncode == 1 and str(config) in done.stderr and config.read_text() == '{"log-level": '


def test_ctk_version(box):
    assert box.ctk("--version").stdout == "NVIDIA Container Toolkit CLI version 1.18.0 (simulated)\n"


# nvidia-smi


def test_smi_lists_the_cards(box):
    lines = box.smi("-L").stdout.splitlines()
    assert lines == [f"GPU {index}: NVIDIA GeForce RTX 4090 (UUID: {uuid})" for index, uuid in enumerate(uuids(box))]


def test_smi_query(box):
    done = box.smi("--query-gpu=index,driver_version,power.limit,persistence_mode", "--format=csv")
    assert done.stdout.splitlines() == [
        "index, driver_version, power.limit [W], persistence_mode",
        f"0, {DRIVER}, 450.00 W, Disabled",
        f"1, {DRIVER}, 450.00 W, Disabled",
    ]


def test_smi_says_simulated(box):
    assert "simulated" in box.smi().stdout


def test_smi_exit_codes_are_the_real_ones(bare):
    assert bare.smi("-L").returncode == 9
    bare.load(NEWER_DRIVER)
    done = bare.smi("-L")
    assert done.returncode == 18 and re.fullmatch(r"Failed to initialize NVML: .*version mismatch\.?\n", done.stdout)
    assert bare.smi("-L", LD_LIBRARY_PATH="").returncode == 12


@pytest.mark.parametrize(
    "arguments", [["-lgc", "2100"], ["--query-gpu=fan.speed", "--format=csv"], ["--query-gpu=uuid", "--format=xml"]]
)
def test_smi_refuses_what_it_does_not_simulate(box, arguments):
    done = box.smi(*arguments)
    assert done.returncode not in (0, 9, 12, 18) and "simulated nvidia-smi" in done.stderr


# nvidia-persistenced

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="persistence mode needs root, as in life")


def persistence(box):
    return set(box.smi("--query-gpu=persistence_mode", "--format=csv,noheader").stdout.split())


def wait_until_gone(path):
    for _ in range(100):
        if not path.exists():
            return
        time.sleep(0.05)
    raise AssertionError(f"{path} is still there after 5 s")


@pytest.fixture
def daemon(box):
    """Starts nvidia-persistenced; the path of its pid file. Ends it if the test did not."""
    pid_file = box.root / "run/nvidia-persistenced/nvidia-persistenced.pid"
    done = box.run("/usr/bin/nvidia-persistenced")
    assert done.returncode == 0, done.stderr
    yield pid_file
    if pid_file.exists():
        os.kill(int(pid_file.read_text()), signal.SIGTERM)
        wait_until_gone(pid_file)


@as_root
def test_persistence_mode_is_on_while_the_daemon_runs(box, daemon):
    assert persistence(box) == {"Enabled"}
    os.kill(int(daemon.read_text()), signal.SIGTERM)
    wait_until_gone(daemon)
    assert persistence(box) == {"Disabled"}


@as_root
def test_a_killed_daemons_hold_ends_as_the_kernel_closes_its_devices(box, daemon):
    os.kill(int(daemon.read_text()), signal.SIGKILL)
    for _ in range(100):
        if persistence(box) == {"Disabled"}:
            break
        time.sleep(0.05)
    assert persistence(box) == {"Disabled"}
    daemon.unlink()


@as_root
def test_daemon_fails_for_a_user_that_does_not_exist_as_the_real_one_does(box):
    done = box.run("/usr/bin/nvidia-persistenced", "--user", "nobody-here")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "\nERROR: Failed to find user ID of user 'nobody-here': Success\n\n"
    assert persistence(box) == {"Disabled"}


@as_root
def test_second_daemon_is_refused(box, daemon):
    pid = daemon.read_text()
    done = box.run("/usr/bin/nvidia-persistenced")
    assert done.returncode == 1 and "already running" in done.stderr
    assert daemon.read_text() == pid and persistence(box) == {"Enabled"}


@as_root
def test_daemon_fails_when_the_module_cannot_be_loaded(bare, tmp_path):
    modprobe = tmp_path / "bin/modprobe"
    modprobe.parent.mkdir()
    modprobe.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/asked\nexit 1\n')
    modprobe.chmod(0o755)
    done = bare.run("/usr/bin/nvidia-persistenced", PATH=f"{modprobe.parent}:{os.environ['PATH']}")
    assert done.returncode == 1 and "kernel module nvidia is not loaded" in done.stderr
    assert (tmp_path / "asked").read_text() == "nvidia\n"


@as_root
def test_daemon_fails_when_library_and_module_differ(bare):
    bare.load(NEWER_DRIVER)
    done = bare.run("/usr/bin/nvidia-persistenced")
    assert done.returncode == 1 and "version mismatch" in done.stderr
    assert not (bare.root / "run/nvidia-persistenced/nvidia-persistenced.pid").exists()
