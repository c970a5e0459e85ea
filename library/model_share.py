#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: let another box fetch a model from this one, for the time of the fetch."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: model_share
short_description: Let another box fetch a model from this one, for the time of the fetch
description:
  - Starts a transient systemd unit with a read-only web server that gives out the files of one folder, to whoever
    knows the token, on one address of the box. It ends when told, or after ten minutes without a request.
  - The hashes that the fetching box checks go through Ansible's own connection, not through the server.
options:
  name:
    description: Name of the share, part of its unit's name; the fetching box's.
    type: str
    required: true
  state:
    description: Whether there is to be one.
    type: str
    choices: [present, absent]
    default: present
  path:
    description: Folder of the model.
    type: path
  revision:
    description: What the folder is to hold.
    type: str
  address:
    description: Address or name of this box, as the other box reaches it.
    type: str
  token:
    description: 32 or more letters and digits, which the fetching box must know.
    type: str
attributes:
  check_mode:
    support: full
    description: Returns the files, starts nothing. Hashes that nobody has computed yet are null.
  diff_mode:
    support: none
    description: Nothing of the box is changed for longer than the fetch.
author:
  - tandem (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Let box2 fetch from here
  model_share:
    name: box2
    path: /srv/models/my-model/0123456789abcdef0123456789abcdef01234567
    address: 192.168.1.11
    token: "{{ token }}"
  delegate_to: box1
"""

RETURN = r"""
url: {description: Where the files are; null in check mode., type: str, returned: with state present}
files: {description: "C(name), C(size) and C(hash) of each file.", type: list, returned: with state present}
"""

import contextlib
import os
import re
import subprocess
import time

from ansible.module_utils import tandem_model_serve
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tandem_model_files import (
    ModelError,
    file_hash,
    read_json,
    stamp,
    structure_problems,
    write_json,
)
from ansible.module_utils.tandem_model_sources import path_files
from ansible.module_utils.tandem_model_store import Lock, Store

FOLDER = "/run/tandem/model-share"
ENDINGS = (".py", ".json", ".said")
# The server reads files of whatever owner, and can do nothing else.
PROPERTIES = [
    "Type=exec",
    "ProtectSystem=strict",
    f"ReadWritePaths={FOLDER}",
    "ProtectHome=read-only",
    "PrivateTmp=yes",
    "NoNewPrivileges=yes",
    "CapabilityBoundingSet=CAP_DAC_READ_SEARCH",
    "RestrictAddressFamilies=AF_INET AF_INET6",
    "MemoryDenyWriteExecute=yes",
    "RuntimeMaxSec=86400",
    "Nice=10",
    "IOSchedulingClass=idle",
]


def share_files(path, revision, check):
    """Files of the folder with their hashes. They are computed once; a manifest beside the folder keeps them."""
    with contextlib.nullcontext() if check else Lock(os.path.join(os.path.dirname(path), ".tandem.lock"), wait=True):
        store = Store(path, revision or Store.revision_of(path))
        problems = structure_problems(path)
        if problems:
            raise ModelError(f"cannot give out {path}: {'; '.join(problems)}. Put a whole model there first")
        known = store.known()
        files = store.files() if known else path_files(path, store.revision)
        for each in files:
            if each["hash"] is None and not check:
                each["hash"] = file_hash(each["from"])
                store.note(each["name"], each["size"], each["hash"], stamp(each["from"]))
        damaged = [each["name"] for each in store.missing(files) if each["hash"]]
        if damaged:
            raise ModelError(
                f"cannot give out {path}: {', '.join(damaged)} is not what it was when it was fetched. Fetch it "
                "again on that box"
            )
        if not check and not known:
            store.finish(files)
        elif not check:
            store.save()
        return [{name: each[name] for name in ("name", "size", "hash")} for each in files]


def start(params, files):
    """Address of the server, once it listens."""
    os.makedirs(FOLDER, mode=0o700, exist_ok=True)
    program, config, said = (os.path.join(FOLDER, params["name"] + ending) for ending in ENDINGS)
    stop(params)
    with open(program, "w", encoding="utf-8") as handle:
        handle.write(tandem_model_serve.__loader__.get_source(tandem_model_serve.__name__))
    content = {"root": params["path"], "names": [each["name"] for each in files], "said": said}
    write_json(config, {**content, "token": params["token"], "address": params["address"]}, mode=0o600)
    command = [
        "systemd-run",
        "--quiet",
        "--collect",
        "--unit",
        unit(params),
        "--description",
        f"model for {params['name']}",
    ]
    for each in PROPERTIES:
        command += ["--property", each]
    done = subprocess.run(
        [*command, "/usr/bin/python3", "-B", program, config], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ModelError(f"{unit(params)} did not start: {done.stderr.strip()}")
    for _ in range(100):
        answer = read_json(said)
        if answer.get("error"):
            raise ModelError(answer["error"])
        if answer.get("port"):
            address = params["address"].removeprefix("[").removesuffix("]")
            spot = f"[{address}]" if ":" in address else address
            return f"http://{spot}:{answer['port']}"
        time.sleep(0.1)
    raise ModelError(f"{unit(params)} says nothing within 10 s; see journalctl -u {unit(params)} on that box")


def stop(params):
    """Whether there was one."""
    running = (
        subprocess.run(["systemctl", "is-active", unit(params)], capture_output=True, text=True, check=False).returncode
        == 0
    )
    if running:
        done = subprocess.run(["systemctl", "stop", unit(params)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise ModelError(f"{unit(params)} does not stop: {done.stderr.strip()}")
    for ending in ENDINGS:
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(FOLDER, params["name"] + ending))
    return running


def unit(params):
    return f"tandem-model-share-{params['name']}.service"


def main():
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "path": {"type": "path"},
            "revision": {"type": "str"},
            "address": {"type": "str"},
            "token": {"type": "str", "no_log": True},
        },
        required_if=[("state", "present", ["path", "address", "token"])],
        supports_check_mode=True,
    )
    params = module.params
    params["name"] = re.sub(r"[^A-Za-z0-9_.-]", "_", params["name"])
    try:
        if params["state"] == "absent":
            module.exit_json(changed=stop(params) if not module.check_mode else False)
        if not re.match(r"^[A-Za-z0-9]{32,}$", params["token"]):
            raise ModelError("token must be 32 or more letters and digits")
        params["path"] = params["path"].rstrip("/")
        files = share_files(params["path"], params["revision"], module.check_mode)
        url = None if module.check_mode else start(params, files)
    except ModelError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{params['path'] or params['name']}: {error}")
    module.exit_json(changed=not module.check_mode, url=url, files=files)


if __name__ == "__main__":
    main()
