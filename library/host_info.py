#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Everything the roles ask of a box before they act, in one look."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: host_info
short_description: What a GPU box is and has, in one look
description:
  - Reads the operating system, the kernel, the cards on the PCI bus, the NVIDIA module, packages, Docker and its containers.
  - Changes nothing, needs nothing but Python's standard library, and does not fail for what is missing; it says so in the result.
options:
  packages:
    description: Packages whose installed version and hold are wanted.
    type: list
    elements: str
    default: []
  paths:
    description: Paths to look at. For a directory the names in it are returned as well.
    type: list
    elements: str
    default: []
  containers:
    description: Names of Docker containers whose state and labels are wanted.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    support: full
    description: The module only reads.
  diff_mode:
    support: none
    description: The module changes nothing.
author:
  - The tandem authors
"""

EXAMPLES = r"""
- name: Look at the box
  host_info:
    packages: [docker.io]
    paths: [/srv/models/qwen3.8-27b-int4]
  register: looked
"""

RETURN = r"""
host_info:
  description: What was found.
  returned: always
  type: dict
  contains:
    os: {description: "C(id), C(version_id) and C(pretty_name) of os-release.", type: dict}
    architecture: {description: "The machine's name for itself, such as C(x86_64).", type: str}
    kernel: {description: "The running kernel's release.", type: str}
    kernel_headers: {description: Whether the running kernel's headers are installed., type: bool}
    memory_mib: {description: Memory in MiB., type: int}
    gpus_on_pci: {description: "NVIDIA display devices: C(slot), C(device) and the C(driver) bound to each, or null.", type: list}
    secure_boot: {description: "True or false, or null where the firmware does not say.", type: bool}
    nvidia_loaded: {description: "Version of the loaded NVIDIA module, or null.", type: str}
    nvidia_installed: {description: "Version of the module that the next load would take, or null.", type: str}
    packages: {description: "By name: C(version) or null, and C(held).", type: dict}
    paths: {description: "By path: C(exists), C(free_mib) of its file system, and C(names) in a directory.", type: dict}
    docker: {description: "C(installed), C(version) of the daemon that answers, or null, C(snap), and C(config_is_newer) when daemon.json changed after the daemon started.", type: dict}
    containers: {description: "By name: C(running) and C(labels), or null where there is none.", type: dict}
"""

import glob
import json
import os
import platform
import shutil
import subprocess

from ansible.module_utils.basic import AnsibleModule


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as handle:
            return handle.read().strip()
    except OSError:
        return None


def run(*command):
    """Standard output of `command`, or None where it is not there, fails, or does not end."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def os_release():
    pairs = (line.split("=", 1) for line in (read("/etc/os-release") or "").splitlines() if "=" in line)
    fields = {key: value.strip('"') for key, value in pairs}
    return {name: fields.get(name.upper(), "") for name in ("id", "version_id", "pretty_name")}


def memory_mib():
    for line in (read("/proc/meminfo") or "").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) // 1024
    return 0


def gpus_on_pci():
    found = []
    for device in sorted(glob.glob("/sys/bus/pci/devices/*")):
        if read(device + "/vendor") != "0x10de" or not (read(device + "/class") or "").startswith("0x03"):
            continue
        driver = os.path.join(device, "driver")
        found.append(
            {
                "slot": os.path.basename(device),
                "device": read(device + "/device"),
                "driver": os.path.basename(os.path.realpath(driver)) if os.path.exists(driver) else None,
            }
        )
    return found


def secure_boot():
    variables = glob.glob("/sys/firmware/efi/efivars/SecureBoot-*")
    if not variables:
        return None
    with open(variables[0], "rb") as handle:
        return handle.read()[-1:] == b"\x01"


def packages(names):
    found = {name: {"version": None, "held": False} for name in names}
    if not names:
        return found
    # exits 1 when one of the names is unknown, and still prints the others
    done = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package}\t${Version}\t${Status}\n", *names], capture_output=True, text=True, check=False
    )
    for line in done.stdout.splitlines():
        name, version, status = line.split("\t")
        selection, dummy, state = status.split()
        if name in found and state == "installed":
            found[name] = {"version": version, "held": selection == "hold"}
    return found


def paths(names):
    found = {}
    for path in names:
        nearest = path
        while not os.path.exists(nearest):
            nearest = os.path.dirname(nearest)
        found[path] = {
            "exists": os.path.exists(path),
            "free_mib": shutil.disk_usage(nearest).free // 2**20,
            "names": sorted(os.listdir(path)) if os.path.isdir(path) else [],
        }
    return found


def docker():
    config, pid_file = "/etc/docker/daemon.json", "/run/docker.pid"
    newer = os.path.exists(config) and os.path.exists(pid_file) and os.path.getmtime(config) > os.path.getmtime(pid_file)
    return {
        "installed": shutil.which("dockerd") is not None,
        "version": run("docker", "version", "--format", "{{.Server.Version}}") or None,
        "snap": os.path.exists("/snap/docker/current"),
        "config_is_newer": newer,
    }


def containers(names):
    found = {}
    for name in names:
        text = run("docker", "container", "inspect", name)
        state = json.loads(text)[0] if text else None
        found[name] = state and {"running": state["State"]["Running"], "labels": state["Config"]["Labels"] or {}}
    return found


def main():
    names = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        argument_spec={"packages": names, "paths": names, "containers": names}, supports_check_mode=True
    )
    kernel = platform.release()
    module.exit_json(
        changed=False,
        host_info={
            "os": os_release(),
            "architecture": platform.machine(),
            "kernel": kernel,
            "kernel_headers": os.path.exists(f"/lib/modules/{kernel}/build"),
            "memory_mib": memory_mib(),
            "gpus_on_pci": gpus_on_pci(),
            "secure_boot": secure_boot(),
            "nvidia_loaded": read("/sys/module/nvidia/version"),
            "nvidia_installed": run("modinfo", "-F", "version", "nvidia") or None,
            "packages": packages(module.params["packages"]),
            "paths": paths(module.params["paths"]),
            "docker": docker(),
            "containers": containers(module.params["containers"]),
        },
    )


if __name__ == "__main__":
    main()
