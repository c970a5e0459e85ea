"""What to do about the driver, per release and for each trap. The facts are fixtures, not machines."""
# ruff: noqa: E501 - tables of cases

import pytest
from host_fixtures import host
from nvidia_driver import (
    branch_finding,
    cuda_finding,
    driver_plan,
    driver_reboot_reason,
    driver_refusal,
    driver_stays,
    host_need,
    offer_findings,
    persistenced_drop_in,
)

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


def test_debian_13_differs_from_12_in_repository_key_and_branch():
    older, newer = driver_plan(host("debian12")), driver_plan(host("debian13"))
    differ = {"url", "key_url", "key_fingerprints", "branch", "packages", "missing", "names"}
    assert {key for key in newer if newer[key] != older[key]} == differ
    assert newer["names"] == [name.replace("580", "595") for name in older["names"]]
    assert newer["key_url"] == f"{CUDA}/debian13/x86_64/8793F200.pub"
    assert newer["key_fingerprints"] == ["02182E60104FCDC26EAE1B8597A5D4CB8793F200"]
    assert older["key_url"] == f"{CUDA}/debian12/x86_64/3bf863cc.pub"
    assert older["key_fingerprints"] == ["EB693B3035CD5710E231E123A4B469963BF863CC"]


def library(version, name="libnvidia-ml1"):
    return {"nvidia_packages": {name: {"version": version, "held": True}}}


@pytest.mark.parametrize(
    ("facts", "wish", "branch"),
    [
        ({"name": "debian12"}, {}, "580"),
        ({"name": "debian13"}, {}, "595"),
        ({"name": "ubuntu22.04"}, {}, "580"),
        ({"name": "ubuntu24.04"}, {"source": "cuda"}, "580"),
        ({"name": "debian13"}, {"branch": "590"}, "590"),
        ({"name": "debian13"}, {"branch": 590}, "590"),
        ({"name": "debian13"}, {"version": "590.48.01"}, "590"),
        # what is installed stays when nobody asks for another
        ({"name": "debian13", **library("580.95.05-1")}, {}, "580"),
        ({"name": "debian12", **library("590.48.01-1")}, {}, "590"),
        ({"name": "debian13", **library("610.12-1")}, {}, "610"),
        # unless CUDA 13 cannot run on it
        ({"name": "debian13", **library("550.163.01-2")}, {}, "595"),
        ({"name": "debian12", **library("470.256.02-1~deb12u1", "libnvidia-tesla-470-ml1")}, {}, "580"),
        # somebody else's driver has no branch to be judged by
        ({"name": "debian13"}, {"source": "none"}, "580"),
    ],
)
def test_the_branch_is_the_wish_else_what_is_installed_else_the_releases(facts, wish, branch):
    assert driver_plan(host(**facts), **wish)["branch"] == branch


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
    # a mirror hands out NVIDIA's signatures, so NVIDIA's key is expected of it until another is named
    assert plan["key_fingerprints"] == driver_plan(host())["key_fingerprints"]
    assert driver_plan(host(), repository_key_fingerprints=["A" * 40])["key_fingerprints"] == ["A" * 40]


def test_an_exact_version_is_asked_for_and_preferred():
    plan = driver_plan(host("debian12"), version="580.95.05")
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
    assert (plan["missing"], plan["change"], plan["unheld"], plan["library"]) == ([], "", [], "595.71.05")
    newer = {"libnvidia-ml1": {"version": "595.91.07-1", "held": True}}
    assert driver_plan(host("serving", nvidia_packages=newer))["change"] == ""


INSTALLED = "driver 595.71.05 is installed (libnvidia-ml1, nvidia-kernel-open-dkms)"


@pytest.mark.parametrize(
    ("wish", "change"),
    [
        ({"branch": "590"}, f"{INSTALLED}, nvidia_driver_branch is 590"),
        ({"version": "595.91.07"}, f"{INSTALLED}, nvidia_driver_version is 595.91.07"),
        ({"version": "595.58.03"}, f"{INSTALLED}, nvidia_driver_version is 595.58.03"),
        ({"version": "595.71.05"}, ""),
        ({"branch": "595"}, ""),
        ({}, ""),
    ],
)
def test_only_branch_and_version_exchange_a_driver(wish, change):
    assert driver_plan(host("serving"), **wish)["change"] == change


