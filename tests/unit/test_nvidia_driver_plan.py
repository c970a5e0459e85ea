"""What to do about the driver, per release and for each trap. The facts are fixtures, not machines."""

import pytest
from host_fixtures import host
from nvidia_driver import branch_finding, cuda_finding, driver_plan, driver_reboot_reason, driver_refusal

CUDA = "https://developer.download.nvidia.com/compute/cuda/repos"


@pytest.mark.parametrize(
    ("name", "source", "url", "names"),
    [
        (
            "debian12",
            "cuda",
            f"{CUDA}/debian12/x86_64/",
            [
                "nvidia-driver-pinning-580",
                "nvidia-driver-cuda=580.*",
                "nvidia-kernel-open-dkms=580.*",
                "libnvidia-ml1=580.*",
                "nvidia-persistenced=580.*",
            ],
        ),
        (
            "ubuntu22.04",
            "ubuntu",
            None,
            [
                "nvidia-headless-no-dkms-580-server-open=580.*",
                "nvidia-utils-580-server=580.*",
                "linux-modules-nvidia-580-server-open-generic",
            ],
        ),
        (
            "ubuntu24.04",
            "ubuntu",
            None,
            [
                "nvidia-headless-no-dkms-580-server-open=580.*",
                "nvidia-utils-580-server=580.*",
                "linux-modules-nvidia-580-server-open-generic-hwe-24.04",
            ],
        ),
        (
            "ubuntu26.04",
            "ubuntu",
            None,
            [
                "nvidia-headless-no-dkms-580-server-open=580.*",
                "nvidia-utils-580-server=580.*",
                "linux-modules-nvidia-580-server-open-generic",
            ],
        ),
    ],
)
def test_the_release_decides_on_source_and_packages(name, source, url, names):
    plan = driver_plan(host(name))
    assert (plan["source"], plan["url"], plan["names"]) == (source, url, names)
    assert plan["missing"] == plan["packages"]
    assert plan["findings"] == []


def test_debian_13_differs_from_12_in_the_repository_only():
    older, newer = driver_plan(host("debian12")), driver_plan(host("debian13"))
    assert {key for key in newer if newer[key] != older[key]} == {"url", "key_url"}
    assert newer["key_url"] == f"{CUDA}/debian13/x86_64/8793F200.pub"


@pytest.mark.parametrize(
    ("branch", "library", "key"),
    [("580", "libnvidia-compute-580=580.*", "3bf863cc.pub"), ("590", "libnvidia-compute=590.*", "3bf863cc.pub")],
)
def test_nvidias_packages_for_ubuntu_lose_the_branch_with_590(branch, library, key):
    plan = driver_plan(host("ubuntu24.04"), "cuda", branch)
    assert plan["names"][0] == f"nvidia-driver-pinning-{branch}"
    assert library in plan["names"]
    assert plan["url"] == f"{CUDA}/ubuntu2404/x86_64/"
    assert plan["key_url"].endswith(key)


def test_a_mirror_has_its_own_key():
    plan = driver_plan(host(), repository_url="http://mirror/cuda/")
    assert (plan["url"], plan["key_url"]) == ("http://mirror/cuda/", "http://mirror/cuda/8793F200.pub")


def test_an_exact_version_is_asked_for_and_preferred():
    plan = driver_plan(host(), version="580.95.05")
    assert "libnvidia-ml1=580.95.05-*" in plan["names"]
    assert plan["names"][0] == "nvidia-driver-pinning-580"
    assert "Pin: version 580.95.05-*\nPin-Priority: 1001\n" in plan["pin"]
    assert driver_plan(host())["pin"] is None


def test_with_none_nothing_is_installed_held_or_refused():
    plan = driver_plan(
        host("serving", nvidia_packages__libnvidia_ml1={"version": "580.95.05-1", "held": False}), "none"
    )
    assert (plan["names"], plan["missing"], plan["unheld"], plan["findings"], plan["change"]) == ([], [], [], [], "")


