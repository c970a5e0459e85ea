"""What these tests share: a build of the repositories, and a box that the packages were unpacked for."""

import os
import subprocess
import sys
from pathlib import Path

BUILD = Path(__file__).parents[3] / "sim/packages/build.sh"
OLDER_DRIVER, DRIVER, NEWER_DRIVER = "590.48.01", "595.71.05", "595.91.07"


class Build:
    """One build of the repositories: `root` is what a server serves."""

    cuda = "cuda/debian13/x86_64"
    toolkit = "libnvidia-container/stable/deb/amd64"
    key = "cuda/debian13/x86_64/8793F200.pub"

    def __init__(self, root, cache):
        self.root, self.cache = root, cache

    def run(self, *options):
        """Runs build.sh; returns what it printed."""
        environment = os.environ | {"TANDEM_CACHE": str(self.cache), "PYTHON": sys.executable}
        done = subprocess.run(
            [BUILD, self.root, *options], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def debs(self, repository):
        return sorted((self.root / repository).glob("*.deb"))

    def deb(self, repository, name):
        found = list((self.root / repository).glob(f"{name}_{DRIVER if repository == self.cuda else ''}*.deb"))
        assert len(found) == 1, f"{name} in {repository}: {found}"
        return found[0]


def fields(deb):
    """Control fields of a package, as a dict of one-line texts."""
    text = subprocess.run(["dpkg-deb", "-f", deb], capture_output=True, text=True, check=True).stdout
    return dict(line.split(": ", 1) for line in text.splitlines() if not line.startswith(" "))


class Box:
    """A machine's root as the unpacked programs see it: the library, a loaded module or none, the cards' state."""

    def __init__(self, installed, root):
        self.installed, self.root = installed, root
        self.environment = os.environ | {
            "LD_LIBRARY_PATH": str(installed / "usr/lib/x86_64-linux-gnu"),
            "SIM_NVML_ROOT": str(root),
            "SIM_NVML_DIR": str(root / "run/sim-nvml"),
            "SIM_NVML_MACHINE_ID": "00112233445566778899aabbccddeeff",
        }
        (root / "run/sim-nvml").mkdir(parents=True)

    def load(self, version):
        module = self.root / "sys/module/nvidia"
        module.mkdir(parents=True, exist_ok=True)
        (module / "version").write_text(version + "\n")
        (module / "initstate").write_text("live\n")

    def run(self, program, *arguments, **environment):
        """Runs one of the unpacked programs, named by its path on the box."""
        return subprocess.run(
            [self.installed / program.lstrip("/"), *arguments],
            env=self.environment | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )

    def ctk(self, *arguments, **environment):
        return self.run("/usr/bin/nvidia-ctk", *arguments, **environment)

    def smi(self, *arguments, **environment):
        return self.run("/usr/bin/nvidia-smi", *arguments, **environment)
