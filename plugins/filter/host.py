# SPDX-License-Identifier: Apache-2.0
"""What stands in the way of serving on a box: pure functions of what was seen (module host_info) and what is wanted."""

from __future__ import annotations

import hashlib
from pathlib import Path

# Releases for which NVIDIA's driver and a Docker with CDI can be had.
SUPPORTED = {"debian": ["12", "13"], "ubuntu": ["22.04", "24.04", "26.04"]}

# Seconds by which a clock may be wrong before certificates and package indexes are taken for invalid.
CLOCK_TOLERANCE = 60

# Sources of a driver that is built on the box, for which it needs headers and, under Secure Boot, a key of its own.
BUILT = ("cuda",)


def host_findings(info, gpus=2, memory_gib=30, space_gib=None, driver_source="cuda", now=None):
    """Sentences about `info`, a result of the module host_info: what is wrong, what is wanted and the way out.

    gpus           NVIDIA cards wanted, of one kind; a card of another kind beside them is only told of
    memory_gib     compared with 5 % to spare, as firmware keeps some of what is fitted
    space_gib      GiB that must be free, by path in info["paths"]; paths on one file system are added up
    driver_source  ubuntu, cuda or none: what a driver_plan says
    now            the controller's time in seconds, against which the box's clock is held; null does not

    An empty list means that the box is fit.
    """
    findings = system(info) + cards(info["gpus_on_pci"], int(gpus))
    if not info["nvidia_loaded"] and driver_source in BUILT:
        findings += building(info)
    findings += space(info["paths"], space_gib or {})
    has_gib = info["memory_mib"] / 1024
    if has_gib < 0.95 * float(memory_gib):
        findings.append(
            f"it has {has_gib:.0f} GiB of memory, host_preflight_memory_gib is {memory_gib}; add some, or lower it"
        )
    if now and abs(info["time"] - now) > CLOCK_TOLERANCE:
        findings.append(
            f"its clock differs by {abs(info['time'] - now):.0f} s from this machine's, so certificates and package "
            "indexes may count as invalid; timedatectl set-ntp true"
        )
    return findings + docker(info["docker"]) + sources(info)


def system(info):
    releases = ", ".join(f"{name} {release}" for name in SUPPORTED for release in SUPPORTED[name])
    findings = []
    if info["os"]["version_id"] not in SUPPORTED.get(info["os"]["id"], []):
        findings.append(f"it runs {info['os']['pretty_name'] or 'an unknown system'}; install one of {releases}")
    if info["architecture"] != "x86_64":
        findings.append(f"its architecture is {info['architecture']}; x86_64 is needed")
    return findings


def engine_cards(found, wanted):
    """(cards that count, the others): those of the kind of which there are `wanted`, else of the most frequent one."""
    kinds = {}
    for card in found:
        kinds.setdefault(card["device"], []).append(card)
    counting = max(kinds.values(), key=lambda kind: (len(kind) == wanted, len(kind), kind[0]["device"]), default=[])
    return counting, [card for card in found if card not in counting]


def named(cards):
    return ", ".join(f"{card['slot']} (PCI device 10de:{card['device'].removeprefix('0x')})" for card in cards)


def cards(found, wanted):
    counting, others = engine_cards(found, wanted)
    if len(counting) == wanted:
        return []
    kinds = f" of one kind, and of others {named(others)}" if others else ""
    way_out = (
        f"an engine's cards are of one kind: fit one more of it, or set host_preflight_gpus to {len(counting)}"
        if others
        else "check seating, power and the BIOS (Above 4G Decoding), or set host_preflight_gpus to what the box has"
    )
    return [f"the PCI bus shows {len(counting)} NVIDIA card(s){kinds}, host_preflight_gpus is {wanted}; {way_out}"]