def test_a_driver_that_is_too_old_is_told_as_that_where_nobody_named_a_branch():
    plan = driver_plan(host("serving", **library("550.163.01-2")))
    assert plan["change"] == (
        "driver 550.163.01 is installed (libnvidia-ml1), nvidia_driver_branch is 595 by default, as CUDA 13 needs it"
    )


def packages(*names, version="580.95.05-1"):
    return {name: {"version": version, "held": True} for name in names}


DESKTOP = {"name": "ubuntu24.04-desktop"}
SERVER = {"name": "ubuntu24.04-server"}
NVIDIAS_UBUNTU = packages("libnvidia-compute-580", "nvidia-dkms-580-open", version="580.82.07-0ubuntu1")


@pytest.mark.parametrize(
    ("facts", "source", "words"),
    [
        (SERVER, "auto", None),
        (DESKTOP, "auto", ["580.82.07", "libnvidia-compute-580, linux-modules-nvidia-580-open-6.14.0-36-generic"]),
        # NVIDIA's own packages on Ubuntu, whose repository is no longer there
        (SERVER | {"nvidia_packages": NVIDIAS_UBUNTU}, "ubuntu", ["libnvidia-compute-580, nvidia-dkms-580-open"]),
        # proprietary modules beside the right library, from Ubuntu and from NVIDIA
        (
            SERVER
            | {
                "nvidia_packages": packages(
                    "libnvidia-compute-580-server",
                    "linux-modules-nvidia-580-server-generic",
                    version="580.95.05-0ubuntu1",
                )
            },
            "auto",
            ["linux-modules-nvidia-580-server-generic", "linux-modules-nvidia-580-server-open-generic"],
        ),
        (
            {
                "name": "serving",
                "nvidia_packages": packages("libnvidia-ml1", "nvidia-kernel-dkms", version="595.71.05-1"),
            },
            "auto",
            ["nvidia-kernel-dkms", "nvidia-kernel-open-dkms"],
        ),
        # Debian's own names, from backports: libnvidia-ml1 is called alike, the open modules are not
        (
            {
                "name": "serving",
                "nvidia_packages": packages("libnvidia-ml1", "nvidia-open-kernel-dkms", version="595.71.05-1~bpo13+1"),
            },
            "auto",
            ["nvidia-open-kernel-dkms"],
        ),
        # Debian's packages for data centre cards, of a branch that will do
        (
            {
                "name": "serving",
                "nvidia_packages": packages(
                    "libnvidia-tesla-595-ml1", "nvidia-tesla-595-kernel-dkms", version="595.1-1"
                ),
            },
            "auto",
            ["libnvidia-tesla-595-ml1"],
        ),
        # the right flavour, built on the box or for another kernel as well
        (
            SERVER
            | {
                "nvidia_packages": packages(
                    "libnvidia-compute-580-server", "nvidia-dkms-580-server-open", version="580.95.05-0ubuntu0.24.04.3"
                )
            },
            "auto",
            None,
        ),
        # 32-bit libraries, utilities and a missing part are no other flavour
        (
            {"name": "serving", "nvidia_packages": packages("libnvidia-ml1", "nvidia-settings", version="595.71.05-1")},
            "auto",
            None,
        ),
        (DESKTOP, "none", None),
    ],
)
def test_another_flavour_of_the_same_driver_is_an_exchange(facts, source, words):
    """Its packages are replaced under the loaded module, so it needs what any exchange needs."""
    info = host(**facts)
    plan = driver_plan(info, source)
    if words is None:
        assert plan["change"] == "" and driver_refusal(info, plan) == ""
        return
    assert plan["findings"] == []
    for word in [*words, "nvidia_driver_source none keeps it"]:
        assert word in plan["change"]
    assert host_need(info, plan)["need"] == "reboot"
    for permission in ({}, {"allow_reboot": False}, {"allow_reboot": True}):
        refusal = driver_refusal(info, plan, **permission)
        assert plan["change"] in refusal
    assert "would interrupt vllm-main" in refusal
    assert driver_refusal(info, plan, True, True) == ""


