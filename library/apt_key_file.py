#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""A repository's key on a box, only where it has the fingerprint that is expected."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: apt_key_file
short_description: The key of an APT repository, with its fingerprint checked
description:
  - Puts the key at O(url) into the file O(path). A key with another fingerprint is an error that names both, and
    nothing is written.
  - A file that holds a key with an expected fingerprint stays, and nothing is fetched. Any other is replaced.
  - Fetches with APT's own helper, so with APT's proxies, certificates and passwords.
options:
  path:
    description: The key file.
    type: path
    required: true
  url:
    description: Address of the key, armoured or not.
    type: str
    required: true
  fingerprints:
    description:
      - Fingerprints of primary keys, 40 or 64 hexadecimal digits. Blanks between them do not count.
      - The file may hold these keys and no other.
    type: list
    elements: str
    required: true
attributes:
  check_mode:
    support: full
    description: Fetches and checks the key, and does not write it.
  diff_mode:
    support: full
    description: Shows fingerprints.
author:
  - tandem (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Have the repository's key
  apt_key_file:
    path: /etc/apt/keyrings/docker.asc
    url: https://download.docker.com/linux/debian/gpg
    fingerprints: [9DC858229FC7DD38854AE2D88D81803C0EBFCD88]
"""

RETURN = r"""
fingerprints:
  description: Fingerprints of the keys that the file holds, or would hold.
  returned: success
  type: list
  elements: str
"""

import os
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tandem_apt import RepositoryError, fingerprints, key_of


def write(module, path, content):
    if not os.path.isdir(os.path.dirname(path)):
        os.makedirs(os.path.dirname(path), mode=0o755)
    handle, temporary = tempfile.mkstemp(dir=module.tmpdir)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    module.atomic_move(temporary, path)


def main():
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "url": {"type": "str", "required": True, "no_log": False},
            "fingerprints": {"type": "list", "elements": "str", "required": True},
        },
        supports_check_mode=True,
    )
    path, url = module.params["path"], module.params["url"]
    try:
        with open(path, "rb") as handle:
            before = fingerprints(handle.read()) or ["no key"]
    except OSError:
        before = []
    try:
        content, fetched = key_of(path, url, module.params["fingerprints"])
    except RepositoryError as error:
        module.fail_json(msg=f"{error}. Nothing was entered.")
    if fetched and not module.check_mode:
        write(module, path, content)
    changed = fetched
    if os.path.exists(path):
        wanted = {"path": path, "mode": "0644", "owner": "root", "group": "root"}
        arguments = module.load_file_common_arguments({**module.params, **wanted})
        changed = module.set_fs_attributes_if_different(arguments, changed)
    now = fingerprints(content)
    diff = {
        "before_header": path,
        "after_header": path,
        "before": "".join(one + "\n" for one in before),
        "after": "".join(one + "\n" for one in now),
    }
    module.exit_json(changed=changed, fingerprints=now, diff=diff)


if __name__ == "__main__":
    main()
