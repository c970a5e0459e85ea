# SPDX-License-Identifier: Apache-2.0
"""What to do about a box's NVIDIA driver: tables, and pure functions of what was seen and what is wanted."""

from __future__ import annotations

import re

# Where the driver comes from when nobody says: Ubuntu's archive has signed modules, which need no key enrolled under
# Secure Boot; Debian's own drivers are too old for CUDA 13.
DEFAULT_SOURCE = {"ubuntu": "ubuntu", "debian": "cuda"}

CUDA_REPOSITORY = "https://developer.download.nvidia.com/compute/cuda/repos/"
CUDA_KEY = {"ubuntu": "3bf863cc.pub", "debian": "8793F200.pub"}

# Compute only: no X server and no desktop libraries come along. Names as NVIDIA's driver installation guide has them
# ("compute-only"); from 590 on its packages for Ubuntu no longer carry the branch. Only Debian's are tested.
CUDA_PACKAGES = {
    "debian": ["nvidia-driver-cuda", "nvidia-kernel-open-dkms", "libnvidia-ml1", "nvidia-persistenced"],
    "ubuntu": ["libnvidia-compute", "nvidia-dkms-open", "nvidia-persistenced"],
    "ubuntu before 590": [
        "libnvidia-compute-{branch}",
        "nvidia-dkms-{branch}-open",
        "nvidia-compute-utils-{branch}",
        "nvidia-utils-{branch}",
    ],
}
# packages.ubuntu.com, sources nvidia-graphics-drivers-580-server and linux-restricted-modules. The meta-package of the
# flavour brings the modules that Canonical built and signed for that flavour's kernels.
ARCHIVE_PACKAGES = [
    "nvidia-headless-no-dkms-{branch}-server-open",
    "nvidia-utils-{branch}-server",
    "linux-modules-nvidia-{branch}-server-open-{flavour}",
]

# First driver that runs programs of a CUDA major version (CUDA toolkit release notes, minor version compatibility), and
# the CUDA version that a branch is made for.
CUDA_FLOORS = {12: "525.60.13", 13: "580.65.06"}
BRANCH_CUDA = {"580": "13.0", "590": "13.1", "595": "13.2"}
MINIMUM_BRANCH = 580

FOREIGN_REPOSITORY = re.compile(r"developer\.download\.nvidia\.com/compute/cuda|/graphics-drivers/ppa")
LIBRARY = re.compile(r"^(libnvidia-ml1|libnvidia-compute(-\d+)?(-server)?)$")
RANK = {"nothing": 0, "live": 1, "daemon": 2, "reboot": 3}

# Written by role nvidia_driver for every source but `none`.
FILES = ["/etc/modprobe.d/tandem-nvidia.conf", "/etc/apt/apt.conf.d/52tandem-nvidia"]


def numbers(version):
    """(580, 95, 5) for "580.95.05-1": versions compare as numbers, not as texts."""
    return tuple(int(part) for part in re.match(r"\d+(\.\d+)*", version).group().split("."))


def upstream(version):
    """ "580.95.05" for "580.95.05-0ubuntu0.24.04.3"."""
    return version.split(":")[-1].split("-")[0]


def kernel_flavour(info):
    """What Ubuntu's installed kernel meta-packages are named by, "generic" or "generic-hwe-24.04"."""
    flavour = info["kernel"].split("-", 2)[-1]
    metas = [name[len("linux-image-") :] for name in info["kernel_metas"] if name.startswith("linux-image-")]
    longer = [name for name in metas if name.startswith(flavour + "-")]
    return longer[0] if longer and flavour not in metas else flavour


