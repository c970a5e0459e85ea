# SPDX-License-Identifier: Apache-2.0
"""Which Docker a box gets, what its daemon.json says, what needs a restart: pure functions of what was seen."""

from __future__ import annotations

import json
import re

# By os-release's ID and VERSION_ID: the release's name in Docker's repository, and where Docker comes from by default.
RELEASES = {
    ("debian", "12"): ("bookworm", "docker"),  # its own Docker 20.10 knows no CDI
    ("debian", "13"): ("trixie", "distribution"),
    ("ubuntu", "22.04"): ("jammy", "distribution"),
    ("ubuntu", "24.04"): ("noble", "distribution"),
    ("ubuntu", "26.04"): ("resolute", "distribution"),
}
# The first of each is the daemon.
PACKAGES = {
    "docker": ["docker-ce", "docker-ce-cli", "containerd.io"],
    "distribution": ["docker.io", "docker-cli", "containerd"],
}
# dockerd's own values where daemon.json says nothing.
DEFAULTS = {"live-restore": False, "log-driver": "json-file"}
LOG_LIMITS = {"max-size": "50m", "max-file": "3"}
# File systems that hold no images, by `stat --file-system`'s names, and why.
NETWORK = "overlay2 does not work there, and each start of an engine reads the image over the network"
NO_DISKS = {
    **dict.fromkeys(["tmpfs", "ramfs"], "images take memory, and are gone after each boot"),
    **dict.fromkeys(["nfs", "nfs4", "cifs", "smb", "smb2", "ceph", "afs"], NETWORK),
}


def docker_choice(host: dict, wish: str) -> dict:
    """Where Docker comes from on `host`, a result of the module host_info asked for all PACKAGES.

    `wish` is `docker`, `distribution`, or `auto`: what is installed stays, a bare box gets its release's default. The
    answer has `source`, `packages`, `release` (the name in Docker's repository), `version` (the installed package's,
    without epoch, or None) and `finding`: a sentence on what forbids this choice, with the way out, or an empty string.
    """
    os, found = host["os"], host["packages"]
    release, default = RELEASES.get((os["id"], os["version_id"]), (None, "distribution"))
    installed = [source for source, names in PACKAGES.items() if found[names[0]]["version"]]
    source = wish if wish != "auto" else installed[0] if installed else default
    packages = PACKAGES[source]
    # Debian 13 split the client from docker.io; elsewhere docker.io brings it.
    if source == "distribution" and (os["id"], os["version_id"]) != ("debian", "13"):
        packages = [name for name in packages if name != "docker-cli"]
    daemon = packages[0]
    version = (found[daemon]["version"] or "").split(":")[-1] or None

    finding = ""
    if release is None:
        known = ", ".join(" ".join(key) for key in RELEASES)
        finding = f"no Docker is known for {os['pretty_name'] or 'this system'}; install one of {known}"
    elif installed and source not in installed:
        others = [name for name in PACKAGES[installed[0]] if found[name]["version"]]
        finding = (
            f"{others[0]} {found[others[0]]['version']} is installed, docker_engine_source is {source}; "
            f"set docker_engine_source to {installed[0]}, or remove it yourself, which ends every container: "
            f"apt-get remove {' '.join(others)}"
        )
    elif host["docker"]["installed"] and not installed:
        finding = "a dockerd is installed that belongs neither to docker-ce nor to docker.io; remove it"
    elif source == "distribution" and default == "docker" and not installed:
        finding = (
            f"docker_engine_source is distribution, and {os['pretty_name']} has a Docker that cannot give cards to "
            "containers through CDI; set docker_engine_source to docker or auto"
        )
    elif version and _number(version) < (25, 0):
        remove = [name for name in PACKAGES[source] if found[name]["version"]]
        finding = (
            f"{daemon} {version} cannot give cards to containers through CDI, 25 or newer is needed; "
            f"remove it, which ends every container and keeps images and volumes: apt-get remove {' '.join(remove)}; "
            f"the next run then installs Docker's own with docker_engine_source: docker"
        )
    return {"source": source, "packages": packages, "release": release, "version": version, "finding": finding}


def docker_cdi(version: str | None) -> dict:
    """What daemon.json must say to have CDI in Docker `version`: from 25 it must be said, from 28.3 it is the default.

    None, for a Docker that is not installed yet, says it. Raises ValueError below 25, which knows no CDI.
    """
    if version is None or (25, 0) <= _number(version) < (28, 3):
        return {"features": {"cdi": True}}
    if _number(version) < (25, 0):
        raise ValueError(f"Docker {version} knows no CDI; 25 or newer is needed")
    return {}


