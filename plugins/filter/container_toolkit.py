# SPDX-License-Identifier: Apache-2.0
"""The NVIDIA container toolkit's packages and its CDI specification, judged: pure functions of what was seen."""

from __future__ import annotations

import re

import yaml


def toolkit_finding(packages: dict, version: str | None) -> str:
    """What forbids going on with the toolkit's `packages` (host_info's, by name), or an empty string.

    `version` is the version to bring all of them to, or None where the installed ones stay.
    """
    installed = {name: entry["version"] for name, entry in packages.items() if entry["version"]}
    versions = set(installed.values())
    if version:
        return _too_old(version)
    if len(versions) > 1:
        listed = ", ".join(f"{name} {installed[name]}" for name in sorted(installed))
        return (
            f"the toolkit's packages are of different versions ({listed}), and containers then fail in ways that "
            "nvidia-smi does not show; set nvidia_container_toolkit_version to the one that all are to have"
        )
    return _too_old(versions.pop()) if versions else ""


def _too_old(version):
    number = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if number < (1, 18):
        return (
            f"toolkit {version} does not refresh its CDI specification by itself, 1.18 or newer does; "
            "set nvidia_container_toolkit_version to one, such as 1.18.0-1"
        )
    return ""


def cdi_findings(text: str | None, driver: str, uuids: list[str]) -> list[str]:
    """Sentences about what is wrong in `text`, a CDI specification in YAML or JSON, or None for one that is absent.

    It must define nvidia.com/gpu devices named by exactly the `uuids` of the cards, and mount the libraries of
    `driver`, the loaded one: their file names end in its version.
    """
    if text is None:
        return ["it is absent"]
    try:
        spec = yaml.safe_load(text)
        kind = spec["kind"]
        names = {str(device["name"]) for device in spec["devices"]}
        mounts = [mount["hostPath"] for mount in _edits(spec, "mounts")]
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        return [f"it is no CDI specification ({type(error).__name__}: {' '.join(str(error).split())})"]
    findings = []
    if kind != "nvidia.com/gpu":
        findings.append(f"its kind is {kind}, not nvidia.com/gpu")
    missing = [uuid for uuid in uuids if uuid not in names]
    if missing:
        findings.append(f"it does not name {', '.join(missing)}")
    gone = sorted(name for name in names if name.startswith("GPU-") and name not in uuids)
    if gone:
        findings.append(f"it names {', '.join(gone)}, which the box does not have")
    libraries = [re.search(r"/lib(?:nvidia-ml|cuda)\.so\.(\d+\.\d[\d.]*)$", path) for path in mounts]
    versions = sorted({match[1] for match in libraries if match})
    if versions != [driver]:
        findings.append(f"it mounts libraries of driver {', '.join(versions) or 'none'}, loaded is {driver}")
    return findings


def _edits(spec, part):
    """The entries of `part` in the containerEdits for all devices and for each."""
    for holder in [spec, *spec["devices"]]:
        yield from (holder.get("containerEdits") or {}).get(part) or []


class FilterModule:
    """Ansible's entry point."""

    def filters(self):
        return {"toolkit_finding": toolkit_finding, "cdi_findings": cdi_findings}
