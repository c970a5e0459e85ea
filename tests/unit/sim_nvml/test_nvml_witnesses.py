"""Programs that know nothing of the simulation say the same of the cards as pynvml does."""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[3]

LOCK = "for g in gpus(): n.nvmlDeviceSetPersistenceMode(g, 1); n.nvmlDeviceSetGpuLockedClocks(g, 0, 2100)\nsay(0)"
READ = """
say([{'index': n.nvmlDeviceGetIndex(g), 'uuid': n.nvmlDeviceGetUUID(g), 'name': n.nvmlDeviceGetName(g),
      'watt': n.nvmlDeviceGetPowerUsage(g) // 1000, 'limit': n.nvmlDeviceGetEnforcedPowerLimit(g) // 1000,
      'use': n.nvmlDeviceGetUtilizationRates(g).gpu, 'celsius': n.nvmlDeviceGetTemperature(g, 0),
      'mib': n.nvmlDeviceGetMemoryInfo(g, version=n.nvmlMemory_v2).used >> 20, 'sm': n.nvmlDeviceGetClockInfo(g, 1),
      'pids': [p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(g)]} for g in gpus()])
"""


@pytest.fixture
def busy(machine):
    """A locked machine with a process on card 1; yields it and the process's pid."""
    machine.run(LOCK)
    with machine.holder("--gpu", 1, "--memory-mib", 20000, "--load", 70) as process:
        yield machine, process.pid


def test_gpustat_agrees(busy):
    machine, pid = busy
    done = machine.program(sys.executable, "-m", "gpustat", "--json")
    assert done.returncode == 0, done.stderr
    says = json.loads(done.stdout)
    assert says["driver_version"] == "580.95.05"
    seen = [
        {"index": g["index"], "uuid": g["uuid"], "name": g["name"], "watt": g["power.draw"],
         "limit": g["enforced.power.limit"], "use": g["utilization.gpu"], "celsius": g["temperature.gpu"],
         "mib": g["memory.used"], "pids": [p["pid"] for p in g["processes"]]}
        for g in says["gpus"]
    ]  # fmt: skip
    ours = [{key: value for key, value in gpu.items() if key != "sm"} for gpu in machine.run(READ)]
    assert seen == ours
    assert ours[1]["pids"] == [pid] and ours[1]["mib"] == 20000


def test_nvitop_agrees(busy):
    machine, pid = busy
    script = """
import json
from nvitop import Device
print(json.dumps([{'index': d.index, 'uuid': d.uuid(), 'name': d.name(), 'watt': d.power_usage() // 1000,
    'limit': d.power_limit() // 1000, 'use': d.gpu_utilization(), 'celsius': d.temperature(),
    'mib': d.memory_used() >> 20, 'sm': d.sm_clock(), 'pids': sorted(d.processes())} for d in Device.all()]))
"""
    done = machine.program(sys.executable, "-c", script)
    assert done.returncode == 0, done.stderr
    ours = machine.run(READ)
    assert json.loads(done.stdout) == ours
    assert [gpu["sm"] for gpu in ours] == [210, 2100] and ours[1]["pids"] == [pid]
    screen = machine.program(sys.executable, "-m", "nvitop", "--once")
    assert screen.returncode == 0 and "580.95.05" in screen.stdout


# ---- NVIDIA's own library and nvidia-smi, of Debian's non-free ----

# Older names of functions, which the library keeps for programs from before 2020; no header has them any more.
NAMES_OF_OLD = {"nvmlGetBlacklistDeviceCount", "nvmlGetBlacklistDeviceInfoByIndex"}


@pytest.fixture(scope="module", params=["bookworm", "trixie"])
def real(request, tmp_path_factory, build):
    """The folder of sim/nvml/witness.sh for one release of Debian, and a simulated library of the same version."""
    got = subprocess.run(
        [ROOT / "sim/nvml/witness.sh", request.param], check=False, capture_output=True, text=True, timeout=300
    )
    if got.returncode:
        pytest.skip(got.stderr.strip().splitlines()[-1])
    folder = Path(got.stdout.strip())
    version = (folder / "version").read_text().strip()
    outdir = tmp_path_factory.mktemp("nvml")
    done = build(outdir, version)
    assert done.returncode == 0, done.stderr
    return SimpleNamespace(folder=folder, version=version, outdir=outdir)


