# SPDX-License-Identifier: Apache-2.0
"""What a source has: a list of {"name", "size", "hash", "from"}. `hash` is None where nobody knows it, `from` is a URL
or a path.

Why not huggingface_hub: boxes have no pip and should need none, it knows one of the four sources, and what it has
downloaded it compares in length only, not with the hub's hashes (huggingface_hub#1403, #3643).
"""

from __future__ import annotations

import hashlib
import os
import urllib.parse
from concurrent.futures import ThreadPoolExecutor

from .tandem_model_files import SUMS, ModelError, excluded, hub_notes, names_in, parse_sums, safe_name
from .tandem_model_http import HttpRefusal


def hub_files(client, endpoint, repository, revision):
    """The files of a commit, in one request: LFS gives SHA-256, for the small others the hub has git's hash."""
    quoted = urllib.parse.quote(repository)
    try:
        answer, _ = client.get_json(f"{endpoint}/api/models/{quoted}/revision/{revision}?blobs=true")
    except HttpRefusal as error:
        raise hub_refusal(error, client, endpoint, repository, revision) from error
    if answer.get("sha") not in (None, revision):
        raise ModelError(
            f"{endpoint} answers with commit {answer['sha']} of {repository} instead of {revision}; nothing was fetched"
        )
    files = []
    for each in answer.get("siblings") or []:
        name, lfs = safe_name(each["rfilename"]), each.get("lfs") or {}
        digest = (
            f"sha256:{lfs['sha256']}" if lfs.get("sha256") else f"git:{each['blobId']}" if each.get("blobId") else None
        )
        size = lfs.get("size", each.get("size"))
        if digest is None or size is None:
            raise ModelError(
                f"{endpoint} gives no hash or no size for {name} of {repository}. Some mirrors leave them out: take "
                "another "
                "(model_store_hub_endpoint), or another source (model_store_source)"
            )
        url = f"{endpoint}/{quoted}/resolve/{revision}/{urllib.parse.quote(name)}"
        files.append({"name": name, "size": size, "hash": digest, "from": url})
    if not files:
        raise ModelError(f"{endpoint} lists no file for {repository} at {revision}")
    return files


def hub_refusal(error, client, endpoint, repository, revision):
    """`error` with its way out. The hub lists a gated model to everybody and refuses its files, so both may say it."""
    if error.code not in (401, 403, 404):
        return error
    token = "the token was sent" if client.token else "no token was sent"
    return ModelError(
        f"{endpoint} does not give out {repository} at {revision} (HTTP {error.code}, {token}). Are repository and "
        "commit "
        "right? A private or gated one needs model_store_hub_token, of an account that has accepted the model's "
        "licence "
        "on its page"
    )


def web_files(client, url, revision):
    """The files that SHA256SUMS in the folder names. A revision of 64 digits is the SHA-256 of SHA256SUMS itself and
    pins all."""
    base = url.rstrip("/")
    text = client.get(f"{base}/{SUMS}")[0]
    _check_pin(text, revision, f"{base}/{SUMS}")
    sums = parse_sums(text.decode("utf-8", "replace"), f"{base}/{SUMS}")
    addresses = {name: f"{base}/{urllib.parse.quote(name)}" for name in sums}
    with ThreadPoolExecutor(4) as pool:
        sizes = dict(zip(addresses, pool.map(client.size, addresses.values())))
    return [{"name": name, "size": sizes[name], "hash": sums[name], "from": addresses[name]} for name in sums]


def path_files(folder, revision):
    """The files of a folder on this machine. Hashes from SHA256SUMS, or from what the hub's client left; else
    None."""
    if not os.path.isdir(folder):
        raise ModelError(f"{folder} is no folder on this box; is the disk or share mounted?")
    sums, sums_path = {}, os.path.join(folder, SUMS)
    if os.path.exists(sums_path):
        with open(sums_path, "rb") as handle:
            text = handle.read()
        _check_pin(text, revision, sums_path)
        sums = parse_sums(text.decode("utf-8", "replace"), sums_path)
    elif revision and len(revision) == 64:
        raise ModelError(
            f"{folder} has no {SUMS}, whose SHA-256 the revision {revision} is. Make it there: "
            f"find . -type f ! -name {SUMS} | xargs sha256sum > {SUMS}; or give the commit that the folder holds"
        )
    files = []
    for name in sums or [name for name in names_in(folder) if name != SUMS]:
        path = os.path.join(folder, name)
        if not os.path.isfile(path):
            raise ModelError(f"{path} is missing" + (f", {sums_path} names it" if sums else " or no file"))
        commit, noted = hub_notes(folder, name)
        if commit and revision and len(revision) == 40 and commit != revision:
            raise ModelError(
                f"{path} is of commit {commit} (says the hub's client that fetched it), wanted is {revision}"
            )
        files.append({"name": name, "size": os.path.getsize(path), "hash": sums.get(name, noted), "from": path})
    return files


def _check_pin(text, revision, where):
    if revision and len(revision) == 64:
        found = hashlib.sha256(text).hexdigest()
        if found != revision:
            raise ModelError(
                f"{where} has the SHA-256 {found}, the revision is {revision}: it is not the file that was pinned"
            )


def without(files, patterns):
    kept = [each for each in files if not excluded(each["name"], patterns)]
    if not kept:
        raise ModelError(
            f"the source's {len(files)} files are all left out by model_store_exclude ({', '.join(patterns)})"
        )
    return kept