def building(info):
    """A driver that DKMS builds needs headers, now and after each kernel update, and a key that the firmware trusts."""
    findings, kernel = [], info["kernel"]
    metas = [name for name in info["kernel_metas"] if "-image" in name]
    absent = [name for name in metas if name.replace("-image", "-headers") not in info["kernel_metas"]]
    # Names come from APT: those made of other names need not exist.
    offered = info["headers_offered"]
    later = [name for name in offered if kernel not in name]
    if not info["kernel_headers"]:
        way_out = (
            f"apt-get install {' '.join(offered)}, or reboot into a kernel that has them"
            if any(kernel in name for name in offered)
            else "APT knows no package with them: apt-get update, or install a kernel whose headers it knows and reboot"
        )
        findings.append(f"headers of the running kernel {kernel} are missing, so the driver cannot be built; {way_out}")
    elif absent:
        way_out = f"apt-get install {' '.join(later)}" if later else "install the meta-package of its headers"
        findings.append(
            f"{', '.join(absent)} is installed without its headers, so the next kernel would boot without a driver; "
            f"{way_out}"
        )
    if info["secure_boot"]:
        findings.append(
            "Secure Boot is on and no NVIDIA module is loaded; a module built here is not signed by a key that the "
            "firmware trusts: switch Secure Boot off, or enrol a key at the console (mokutil --import) and load the "
            "driver once by hand"
        )
    return findings


def space(paths, wanted):
    """One finding per file system, as image store and weights are often on the same one."""
    findings, by_filesystem = [], {}
    for path, gib in wanted.items():
        if float(gib) > 0:
            by_filesystem.setdefault(paths[path]["filesystem"], []).append((path, float(gib)))
    for needs in by_filesystem.values():
        free_gib, need_gib = paths[needs[0][0]]["free_mib"] / 1024, sum(gib for _, gib in needs)
        if free_gib < need_gib:
            asked = " and ".join(f"{gib:.0f} GiB for {path}" for path, gib in needs)
            findings.append(
                f"{free_gib:.0f} GiB are free, wanted are {asked}; free some, "
                "or lower host_preflight_free_disk_gib or host_preflight_weights_gib"
            )
    return findings


def docker(found):
    findings = []
    if found["snap"]:
        findings.append("Docker is installed as a snap, which cannot see the cards; snap remove docker")
    if found["desktop"]:
        findings.append(
            "Docker Desktop is installed, whose containers run in a virtual machine without the cards; "
            "apt-get remove docker-desktop"
        )
    return findings


def sources(info):
    """A box that has its driver and Docker needs nothing from them."""
    if info["nvidia_loaded"] and info["docker"]["version"]:
        return []
    return [
        f"{url} does not answer ({why}); check name server, route and proxy, or name a mirror where the address is set"
        for url, why in info["urls"].items()
        if why
    ]


def host_remarks(info, gpus=2):
    """Sentences about what is worth knowing and stands in nobody's way."""
    remarks = []
    counting, others = engine_cards(info["gpus_on_pci"], int(gpus))
    if others and len(counting) == int(gpus):
        remarks.append(
            f"{named(others)} is of another kind than its {gpus} others and is not counted; where nvidia-smi -L shows "
            "it, name the cards of engine and clocks by their numbers there: gpus in vllm_engines, gpu_clocks_gpus"
        )
    holders = sorted({card["driver"] for card in info["gpus_on_pci"] if card["driver"] not in (None, "nvidia")})
    if holders and not info["nvidia_loaded"]:
        remarks.append(
            f"{', '.join(holders)} holds the cards; role nvidia_driver keeps it off them from the next boot on, "
            "nvidia_driver_allow_reboot decides on that"
        )
    if info["clock_synchronised"] is False:
        remarks.append("no time server keeps its clock right; timedatectl set-ntp true")
    return remarks


def files_to_copy(names, found, source, target, mode="0755"):
    """Those of `names` that are on the box, in folder `target`, not what they are here, in `source`, root's and `mode`.

    found  `files` of a result of the module host_info
    """
    stale = []
    for name in names:
        wanted = {
            "sha256": hashlib.sha256(Path(source, name).read_bytes()).hexdigest(),
            "mode": mode,
            "uid": 0,
            "gid": 0,
        }
        if found[f"{target}/{name}"] != wanted:
            stale.append(name)
    return stale


class FilterModule:
    """Ansible's entry point."""

    def filters(self):
        return {"files_to_copy": files_to_copy, "host_findings": host_findings, "host_remarks": host_remarks}
