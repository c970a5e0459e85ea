# SPDX-License-Identifier: Apache-2.0
"""A model's files: hashes, whether a file is what was verified before, and whether a folder can be a whole model at
all."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re

CHUNK = 4 * 2**20
SUMS = "SHA256SUMS"
INDEX = "model.safetensors.index.json"


class ModelError(Exception):
    """A sentence for the user: what, its value, what to do."""


def human(size):
    """Bytes as people buy disks: decimal units."""
    units = ["B", "kB", "MB", "GB", "TB"]
    while size >= 1000 and len(units) > 1:
        size /= 1000
        units.pop(0)
    return f"{size:.0f} B" if units[0] == "B" else f"{size:.1f} {units[0]}"


def file_hash(path, kind="sha256"):
    """`sha256:HEX`, or `git:HEX`: git's name of the content, which is what the hub gives for files outside of LFS."""
    digest = hashlib.sha1(b"blob %d\0" % os.path.getsize(path)) if kind == "git" else hashlib.sha256()
    with open(path, "rb") as handle:
        while True:
            piece = handle.read(CHUNK)
            if not piece:
                return f"{kind}:{digest.hexdigest()}"
            digest.update(piece)


def stamp(path):
    """What tells cheaply that a verified file is still that file; None where there is none.

    ctime is among them because nobody can set it: a file that was altered and given its old mtime back shows.
    """
    try:
        found = os.stat(path)
    except OSError:
        return None
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]


def safe_name(name):
    """`name` of a listing, which comes from another machine; ModelError where it would leave the model's folder."""
    parts = name.split("/")
    if name.startswith("/") or not all(parts) or {".", ".."} & set(parts) or re.search(r"[\0-\x1f\\]", name):
        raise ModelError(
            f"the source lists a file named {name!r}, which is no path inside a folder; nothing was fetched"
        )
    return name


def excluded(name, patterns):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def parse_sums(text, where):
    """{name: "sha256:HEX"} of a SHA256SUMS as sha256sum writes it."""
    sums = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = re.match(r"^([0-9a-fA-F]{64}) [ *](?:\./)?(.+)$", line)
        if not match:
            raise ModelError(
                f"{where}, line {number}: not a line of sha256sum (64 hexadecimal digits, two spaces, a name)"
            )
        if match.group(2) != SUMS:
            sums[safe_name(match.group(2))] = "sha256:" + match.group(1).lower()
    if not sums:
        raise ModelError(
            f"{where} names no file. Make it in the model's folder: find . -type f ! -name {SUMS} | xargs sha256sum "
            f"> {SUMS}"
        )
    return sums


def names_in(folder):
    """Relative names of all files in `folder`, links to files included, the hub client's own notes (.cache) left
    out."""
    found = []
    for place, folders, names in os.walk(folder, followlinks=True):
        inside = os.path.relpath(place, folder)
        folders[:] = [each for each in sorted(folders) if not (inside == "." and each in (".cache", ".git"))]
        found.extend(os.path.normpath(os.path.join(inside, name)) for name in sorted(names))
    return found


def hub_notes(folder, name):
    """(commit or None, hash or None) that the hub's own client left for a file, in either of its two layouts.

    Its cache holds links to blobs that are named by their hash; `hf download --local-dir` writes commit and hash to
    .cache/huggingface/download/NAME.metadata. 64 digits are a SHA-256, 40 git's hash.
    """
    commit, digest = None, None
    path = os.path.join(folder, name)
    if os.path.islink(path) and "/blobs/" in os.path.realpath(path):
        digest = os.path.basename(os.path.realpath(path))
        match = re.search(r"/snapshots/([0-9a-f]{40})(/|$)", os.path.abspath(folder))
        commit = match and match.group(1)
    else:
        try:
            with open(
                os.path.join(folder, ".cache/huggingface/download", name + ".metadata"), encoding="utf-8"
            ) as handle:
                commit, digest = [*handle.read().split("\n"), "", ""][:2]
        except (OSError, UnicodeDecodeError):
            return None, None
    kind = {64: "sha256", 40: "git"}.get(len(digest)) if re.match(r"^[0-9a-f]+$", digest) else None
    return commit if re.match(r"^[0-9a-f]{40}$", commit or "") else None, f"{kind}:{digest}" if kind else None


def structure_problems(folder):
    """Sentences about what cannot be a whole model, from names, sizes and headers alone: quick on 20 GB.

    A safetensors file says in its header how long it is, and the index which files there are, so a truncated or missing
    file is found without any hash.
    """
    if not os.path.isdir(folder):
        return [f"the folder {folder} does not exist"]
    names = set(os.listdir(folder))
    problems = []
    if "config.json" not in names:
        problems.append(f"{folder} has no config.json")
    weights = sorted(name for name in names if name.endswith(".safetensors"))
    if not weights:
        problems.append(f"{folder} has no *.safetensors")
    for name in sorted(names & {"config.json", INDEX}):
        try:
            with open(os.path.join(folder, name), encoding="utf-8") as handle:
                content = json.load(handle)
            shards = set(content.get("weight_map", {}).values())
        except (OSError, ValueError, AttributeError, TypeError) as error:
            problems.append(f"{name} is damaged: {error}")
            continue
        missing = sorted(shard for shard in shards if not os.path.exists(os.path.join(folder, str(shard))))
        problems.extend(f"{shard} is missing, {name} names it" for shard in missing)
    if INDEX not in names:
        problems.extend(_missing_of_a_row(weights))
    for name in weights:
        problems.extend(_safetensors_problem(os.path.join(folder, name), name))
        # such programs make the file in its full length first
        problems.extend(
            f"{name} is still being downloaded, {name}{end} says" for end in (".aria2", ".part") if name + end in names
        )
    return problems


def _missing_of_a_row(weights):
    """What is not there of model-00001-of-00004.safetensors and so on, where no index says it."""
    for name in weights:
        match = re.match(r"^(.*-)(\d{5})-of-(\d{5})(\.safetensors)$", name)
        if match:
            start, _, last, end = match.groups()
            row = [f"{start}{number:05}-of-{last}{end}" for number in range(1, int(last) + 1)]
            return [f"{each} is missing, as {name} tells" for each in row if each not in weights]
    return []


def _safetensors_problem(path, name):
    if not os.path.isfile(path):
        return [f"{name} is no file"]
    size = os.path.getsize(path)
    with open(path, "rb") as handle:
        start = handle.read(8)
        if start == b"version ":
            return [f"{name} is a pointer of git-lfs, not the weights: fetch them with git lfs pull"]
        length = int.from_bytes(start, "little")
        if size < 8 or length > min(size - 8, 100 * 2**20):
            return [f"{name} is truncated or no safetensors file ({size} bytes)"]
        try:
            header = json.loads(handle.read(length))
            ends = [each["data_offsets"][1] for key, each in header.items() if key != "__metadata__"]
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            return [f"{name} has a damaged header"]
    wanted = 8 + length + max(ends, default=0)
    if size != wanted:
        return [f"{name} has {size} bytes, its header says {wanted}"]
    return []


def read_json(path):
    """A dict, or {} where the file is not there or no JSON: it is then as if nothing had been verified."""
    try:
        with open(path, encoding="utf-8") as handle:
            content = json.load(handle)
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def write_json(path, content, mode=0o644):
    """Whole or not at all, also in a power cut."""
    temporary = path + ".new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
        os.fchmod(descriptor, mode)
        json.dump(content, handle, indent=1, sort_keys=True)
        handle.flush()
        os.fsync(descriptor)
    os.replace(temporary, path)
