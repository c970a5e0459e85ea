#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: the weights of a model at one revision, whole, on a box."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: model_store
short_description: Have a model's weights at one revision, whole, on a box
description:
  - Fetches what is missing of a model from a hub, a web server, a folder, or another box, checks every hash, and puts
    the folder in place only when it is whole. An interrupted run is gone on from, not begun again.
  - A manifest beside the folder holds the hash of each file with size, times and inode of the moment in which it was
    verified. A file for which they have changed is hashed again, and fetched again if it is not what it was; the
    others cost nothing.
  - With O(source=none) it also checks that an engine's container, which has this folder alone, sees all of its files.
  - Needs nothing but Python's standard library on the box.
options:
  path:
    description: Folder of this revision. With O(source=none) any folder.
    type: path
    required: true
  source:
    description:
      - Where to fetch from. V(none) fetches nothing and only checks the folder.
      - V(box) fetches the O(files) of another box's module C(model_share); without them it says whether the folder is
        whole.
    type: str
    choices: [none, hub, web, path, box]
    default: none
  revision:
    description:
      - Commit of the model, 40 hexadecimal digits, or for V(web) and V(path) the SHA-256 of its file C(SHA256SUMS),
        64 digits.
      - Needed with each O(source) but V(none).
    type: str
  repository:
    description: OWNER/NAME on the hub, for O(source=hub).
    type: str
  endpoint:
    description: Address of the hub or a mirror of it.
    type: str
    default: https://huggingface.co
  hub_token:
    description: Token for private or gated repositories. It is sent to O(endpoint) alone, never where that redirects.
    type: str
  url:
    description: Folder with SHA256SUMS on a web server for O(source=web); for V(box) the address that C(model_share)
      returned.
    type: str
  share_token:
    description: The token that C(model_share) was given, for O(source=box).
    type: str
  from_path:
    description: Folder on this machine for O(source=path), such as a mounted disk or share.
    type: path
  files:
    description: What C(model_share) returned, for O(source=box).
    type: list
    elements: dict
  exclude:
    description: Patterns of file names that are not fetched, such as C(original/*).
    type: list
    elements: str
    default: []
  verify:
    description:
      - V(quick) hashes files whose size, times or inode have changed since they were verified.
      - V(full) hashes all of them, which takes a minute or more for 20 GB.
    type: str
    choices: [quick, full]
    default: quick
  reserve_gib:
    description: GiB that must stay free on the disk.
    type: float
    default: 5
  timeout:
    description: Seconds after which a server that sends nothing is given up.
    type: int
    default: 60
  tries:
    description: Attempts without progress after which a file is given up.
    type: int
    default: 6
  delete_old:
    description: Whether to delete other revisions of the model that no container mounts and no unit, current or kept
      for a rollback, names.
    type: bool
    default: false
attributes:
  check_mode:
    support: full
    description: Says what would be fetched and how many bytes, whether the disk has room, and fetches nothing.
  diff_mode:
    support: full
    description: One line per file that would change.
  idempotent:
    support: full
    description: A second run asks no server and changes nothing.
author:
  - tandem (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Have the weights at a commit
  model_store:
    path: /srv/models/my-model/0123456789abcdef0123456789abcdef01234567
    source: hub
    repository: owner/my-model
    revision: 0123456789abcdef0123456789abcdef01234567

- name: Hash everything that is here
  model_store:
    path: /srv/models/my-model
    verify: full
"""

RETURN = r"""
folder: {description: The folder., type: str, returned: always}
complete: {description: Whether the folder was whole before this run., type: bool, returned: always}
needs_listing: {description: "O(source=box) without O(files), and something is missing.", type: bool, returned: always}
fetch:
  description: "What this run fetches, or would in check mode: C(files), C(bytes), C(resumed_bytes), C(names)."
  type: dict
  returned: always
fetched:
  description: "Per fetched file C(name), C(bytes), C(resumed_at), C(seconds)."
  type: list
  returned: when something was fetched
listing:
  description: All files of the revision, C(name), C(size), C(hash), as O(files) takes them.
  type: list
  returned: in check mode, when something is missing
hashed: {description: How many files were hashed to see whether they are whole., type: int, returned: always}
deleted: {description: Revisions that were deleted., type: list, returned: always}
kept: {description: "Other revisions that are here: C(revision), C(bytes), C(used_by).", type: list, returned: always}
says: {description: All of that in a sentence., type: str, returned: always}
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tandem_model_container import container_problems
from ansible.module_utils.tandem_model_files import ModelError, human, structure_problems
from ansible.module_utils.tandem_model_http import Client, HttpRefusal
from ansible.module_utils.tandem_model_sources import hub_files, hub_refusal, path_files, web_files, without
from ansible.module_utils.tandem_model_store import PARALLEL, Lock, Store, copy, count, describe


def check_only(params):
    """Result for source none: nothing is fetched, so what is wrong is an error."""
    path, hashed = params["path"], 0
    if problems := container_problems(path):
        raise ModelError(". ".join(problems))
    problems = structure_problems(path)
    if params["verify"] == "full" and not problems:
        store = Store(path, Store.revision_of(path))
        known = store.known()
        files = store.files() if known else [each for each in path_files(path, None) if each["hash"]]
        problems = [
            f"{each['name']} is not what it was when it was fetched" for each in store.missing(files, full=True)
        ]
        hashed = store.hashed
    if problems:
        raise ModelError(
            f"{path} (vllm_model) is no whole model: {'; '.join(problems)}. Put the files there, for example with "
            f"hf download REPOSITORY --local-dir {path}; correct vllm_model; or have them fetched (model_store_source)"
        )
    note = f", {hashed} files have the hash that their source gave" if params["verify"] == "full" else ""
    if params["verify"] == "full" and not hashed:
        note = "; there are no hashes to check it by: neither SHA256SUMS nor notes of hf download"
    return {"complete": True, "hashed": hashed, "says": f"{path}: a whole model{note}"}


def listing(params, client):
    source, revision = params["source"], params["revision"]
    if source == "hub":
        files = hub_files(client, params["endpoint"].rstrip("/"), params["repository"], revision)
    elif source == "web":
        files = web_files(client, params["url"], revision)
    elif source == "path":
        files = path_files(params["from_path"], revision)
    else:
        base = params["url"] and f"{params['url'].rstrip('/')}/{params['share_token']}"
        files = [
            {**each, "size": int(each["size"]), "from": f"{base}/{number}"}
            for number, each in enumerate(params["files"])
        ]
    return without(files, params["exclude"])


def make_client(params):
    hub, box = params["source"] == "hub", params["source"] == "box"
    return Client(
        endpoint=params["endpoint"] if hub else "",
        token=params["hub_token"] if hub else None,
        timeout=params["timeout"],
        tries=params["tries"],
        # boxes reach one another without the way out
        use_proxy=not box,
        secret=(params["share_token"] or "") if box else "",
    )


def where(params):
    return {
        "hub": f"{params['endpoint']} {params['repository']}",
        "web": params["url"],
        "path": params["from_path"],
        "box": params["url"] or "another box",
    }[params["source"]]


def run(module):
    params = module.params
    result = {
        "changed": False,
        "folder": params["path"],
        "needs_listing": False,
        "deleted": [],
        "kept": [],
        "hashed": 0,
    }
    result["fetch"] = {"files": 0, "bytes": 0, "resumed_bytes": 0, "names": []}
    if params["source"] == "none":
        return {**result, **check_only(params)}
    store, full = Store(params["path"], params["revision"], params["exclude"]), params["verify"] == "full"
    client = make_client(params)
    try:
        return work(module, params, result, store, client, full)
    finally:
        # each connection waits for the same limit
        for sentence in list(dict.fromkeys(client.waited))[:3]:
            module.warn(sentence)


def work(module, params, result, store, client, full):
    if module.check_mode:
        files, missing = look(store, params, client, full)
    else:
        with Lock(os.path.join(os.path.dirname(store.path), ".tandem.lock")):
            files, missing = look(store, params, client, full)
            if files is not None and (missing or not os.path.isdir(store.path)):
                result["fetched"] = fetch(store, params, client, files, missing, module.log)
            elif os.path.exists(store.manifest_path):
                store.save()
            if files is not None and not store.known():
                store.finish(files)
    result["hashed"] = store.hashed
    if module.check_mode and missing:
        # what a box that is to fetch it from this one will find here
        result["listing"] = [{name: each[name] for name in ("name", "size", "hash")} for each in files]
    if files is None:
        return {
            **result,
            "needs_listing": True,
            "complete": False,
            "says": f"{store.path}: to be fetched from another box",
        }
    moved = result.get("fetched") is not None or not os.path.isdir(store.path)
    result["complete"] = not missing and not moved
    result["changed"] = not result["complete"]
    parts = (
        sum(each["resumed_at"] for each in result.get("fetched", []))
        if "fetched" in result
        else store.part_bytes(missing)
    )
    result["fetch"] = {
        "files": len(missing),
        "bytes": sum(each["size"] for each in missing) - parts,
        "resumed_bytes": parts,
        "names": [each["name"] for each in missing],
    }
    says = f"{store.path}: whole, {count(files)}, {human(sum(each['size'] for each in files))}"
    if result["changed"]:
        verb = "would fetch" if module.check_mode else "fetched"
        says = f"{store.path}: {verb} {describe(missing, parts, where(params))}" + (
            f"; {human(parts)} were here" if parts else ""
        )
        if module._diff:
            lines = [f"{each['name']} {each['hash'] or 'as the source has it'}\n" for each in missing]
            result["diff"] = {
                "before_header": store.path,
                "after_header": store.path,
                "before": "",
                "after": "".join(lines),
            }
    if params["delete_old"]:
        deleted, result["kept"] = store.delete_others(module.check_mode)
        result["deleted"] = [each["revision"] for each in deleted]
        if deleted:
            result["changed"] = True
            says += f"; {'would delete' if module.check_mode else 'deleted'} " + ", ".join(result["deleted"])
        says += "".join(f"; kept {each['revision']}, used by {', '.join(each['used_by'])}" for each in result["kept"])
    return {**result, "says": says}


def look(store, params, client, full):
    """(all files, missing files); (None, None) where the listing of another box is needed first. ModelError where the
    disk is too small."""
    known = store.known()
    files = store.files()
    missing = store.missing(files, full) if known else files
    if known and not missing:
        return files, missing
    if params["source"] == "box" and params["files"] is None:
        return None, None
    files = listing(params, client)
    missing = store.missing(files, full and not known)
    store.check_disk(missing, int(params["reserve_gib"] * 2**30))
    return files, missing


def fetch(store, params, client, files, missing, log):
    def get(each, part):
        if params["source"] == "path":
            return copy(each, part)
        try:
            return client.fetch(each["from"], part, each["size"], each["hash"])
        except HttpRefusal as error:
            if params["source"] != "hub":
                raise
            raise hub_refusal(error, client, params["endpoint"], params["repository"], params["revision"]) from error

    # several readers make a disk slower, several connections a download faster
    lines = store.fetch(missing, get, 1 if params["source"] == "path" else PARALLEL, log)
    store.finish(files)
    problems = store.problems()
    if problems:
        raise ModelError(
            f"{store.path} is what {where(params)} has, and no whole model: {'; '.join(problems)}. Correct the source"
        )
    return lines


def main():
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "source": {"type": "str", "choices": ["none", "hub", "web", "path", "box"], "default": "none"},
            "revision": {"type": "str"},
            "repository": {"type": "str"},
            "endpoint": {"type": "str", "default": "https://huggingface.co"},
            "hub_token": {"type": "str", "no_log": True},
            "url": {"type": "str"},
            "share_token": {"type": "str", "no_log": True},
            "from_path": {"type": "path"},
            "files": {"type": "list", "elements": "dict"},
            "exclude": {"type": "list", "elements": "str", "default": []},
            "verify": {"type": "str", "choices": ["quick", "full"], "default": "quick"},
            "reserve_gib": {"type": "float", "default": 5},
            "timeout": {"type": "int", "default": 60},
            "tries": {"type": "int", "default": 6},
            "delete_old": {"type": "bool", "default": False},
        },
        required_if=[
            ("source", "hub", ["repository", "revision"]),
            ("source", "web", ["url", "revision"]),
            ("source", "path", ["from_path", "revision"]),
            ("source", "box", ["revision"]),
        ],
        supports_check_mode=True,
    )
    try:
        result = run(module)
    except ModelError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{module.params['path']}: {error}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
