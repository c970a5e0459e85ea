# SPDX-License-Identifier: Apache-2.0
"""One revision of a model on a box: what of it is here, fetching the rest, and removing other revisions.

    /srv/models/NAME/REVISION              whole, or it does not exist; an engine mounts it
    /srv/models/NAME/REVISION.part/        what is being fetched; X.incomplete becomes X once its hash is right
    /srv/models/NAME/REVISION.tandem.json  the manifest: hash of every file, and its stamp when it was verified

A file of a whole folder is only ever replaced by rename, so what an engine has mapped stays as it is.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import re
import shutil
import subprocess
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor

from .tandem_model_files import ModelError, file_hash, human, read_json, stamp, structure_problems, write_json

PARALLEL = 4
REVISION = re.compile(r"^([0-9a-f]{40}|[0-9a-f]{64})$")
# Of engines, as they run and as role vllm keeps them for a rollback.
UNITS = [
    "/etc/systemd/system/vllm-*.service",
    "/var/lib/tandem/vllm/*/current/unit",
    "/var/lib/tandem/vllm/*/previous/unit",
]


def _are_files(files):
    """Whether that is what a manifest has of its files; a damaged manifest is as good as none."""
    return isinstance(files, dict) and all(isinstance(each, dict) and "hash" in each for each in files.values())


class Store:
    """`path` is the folder of the wanted revision; `exclude` patterns of names that are not wanted."""

    def __init__(self, path, revision, exclude=()):
        self.path = path.rstrip("/")
        self.staging = self.path + ".part"
        self.manifest_path = self.path + ".tandem.json"
        self.revision = revision
        self.exclude = sorted(exclude)
        self.manifest = read_json(self.manifest_path)
        if self.manifest.get("revision") != revision or not _are_files(self.manifest.get("files")):
            self.manifest = {"revision": revision, "files": {}, "complete": False}
        self.hashed = 0

    @staticmethod
    def revision_of(path):
        """The revision of which `path`'s manifest is, or None where there is no manifest."""
        return read_json(path.rstrip("/") + ".tandem.json").get("revision")

    def known(self):
        """Whether the manifest alone says what the revision is made of, so that the source need not be asked."""
        return bool(self.manifest.get("complete")) and self.manifest.get("exclude") == self.exclude

    def files(self):
        return [{"name": name, **each} for name, each in sorted(self.manifest["files"].items())]

    def missing(self, files, full=False):
        """Of `files`, those that are not here as they should be. Hashes only what has no matching stamp, or all with
        `full`."""
        found = []
        for each in files:
            noted = self.manifest["files"].get(each["name"], {})
            wanted = each["hash"] or noted.get("hash")
            for folder in (self.path, self.staging):
                if self._is_whole(os.path.join(folder, each["name"]), each, wanted, noted.get("stamp"), full):
                    break
            else:
                found.append(each)
        return found

    def _is_whole(self, path, each, wanted, noted, full):
        now = stamp(path)
        if now is None or now[0] != each["size"] or wanted is None:
            return False
        if full or now != noted:
            self.hashed += 1
            if file_hash(path, wanted.split(":")[0]) != wanted:
                # so that a later, quick look does not take it for whole
                self.manifest["files"].get(each["name"], {}).pop("stamp", None)
                return False
        self.note(each["name"], each["size"], wanted, now)
        return True

    def note(self, name, size, digest, now):
        self.manifest["files"][name] = {"size": size, "hash": digest, "stamp": now}

    def part(self, name):
        return os.path.join(self.staging, name + ".incomplete")

    def part_bytes(self, files):
        """Bytes of `files` that an earlier, interrupted run has left."""
        total = 0
        for each in files:
            now = stamp(self.part(each["name"]))
            total += min(now[0], each["size"]) if now else 0
        return total

    def check_disk(self, files, reserve):
        """ModelError where the missing bytes do not fit with `reserve` bytes to spare; says everything in numbers."""
        needed = sum(each["size"] for each in files) - self.part_bytes(files)
        place = self.path
        while not os.path.exists(place):
            place = os.path.dirname(place)
        free = _free(place)
        if needed and needed + reserve > free:
            others = [f"{each['revision'][:12]} ({human(each['bytes'])})" for each in self.others()]
            raise ModelError(
                f"{self.path} needs {human(needed)} more for {count(files)}, and {human(reserve)} must stay "
                f"free; {place} has "
                f"{human(free)} free, so {human(needed + reserve - free)} are missing. Nothing was fetched. Free "
                "that much, or set "
                "model_store_folder to a folder on a larger disk"
                + (
                    f", or delete what is not used of {', '.join(others)} (model_store_delete_old: true)"
                    if others
                    else ""
                )
            )

    def fetch(self, files, get, parallel=PARALLEL, log=lambda text: None):
        """Fetch `files` with `get(each, part)`, which completes `part` and returns its verified hash; then put them
        in place."""
        self.manifest.update(complete=False, exclude=self.exclude)
        os.makedirs(self.staging, mode=0o755, exist_ok=True)
        self.save()
        report = []

        def one(each):
            part, begun = self.part(each["name"]), time.monotonic()
            os.makedirs(os.path.dirname(part), mode=0o755, exist_ok=True)
            had = self.part_bytes([each])
            log(f"{each['name']}: fetching {human(each['size'] - had)}" + (f", {human(had)} are here" if had else ""))
            try:
                digest = get(each, part)
                os.chmod(part, 0o644)
                whole = os.path.join(self.staging, each["name"])
                os.replace(part, whole)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise ModelError(
                        f"the disk of {self.path} became full while {each['name']} was fetched; free some space and "
                        "run again"
                    ) from error
                raise ModelError(f"{each['name']}: {error}") from error
            return (
                each,
                digest,
                stamp(whole),
                {
                    "name": each["name"],
                    "bytes": each["size"],
                    "resumed_at": had,
                    "seconds": round(time.monotonic() - begun, 1),
                },
            )

        with ThreadPoolExecutor(parallel) as pool:
            running = [pool.submit(one, each) for each in files]
            failed = None
            for future in running:
                try:
                    each, digest, now, line = future.result()
                except CancelledError:
                    continue
                except ModelError as error:
                    # what is under way goes on to its end, the rest is left out
                    for other in running:
                        other.cancel()
                    failed = failed or error
                    continue
                self.note(each["name"], each["size"], digest, now)
                self.save()
                report.append(line)
        if failed:
            raise failed
        return report

    def finish(self, files):
        """The folder, whole: all of `files` are verified. Returns whether anything moved."""
        moved = os.path.isdir(self.staging)
        if moved and os.path.isdir(self.path):
            for each in files:
                fetched = os.path.join(self.staging, each["name"])
                if os.path.exists(fetched):
                    target = os.path.join(self.path, each["name"])
                    os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
                    os.replace(fetched, target)
                    # a rename moves the ctime
                    self.manifest["files"][each["name"]]["stamp"] = stamp(target)
            shutil.rmtree(self.staging)
        elif moved:
            wanted = {each["name"] for each in files}
            for place, _, names in os.walk(self.staging):
                for name in names:
                    if os.path.relpath(os.path.join(place, name), self.staging) not in wanted:
                        os.remove(os.path.join(place, name))
            os.replace(self.staging, self.path)
        names = {each["name"] for each in files}
        self.manifest["files"] = {name: each for name, each in self.manifest["files"].items() if name in names}
        self.manifest.update(complete=True, exclude=self.exclude)
        self.save()
        return moved

    def save(self):
        if read_json(self.manifest_path) != self.manifest:
            write_json(self.manifest_path, self.manifest)

    def problems(self):
        """What cannot be a whole model although every hash is right: wrong from the source on."""
        return structure_problems(self.path)

    # --- other revisions --------------------------------------------------------------------------------------------

    def others(self):
        """[{"revision", "path", "bytes", "used_by"}] of other revisions that this role has fetched, finished or not."""
        parent = os.path.dirname(self.path)
        found = {}
        for path in glob.glob(glob.escape(parent) + "/*.tandem.json"):
            revision = os.path.basename(path)[: -len(".tandem.json")]
            if REVISION.match(revision) and revision != os.path.basename(self.path):
                found[revision] = os.path.join(parent, revision)
        return [
            {
                "revision": revision,
                "path": path,
                "bytes": _bytes(path) + _bytes(path + ".part"),
                "used_by": used_by(path),
            }
            for revision, path in sorted(found.items())
        ]

    def delete_others(self, check=False):
        """Delete other revisions that nothing uses. Returns (deleted, kept)."""
        others = self.others()
        deleted = [each for each in others if not each["used_by"]]
        for each in deleted if not check else []:
            part = each["path"] + ".part"
            shutil.rmtree(part, ignore_errors=True)
            if os.path.exists(each["path"]):
                # under its name it is whole until the last moment
                os.replace(each["path"], part)
                shutil.rmtree(part)
            os.remove(each["path"] + ".tandem.json")
        return deleted, [each for each in others if each["used_by"]]


