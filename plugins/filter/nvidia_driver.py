# SPDX-License-Identifier: Apache-2.0
"""What to do about a box's NVIDIA driver: tables, and pure functions of what was seen and what is wanted."""

from __future__ import annotations

import fnmatch
import re

# Where the driver comes from when nobody says: Ubuntu's archive has signed modules, which need no key enrolled under
# Secure Boot; Debian's own drivers are too old for CUDA 13.
DEFAULT_SOURCE = {"ubuntu": "ubuntu", "debian": "cuda"}

# What a box without a driver gets. R580 is NVIDIA's long-term branch, R595 its production branch; its repository for
# Debian 13 begins with 590 (NVIDIA/cuda-repo-management#38, #40), those for Debian 12 and Ubuntu have 580.
BRANCH = "580"
BRANCHES = {("cuda", "debian", "13"): "595"}

CUDA_REPOSITORY = "https://developer.download.nvidia.com/compute/cuda/repos/"
# A repository keeps the key that it began with, so only Debian 13's has the new one (cuda-repo-management#30, #39).
# Fingerprints: SIGNATURES.md of that project; the new one as several installers pin it.
CUDA_KEYS = {
    "3bf863cc.pub": "EB693B3035CD5710E231E123A4B469963BF863CC",
    "8793F200.pub": "02182E60104FCDC26EAE1B8597A5D4CB8793F200",
}
CUDA_KEY = "3bf863cc.pub"
CUDA_KEY_BY_RELEASE = {("debian", "13"): "8793F200.pub"}
# Their APT asks sqv, which refuses that key's SHA-1 signatures since February 2026 (#39, #44).
REFUSES_SHA1 = [("ubuntu", "26.04")]

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
# The library of NVML and the kernel modules, in every flavour of the driver that Debian, Ubuntu and NVIDIA package.
LIBRARY = re.compile(r"^libnvidia-(.*-)?(ml1|compute(-\d+)?(-server)?)$")
MODULES = re.compile(r"^(nvidia-(?!headless)(.*-)?dkms(-.*)?|linux-modules-nvidia-.*)$")
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
    """What Ubuntu's meta-packages of the running kernel are named by, "generic" or "generic-hwe-24.04".

    Both may be installed; the versions tell which one has brought the kernel that runs.
    """
    flavour = info["kernel"].split("-", 2)[-1]
    running = numbers_in(info["kernel"])[:4]
    metas = {
        name[len("linux-image-") :]: numbers_in(found["version"])[:4]
        for name, found in info["kernel_metas"].items()
        if name == f"linux-image-{flavour}" or name.startswith(f"linux-image-{flavour}-")
    }
    # 6.14.0-36 is of 6.14.0-36.36; a newer one may wait for its reboot
    for length in (4, 3, 2):
        found = [name for name, version in metas.items() if version[:length] == running[:length]]
        if found:
            return min(found, key=len)
    # a kernel whose meta-package has gone on to the next series, or one that was installed by hand
    later = [name for name, version in metas.items() if version >= running]
    return min(later, key=metas.get) if later else max(metas, key=metas.get, default=flavour)


def numbers_in(text):
    return [int(part) for part in re.findall(r"\d+", text)]


def driver_branch(info, source, branch=None, version=None):
    """The branch that is wanted: the one asked for, else the installed driver's if that will do, else the release's."""
    installed = next((found["version"] for name, found in info["nvidia_packages"].items() if LIBRARY.match(name)), None)
    if branch:
        return str(branch)
    if version:
        return version.split(".")[0]
    if installed and numbers(upstream(installed))[0] >= MINIMUM_BRANCH:
        return upstream(installed).split(".")[0]
    return default_branch(info, source)


def default_branch(info, source):
    return BRANCHES.get((source, info["os"]["id"], info["os"]["version_id"]), BRANCH)


