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
  images:
    description: Docker images of which to know whether the box has them.
    type: list
    elements: str
    default: []
  urls:
    description:
      - Addresses to ask for, all at once, whether they answer.
      - APT's own helper asks, so proxies, certificates and passwords are those that an installation would take.
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
  description: What was found. A name in capitals stands for each name that was found or asked for.
  returned: always
  type: dict
  contains:
    os:
      description: Of os-release.
      type: dict
      contains:
        id: {description: "Such as C(debian).", type: str}
        version_id: {description: "Such as C(13).", type: str}
        pretty_name: {description: What it calls itself., type: str}
    architecture: {description: "The machine's name for itself, such as C(x86_64).", type: str}
    kernel: {description: "The running kernel's release.", type: str}
    kernel_headers: {description: Whether the running kernel's headers are installed., type: bool}
    kernel_metas:
      description: Installed meta-packages of the kernel, such as C(linux-image-generic).
      type: dict
      contains:
        PACKAGE:
          description: One of them.
          type: dict
          contains: &package
            version: {description: Installed version., type: str}
            held: {description: Whether dpkg holds it., type: bool}
    headers_offered:
      description:
        - Packages that APT knows and that bring missing headers, of the running kernel and beside each meta-package.
        - Asked for only where some are missing.
      type: list
      elements: str
    memory_mib: {description: Memory in MiB., type: int}
    time: {description: "The box's clock, in seconds since 1970.", type: float}
    clock_synchronised:
      description: Whether a time server keeps the clock right, or null where systemd does not say.
      type: bool
    gpus_on_pci:
      description: NVIDIA display devices.
      type: list
      elements: dict
      contains:
        slot: {description: "Such as C(0000:01:00.0).", type: str}
        device: {description: "PCI device id, such as C(0x2684).", type: str}
        driver: {description: "The driver that is bound to it, or null.", type: str}
    secure_boot: {description: "True or false, or null where the firmware does not say.", type: bool}
    nvidia_loaded: {description: "Version of the loaded NVIDIA module, or null.", type: str}
    nvidia_installed: {description: "Version of the module that the next load would take, or null.", type: str}
    nvidia_module: {description: "File of the module that the next load would take, or null.", type: str}
    nvidia_kernels: {description: Kernels for which an NVIDIA module is installed., type: list, elements: str}
    nvidia_packages:
      description: Installed packages of the driver, none of the container toolkit.
      type: dict
      contains:
        PACKAGE: {description: One of them., type: dict, contains: *package}
    nvidia_library:
      description: The library of NVML that a program would load, or null.
      type: dict
      contains:
        path: {description: The file behind its links., type: str}
        version: {description: "Version in the file's name, or null.", type: str}
        package: {description: "Package that the file belongs to, or null.", type: str}
    nvidia_uninstaller: {description: "What NVIDIA's .run file leaves to remove it with, or null.", type: str}
    persistenced:
      description:
        - Commands with which nvidia-persistenced.service starts, as its own file has them, or null without such a unit.
        - Drop-ins are not read.
      type: list
      elements: str
    initramfs:
      description: How the initramfs is made.
      type: dict
      contains:
        tool: {description: "C(update-initramfs), C(dracut) or null.", type: str}
        oldest: {description: "Modification time of the oldest one, or null.", type: float}
    apt_sources:
      description: Entries of APT's source files that are switched on, one for each address.
      type: list
      elements: dict
      contains:
        file: {description: The file that it is in., type: str}
        uri: {description: The repository's address., type: str}
    packages:
      description: By name.
      type: dict
      contains:
        PACKAGE:
          description: One that was asked for, or that a pattern matches.
          type: dict
          contains:
            version: {description: "Installed version, or null.", type: str}
            held: {description: Whether dpkg holds it., type: bool}
    paths:
      description: By path.
      type: dict
      contains:
        PATH:
          description: One that was asked for, or RV(host_info.docker.root).
          type: dict
          contains:
            exists: {description: Whether it is there., type: bool}
            modified: {description: "Modification time, or null.", type: float}
            free_mib: {description: MiB that are free in the file system that it is on or would be on., type: int}
            filesystem: {description: A number for that file system., type: int}
            names: {description: Names in a directory., type: list, elements: str}
    files:
      description: By path.
      type: dict
      contains:
        PATH:
          description: One that was asked for, or null where there is none.
          type: dict
          contains:
            sha256: {description: Digest of its content., type: str}
            mode: {description: "As in C(0755).", type: str}
            uid: {description: Owner., type: int}
            gid: {description: Group., type: int}
    urls:
      description: By address.
      type: dict
      contains:
        URL: {description: "Null where it answers, or why it does not.", type: str}
    engines: {description: Names of running containers with tandem's label C(tandem.config)., type: list, elements: str}
    images:
      description: By name.
      type: dict
      contains:
        IMAGE: {description: Whether Docker has it., type: bool}
    docker:
      description: Of the Docker Engine.
      type: dict
      contains:
        installed: {description: Whether dockerd is there., type: bool}
        version: {description: "Version of the daemon that answers, or null.", type: str}
        snap: {description: Whether it is installed as a snap., type: bool}
        desktop: {description: Whether Docker Desktop is installed., type: bool}
        config_is_newer: {description: Whether daemon.json changed after the daemon started., type: bool}
        daemon_json: {description: "Text of daemon.json, or null.", type: str}
        daemon_json_error: {description: "What dockerd has against daemon.json, or null.", type: str}
        loaded:
          description: "Settings that the daemon runs with, under daemon.json's names, or null where none answers."
          type: dict
          contains:
            live-restore: {description: Whether containers outlive the daemon., type: bool}
            log-driver: {description: Where containers' output goes., type: str}
            features.cdi: {description: Whether it gives devices by CDI., type: bool}
        security: {description: "Names of its security options, such as C(userns).", type: list, elements: str}
        swarm: {description: Whether it is part of a swarm., type: bool}
        root: {description: Folder of its images., type: str}
        root_filesystem: {description: "Type of the file system that it is or would be on, or null.", type: str}
    containers:
      description: By name.
      type: dict
      contains:
        CONTAINER:
          description: One that was asked for, or null where there is none.
          type: dict
          contains:
            running: {description: Whether it runs., type: bool}
            labels:
              description: Its labels.
              type: dict
              contains:
                LABEL: {description: Its value., type: str}
            active: {description: Whether its unit is active., type: bool}
"""

import glob
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from ansible.module_utils.basic import AnsibleModule

APT_HELPER = "/usr/lib/apt/apt-helper"
# A root of their own for tests; a box's is "".
ROOT = ""


def at(path):
    return ROOT + path


def matching(pattern):
    return sorted(path[len(ROOT) :] for path in glob.glob(ROOT + pattern))


def read(path):
    try:
        with open(at(path), encoding="utf-8", errors="replace") as handle:
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
    for device in matching("/sys/bus/pci/devices/*"):
        if read(device + "/vendor") != "0x10de" or not (read(device + "/class") or "").startswith("0x03"):
            continue
        driver = at(device + "/driver")
        found.append(
            {
                "slot": os.path.basename(device),
                "device": read(device + "/device"),
                "driver": os.path.basename(os.path.realpath(driver)) if os.path.exists(driver) else None,
            }
        )
    return found


def secure_boot():
    variables = matching("/sys/firmware/efi/efivars/SecureBoot-*")
    if not variables:
        return None
    with open(at(variables[0]), "rb") as handle:
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
        # the own architecture comes first; i386 beside it (Steam) is of the same version, and has no hold of its own
        if state == "installed" and not found.get(name, {"version": None})["version"]:
            found[name] = {"version": version, "held": selection == "hold"}
    return found


def nvidia_packages():
    found = packages(["nvidia-*", "libnvidia-*", "linux-modules-nvidia-*"])
    return {name: found[name] for name in sorted(found) if "container" not in name}


KERNEL_PACKAGES = ["linux-image-*", "linux-headers-*", "linux-generic*", "linux-lowlatency*", "linux-oem*"]


def kernel_metas():
    """linux-image-generic is one, linux-image-6.8.0-40-generic is a kernel itself."""
    found = packages(KERNEL_PACKAGES)
    return {name: found[name] for name in sorted(found) if not re.search(r"-\d+\.\d+\.\d+", name)}


def headers_offered(kernel, metas):
    """Names differ by distribution (Proxmox: proxmox-headers-6.14.11-2-pve), so APT says which of them there are."""
    wanted = [name.replace("-image", "-headers") for name in metas if "-image" in name]
    wanted = [name for name in wanted if name not in metas]
    if not os.path.exists(at(f"/lib/modules/{kernel}/build")):
        wanted += [f"{vendor}-headers-{kernel}" for vendor in ("linux", "proxmox", "pve")]
    known = run("apt-cache", "madison", *wanted) if wanted else None
    offered = {line.split("|")[0].strip() for line in (known or "").splitlines()}
    return [name for name in wanted if name in offered]


def nvidia_module():
    """Debian's own is nvidia-current.ko, which modprobe finds by a rule that modinfo does not read."""
    return run("modinfo", "-F", "filename", "nvidia") or run("modinfo", "-F", "filename", "nvidia-current") or None


def nvidia_kernels():
    """DKMS puts it into updates, Ubuntu's signed packages into kernel/nvidia-BRANCH, the .run file elsewhere."""
    modules = [
        path
        for place in ("updates", "updates/dkms", "extra", "kernel/nvidia-*", "kernel/drivers/video")
        for path in matching(f"/lib/modules/*/{place}/nvidia.ko*")
    ]
    return sorted({path.split("/")[3] for path in modules})


def nvidia_library():
    places = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")
    links = [link for place in places for link in matching(place + "/libnvidia-ml.so.1")]
    path = next((os.path.realpath(at(link))[len(ROOT) :] for link in links if os.path.exists(at(link))), None)
    if path is None:
        return None
    owners = [line for line in (run("dpkg-query", "-S", path) or "").splitlines() if line.endswith(": " + path)]
    version = re.search(r"\.so\.(\d+(?:\.\d+)+)$", path)
    return {
        "path": path,
        "version": version and version.group(1),
        "package": re.split("[:,]", owners[0])[0] if owners and not owners[0].startswith("diversion ") else None,
    }


def nvidia_uninstaller():
    found = [path for path in ("/usr/bin/nvidia-uninstall", "/usr/bin/nvidia-installer") if os.path.exists(at(path))]
    return found[0] if found else None


def persistenced():
    """Of the unit's own file: what `systemctl show` says has our drop-in in it already."""
    places = ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")
    texts = [read(place + "/systemd/system/nvidia-persistenced.service") for place in places]
    text = next((text for text in texts if text), None)
    if text is None:
        return None
    commands = []
    for command in re.findall(r"^ExecStart[ \t]*=[ \t]*(.*)$", re.sub(r"\\\n", " ", text), re.MULTILINE):
        commands = [*commands, command.strip()] if command.strip() else []
    return commands


def initramfs():
    tools = ("update-initramfs", "dracut")
    made = [os.path.getmtime(at(path)) for path in matching("/boot/initrd.img-*")]
    return {"tool": next((tool for tool in tools if shutil.which(tool)), None), "oldest": min(made) if made else None}


def apt_sources():
    """Both forms that APT reads: one line each, and deb822 with `Enabled: no` to switch a stanza off."""
    found = []
    for path in [*matching("/etc/apt/sources.list"), *matching("/etc/apt/sources.list.d/*.list")]:
        for uri in re.findall(r"^\s*deb(?:-src)?\s+(?:\[[^\]]*\]\s*)?(\S+)", read(path) or "", re.MULTILINE):
            found.append({"file": path, "uri": uri})
    for path in matching("/etc/apt/sources.list.d/*.sources"):
        text = "\n".join(line for line in (read(path) or "").splitlines() if not line.startswith("#"))
        for stanza in re.split(r"\n[ \t]*\n", text):
            if re.search(r"^Enabled:\s*(no|false|without|off|disable|0)\s*$", stanza, re.MULTILINE | re.IGNORECASE):
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
    """Any answer of a server will do, also "not found": the question is whether it is reached."""
    if not addresses:
        return {}

    def ask(numbered):
        number, address = numbered
        options = [f"Acquire::{scheme}::Timeout={timeout}" for scheme in ("http", "https")] + ["Acquire::Retries=0"]
        try:
            done = subprocess.run(
                [APT_HELPER, *(f"-o{option}" for option in options), "download-file", address, f"{folder}/{number}"],
                capture_output=True,
                text=True,
                check=False,
                timeout=4 * timeout,
                env={**os.environ, "LC_ALL": "C.UTF-8"},
            )
        except subprocess.TimeoutExpired:
            return f"no answer in {4 * timeout} s"
        except OSError as error:
            return str(error)
        failed = re.search(r"^E: Failed to fetch \S+\s+(.*)$", done.stderr, re.MULTILINE)
        why = failed.group(1) if failed else done.stderr.strip()
        return why if done.returncode and not re.match(r"[1-5]\d\d\s", why) else None

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(addresses)) as pool:
        return dict(zip(addresses, pool.map(ask, enumerate(addresses))))


def engines():
    if not shutil.which("docker"):
        return []
    return sorted((run("docker", "ps", "--filter", "label=tandem.config", "--format", "{{.Names}}") or "").split())


def images(names):
    return {name: run("docker", "image", "inspect", "--format", "{{.Id}}", name) is not None for name in names}


def daemon_json_error(config):
    """What the installed dockerd has against its configuration, or None. Before version 23 it has no such check."""
    if not os.path.exists(at(config)) or not shutil.which("dockerd"):
        return None
    done = subprocess.run(
        ["dockerd", "--validate", "--config-file", at(config)], capture_output=True, text=True, check=False, timeout=30
    )
    said = done.stderr.strip().splitlines()
    return said[0] if done.returncode and said and "unknown flag" not in said[0] else None


def filesystem_type(path):
    while not os.path.exists(at(path)):
        path = os.path.dirname(path)
    return run("stat", "--file-system", "--format", "%T", at(path)) or None


def docker():
    info = json.loads(run("docker", "info", "--format", "{{json .}}") or "{}")
    config, pid_file = "/etc/docker/daemon.json", "/run/docker.pid"
    newer = (
        os.path.exists(at(config))
        and os.path.exists(at(pid_file))
        and os.path.getmtime(at(config)) > os.path.getmtime(at(pid_file))
    )
    root = info.get("DockerRootDir") or "/var/lib/docker"
    return {
        "installed": shutil.which("dockerd") is not None,
        "version": info.get("ServerVersion") or None,
        "snap": os.path.exists(at("/snap/docker/current")),
        "desktop": os.path.exists(at("/opt/docker-desktop")),
        "config_is_newer": newer,
        "daemon_json": read(config),
        "daemon_json_error": daemon_json_error(config),
        "security": sorted(option.split(",")[0].removeprefix("name=") for option in info.get("SecurityOptions") or []),
        "swarm": (info.get("Swarm") or {}).get("LocalNodeState") == "active",
        "root": root,
        "root_filesystem": filesystem_type(root),
        # what the daemon runs with, under the names of daemon.json
        "loaded": {
            "live-restore": info.get("LiveRestoreEnabled"),
            "log-driver": info.get("LoggingDriver"),
            "features.cdi": bool(info.get("CDISpecDirs")),
        }
        if info
        else None,
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


def collect(params):
    kernel, metas, engine = platform.release(), kernel_metas(), docker()
    return {
        "os": os_release(),
        "architecture": platform.machine(),
        "kernel": kernel,
        "kernel_headers": os.path.exists(at(f"/lib/modules/{kernel}/build")),
        "kernel_metas": metas,
        "headers_offered": headers_offered(kernel, metas),
        "memory_mib": memory_mib(),
        "time": time.time(),
        "clock_synchronised": clock_synchronised(),
        "gpus_on_pci": gpus_on_pci(),
        "secure_boot": secure_boot(),
        "nvidia_loaded": read("/sys/module/nvidia/version"),
        "nvidia_installed": run("modinfo", "-F", "version", "nvidia") or None,
        "nvidia_module": nvidia_module(),
        "nvidia_kernels": nvidia_kernels(),
        "nvidia_packages": nvidia_packages(),
        "nvidia_library": nvidia_library(),
        "nvidia_uninstaller": nvidia_uninstaller(),
        "persistenced": persistenced(),
        "initramfs": initramfs(),
        "apt_sources": apt_sources(),
        "packages": packages(params["packages"]),
        # the folder of images is known here alone
        "paths": paths([*params["paths"], engine["root"]]),
        "files": files(params["files"]),
        "urls": urls(params["urls"], params["url_timeout"]),
        "engines": engines(),
        "images": images(params["images"]),
        "docker": engine,
        "containers": containers(params["containers"]),
    }


def main():
    names = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        argument_spec={
            "packages": names,
            "paths": names,
            "files": names,
            "containers": names,
            "images": names,
            "urls": names,
            "url_timeout": {"type": "int", "default": 5},
        },
        supports_check_mode=True,
    )
    module.exit_json(changed=False, host_info=collect(module.params))


if __name__ == "__main__":
    main()