class Lock:
    """One run at a time in a model's folder; ModelError where another one is at work."""

    def __init__(self, path, wait=False):
        self.path = path
        self.flags = fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB)

    def __enter__(self):
        os.makedirs(os.path.dirname(self.path), mode=0o755, exist_ok=True)
        self.handle = open(self.path, "a+", encoding="utf-8")
        try:
            fcntl.flock(self.handle, self.flags)
        except OSError as error:
            self.handle.seek(0)
            owner = self.handle.read().strip() or "unknown"
            self.handle.close()
            raise ModelError(
                f"another run (process {owner} on the box) is fetching into {os.path.dirname(self.path)}; wait for "
                "it, or end it"
            ) from error
        self.handle.truncate(0)
        self.handle.write(str(os.getpid()))
        self.handle.flush()
        return self

    def __exit__(self, *_):
        self.handle.close()


def copy(each, part):
    """Like Client.fetch, from a path on this machine: goes on from what `part` holds."""
    for last in (False, True):
        have = os.path.getsize(part) if os.path.exists(part) else 0
        with open(each["from"], "rb") as source, open(part, "r+b" if 0 < have <= each["size"] else "wb") as target:
            have = have if have <= each["size"] else 0
            source.seek(have)
            target.seek(have)
            shutil.copyfileobj(source, target, 4 * 2**20)
            target.flush()
            os.fsync(target.fileno())
        found = file_hash(part, (each["hash"] or "sha256:").split(":")[0])
        if os.path.getsize(part) == each["size"] and found == (each["hash"] or found):
            return found
        os.remove(part)
        if last:
            raise ModelError(
                f"{each['from']} is not what its source promises: {found} instead of "
                f"{each['hash'] or str(each['size']) + ' bytes'}. Put a whole copy there"
            )
    raise AssertionError("unreachable")


