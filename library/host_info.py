#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Everything the roles ask of a box before they act, in one look."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: host_info
short_description: What a GPU box is and has, in one look
description:
  - Reads the operating system, the kernel, the cards on the PCI bus, the NVIDIA driver, packages, the clock, Docker and
    its containers.
  - Changes nothing, needs nothing but Python's standard library, and does not fail for what is missing; it says so in
    the result.
options:
  packages:
    description:
      - Packages whose installed version and hold are wanted.
      - A name with C(*) stands for every installed package that it matches.
    type: list
    elements: str
    default: []
  paths:
    description: Paths to look at. For a directory the names in it are returned as well.
    type: list
    elements: str
    default: []
  files:
    description: Files of which to know whether they are as they should be.
    type: list
    elements: str
    default: []
  containers:
    description: Names of Docker containers whose state and labels are wanted.
    type: list
    elements: str
    default: []
  urls:
    description:
      - Addresses to ask for, all at once, whether they answer.
      - Proxies are taken from the environment and from APT's configuration.
    type: list
    elements: str
    default: []
  url_timeout:
    description: Seconds after which an address counts as one that does not answer.
    type: int
    default: 5
attributes:
  check_mode:
    support: full
    description: The module only reads.
  diff_mode:
    support: none
    description: The module changes nothing.
