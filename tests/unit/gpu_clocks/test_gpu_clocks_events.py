"""What takes a lock away, through the module: each event ends in force again or in the right error."""

import json

import pytest


def locked(box):
    state = box.state()
    return [state["gpu0.gpu_lock_max_mhz"], state["gpu1.gpu_lock_max_mhz"]] == [2100, 2100]


@pytest.fixture
def converged(box):
    first = box.module(max_mhz=2100, power_limit_w=400)
    assert first["changed"] and not first.get("failed")
    box.setters()
    return box


def test_second_run_is_unchanged_and_sets_the_lock_again(converged):
    result = converged.module(max_mhz=2100, power_limit_w=400)
    assert result["changed"] is False
    assert [gpu["belief"] for gpu in result["gpus"]] == ["confirmed", "confirmed"]
    assert converged.setters() == ["0:nvmlDeviceSetGpuLockedClocks", "1:nvmlDeviceSetGpuLockedClocks"]


def test_on_drift_calls_no_setter_when_confirmed(converged):
    result = converged.module(max_mhz=2100, power_limit_w=400, reapply="on_drift")
    assert result["changed"] is False
    assert converged.setters() == []


def test_foreign_reset_on_an_idle_card_is_unseen_and_undone(converged):
    converged.python("[n.nvmlDeviceResetGpuLockedClocks(gpu) for gpu in gpus]")
    assert not locked(converged)
    result = converged.module(max_mhz=2100, power_limit_w=400)
    assert result["changed"] is False  # nothing that can be read had changed
    assert locked(converged)


def test_foreign_reset_under_load_contradicts(converged):
    converged.python("[n.nvmlDeviceResetGpuLockedClocks(gpu) for gpu in gpus]")
    converged.load(100)
    result = converged.module(max_mhz=2100, power_limit_w=400, reapply="on_drift")
    assert [gpu["belief"] for gpu in result["gpus"]] == ["contradicted", "contradicted"]
    assert result["changed"] is True
    assert locked(converged)


def test_foreign_lock_of_another_range_is_undone(converged):
    converged.python("[n.nvmlDeviceSetGpuLockedClocks(gpu, 0, 2700) for gpu in gpus]")
    assert converged.module(max_mhz=2100, power_limit_w=400)["changed"] is False
    assert locked(converged)


@pytest.mark.parametrize(
    ("event", "sign"),
    [
        ("load_module", "loaded anew"),
        ("start_persistenced", "nvidia-persistenced has been started anew"),
    ],
)
def test_driver_events_make_the_record_stale(converged, event, sign):
    getattr(converged, event)(*([701] if event == "start_persistenced" else []))
    if event == "load_module":
        converged.python("[n.nvmlDeviceSetPersistenceMode(gpu, 1) for gpu in gpus]")
    assert not (converged.sim / "state").exists() or not locked(converged)
    result = converged.module(max_mhz=2100, power_limit_w=400)
    assert result["changed"] is True
    for gpu in result["gpus"]:
        assert gpu["belief"] == "stale"
        assert sign in " ".join(gpu["evidence"])
    assert locked(converged)
    assert converged.module(max_mhz=2100, power_limit_w=400)["changed"] is False


def test_reboot_leaves_no_record(converged):
    converged.boot()
    result = converged.module(max_mhz=2100, power_limit_w=400)
    assert [gpu["belief"] for gpu in result["gpus"]] == ["no_record", "no_record"]
    assert result["changed"] is True and locked(converged)


def test_boot_id_alone_makes_the_record_stale(converged):
    (converged.root / "proc/sys/kernel/random/boot_id").write_text("other\n")
    result = converged.module(max_mhz=2100, power_limit_w=400)
    assert result["changed"] is True
    assert result["gpus"][0]["belief"] == "stale"


def test_energy_counter_reset_makes_the_record_stale(converged):
    entry = json.loads(converged.record.read_text())
    for gpu in entry["gpus"].values():
        gpu["evidence"]["energy_mj"] += 10**9
    converged.record.write_text(json.dumps(entry))
    result = converged.module(max_mhz=2100, power_limit_w=400)
    assert result["changed"] is True
    assert "energy counter" in result["gpus"][0]["evidence"][0]


def test_power_limit_changed_by_hand(converged):
    converged.python("n.nvmlDeviceSetPowerManagementLimit(gpus[1], 450000)")
    result = converged.module(max_mhz=2100, power_limit_w=400)
    assert result["changed"] is True
    assert [bool(gpu["changes"]) for gpu in result["gpus"]] == [False, True]
    assert {"setting": "power_limit", "before": "450 W", "after": "400 W"} in result["gpus"][1]["changes"]
    assert converged.state()["gpu1.power_limit_mw"] == 400_000


def test_persistence_switched_off_by_hand(converged):
    converged.python("n.nvmlDeviceSetPersistenceMode(gpus[0], 0)")
    result = converged.module(max_mhz=2100, power_limit_w=400)
    assert result["changed"] is True
    assert "persistence_mode" in [item["setting"] for item in result["gpus"][0]["changes"]]
    assert locked(converged) and converged.state()["gpu0.persistence_mode"] == 1


