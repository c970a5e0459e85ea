"""The drop-in for nvidia-persistenced.service on Debian's own packages: its unit, its binary, systemd's own verdict.

The packages are unpacked, never installed. They are kept in the cache, so that only the first run needs the network.
"""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from host_fixtures import host_info
from nvidia_driver import persistenced_drop_in

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
VERSIONS = {"bookworm": "535.171.04-1~deb12u1", "trixie": "550.163.01-1"}


def fetch(suite, version, cache, work):
    """Puts Debian's package into the cache, checked by apt in lists of its own; why it could not, or None."""
    if not shutil.which("apt-get") or not KEYRING.exists():
        return "no apt-get with Debian's keyring"
    for folder in ("lists/partial", "archives/partial"):
        (work / folder).mkdir(parents=True)
    (work / "sources.list").write_text(f"deb [signed-by={KEYRING}] http://deb.debian.org/debian {suite} contrib\n")
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
    for command in (["update"], ["download", f"nvidia-persistenced={version}"]):
        done = subprocess.run([*apt, *command], cwd=work, check=False, capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            return (done.stderr.strip().splitlines() or ["?"])[-1]
    (package,) = work.glob("*.deb")
    shutil.copy(package, cache / f".{suite}.deb")
    os.replace(cache / f".{suite}.deb", cache / f"{suite}-{version}.deb")
    return None


@pytest.fixture(scope="module", params=VERSIONS)
def unpacked(request, tmp_path_factory):
    """Debian's nvidia-persistenced, unpacked: its folder. The maintainer scripts are in DEBIAN."""
    suite, version = request.param, VERSIONS[request.param]
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tandem"
    cache = Path(os.environ.get("TANDEM_CACHE") or default) / "nvidia-persistenced"
    cache.mkdir(parents=True, exist_ok=True)
    if not shutil.which("dpkg-deb"):
        pytest.skip("no dpkg-deb to unpack Debian's nvidia-persistenced with")
    package = cache / f"{suite}-{version}.deb"
    if not package.exists() and (reason := fetch(suite, version, cache, tmp_path_factory.mktemp("apt"))):
        pytest.skip(f"Debian's nvidia-persistenced {version} ({suite} contrib) cannot be had: {reason}")
    tree = tmp_path_factory.mktemp(suite)
    subprocess.run(["dpkg-deb", "-R", package, tree], check=True)
    return tree


@pytest.fixture
def drop_in(unpacked, monkeypatch):
    monkeypatch.setattr(host_info, "ROOT", str(unpacked))
    return persistenced_drop_in(host_info.persistenced())


def test_the_daemon_runs_as_the_user_that_the_package_makes(unpacked, drop_in):
    made = re.search(r"getent passwd (\S+) ", (unpacked / "DEBIAN/postinst").read_text()).group(1)
    (command,) = re.findall(r"^ExecStart=(.+)$", drop_in, re.MULTILINE)
    assert shlex.split(command) == ["/usr/bin/nvidia-persistenced", "--user", made, "--persistence-mode"]
    assert made == "nvpd"


def test_the_real_daemon_takes_the_command_and_refuses_a_user_that_is_not_there(unpacked, drop_in):
    """What it did with --user nvidia-persistenced, which is Ubuntu's and was in the drop-in before."""
    (command,) = re.findall(r"^ExecStart=(.+)$", drop_in, re.MULTILINE)
    _, *arguments = shlex.split(command.replace("nvpd", "nobody-is-called-so"))
    daemon = unpacked / "usr/bin/nvidia-persistenced"
    done = subprocess.run([daemon, *arguments], capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == 1
    assert "Failed to find user ID of user 'nobody-is-called-so'" in done.stdout + done.stderr
    usage = subprocess.run([daemon, "--help"], capture_output=True, text=True, check=True).stdout
    assert "--persistence-mode, --no-persistence-mode" in usage


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze")
def test_systemd_takes_the_drop_in(unpacked, drop_in, tmp_path):
    root = tmp_path / "root"
    (root / "usr/bin").mkdir(parents=True)
    shutil.copy(unpacked / "usr/bin/nvidia-persistenced", root / "usr/bin")
    shutil.copytree("/usr/lib/systemd/system", root / "usr/lib/systemd/system", symlinks=True)
    (root / "bin").symlink_to("usr/bin")
    shutil.copy("/bin/rm", root / "usr/bin/rm")
    unit = next(unpacked.glob("**/nvidia-persistenced.service"))
    shutil.copy(unit, root / "usr/lib/systemd/system")
    folder = root / "etc/systemd/system/nvidia-persistenced.service.d"
    folder.mkdir(parents=True)

    def verdict(text):
        (folder / "tandem.conf").write_text(text)
        done = subprocess.run(
            ["systemd-analyze", f"--root={root}", "verify", "nvidia-persistenced.service"],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, [line for line in done.stderr.splitlines() if "persistenced" in line]

    assert verdict(drop_in) == (0, [])
    # and it would have seen a fault
    assert verdict(drop_in.replace("/usr/bin/nvidia", "/usr/bin/no-nvidia"))[0] != 0
    assert verdict(drop_in.replace("StopWhenUnneeded=no", "StopWhenUnneeded=perhaps"))[1] != []
