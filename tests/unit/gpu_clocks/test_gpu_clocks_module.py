"""Modules gpu_clocks and gpu_info against the simulated NVML: check, diff and normal mode, and the desired state."""

import json
import sys
import time
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]


def test_check_mode_calls_no_setter_writes_nothing_and_predicts(box):
    predicted = box.module(check=True, diff=True, max_mhz=2100, power_limit_w=300, persistent=True)
    assert predicted["changed"] is True
    assert box.setters() == []
    assert not (box.root / "run/tandem").exists() and not box.desired.exists()
    applied = box.module(max_mhz=2100, power_limit_w=300, persistent=True)
    for expected, got in zip(predicted["gpus"], applied["gpus"], strict=True):
        for name in ("actions", "changes", "before", "after"):
            assert expected[name] == got[name], name
    assert predicted["diff"] == applied["diff"]
    assert box.module(check=True, max_mhz=2100, power_limit_w=300, persistent=True)["changed"] is False


def test_diff_names_each_setting_and_the_evidence(box):
    box.python("n.nvmlDeviceSetPersistenceMode(gpus[0], 0)")
    diff = box.module(check=True, diff=True, max_mhz=2100, power_limit_w=300)["diff"]
    assert len(diff) == 2
    assert diff[0]["before_header"].startswith("GPU 0 (GPU-")
    before, after = diff[0]["before"], diff[0]["after"]
    assert (before["persistence_mode"], after["persistence_mode"]) == (False, True)
    assert (before["power_limit_w"], after["power_limit_w"]) == (450.0, 300.0)
    assert (before["gpu_lock"], after["gpu_lock"]) == ("unknown", "0-2100 MHz")
    assert before["belief"] == "no_record" and before["evidence"]


def test_diff_is_empty_when_nothing_changes(box):
    box.module(max_mhz=2100)
    for part in box.module(diff=True, max_mhz=2100)["diff"]:
        assert part["before"] == part["after"]


def test_persistent_writes_the_desired_state_once(box):
    first = box.module(max_mhz=2100, persistent=True, expected_gpus=2)
    assert first["changed"] is True
    assert box.desired.stat().st_mode & 0o777 == 0o644
    desired = json.loads(box.desired.read_text())
    assert (desired["max_mhz"], desired["expected_gpus"], desired["reapply"]) == (2100, 2, "always")
    second = box.module(max_mhz=2100, persistent=True, expected_gpus=2)
    assert second["changed"] is False
    assert box.module(max_mhz=2100, persistent=True, expected_gpus=2, timeout=40)["changed"] is True


def test_a_passing_wish_warns_about_the_desired_state(box):
    box.module(max_mhz=2100, persistent=True)
    assert not box.module(max_mhz=2100)["warnings"]
    result = box.module(max_mhz=1800)
    assert "another max_mhz" in result["warnings"][0]
    assert json.loads(box.desired.read_text())["max_mhz"] == 2100


@pytest.mark.parametrize("missing", ["driver", "library", "binding"])
def test_check_mode_on_a_bare_box_predicts_a_change(box, missing):
    if missing == "driver":
        box.unload_module()
    elif missing == "library":
        box.env["LD_LIBRARY_PATH"] = str(box.root)
    else:
        (box.root / "pynvml.py").write_text("raise ImportError('hidden by the test')")
        box.env["PYTHONPATH"] = str(box.root)
    result = box.module(check=True, max_mhz=2100, persistent=True)
    assert result["changed"] is True and not result.get("failed")
    assert "cannot be asked yet" in result["warnings"][0]
    assert box.module(max_mhz=2100)["failed"] is True
    info = box.module("gpu_info")["gpu_info"]
    assert info["available"] is False and info["reason"]


def test_senseless_options_fail_before_anything(box):
    result = box.module(min_mhz=2600, max_mhz=2100)
    assert result["failed"] is True
    assert result["msg"].startswith("min_mhz (2600) is above max_mhz (2100)")
    assert box.setters() == []


