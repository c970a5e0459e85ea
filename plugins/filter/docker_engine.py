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
            if value is not None:
                merged[key] = docker_merge(found.get(key), value)
        return merged
    if isinstance(wish, dict):
        return docker_merge({}, wish)
    if isinstance(found, list) and isinstance(wish, list):
        return wish + [item for item in found if item not in wish]
    return wish


def docker_wanted(found: dict, version: str | None, insecure_registries: list, mirrors: list, own: dict) -> dict:
    """The daemon.json for a box whose file holds `found` and whose Docker is of `version` (None: not installed yet).

    `own` are the user's keys and win. live-restore is on; a log driver that was chosen stays, and the two drivers that
    write files get limits where they have none.
    """
    wish = {"live-restore": True, **docker_cdi(version)}
    features = found.get("features")
    if isinstance(features, dict) and features.get("cdi") is False:
        wish["features"] = {"cdi": True}
    if insecure_registries:
        wish["insecure-registries"] = insecure_registries
    if mirrors:
        wish["registry-mirrors"] = mirrors
    wanted = docker_merge(docker_merge(found, wish), own)
    driver = wanted.setdefault("log-driver", "json-file" if "log-opts" in wanted else "local")
    if driver in ("local", "json-file"):
        wanted["log-opts"] = {"max-size": "50m", "max-file": "3"} | (wanted.get("log-opts") or {})
    return wanted


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
        expected = {
            "live-restore": wanted.get("live-restore"),
            "log-driver": wanted.get("log-driver"),
            "features.cdi": True,
        }
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
            "docker_restart_reasons": docker_restart_reasons,
        }
