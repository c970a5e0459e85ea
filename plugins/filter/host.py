"""What stands in the way of serving on a box: a pure function of what was seen and what is wanted."""

from __future__ import annotations

# Debian and Ubuntu releases for which NVIDIA's repository and a Docker with CDI exist, as far as the roles know them.
SUPPORTED = {"debian": ["12", "13"], "ubuntu": ["22.04", "24.04"]}


def host_findings(info: dict, gpus: int, free_disk_gib: int, memory_gib: int) -> list[str]:
    """Sentences about `info`, a result of the module host_info; each names what is wrong, what is wanted and the way out.

    `gpus` is the number of NVIDIA cards wanted; `free_disk_gib` is compared with the file system of /var/lib. An empty list
    means that the box is fit. Memory is compared with 5 % to spare, as firmware keeps some of what is fitted.
    """
    os, cards = info["os"], info["gpus_on_pci"]
    free_gib, has_gib = info["paths"]["/var/lib"]["free_mib"] / 1024, info["memory_mib"] / 1024
    releases = ", ".join(f"{name} {release}" for name in SUPPORTED for release in SUPPORTED[name])
    findings = []
    if os["version_id"] not in SUPPORTED.get(os["id"], []):
        findings.append(f"it runs {os['pretty_name'] or 'an unknown system'}; install one of {releases}")
    if info["architecture"] != "x86_64":
        findings.append(f"its architecture is {info['architecture']}; x86_64 is needed")
    if len(cards) != int(gpus):
        findings.append(
            f"the PCI bus shows {len(cards)} NVIDIA card(s), host_preflight_gpus is {gpus}; "
            "check seating, power and the BIOS (Above 4G Decoding), or set host_preflight_gpus to what the box has"
        )
    kinds = sorted({card["device"] for card in cards})
    if len(kinds) > 1:
        findings.append(f"its cards are of different kinds (PCI device ids {', '.join(kinds)}); use cards of one kind")
    if not info["kernel_headers"] and not info["nvidia_loaded"]:
        findings.append(
            f"headers of the running kernel {info['kernel']} are missing, so the driver cannot be built; "
            f"apt-get install linux-headers-{info['kernel']}, or reboot into the kernel that has them"
        )
    if info["secure_boot"] and not info["nvidia_loaded"]:
        findings.append(
            "Secure Boot is on and no NVIDIA module is loaded; a module built here is not signed by a key that the firmware "
            "trusts: switch Secure Boot off, or enrol a key at the console (mokutil --import) and load the driver once by hand"
        )
    if free_gib < float(free_disk_gib):
        findings.append(
            f"{free_gib:.0f} GiB are free below /var/lib, host_preflight_free_disk_gib is {free_disk_gib}; free some, or lower it"
        )
    if has_gib < 0.95 * float(memory_gib):
        findings.append(f"it has {has_gib:.0f} GiB of memory, host_preflight_memory_gib is {memory_gib}; add some, or lower it")
    if info["docker"]["snap"]:
        findings.append("Docker is installed as a snap, which cannot see the cards; snap remove docker")
    return findings


def driver_reboot_reason(info: dict) -> str:
    """Why the NVIDIA driver of `info`, a result of the module host_info, needs a reboot; an empty string if it does not."""
    loaded, installed = info["nvidia_loaded"], info["nvidia_installed"]
    holders = sorted({card["driver"] for card in info["gpus_on_pci"] if card["driver"] not in (None, "nvidia")})
    if holders and not loaded:
        return f"{', '.join(holders)} holds the cards, the NVIDIA driver is not loaded"
    if loaded and installed and loaded != installed:
        return f"driver {loaded} is loaded, {installed} is installed"
    return ""


class FilterModule:
    def filters(self):
        return {"host_findings": host_findings, "driver_reboot_reason": driver_reboot_reason}
