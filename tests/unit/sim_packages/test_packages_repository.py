"""What the vendor's repositories offer, and that apt takes it only with the published key."""

import gzip
import hashlib
import re
import subprocess
from pathlib import Path

import pytest
from packages_under_test import DRIVER, NEWER_DRIVER, OLDER_DRIVER, fields

PACKAGES = Path(__file__).parents[3] / "sim/packages"
DRIVER_PACKAGES = [
    "libnvidia-ml1",
    "nvidia-driver-cuda",
    "nvidia-kernel-open-dkms",
    "nvidia-persistenced",
]
TOOLKIT_PACKAGES = [
    "libnvidia-container-tools",
    "libnvidia-container1",
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
]


def versions(build, repository):
    found = {}
    for deb in build.debs(repository):
        control = fields(deb)
        found.setdefault(control["Package"], set()).add(control["Version"])
    return found


def published(*drivers):
    """Versions by package: what has the driver's, and of each branch the pin."""
    found = {name: {f"{driver}-1" for driver in drivers} for name in DRIVER_PACKAGES}
    for driver in drivers:
        found.setdefault(f"nvidia-driver-pinning-{driver.split('.')[0]}", set()).add(f"{driver}-1")
    return found


def test_each_release_of_debian_has_the_branches_that_its_real_repository_has(build):
    """NVIDIA's for Debian 13 begins with 590 (NVIDIA/cuda-repo-management#38)."""
    assert versions(build, build.cuda) == published(OLDER_DRIVER, DRIVER)
    assert versions(build, "cuda/debian12/x86_64") == published("580.95.05")
    assert versions(build, build.toolkit) == {name: {"1.18.0-1"} for name in TOOLKIT_PACKAGES}


def test_newer_is_published_beside_the_default(newer):
    assert versions(newer, newer.cuda) == published(OLDER_DRIVER, DRIVER, NEWER_DRIVER)
    assert versions(newer, "cuda/debian12/x86_64") == published("580.95.05", "580.126.09")
    assert versions(newer, newer.toolkit) == {name: {"1.18.0-1", "1.18.1-1", "1.20.0-1"} for name in TOOLKIT_PACKAGES}


KEYS = {
    "cuda/debian13/x86_64": "cuda/debian13/x86_64/8793F200.pub",
    "cuda/debian12/x86_64": "cuda/debian12/x86_64/3bf863cc.pub",
    "libnvidia-container/stable/deb/amd64": "libnvidia-container/gpgkey",
}


def fingerprint(path):
    return (
        subprocess.run(["gpg", "--with-colons", "--show-keys", path], capture_output=True, text=True, check=True)
        .stdout.split("fpr:::::::::")[1]
        .split(":")[0]
    )


def test_each_repository_has_a_key_of_its_own_under_the_real_name(build):
    found = {name: fingerprint(build.root / path) for name, path in KEYS.items()}
    assert len(set(found.values())) == 3
    assert not (build.root / "cuda/debian12/x86_64/8793F200.pub").exists()
    for name, file in zip(KEYS, ("cuda-debian13", "cuda-debian12", "libnvidia-container"), strict=True):
        assert (build.cache / f"packages/keys/{file}.fingerprint").read_text() == found[name] + "\n"


@pytest.mark.parametrize("repository", ["cuda/debian13/x86_64", "libnvidia-container/stable/deb/amd64"])
def test_every_package_says_that_it_is_simulated(build, repository):
    for deb in build.debs(repository):
        assert fields(deb)["Description"].endswith("(simulated stand-in)"), deb.name


def test_driver_depends_on_its_parts_at_its_own_version(build):
    depends = fields(build.deb(build.cuda, "nvidia-driver-cuda"))["Depends"].split(", ")
    assert {
        f"libnvidia-ml1 (= {DRIVER}-1)",
        f"nvidia-kernel-open-dkms (= {DRIVER}-1)",
        f"nvidia-persistenced (= {DRIVER}-1)",
    } <= set(depends)
    assert f"libnvidia-ml1 (= {DRIVER}-1)" in fields(build.deb(build.cuda, "nvidia-persistenced"))["Depends"]