def driver_plan(info, source="auto", branch="580", version=None, repository_url=None, repository_key_url=None):
    """What role nvidia_driver works from.

    `info` is a result of the module host_info, the rest are the role's variables. Returns a dict:

    source      ubuntu, cuda or none
    url, key_url  of the CUDA repository, or null
    packages    names that must be installed; of the CUDA repository's the first is its pin, to be installed first
    missing     those of them that are not
    names       the same as APT takes them, with the wanted version
    pin         text of the preferences file that keeps an exact version, or null
    library     version of the installed driver library without the packaging's revision, or null
    change      why the installed driver is to be exchanged for another, or ""
    unheld      installed packages that an upgrade could change
    findings    sentences about what must not be; empty when all is well
    """
    os_id = info["os"]["id"]
    source = DEFAULT_SOURCE.get(os_id, "none") if source == "auto" else source
    installed = {name: found["version"] for name, found in info["nvidia_packages"].items()}
    library = next((upstream(found) for name, found in installed.items() if LIBRARY.match(name)), None)
    plan = {
        "source": source,
        "url": None,
        "key_url": None,
        "pin": None,
        "library": library,
        "change": "",
        "findings": [],
    }
    if source == "none":
        return {**plan, "packages": [], "missing": [], "names": [], "unheld": []}

    if source == "ubuntu":
        packages = ARCHIVE_PACKAGES
        if os_id != "ubuntu":
            plan["findings"].append(
                f"nvidia_driver_source is ubuntu, but it runs {info['os']['pretty_name']}; set it to cuda, or to auto"
            )
    else:
        before = os_id == "ubuntu" and int(branch) < 590
        packages = ["nvidia-driver-pinning-{branch}", *CUDA_PACKAGES["ubuntu before 590" if before else os_id]]
        release = os_id + info["os"]["version_id"].replace(".", "")
        plan["url"] = repository_url or f"{CUDA_REPOSITORY}{release}/x86_64/"
        plan["key_url"] = repository_key_url or plan["url"] + CUDA_KEY[os_id]
    packages = [name.format(branch=branch, flavour=kernel_flavour(info)) for name in packages]
    plan["findings"] += mixed(info, source, installed)

    if library and version and library != version:
        plan["change"] = f"driver {library} is installed, nvidia_driver_version is {version}"
    elif library and library.split(".")[0] != branch:
        plan["change"] = f"driver {library} is installed, nvidia_driver_branch is {branch}"

    module = info["nvidia_installed"]
    if library and module and library != module and not plan["change"]:
        modules = [
            name for name in packages if "dkms" in name.replace("no-dkms", "") or name.startswith("linux-modules")
        ]
        plan["findings"].append(
            f"the driver's library is {library}, its kernel module {module}, with which NVML does not answer; "
            f"apt-get update && apt-get install --reinstall --allow-change-held-packages {' '.join(modules)}"
        )

    # The pin is a package of its own versions, the modules' have the kernel's.
    versioned = re.compile(r"^(?!nvidia-driver-pinning|linux-modules)")
    pattern = f"{version}-*" if version else f"{branch}.*"
    # A kernel that comes without its modules would boot without a driver, so the two are held together.
    prebuilt = any(name.startswith("linux-modules-nvidia-") for name in installed)
    held = {**info["nvidia_packages"], **(info["kernel_metas"] if prebuilt else {})}
    return {
        **plan,
        "packages": packages,
        "missing": [name for name in packages if name not in installed],
        "names": [f"{name}={pattern}" if versioned.match(name) else name for name in packages],
        "pin": preferences(version) if version else None,
        "unheld": [name for name in held if not held[name]["held"]],
    }


def preferences(version):
    """Text for /etc/apt/preferences.d: the driver stays at `version`, also against a newer one in the same branch."""
    return (
        f"Explanation: written by tandem, nvidia_driver_version is {version}\n"
        "Package: nvidia-* libnvidia-* cuda-drivers*\n"
        f"Pin: version {version}-*\n"
        "Pin-Priority: 1001\n"
    )


def mixed(info, source, installed):
    """Sentences about drivers of two origins: they replace each other's files, and an upgrade takes from either."""
    findings = []
    for found in info["apt_sources"]:
        if FOREIGN_REPOSITORY.search(found["uri"]) and (source == "ubuntu" or "graphics-drivers" in found["uri"]):
            findings.append(
                f"{found['file']} brings drivers of another origin ({found['uri']}), nvidia_driver_source is {source}; "
                "remove the file, or set nvidia_driver_source to cuda and keep only NVIDIA's repository"
            )
    archive = [
        name for name, found in installed.items() if source == "cuda" and re.search(r"ubuntu0\.|-server", found + name)
    ]
    if archive:
        findings.append(
            f"drivers of Ubuntu's archive are installed ({', '.join(archive)}), nvidia_driver_source is cuda; "
            f"apt-get purge them, or set nvidia_driver_source to ubuntu"
        )
    return findings


def driver_reboot_reason(info):
    """Why the NVIDIA driver of `info`, a result of the module host_info, needs a reboot, or an empty string."""
    loaded, installed, kernel = info["nvidia_loaded"], info["nvidia_installed"], info["kernel"]
    holders = sorted({card["driver"] for card in info["gpus_on_pci"] if card["driver"] not in (None, "nvidia")})
    if holders and not loaded:
        return f"{', '.join(holders)} holds the cards, the NVIDIA driver is not loaded"
    if loaded and installed and loaded != installed:
        return f"driver {loaded} is loaded, {installed} is installed"
    if not loaded and not installed and info["nvidia_kernels"] and kernel not in info["nvidia_kernels"]:
        return f"the NVIDIA module is installed for kernel {', '.join(info['nvidia_kernels'])}, {kernel} is running"
    return ""


