# SPDX-License-Identifier: Apache-2.0
"""What the rules must know of a box and an image: pure functions of what was seen and of an image's name."""

from __future__ import annotations

import re

# Compute capability, name and memory in MiB or null by PCI device id, for a box whose driver does not run yet
# (pci.ids; NVIDIA's list of CUDA GPUs).
PCI = {
    "0x2684": ("8.9", "NVIDIA GeForce RTX 4090", 24564),
    "0x2204": ("8.6", "NVIDIA GeForce RTX 3090", None),
    "0x2203": ("8.6", "NVIDIA GeForce RTX 3090 Ti", None),
}
# vLLM's own images of these releases carry its wheels for CUDA 13, unless the tag says otherwise.
CUDA_13 = ((0, 20, 2), (0, 33, 0))


def vllm_box(gpu_info, host_info):
    """What rules and fit ask of a box, from the results of the modules gpu_info and host_info.

    Returns a dict: `cards`, `memory_mib` of the smallest, `capability` ("8.9"; of the lowest), `names`, `driver`. The
    driver says it where one runs, else the cards' PCI device ids. null is unknown.
    `gpus` has what only the driver knows of each card: `index`, `name`, `memory_mib`, `capability`, `display_active`,
    and `memory_used_mib`, in use by what does not compute, as a display and its desktop.
    """
    driver = host_info.get("nvidia_loaded")
    if gpu_info.get("available") and gpu_info["gpus"]:
        cards = [(gpu["compute_capability"], gpu["name"], gpu["memory_total_mib"]) for gpu in gpu_info["gpus"]]
        driver = gpu_info.get("driver_version") or driver
        # one that does not answer is a card all the same, which gpu_faults tells of
        lost = len(gpu_info.get("failed", []))
    else:
        lost = 0
        cards = [PCI.get(card["device"], (None, None, None)) for card in host_info["gpus_on_pci"]]
    capabilities, names, memories = zip(*cards, strict=True) if cards else ((), (), ())
    return {
        "cards": len(cards) + lost or None,
        "memory_mib": min(memories) if cards and None not in memories else None,
        "capability": min(capabilities, key=_numbers) if cards and None not in capabilities else None,
        "names": sorted(set(names)) if None not in names else [],
        "driver": driver,
        "gpus": [
            {
                "index": gpu["index"],
                "name": gpu["name"],
                "memory_mib": gpu["memory_total_mib"],
                "capability": gpu["compute_capability"],
                "display_active": gpu["display_active"],
                "memory_used_mib": gpu["memory_others_mib"],
            }
            for gpu in gpu_info["gpus"]
        ],
    }


def gpu_faults(gpu_info, wanted=None):
    """Sentences about cards that are wanted and do not answer, by the result of module gpu_info; none where all do.

    wanted  indexes or UUIDs; null or `all` is every card
    """
    failed = gpu_info.get("failed", [])
    if wanted in (None, "all", ["all"], []):
        return [card["says"] for card in failed]
    names = set(map(str, wanted))
    # A lost card does not tell its UUID, so it may be the one that no card has which answers.
    unknown = {name for name in names if not name.isdigit()} - {gpu["uuid"] for gpu in gpu_info["gpus"]}
    return [
        card["says"]
        for card in failed
        if str(card["index"]) in names or card["uuid"] in names or (unknown and card["uuid"] is None)
    ]


def vllm_card_faults(gpu_info, host_info, engines):
    """Sentences about cards that `engines` (vllm_engines) are to have and that do not answer; none where all do."""
    if not gpu_info.get("available"):
        return []
    wanted = [engine.get("gpus") for engine in engines]
    faults = [fault for gpus in wanted for fault in gpu_faults(gpu_info, gpus)]
    # NVML does not count a card that the driver could not start: it is on the PCI bus, with the driver bound to it.
    bound = {card["slot"] for card in host_info["gpus_on_pci"] if card["driver"] == "nvidia"}
    failed = gpu_info.get("failed", [])
    count = len(gpu_info["gpus"]) + len(failed)
    beyond = any(not gpus or any(str(gpu).isdigit() and int(gpu) >= count for gpu in gpus) for gpus in wanted)
    if len(bound) > count and beyond:
        # NVML writes the domain with eight digits and in capitals
        missing = sorted(bound - {gpu["pci_bus_id"][-12:].lower() for gpu in gpu_info["gpus"]})
        which = f"{'not all of ' if failed else ''}{', '.join(missing)}"
        faults.append(
            f"the driver holds {len(bound)} cards on the PCI bus and NVML counts {count}: {which} did not start; read "
            "`dmesg` for NVRM lines (RmInitAdapter), power the box off and on, and check riser, slot and power cables"
        )
    return list(dict.fromkeys(faults))


def vllm_version(image):
    """vLLM's version ("0.33.0") by the tag of `image`, or an empty string for a tag that names none, as a nightly's."""
    match = re.search(r":v?(\d+\.\d+\.\d+)(?:[-+.][\w.+-]*)?(?:@.*)?$", image)
    return match[1] if match else ""


def vllm_image_cuda(image):
    """The CUDA version ("12.9", "13") that `image` is made for by its name; an empty string where that is unknown."""
    match = re.search(r"[-.+]cu(\d\d)(\d)(?:@|-|$)", image)
    if match:
        return f"{match[1]}.{match[2]}"
    version = vllm_version(image)
    official = re.match(r"(?:[\w.-]+(?::\d+)?/)?vllm/vllm-openai:v[\d.]+(?:@|$)", image)
    return "13" if official and version and CUDA_13[0] <= _numbers(version) <= CUDA_13[1] else ""


def _numbers(version):
    return tuple(int(part) for part in version.split("."))


class FilterModule:
    """Ansible's entry point."""

    def filters(self):
        return {
            "gpu_faults": gpu_faults,
            "vllm_card_faults": vllm_card_faults,
            "vllm_box": vllm_box,
            "vllm_version": vllm_version,
            "vllm_image_cuda": vllm_image_cuda,
        }