def driver_plan(
    info,
    source="auto",
    branch=None,
    version=None,
    repository_url=None,
    repository_key_url=None,
    repository_key_fingerprints=None,
):
    """What role nvidia_driver works from.

    `info` is a result of the module host_info, the rest are the role's variables. Returns a dict:

    source      ubuntu, cuda or none
    branch      the branch that is wanted
    url, key_url, key_fingerprints  of the CUDA repository, or null
    look        patterns of the packages that tell what the repository offers
    packages    names that must be installed; of the CUDA repository's the first is its pin, to be installed first
    missing     those of them that are not
    names       the same as APT takes them, with the wanted version
    pin         text of the preferences file that keeps an exact version, or null
    library     version of the installed driver library without the packaging's revision, or null
    change      why the installed driver is to be exchanged for another, or ""
    unheld      installed packages that an upgrade could change
    findings    sentences about what must not be; empty when all is well
    """
    os_id, release = info["os"]["id"], (info["os"]["id"], info["os"]["version_id"])
    source = DEFAULT_SOURCE.get(os_id, "none") if source == "auto" else source
    installed = {name: found["version"] for name, found in info["nvidia_packages"].items()}
    library = next((upstream(found) for name, found in installed.items() if LIBRARY.match(name)), None)
    by_default = "" if branch else " by default, as CUDA 13 needs it"
    branch = driver_branch(info, source, branch, version)
    plan = {
        "source": source,
        "branch": branch,
        "url": None,
        "key_url": None,
        "key_fingerprints": None,
        "pin": None,
        "library": library,
        "change": "",
        "findings": [],
    }
    if source == "none":
        return {**plan, "look": [], "packages": [], "missing": [], "names": [], "unheld": []}

    if source == "ubuntu":
        templates = ARCHIVE_PACKAGES
        look = templates
        if os_id != "ubuntu":
            plan["findings"].append(
                f"nvidia_driver_source is ubuntu, but it runs {info['os']['pretty_name']}; set it to cuda, or to auto"
            )
    else:
        before = os_id == "ubuntu" and int(branch) < 590
        templates = ["nvidia-driver-pinning-{branch}", *CUDA_PACKAGES["ubuntu before 590" if before else os_id]]
        look = templates + (CUDA_PACKAGES["ubuntu"] + CUDA_PACKAGES["ubuntu before 590"] if os_id == "ubuntu" else [])
        key = CUDA_KEY_BY_RELEASE.get(release, CUDA_KEY)
        plan["url"] = repository_url or f"{CUDA_REPOSITORY}{''.join(release).replace('.', '')}/x86_64/"
        plan["key_url"] = repository_key_url or plan["url"] + key
        plan["key_fingerprints"] = repository_key_fingerprints or [CUDA_KEYS[key]]
    flavour = kernel_flavour(info)
    packages = [name.format(branch=branch, flavour=flavour) for name in templates]
    missing = [name for name in packages if name not in installed]

    if library and version and library != version:
        plan["change"] = f"{by_what(library, installed)}, nvidia_driver_version is {version}"
    elif library and library.split(".")[0] != branch:
        plan["change"] = f"{by_what(library, installed)}, nvidia_driver_branch is {branch}{by_default}"
    elif library or info["nvidia_loaded"]:
        plan["change"] = other_flavour(library or info["nvidia_loaded"], source, packages, branch, installed)
    plan["findings"] += mixed(info, source, installed) + unpackaged(info, source, installed)
    if (missing or plan["change"]) and source == "cuda" and release in REFUSES_SHA1 and not repository_key_fingerprints:
        plan["findings"].append(
            f"nvidia_driver_source is cuda, and APT of {info['os']['pretty_name']} (sqv) refuses NVIDIA's key "
            f"{CUDA_KEYS[CUDA_KEY]}, as it is bound by SHA-1 signatures (NVIDIA/cuda-repo-management#39, #44); set "
            "nvidia_driver_source to ubuntu, or set nvidia_driver_repository_key_url and "
            "nvidia_driver_repository_key_fingerprints to another key of that repository that you have checked"
        )

    module = info["nvidia_installed"]
    if library and module and library != module and not plan["change"] and not plan["findings"]:
        modules = [name for name in packages if MODULES.match(name)]
        plan["findings"].append(
            f"the driver's library is {library}, its kernel module {module}, with which NVML does not answer; "
            f"apt-get update && apt-get install --reinstall --allow-change-held-packages {' '.join(modules)}"
        )

    # The pin is a package of its own versions, the modules' have the kernel's.
    versioned = re.compile(r"^(?!nvidia-driver-pinning|linux-modules)")
    # What is missing beside an installed driver is of its version: a newer one would bring its library along, under a
    # module that is loaded.
    there = library or module or ""
    exact = version or (there if there.split(".")[0] == branch and not plan["change"] else "")
    pattern = f"{exact}-*" if exact else f"{branch}.*"
    # A kernel that comes without its modules would boot without a driver, so the two are held together.
    prebuilt = any(name.startswith("linux-modules-nvidia-") for name in installed)
    held = {**info["nvidia_packages"], **(info["kernel_metas"] if prebuilt else {})}
    return {
        **plan,
        "look": sorted({name.format(branch="*", flavour="*") for name in look}),
        "packages": packages,
        "missing": missing,
        "names": [f"{name}={pattern}" if versioned.match(name) else name for name in packages],
        "pin": preferences(version) if version else None,
        "unheld": [name for name in held if not held[name]["held"]],
    }


