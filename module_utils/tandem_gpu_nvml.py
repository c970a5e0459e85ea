# SPDX-License-Identifier: Apache-2.0
"""NVML as tandem calls it: one sentence per failure, and no hang that outlives its time-out.

No Ansible in here: the same file runs inside the modules `gpu_clocks` and `gpu_info` and, from
/usr/local/lib/tandem, inside the boot program `tandem-gpu-clocks`. Python 3.9 and later.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import sys
import time
import traceback

LIBRARY_DIR = "/usr/local/lib/tandem"

NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
VERSION_MISMATCH = 18

# After one of these the other settings of the same GPU would fail alike: one sentence is enough.
GPU_GONE = frozenset((1, NO_PERMISSION, DRIVER_NOT_LOADED, 10, GPU_IS_LOST, 16, 17, VERSION_MISMATCH, 28))

# NVML's return codes (nvml.h, nvmlReturn_t): what it means here, and the way out.
_CODES = {
    1: (
        "NVML is not initialised",
        "the driver was unloaded under this process: run again",
    ),
    2: (
        "NVML refused an argument as invalid",
        "compare the setting with the range that gpu_info reports for this GPU",
    ),
    3: (
        "this GPU or driver does not support it",
        "leave the setting out for this GPU, or update the driver",
    ),
    4: ("it needs root", "run with become: true, or as root"),
    6: ("there is no such GPU", "compare with the UUIDs that gpu_info lists"),
    7: (
        "NVML asked for a larger buffer than it had asked for before",
        "run again; report it if it stays",
    ),
    8: (
        "a power cable of the GPU is missing or loose",
        "power off, seat every 12VHPWR/8-pin connector of the card, then boot",
    ),
    9: (
        "the NVIDIA kernel driver is not loaded",
        "`modprobe nvidia` and read `dmesg`; after an installation or a kernel update reboot",
    ),
    10: (
        "the driver did not answer in its own time limit",
        "look for Xid lines in `dmesg`, then reboot",
    ),
    11: (
        "the GPU's interrupt does not arrive",
        "look at `dmesg`; check the slot and the IOMMU settings, then reboot",
    ),
    12: (
        "libnvidia-ml.so.1 is not installed",
        "install the driver's user-space library (role nvidia_driver) and run `ldconfig`",
    ),
    13: (
        "the installed driver library has no such function",
        "update the driver: tandem needs 535 or newer",
    ),
    14: (
        "the card's infoROM is corrupted",
        "the card needs service; take it out of gpus until then",
    ),
    15: (
        "the GPU has fallen off the bus",
        "power the box off and on (a warm reboot may not bring it back); check riser, slot and power cables",
    ),
    16: (
        "the GPU needs a reset",
        "stop what uses it and run `nvidia-smi --gpu-reset -i N`, or reboot",
    ),
    17: (
        "the operating system blocked the request",
        "check cgroup device rules and file modes of /dev/nvidia*",
    ),
    18: (
        "driver library and loaded kernel module have different versions",
        "reboot (or unload and reload the nvidia modules), and hold the driver packages against unattended upgrades",
    ),
    19: ("the GPU is in use", "stop the programs that use it first"),
    20: ("there is not enough memory", "free memory on the box"),
    21: ("there is no data yet", "run again in a moment"),
    23: ("resources of the GPU are exhausted", "stop other programs that use it"),
    24: (
        "this frequency is not supported",
        "take one that gpu_info lists under supported_clocks",
    ),
    25: (
        "the driver does not know this version of the call",
        "update the driver, or hand over an nvidia-ml-py that matches it",
    ),
    26: ("the driver has dropped this call", "update tandem's nvidia-ml-py"),
    27: ("the driver is not ready", "run again in a moment"),
    28: (
        "there is no GPU",
        "check `lspci -d 10de:` and the BIOS; the driver sees no card",
    ),
    29: (
        "the GPU is in a state that does not allow it",
        "look for Xid lines in `dmesg`, then reboot",
    ),
    999: (
        "the driver reports an unknown error",
        "look for Xid lines in `dmesg`; a reboot usually clears it",
    ),
}


def explain(code):
    """What an NVML return code means and what to do, as one sentence without a full stop."""
    meaning, way_out = _CODES.get(code, ("NVML failed with an undocumented code", "look at `dmesg`, then reboot"))
    return f"{meaning} (NVML error {code}): {way_out}"


def card_fault(card, exc):
    """What an NvmlCallError on a card, an index or UUID, means, as a sentence that names the card and a way out."""
    meaning, way_out = _CODES.get(exc.code, ("NVML failed with an undocumented code", "look at `dmesg`, then reboot"))
    # a sentence about the GPU has it as its subject; others are about the call
    told = meaning[len("the GPU") :] if meaning.startswith("the GPU ") else f": {exc.call}: {meaning}"
    label = card if str(card).startswith("GPU-") else f"GPU {card}"
    return f"{label}{told} (NVML error {exc.code}): {way_out.replace('-i N', f'-i {card}')}"


class Fault(Exception):
    """A fault as a sentence for a person: what is wrong and what to do."""


class NvmlCallError(Fault):
    """One NVML call failed. `code` is nvmlReturn_t, `call` the function's name."""

    def __init__(self, call, code):
        self.call = call
        self.code = code
        super().__init__(f"{call}: {explain(code)}")


