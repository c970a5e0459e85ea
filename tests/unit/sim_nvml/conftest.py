"""The simulated NVML, built once per run, and a driver of its own for each test."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from contextlib import contextmanager
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "sim" / "nvml"
DRIVER = "580.95.05"

# The library looks at the effective user; a user namespace makes an ordinary user root for it.
AS_ROOT = [] if os.geteuid() == 0 else ["unshare", "--map-root-user"]

PRELUDE = """
import json, os, signal, sys, time
import pynvml as n
def code(function, *arguments):
    '''The return code of a call: 0 or the error's value.'''
    try:
        function(*arguments)
    except n.NVMLError as error:
        return error.value
    return 0
def gpus():
    return [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]
def say(value):
    print(json.dumps(value), flush=True)
"""


def run_build(outdir, driver=DRIVER, *options, **environment):
    """Run build.sh; returns the completed process."""
    return subprocess.run(
        [SOURCE / "build.sh", outdir, driver, *options],
        env={**os.environ, "PYTHON": sys.executable, **environment},
        check=False,
        capture_output=True,
        text=True,
    )


class Machine:
    """A machine with a simulated driver: its directory, its module, and programs run on it."""

    def __init__(self, path, library, driver=DRIVER):
        self.dir, self.root = path / "sim-nvml", path / "root"
        self.env = {
            **os.environ,
            "LD_LIBRARY_PATH": str(library),
            "SIM_NVML_DIR": str(self.dir),
            "SIM_NVML_ROOT": str(self.root),
            "SIM_NVML_MACHINE_ID": "0123456789abcdef",
        }
        if driver:
            self.load(driver)

    def load(self, driver):
        module = self.root / "sys/module/nvidia"
        module.mkdir(parents=True)
        (module / "version").write_text(driver + "\n")

    def start(self, code, within=(), **options):
        """Start pynvml code that is to print one JSON value; `within` is a command to start it by."""
        return subprocess.Popen(
            [*AS_ROOT, *within, sys.executable, "-c", PRELUDE + textwrap.dedent(code)],
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            **options,
        )

    def run(self, code, within=()):
        """What pynvml code, between nvmlInit and nvmlShutdown, says."""
        process = self.start(f"n.nvmlInit()\n{textwrap.dedent(code)}\nn.nvmlShutdown()", within)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, output
        return json.loads(output)

    def raw(self, code):
        """The same without nvmlInit and nvmlShutdown around it."""
        process = self.start(code)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, output
        return json.loads(output)

    def ctl(self, *arguments, fails=False):
        """Output of simctl; with `fails` its error output, and it has to fail."""
        done = self.program(sys.executable, SOURCE / "simctl", *map(str, arguments))
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stderr if fails else done.stdout

    def program(self, *command):
        command = [*AS_ROOT, *command]
        return subprocess.run(command, env=self.env, check=False, capture_output=True, text=True, timeout=60)

    def state(self):
        return json.loads(self.ctl("state", "--json"))["gpus"]

    def locks(self):
        """{gpu: [min, max] or None}"""
        return {int(gpu): lock for gpu, lock in json.loads(self.ctl("locks", "--json")).items()}

    @contextmanager
    def client(self):
        """Another process that has NVML initialised; yields it."""
        process = self.start("n.nvmlInit(); say('ready'); sys.stdin.read(); n.nvmlShutdown()")
        assert json.loads(process.stdout.readline()) == "ready"
        try:
            yield process
        finally:
            process.communicate(timeout=30)

    @contextmanager
    def holder(self, *options, within=()):
        """A process that computes on the cards (simctl hold); yields it."""
        hold = [sys.executable, SOURCE / "simctl", "hold", *map(str, options), "--", "sh", "-c", "echo ready; exec cat"]
        process = subprocess.Popen(
            [*AS_ROOT, *within, *hold], env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.communicate(timeout=30)


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    if not shutil.which(os.environ.get("CC", "cc")):
        pytest.skip("no C compiler: the simulated NVML cannot be built")
    outdir = tmp_path_factory.mktemp("nvml")
    done = run_build(outdir)
    assert done.returncode == 0, done.stderr
    return outdir


@pytest.fixture(name="build", scope="session")
def build_fixture():
    return run_build


@pytest.fixture
def machine(tmp_path, library):
    return Machine(tmp_path, library)


@pytest.fixture
def make_machine(tmp_path):
    """Machine(path, library, driver) for tests that need another library or several machines."""
    return Machine