def test_clock_above_the_lock_that_the_driver_does_not_hold_is_an_error(converged):
    converged.configure("gpu0.lock_held 0\n")
    converged.load(100)
    result = converged.module(max_mhz=2100, power_limit_w=400)
    assert result["failed"] is True
    assert "does not hold it" in result["msg"] and "#1314" in result["msg"]
    uuids = [gpu["uuid"] for gpu in result["gpus"]]
    assert list(json.loads(converged.record.read_text())["gpus"]) == [uuids[1]]


def test_one_gpu_lost_the_other_is_done_and_the_run_fails(box):
    box.configure("gpu1.lost 1\n")
    result = box.module(max_mhz=2100)
    assert result["failed"] is True
    assert "GPU 1" in result["msg"] and "fallen off the bus" in result["msg"]
    assert box.state()["gpu0.gpu_lock_max_mhz"] == 2100
    assert [gpu["index"] for gpu in result["gpus"]] == [0]


def test_setter_fails_on_one_gpu(converged):
    converged.configure("error.gpu0.nvmlDeviceSetGpuLockedClocks 999\n")
    result = converged.module(max_mhz=1800, power_limit_w=400)
    assert result["failed"] is True and "Xid" in result["msg"]
    entries = json.loads(converged.record.read_text())["gpus"]
    assert [entry["wish"]["gpu_lock"] for entry in entries.values()] == [[0, 1800]]
    converged.configure("")
    again = converged.module(max_mhz=1800, power_limit_w=400)
    assert [bool(gpu["changes"]) for gpu in again["gpus"]] == [True, False]


def test_hung_driver_ends_in_a_sentence(converged):
    converged.configure("hang.nvmlDeviceSetGpuLockedClocks 60\n")
    result = converged.module(max_mhz=2100, power_limit_w=400, timeout=2)
    assert result["failed"] is True
    assert "did not answer within 2 s" in result["msg"] and "nvmlDeviceSetGpuLockedClocks" in result["msg"]


@pytest.mark.parametrize(
    ("config", "code", "words"),
    [
        ("error.nvmlInit 9\n", 9, "not loaded"),
        ("error.nvmlInit 4\n", 4, "become"),
        ("error.nvmlInit 18\n", 18, "580.95.05"),
    ],
)
def test_nvml_that_does_not_start(box, config, code, words):
    box.configure(config)
    result = box.module(max_mhz=2100)
    assert result["failed"] is True and result["nvml_code"] == code
    assert words in result["msg"]


def test_missing_library_and_binding(box):
    box.env["LD_LIBRARY_PATH"] = str(box.root)
    result = box.module(max_mhz=2100)
    assert result["failed"] and "libnvidia-ml.so.1 is not installed" in result["msg"]
    (box.root / "pynvml.py").write_text("raise ImportError('hidden by the test')")
    box.env["PYTHONPATH"] = str(box.root)
    result = box.module(max_mhz=2100)
    assert result["failed"] and "/usr/local/lib/tandem/pynvml.py" in result["msg"]


def test_memory_lock_not_supported_is_a_warning_unless_required(box):
    box.configure("error.nvmlDeviceSetMemoryLockedClocks 3\n")
    result = box.module(max_mhz=2100, memory_max_mhz=10251)
    assert not result.get("failed") and result["changed"] is True
    assert any("memory clock" in warning for warning in result["warnings"])
    assert result["gpus"][0]["after"]["memory_lock"] == "not supported"
    assert box.module(max_mhz=2100, memory_max_mhz=10251)["changed"] is False
    assert box.module(max_mhz=2100, memory_max_mhz=10251, memory_required=True)["failed"] is True


def test_memory_lock_is_taken_back_when_no_longer_wished(box):
    box.module(max_mhz=2100, memory_max_mhz=5001)
    assert box.state()["gpu0.memory_lock_max_mhz"] == 5001
    result = box.module(max_mhz=2100)
    assert result["changed"] is True
    assert box.state()["gpu0.memory_lock_max_mhz"] == -1
    assert box.module(max_mhz=2100)["changed"] is False


def test_unlocked(converged):
    result = converged.module(state="unlocked", power_limit_w="default")
    assert result["changed"] is True
    assert converged.state()["gpu0.gpu_lock_max_mhz"] == -1
    assert converged.state()["gpu0.power_limit_mw"] == 450_000
    assert converged.module(state="unlocked", power_limit_w="default")["changed"] is False


def test_without_persistence_mode_nothing_is_believed(box):
    box.module(max_mhz=2100, persistence_mode=False)
    result = box.module(max_mhz=2100, persistence_mode=False)
    assert result["changed"] is True
    assert result["gpus"][0]["belief"] == "stale"
    assert any("never believed" in warning for warning in result["warnings"])


def test_record_is_private(converged):
    assert converged.record.stat().st_mode & 0o777 == 0o600


def test_damaged_record_counts_as_none(converged):
    converged.record.write_text("{ half")
    result = converged.module(max_mhz=2100, power_limit_w=400)
    assert [gpu["belief"] for gpu in result["gpus"]] == ["no_record", "no_record"]
    assert result["changed"] is True