def by_what(library, installed):
    parts = [name for name in installed if LIBRARY.match(name) or MODULES.match(name)]
    return f"driver {library} is installed ({', '.join(parts)})"


def other_flavour(library, source, packages, branch, installed):
    """Why installing `packages` would replace packages of another flavour of the same driver, or "".

    Flavours of one version replace each other's files (server or desktop, open or proprietary, NVIDIA's or the
    distribution's), so this is an exchange, though the version stays.
    """
    if source == "ubuntu":
        # the same modules for other kernels, and those that DKMS builds, are no other flavour
        ours = [
            f"libnvidia-compute-{branch}-server",
            f"linux-modules-nvidia-{branch}-server-open-",
            f"nvidia-dkms-{branch}-server-open",
        ]
    else:
        ours = packages
    for kind in (LIBRARY, MODULES):
        found = [name for name in installed if kind.match(name)]
        if found and not any(
            name == one or (one[-1] == "-" and name.startswith(one)) for name in found for one in ours
        ):
            return (
                f"{by_what(library, installed)}, another flavour than nvidia_driver_source {source} takes "
                f"({', '.join(packages)}) and would be exchanged for it; nvidia_driver_source none keeps it"
            )
    return ""


def unpackaged(info, source, installed):
    """Sentences about a driver that did not come as packages which the role knows: installing would overwrite it."""
    library, uninstaller, module = info["nvidia_library"], info["nvidia_uninstaller"], info["nvidia_installed"]
    keep = f"or set nvidia_driver_source, which is {source}, to none: it then stays as it is"
    if library and library["package"] and not LIBRARY.match(library["package"]):
        return [
            f"a driver {library['version']} is installed whose library {library['path']} belongs to the package "
            f"{library['package']}; apt-get purge {library['package']} and reboot, {keep}"
        ]
    if library and not library["package"]:
        how = (
            f"by NVIDIA's .run file and not by packages; run {uninstaller} and reboot"
            if uninstaller
            else f"and its library {library['path']} belongs to no package; remove it as it was installed and reboot"
        )
        return [f"a driver {library['version']} is installed {how}, {keep}"]
    if module and not installed:
        how = f"run {uninstaller}" if uninstaller else "remove it (modinfo -n nvidia says where it is)"
        return [f"NVIDIA's kernel module {module} is installed and belongs to no package; {how} and reboot, {keep}"]
    return []


