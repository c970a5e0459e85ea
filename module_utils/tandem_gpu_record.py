# SPDX-License-Identifier: Apache-2.0
"""What tandem has set, on disk: the record of this boot and the box's desired state.

No Ansible in here, see tandem_gpu_nvml.py.

NVML has no getter for clock locks, so the record in /run is the only memory of what was set. /run is a tmpfs:
at a reboot the record goes when the lock goes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import tempfile
import time

from .tandem_gpu_nvml import Fault

RECORD = "/run/tandem/gpu-clocks.json"
LOCK = "/run/tandem/gpu-clocks.lock"
DESIRED = "/etc/tandem/gpu-clocks.json"
RECORD_VERSION = 1


class StoreError(Fault):
    """A file cannot be read, written or locked; the text names it and says what to do."""


def write_json(path, data, mode):
    """Replace `path` atomically: a reader sees the old content or the new, never half of it."""
    directory = os.path.dirname(path)
    os.makedirs(directory, mode=0o755, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=os.path.basename(path) + ".", dir=directory)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(data, stream, indent=2, sort_keys=True)
            stream.write("\n")
            stream.flush()
            os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())
        if os.path.isdir(path):
            # whoever made it, it holds nothing of ours
            os.rename(path, f"{path}.unreadable.{os.getpid()}")
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def read_json(path):
    """The JSON object in `path`, or None when there is no such file. StoreError when it cannot be read or parsed."""
    try:
        with open(path, encoding="utf-8") as stream:
            data = json.load(stream)
    except FileNotFoundError:
        return None
    except PermissionError as exc:
        raise StoreError(f"{path} may be read by root only: run with become: true, or as root") from exc
    except (OSError, ValueError, RecursionError) as exc:
        raise StoreError(f"{path} cannot be read ({exc}): remove it and apply again") from exc
    if not isinstance(data, dict):
        raise StoreError(f"{path} holds no JSON object: remove it and apply again")
    return data


class Record:
    """Per GPU UUID what was set in this boot, and the evidence of the initialisation in which it was set."""

    def __init__(self, root=""):
        self.path = root + RECORD
        self.lock_path = root + LOCK

    def entries(self):
        """{uuid: entry}. A record that is damaged or of another version counts as none: everything is set again."""
        try:
            data = read_json(self.path)
        except StoreError:
            if os.path.exists(self.path) and not os.access(self.path, os.R_OK):
                raise
            return {}
        if not data or data.get("version") != RECORD_VERSION or not isinstance(data.get("gpus"), dict):
            return {}
        return {uuid: entry for uuid, entry in data["gpus"].items() if _is_entry(entry)}

    def update(self, changes):
        """Merge {uuid: entry, or None to forget it} into the record. The caller holds the lock."""
        entries = self.entries()
        merged = {**entries, **changes}
        merged = {uuid: entry for uuid, entry in merged.items() if entry is not None}
        if merged != entries:
            write_json(self.path, {"version": RECORD_VERSION, "gpus": merged}, 0o600)

    @contextlib.contextmanager
    def locked(self, timeout=10.0):
        """Hold the lock from observing to recording, so that two writers cannot mix their beliefs.

        The lock is on a file of its own: the record is replaced, and a lock on a replaced file protects nothing.
        """
        os.makedirs(os.path.dirname(self.lock_path), mode=0o755, exist_ok=True)
        descriptor = os.open(self.lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _flock(descriptor, self.lock_path, timeout)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            yield
        finally:
            os.close(descriptor)


def _is_entry(entry):
    """Whether that is what `update` writes, of all that is computed with."""
    if not (
        isinstance(entry, dict) and isinstance(entry.get("wish"), dict) and isinstance(entry.get("evidence"), dict)
    ):
        return False
    numbers = [entry["evidence"].get(name) for name in ("suspended_s", "energy_mj")]
    for name in ("gpu_lock", "memory_lock"):
        lock = entry["wish"].get(name)
        if lock is not None and not (isinstance(lock, list) and len(lock) == 2):
            return False
        numbers += lock or []
    return all(number is None or isinstance(number, (int, float)) for number in numbers)


def _flock(descriptor, path, timeout):
    deadline = time.monotonic() + timeout
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as exc:
            if exc.errno not in (errno.EAGAIN, errno.EACCES):
                raise
        if time.monotonic() >= deadline:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            raise StoreError(
                f"process {holder} has held {path} for more than {timeout:g} s: look at what it does "
                f"(`ps -p {holder}`); state D means that the driver hangs"
            )
        time.sleep(0.05)