def docker_read(text: str | None) -> dict:
    """`settings` and `finding` of daemon.json's `text`; None and blank are no settings, as for dockerd. A finding is a
    sentence about a file that is no JSON object, and the settings are empty then."""
    try:
        settings = json.loads(text.lstrip("\ufeff")) if text and text.strip() else {}
    except ValueError as error:
        return {"settings": {}, "finding": f"/etc/docker/daemon.json is not JSON ({error}); correct it or move it away"}
    if not isinstance(settings, dict):
        return {
            "settings": {},
            "finding": f"/etc/docker/daemon.json holds {str(settings)[:40]}, not an object; correct it or move it away",
        }
    return {"settings": settings, "finding": ""}


def docker_merge(found, wish):
    """`wish` laid over `found`. Dicts merge by key at every depth, a null removes its key; of lists ours come first,
    then what else was there; anything else is replaced. Keys that `wish` does not name stay as they are."""
    if isinstance(found, dict) and isinstance(wish, dict):
        merged = {key: value for key, value in found.items() if key not in wish}
        for key, value in wish.items():
            if value is None:
                continue
            laid = docker_merge(found.get(key), value)
            # nulls alone remove from what is there, and make nothing where it is not
            if laid != {} or value == {} or found.get(key) is not None:
                merged[key] = laid
        return merged
    if isinstance(wish, dict):
        return docker_merge({}, wish)
    if isinstance(found, list) and isinstance(wish, list):
        return wish + [item for item in found if item not in wish]
    return wish


def docker_wanted(found: dict, version: str | None, insecure_registries: list, mirrors: list, own: dict) -> dict:
    """The daemon.json for a box whose file holds `found` and whose Docker is of `version` (None: not installed yet).

    `own` are the user's keys and win; what they set to null is not there, and dockerd's default is in force. Where
    nothing is, live-restore is on; a log driver that was chosen stays, and the two drivers that write files get limits
    where they have none. CDI is on, whatever is said of `features`.
    """
    wish = {"live-restore": True}
    if insecure_registries:
        wish["insecure-registries"] = insecure_registries
    if mirrors:
        wish["registry-mirrors"] = mirrors
    wanted = docker_merge(docker_merge(found, wish), own)

    features = wanted.get("features") or {}
    if isinstance(features, dict) and (docker_cdi(version) or features.get("cdi") is False):
        wanted["features"] = {**features, "cdi": True}

    if "log-driver" not in own and wanted.get("log-driver") is None:
        wanted["log-driver"] = "json-file" if wanted.get("log-opts") else "local"
    driver = wanted.get("log-driver") or DEFAULTS["log-driver"]
    chosen = own.get("log-opts", {})
    if driver in ("local", "json-file") and isinstance(chosen, dict):
        limits = {name: value for name, value in LOG_LIMITS.items() if name not in chosen}
        wanted["log-opts"] = limits | (wanted.get("log-opts") or {})
        if not wanted["log-opts"]:
            del wanted["log-opts"]
    return found if _in_force(found) == _in_force(wanted) else wanted


def _in_force(settings):
    """What `settings` come to: a null is for dockerd what a key is that is not there, and that is its default."""
    return DEFAULTS | _without_nulls(settings)


def _without_nulls(value):
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return value