RUN_FILE = {
    "nvidia_installed": "580.82.07",
    "nvidia_loaded": "580.82.07",
    "nvidia_library": {
        "path": "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.82.07",
        "version": "580.82.07",
        "package": None,
    },
    "nvidia_uninstaller": "/usr/bin/nvidia-uninstall",
}


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (RUN_FILE, ["driver 580.82.07 is installed by NVIDIA's .run file", "run /usr/bin/nvidia-uninstall and reboot"]),
        (RUN_FILE | {"name": "ubuntu24.04"}, ["nvidia_driver_source, which is ubuntu, to none"]),
        # laid over packages, as its file belongs to none
        (RUN_FILE | {"name": "serving"}, [".run file"]),
        (RUN_FILE | {"nvidia_uninstaller": None}, ["libnvidia-ml.so.580.82.07 belongs to no package", "to none"]),
        (
            RUN_FILE | {"nvidia_library": RUN_FILE["nvidia_library"] | {"package": "nvidia-linux-grid-580"}},
            ["belongs to the package nvidia-linux-grid-580", "apt-get purge nvidia-linux-grid-580"],
        ),
        (
            {"nvidia_installed": "580.82.07"},
            ["kernel module 580.82.07 is installed and belongs to no package", "modinfo"],
        ),
        (
            {"nvidia_installed": "580.82.07", "nvidia_uninstaller": "/usr/bin/nvidia-uninstall"},
            ["belongs to no package; run /usr/bin/nvidia-uninstall"],
        ),
        # what a purge leaves until the next boot
        ({"nvidia_loaded": "570.172.08"}, None),
        # packages of ours in place, and the .run file's remover left over from before them
        ({"name": "serving", "nvidia_uninstaller": "/usr/bin/nvidia-uninstall"}, None),
    ],
)
def test_a_driver_that_no_package_brought_is_never_overwritten(facts, words):
    info = host(**facts)
    findings = driver_plan(info)["findings"]
    assert len(findings) == (1 if words else 0), findings
    for word in words or []:
        assert word in findings[0]
    assert driver_plan(info, "none")["findings"] == []


def offer(error=None, **versions):
    return {"error": error, "versions": {name.replace("_", "-"): found for name, found in versions.items()}}


NEW = ["590.48.01-1", "595.71.05-1"]
DEBIAN13 = offer(
    nvidia_driver_cuda=NEW,
    nvidia_kernel_open_dkms=NEW,
    libnvidia_ml1=NEW,
    nvidia_persistenced=NEW,
    nvidia_driver_pinning_590=["590-1"],
    nvidia_driver_pinning_595=["595-1"],
)
NOBLE = offer(
    nvidia_headless_no_dkms_570_server_open=["570.195.03-0ubuntu0.24.04.1"],
    nvidia_headless_no_dkms_580_server_open=["580.95.05-0ubuntu0.24.04.3", "580.65.06-0ubuntu0.24.04.1"],
    nvidia_utils_580_server=["580.95.05-0ubuntu0.24.04.3"],
    linux_modules_nvidia_580_server_open_generic=["6.8.0-60.63"],
)