def driver_refusal(info, plan, allow_reboot=None, allow_interruption=False, local=False):
    """Why nothing may be done about the driver now, one sentence with the way out; an empty string when all is allowed.

    `allow_reboot` is the role's three-state variable: null has decided nothing, false forbids, true permits. A reboot
    that the box needs already may be put off with false while a driver is loaded; an exchange of the driver needs true,
    as it breaks NVML until the reboot. A serving engine is interrupted only with `allow_interruption` as well. `local`
    is a box that runs this play.
    """
    change, loaded = plan["change"], info["nvidia_loaded"]
    why = change or driver_reboot_reason(info)
    if not why or (allow_reboot is False and loaded and not change):
        return ""
    if not allow_reboot:
        decided = "not set" if allow_reboot is None else "false"
        if change:
            way_out = "set it to true, or take the wish back"
        elif loaded:
            way_out = "true reboots the box, false goes on with the loaded driver; or reboot it yourself and run again"
        else:
            way_out = "true reboots the box; or reboot it yourself and run again"
        return f"a reboot is needed: {why}. nvidia_driver_allow_reboot is {decided}: {way_out}"
    if info["engines"] and not allow_interruption:
        return (
            f"a reboot is needed: {why}. It would interrupt {', '.join(info['engines'])}, which serves; "
            "nvidia_driver_allow_reboot alone does not permit that: add -e tandem_allow_interruption=true"
        )
    if local:
        return f"a reboot is needed: {why}. The connection is local, a reboot would end this run; reboot it yourself"
    return ""


def cuda_finding(image_cuda, driver):
    """Why an image for CUDA `image_cuda` ("13.0") does not run on driver `driver` ("580.95.05"), or an empty string."""
    major = int(image_cuda.split(".")[0])
    if major > max(CUDA_FLOORS):
        known = ", ".join(map(str, CUDA_FLOORS))
        return (
            f"the image is made for CUDA {image_cuda}; which driver that needs is not known here (known: CUDA {known})"
        )
    floor = CUDA_FLOORS.get(major, min(CUDA_FLOORS.values()))
    if numbers(driver) >= numbers(floor):
        return ""
    branch = floor.split(".")[0]
    return (
        f"the image is made for CUDA {image_cuda}, which needs driver {floor} or newer, driver {driver} is loaded, and "
        f"GeForce cards have no forward compatibility; set nvidia_driver_branch to {branch}, or take an image for an "
        "older CUDA"
    )


def branch_finding(branch, version=None):
    """What is wrong with the wish for `branch` and, in it, for an exact `version` or null; or an empty string."""
    if not re.fullmatch(r"\d{3}", str(branch)) or int(branch) < MINIMUM_BRANCH:
        known = ", ".join(f"{name} (CUDA {cuda})" for name, cuda in BRANCH_CUDA.items())
        return (
            f"nvidia_driver_branch is {branch}; vLLM's images are for CUDA 13, which needs {CUDA_FLOORS[13]} or newer. "
            f'Set it to "{MINIMUM_BRANCH}"; known branches are {known}'
        )
    if version and not re.fullmatch(rf"{branch}(\.\d+){{1,2}}", version):
        return (
            f"nvidia_driver_version is {version}, which is no version of nvidia_driver_branch {branch}; "
            f"set both alike, as {branch} and {branch}.95.05"
        )
    if version and numbers(version) < numbers(CUDA_FLOORS[13]):
        return (
            f"nvidia_driver_version is {version}; vLLM's images are for CUDA 13, which needs {CUDA_FLOORS[13]} or newer"
        )
    return ""


def host_need(info, driver, daemon=(), live=()):
    """What the box below the engine needs: {"need": nothing | live | daemon | reboot, "reasons": [sentence, ...]}.

    `driver` is a driver_plan of `info`; `daemon` and `live` are reasons that other roles have found for a restart of
    Docker and for changes that interrupt nobody. The greatest need counts, the reasons of all are given.
    """
    found = [("daemon", reason) for reason in daemon] + [("live", reason) for reason in live]
    reboot = driver["change"] or driver_reboot_reason(info)
    if reboot:
        found.append(("reboot", reboot))
    if info["docker"]["version"] and info["docker"]["config_is_newer"]:
        found.append(("daemon", "daemon.json is newer than the running Docker"))
    if driver["missing"]:
        found.append(("live", f"to install: {', '.join(driver['missing'])}"))
    if driver["unheld"]:
        found.append(("live", f"not held: {', '.join(driver['unheld'])}"))
    if driver["source"] != "none":
        absent = [path for path in FILES if path in info["paths"] and not info["paths"][path]["exists"]]
        if absent:
            found.append(("live", f"to write: {', '.join(absent)}"))
    found.sort(key=lambda pair: -RANK[pair[0]])
    return {"need": found[0][0] if found else "nothing", "reasons": [reason for _, reason in found]}


def needs_table(rows):
    """A table as text; `rows` are dicts with box, need, engine and reasons (a list, one line each)."""
    lines = [("box", "host needs", "engine needs", "because")]
    for row in rows:
        first, *others = row["reasons"] or [""]
        lines.append((row["box"], row["need"], row["engine"], first))
        lines += [("", "", "", other) for other in others]
    widths = [max(map(len, column)) for column in list(zip(*lines, strict=True))[:3]] + [0]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


class FilterModule:
    """Ansible's entry point."""

    def filters(self):
        return {
            "branch_finding": branch_finding,
            "cuda_finding": cuda_finding,
            "driver_plan": driver_plan,
            "driver_reboot_reason": driver_reboot_reason,
            "driver_refusal": driver_refusal,
            "host_need": host_need,
            "needs_table": needs_table,
        }
