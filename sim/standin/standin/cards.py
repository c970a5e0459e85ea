"""The cards that the container was given, as the simulated NVML has them: their clocks, and the load put on them."""

from __future__ import annotations

import ctypes
import fcntl
import os
import pathlib
import tempfile

STATE = pathlib.Path(os.environ.get("SIM_NVML_DIR") or "/run/sim-nvml")
SM_CLOCK = 1


class NoCards(Exception):
    """NVML does not answer."""


def pairs(path):
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    return dict(line.split(None, 1) for line in lines if len(line.split(None, 1)) == 2)


class Nvml:
    """An initialised NVML: this process stays a client of the driver. Raises NoCards."""

    def __init__(self):
        try:
            self.library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            raise NoCards(f"NVML Shared Library Not Found ({error})") from None
        self.library.nvmlErrorString.restype = ctypes.c_char_p
        self.call("nvmlInit_v2")

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code:
            raise NoCards(f"{name}: {self.library.nvmlErrorString(code).decode()}")

    def handles(self):
        count = ctypes.c_uint()
        self.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        found = []
        for index in range(count.value):
            handle = ctypes.c_void_p()
            self.call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle))
            found.append(handle)
        return found

    def number(self, name, handle, *before):
        value = ctypes.c_uint()
        self.call(name, handle, *before, ctypes.byref(value))
        return value.value


class Cards:
    """`gpus` are the machine's indexes. `clock` in MHz, of the slowest card under the load last put on them."""

    def __init__(self):
        self.nvml = None
        holders = STATE / "holders"
        handle = hidden = None
        if STATE.is_dir():
            # README.md of sim/nvml: a holder's lock exists before NVML is used, under a name that begins with its pid
            holders.mkdir(mode=0o777, exist_ok=True)
            handle, hidden = tempfile.mkstemp(dir=holders, prefix=".")
            os.chmod(hidden, 0o666)
            fcntl.lockf(handle, fcntl.LOCK_EX)
            self.holder = holders / f"{os.getpid()}-standin{os.path.basename(hidden)[1:]}"
            os.environ["SIM_NVML_HOLDER"] = str(self.holder)
        try:
            self.nvml = Nvml()
            self.handles = self.nvml.handles()
            self.gpus = [self.nvml.number("nvmlDeviceGetMinorNumber", handle) for handle in self.handles]
        except NoCards:
            if hidden:
                os.unlink(hidden)
            raise
        self.lock, self.hidden, self.memory_mib, self.load = handle, hidden, 0, -1

    def hold(self, memory_mib, load):
        """Take this much memory of each card, and put this load (percent) on it."""
        if self.lock is None or (memory_mib, load) == (self.memory_mib, self.load):
            return
        text = "".join(f"gpu{gpu}.memory_mib {memory_mib}\ngpu{gpu}.load {load}\n" for gpu in self.gpus)
        written, name = tempfile.mkstemp(dir=self.holder.parent, prefix=".")
        with os.fdopen(written, "w") as file:
            file.write(text)
        os.chmod(name, 0o666)
        os.replace(name, self.holder)
        if self.hidden:
            os.rename(self.hidden, f"{self.holder}.lock")
            self.hidden = None
        self.memory_mib, self.load = memory_mib, load

    def clock(self):
        """Raises NoCards where a card is gone."""
        return min(self.nvml.number("nvmlDeviceGetClockInfo", handle, SM_CLOCK) for handle in self.handles)

    def free_mib(self):
        """Free memory of each card."""

        class Memory(ctypes.Structure):
            _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]

        found = []
        for handle in self.handles:
            memory = Memory()
            self.nvml.call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
            found.append((memory.free >> 20, memory.total >> 20))
        return found

    def survives(self, power, limit_mhz):
        """Whether the power supply survives a long prefill now: each card is locked, or limited in power, low enough.

        What NVML cannot say of a lock is read where the simulation keeps it.
        """
        state, config = pairs(STATE / "state"), pairs(STATE / "config")
        for gpu in self.gpus:
            lock = int(state.get(f"gpu{gpu}.gpu_lock_max_mhz", -1))
            if config.get(f"gpu{gpu}.lock_held", "1") == "0":
                lock = -1
            watts = int(state.get(f"gpu{gpu}.power_limit_mw", 0)) / 1000
            if not (0 <= lock <= limit_mhz or 0 < watts <= power["survives_up_to_watts"]):
                return False
        return True


def cut_the_power():
    """What the box watches for: it then restarts at once, without a word (box/sim-power.path)."""
    (STATE / "power-failure").write_text("simulated: both cards spiked together\n")


class NoCardsAtAll:
    """For tests on a machine without a simulated driver: a clock that was given, no load, no power."""

    def __init__(self, mhz):
        self.mhz, self.gpus = mhz, []

    def hold(self, memory_mib, load):
        pass

    def clock(self):
        return self.mhz

    def free_mib(self):
        return []

    def survives(self, power, limit_mhz):
        return self.mhz is not None and self.mhz <= limit_mhz
