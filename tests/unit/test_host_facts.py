"""A fixture is what the module host_info can say: its RETURN is held against its output, a fixture against both.

The output comes from the module's own functions on a made-up box: files below a folder, a dpkg status that the real
dpkg-query reads, and stand-ins for the programs that a test's machine may lack.
"""

import os
import platform

import pytest
from host_fixtures import FACTS, FOLDER, differences, host, host_info

FILES = {
    "/etc/os-release": 'ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04.3 LTS"\n',
    "/proc/meminfo": "MemTotal: 65536000 kB\n",
    "/sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n",
    "/sys/bus/pci/devices/0000:01:00.0/class": "0x030000\n",
    "/sys/bus/pci/devices/0000:01:00.0/device": "0x2684\n",
    "/sys/bus/pci/devices/0000:41:00.0/vendor": "0x10de\n",
    "/sys/bus/pci/devices/0000:41:00.0/class": "0x030000\n",
    "/sys/bus/pci/devices/0000:41:00.0/device": "0x2684\n",
    "/sys/bus/pci/drivers/nvidia/module": "",
    "/sys/firmware/efi/efivars/SecureBoot-8be4df61": "\x06\x01",
    "/sys/module/nvidia/version": "580.95.05\n",
    "/lib/modules/6.8.0-60-generic/updates/dkms/nvidia.ko.zst": "",
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05": "",
    "/usr/bin/nvidia-uninstall": "",
    "/usr/lib/systemd/system/nvidia-persistenced.service": "[Service]\nExecStart=/usr/bin/nvidia-persistenced\n",
    "/boot/initrd.img-6.8.0-60-generic": "",
    "/etc/apt/sources.list": "deb http://archive.ubuntu.com/ubuntu noble main\n",
    "/etc/docker/daemon.json": "{}",
    "/run/docker.pid": "1",
    "/opt/docker-desktop/x": "",
}
PACKAGES = {
    "linux-image-generic": ("hold", "6.8.0-60.63"),
    "linux-image-6.8.0-60-generic": ("install", "6.8.0-60.63"),
    "libnvidia-compute-580-server": ("hold", "580.95.05-0ubuntu0.24.04.3"),
    "nvidia-container-toolkit": ("install", "1.18.0-1"),
    "docker.io": ("install", "28.2.2-0ubuntu1"),
}
PROGRAMS = {
    "stat": "echo ext2/ext3",
    "modinfo": "echo 580.95.05",
    "timedatectl": "echo yes",
    "systemctl": "echo active",
    "update-initramfs": "",
    "dockerd": "echo 'unable to configure' >&2; exit 1",
    "apt-cache": 'for name in "$@"; do [ $name = madison ] || echo "$name | 1 | http://x"; done',
    "docker": """case "$*" in
      info*) echo '{"ServerVersion": "28.2.2", "LiveRestoreEnabled": true, "LoggingDriver": "json-file", "CDISpecDirs": ["/x"],
        "SecurityOptions": ["name=seccomp,profile=builtin", "name=cgroupns"], "Swarm": {"LocalNodeState": "active"},
        "DockerRootDir": "/srv/docker"}';;
      ps*) echo vllm-main;;
      image*) echo sha256:0;;
      "container inspect vllm-main") echo '[{"State": {"Running": true}, "Config": {"Labels": {"tandem.config": "x"}}}]';;
      *) exit 1;;
    esac""",  # noqa: E501
}
ASKED = {
    "packages": ["docker.io", "docker-ce"],
    "paths": ["/", "/nowhere"],
    "files": ["/etc/hostname", "/nowhere"],
    "containers": ["vllm-main", "vllm-other"],
    "images": ["vllm/vllm-openai"],
    "urls": ["http://nowhere.invalid/", "http://there.invalid/"],
    "url_timeout": 1,
}


