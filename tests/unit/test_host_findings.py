"""Decisions about a host. The facts are fixtures written for these tests, not readings of machines."""

import copy

import pytest
from host import driver_reboot_reason, host_findings  # plugins/filter/host.py, see conftest.py

FIT = {
    "os": {"id": "debian", "version_id": "13", "pretty_name": "Debian GNU/Linux 13 (trixie)"},
    "architecture": "x86_64",
    "kernel": "6.12.1-amd64",
    "kernel_headers": True,
    "memory_mib": 64000,
    "gpus_on_pci": [
        {"slot": "0000:01:00.0", "device": "0x2684", "driver": "nvidia"},
        {"slot": "0000:41:00.0", "device": "0x2684", "driver": "nvidia"},
    ],
    "secure_boot": False,
    "nvidia_loaded": None,
    "nvidia_installed": None,
    "paths": {"/var/lib": {"exists": True, "free_mib": 500000, "names": []}},
    "docker": {"installed": False, "version": None, "snap": False, "config_is_newer": False},
}
WISH = {"gpus": 2, "free_disk_gib": 40, "memory_gib": 30}


def host(**changes):
    """FIT with `changes`, whose names are paths into it: os__id, gpus_on_pci__1__device."""
    info = copy.deepcopy(FIT)
    for path, value in changes.items():
        *parents, last = [int(part) if part.isdigit() else part for part in path.split("__")]
        target = info
        for part in parents:
            target = target[part]
        target[last] = value
    return info


def test_a_fit_box_has_no_finding():
    assert host_findings(FIT, **WISH) == []


@pytest.mark.parametrize("release", [("debian", "12"), ("debian", "13"), ("ubuntu", "22.04"), ("ubuntu", "24.04")])
def test_supported_releases(release):
    assert host_findings(host(os__id=release[0], os__version_id=release[1]), **WISH) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"os__id": "fedora", "os__pretty_name": "Fedora 44"}, ["Fedora 44", "debian 13", "ubuntu 24.04"]),
        ({"os__version_id": "11"}, ["install one of"]),
        ({"architecture": "aarch64"}, ["aarch64", "x86_64"]),
        ({"gpus_on_pci": FIT["gpus_on_pci"][:1]}, ["1 NVIDIA card(s)", "host_preflight_gpus is 2", "Above 4G"]),
        ({"gpus_on_pci__1__device": "0x2204"}, ["different kinds", "0x2204", "0x2684"]),
        ({"kernel_headers": False}, ["6.12.1-amd64", "apt-get install linux-headers-6.12.1-amd64"]),
        ({"secure_boot": True}, ["Secure Boot", "mokutil"]),
        ({"paths": {"/var/lib": {"free_mib": 20 * 1024}}}, ["20 GiB", "host_preflight_free_disk_gib is 40"]),
        ({"memory_mib": 16 * 1024}, ["16 GiB", "host_preflight_memory_gib is 30"]),
        ({"docker__snap": True}, ["snap remove docker"]),
    ],
)
def test_each_fault_is_one_finding_with_its_way_out(changes, words):
    findings = host_findings(host(**changes), **WISH)
    assert len(findings) == 1, findings
    for word in words:
        assert word in findings[0]


def test_all_findings_come_at_once():
    assert len(host_findings(host(architecture="aarch64", docker__snap=True, kernel_headers=False), **WISH)) == 3


def test_a_loaded_driver_needs_neither_headers_nor_an_enrolled_key():
    info = host(nvidia_loaded="580.95.05", kernel_headers=False, secure_boot=True)
    assert host_findings(info, **WISH) == []


def test_wishes_from_the_command_line_are_strings():
    assert host_findings(FIT, gpus="2", free_disk_gib="40", memory_gib="30") == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"nvidia_loaded": "580.95.05", "nvidia_installed": "580.95.05"}, ""),
        (
            {"nvidia_loaded": "580.95.05", "nvidia_installed": "580.126.09"},
            "driver 580.95.05 is loaded, 580.126.09 is installed",
        ),
        (
            {"gpus_on_pci__0__driver": "nouveau", "gpus_on_pci__1__driver": "nouveau"},
            "nouveau holds the cards, the NVIDIA driver is not loaded",
        ),
        ({"gpus_on_pci__0__driver": "nova_core"}, "nova_core holds the cards, the NVIDIA driver is not loaded"),
    ],
)
def test_reboot(changes, reason):
    assert driver_reboot_reason(host(**changes)) == reason
