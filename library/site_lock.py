#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""A lock on a machine, so that two runs never change a lab at the same time."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: site_lock
short_description: Takes, releases or reads the lock that a run holds on a machine
description:
  - The lock is a file in which stands who holds it. It survives a reboot of the machine, as a run does that reboots it.
  - A lock that another run holds is no error here. The result says who holds it, and the caller decides.
  - Taking and releasing a lock is not reported as a change; it is nothing that a machine is meant to have.
options:
  state:
    description:
      - V(held) takes the lock, unless another run holds it.
      - V(absent) releases it, if O(holder) holds it.
      - V(status) reads it.
    type: str
    choices: [held, absent, status]
    required: true
  holder:
    description: Who takes or releases it. C(run) tells runs apart; the rest is for people.
    type: dict
    required: true
  instead_of:
    description: The C(run) of a holder whose lock may be taken over.
    type: str
  path:
    description: The file.
    type: path
    default: /var/lib/tandem/lock.json
attributes:
  check_mode:
    support: full
    description: Neither takes nor releases the lock.
  diff_mode:
    support: none
    description: A lock is nothing that a machine is meant to have.
author:
  - tandem (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Take the lock
  site_lock:
    state: held
    holder: {run: "host:123:456", who: me@host, since: "2026-11-30T12:00:00"}
  register: lock
"""

RETURN = r"""
mine:
  description: Whether O(holder) holds the lock, or in check mode could.
  returned: always
  type: bool
holder:
  description: Who holds it, or null.
  returned: always
  type: dict
"""

import json
import os
import tempfile

from ansible.module_utils.basic import AnsibleModule


def read(path):
    """Who holds the lock, or None. A file that is no JSON is a lock as well: somebody wrote it."""
    try:
        with open(path, encoding="utf-8", errors="replace") as handle:
            text = handle.read()
    except FileNotFoundError:
        return None
    try:
        holder = json.loads(text)
    except (ValueError, RecursionError):
        holder = None
    ours = isinstance(holder, dict) and isinstance(holder.get("run"), str) and holder["run"]
    return holder if ours else {"run": "unknown", "who": "unknown"}


def take(path, holder, instead_of=None):
    """Whether `holder` has the lock afterwards. The file appears whole or not at all, never over that of another."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".lock-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
            json.dump(holder, handle)
        os.chmod(temporary, 0o644)
        try:
            os.link(temporary, path)
        except FileExistsError:
            found = read(path)
            if found and found["run"] == holder["run"]:
                return True
            if found and found["run"] == instead_of:
                os.replace(temporary, path)
                return True
            return False
        return True
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


def release(path, holder):
    found = read(path)
    if found and found["run"] == holder["run"]:
        os.unlink(path)


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["held", "absent", "status"], "required": True},
            "holder": {"type": "dict", "required": True},
            "instead_of": {"type": "str"},
            "path": {"type": "path", "default": "/var/lib/tandem/lock.json"},
        },
        supports_check_mode=True,
    )
    path, holder = module.params["path"], module.params["holder"]
    if not holder.get("run"):
        module.fail_json(msg=f"holder is {holder}; it needs run, by which runs are told apart")
    try:
        if not module.check_mode:
            if module.params["state"] == "held":
                take(path, holder, module.params["instead_of"])
            elif module.params["state"] == "absent":
                release(path, holder)
        found = read(path)
    except OSError as error:
        module.fail_json(
            msg=f"the lock {path} cannot be used: {error}. A lock is a file; if no run is under way, move away what is "
            "there, and run again"
        )
    run = found["run"] if found else None
    takes = {None, module.params["instead_of"]} if module.check_mode and module.params["state"] == "held" else set()
    module.exit_json(changed=False, mine=run in {holder["run"], *takes}, holder=found)


if __name__ == "__main__":
    main()