author:
  - tandem (!UNKNOWN)
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
    kernel_metas:
      description: As C(packages), for the kernel's installed meta-packages, such as C(linux-image-generic).
      type: dict
    memory_mib: {description: Memory in MiB., type: int}
    time: {description: "The box's clock, in seconds since 1970.", type: float}
    clock_synchronised:
      description: Whether a time server keeps the clock right, or null where systemd does not say.
      type: bool
    gpus_on_pci:
      description: "NVIDIA display devices: C(slot), C(device) and the C(driver) bound to each, or null."
      type: list
    secure_boot: {description: "True or false, or null where the firmware does not say.", type: bool}
    nvidia_loaded: {description: "Version of the loaded NVIDIA module, or null.", type: str}
    nvidia_installed: {description: "Version of the module that the next load would take, or null.", type: str}
    nvidia_kernels: {description: Kernels for which an NVIDIA module is installed., type: list}
    nvidia_packages:
      description: As C(packages), for every installed package of the driver, but none of the container toolkit.
      type: dict
    initramfs:
      description:
        - C(tool) that makes it, C(update-initramfs), C(dracut) or null.
        - C(oldest), the modification time of the oldest one, or null.
      type: dict
    apt_sources: {description: "APT's repositories that are switched on: C(file) and C(uri) of each.", type: list}
    packages: {description: "By name: C(version) or null, and C(held).", type: dict}
    paths:
      description:
        - By path C(exists), C(modified) (a time), and C(names) in a directory.
        - C(free_mib) and C(filesystem) (a number) of the file system that it is on or would be on.
      type: dict
    files:
      description: "By path, null where there is none: C(sha256), C(mode) as in C(0755), C(uid) and C(gid)."
      type: dict
    urls: {description: "By address: null where it answers, or why it does not.", type: dict}
    engines: {description: Names of running containers with tandem's label C(tandem.config)., type: list}
    images_mib: {description: What Docker's images take in MiB; layers that images share count for each., type: int}
    docker:
      description:
        - C(installed), C(version) of the daemon that answers, or null, C(snap), C(desktop).
        - C(config_is_newer) when daemon.json changed after the daemon started, C(daemon_json), its text or null,
        - C(daemon_json_error), what dockerd has against it, or null, and C(loaded), settings that the daemon runs with.
      type: dict
    containers:
      description:
        - By name, null where there is none, C(running), C(labels), and C(active), whether its unit is active.
      type: dict
"""

import glob
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

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
    found = {name: {"version": None, "held": False} for name in names if "*" not in name}
    if not names:
        return found
    # exits 1 when one of the names is unknown, and still prints the others
    done = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package}\t${Version}\t${Status}\n", *names],
        capture_output=True,
        text=True,
        check=False,
    )
    for line in done.stdout.splitlines():
        name, version, status = line.split("\t")
        selection, _, state = status.split()
        if state == "installed":
            found[name] = {"version": version, "held": selection == "hold"}
    return found


def nvidia_packages():
    found = packages(["nvidia-*", "libnvidia-*", "linux-modules-nvidia-*"])
    return {name: found[name] for name in sorted(found) if "container" not in name}


def kernel_metas():
    """linux-image-generic is one, linux-image-6.8.0-40-generic is a kernel itself."""
    return [
        name
        for name in sorted(packages(["linux-image-*", "linux-headers-*"]))
        if not re.search(r"-\d+\.\d+\.\d+", name)
    ]


def nvidia_kernels():
    """DKMS puts the module into updates, Ubuntu's signed packages into kernel/nvidia-BRANCH."""
    modules = [
        path
        for place in ("updates", "updates/dkms", "extra", "kernel/nvidia-*")
        for path in glob.glob(f"/lib/modules/*/{place}/nvidia.ko*")
    ]
    return sorted({path.split("/")[3] for path in modules})


def initramfs():
    tools = ("update-initramfs", "dracut")
    made = [os.path.getmtime(path) for path in glob.glob("/boot/initrd.img-*")]
    return {"tool": next((tool for tool in tools if shutil.which(tool)), None), "oldest": min(made) if made else None}


def apt_sources():
    """Both forms that APT reads: one line each, and deb822 with `Enabled: no` to switch a stanza off."""
    found = []
    for path in ["/etc/apt/sources.list", *sorted(glob.glob("/etc/apt/sources.list.d/*.list"))]:
        for uri in re.findall(r"^\s*deb\s+(?:\[[^\]]*\]\s+)?(\S+)", read(path) or "", re.MULTILINE):
            found.append({"file": path, "uri": uri})
    for path in sorted(glob.glob("/etc/apt/sources.list.d/*.sources")):
        for stanza in re.split(r"\n\s*\n", read(path) or ""):
            if re.search(r"^Enabled:\s*no\s*$", stanza, re.MULTILINE | re.IGNORECASE):
                continue
            for uris in re.findall(r"^URIs:(.*(?:\n[ \t].*)*)", stanza, re.MULTILINE | re.IGNORECASE):
                found.extend({"file": path, "uri": uri} for uri in uris.split())
    return found


def clock_synchronised():
    return {"yes": True, "no": False}.get(run("timedatectl", "show", "--property", "NTPSynchronized", "--value"))


def files(names):
    found = {}
    for name in names:
        try:
            with open(name, "rb") as handle:
                status, content = os.fstat(handle.fileno()), handle.read()
        except OSError:
            found[name] = None
            continue
        digest = hashlib.sha256(content).hexdigest()
        found[name] = {
            "sha256": digest,
            "mode": f"{status.st_mode & 0o7777:04o}",
            "uid": status.st_uid,
            "gid": status.st_gid,
        }
    return found


def paths(names):
    found = {}
    for path in names:
        nearest = path
        while not os.path.exists(nearest):
            nearest = os.path.dirname(nearest)
        found[path] = {
            "exists": os.path.exists(path),
            "modified": os.path.getmtime(path) if os.path.exists(path) else None,
            "free_mib": shutil.disk_usage(nearest).free // 2**20,
            "filesystem": os.stat(nearest).st_dev,
            "names": sorted(os.listdir(path)) if os.path.isdir(path) else [],
        }
    return found


def urls(addresses, timeout):
    """Any answer will do, also "not found": the question is whether the server is reached."""
    if not addresses:
        return {}
    dump = run("apt-config", "dump", "--format", "%f %v%n", "Acquire") or ""
    apt = dict(re.findall(r"^Acquire::(https?)::Proxy (\S+)$", dump, re.MULTILINE))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({**urllib.request.getproxies(), **apt}))

    def ask(address):
        try:
            opener.open(urllib.request.Request(address, method="HEAD"), timeout=timeout).close()
        except urllib.error.HTTPError as error:
            error.close()
        except (OSError, ValueError) as error:
            return str(getattr(error, "reason", error))
        return None

    with ThreadPoolExecutor(len(addresses)) as pool:
        return dict(zip(addresses, pool.map(ask, addresses)))


def engines():
    if not shutil.which("docker"):
        return []
    return sorted((run("docker", "ps", "--filter", "label=tandem.config", "--format", "{{.Names}}") or "").split())


def images_mib():
    if not shutil.which("docker"):
        return 0
    units = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
    sizes = re.findall(
        r"^([\d.]+)([kMGT]?B)$", run("docker", "image", "ls", "--format", "{{.Size}}") or "", re.MULTILINE
    )
    return int(sum(float(number) * units[unit] for number, unit in sizes)) // 2**20


def daemon_json_error(config):
    """What the installed dockerd has against its configuration, or None. Before version 23 it has no such check."""
    if not os.path.exists(config) or not shutil.which("dockerd"):
        return None
    done = subprocess.run(
        ["dockerd", "--validate", "--config-file", config], capture_output=True, text=True, check=False, timeout=30
    )
    said = done.stderr.strip().splitlines()
    return said[0] if done.returncode and said and "unknown flag" not in said[0] else None


def docker():
    info = json.loads(run("docker", "info", "--format", "{{json .}}") or "{}")
    config, pid_file = "/etc/docker/daemon.json", "/run/docker.pid"
    newer = (
        os.path.exists(config) and os.path.exists(pid_file) and os.path.getmtime(config) > os.path.getmtime(pid_file)
    )
    return {
        "installed": shutil.which("dockerd") is not None,
        "version": info.get("ServerVersion") or None,
        "snap": os.path.exists("/snap/docker/current"),
        "desktop": os.path.exists("/opt/docker-desktop"),
        "config_is_newer": newer,
        "daemon_json": read(config),
        "daemon_json_error": daemon_json_error(config),
        # what the daemon runs with, under the names of daemon.json
        "loaded": info
        and {
            "live-restore": info.get("LiveRestoreEnabled"),
            "log-driver": info.get("LoggingDriver"),
            "features.cdi": bool(info.get("CDISpecDirs")),
        },
    }


def containers(names):
    found = {}
    for name in names:
        text = run("docker", "container", "inspect", name)
        state = json.loads(text)[0] if text else None
        found[name] = state and {
            "running": state["State"]["Running"],
            "labels": state["Config"]["Labels"] or {},
            "active": run("systemctl", "is-active", name + ".service") == "active",
        }
    return found


def main():
    names = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        argument_spec={
            "packages": names,
            "paths": names,
            "files": names,
            "containers": names,
            "urls": names,
            "url_timeout": {"type": "int", "default": 5},
        },
        supports_check_mode=True,
    )
    kernel = platform.release()
    module.exit_json(
        changed=False,
        host_info={
            "os": os_release(),
            "architecture": platform.machine(),
            "kernel": kernel,
            "kernel_headers": os.path.exists(f"/lib/modules/{kernel}/build"),
            "kernel_metas": kernel_metas(),
            "memory_mib": memory_mib(),
            "time": time.time(),
            "clock_synchronised": clock_synchronised(),
            "gpus_on_pci": gpus_on_pci(),
            "secure_boot": secure_boot(),
            "nvidia_loaded": read("/sys/module/nvidia/version"),
            "nvidia_installed": run("modinfo", "-F", "version", "nvidia") or None,
            "nvidia_kernels": nvidia_kernels(),
            "nvidia_packages": nvidia_packages(),
            "initramfs": initramfs(),
            "apt_sources": apt_sources(),
            "packages": packages(module.params["packages"]),
            "paths": paths(module.params["paths"]),
            "files": files(module.params["files"]),
            "urls": urls(module.params["urls"], module.params["url_timeout"]),
            "engines": engines(),
            "images_mib": images_mib(),
            "docker": docker(),
            "containers": containers(module.params["containers"]),
        },
    )


if __name__ == "__main__":
    main()