def test_every_option_is_documented_and_every_return_real(box):
    name = ROOT / "library" / "gpu_clocks.py"
    text = name.read_text()
    scope = {}
    for block in ("DOCUMENTATION", "EXAMPLES", "RETURN"):
        scope[block] = yaml.safe_load(text.split(f'{block} = r"""')[1].split('"""')[0])
    result = box.module(max_mhz=2100)
    documented = set(scope["RETURN"]["gpus"]["contains"])
    assert documented == set(result["gpus"][0])
    assert set(scope["RETURN"]) | {"changed", "diff", "invocation", "warnings"} == set(result) | {"invocation"}
    assert set(scope["DOCUMENTATION"]["options"]) == set(result["invocation"]["module_args"])
    for example in scope["EXAMPLES"]:
        assert set(example["gpu_clocks"]) <= set(scope["DOCUMENTATION"]["options"])


def test_info_tells_what_the_box_has(box):
    info = box.module("gpu_info")["gpu_info"]
    assert info["available"] is True and info["reason"] is None and info["errors"] == []
    assert (info["driver_version"], info["module_version"], info["cuda_version"]) == ("580.95.05", "580.95.05", "13.0")
    assert info["persistenced"] is True
    first, second = info["gpus"]
    assert first["name"] == "NVIDIA GeForce RTX 4090" and first["compute_capability"] == "8.9"
    assert first["uuid"] != second["uuid"] and first["pci_bus_id"] != second["pci_bus_id"]
    assert (first["power_min_limit_w"], first["power_default_limit_w"], first["power_max_limit_w"]) == (150, 450, 600)
    assert first["supported_clocks"]["graphics_step_mhz"] == 15
    assert (first["memory_total_mib"], first["mig_mode"]) == (24564, None)
    assert first["event_reasons"] == ["gpu_idle"] and first["processes"] == []
    assert first["samples"] is None


def test_info_documents_what_it_returns(box):
    text = (ROOT / "library" / "gpu_info.py").read_text()
    returns = yaml.safe_load(text.split('RETURN = r"""')[1].split('"""')[0])["gpu_info"]["contains"]
    info = box.module("gpu_info")["gpu_info"]
    assert set(returns) == set(info)
    assert set(returns["gpus"]["contains"]) == set(info["gpus"][0])


def test_f20_info_tells_of_a_display_and_of_what_it_takes(box):
    """A display's programs draw and do not compute, so they are in the memory and not among the processes."""
    box.configure("gpu0.display_active 1\ngpu0.display_mib 512\n")
    first, second = box.module("gpu_info")["gpu_info"]["gpus"]
    assert (first["display_active"], first["memory_others_mib"]) == (True, 512)
    assert (second["display_active"], second["memory_others_mib"]) == (False, 0)
    assert first["memory_used_mib"] - second["memory_used_mib"] == 512


def test_info_samples_only_what_works(box):
    box.module(max_mhz=2100)
    idle = box.module("gpu_info", sample_seconds=0.3)["gpu_info"]["gpus"][0]["samples"]
    assert idle["count"] >= 2 and idle["busy"] == 0 and idle["sm_mhz_max"] is None
    box.load(100)
    busy = box.module("gpu_info", sample_seconds=0.3)["gpu_info"]["gpus"][0]["samples"]
    assert busy["busy"] == busy["count"] and busy["sm_mhz_max"] == 2100
    assert busy["power_max_w"] > 100


@pytest.mark.parametrize(
    ("config", "code", "says"),
    [
        ("gpu1.lost 1", 15, "GPU 1 has fallen off the bus (NVML error 15): power the box off and on"),
        ("error.gpu1.nvmlDeviceGetHandleByIndex 15", 15, "GPU 1 has fallen off the bus (NVML error 15)"),
        ("error.gpu1.nvmlDeviceGetName 16", 16, "GPU 1 needs a reset (NVML error 16): stop what uses it and run "),
        ("error.gpu1.nvmlDeviceGetMemoryInfo 17", 17, "GPU 1: nvmlDeviceGetMemoryInfo: the operating system blocked"),
        ("error.gpu1.nvmlDeviceGetUUID 999", 999, "GPU 1: nvmlDeviceGetUUID: the driver reports an unknown error"),
        ("error.gpu1.nvmlDeviceGetPciInfo 10", 10, "GPU 1: nvmlDeviceGetPciInfo: the driver did not answer in its own"),
        ("error.gpu1.nvmlDeviceGetPersistenceMode 1234", 1234, "GPU 1: nvmlDeviceGetPersistenceMode: NVML failed with"),
    ],
)
def test_f9_info_names_a_card_that_does_not_answer_and_has_the_other(box, config, code, says):
    box.configure(f"{config}\n")
    info = box.module("gpu_info")["gpu_info"]
    assert [gpu["index"] for gpu in info["gpus"]] == [0]
    (failed,) = info["failed"]
    assert (failed["index"], failed["code"]) == (1, code)
    assert failed["says"].startswith(says) and info["errors"] == [failed["says"]]