def test_toolkit_depends_as_the_real_one_does(build):
    depends = fields(build.deb(build.toolkit, "nvidia-container-toolkit"))["Depends"]
    assert depends.split(", ") == [
        "nvidia-container-toolkit-base (= 1.18.0-1)",
        "libnvidia-container-tools (= 1.18.0-1)",
        "libnvidia-container-tools (<< 2.0.0)",
    ]


# By what modules.dep calls the driver's module, whether the real units refresh: seen with NVIDIA's of these versions.
REFRESHES = {
    "1.18.0": {"nvidia.ko": True, "nvidia.ko.xz": True, "nvidia.ko.zst": True, "nvidia-current.ko": False},
    "1.18.1": {"nvidia.ko": True, "nvidia.ko.xz": False, "nvidia.ko.zst": False, "nvidia-current.ko": True},
    "1.20.0": {"nvidia.ko": True, "nvidia.ko.xz": True, "nvidia.ko.zst": True, "nvidia-current.ko": True},
}


@pytest.mark.parametrize("version", REFRESHES)
def test_the_refresh_finds_the_modules_that_the_real_one_finds(newer, version, tmp_path):
    (deb,) = newer.root.glob(f"{newer.toolkit}/nvidia-container-toolkit-base_{version}-1_*.deb")
    subprocess.run(["dpkg-deb", "-x", deb, tmp_path], check=True)
    (unit,) = tmp_path.rglob("nvidia-cdi-refresh.service")
    assert ("usr/lib" in str(unit)) is (version == "1.20.0")
    condition = re.search("^ExecCondition=(.*)$", unit.read_text(), re.MULTILINE)[1]
    dep = tmp_path / "modules.dep"
    for module, found in REFRESHES[version].items():
        dep.write_text(f"updates/dkms/{module}:\nkernel/drivers/video/nvidia-other.ko.xz:\n")
        command = condition.replace("/lib/modules/%v/modules.dep", str(dep))
        assert (subprocess.run(["sh", "-c", command], check=False).returncode == 0) is found, module


@pytest.mark.parametrize(("release", "ending"), [("12", ".ko"), ("13", ".ko.xz")])
def test_modules_are_compressed_where_the_distributions_own_are(tmp_path, release, ending):
    (tmp_path / "os-release").write_text(f'ID=debian\nVERSION_ID="{release}"\n')
    script = (PACKAGES / "cuda/nvidia-kernel-open-dkms/postinst").read_text()
    script = script.replace("/etc/os-release", str(tmp_path / "os-release")).replace("/lib/modules", str(tmp_path))
    subprocess.run(["sh", "-c", script, "postinst", "configure"], check=True, capture_output=True)
    (dep,) = tmp_path.rglob("modules.dep")
    listed = sorted(line.rpartition("/")[2] for line in dep.read_text().split(":\n") if line)
    assert listed == [f"{name}{ending}" for name in ("nvidia-drm", "nvidia-modeset", "nvidia-uvm", "nvidia")]


def test_the_daemons_user_is_the_one_that_debians_package_makes():
    folder = PACKAGES / "cuda/nvidia-persistenced"
    command = re.search("^ExecStart=(.*)$", (folder / "nvidia-persistenced.service").read_text(), re.MULTILINE)[1]
    assert command == "/usr/bin/nvidia-persistenced --user nvpd"
    assert (folder / "postinst").read_text().split("useradd ")[1].splitlines()[0].endswith(" nvpd")


def test_nothing_is_left_to_fill_in(installed, build, tmp_path):
    for path in installed.rglob("*"):
        if path.is_file() and not path.name.startswith("libnvidia-ml.so"):
            text = path.read_text()
            assert not re.search(r"@[A-Z]+@|^from nvml import", text, re.MULTILINE), path
    for repository in build.cuda, build.toolkit:
        for deb in build.debs(repository):
            control = tmp_path / deb.stem
            subprocess.run(["dpkg-deb", "-e", deb, control], check=True)
            for script in control.iterdir():
                assert not re.search(r"@[A-Z]+@", script.read_text()), script
                if script.name in ("postinst", "prerm", "postrm"):
                    subprocess.run(["sh", "-n", script], check=True)


