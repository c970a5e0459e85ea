"""What the module host_info makes of files. The files are fixtures, not machines'."""

import hashlib
import importlib.util
import os
from pathlib import Path

import pytest
from host import files_to_copy

spec = importlib.util.spec_from_file_location("host_info", Path(__file__).parents[2] / "library/host_info.py")
host_info = importlib.util.module_from_spec(spec)
spec.loader.exec_module(host_info)

FILES = {
    "/etc/apt/sources.list": (
        "# deb http://off/ x main\ndeb [arch=amd64 signed-by=/k] http://one/ x main\ndeb-src http://src/ x main\n"
    ),
    "/etc/apt/sources.list.d/a.list": "deb http://two/ /\n",
    "/etc/apt/sources.list.d/b.sources": (
        "Types: deb\nURIs: http://three/ http://four/\n http://five/\nSuites: /\n\n"
        "Types: deb\nEnabled: no\nURIs: http://off/\nSuites: /\n"
    ),
}


@pytest.fixture
def files(monkeypatch):
    monkeypatch.setattr(host_info, "read", FILES.get)
    monkeypatch.setattr(host_info.glob, "glob", lambda pattern: [name for name in FILES if Path(name).match(pattern)])


def test_both_forms_of_apts_sources_are_read_and_what_is_off_is_not(files):
    found = host_info.apt_sources()
    assert [entry["uri"] for entry in found] == [f"http://{name}/" for name in ("one", "two", "three", "four", "five")]
    assert found[-1]["file"] == "/etc/apt/sources.list.d/b.sources"


@pytest.mark.parametrize("answer", [("yes", True), ("no", False), (None, None), ("", None)])
def test_a_clock_of_which_systemd_says_nothing_is_neither_right_nor_wrong(monkeypatch, answer):
    monkeypatch.setattr(host_info, "run", lambda *_: answer[0])
    assert host_info.clock_synchronised() is answer[1]


def test_kernels_are_no_meta_packages(monkeypatch):
    names = ["linux-image-6.8.0-40-generic", "linux-image-generic", "linux-headers-generic-hwe-24.04"]
    monkeypatch.setattr(host_info, "packages", lambda _: dict.fromkeys(names))
    assert list(host_info.kernel_metas()) == ["linux-headers-generic-hwe-24.04", "linux-image-generic"]


def test_the_container_toolkit_is_no_part_of_the_driver(monkeypatch):
    names = ["nvidia-driver-cuda", "nvidia-container-toolkit", "libnvidia-container1", "libnvidia-ml1"]
    monkeypatch.setattr(host_info, "packages", lambda _: dict.fromkeys(names))
    assert list(host_info.nvidia_packages()) == ["libnvidia-ml1", "nvidia-driver-cuda"]


def test_images_are_added_up(monkeypatch):
    monkeypatch.setattr(host_info.shutil, "which", lambda _: "/usr/bin/docker")
    monkeypatch.setattr(host_info, "run", lambda *_: "1.5GB\n300MB\n12.3kB\n0B")
    assert host_info.images_mib() == 1_800_012_300 // 2**20


def test_modules_are_found_where_dkms_and_where_ubuntu_puts_them(monkeypatch):
    found = {
        "/lib/modules/*/updates/dkms/nvidia.ko*": ["/lib/modules/6.12.1-amd64/updates/dkms/nvidia.ko.xz"],
        "/lib/modules/*/kernel/nvidia-*/nvidia.ko*": [
            "/lib/modules/6.8.0-40-generic/kernel/nvidia-580srv-open/nvidia.ko"
        ],
    }
    monkeypatch.setattr(host_info.glob, "glob", lambda pattern: found.get(pattern, []))
    assert host_info.nvidia_kernels() == ["6.12.1-amd64", "6.8.0-40-generic"]


def test_files_are_known_by_content_mode_and_owner(tmp_path):
    program = tmp_path / "program"
    program.write_text("x")
    program.chmod(0o755)
    found = host_info.files([str(program), str(tmp_path / "none")])
    digest = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    assert found[str(program)] == {"sha256": digest, "mode": "0755", "uid": os.getuid(), "gid": os.getgid()}
    assert found[str(tmp_path / "none")] is None


@pytest.mark.parametrize(
    ("change", "copied"),
    [
        ({}, []),
        ({"sha256": "other"}, ["program"]),
        ({"mode": "0644"}, ["program"]),
        ({"uid": 1000}, ["program"]),
        (None, ["program"]),
    ],
)
def test_a_file_is_copied_when_anything_about_it_differs(tmp_path, change, copied):
    (tmp_path / "program").write_text("x")
    right = {"sha256": hashlib.sha256(b"x").hexdigest(), "mode": "0755", "uid": 0, "gid": 0}
    found = {"/usr/lib/program": None if change is None else {**right, **change}}
    assert files_to_copy(["program"], found, str(tmp_path), "/usr/lib") == copied
