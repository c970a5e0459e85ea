# SPDX-License-Identifier: Apache-2.0
"""The NVIDIA container toolkit's packages and its CDI specification, judged: pure functions of what was seen."""

from __future__ import annotations

import os
import re

import yaml

# Versions that fit no box, with the reason: read in the units of NVIDIA/nvidia-container-toolkit.
UNFIT = {
    "1.18.1": (
        "never refreshes its CDI specification where the kernel's modules are compressed, as those of Debian 13 "
        "(nvidia.ko.xz) and Ubuntu (nvidia.ko.zst) are: nvidia-cdi-refresh.service looks for the name nvidia.ko"
    ),
    "1.19.0": (
        "orders nvidia-cdi-refresh.service after multi-user.target, to which the engines belong that wait for it: "
        "systemd leaves one of them out at boot (NVIDIA/nvidia-container-toolkit#1735)"
    ),
}
# The device files that CUDA opens beside the cards' own: the driver's control file, and unified memory.
CUDA_NODES = ["/dev/nvidiactl", "/dev/nvidia-uvm"]
# Docker before 26.1 has a CDI library (0.6.2, in moby's vendor.mod) that knows versions up to this. Toolkits from
# 1.19.1 on write 0.7.0 where the cards have DRM nodes.
OLDER_CDI, NEWER_CDI_DOCKER = (0, 6, 0), (26, 1)
WAY_OUT = "set nvidia_container_toolkit_version to another one, such as 1.18.0-1, 1.18.2-1, or 1.19.1-1 and newer"


def toolkit_choice(packages: dict, wish: str | None, module: str | None, offer: dict | None = None) -> dict:
    """`version` that the toolkit's packages are brought to (None: not known yet) and `finding`, what forbids it, or "".

    `packages` are host_info's, by name, `wish` is the version that is asked for, or None where the installed ones stay
    and a bare box gets the newest fit one. `module` is the file of the driver's kernel module, or None. `offer` is a
    result of apt_offer, or None where the repository was not asked: nothing has to be installed.
    """
    installed = {name: entry["version"] for name, entry in packages.items() if entry["version"]}
    versions = sorted(set(installed.values()))
    if not wish and len(versions) > 1:
        listed = ", ".join(f"{name} {installed[name]}" for name in sorted(installed))
        return _choice(
            None,
            f"the toolkit's packages are of different versions ({listed}), and containers then fail in ways that "
            "nvidia-smi does not show; set nvidia_container_toolkit_version to the one that all are to have",
        )
    version = wish or (versions[0] if versions else None)
    if version and (why := _unfit(version, module)):
        return _choice(version, why)
    if offer is None or (version and all(installed.get(name) == version for name in packages)):
        return _choice(version, "")

    if offer["error"]:
        what = f"the toolkit {version}" if version else "the toolkit"
        return _choice(
            version,
            f"{what} is to be installed, and its repository cannot be used: {offer['error']}; "
            "see nvidia_container_toolkit_repository_url",
        )
    offers = offer["versions"]
    first = next(iter(offers.values()), [])
    whole = [number for number in first if all(number in offers.get(name, []) for name in packages)]
    fit = [number for number in whole if not _unfit(number, module)]
    if version is None and fit:
        return _choice(fit[0], "")
    if version in whole:
        return _choice(version, "")
    listed = ", ".join(whole) or "no version of all four packages"
    if version is None:
        why = f"; {_unfit(whole[0], module)}" if whole else ""
        return _choice(None, f"the repository offers {listed}, and no toolkit that fits this box{why}")
    asked = "nvidia_container_toolkit_version is" if wish else "a package is missing beside those of version"
    return _choice(
        version,
        f"{asked} {version}, and the repository offers {listed}; set nvidia_container_toolkit_version to one of these"
        + (f": {', '.join(fit)}" if fit and fit != whole else ""),
    )


def _choice(version, finding):
    return {"version": version, "finding": finding}


def _unfit(version, module):
    """Why this version cannot be used on a box whose driver's module is the file `module`, or ""."""
    number = _number(version.split("-")[0])
    if number and number < (1, 18):
        return (
            f"toolkit {version} does not refresh its CDI specification by itself, 1.18 or newer does; "
            "set nvidia_container_toolkit_version to one, such as 1.18.0-1"
        )
    if why := UNFIT.get(".".join(map(str, number))):
        return f"toolkit {version} {why}; {WAY_OUT}"
    name = os.path.basename(module or "")
    if number == (1, 18, 0) and name.startswith("nvidia-current.ko"):
        return (
            f"toolkit {version} never refreshes its CDI specification with Debian's own driver, whose module is "
            f"{name}: nvidia-cdi-refresh.service looks for nvidia.ko; set nvidia_container_toolkit_version to 1.18.2-1 "
            "or to one from 1.19.1-1 on"
        )
    return ""