def test_configuration_files_are_declared(build, tmp_path):
    subprocess.run(["dpkg-deb", "-e", build.deb(build.cuda, "nvidia-driver-pinning-595"), tmp_path], check=True)
    assert (tmp_path / "conffiles").read_text().split() == ["/etc/apt/preferences.d/nvidia-driver-pinning-595"]


def test_library_has_the_driver_version_in_its_name(installed):
    library = installed / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
    assert library.is_symlink() and library.resolve().name == f"libnvidia-ml.so.{DRIVER}"


def gpgv(build, keyring, *files):
    return subprocess.run(["gpgv", "--keyring", keyring, *files], capture_output=True, text=True, check=False)


@pytest.fixture
def keyring(build, tmp_path):
    """A function that gives the published key of a repository as gpgv takes it."""

    def of(repository):
        path = tmp_path / f"{repository.replace('/', '-')}.gpg"
        subprocess.run(
            ["gpg", "--homedir", tmp_path, "--batch", "--dearmor", "-o", path, build.root / KEYS[repository]],
            check=True,
            capture_output=True,
        )
        return path

    return of


@pytest.mark.parametrize("repository", KEYS)
def test_signatures_verify_with_the_published_key_and_with_no_other(build, keyring, repository):
    directory, rings = build.root / repository, {name: keyring(name) for name in KEYS}
    for files in ["InRelease"], ["Release.gpg", "Release"]:
        for name in KEYS:
            done = gpgv(build, rings[name], *[directory / file for file in files])
            assert (done.returncode == 0) is (name == repository), done.stderr


def test_changed_index_does_not_verify(build, keyring, tmp_path):
    directory = build.root / build.cuda
    changed = tmp_path / "Release"
    changed.write_text((directory / "Release").read_text().replace("NVIDIA CUDA", "somebody"))
    assert gpgv(build, keyring(build.cuda), directory / "Release.gpg", changed).returncode != 0


def test_index_names_the_files_as_they_are(build):
    for repository in build.cuda, build.toolkit:
        directory = build.root / repository
        packages = directory / "Packages"
        assert gzip.decompress((directory / "Packages.gz").read_bytes()) == packages.read_bytes()
        assert hashlib.sha256(packages.read_bytes()).hexdigest() in (directory / "Release").read_text()
        listed = dict(
            re.findall(r"^Filename: (\S+)$.*?^SHA256: (\S+)$", packages.read_text(), re.MULTILINE | re.DOTALL)
        )
        assert {name.removeprefix("./") for name in listed} == {deb.name for deb in build.debs(repository)}
        for name, digest in listed.items():
            assert hashlib.sha256((directory / name).read_bytes()).hexdigest() == digest


# apt itself, with a root of its own in which the distribution's packages count as installed

STATUS = "".join(
    f"Package: {name}\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1\nMaintainer: t\nDescription: t\n\n"
    for name in ("libc6", "python3", "passwd", "init-system-helpers")
)


class Apt:
    def __init__(self, root, sources):
        for directory in (
            "etc/apt/preferences.d",
            "etc/apt/apt.conf.d",
            "var/lib/apt/lists/partial",
            "var/cache/apt/archives/partial",
            "var/lib/dpkg",
        ):
            (root / directory).mkdir(parents=True)
        (root / "var/lib/dpkg/status").write_text(STATUS)
        (root / "etc/apt/sources.list").touch()
        (root / "etc/apt/vendor.sources").write_text(sources)
        self.root = root

    def run(self, command, *arguments):
        options = [
            f"Dir={self.root}",
            f"Dir::State::status={self.root}/var/lib/dpkg/status",
            "Dir::Etc::sourceparts=none",
            f"Dir::Etc::sourcelist={self.root}/etc/apt/vendor.sources",
            "APT::Sandbox::User=root",
            "APT::Architecture=amd64",
        ]
        return subprocess.run(
            [command, *[part for option in options for part in ("-o", option)], *arguments],
            capture_output=True,
            text=True,
            check=False,
        )

    def candidate(self, package):
        return re.search(r"Candidate: (\S+)", self.run("apt-cache", "policy", package).stdout).group(1)


