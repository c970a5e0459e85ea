"""Whether cards are free, by the simulated NVML: memory held by a process, given back in time, or never."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "roles/vllm/files/vllm-cards-free"
SIMCTL = ROOT / "sim/nvml/simctl"
DRIVER = "580.95.05"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    outdir = tmp_path_factory.mktemp("nvml")
    environment = {**os.environ, "PYTHON": sys.executable}
    subprocess.run([ROOT / "sim/nvml/build.sh", outdir, DRIVER], env=environment, check=True, capture_output=True)
    return outdir


class Box:
    """A box with two simulated cards, a `docker` that knows one container, and tandem's library."""

    def __init__(self, path, library):
        self.path = path
        module = path / "root/sys/module/nvidia"
        module.mkdir(parents=True)
        (module / "version").write_text(DRIVER + "\n")
        (path / "lib/tandem").mkdir(parents=True)
        for source in (ROOT / "module_utils").glob("tandem_gpu_*.py"):
            shutil.copy(source, path / "lib/tandem")
        self.env = {
            **os.environ,
            "LD_LIBRARY_PATH": str(library),
            "SIM_NVML_DIR": str(path / "sim-nvml"),
            "SIM_NVML_ROOT": str(path / "root"),
            "SIM_NVML_MACHINE_ID": "0123456789abcdef",
            "PYTHONPATH": str(path / "lib"),
        }
        code = (
            "import pynvml as n; n.nvmlInit()\n"
            "print(*[n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByIndex(i)) for i in (0, 1)])"
        )
        self.uuids = self.run(sys.executable, "-c", code).stdout.split()
        self.started = []

    def run(self, *command):
        return subprocess.run(command, env=self.env, capture_output=True, text=True, check=False)

    def hold(self, mib, seconds=60, gpu="all"):
        """A process with memory on the cards; returns its pid."""
        command = [sys.executable, SIMCTL, "hold", "--gpu", gpu, "--memory-mib", str(mib), "--"]
        command += ["sh", "-c", f"echo there; sleep {seconds}"]
        process = subprocess.Popen(command, env=self.env, stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.started.append(process)
        assert process.stdout.readline() == "there\n"
        return process.pid

    def end(self):
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, 15)
            process.wait()

    def ask(self, *options, timeout="0", gpus=None):
        return self.run(sys.executable, PROGRAM, "--gpus", ",".join(gpus or self.uuids), "--timeout", timeout, *options)


@pytest.fixture
def box(tmp_path, library):
    machine = Box(tmp_path, library)
    yield machine
    machine.end()


@pytest.mark.parametrize("wanted", [("--fraction", "0.93"), ("--min-free-mib", "22000"), ("--fraction", "0.98")])
def test_idle_cards_are_free(box, wanted):
    done = box.ask(*wanted)
    assert (done.returncode, done.stdout) == (0, "the cards are free\n"), done.stderr


def test_s2_an_orphan_is_named_with_its_memory(box):
    pid = box.hold(22000)
    done = box.ask("--fraction", "0.93")
    assert done.returncode == 1
    for index, uuid in enumerate(box.uuids):
        assert f"GPU {index} ({uuid}) has 22000 MiB in use and " in done.stderr
    assert f"pid {pid} (sh) has 22000 MiB" in done.stderr
    assert f"Stop what should not be there (kill {pid})" in done.stderr
    assert done.stderr.count("\n") == 1


def test_only_the_cards_asked_for_count(box):
    box.hold(22000, gpu="1")
    assert box.ask("--fraction", "0.93", gpus=box.uuids[:1]).returncode == 0
    done = box.ask("--fraction", "0.93", gpus=box.uuids[1:])
    assert done.returncode == 1 and "GPU 1 (" in done.stderr and "GPU 0 (" not in done.stderr


def test_a_second_engine_may_share_when_enough_is_free(box):
    box.hold(9000)
    assert box.ask("--min-free-mib", "12000").returncode == 0
    assert box.ask("--min-free-mib", "16000").returncode == 1


def test_it_waits_for_memory_that_is_given_back(box):
    box.hold(22000, seconds=1)
    done = box.ask("--fraction", "0.93", timeout="20")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("waiting for up to 20 s: GPU 0 (")
    assert done.stdout.endswith("the cards are free\n")


