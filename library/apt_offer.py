#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""What a repository offers, asked by APT apart from the box's own sources and lists."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: apt_offer
short_description: Versions of packages that a repository offers
description:
  - Has APT read a repository's index in a folder of its own, with the key's fingerprint and the index's signature
    checked, and says which versions of packages are in it.
  - Nothing of the box changes, neither its sources nor its lists nor its keys.
options:
  url:
    description: The repository's address; null is the repositories that the box has.
    type: str
  suite:
    description: Its suite.
    type: str
    default: /
  component:
    description: Its component; empty for a flat repository.
    type: str
    default: ""
  key_path:
    description: File on the box that may hold the key already.
    type: path
  key_url:
    description: Address of the key. Needed with O(url).
    type: str
  fingerprints:
    description: As in M(apt_key_file).
    type: list
    elements: str
    default: []
  packages:
    description: Names, with C(*) and C(?) as in file names.
    type: list
    elements: str
    required: true
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
- name: Ask what the archive offers
  apt_offer:
    packages: ["nvidia-headless-no-dkms-*-server-open"]
  register: offer
"""

RETURN = r"""
apt_offer:
  description: What was found.
  returned: always
  type: dict
  contains:
    error: {description: "Why the repository cannot be used, in APT's words, or null.", type: str}
    versions: {description: "By package: the versions that it offers, the newest first.", type: dict}
"""

import fnmatch
import os
import re
import subprocess
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tandem_apt import RepositoryError, key_of

HOOKS = ("Pre-Invoke", "Post-Invoke", "Post-Invoke-Success")


class Apt:
    """APT with lists of its own in `folder`; with sources of its own too where `source` names their file."""

    def __init__(self, folder, source=None):
        # below it APT gives the downloads to its user _apt
        os.chmod(folder, 0o755)
        for name in ("lists/partial", "cache/archives/partial"):
            os.makedirs(os.path.join(folder, name))
        # what the box has done after an update (a time stamp, a cache) is meant for its own lists
        config = os.path.join(folder, "apt.conf")
        with open(config, "w", encoding="utf-8") as handle:
            handle.writelines(f"#clear APT::Update::{name};\n" for name in HOOKS)
        self.options = [f"-c={config}", f"-oDir::State::lists={folder}/lists", f"-oDir::Cache={folder}/cache"]
        if source:
            self.options += [f"-oDir::Etc::sourcelist={source}", "-oDir::Etc::sourceparts=/dev/null"]

    def run(self, command, *arguments):
        return subprocess.run(
            [command, *self.options, *arguments],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )

    def update(self):
        done = self.run("apt-get", "-q", "update", "-oAPT::Update::Error-Mode=any", "-oAcquire::Languages=none")
        if done.returncode:
            said = re.findall(r"^(?:E|W|Error|Warning): (.*)$", done.stderr, re.MULTILINE)
            # what failed in APT's own words; the rest says that something failed
            told = [line for line in said if not re.match(r"Some index files|The repository .* is not signed", line)]
            raise RepositoryError(" ".join((told or said or [done.stderr.strip()])[0].split()))

    def versions(self, patterns):
        known = self.run("apt-cache", "pkgnames").stdout.split()
        names = [name for name in known if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
        found = {}
        for start in range(0, len(names), 500):
            for line in self.run("apt-cache", "madison", *sorted(names)[start : start + 500]).stdout.splitlines():
                name, version, _ = (part.strip() for part in line.split("|"))
                if version not in found.setdefault(name, []):
                    found[name].append(version)
        return found


def of_repository(params, folder):
    key, _ = key_of(params["key_path"], params["key_url"], params["fingerprints"])
    path, source = os.path.join(folder, "key.asc"), os.path.join(folder, "repository.sources")
    with open(path, "wb") as handle:
        handle.write(key)
    components = f"Components: {params['component']}\n" if params["component"] else ""
    with open(source, "w", encoding="utf-8") as handle:
        handle.write(f"Types: deb\nURIs: {params['url']}\nSuites: {params['suite']}\n{components}Signed-By: {path}\n")
    for name in (path, source):
        os.chmod(name, 0o644)
    apt = Apt(folder, source)
    apt.update()
    return apt.versions(params["packages"])


def of_the_box(params, folder):
    """Asked anew, as the box's lists may be old or empty. A source that fails need not be the one that matters."""
    apt, error = Apt(folder), None
    try:
        apt.update()
    except RepositoryError as failed:
        error = failed
    found = apt.versions(params["packages"])
    if error and not found:
        raise error
    return found


def main():
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str"},
            "suite": {"type": "str", "default": "/"},
            "component": {"type": "str", "default": ""},
            "key_path": {"type": "path", "no_log": False},
            "key_url": {"type": "str", "no_log": False},
            "fingerprints": {"type": "list", "elements": "str", "default": []},
            "packages": {"type": "list", "elements": "str", "required": True},
        },
        required_by={"url": ["key_url", "key_path"]},
        supports_check_mode=True,
    )
    look = of_repository if module.params["url"] else of_the_box
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = {"error": None, "versions": look(module.params, folder)}
        except RepositoryError as error:
            found = {"error": str(error), "versions": {}}
    module.exit_json(changed=False, apt_offer=found)


if __name__ == "__main__":
    main()
