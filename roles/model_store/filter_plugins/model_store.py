# SPDX-License-Identifier: Apache-2.0
"""Filter model_store_judge: where a model's folder is, and what is wrong with the settings."""

from __future__ import annotations

import difflib
import re
from urllib.parse import urlsplit

NEEDS = {"none": [], "hub": ["repository"], "web": ["url"], "path": ["path"], "box": ["box"]}
COMMIT = re.compile(r"^[0-9a-f]{40}$")
SHA256 = re.compile(r"^[0-9a-f]{64}$")


def model_store_judge(settings):
    """{"path": folder of the revision or None, "problems": sentences} of a dict with the role's variables without
    their prefix.

    `has_token` stands for the token itself, `boxes` are the names in the inventory. Nothing here looks at a box.
    """
    source = settings["source"]
    problems = []
    for name in NEEDS[source]:
        if not settings[name]:
            problems.append(f"model_store_source is {source}, which needs model_store_{name}: {WHAT[name]}")
    problems.extend(_shapes(settings))
    if source == "none" or problems:
        return {"path": None, "problems": problems}
    problems = _revision(source, settings["revision"])
    name = (
        settings["name"]
        or (settings["repository"] or settings["url"] or settings["path"] or "").rstrip("/").split("/")[-1]
    )
    if not name:
        problems.append(
            "model_store_name is not set, and there is no repository, address or path to take it from: set it to a "
            "name for the folder"
        )
    elif not re.match(r"^[A-Za-z0-9][A-Za-z0-9._-]*$", name):
        problems.append(
            f"model_store_name is {name}; allowed are letters, digits and . _ - (it becomes a folder). Set "
            "model_store_name"
        )
    path = None if problems else f"{settings['folder'].rstrip('/')}/{name}/{settings['revision']}"
    return {"path": path, "problems": problems}


WHAT = {
    "repository": "OWNER/NAME as the hub's page says",
    "url": "the address of a folder that has a SHA256SUMS",
    "path": "the absolute path of a folder on the box, such as /mnt/models/NAME",
    "box": "the name in the inventory of the box that has the model",
}


def _revision(source, revision):
    others = "" if source == "hub" else ", or the SHA-256 of its file SHA256SUMS (sha256sum SHA256SUMS), 64 digits"
    if source == "box":
        others = ", or whatever 40 or 64 digits it has on that box (the folder's name there)"
    wanted = f"the full commit hash of the model, 40 hexadecimal digits in small letters{others}"
    if not revision:
        return [
            f"model_store_revision is not set; set it to {wanted}. The commit stands on the model's page on the hub "
            "under Files, History"
        ]
    if COMMIT.match(revision) or (source != "hub" and SHA256.match(revision)):
        return []
    return [
        f"model_store_revision is {revision}; allowed is {wanted}. A branch or tag is another model tomorrow: git "
        "ls-remote "
        "https://huggingface.co/OWNER/NAME prints the commit that it names now"
    ]


def _shapes(settings):
    problems = []
    for name in ("folder", "path"):
        value = settings[name]
        if value and not re.match(r"^/[^,\0\n]*[^,/\0\n]$", value):
            problems.append(
                f"model_store_{name} is {value}; it must be an absolute path without a comma and without a slash at "
                "its end"
            )
    repository = settings["repository"]
    if repository and not re.match(r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$", repository):
        problems.append(
            f"model_store_repository is {repository}; it must be OWNER/NAME, not an address and without a revision"
        )
    for name in ("hub_endpoint", "url"):
        value = settings[name]
        if not value:
            continue
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            problems.append(f"model_store_{name} is {value}; it must be an http or https address without ? and #")
        elif parts.username is not None:
            problems.append(
                f"model_store_{name} has a user in it (...@{parts.hostname}), which would stand in logs; take an "
                "address without one"
            )
        elif (
            name == "hub_endpoint" and parts.scheme == "http" and settings["has_token"] and settings["source"] == "hub"
        ):
            problems.append(
                f"model_store_hub_endpoint is {value}, and model_store_hub_token would travel over it for all to "
                "read: take https, or leave the token out"
            )
    box = settings["box"]
    if settings["source"] == "box" and box and box not in settings["boxes"]:
        near = difflib.get_close_matches(box, settings["boxes"], n=1)
        problems.append(
            f"model_store_box is {box}, which is not in the inventory"
            + (f": did you mean {near[0]}?" if near else ". Correct the name")
        )
    for name, low, high in (("reserve_gib", 0, 10000), ("timeout", 5, 3600)):
        if not low <= float(settings[name]) <= high:
            problems.append(f"model_store_{name} is {settings[name]}; allowed is {low} to {high}")
    return problems


class FilterModule:
    """Ansible's entry point."""

    def filters(self):
        return {"model_store_judge": model_store_judge}