def offer_findings(plan, offer):
    """Sentences about what `plan`, a driver_plan, wants and the repository does not have; empty when it has all.

    `offer` is a result of the module apt_offer: `error`, a sentence or null, and `versions` by package.
    """
    where = plan["url"] or "the distribution's archive"
    if offer["error"]:
        hint = (
            " Its key is bound by SHA-1 signatures, which this release's APT (sqv) refuses: set nvidia_driver_source "
            "to ubuntu where the box is Ubuntu, or take a repository with another key"
            if "SHA1" in offer["error"]
            else ""
        )
        if "fingerprint" in offer["error"]:
            hint = " Set nvidia_driver_repository_key_fingerprints where the key of your mirror is another"
        return [f"{where} cannot be used: {offer['error']}.{hint}".removesuffix(".")]
    absent = []
    for name, wanted in zip(plan["packages"], plan["names"], strict=True):
        pattern = wanted.partition("=")[2] or "*"
        if name not in plan["missing"] and not plan["change"]:
            continue
        if not any(fnmatch.fnmatchcase(version, pattern) for version in offer["versions"].get(name, [])):
            absent.append(wanted)
    if not absent:
        return []
    offered = offered_branches(offer["versions"])
    branches = "; ".join(f"{branch}: {', '.join(versions)}" for branch, versions in offered.items())
    return [
        f"{where} does not offer {', '.join(absent)}. It offers {branches or 'no driver for CUDA 13'}. Set "
        f"nvidia_driver_branch, which is wanted as {plan['branch']}, and nvidia_driver_version to what is offered"
    ]


def offered_branches(versions):
    """The driver's versions by branch, newest first, that a repository has and that CUDA 13 can use."""
    found = {
        upstream(version)
        for name in versions
        if re.fullmatch(r"nvidia-driver-cuda|libnvidia-compute(-\d+)?|nvidia-headless-no-dkms-\d+-server-open", name)
        for version in versions[name]
    }
    branches = {}
    for version in sorted(found, key=numbers, reverse=True):
        if numbers(version) >= numbers(CUDA_FLOORS[13]):
            branches.setdefault(version.split(".")[0], []).append(version)
    return branches


def persistenced_drop_in(commands):
    """Text of a drop-in for nvidia-persistenced.service, of whose own file `commands` are the ExecStart lines.

    The command stays as the package has it, its user above all: which one exists is that package's business. Only
    persistence mode is turned on, which Ubuntu's command turns off; and the daemon outlives those who wanted it, which
    Ubuntu's does not.
    """
    lines = []
    for command in commands:
        words = [word for word in command.split() if word not in ("--no-persistence-mode", "--persistence-mode")]
        lines.append("ExecStart=" + " ".join([*words, "--persistence-mode"]))
    return "\n".join(
        ["# Written by tandem.", "[Unit]", "StopWhenUnneeded=no", "", "[Service]", "ExecStart=", *lines, ""]
    )


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


def driver_stays(info, plan, loaded):
    """Whether `loaded`, the version of the driver that runs or null, is what a run by `plan` leaves, so that an image
    can be judged by it."""
    if plan["source"] == "none":
        return True
    exchanged = plan["change"] or driver_reboot_reason(info)
    return not exchanged and (loaded or "").split(".")[0] == plan["branch"]


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
        f"GeForce cards have no forward compatibility; set nvidia_driver_branch to {branch} or newer, or take an image "
        "for an older CUDA"
    )


def branch_finding(branch=None, version=None):
    """What is wrong with the wish for `branch` and, in it, for an exact `version`, either of them null; or ""."""
    if branch and (not re.fullmatch(r"\d{3}", str(branch)) or int(branch) < MINIMUM_BRANCH):
        known = ", ".join(f"{name} (CUDA {cuda})" for name, cuda in BRANCH_CUDA.items())
        return (
            f"nvidia_driver_branch is {branch}; vLLM's images are for CUDA 13, which needs {CUDA_FLOORS[13]} or newer. "
            f'Leave it out, or set it to "{MINIMUM_BRANCH}" or newer; known branches are {known}'
        )
    if version and not isinstance(version, str):
        return (
            f'nvidia_driver_version is the number {version}, and may have lost a zero; write it in quotes, "580.95.05"'
        )
    if version and not re.fullmatch(rf"{branch or '[0-9]{3}'}(\.\d+){{1,2}}", version):
        of = f"nvidia_driver_branch {branch}" if branch else "any branch"
        example = f"{branch or MINIMUM_BRANCH}.95.05"
        return (
            f"nvidia_driver_version is {version}, which is no version of {of}; "
            f"set it as {example}, in the branch of nvidia_driver_branch or with that left out"
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
            "driver_stays": driver_stays,
            "host_need": host_need,
            "needs_table": needs_table,
            "offer_findings": offer_findings,
            "persistenced_drop_in": persistenced_drop_in,
        }