def test_an_installed_driver_of_the_branch_stays_as_it_is():
    plan = driver_plan(host("serving"))
    assert (plan["missing"], plan["change"], plan["unheld"], plan["library"]) == ([], "", [], "580.95.05")
    newer = {"libnvidia-ml1": {"version": "580.126.09-1", "held": True}}
    assert driver_plan(host("serving", nvidia_packages=newer))["change"] == ""


@pytest.mark.parametrize(
    ("wish", "change"),
    [
        ({"branch": "590"}, "driver 580.95.05 is installed, nvidia_driver_branch is 590"),
        ({"version": "580.126.09"}, "driver 580.95.05 is installed, nvidia_driver_version is 580.126.09"),
        ({"version": "580.82.07"}, "driver 580.95.05 is installed, nvidia_driver_version is 580.82.07"),
        ({"version": "580.95.05"}, ""),
    ],
)
def test_only_branch_and_version_exchange_a_driver(wish, change):
    assert driver_plan(host("serving"), **wish)["change"] == change


def test_what_an_upgrade_could_change_is_not_held_yet():
    info = host("serving")
    info["nvidia_packages"]["nvidia-modprobe"] = {"version": "580.95.05-1", "held": False}
    assert driver_plan(info)["unheld"] == ["nvidia-modprobe"]


def test_on_ubuntu_the_kernel_is_held_with_its_modules():
    """A kernel that comes without its modules boots without a driver."""
    modules = {"linux-modules-nvidia-580-server-open-generic": {"version": "5.15.0-160.160", "held": True}}
    plan = driver_plan(host("ubuntu22.04", nvidia_packages=modules))
    assert plan["unheld"] == ["linux-generic", "linux-headers-generic", "linux-image-generic"]
    assert driver_plan(host("ubuntu22.04"))["unheld"] == []


@pytest.mark.parametrize(
    ("name", "changes", "source", "words"),
    [
        (
            "ubuntu24.04",
            {"apt_sources": [{"file": "/etc/apt/sources.list.d/cuda.list", "uri": f"{CUDA}/ubuntu2404/x86_64/"}]},
            "auto",
            ["/etc/apt/sources.list.d/cuda.list", "remove the file", "nvidia_driver_source is ubuntu"],
        ),
        (
            "ubuntu24.04",
            {
                "apt_sources": [
                    {"file": "/x.list", "uri": "https://ppa.launchpadcontent.net/graphics-drivers/ppa/ubuntu"}
                ]
            },
            "cuda",
            ["/x.list", "graphics-drivers"],
        ),
        (
            "ubuntu24.04",
            {"nvidia_packages": {"libnvidia-compute-580": {"version": "580.95.05-0ubuntu0.24.04.3", "held": False}}},
            "cuda",
            ["libnvidia-compute-580", "purge", "set nvidia_driver_source to ubuntu"],
        ),
        ("debian13", {}, "ubuntu", ["Debian GNU/Linux 13", "set it to cuda"]),
        # an upgrade whose module was not built
        (
            "serving",
            {"nvidia_packages__libnvidia-ml1__version": "580.126.09-1"},
            "auto",
            [
                "library is 580.126.09, its kernel module 580.95.05",
                "apt-get install --reinstall --allow-change-held-packages nvidia-kernel-open-dkms",
            ],
        ),
    ],
)
def test_drivers_of_two_origins_or_two_versions_are_refused(name, changes, source, words):
    findings = driver_plan(host(name, **changes), source)["findings"]
    assert len(findings) == 1, findings
    for word in words:
        assert word in findings[0]


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("bare", {}, ""),
        ("serving", {}, ""),
        ("serving", {"nvidia_installed": "580.126.09"}, "driver 580.95.05 is loaded, 580.126.09 is installed"),
        ("bare", {"gpus_on_pci__0__driver": "nouveau"}, "nouveau holds the cards, the NVIDIA driver is not loaded"),
        ("ubuntu26.04", {}, "nova_core holds the cards, the NVIDIA driver is not loaded"),
        (
            "ubuntu22.04",
            {"nvidia_kernels": ["5.15.0-161-generic"]},
            "the NVIDIA module is installed for kernel 5.15.0-161-generic, 5.15.0-160-generic is running",
        ),
    ],
)
def test_reboot(name, changes, reason):
    assert driver_reboot_reason(host(name, **changes)) == reason