@pytest.mark.parametrize(
    ("facts", "wish", "offered", "words"),
    [
        ({}, {}, DEBIAN13, None),
        ({}, {"branch": "590"}, DEBIAN13, None),
        ({}, {"version": "590.48.01"}, DEBIAN13, None),
        (
            {},
            {"branch": "580"},
            DEBIAN13,
            ["debian13", "nvidia-driver-pinning-580", "595: 595.71.05; 590: 590.48.01", "wanted as 580"],
        ),
        ({}, {"version": "595.91.07"}, DEBIAN13, ["nvidia-driver-cuda=595.91.07-*", "595: 595.71.05"]),
        ({}, {}, offer(nvidia_driver_cuda=["570.1-1"]), ["no driver for CUDA 13"]),
        ({}, {}, offer(), ["no driver for CUDA 13"]),
        ({}, {}, offer(error="Could not resolve 'x'"), ["debian13/x86_64/ cannot be used: Could not resolve 'x'"]),
        # installed, and nobody asks for another: the repository may have dropped it
        ({"name": "serving"}, {}, offer(), None),
        ({"name": "serving"}, {"branch": "580"}, DEBIAN13, ["nvidia-driver-cuda=580.*", "590: 590.48.01"]),
        # a part is missing, so it is what is asked for
        (
            {
                "name": "serving",
                "nvidia_packages": packages("libnvidia-ml1", "nvidia-kernel-open-dkms", version="595.71.05-1"),
            },
            {},
            offer(nvidia_driver_cuda=NEW, nvidia_driver_pinning_595=["595-1"]),
            ["does not offer nvidia-persistenced=595.71.05-*. It offers"],
        ),
        ({"name": "ubuntu24.04", "kernel": "6.8.0-60-generic", "kernel_metas": {}}, {}, NOBLE, None),
        (
            {"name": "ubuntu24.04"},
            {},
            NOBLE,
            ["the distribution's archive", "does not offer linux-modules-nvidia-580-server-open-generic-hwe-24.04."],
        ),
        ({"name": "ubuntu24.04"}, {"branch": "590"}, NOBLE, ["580: 580.95.05, 580.65.06. Set"]),
    ],
)
def test_what_the_repository_does_not_have_is_an_error_that_lists_what_it_has(facts, wish, offered, words):
    findings = offer_findings(driver_plan(host(**facts), **wish), offered)
    assert len(findings) == (1 if words else 0), findings
    for word in words or []:
        assert word in findings[0]


@pytest.mark.parametrize(
    ("facts", "names"),
    [
        # an engine serves on packages that nobody holds, and the repository has 595.91.07
        (
            {
                "nvidia_packages": {
                    name: {"version": "595.71.05-1", "held": False}
                    for name in ("libnvidia-ml1", "nvidia-kernel-open-dkms", "nvidia-driver-cuda")
                }
            },
            ["nvidia-persistenced=595.71.05-*"],
        ),
        # the modules alone
        (
            {"nvidia_packages": packages("nvidia-kernel-open-dkms", version="595.71.05-1"), "nvidia_library": None},
            ["libnvidia-ml1=595.71.05-*", "nvidia-persistenced=595.71.05-*"],
        ),
        # modules of another branch are left over, and no library is there
        (
            {
                "nvidia_packages": packages("nvidia-kernel-open-dkms", version="590.48.01-1"),
                "nvidia_library": None,
                "nvidia_loaded": None,
                "nvidia_installed": "590.48.01",
            },
            ["libnvidia-ml1=595.*", "nvidia-persistenced=595.*"],
        ),
    ],
)
def test_what_is_missing_beside_an_installed_driver_is_of_its_version(facts, names):
    plan = driver_plan(host("serving", **facts))
    assert plan["change"] == "" and plan["findings"] == []
    assert set(names) <= set(plan["names"])


def test_a_key_of_a_mirror_is_told_with_its_variable():
    error = "the key at http://mirror/k.pub has the fingerprint A, expected is B"
    (finding,) = offer_findings(driver_plan(host(), repository_url="http://mirror/"), offer(error=error))
    assert error in finding and "Set nvidia_driver_repository_key_fingerprints" in finding


def test_what_is_asked_of_the_repository_covers_every_branch():
    assert driver_plan(host())["look"] == [
        "libnvidia-ml1",
        "nvidia-driver-cuda",
        "nvidia-driver-pinning-*",
        "nvidia-kernel-open-dkms",
        "nvidia-persistenced",
    ]
    for branch in ("580", "595"):
        assert {"libnvidia-compute", "libnvidia-compute-*"} <= set(
            driver_plan(host("ubuntu24.04"), "cuda", branch)["look"]
        )