def test_f9_info_of_a_reset_names_the_card_to_reset(box):
    box.configure("error.gpu1.nvmlDeviceGetName 16\n")
    assert "`nvidia-smi --gpu-reset -i 1`" in box.module("gpu_info")["gpu_info"]["errors"][0]


def test_f9_clocks_of_a_lost_card(box):
    uuids = [gpu["uuid"] for gpu in box.module("gpu_info")["gpu_info"]["gpus"]]
    box.configure("gpu1.lost 1\n")
    result = box.module(max_mhz=2100)
    assert result["failed"] is True and "GPU 1 has fallen off the bus (NVML error 15)" in result["msg"]
    assert box.state()["gpu0.gpu_lock_max_mhz"] == 2100
    by_uuid = box.module(max_mhz=2100, gpus=[uuids[1]])
    assert f"{uuids[1]} has fallen off the bus (NVML error 15): power the box off and on" in by_uuid["msg"]
    box.configure("gpu1.lost 1\nerror.nvmlDeviceGetHandleByUUID 6\n")
    unknown = box.module(max_mhz=2100, gpus=[uuids[1]])["msg"]
    assert f"gpus names {uuids[1]}, which no card has that answers. GPU 1 has fallen off the bus" in unknown


def test_info_says_reboot_needed_when_the_library_is_newer(box):
    box.root.joinpath("sys/module/nvidia/version").write_text("570.10.01\n")
    info = box.module("gpu_info")["gpu_info"]
    assert info["available"] is False and info["nvml_code"] == 18 and info["reboot_needed"] is True
    assert "570.10.01" in info["reason"] and "reboot" in info["reason"]


def test_info_of_a_hung_driver_fails_in_time(box):
    box.configure("hang.nvmlDeviceGetName 60\n")
    started = time.monotonic()
    result = box.module("gpu_info", timeout=1)
    assert result["failed"] is True and "last call: nvmlDeviceGetName on GPU 0" in result["msg"]
    assert time.monotonic() - started < 15


def test_agrees_with_gpustat_and_nvitop(box):
    """Witnesses that others wrote, asking the same driver through their own code."""
    gpustat, nvitop = pytest.importorskip("gpustat"), pytest.importorskip("nvitop")
    assert gpustat and nvitop
    box.module(max_mhz=2100, power_limit_w=300)
    box.load(100)
    info = box.module("gpu_info")["gpu_info"]["gpus"]
    box.env["WITNESS"] = str(box.root / "witness.json")
    box.python(
        "import gpustat, nvitop, json, os\n"
        "seen = {'gpustat': [[gpu.uuid, gpu.power_limit] for gpu in gpustat.GPUStatCollection.new_query()],\n"
        "        'nvitop': [[gpu.uuid(), gpu.power_limit() // 1000, gpu.sm_clock()] for gpu in nvitop.Device.all()]}\n"
        "open(os.environ['WITNESS'], 'w').write(json.dumps(seen))"
    )
    seen = json.loads((box.root / "witness.json").read_text())
    assert seen["gpustat"] == [[gpu["uuid"], gpu["power_limit_w"]] for gpu in info]
    assert seen["nvitop"] == [[gpu["uuid"], gpu["power_limit_w"], gpu["clocks"]["sm_mhz"]] for gpu in info]
    assert seen["nvitop"][0][2] <= 2100


def test_needs_nothing_but_the_one_file(box):
    """The modules' logic imports only the standard library, itself and pynvml."""
    for path in (ROOT / "module_utils").glob("tandem_gpu_*.py"):
        for line in path.read_text().splitlines():
            words = line.split()
            if words[:1] == ["import"] and line[0] != " ":
                assert words[1].split(".")[0] in sys.stdlib_module_names, (path.name, line)
            if words[:1] == ["from"] and line[0] != " ":
                assert words[1].startswith(".") or words[1].split(".")[0] in sys.stdlib_module_names, (path.name, line)