UPGRADED = {"name": "serving", "nvidia_installed": "580.126.09"}
IDLE = {**UPGRADED, "engines": []}
HELD = {"name": "ubuntu26.04"}


@pytest.mark.parametrize(
    ("facts", "wish", "permission", "words"),
    [
        ({"name": "serving"}, {}, {}, None),
        (IDLE, {}, {}, ["driver 580.95.05 is loaded, 580.126.09 is installed", "is not set", "true", "false goes on"]),
        (IDLE, {}, {"allow_reboot": False}, None),
        (IDLE, {}, {"allow_reboot": True}, None),
        (IDLE, {}, {"allow_reboot": True, "local": True}, ["connection is local"]),
        (UPGRADED, {}, {"allow_reboot": True}, ["interrupt vllm-main", "tandem_allow_interruption=true"]),
        (UPGRADED, {}, {"allow_reboot": True, "allow_interruption": True}, None),
        (UPGRADED, {}, {"allow_reboot": False, "allow_interruption": True}, None),
        (HELD, {}, {}, ["nova_core holds the cards", "is not set"]),
        (HELD, {}, {"allow_reboot": False}, ["nova_core holds the cards", "is false"]),
        (HELD, {}, {"allow_reboot": True}, None),
        ({"name": "serving"}, {"branch": "590"}, {}, ["nvidia_driver_branch is 590", "not set", "take the wish back"]),
        ({"name": "serving"}, {"branch": "590"}, {"allow_reboot": False}, ["is false"]),
        ({"name": "serving"}, {"branch": "590"}, {"allow_reboot": True}, ["interrupt vllm-main"]),
        ({"name": "serving", "engines": []}, {"branch": "590"}, {"allow_reboot": True}, None),
    ],
)
def test_who_may_reboot_what(facts, wish, permission, words):
    info = host(**facts)
    refusal = driver_refusal(info, driver_plan(info, **wish), **permission)
    if words is None:
        assert refusal == ""
    for word in words or []:
        assert word in refusal


@pytest.mark.parametrize(
    ("cuda", "driver", "words"),
    [
        (
            "13.0",
            "570.172",
            ["CUDA 13.0", "580.65.06", "570.172", "GeForce", "no forward compatibility", "branch to 580"],
        ),
        ("13.0.2", "580.65.05", ["580.65.06"]),
        ("13.0", "580.65.06", None),
        ("13.2", "580.95.05", None),
        ("12.9", "525.60.13", None),
        ("12.8", "515.105.01", ["525.60.13"]),
        ("11.8", "580.95.05", None),
        ("14.0", "700.10", ["CUDA 14.0", "not known"]),
    ],
)
def test_an_images_cuda_against_the_driver(cuda, driver, words):
    finding = cuda_finding(cuda, driver)
    if words is None:
        assert finding == ""
    for word in words or []:
        assert word in finding


@pytest.mark.parametrize(
    ("branch", "version", "words"),
    [
        ("580", None, None),
        ("595", "595.58.03", None),
        ("570", None, ["570", '"580"', "CUDA 13"]),
        ("latest", None, ["latest"]),
        ("580", "590.44.01", ["no version of nvidia_driver_branch 580"]),
        ("580", "580.82", None),
        ("580", "580.60.01", ["580.65.06"]),
    ],
)
def test_branch_and_version(branch, version, words):
    finding = branch_finding(branch, version)
    if words is None:
        assert finding == ""
    for word in words or []:
        assert word in finding