def error_strings(library):
    """In a process of its own: a library that was loaded stays."""
    code = (
        "import ctypes, json, sys; library = ctypes.CDLL(sys.argv[1])\n"
        "library.nvmlErrorString.restype = ctypes.c_char_p\n"
        "print(json.dumps([library.nvmlErrorString(code).decode() for code in [*range(-1, 60), 998, 999, 1000]]))"
    )
    done = subprocess.run([sys.executable, "-c", code, library], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def functions(library):
    listing = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    return set(re.findall(r" (nvml\w+)", listing))


def test_the_texts_of_errors_are_the_real_librarys(real):
    says = error_strings(real.outdir / "libnvidia-ml.so.1")
    assert says == error_strings(real.folder / "libnvidia-ml.so.1")
    assert says[18 + 1] == "Driver/library version mismatch"


def test_the_functions_are_the_real_librarys(real):
    theirs = functions(real.folder / "libnvidia-ml.so.1")
    assert len(theirs) > 300
    assert functions(real.outdir / "libnvidia-ml.so.1") == theirs - NAMES_OF_OLD


@pytest.fixture
def smi(make_machine, tmp_path, real):
    machine = make_machine(tmp_path, real.outdir, driver=real.version)

    def run(*arguments):
        done = machine.program(real.folder / "nvidia-smi", *arguments)
        return done.returncode, done.stdout + done.stderr

    return machine, run


def test_real_nvidia_smi_reads_what_pynvml_reads(smi, real):
    machine, run = smi
    machine.run(LOCK)
    fields = "index,uuid,name,power.draw,power.limit,utilization.gpu,temperature.gpu,memory.used,clocks.sm"
    with machine.holder("--gpu", 1, "--memory-mib", 20000, "--load", 70) as process:
        code, output = run(f"--query-gpu={fields}", "--format=csv,noheader,nounits")
        ours = machine.run(READ)
        table = run()[1]
        apps = run("--query-compute-apps=gpu_uuid,pid,name,used_memory", "--format=csv,noheader,nounits")
        watched = run("pmon", "-c", "1")
    assert code == 0, output
    rows = [line.split(", ") for line in output.strip().splitlines()]
    keys = ("index", "uuid", "name", "watt", "limit", "use", "celsius", "mib", "sm")
    assert [[str(gpu[key]) for key in keys] for gpu in ours] == [[x.split(".")[0] for x in row] for row in rows]
    assert re.search(rf"Driver Version: {real.version} +CUDA Version: 12[.]", table)
    assert re.search(r"20000MiB / +24564MiB", table)
    assert re.search(rf"\|    1   N/A  N/A +{process.pid}      C   \S.* 20000MiB \|", table), table
    assert apps == (0, f"{ours[1]['uuid']}, {process.pid}, cat, 20000\n")
    # a process's share of the card is not modelled
    lines = [line.split() for line in watched[1].splitlines() if not line.startswith("#")]
    assert watched[0] == 0 and [line[:3] for line in lines] == [["0", "-", "-"], ["1", str(process.pid), "C"]]


def test_real_nvidia_smi_tells_all(smi):
    """`nvidia-smi -q`: what a GeForce card has, N/A for the rest, and nothing out of memory that nobody wrote."""
    machine, run = smi
    machine.ctl("set", "gpu0.display_active", 1)
    machine.ctl("set", "gpu0.display_mib", 512)
    code, output = run("-q")
    assert code == 0
    first, second = (_fields(part) for part in output.split("\nGPU 0000")[1:])
    assert output.count("\n") < 500 and "Function Not Found" not in output and "Process ID" not in output
    assert first["Product Name"] == ["NVIDIA GeForce RTX 4090"] and first["Processes"] == ["None"]
    assert (first["Display Active"], second["Display Active"]) == (["Enabled"], ["Disabled"])
    assert first["Used"][0] == "512 MiB" and second["Used"][0] == "0 MiB"
    # of the card, and of the module and memory, which a GeForce card does not tell
    draws = first.get("Power Draw") or first["Instantaneous Power Draw"]
    assert draws[0] == "20.00 W" and set(draws[1:]) == {"N/A"}
    assert set(first["Default Power Limit"]) == {"450.00 W", "N/A"}
    assert run("topo", "-m")[1].splitlines()[1].split()[:3] == ["GPU0", "X", "PHB"]


def _fields(text):
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(" : ")
        found.setdefault(name.strip(), []).append(value)
    return found


def test_real_nvidia_smi_sets_what_simctl_sees(smi):
    machine, run = smi
    assert run("-pm", "1")[0] == 0
    assert run("-lgc", "0,2107")[0] == 0
    assert run("-pl", "300")[0] == 0
    assert machine.locks() == {0: [0, 2100], 1: [0, 2100]}
    assert [gpu["power_limit_w"] for gpu in machine.state()] == [300, 300]
    assert run("-i", "1", "-rgc")[0] == 0
    assert machine.locks() == {0: [0, 2100], 1: None}
    assert run("-pm", "0")[0] == 0
    assert machine.locks() == {0: None, 1: None}


def test_real_nvidia_smi_exit_codes(smi):
    """As measured with the real binary elsewhere: it hides some failures and tells others."""
    machine, run = smi
    code, output = run("-lgc", "2100,210")
    assert code == 0 and "not supported" in output and "Treating as warning" in output
    code, output = run("-pl", "700")
    assert code == 2 and "between 150.00 W and 600.00 W" in output
    machine.ctl("set", "gpu1.lost", 1)
    assert run()[0] == 15
    machine.ctl("clear")
    for init in (9, 18, 4):
        machine.ctl("error", "nvmlInit*", init)
        assert run()[0] == init
