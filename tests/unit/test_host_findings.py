"""What stands in the way of serving: one finding each, with its way out. The facts are fixtures, not machines."""

from pathlib import Path

import pytest
from host import host_findings, host_remarks  # plugins/filter/host.py, see conftest.py
from host_fixtures import host

WISH = {"gpus": 2, "memory_gib": 30, "space_gib": {"/var/lib/docker": 40, "/srv/models": 25}, "now": 1_800_000_000}

IMAGE_META = {"linux-image-amd64": {"version": "6.12.48-1", "held": False}}


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("debian12", "cuda"),
        ("debian13", "cuda"),
        ("ubuntu22.04", "ubuntu"),
        ("ubuntu24.04", "ubuntu"),
        ("ubuntu24.04", "cuda"),
        ("ubuntu26.04", "ubuntu"),
        ("serving", "cuda"),
    ],
)
def test_a_fit_box_has_no_finding(name, source):
    assert host_findings(host(name), **WISH, driver_source=source) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"os__id": "fedora", "os__pretty_name": "Fedora 44"}, ["Fedora 44", "debian 13", "ubuntu 26.04"]),
        ({"os__version_id": "11"}, ["install one of"]),
        ({"architecture": "aarch64"}, ["aarch64", "x86_64"]),
        ({"gpus_on_pci": []}, ["0 NVIDIA card(s)", "host_preflight_gpus is 2", "Above 4G"]),
        (
            {"gpus_on_pci__1__device": "0x2204"},
            [
                "1 NVIDIA card(s) of one kind, and of others 0000:41:00.0 (PCI device 10de:2204)",
                "host_preflight_gpus to 1",
            ],
        ),
        (
            {"kernel_headers": False, "headers_offered": ["linux-headers-6.12.48+deb13-amd64"]},
            ["6.12.48+deb13-amd64", "apt-get install linux-headers-6.12.48+deb13-amd64, or reboot"],
        ),
        # Proxmox: no linux-headers-*-pve there
        (
            {"kernel": "6.14.11-2-pve", "kernel_headers": False, "headers_offered": ["proxmox-headers-6.14.11-2-pve"]},
            ["apt-get install proxmox-headers-6.14.11-2-pve"],
        ),
        # a kernel that is no longer in the archive, or somebody's own
        (
            {"kernel": "6.18.1-mine", "kernel_headers": False},
            ["headers of the running kernel 6.18.1-mine are missing", "APT knows no package with them"],
        ),
        (
            {"kernel_metas": IMAGE_META, "headers_offered": ["linux-headers-amd64"]},
            ["next kernel", "apt-get install linux-headers-amd64"],
        ),
        ({"kernel_metas": IMAGE_META}, ["linux-image-amd64 is installed without its headers", "meta-package"]),
        (
            {
                "kernel_headers": False,
                "kernel_metas": IMAGE_META,
                "headers_offered": ["linux-headers-amd64", "linux-headers-6.12.48+deb13-amd64"],
            },
            ["apt-get install linux-headers-amd64 linux-headers-6.12.48+deb13-amd64"],
        ),
        ({"secure_boot": True}, ["Secure Boot", "mokutil"]),
        (
            {"paths__/var/lib/docker__free_mib": 60 * 1024},
            [
                "60 GiB are free",
                "40 GiB for /var/lib/docker and 25 GiB for /srv/models",
                "host_preflight_free_disk_gib",
            ],
        ),
        (
            {"paths__/srv/models__filesystem": 7, "paths__/srv/models__free_mib": 20 * 1024},
            ["20 GiB are free, wanted are 25 GiB for /srv/models", "host_preflight_weights_gib"],
        ),
        ({"memory_mib": 16 * 1024}, ["16 GiB", "host_preflight_memory_gib is 30"]),
        ({"time": 1_800_000_000 - 3600.0}, ["clock differs by 3600 s", "timedatectl set-ntp true"]),
        ({"docker__snap": True}, ["snap remove docker"]),
        ({"docker__desktop": True}, ["Docker Desktop", "apt-get remove docker-desktop"]),
        (
            {"urls": {"https://example.org/": "timed out"}},
            ["https://example.org/ does not answer (timed out)", "proxy"],
        ),
    ],
)
def test_each_fault_is_one_finding_with_its_way_out(changes, words):
    findings = host_findings(host(**changes), **WISH)
    assert len(findings) == 1, findings
    for word in words:
        assert word in findings[0]


def test_all_findings_come_at_once():
    assert len(host_findings(host(architecture="aarch64", docker__snap=True, kernel_headers=False), **WISH)) == 3


def test_one_file_system_must_hold_image_and_weights_together_two_need_not():
    tight = {"paths__/var/lib/docker__free_mib": 45 * 1024, "paths__/srv/models__free_mib": 45 * 1024}
    assert len(host_findings(host(**tight), **WISH)) == 1
    assert host_findings(host(**tight, **{"paths__/srv/models__filesystem": 7}), **WISH) == []