class NvmlUnavailable(Fault):
    """NVML cannot be used on this box at all. `code` is nvmlReturn_t, or None when Python's binding is missing."""

    def __init__(self, sentence, code=None):
        self.code = code
        super().__init__(sentence)


class DriverHung(Fault):
    """A driver call did not return in time."""


def load_pynvml(directory=LIBRARY_DIR):
    """Import nvidia-ml-py, preferring the copy that tandem put on the box. Raises NvmlUnavailable with the way out."""
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        return importlib.import_module("pynvml")
    except ImportError as exc:
        raise NvmlUnavailable(
            f"Python's NVML binding is missing: there is no {directory}/pynvml.py and no installed nvidia-ml-py "
            f"({exc}); run site.yml (role nvidia_driver puts the file there)"
        ) from exc


class Nvml:
    """The calls of a pynvml-like library, with failures as NvmlCallError.

    `lib` is nvidia-ml-py or anything with the same functions and an NVMLError that has `value`.
    `progress`, when given, is told each call and its card before it is made: a hang can then be named.
    """

    # What hands out a card: a call on one is then told with it.
    HANDLES = ("nvmlDeviceGetHandleByIndex", "nvmlDeviceGetHandleByUUID")

    def __init__(self, lib, progress=None):
        self.lib = lib
        self.progress = progress
        self.cards = []

    def __call__(self, name, *args):
        if self.progress is not None:
            self.progress(self._named(name, args))
        function = getattr(self.lib, name, None)
        if function is None:
            raise NvmlCallError(name, FUNCTION_NOT_FOUND)
        try:
            result = function(*args)
        except self.lib.NVMLError as exc:
            # Compare by value only: NVMLError defines __eq__ without __hash__ and is therefore unhashable.
            raise NvmlCallError(name, exc.value) from None
        if name in self.HANDLES:
            self.cards.append((result, args[0]))
        return result

    def _named(self, name, args):
        card = next((card for handle, card in self.cards if args and handle is args[0]), None)
        if name in self.HANDLES:
            card = args[0]
        return name if card is None else f"{name} on {card if str(card).startswith('GPU-') else f'GPU {card}'}"

    def optional(self, name, *args):
        """The call's result, or None where GPU or driver cannot answer it. Other failures are raised."""
        try:
            return self(name, *args)
        except NvmlCallError as exc:
            if exc.code in (NOT_SUPPORTED, FUNCTION_NOT_FOUND, 21, 25, 26):
                return None
            raise

    def __enter__(self):
        try:
            self("nvmlInit")
        except NvmlCallError as exc:
            raise NvmlUnavailable(self._init_sentence(exc.code), exc.code) from None
        return self

    def __exit__(self, *exc_info):
        # The work is done and its outcome known; a failing farewell must not replace it.
        with contextlib.suppress(NvmlCallError):
            self("nvmlShutdown")
        return False

    def _init_sentence(self, code):
        if code != VERSION_MISMATCH:
            return f"NVML does not start: {explain(code)}"
        try:
            library = self("nvmlSystemGetNVMLVersion")
        except NvmlCallError:
            library = "unknown"
        module = Host().module_version() or "unknown"
        return f"NVML does not start: library {library}, loaded kernel module {module}: {explain(code)}"