# as APT of Debian 13 said it, NVIDIA/cuda-repo-management#39
SQV = (
    "OpenPGP signature verification failed: https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64  "
    "InRelease: Sub-process /usr/bin/sqv returned an error code (1), error message is: Signing key on "
    "EB693B3035CD5710E231E123A4B469963BF863CC is not bound: No binding signature at time 2026-01-29T20:38:48Z   because: "
    "Policy rejected non-revocation signature (PositiveCertification) requiring second pre-image resistance   because: "
    "SHA1 is not considered secure since 2026-02-01T00:00:00Z"
)


def test_an_apt_that_refuses_sha1_is_told_of():
    (finding,) = offer_findings(driver_plan(host("ubuntu26.04"), "cuda"), offer(error=SQV))
    assert "bound by SHA-1 signatures" in finding and "nvidia_driver_source to ubuntu" in finding
    (before,) = driver_plan(host("ubuntu26.04"), "cuda")["findings"]
    assert "Ubuntu 26.04 LTS (sqv) refuses" in before and "#44" in before
    checked = driver_plan(host("ubuntu26.04"), "cuda", repository_key_fingerprints=["A" * 40])
    assert checked["findings"] == [] == driver_plan(host("ubuntu26.04"))["findings"]


@pytest.mark.parametrize(
    ("commands", "lines"),
    [
        # Debian, and NVIDIA's 515 and 575
        (["/usr/bin/nvidia-persistenced --user nvpd"], ["/usr/bin/nvidia-persistenced --user nvpd --persistence-mode"]),
        # Ubuntu
        (
            ["/usr/bin/nvidia-persistenced --user nvidia-persistenced --no-persistence-mode --verbose"],
            ["/usr/bin/nvidia-persistenced --user nvidia-persistenced --verbose --persistence-mode"],
        ),
        (
            ["-/usr/bin/nvidia-persistenced -u other -g other --persistence-mode"],
            ["-/usr/bin/nvidia-persistenced -u other -g other --persistence-mode"],
        ),
        (
            ["/opt/bin/nvidia-persistenced --uvm-persistence-mode"],
            ["/opt/bin/nvidia-persistenced --uvm-persistence-mode --persistence-mode"],
        ),
    ],
)
def test_the_daemons_command_stays_its_packages_own(commands, lines):
    text = persistenced_drop_in(commands)
    assert [line.removeprefix("ExecStart=") for line in text.splitlines() if line.startswith("ExecStart=")] == [
        "",
        *lines,
    ]
    assert "[Unit]\nStopWhenUnneeded=no\n" in text