@pytest.mark.parametrize("source", ["ubuntu", "none"])
def test_signed_modules_need_neither_headers_nor_an_enrolled_key(source):
    assert (
        host_findings(host("ubuntu24.04", kernel_headers=False, secure_boot=True), **WISH, driver_source=source) == []
    )
    assert len(host_findings(host("ubuntu24.04", kernel_headers=False, secure_boot=True), **WISH)) == 2


def test_a_loaded_driver_needs_neither_headers_nor_an_enrolled_key():
    assert host_findings(host("serving", kernel_headers=False, secure_boot=True), **WISH) == []


def test_a_box_that_has_everything_needs_no_package_source():
    assert host_findings(host("serving", urls={"https://example.org/": "timed out"}), **WISH) == []


def test_wishes_from_the_command_line_are_strings():
    strings = {"gpus": "2", "memory_gib": "30", "space_gib": {"/var/lib/docker": "40"}}
    assert host_findings(host(), **strings) == []


def test_what_is_only_worth_knowing_is_no_finding():
    info = host("ubuntu26.04", clock_synchronised=False)
    assert host_findings(info, **WISH, driver_source="ubuntu") == []
    holder, clock = host_remarks(info)
    assert holder.startswith("nova_core holds the cards")
    assert "nvidia_driver_allow_reboot" in holder
    assert "timedatectl" in clock
    assert host_remarks(host("serving")) == []


def pci(*devices):
    return [{"slot": f"0000:{i + 1:02}:00.0", "device": device, "driver": None} for i, device in enumerate(devices)]


@pytest.mark.parametrize(
    ("devices", "wanted", "other"),
    [
        (["0x2684", "0x2684"], 2, None),
        (["0x2684", "0x2684", "0x1d01"], 2, "0000:03:00.0"),  # a GT 1030 for the screen
        (["0x1d01", "0x2684", "0x2684"], 2, "0000:01:00.0"),
        (["0x1d01", "0x1d01", "0x2684", "0x2684"], 2, "0000:01:00.0"),
        (["0x2684", "0x2204"], 1, "0000:02:00.0"),
        (["0x2684", "0x2684", "0x2684", "0x2684", "0x2204", "0x2204"], 4, "0000:05:00.0"),
    ],
)
def test_cards_of_one_kind_count_and_others_are_named(devices, wanted, other):
    info = host(gpus_on_pci=pci(*devices))
    assert host_findings(info, **WISH | {"gpus": wanted}) == []
    remarks = host_remarks(info, wanted)
    assert len(remarks) == (1 if other else 0)
    if other:
        assert other in remarks[0] and "gpus in vllm_engines, gpu_clocks_gpus" in remarks[0]


def test_another_number_of_cards_has_a_way_out():
    """Three cards of which two are alike: what the sentence says to set is then taken."""
    info = host(gpus_on_pci=pci("0x2684", "0x2684", "0x1d01"))
    (finding,) = host_findings(info, **WISH | {"gpus": 3})
    assert "host_preflight_gpus to 2" in finding
    assert host_findings(info, **WISH | {"gpus": 2}) == []


def test_the_disk_that_the_images_go_to_is_looked_at(run_play):
    """Docker's own folder unless the settings have one; room for a whole image unless all of them are there."""
    cases = [
        ("/data", {"a": False}, {}, {"/data": 40, "/srv/models": 30}),
        ("/var/lib/docker", {"a": False}, {}, {"/var/lib/docker": 40, "/srv/models": 30}),
        ("/var/lib/docker", {"a": True, "b": False}, {}, {"/var/lib/docker": 40, "/srv/models": 30}),
        ("/var/lib/docker", {"a": True}, {}, {"/var/lib/docker": 0, "/srv/models": 30}),
        ("/data", {"a": False}, {"data-root": None}, {"/data": 40, "/srv/models": 30}),
        ("/var/lib/docker", {"a": False}, {"data-root": "/new"}, {"/new": 40, "/srv/models": 30}),
    ]
    told = [
        {"looked": {"docker": {"root": root}, "images": images}, "daemon": daemon, "wanted": wanted}
        for root, images, daemon, wanted in cases
    ]
    paths = {"/srv/models": {"names": []}}
    check = {
        "ansible.builtin.assert": {"that": "__host_preflight_space == item.wanted"},
        "vars": {
            "__host_preflight_looked": {"host_info": "{{ item.looked | combine({'paths': paths}) }}"},
            "docker_engine_daemon": "{{ item.daemon }}",
        },
        "loop": told,
    }
    load = {"ansible.builtin.include_vars": "{{ roles }}/host_preflight/vars/main.yml"}
    settings = {"host_preflight_free_disk_gib": 40, "host_preflight_weights_gib": 30, "vllm_model": "/srv/models"}
    play = {"hosts": "all", "connection": "local", "gather_facts": False, "tasks": [load, check]}
    folder = str(Path(__file__).parents[2] / "roles")
    code, said = run_play(play, "box1", roles=folder, paths=paths, **settings)
    assert code == 0, said
