"""build.sh: what it makes, and what it refuses."""

import re
import subprocess
import sysconfig
from pathlib import Path


def symbols(library):
    listing = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in listing.splitlines()}


def test_builds_without_warnings_and_only_once(build, tmp_path):
    first = build(tmp_path, CFLAGS="-Werror -Wpedantic -Wshadow -Wmissing-prototypes")
    assert first.returncode == 0, first.stderr
    assert re.search(r"built in \d+ s\n$", first.stdout)
    assert build(tmp_path).stdout.endswith("libnvidia-ml.so.1: current\n")
    assert "built in" in build(tmp_path, "580.126.09").stdout
    assert [path.name for path in tmp_path.iterdir()] == ["libnvidia-ml.so.1"]


def test_has_every_function_of_the_header_and_no_other(build, tmp_path):
    assert build(tmp_path, "999.0").returncode == 0
    [header] = Path(sysconfig.get_path("purelib")).glob("nvidia/*/include/nvml.h")
    declared = set(re.findall(r"DECLDIR\s*(?:char\s*\*\s*)?(nvml\w+)\s*\(", header.read_text()))
    assert len(declared) > 400
    assert symbols(tmp_path / "libnvidia-ml.so.1") == declared | {"nvmlInternalGetExportTable"}


def test_whatever_a_source_defines_is_what_the_export_calls(build, library, tmp_path):
    """Also a function that a macro writes: the linker knows it, no pattern has to."""
    listing = subprocess.run(["nm", library / "libnvidia-ml.so.1"], capture_output=True, text=True, check=True).stdout
    defined = set(re.findall(r" [tT] impl_(nvml\w+)", listing))
    assert {"nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetName"} <= defined
    assert not re.search(r" [wWuUvV] impl_", listing), "left for the loader, which looks elsewhere"
    disassemble = ["objdump", "-d", "--no-show-raw-insn", library / "libnvidia-ml.so.1"]
    code = subprocess.run(disassemble, capture_output=True, text=True, check=True).stdout
    bodies = dict(re.findall(r"<(nvml\w+)>:\n(.*?)\n\n", code, re.DOTALL))
    assert {name for name in defined & bodies.keys() if f"<impl_{name}>" not in bodies[name]} == set()
    assert len(defined & bodies.keys()) > 90


def test_old_driver_lacks_newer_functions(build, tmp_path):
    assert build(tmp_path, "470.256.02", "--without", "nvmlDeviceSetGpuLockedClocks,nvmlDeviceGetUUID").returncode == 0
    found = symbols(tmp_path / "libnvidia-ml.so.1")
    assert "nvmlDeviceGetCurrentClocksEventReasons" not in found  # since.txt: 535
    assert "nvmlSystemGetDriverBranch" not in found  # since.txt: 570
    assert not found & {"nvmlDeviceSetGpuLockedClocks", "nvmlDeviceGetUUID"}
    assert {"nvmlDeviceResetGpuLockedClocks", "nvmlDeviceGetCurrentClocksThrottleReasons"} <= found


def test_loads_in_a_container_of_debian_12(library):
    listing = subprocess.run(
        ["nm", "-D", library / "libnvidia-ml.so.1"], capture_output=True, text=True, check=True
    ).stdout
    versions = [tuple(map(int, x.split("."))) for x in re.findall(r"@GLIBC_([\d.]+)", listing)]
    assert versions and max(versions) <= (2, 36)


def test_refuses_what_it_does_not_understand(build, tmp_path):
    wrong_version = build(tmp_path, "580; true")
    assert wrong_version.returncode == 2 and "580; true" in wrong_version.stderr
    wrong_symbol = build(tmp_path, "580.95.05", "--without", "nvmlDeviceSetGpuLockedClock")
    assert wrong_symbol.returncode != 0 and "nvmlDeviceSetGpuLockedClock" in wrong_symbol.stderr
    no_header = build(tmp_path, PYTHON="/usr/bin/env")
    assert no_header.returncode != 0
    assert list(tmp_path.iterdir()) == []
