# SPDX-License-Identifier: Apache-2.0
"""What an engine's container sees of a model's folder, where that is less than the box sees.

The folder is mounted as /models, without what is beside it, so a link that leads out of it leads nowhere. And root in
the container has no capabilities (docker create --cap-drop ALL): a file that another user keeps for himself is closed
to it.
"""

from __future__ import annotations

import os
import stat

MOUNT = "/models"
# As Linux has it.
MOST_LINKS = 40
# What engines read; of the rest of a folder nothing is said.
FOR_ENGINES = (
    *(".safetensors", ".bin", ".pt", ".gguf", ".json", ".jinja", ".model", ".spm", ".tiktoken", ".txt", ".py"),
    *(".yaml", ".yml"),
)


def container_problems(folder):
    """Sentences about files of `folder` that the engine's container could not read; none when it can read all."""
    real = os.path.realpath(folder)
    if not os.path.isdir(real):
        return []
    links, closed = [], []
    for place, folders, names in os.walk(real):
        folders[:] = [each for each in sorted(folders) if not each.startswith(".")]
        inside = os.path.relpath(place, real)
        closed += [] if _readable(place, stat.S_IXOTH | stat.S_IROTH) else [(os.path.join(inside, ""), place)]
        # a link to a folder is among the folders
        for name in [*sorted(names), *(each for each in folders if os.path.islink(os.path.join(place, each)))]:
            path, shown = os.path.join(place, name), os.path.normpath(os.path.join(inside, name))
            if name.startswith(".") or not (name.lower().endswith(FOR_ENGINES) or os.path.isdir(path)):
                continue
            seen = in_container(real, shown)
            if seen is None:
                links.append((shown, os.readlink(path) if os.path.islink(path) else "nowhere"))
            elif not _readable(seen, stat.S_IROTH | (stat.S_IXOTH if os.path.isdir(seen) else 0)):
                closed.append((shown, seen))
    return [*_about_links(folder, links), *_about_closed(folder, closed)]


def in_container(folder, name):
    """The file of `folder` that /models/NAME is in the container, links followed as there; None where there is none."""
    been, ahead, links = [], [*MOUNT.split("/"), *name.split("/")], 0
    path = None
    while ahead:
        part = ahead.pop(0)
        if part in ("", "."):
            continue
        if part == "..":
            del been[-1:]
            continue
        been.append(part)
        # of the image's own files nothing is known, and no model is among them
        path = os.path.join(folder, *been[1:]) if been[0] == MOUNT[1:] else None
        if path is None or not os.path.lexists(path):
            # a folder that the way leads out of again
            if path is None and ".." in ahead:
                continue
            return None
        if len(been) > 1 and os.path.islink(path):
            links += 1
            if links > MOST_LINKS:
                return None
            target = os.readlink(path)
            been = [] if target.startswith("/") else been[:-1]
            ahead = [*target.split("/"), *ahead]
    return os.path.join(folder, *been[1:]) if been[:1] == [MOUNT[1:]] else None


def _readable(path, wanted):
    """Whether root without capabilities has the rights `wanted`, given as those of others."""
    found = os.stat(path)
    if "system.posix_acl_access" in _attributes(path):
        return True  # more than the mode says, which is not judged here
    shift = 6 if found.st_uid == 0 else 3 if found.st_gid == 0 else 0
    return found.st_mode & (wanted << shift) == wanted << shift


def _attributes(path):
    try:
        return os.listxattr(path)
    except OSError:
        return []


def _some(found, each):
    first = "; ".join(each(*one) for one in found[:2])
    return first + (f"; and {len(found) - 2} more" if len(found) > 2 else "")


def _about_links(folder, links):
    if not links:
        return []
    some = _some(links, lambda name, target: f"{name} -> {target}")
    return [
        f"{folder} (vllm_model) has links that lead to nothing in the engine's container ({some}): it has this folder "
        f"alone, as {MOUNT}, and not what is beside it, where a hub's cache keeps its files. Make a folder with files "
        f"instead of links, by hf download REPOSITORY --local-dir FOLDER or cp -rL {folder} FOLDER, and set vllm_model "
        "to it"
    ]


def _about_closed(folder, closed):
    if not closed:
        return []

    def owner(name, path):
        found = os.stat(path)
        return f"{name} is of user {found.st_uid}, mode {stat.S_IMODE(found.st_mode):04o}"

    return [
        f"the engine may not read files of {folder} (vllm_model): {_some(closed, owner)}. Root in its container has no "
        f"rights over other users' files. Open them: chmod -R a+rX {folder}"
    ]
