"""The logic under module_utils/ under its Ansible name, and a box with the simulated NVML for modules and program."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import ansible.module_utils
import pytest

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent
DRIVER = "580.95.05"

ansible.module_utils.__path__.append(str(ROOT / "module_utils"))
sys.path.insert(0, str(HERE))


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory):
    """Directory with the simulated libnvidia-ml.so.1."""
    outdir = tmp_path_factory.mktemp("nvml")
    subprocess.run(
        [ROOT / "sim/nvml/build.sh", outdir, DRIVER], env={**os.environ, "PYTHON": sys.executable}, check=True
    )
    return outdir


class Box:
    """A box with the simulated driver below `path`, for modules and for the program `tandem-gpu-clocks`."""

    def __init__(self, path, library):
        self.root, self.sim, self.lib = path / "root", path / "sim-nvml", path / "lib" / "tandem"
        for directory in ("proc/sys/kernel/random", "proc/driver/nvidia", "run/nvidia-persistenced", "etc"):
            (self.root / directory).mkdir(parents=True)
        self.sim.mkdir()
        self.lib.mkdir(parents=True)
        for source in (ROOT / "module_utils").glob("tandem_gpu_*.py"):
            shutil.copy(source, self.lib)
        self.env = {
            **os.environ,
            "LD_LIBRARY_PATH": str(library),
            "SIM_NVML_DIR": str(self.sim),
            "SIM_NVML_ROOT": str(self.root),
            "SIM_NVML_MACHINE_ID": "0123456789abcdef",
            "TANDEM_GPU_ROOT": str(self.root),
        }
        self.boots = 0
        self.boot()

    def boot(self):
        """What a reboot does: a new boot id, an empty /run, a fresh driver, nvidia-persistenced started."""
        self.boots += 1
        (self.root / "proc/sys/kernel/random/boot_id").write_text(f"0000-boot-{self.boots}\n")
        shutil.rmtree(self.root / "run")
        (self.root / "run/nvidia-persistenced").mkdir(parents=True)
        self.load_module()
        self.start_persistenced()

    def load_module(self):
        """Unload and load the nvidia module: sysfs directories and the driver's state are new."""
        self.unload_module()
        (self.root / "sys/module/nvidia").mkdir(parents=True)
        (self.root / "sys/module/nvidia/version").write_text(DRIVER + "\n")

    def unload_module(self):
        loaded = self.root / "sys/module/nvidia"
        if loaded.exists():
            # Aside, not away: this file system would hand its inode number out again at once, sysfs counts upwards.
            loaded.rename(self.root / f"unloaded-{len(list(self.root.iterdir()))}")
        (self.sim / "state").unlink(missing_ok=True)

    def start_persistenced(self, pid=700):
        """nvidia-persistenced (re)started: the GPUs are initialised anew, persistence mode is on."""
        for old in self.root.glob("proc/[0-9]*"):
            shutil.rmtree(old)
        stat = self.root / f"proc/{pid}/stat"
        stat.parent.mkdir()
        fields = ["S"] + ["0"] * 18 + [str(pid * 10)]
        stat.write_text(f"{pid} (nvidia-persiste) {' '.join(fields)}\n")
        (self.root / "run/nvidia-persistenced/nvidia-persistenced.pid").write_text(f"{pid}\n")
        (self.sim / "state").unlink(missing_ok=True)
        self.python("[n.nvmlDeviceSetPersistenceMode(gpu, 1) for gpu in gpus]")

    def python(self, code):
        """Another program that uses NVML, as `n`, with the handles `gpus`."""
        prelude = (
            "import pynvml as n; n.nvmlInit()\n"
            "gpus=[n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]\n"
        )
        subprocess.run([sys.executable, "-c", prelude + code], env=self.env, check=True)

    def configure(self, text):
        """The simulated NVML's configuration: cards, and faults to inject."""
        (self.sim / "config").write_text(text)

    def state(self):
        """What the simulated driver holds, {"gpu0.gpu_lock_max_mhz": 2100, ...}; -1 is unlocked."""
        pairs = (line.split() for line in (self.sim / "state").read_text().splitlines())
        return {key: int(value) for key, value in pairs}

    def load(self, percent):
        """Put both cards under load."""
        lines = [line for line in (self.sim / "state").read_text().splitlines() if ".load " not in line]
        (self.sim / "state").write_text("\n".join([*lines, f"gpu0.load {percent}", f"gpu1.load {percent}", ""]))

    def setters(self):
        """Names of the setters called since last asked, in order, with their GPU: "0:nvmlDeviceSetGpuLockedClocks"."""
        trace = self.sim / "trace"
        calls = []
        for line in trace.read_text().splitlines() if trace.exists() else []:
            words = line.split()
            if words[2].startswith(("nvmlDeviceSet", "nvmlDeviceReset")):
                calls.append(f"{dict(word.split('=') for word in words[3:] if '=' in word)['gpu']}:{words[2]}")
        trace.unlink(missing_ok=True)
        return calls

    def module(self, name="gpu_clocks", check=False, diff=False, **arguments):
        """Run a module as Ansible does; returns its result."""
        done = subprocess.run(
            [sys.executable, HERE / "run_module.py", name],
            input=json.dumps({**arguments, "_ansible_check_mode": check, "_ansible_diff": diff}),
            env=self.env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stdout.strip().startswith("{"), done.stdout + done.stderr
        result = json.loads(done.stdout)
        result["warnings"] = [warning["event"]["msg"] for warning in result.get("warnings", [])]
        return result

    def program(self, command):
        """Run `tandem-gpu-clocks COMMAND`; returns (exit code, standard output)."""
        path = str(self.lib.parent)
        code = f"import sys; sys.path.insert(0, {path!r})\nfrom tandem.tandem_gpu_program import main\nsys.exit(main())"
        done = subprocess.run(
            [sys.executable, "-c", code, command], env=self.env, capture_output=True, text=True, timeout=60, check=False
        )
        assert not done.stderr, done.stderr
        return done.returncode, done.stdout

    @property
    def record(self):
        return self.root / "run/tandem/gpu-clocks.json"

    @property
    def desired(self):
        return self.root / "etc/tandem/gpu-clocks.json"


@pytest.fixture
def box(tmp_path, nvml_library):
    """A box whose driver is loaded, with nvidia-persistenced running and no lock set."""
    machine = Box(tmp_path, nvml_library)
    machine.setters()
    return machine