def source(directory, signed_by):
    return f"Types: deb\nURIs: file:{directory}/\nSuites: /\nSigned-By: {signed_by}\n\n"


def test_apt_installs_with_the_published_key(build, tmp_path):
    key = build.root / build.key
    apt = Apt(
        tmp_path,
        source(build.root / build.cuda, key)
        + source(build.root / build.toolkit, build.root / "libnvidia-container/gpgkey"),
    )
    done = apt.run("apt-get", "update", "-o", "APT::Update::Error-Mode=any")
    assert done.returncode == 0, done.stderr
    done = apt.run("apt-get", "--simulate", "install", "nvidia-driver-cuda", "nvidia-container-toolkit")
    assert set(re.findall(r"^Inst (\S+)", done.stdout, re.MULTILINE)) == set(DRIVER_PACKAGES + TOOLKIT_PACKAGES) - {
        "nvidia-driver-pinning-595"
    }


def test_apt_refuses_another_key(build, tmp_path):
    other = tmp_path / "other.asc"
    home = tmp_path / "gnupg"
    home.mkdir(mode=0o700)
    for arguments in (
        ["--passphrase", "", "--quick-generate-key", "another", "ed25519", "sign"],
        ["--armor", "-o", other, "--export"],
    ):
        subprocess.run(["gpg", "--homedir", home, "--batch", *arguments], check=True, capture_output=True)
    subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=True)
    apt = Apt(tmp_path / "apt", source(build.root / build.cuda, other))
    done = apt.run("apt-get", "update", "-o", "APT::Update::Error-Mode=any")
    assert done.returncode != 0 and "NO_PUBKEY" in done.stderr + done.stdout


def test_old_driver_installs_beside_the_newer_one_by_version(newer, tmp_path):
    apt = Apt(tmp_path, source(newer.root / newer.cuda, newer.root / newer.key))
    assert apt.run("apt-get", "update").returncode == 0
    assert apt.candidate("nvidia-driver-cuda") == f"{NEWER_DRIVER}-1"
    wanted = [f"{name}={DRIVER}-1" for name in DRIVER_PACKAGES]
    done = apt.run("apt-get", "--simulate", "install", *wanted)
    assert done.returncode == 0, done.stderr
    assert NEWER_DRIVER not in done.stdout


def test_pin_keeps_the_branch(build, installed, tmp_path):
    branch610 = tmp_path / "branch610"
    control = branch610 / "root/DEBIAN/control"
    control.parent.mkdir(parents=True)
    control.write_text(
        "Package: nvidia-driver-cuda\nVersion: 610.12-1\nArchitecture: amd64\nMaintainer: t\nDescription: t\n"
    )
    subprocess.run(
        ["dpkg-deb", "--build", "--root-owner-group", branch610 / "root", branch610], check=True, capture_output=True
    )
    with open(branch610 / "Packages", "w") as packages:
        subprocess.run(["apt-ftparchive", "packages", "."], cwd=branch610, stdout=packages, check=True)
    trusted = f"Types: deb\nURIs: file:{branch610}/\nSuites: /\nTrusted: yes\n"
    apt = Apt(tmp_path / "apt", source(build.root / build.cuda, build.root / build.key) + trusted)
    assert apt.run("apt-get", "update").returncode == 0
    assert apt.candidate("nvidia-driver-cuda") == "610.12-1"
    pin = installed / "etc/apt/preferences.d/nvidia-driver-pinning-595"
    (apt.root / "etc/apt/preferences.d/nvidia-driver-pinning-595").write_text(pin.read_text())
    assert apt.candidate("nvidia-driver-cuda") == f"{DRIVER}-1"