@pytest.fixture
def furnished(tmp_path, monkeypatch):
    """The facts of a box that has something of everything."""
    root, programs = tmp_path / "root", tmp_path / "programs"
    for name, text in FILES.items():
        (root / name[1:]).parent.mkdir(parents=True, exist_ok=True)
        (root / name[1:]).write_text(text)
    (root / "sys/bus/pci/devices/0000:01:00.0/driver").symlink_to(root / "sys/bus/pci/drivers/nvidia")
    (root / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580.95.05")
    dpkg = tmp_path / "dpkg"
    (dpkg / "info").mkdir(parents=True)
    (dpkg / "info/libnvidia-compute-580-server.list").write_text(
        "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05\n"
    )
    (dpkg / "status").write_text(
        "".join(
            f"Package: {name}\nStatus: {selection} ok installed\nArchitecture: amd64\nVersion: {version}\n"
            "Maintainer: t\nDescription: t\n\n"
            for name, (selection, version) in PACKAGES.items()
        )
    )
    programs.mkdir()
    for name, text in PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    helper = programs / "apt-helper"
    refusal = "E: Failed to fetch http://nowhere.invalid/  Could not resolve"
    helper.write_text(f'#!/bin/sh\ncase "$*" in *nowhere*) echo "{refusal}" >&2; exit 100;; esac\n')
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("DPKG_ADMINDIR", str(dpkg))
    monkeypatch.setattr(host_info, "ROOT", str(root))
    monkeypatch.setattr(host_info, "APT_HELPER", str(helper))
    return host_info.collect(ASKED)


def empty(value, where):
    """Facts and parts of them in `value` that show nothing of their shape."""
    if value in ([], {}, None):
        return [where]
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, item in inner for found in empty(item, f"{where}.{key}")]


def test_the_module_returns_what_it_documents_and_nothing_else(furnished):
    assert differences(furnished, FACTS, "host_info") == []


def test_the_made_up_box_has_something_of_everything(furnished):
    """Else a list where a dict is documented would pass for being empty."""
    nothing = {
        "host_info.gpus_on_pci.1.driver",
        "host_info.packages.docker-ce.version",
        "host_info.paths./nowhere.modified",
        "host_info.paths./nowhere.names",
        # Docker's own folder of images
        "host_info.paths./srv/docker.modified",
        "host_info.paths./srv/docker.names",
        "host_info.files./nowhere",
        "host_info.urls.http://there.invalid/",
        "host_info.containers.vllm-other",
    }
    assert set(empty(furnished, "host_info")) == nothing


def test_a_bare_machine_has_the_documented_shape_too(tmp_path, monkeypatch):
    """Nulls are where the documentation says that they may be."""
    (tmp_path / "status").touch()
    monkeypatch.setenv("DPKG_ADMINDIR", str(tmp_path))
    monkeypatch.setattr(host_info, "ROOT", str(tmp_path))
    monkeypatch.setattr(host_info, "run", lambda *_: None)
    asked = {name: [] for name in ASKED} | {"url_timeout": 1}
    assert differences(host_info.collect(asked), FACTS, "host_info") == []


@pytest.mark.parametrize(
    ("fact", "value", "said"),
    [
        ("kernel_metas", ["linux-image-generic"], "host_info.kernel_metas is list, documented is dict"),
        ("memory_mib", "64000", "host_info.memory_mib is str, documented is int"),
        ("kernel_headers", 1, "host_info.kernel_headers is int, documented is bool"),
        ("memory_mib", True, "host_info.memory_mib is bool, documented is int"),
        ("kernel", None, "host_info.kernel is null"),
        ("invented", 1, "host_info.invented is not documented"),
        ("docker", {}, "host_info.docker lacks installed"),
        ("nvidia_packages", {"libnvidia-ml1": {"version": "1"}}, "host_info.nvidia_packages.libnvidia-ml1 lacks held"),
        ("gpus_on_pci", [{"slot": "x", "device": "x"}], "host_info.gpus_on_pci[] lacks driver"),
        ("engines", [7], "host_info.engines[] is int, documented is str"),
    ],
)
def test_a_wrong_shape_is_seen(furnished, fact, value, said):
    assert differences(furnished | {fact: value}, FACTS, "host_info")[0] == said


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.yml")))
def test_a_fixture_says_what_the_module_can_say(name):
    host(name)  # raises


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.yml")))
def test_a_fixtures_packages_are_found_by_the_modules_own_patterns(name, tmp_path, monkeypatch):
    """What a fixture has for kernel and driver comes out of the module when dpkg says that it is installed."""
    facts = host(name)
    installed = facts["kernel_metas"] | facts["nvidia_packages"]
    status = "".join(
        f"Package: {package}\nStatus: {'hold' if found['held'] else 'install'} ok installed\nArchitecture: amd64\n"
        f"Version: {found['version']}\nMaintainer: t\nDescription: t\n\n"
        for package, found in installed.items()
    )
    (tmp_path / "status").write_text(status)
    monkeypatch.setenv("DPKG_ADMINDIR", str(tmp_path))
    assert host_info.kernel_metas() == facts["kernel_metas"]
    assert host_info.nvidia_packages() == facts["nvidia_packages"]


def test_a_machine_without_anything_names_its_kernel(furnished):
    assert furnished["kernel"] == platform.release()
    assert furnished["headers_offered"] == [
        "linux-headers-generic",
        *(f"{vendor}-headers-{platform.release()}" for vendor in ("linux", "proxmox", "pve")),
    ]
