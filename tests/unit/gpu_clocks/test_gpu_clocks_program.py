"""The boot program: apply, check, status and json, and their exit codes 0 in force, 1 not, 2 unknown."""

import json
import os
import subprocess
import sys
import threading
import time

import pytest


@pytest.fixture
def desired(box):
    """A box whose desired state is written and that has just booted."""
    box.desired.parent.mkdir(exist_ok=True)
    box.desired.write_text(json.dumps({"max_mhz": 2100, "expected_gpus": 2, "wait_seconds": 0, "timeout": 10}))
    return box


def locked(box):
    return box.state()["gpu0.gpu_lock_max_mhz"] == 2100 and box.state()["gpu1.gpu_lock_max_mhz"] == 2100


def test_status_before_and_after_apply(desired):
    code, text = desired.program("status")
    assert code == 1 and "NOT in force" in text and "no_record" in text
    assert desired.setters() == []
    assert desired.program("apply")[0] == 0 and locked(desired)
    code, text = desired.program("status")
    assert code == 0
    head, first, second = text.splitlines()[:3]
    assert head.split("  ")[0] == "GPU" and "WANTED" in head and "CLOCK NOW" in head and "POWER NOW" in head
    for line in (first, second):
        assert "0-2100 MHz" in line and "confirmed" in line and "yes" in line


def test_json(desired):
    code, text = desired.program("json")
    report = json.loads(text)
    assert code == report["exit_code"] == 1
    assert report["in_force"] is False and report["desired"]["max_mhz"] == 2100
    desired.program("apply")
    report = json.loads(desired.program("json")[1])
    assert report["in_force"] is True and [gpu["belief"] for gpu in report["gpus"]] == ["confirmed"] * 2


def test_module_and_program_share_record_and_desired_state(box):
    box.module(max_mhz=2100, persistent=True)
    assert box.program("status")[0] == 0
    box.boot()
    assert box.program("status")[0] == 1
    assert box.program("apply")[0] == 0
    assert box.module(max_mhz=2100, persistent=True)["changed"] is False


@pytest.mark.parametrize(
    ("fault", "words"),
    [("file", "gpu-clocks.json is missing"), ("broken", "cannot be read"), ("wish", "max_mhz (0) would stop the GPU")],
)
def test_unknown_without_a_usable_desired_state(desired, fault, words):
    if fault == "file":
        desired.desired.unlink()
    else:
        desired.desired.write_text("{" if fault == "broken" else '{"max_mhz": 0}')
    code, text = desired.program("status")
    assert code == 2 and words in text and "UNKNOWN" in text


def test_unknown_without_a_driver(desired):
    desired.unload_module()
    code, text = desired.program("status")
    assert code == 2 and "not loaded" in text
    assert desired.program("apply")[0] == 2


def test_check_without_a_module_does_not_ask_nvml(desired):
    """Asking could load the module behind the back of whoever has unloaded it."""
    desired.unload_module()
    (desired.sim / "trace").unlink(missing_ok=True)
    code, text = desired.program("check")
    assert code == 2 and "not loaded" in text
    assert not (desired.sim / "trace").exists()


def test_hung_driver_is_unknown(desired):
    desired.desired.write_text(json.dumps({"max_mhz": 2100, "timeout": 1}))
    desired.configure("hang.nvmlDeviceGetCount 60\n")
    code, text = desired.program("status")
    assert code == 2 and "did not answer within 1 s" in text


def test_apply_waits_for_the_driver(desired):
    desired.desired.write_text(json.dumps({"max_mhz": 2100, "expected_gpus": 2, "wait_seconds": 30}))
    desired.unload_module()
    late = threading.Timer(1.5, desired.load_module)
    late.start()
    started = time.monotonic()
    code, _text = desired.program("apply")
    late.join()
    assert code == 0 and time.monotonic() - started > 1.4
    assert locked(desired)


def test_apply_waits_for_the_expected_gpus_and_then_fails(desired):
    desired.desired.write_text(json.dumps({"max_mhz": 2100, "expected_gpus": 3, "wait_seconds": 1}))
    code, text = desired.program("apply")
    assert code == 1 and "sees 2 GPU(s)" in text
    assert locked(desired)


def test_check_undoes_a_foreign_reset_and_is_silent_when_all_is_well(desired):
    desired.program("apply")
    assert desired.program("check") == (0, "")
    desired.python("[n.nvmlDeviceResetGpuLockedClocks(gpu) for gpu in gpus]")
    assert desired.program("check")[0] == 0
    assert locked(desired)


def test_check_says_a_drift_once_and_again_when_it_comes_back(desired):
    desired.program("apply")
    for pid in (701, 702):
        desired.start_persistenced(pid)
        code, text = desired.program("check")
        assert code == 0 and "gpu_lock unknown -> 0-2100 MHz" in text and "nvidia-persistenced" in text
        assert text.startswith("<5>")
        assert locked(desired)
        assert desired.program("check") == (0, "")


def test_check_says_a_fault_once_and_its_end_once(desired):
    desired.program("apply")
    desired.configure("gpu1.lost 1\n")
    code, text = desired.program("check")
    assert code == 1 and "fallen off the bus" in text and text.startswith("<4>")
    assert desired.program("check") == (1, "")
    desired.configure("error.gpu1.nvmlDeviceSetGpuLockedClocks 999\n")
    code, text = desired.program("check")
    assert code == 1 and "999" in text  # another fault is news
    assert desired.program("check") == (1, "")
    desired.configure("")
    code, text = desired.program("check")
    assert code == 0 and "gpu_lock" in text
    code, text = desired.program("check")
    assert code == 0 and text == ""


def test_check_says_that_it_is_in_force_again(desired):
    desired.program("apply")
    desired.configure("error.nvmlInit 999\n")
    assert desired.program("check")[0] == 2
    desired.configure("")
    assert desired.program("check") == (0, "<5>in force again\n")
    assert desired.program("check") == (0, "")


def test_an_event_between_two_writers_waits_for_the_lock(desired):
    lock = desired.root / "run/tandem/gpu-clocks.lock"
    lock.parent.mkdir(parents=True)
    holder = subprocess.Popen(
        [sys.executable, "-c", "import fcntl,sys,time\nf=open(sys.argv[1],'w'); fcntl.flock(f,fcntl.LOCK_EX)\n"
         "print(flush=True); time.sleep(60)", lock],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        holder.stdout.readline()
        desired.desired.write_text(json.dumps({"max_mhz": 2100, "timeout": 3}))
        code, text = desired.program("apply")
        assert code == 2 and "gpu-clocks.lock" in text and "more than 1 s" in text
    finally:
        holder.kill()
        holder.wait()
    assert desired.program("apply")[0] == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to drop root")
def test_without_root_status_says_so(desired):
    desired.program("apply")
    for path in (desired.root, desired.sim, desired.lib, *desired.root.parents):
        if str(path).startswith("/tmp/pytest"):
            path.chmod(0o755)
    code = (
        "import os, sys; sys.path.insert(0, sys.argv.pop(1)); import pynvml\n"
        "pynvml.nvmlInit()  # loads the library, which another user may not read here\n"
        "from tandem.tandem_gpu_program import main\n"
        "os.setgid(65534); os.setuid(65534); sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(desired.lib.parent), "status"],
        env=desired.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "root only" in done.stdout