def docker_judge(docker: dict, found: dict, wanted: dict) -> str:
    """What forbids that engines run on a Docker with the daemon.json `wanted`, with the way out, or an empty string.

    `docker` is `docker` of a result of the module host_info, what the daemon that runs says of itself; `found` what its
    daemon.json holds now.
    """
    remove = "remove it from /etc/docker/daemon.json, or with docker_engine_daemon: {{{}: null}}".format
    security = docker["security"]
    if wanted.get("userns-remap"):
        return (
            f"daemon.json has userns-remap {wanted['userns-remap']}: Docker then refuses the engines' --network host, "
            "and their root may not read the files of their secrets; "
            f"{remove('userns-remap')}, after which Docker has other images and containers"
        )
    if "userns" in security and not found.get("userns-remap") and not docker["config_is_newer"]:
        return (
            "dockerd runs with --userns-remap, and refuses the engines' --network host; take the option out of "
            "docker.service: systemctl cat docker.service shows where it is"
        )
    if "rootless" in security:
        return (
            "root's docker speaks to a rootless daemon, which cannot give cards to containers; docker context use "
            "default, unset DOCKER_HOST, and run the system's daemon: systemctl enable --now docker"
        )
    if docker["swarm"] and wanted.get("live-restore"):
        return (
            "Docker is part of a swarm, and does not start with live-restore; docker swarm leave, or set "
            "docker_engine_daemon: {live-restore: false}, with which each restart of Docker ends the engines"
        )
    folders = wanted.get("cdi-spec-dirs")
    if isinstance(folders, list) and not {str(path).rstrip("/") for path in folders} & {"/run/cdi", "/var/run/cdi"}:
        return (
            f"daemon.json has cdi-spec-dirs {', '.join(map(str, folders)) or 'empty'}, and the cards are described in "
            f"/run/cdi/nvidia.yaml: Docker does not find them; {remove('cdi-spec-dirs')}"
        )
    features = wanted.get("features")
    if features is not None and not isinstance(features, dict):
        return f"features of daemon.json is {features}, and must be an object, as {{cdi: true}}; correct it"
    if finding := _runtime(wanted):
        return finding + f"; {remove('default-runtime')}"
    if wanted.get("selinux-enabled") and "selinux" in security:
        return (
            "daemon.json has selinux-enabled, and SELinux is on: containers may not read the weights and the secrets, "
            f"which have no label for it; {remove('selinux-enabled')}"
        )
    if wanted.get("storage-driver") == "vfs":
        return (
            "daemon.json has storage-driver vfs, which copies the whole image for each of its layers and for each "
            f"start of an engine; {remove('storage-driver')}"
        )
    root = str(wanted.get("data-root") or "/var/lib/docker").rstrip("/")
    if root == docker["root"].rstrip("/") and docker["root_filesystem"] in NO_DISKS:
        return (
            f"{root}, where Docker keeps images, is on {docker['root_filesystem']}: "
            + NO_DISKS[docker["root_filesystem"]]
            + "; set docker_engine_daemon: {data-root: FOLDER} to one on a disk of the box"
        )
    return ""


def _runtime(wanted):
    """What is against the runtime that containers get, or ""."""
    name = wanted.get("default-runtime")
    if not name or name in ("runc", "io.containerd.runc.v2"):
        return ""
    entry = (wanted.get("runtimes") or {}).get(name)
    if entry is None and not (str(name).startswith("io.containerd.") or str(name).startswith("/")):
        return f"daemon.json has default-runtime {name}, which its runtimes do not name: Docker does not start with it"
    words = f"{name} {entry}"
    if found := re.search(r"runsc|gvisor|kata|firecracker", words):
        return (
            f"daemon.json has default-runtime {name} ({found[0]}), a sandbox with a kernel of its own, which cannot "
            "open the cards that CDI gives to an engine"
        )
    return ""


def docker_restart_reasons(docker: dict, found: dict, wanted: dict) -> list[str]:
    """Why a Docker that runs must be restarted to work by `wanted`; empty for one that does not run.

    `docker` is `docker` of a result of the module host_info, `found` what its daemon.json holds now.
    """
    if not docker["version"]:
        return []
    reasons = []
    changed = sorted(key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key))
    if changed:
        reasons.append(f"daemon.json gets another {', '.join(changed)}")
    elif docker["config_is_newer"]:
        reasons.append("daemon.json was changed after the daemon started")
    else:
        # a key that is not there is no value: dockerd's default is
        expected = {name: DEFAULTS[name] if wanted.get(name) is None else wanted[name] for name in DEFAULTS}
        expected["features.cdi"] = True
        reasons += [
            f"the daemon runs with {name} {docker['loaded'][name]}, wanted is {value}"
            for name, value in expected.items()
            if docker["loaded"][name] != value
        ]
    return reasons


def _number(version):
    found = re.match(r"(\d+)\.(\d+)", version)
    if not found:
        raise ValueError(f"Docker's version is {version!r}; it should begin as 28.3")
    return int(found[1]), int(found[2])


class FilterModule:
    """Ansible's entry point."""

    def filters(self):
        return {
            "docker_choice": docker_choice,
            "docker_read": docker_read,
            "docker_wanted": docker_wanted,
            "docker_judge": docker_judge,
            "docker_restart_reasons": docker_restart_reasons,
        }