def test_a_container_is_named(box):
    """The process's cgroup as Docker makes it, and a `docker` that knows its name."""
    pid = box.hold(22000)
    cgroup = f"0::/system.slice/docker-{'ab' * 32}.scope\n"
    docker = box.path / "docker"
    docker.write_text(f'#!/bin/sh\n[ "$5" = {"ab" * 32} ] && echo /vllm-old\n')
    docker.chmod(0o755)
    box.env["PATH"] = f"{box.path}:{os.environ['PATH']}"
    code = (
        "import runpy, sys\nopened = open\n"
        "def fake(path, *a, **k):\n"
        f"    if path == '/proc/{pid}/cgroup':\n        import io\n        return io.StringIO({cgroup!r})\n"
        "    return opened(path, *a, **k)\n"
        "import builtins; builtins.open = fake\n"
        f"sys.argv = ['x', '--gpus', {box.uuids[0]!r}, '--fraction', '0.93', '--timeout', '0']\n"
        f"runpy.run_path({str(PROGRAM)!r}, run_name='__main__')\n"
    )
    done = box.run(sys.executable, "-c", code)
    assert done.returncode == 1
    assert f"pid {pid} (sh in container vllm-old) has 22000 MiB" in done.stderr
    assert "docker rm --force vllm-old" in done.stderr


def test_no_driver_is_said(box):
    shutil.rmtree(box.path / "root/sys/module/nvidia")
    done = box.ask("--fraction", "0.93")
    assert done.returncode == 1
    assert "cannot see whether the cards" in done.stderr and "the NVIDIA kernel driver is not loaded" in done.stderr


def test_a_card_that_is_not_there_is_said(box):
    done = box.ask("--fraction", "0.93", gpus=["GPU-00000000-0000-0000-0000-000000000000"])
    assert done.returncode == 1 and "there is no such GPU" in done.stderr


@pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetMemoryInfo"])
def test_f22_a_driver_that_hangs_ends_the_wait_in_time_with_the_call_and_the_card(box, call):
    box.run(sys.executable, SIMCTL, "hang", call, "30", *([] if call == "nvmlInit" else ["--gpu", "1"]))
    started = time.monotonic()
    done = box.ask("--fraction", "0.93", timeout="2")
    assert time.monotonic() - started < 6 and done.returncode == 1
    on = "" if call == "nvmlInit" else f" on {box.uuids[1]}"
    assert f"the driver did not answer within 2 s (last call: {call}{on})" in done.stderr


def test_f22_a_driver_that_hangs_while_it_waits(box):
    box.hold(22000)
    process = subprocess.Popen(
        [sys.executable, PROGRAM, "--gpus", box.uuids[0], "--timeout", "4", "--fraction", "0.93"],
        env=box.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    started = time.monotonic()
    assert process.stdout.readline().startswith("waiting for up to 4 s")
    box.run(sys.executable, SIMCTL, "hang", "nvmlDeviceGetHandleByUUID", "30")
    _, said = process.communicate(timeout=20)
    assert time.monotonic() - started < 9 and process.returncode == 1
    assert f"(last call: nvmlDeviceGetHandleByUUID on {box.uuids[0]})" in said


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("gpu1.lost 1", "{1}: nvmlDeviceGetHandleByUUID: the GPU has fallen off the bus (NVML error 15)"),
        ("error.gpu1.nvmlDeviceGetMemoryInfo 16", "{1}: nvmlDeviceGetMemoryInfo: the GPU needs a reset"),
        ("gpu1.uuid GPU-x\ngpu1.lost 1", "there is no such GPU (NVML error 6): compare with the UUIDs that gpu_info "),
        ("gpu1.uuid GPU-x\ngpu1.lost 1", "; GPU 1: nvmlDeviceGetHandleByIndex: the GPU has fallen off the bus"),
    ],
)
def test_f9_a_card_that_does_not_answer_is_named(box, config, says):
    (box.path / "sim-nvml/config").write_text(config + "\n")
    done = box.ask("--fraction", "0.93")
    assert done.returncode == 1 and says.format(*box.uuids) in done.stderr


@pytest.mark.parametrize("options", [(), ("--fraction", "93"), ("--fraction", "0.9", "--min-free-mib", "5")])
def test_what_is_wanted_must_make_sense(box, options):
    assert box.ask(*options).returncode == 2