def toolkit_reasons(host: dict, cdi: str | None, dropin: str) -> list[str]:
    """What a run mends of /dev/nvidia-uvm, for the plan; nothing where the driver is not loaded or the toolkit missing.

    `host` is a result of host_info asked for the paths /dev/nvidia-uvm, /usr/bin/nvidia-ctk and `dropin`, the file that
    has it made at each boot; `cdi` is the text of the CDI specification, or None.
    """
    paths = host["paths"]
    if not host["nvidia_loaded"] or not paths["/usr/bin/nvidia-ctk"]["exists"]:
        return []
    if not paths["/dev/nvidia-uvm"]["exists"]:
        return [
            "/dev/nvidia-uvm is missing, without which CUDA fails: it is made, now and at each boot, "
            "and the CDI specification written anew"
        ]
    findings = []
    if cdi is not None and _cards_without(cdi, "/dev/nvidia-uvm"):
        findings.append(
            "the CDI specification gives containers no /dev/nvidia-uvm, without which CUDA fails: it is written anew"
        )
    if not paths[dropin]["exists"]:
        findings.append("nothing makes /dev/nvidia-uvm at the next boot: nvidia-cdi-refresh.service is told to")
    return findings


def _cards_without(text, path):
    try:
        return any(path not in nodes for name, nodes in _nodes(yaml.safe_load(text)).items() if name.startswith("GPU-"))
    except (yaml.YAMLError, KeyError, TypeError, AttributeError):
        return False  # cdi_findings() says what it is


def cdi_findings(text: str | None, driver: str, uuids: list[str], docker: str | None = None) -> list[str]:
    """Sentences about what is wrong in `text`, a CDI specification in YAML or JSON, or None for one that is absent.

    It must define nvidia.com/gpu devices named by exactly the `uuids` of the cards, each with its device file, give the
    device files that CUDA needs beside those, and mount the libraries of `driver`, the loaded one: their file names end
    in its version. `docker` is the version of the Docker that runs, or None.
    """
    if text is None:
        return ["it is absent"]
    try:
        spec = yaml.safe_load(text)
        kind = spec["kind"]
        nodes = _nodes(spec)
        mounts = [mount["hostPath"] for holder in [spec, *spec["devices"]] for mount in _edits(holder, "mounts")]
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        return [f"it is no CDI specification ({type(error).__name__}: {' '.join(str(error).split())})"]
    findings = []
    if kind != "nvidia.com/gpu":
        findings.append(f"its kind is {kind}, not nvidia.com/gpu")
    if docker and _number(docker)[:2] < NEWER_CDI_DOCKER and _number(spec.get("cdiVersion")) > OLDER_CDI:
        findings.append(
            f"it is of CDI version {spec['cdiVersion']}, and Docker {docker} takes it up to 0.6.0 only: upgrade Docker "
            "to 26.1 or newer, or set nvidia_container_toolkit_version to 1.18.2-1, which writes 0.5.0"
        )
    missing = [uuid for uuid in uuids if uuid not in nodes]
    if missing:
        findings.append(f"it does not name {', '.join(missing)}")
    gone = sorted(name for name in nodes if name.startswith("GPU-") and name not in uuids)
    if gone:
        findings.append(f"it names {', '.join(gone)}, which the box does not have")
    named = [uuid for uuid in uuids if uuid in nodes]
    for path in CUDA_NODES:
        if any(path not in nodes[uuid] for uuid in named):
            findings.append(f"it gives containers no {path}, without which CUDA fails")
    bare = [uuid for uuid in named if not any(re.fullmatch(r"/dev/nvidia\d+", path) for path in nodes[uuid])]
    if bare:
        findings.append(f"it has no device file for {', '.join(bare)}")
    libraries = [re.search(r"/lib(?:nvidia-ml|cuda)\.so\.(\d+\.\d[\d.]*)$", path) for path in mounts]
    versions = sorted({match[1] for match in libraries if match})
    if versions != [driver]:
        findings.append(f"it mounts libraries of driver {', '.join(versions) or 'none'}, loaded is {driver}")
    return findings


def _number(version):
    return tuple(int(part) for part in re.findall(r"\d+", str(version or ""))[:3])


def _nodes(spec):
    """By the device's name the device files, as the container has them, that it gives with those for all devices."""
    common = {node["path"] for node in _edits(spec, "deviceNodes")}
    return {
        str(device["name"]): common | {node["path"] for node in _edits(device, "deviceNodes")}
        for device in spec["devices"]
    }


def _edits(holder, part):
    return (holder.get("containerEdits") or {}).get(part) or []


class FilterModule:
    """Ansible's entry point."""

    def filters(self):
        return {
            "toolkit_choice": toolkit_choice,
            "toolkit_reasons": toolkit_reasons,
            "cdi_findings": cdi_findings,
        }