def used_by(path):
    """Names of running containers that mount `path`, and files of units, current or kept for a rollback, that name
    it."""
    users = []
    for unit in sorted(each for pattern in UNITS for each in glob.glob(pattern)):
        try:
            with open(unit, encoding="utf-8", errors="replace") as handle:
                if re.search(re.escape(path) + r"(?![0-9A-Za-z._-])", handle.read()):
                    users.append(unit)
        except OSError:
            users.append(f"{unit} (cannot be read)")
    try:
        for name, *sources in _mounts():
            if any(each == path or each.startswith(path + "/") for each in sources):
                users.append("container " + name.lstrip("/"))
    except subprocess.TimeoutExpired:
        users.append("perhaps a container: docker does not answer")
    return users


def _mounts():
    """[name, source, source, ...] of each running container."""
    if not shutil.which("docker"):
        return []
    ids = _docker("ps", "-q").split()
    form = "{{.Name}}{{range .Mounts}}\t{{.Source}}{{end}}"
    return [line.split("\t") for line in _docker("inspect", "-f", form, *ids).splitlines()] if ids else []


def _docker(*arguments):
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False, timeout=60).stdout


def count(files):
    return f"{len(files)} file" + ("" if len(files) == 1 else "s")


def describe(files, parts, where):
    return f"{count(files)}, {human(sum(each['size'] for each in files) - parts)}, from {where}"


def _free(path):
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def _bytes(folder):
    total = 0
    for place, _, names in os.walk(folder):
        total += sum((stamp(os.path.join(place, name)) or [0])[0] for name in names)
    return total