class Host:
    """What the running system tells about the driver's current initialisation.

    `root` is put before every path. Tests set it, through TANDEM_GPU_ROOT where they cannot pass it.
    """

    # Debian's own packages build the module under the second name.
    MODULES = ("nvidia", "nvidia_current")

    def __init__(self, root=None):
        self.root = os.environ.get("TANDEM_GPU_ROOT", "") if root is None else root

    def path(self, absolute):
        return self.root + absolute

    def _read(self, absolute):
        try:
            with open(self.path(absolute), encoding="utf-8", errors="replace") as stream:
                return stream.read()
        except OSError:
            return None

    def module_dir(self):
        for name in self.MODULES:
            candidate = self.path(f"/sys/module/{name}")
            if os.path.isdir(candidate):
                return candidate
        return None

    def module_version(self):
        """Version of the loaded kernel module, or None when it is not loaded."""
        for name in self.MODULES:
            text = self._read(f"/sys/module/{name}/version")
            if text:
                return text.strip()
        # "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build ..."
        for word in (self._read("/proc/driver/nvidia/version") or "").split():
            if word[:1].isdigit() and word.count(".") >= 1 and word.replace(".", "").isdigit():
                return word
        return None

    def persistenced(self):
        """`pid:start time` (clock ticks since boot) of the running nvidia-persistenced, or None."""
        pid = (self._read("/run/nvidia-persistenced/nvidia-persistenced.pid") or "").strip()
        candidates = [pid] if pid.isdigit() else []
        for pid in candidates or self._pids():
            stat = self._read(f"/proc/{pid}/stat")
            # The name may hold spaces and parentheses: the fields begin after the last ")". Start time is field 22.
            if stat and "(nvidia-persiste" in stat:
                return f"{pid}:{stat.rpartition(')')[2].split()[19]}"
        return None

    def _pids(self):
        try:
            return [name for name in os.listdir(self.path("/proc")) if name.isdigit()]
        except OSError:
            return []

    def suspended_seconds(self):
        """Seconds that the system has slept since boot: CLOCK_BOOTTIME counts them, CLOCK_MONOTONIC does not."""
        boottime = getattr(time, "CLOCK_BOOTTIME", None)
        if boottime is None:
            return 0.0
        return round(time.clock_gettime(boottime) - time.clock_gettime(time.CLOCK_MONOTONIC), 3)

    def evidence(self):
        """Signs that end with a driver initialisation, shared by all GPUs (facts of the NVML documentation)."""
        directory = self.module_dir()
        return {
            "boot_id": (self._read("/proc/sys/kernel/random/boot_id") or "").strip(),
            # The inode, not the time stamp: the latter moves while the module stays loaded.
            "module_inode": os.stat(directory).st_ino if directory else None,
            "persistenced": self.persistenced(),
            "suspended_s": self.suspended_seconds(),
        }


def guarded(function, timeout):
    """Run `function(progress)` in a child process and return its JSON-able result, or raise DriverHung.

    A driver that hangs leaves its caller in uninterruptible sleep, where neither a signal nor the end of the
    process helps; only another process can go on. The child gets no stdio: what it holds open would keep an
    ssh session waiting for it. NvmlUnavailable of `function` arrives here as itself, anything else as Fault.
    """
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        _child(function, read_end, write_end)
    os.close(write_end)
    deadline = time.monotonic() + timeout
    try:
        data = _read_until_eof(read_end, deadline)
    finally:
        os.close(read_end)
    lines = data.decode("utf-8", "replace").splitlines()
    outcome = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else None
    if outcome is None:
        doing = lines[-1] if lines else "start-up"
        status = _end(pid)
        if time.monotonic() < deadline:
            raise Fault(f"the NVML process ended during {doing} with wait status {status}; look at `dmesg`")
        raise DriverHung(
            f"the driver did not answer within {timeout:g} s (last call: {doing}): look for Xid or hung-task lines in "
            "`dmesg`; the process that waits for it may stay until the box is rebooted"
        )
    _end(pid)
    if "unavailable" in outcome:
        raise NvmlUnavailable(outcome["unavailable"], outcome["code"])
    if "failed" in outcome:
        raise Fault(outcome["failed"])
    return outcome["result"]


def _child(function, read_end, write_end):
    try:
        os.close(read_end)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)

        def progress(name):
            os.write(write_end, name.encode() + b"\n")

        try:
            outcome = {"result": function(progress)}
        except NvmlUnavailable as exc:
            outcome = {"unavailable": str(exc), "code": exc.code}
        except Fault as exc:
            outcome = {"failed": str(exc)}
        except PermissionError as exc:
            outcome = {"failed": f"{exc.filename} may be used by root only: run with become: true, or as root"}
        except Exception:
            outcome = {"failed": f"unexpected: {traceback.format_exc()}"}
        payload = json.dumps(outcome).encode() + b"\n"
        while payload:
            payload = payload[os.write(write_end, payload) :]
    finally:
        # Not sys.exit: the parent's exit handlers and buffers are not the child's to run.
        os._exit(0)


def _read_until_eof(descriptor, deadline):
    data = b""
    while True:
        ready = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]
        if not ready:
            return data
        chunk = os.read(descriptor, 65536)
        if not chunk:
            return data
        data += chunk


def _end(pid):
    """Kill and reap the child without waiting for one that cannot die. Returns its wait status or None."""
    for attempt in range(100):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        if attempt == 10:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.001 if attempt < 10 else 0.01)
    return None
