"""What the module host_info makes of files. The files are fixtures, not machines'."""

import hashlib
import http.server
import os
import threading
from pathlib import Path

import pytest
from host import files_to_copy
from host_fixtures import host_info

FILES = {
    "/etc/apt/sources.list": (
        "# deb http://off/ x main\ndeb [ arch=amd64 signed-by=/k ] http://one/ x main\ndeb-src http://src/ x main\n"
    ),
    "/etc/apt/sources.list.d/a.list": "deb http://two/ /\n",
    "/etc/apt/sources.list.d/b.sources": (
        "Types: deb\nURIs: http://three/ http://four/\n http://five/\nSuites: /\n\n"
        "Types: deb\nEnabled: no\nURIs: http://off/\nSuites: /\n \n"
        "Enabled: 0\nURIs: http://off/\n\n#URIs: http://off/\nTypes: deb\nURIs:\n http://six/\n"
    ),
}


@pytest.fixture
def files(monkeypatch):
    monkeypatch.setattr(host_info, "read", FILES.get)
    monkeypatch.setattr(host_info, "matching", lambda pattern: [name for name in FILES if Path(name).match(pattern)])


NAMES = ("one", "src", "two", "three", "four", "five", "six")


def test_both_forms_of_apts_sources_are_read_and_what_is_off_is_not(files):
    found = host_info.apt_sources()
    assert [entry["uri"] for entry in found] == [f"http://{name}/" for name in NAMES]
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


def test_modules_are_found_where_dkms_and_where_ubuntu_puts_them(monkeypatch):
    found = {
        "/lib/modules/*/updates/dkms/nvidia.ko*": ["/lib/modules/6.12.1-amd64/updates/dkms/nvidia.ko.xz"],
        "/lib/modules/*/kernel/nvidia-*/nvidia.ko*": [
            "/lib/modules/6.8.0-40-generic/kernel/nvidia-580srv-open/nvidia.ko"
        ],
    }
    monkeypatch.setattr(host_info, "matching", lambda pattern: found.get(pattern, []))
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


@pytest.fixture
def server():
    """Answers every request with 404; the address, and what was asked."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{listening.server_port}", asked
        listening.shutdown()


DEAD = "http://127.0.0.1:9/"


@pytest.mark.parametrize(
    ("settings", "environment", "reached"),
    [
        ("", {}, "direct"),
        ('Acquire::http::Proxy "DIRECT";', {}, "direct"),
        ('Acquire::http::Proxy "DIRECT";', {"http_proxy": DEAD}, "direct"),
        (f'Acquire::http::Proxy "{DEAD}"; Acquire::http::Proxy::127.0.0.1 "DIRECT";', {}, "direct"),
        (f'Acquire::http::Proxy "{DEAD}"; Acquire::http::Proxy::elsewhere "DIRECT";', {}, "no"),
        (f'Acquire::http::Proxy "{DEAD}";', {}, "no"),
        (f'Acquire::http::Proxy "{DEAD}";', {"no_proxy": "127.0.0.1"}, "direct"),
        ('Acquire::http::Proxy "http://SERVER/";', {}, "proxy"),
        ('Acquire::http::Proxy "http://SERVER/";', {"http_proxy": DEAD}, "proxy"),
        ("", {"http_proxy": "http://SERVER/"}, "proxy"),
        ("", {"http_proxy": DEAD}, "no"),
        ('Acquire::http::Proxy-Auto-Detect "DETECT";', {}, "proxy"),
        ('Acquire::http::ProxyAutoDetect "DETECT";', {"http_proxy": DEAD}, "proxy"),
    ],
)
def test_proxies_are_apts_own(monkeypatch, tmp_path, server, settings, environment, reached):
    """Asked of APT's own helper: APT's settings, its environment, and what it does with both."""
    address, asked = server
    detect = tmp_path / "detect"
    detect.write_text(f"#!/bin/sh\necho http://{address}/\n")
    detect.chmod(0o755)
    tmp_path.chmod(0o755)
    for name in ("http_proxy", "no_proxy", "HTTP_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value.replace("SERVER", address))
    config = tmp_path / "apt.conf"
    config.write_text(
        'Dir::Etc::parts "/dev/null"; Dir::Etc::main "/dev/null";'
        + settings.replace("SERVER", address).replace("DETECT", str(detect))
    )
    monkeypatch.setenv("APT_CONFIG", str(config))
    found = host_info.urls([f"http://{address}/debian/"], 2)[f"http://{address}/debian/"]
    assert (found is None) is (reached != "no"), found
    assert asked == {"direct": ["/debian/"], "proxy": [f"http://{address}/debian/"], "no": []}[reached]


def test_an_address_that_nobody_answers_at_has_a_reason(monkeypatch):
    assert "127.0.0.1" in host_info.urls(["http://127.0.0.1:9/"], 1)["http://127.0.0.1:9/"]


def test_a_package_that_is_there_for_two_architectures_is_the_boxs_own(tmp_path, monkeypatch):
    (tmp_path / "arch").write_text("amd64\ni386\n")
    (tmp_path / "status").write_text(
        "".join(
            f"Package: libnvidia-compute-580\nStatus: {selection} ok installed\nArchitecture: {architecture}\n"
            "Multi-Arch: same\nVersion: 580.95.05-0ubuntu1\nMaintainer: t\nDescription: t\n\n"
            for architecture, selection in (("i386", "install"), ("amd64", "hold"))
        )
    )
    monkeypatch.setenv("DPKG_ADMINDIR", str(tmp_path))
    assert host_info.nvidia_packages()["libnvidia-compute-580"] == {"version": "580.95.05-0ubuntu1", "held": True}
