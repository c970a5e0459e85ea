"""Programs that know nothing of the simulation say the same of the cards as pynvml does."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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


# ---- Debian's own nvidia-smi ----

VERSION = "535.261.03"
PACKAGE = f"nvidia-smi_{VERSION}-1_amd64.deb"


def fetch(cache, work):
    """Put Debian's package into the cache; returns why it could not. apt checks its signature, in lists of its own."""
    keyring = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    if not shutil.which("apt-get") or not keyring.exists():
        return "no apt-get with Debian's keyring"
    for folder in ("lists/partial", "archives/partial"):
        (work / folder).mkdir(parents=True)
    (work / "sources.list").write_text(f"deb [signed-by={keyring}] http://deb.debian.org/debian bookworm non-free\n")
    settings = {
        "Dir::Etc::sourcelist": work / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": work / "lists",
        "Dir::Cache": work,
        "Debug::NoLocking": 1,
        "APT::Sandbox::User": "root",
        "Acquire::http::Timeout": 10,
        "Acquire::Retries": 0,
    }
    apt = ["apt-get", "-q", *(f"-o{key}={value}" for key, value in settings.items())]
    for command in (["update"], ["download", f"nvidia-smi={VERSION}-1"]):
        try:
            done = subprocess.run([*apt, *command], cwd=work, check=False, capture_output=True, text=True, timeout=120)
        except subprocess.TimeoutExpired:
            return f"apt-get {command[0]} took more than 120 s"
        if done.returncode != 0:
            return (done.stderr.strip().splitlines() or ["?"])[-1]
    shutil.copy(work / PACKAGE, cache / f".{PACKAGE}")
    os.replace(cache / f".{PACKAGE}", cache / PACKAGE)
    return None


@pytest.fixture(scope="module")
def nvidia_smi(tmp_path_factory):
    """Path of Debian's nvidia-smi 535; kept in the cache, so that only the first run needs the network."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tandem"
    cache = Path(os.environ.get("TANDEM_CACHE") or default) / "nvidia-smi"
    cache.mkdir(parents=True, exist_ok=True)
    if not shutil.which("dpkg-deb"):
        pytest.skip("no dpkg-deb to unpack Debian's nvidia-smi with")
    if not (cache / PACKAGE).exists() and (reason := fetch(cache, tmp_path_factory.mktemp("apt"))):
        pytest.skip(f"Debian's nvidia-smi {VERSION} (bookworm non-free) cannot be had: {reason}")
    tree = tmp_path_factory.mktemp("nvidia-smi")
    subprocess.run(["dpkg-deb", "-x", cache / PACKAGE, tree], check=True)
    return tree / "usr/lib/nvidia/current/nvidia-smi"


@pytest.fixture(scope="module")
def library_535(tmp_path_factory, build):
    outdir = tmp_path_factory.mktemp("nvml535")
    done = build(outdir, VERSION)
    assert done.returncode == 0, done.stderr
    return outdir


@pytest.fixture
def smi(make_machine, tmp_path, nvidia_smi, library_535):
    machine = make_machine(tmp_path, library_535, driver=VERSION)

    def run(*arguments):
        done = machine.program(nvidia_smi, *arguments)
        return done.returncode, done.stdout + done.stderr

    return machine, run


def test_real_nvidia_smi_reads_what_pynvml_reads(smi):
    """All but processes: it takes those from a function of the internal table that nobody has documented."""
    machine, run = smi
    machine.run(LOCK)
    fields = "index,uuid,name,power.draw,power.limit,utilization.gpu,temperature.gpu,memory.used,clocks.sm"
    with machine.holder("--gpu", 1, "--memory-mib", 20000, "--load", 70):
        code, output = run(f"--query-gpu={fields}", "--format=csv,noheader,nounits")
        ours = machine.run(READ)
        table = run()[1]
    assert code == 0, output
    rows = [line.split(", ") for line in output.strip().splitlines()]
    keys = ("index", "uuid", "name", "watt", "limit", "use", "celsius", "mib", "sm")
    assert [[str(gpu[key]) for key in keys] for gpu in ours] == [[x.split(".")[0] for x in row] for row in rows]
    assert "Driver Version: 535.261.03   CUDA Version: 12.2" in table and "20000MiB / 24564MiB" in table


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
