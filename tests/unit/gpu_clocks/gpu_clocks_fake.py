"""An in-process stand-in for nvidia-ml-py, for the logic that needs no library: two cards, locks that can be seen."""

from __future__ import annotations

from types import SimpleNamespace

MEMORY_MHZ = [405, 810, 5001, 10251, 10501]
GRAPHICS_MHZ = list(range(210, 3120, 15))
UUIDS = ["GPU-00000000-0000-0000-0000-000000000000", "GPU-11111111-1111-1111-1111-111111111111"]


class FakeError(Exception):
    """NVMLError with the trap of the real one: __eq__ without __hash__."""

    def __init__(self, value):
        self.value = value
        super().__init__(value)

    __hash__ = None

    def __eq__(self, other):
        return self.value == other.value


class Card:
    def __init__(self, index):
        self.index = index
        self.uuid = UUIDS[index]
        self.persistence = True
        self.power_limit = 450_000
        self.energy = 1_000_000
        self.lock = None
        self.memory_lock = None
        self.load = 0
        self.holds = True
        self.errors = {}

    @property
    def sm_mhz(self):
        mhz = 2520 if self.load else 210
        return min(mhz, self.lock[1]) if self.lock and self.holds else mhz

    def settings(self):
        """Everything a setter can change."""
        return (self.persistence, self.power_limit, self.lock, self.memory_lock)


class FakeNvml:
    """The pynvml functions that the logic calls. `calls` lists setters as (name, card index, arguments)."""

    NVMLError = FakeError

    def __init__(self, cards=2):
        self.cards = [Card(index) for index in range(cards)]
        self.calls = []

    def _ask(self, name, card):
        error = card.errors.get(name)
        if error:
            raise FakeError(error)
        return card

    def _set(self, name, card, *arguments):
        self.calls.append((name, card.index, arguments))
        return self._ask(name, card)

    def nvmlInit(self):
        pass

    def nvmlShutdown(self):
        pass

    def nvmlSystemGetDriverVersion(self):
        return "580.95.05"

    def nvmlDeviceGetCount(self):
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index):
        return self._ask("nvmlDeviceGetHandleByIndex", self.cards[index])

    def nvmlDeviceGetHandleByUUID(self, uuid):
        for card in self.cards:
            if card.uuid == uuid:
                return self._ask("nvmlDeviceGetHandleByUUID", card)
        raise FakeError(6)

    def nvmlDeviceGetIndex(self, card):
        return self._ask("nvmlDeviceGetIndex", card).index

    def nvmlDeviceGetUUID(self, card):
        return self._ask("nvmlDeviceGetUUID", card).uuid

    def nvmlDeviceGetName(self, card):
        return "Fake RTX 4090"

    def nvmlDeviceGetPersistenceMode(self, card):
        return int(self._ask("nvmlDeviceGetPersistenceMode", card).persistence)

    def nvmlDeviceGetPowerManagementLimit(self, card):
        return self._ask("nvmlDeviceGetPowerManagementLimit", card).power_limit

    def nvmlDeviceGetPowerManagementDefaultLimit(self, card):
        return 450_000

    def nvmlDeviceGetPowerManagementLimitConstraints(self, card):
        return [150_000, 600_000]

    def nvmlDeviceGetPowerUsage(self, card):
        return 20_000

    def nvmlDeviceGetTotalEnergyConsumption(self, card):
        return self._ask("nvmlDeviceGetTotalEnergyConsumption", card).energy

    def nvmlDeviceGetSupportedMemoryClocks(self, card):
        return self._ask("nvmlDeviceGetSupportedMemoryClocks", card) and list(reversed(MEMORY_MHZ))

    def nvmlDeviceGetSupportedGraphicsClocks(self, card, memory_mhz):
        return list(reversed(GRAPHICS_MHZ))

    def nvmlDeviceGetUtilizationRates(self, card):
        return SimpleNamespace(gpu=card.load, memory=0)

    def nvmlDeviceGetClockInfo(self, card, kind):
        return card.sm_mhz

    def nvmlDeviceSetPersistenceMode(self, card, mode):
        self._set("nvmlDeviceSetPersistenceMode", card, mode).persistence = bool(mode)

    def nvmlDeviceSetPowerManagementLimit(self, card, milliwatts):
        self._set("nvmlDeviceSetPowerManagementLimit", card, milliwatts).power_limit = milliwatts

    def nvmlDeviceSetGpuLockedClocks(self, card, low, high):
        self._set("nvmlDeviceSetGpuLockedClocks", card, low, high).lock = (low, high)

    def nvmlDeviceResetGpuLockedClocks(self, card):
        self._set("nvmlDeviceResetGpuLockedClocks", card).lock = None

    def nvmlDeviceSetMemoryLockedClocks(self, card, low, high):
        self._set("nvmlDeviceSetMemoryLockedClocks", card, low, high).memory_lock = (low, high)

    def nvmlDeviceResetMemoryLockedClocks(self, card):
        self._set("nvmlDeviceResetMemoryLockedClocks", card).memory_lock = None


class FakeHost:
    """tandem_gpu_nvml.Host as far as converge() asks it."""

    def __init__(self):
        self.signs = {"boot_id": "boot-1", "module_inode": 42, "persistenced": "700:1200", "suspended_s": 0.0}

    def evidence(self):
        return dict(self.signs)


class FakeRecord:
    """tandem_gpu_record.Record in memory; `history` holds every state that was on disk."""

    def __init__(self):
        self.stored = {}
        self.history = []

    def entries(self):
        return dict(self.stored)

    def update(self, changes):
        merged = {**self.stored, **changes}
        self.stored = {uuid: entry for uuid, entry in merged.items() if entry is not None}
        self.history.append(dict(self.stored))