@pytest.mark.parametrize(
    ("kernel", "metas", "flavour"),
    [
        (
            "6.14.0-36-generic",
            {"generic": "6.8.0-60.63", "generic-hwe-24.04": "6.14.0-36.36~24.04.1"},
            "generic-hwe-24.04",
        ),
        ("6.8.0-60-generic", {"generic": "6.8.0-60.63", "generic-hwe-24.04": "6.14.0-36.36~24.04.1"}, "generic"),
        # updated since the boot
        (
            "6.14.0-33-generic",
            {"generic": "6.8.0-64.67", "generic-hwe-24.04": "6.14.0-36.36~24.04.1"},
            "generic-hwe-24.04",
        ),
        # its meta-package has gone on to the next series, which the next boot takes
        (
            "6.11.0-29-generic",
            {"generic": "6.8.0-64.67", "generic-hwe-24.04": "6.14.0-36.36~24.04.1"},
            "generic-hwe-24.04",
        ),
        (
            "6.5.0-45-generic",
            {"generic": "6.8.0-64.67", "generic-hwe-24.04": "6.14.0-36.36~24.04.1"},
            "generic",
        ),
        (
            "6.17.0-5-generic",
            {"generic": "6.8.0-64.67", "generic-hwe-24.04": "6.14.0-36.36~24.04.1"},
            "generic-hwe-24.04",
        ),
        ("5.15.0-160-generic", {"generic": "5.15.0.160.159", "generic-hwe-22.04": "6.8.0.60.63~22.04.1"}, "generic"),
        (
            "6.8.0-60-generic",
            {"generic": "5.15.0.160.159", "generic-hwe-22.04": "6.8.0-60.63~22.04.1"},
            "generic-hwe-22.04",
        ),
        ("6.8.0-60-lowlatency", {"generic": "6.8.0-60.63", "lowlatency": "6.8.0-60.63"}, "lowlatency"),
        ("6.14.0-1010-oem", {"oem-24.04d": "6.14.0-1010.10", "oem-24.04": "6.11.0-1020.20"}, "oem-24.04d"),
        ("6.8.0-60-generic", {"generic": "6.8.0-60.63", "generic-hwe-24.04": "6.8.0-60.63"}, "generic"),
        ("6.8.0-60-generic", {}, "generic"),
        ("6.8.0-60-generic", {"virtual": "6.8.0-60.63"}, "generic"),
    ],
)
def test_modules_are_for_the_kernel_that_runs(kernel, metas, flavour):
    found = {f"linux-image-{name}": {"version": version, "held": False} for name, version in metas.items()}
    info = host("ubuntu24.04", kernel=kernel, kernel_metas=found)
    assert driver_plan(info)["packages"][-1] == f"linux-modules-nvidia-580-server-open-{flavour}"


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
            {"nvidia_packages__libnvidia-ml1__version": "595.91.07-1"},
            "auto",
            [
                "library is 595.91.07, its kernel module 595.71.05",
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
        ("serving", {"nvidia_installed": "595.91.07"}, "driver 595.71.05 is loaded, 595.91.07 is installed"),
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


UPGRADED = {"name": "serving", "nvidia_installed": "595.91.07"}
IDLE = {**UPGRADED, "engines": []}
HELD = {"name": "ubuntu26.04"}


@pytest.mark.parametrize(
    ("facts", "wish", "stays"),
    [
        ({}, {}, True),
        ({}, {"branch": "590"}, False),
        # within the branch as well
        ({}, {"version": "595.91.07"}, False),
        ({"nvidia_installed": "595.91.07"}, {}, False),
        # nothing of the driver is installed but its module is loaded: what a run installs is of the default branch
        ({"nvidia_packages": {}, "nvidia_loaded": "570.172.08", "nvidia_installed": "570.172.08"}, {}, False),
        ({"nvidia_loaded": "570.172.08", "nvidia_installed": "570.172.08"}, {"source": "none"}, True),
        ({"nvidia_loaded": None, "nvidia_installed": None, "nvidia_packages": {}}, {}, False),
    ],
)
def test_an_image_is_judged_by_a_driver_that_stays(facts, wish, stays):
    info = host("serving", **facts)
    assert driver_stays(info, driver_plan(info, **wish), info["nvidia_loaded"]) is stays


@pytest.mark.parametrize(
    ("facts", "wish", "permission", "words"),
    [
        ({"name": "serving"}, {}, {}, None),
        (IDLE, {}, {}, ["driver 595.71.05 is loaded, 595.91.07 is installed", "is not set", "true", "false goes on"]),
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
        (None, None, None),
        (None, "590.48.01", None),
        (None, "590", ["590", "no version of any branch"]),
        (None, "580.60.01", ["580.65.06"]),
        ("580", None, None),
        (595, None, None),
        ("595", "595.58.03", None),
        ("570", None, ["570", '"580"', "CUDA 13"]),
        ("latest", None, ["latest"]),
        ("580", "590.44.01", ["no version of nvidia_driver_branch 580"]),
        ("580", "580.82", None),
        ("580", "580.60.01", ["580.65.06"]),
        # YAML without quotes
        (None, 595.80, ["number 595.8", "quotes"]),
        ("595", 595.80, ["quotes"]),
    ],
)
def test_branch_and_version(branch, version, words):
    finding = branch_finding(branch, version)
    if words is None:
        assert finding == ""
    for word in words or []:
        assert word in finding
