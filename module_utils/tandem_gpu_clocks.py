# SPDX-License-Identifier: Apache-2.0
"""GPU clock locks and power limits as a promise: observe -> believe -> plan -> apply -> read back.

No Ansible in here, see tandem_gpu_nvml.py.

NVML sets a clock lock and cannot be asked whether one is in force. A lock lives as long as the driver's
initialisation of the GPU. So what was set is recorded together with signs of that initialisation, and the record
is believed only as long as no sign has changed and no clock was seen above the lock.

Sources: nvml.h (lifetimes at nvmlDeviceSetGpuLockedClocks, nvmlDeviceSetPersistenceMode,
nvmlDeviceSetPowerManagementLimit) and NVIDIA/open-gpu-kernel-modules#1314 (success without effect).
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass

from .tandem_gpu_nvml import (
    FUNCTION_NOT_FOUND,
    GPU_GONE,
    NOT_FOUND,
    NOT_SUPPORTED,
    Host,
    Nvml,
    NvmlCallError,
    card_fault,
    explain,
    guarded,
    load_pynvml,
)
from .tandem_gpu_record import Record
from .tandem_gpu_wish import Wish

SAMPLES = 3
SAMPLE_GAP_S = 0.02
# An Ada card's grid; used where the card does not list its clocks.
DEFAULT_STEP_MHZ = 15
POWER_TOLERANCE_MW = 1000
# The system clock that both sides of the difference are taken from is read twice, microseconds apart.
SUSPEND_TOLERANCE_S = 0.5
NVML_CLOCK_SM = 1


def label(gpu):
    return f"GPU {gpu['index']} ({gpu['uuid']})"


# --- observe -----------------------------------------------------------------------------------------------------


def select(nvml, wish):
    """The wished GPUs as (name, handle, None), or (name, None, sentence) for each that cannot be had."""
    count = nvml("nvmlDeviceGetCount")
    found = []
    for name in [str(index) for index in range(count)] if "all" in wish.gpus else wish.gpus:
        try:
            if not name.isdigit():
                found.append((name, nvml("nvmlDeviceGetHandleByUUID", name), None))
            elif int(name) < count:
                found.append((name, nvml("nvmlDeviceGetHandleByIndex", int(name)), None))
            else:
                sentence = f"gpus names index {name}, and the driver sees {count} GPU(s): indexes count from 0"
                found.append((name, None, sentence))
        except NvmlCallError as exc:
            sentence = card_fault(name, exc)
            if exc.code == NOT_FOUND and not name.isdigit():
                present, silent = _uuids(nvml, count)
                sentence = f"gpus names {name}, which is not in this box: present are {', '.join(present) or 'none'}"
                if silent:
                    # a lost card does not tell its UUID: it may be the one
                    sentence = f"gpus names {name}, which no card has that answers. {'. '.join(silent)}"
            found.append((name, None, sentence))
    least = 1 if wish.expected_gpus is None and not found else wish.expected_gpus
    if least is not None and count < least:
        sentence = (
            f"the driver sees {count} GPU(s), and at least {least} must be there (expected_gpus): look for the missing "
            "card with `lspci -d 10de:` and for Xid 79 in `dmesg`, or correct expected_gpus"
        )
        found.append(("all", None, sentence))
    return found


def _uuids(nvml, count):
    """(UUIDs of the cards that answer, sentences about those that do not)"""
    present, silent = [], []
    for index in range(count):
        try:
            present.append(nvml("nvmlDeviceGetUUID", nvml("nvmlDeviceGetHandleByIndex", index)))
        except NvmlCallError as exc:
            silent.append(card_fault(index, exc))
    return present, silent


def observe(nvml, handle, sleep=time.sleep):
    """What one GPU tells now. Power in mW, energy in mJ, clocks in MHz; None where it does not answer.

    Raises NvmlCallError when what no decision can do without is unreadable.
    """
    limits = nvml.optional("nvmlDeviceGetPowerManagementLimitConstraints", handle)
    memory_mhz = sorted(nvml.optional("nvmlDeviceGetSupportedMemoryClocks", handle) or [])
    graphics_mhz = []
    if memory_mhz:
        graphics_mhz = sorted(nvml.optional("nvmlDeviceGetSupportedGraphicsClocks", handle, memory_mhz[-1]) or [])
    return {
        "index": nvml("nvmlDeviceGetIndex", handle),
        "uuid": nvml("nvmlDeviceGetUUID", handle),
        "name": nvml("nvmlDeviceGetName", handle),
        "persistence_mode": bool(nvml("nvmlDeviceGetPersistenceMode", handle)),
        "power_limit_mw": nvml.optional("nvmlDeviceGetPowerManagementLimit", handle),
        "power_default_mw": nvml.optional("nvmlDeviceGetPowerManagementDefaultLimit", handle),
        "power_min_mw": limits[0] if limits else None,
        "power_max_mw": limits[1] if limits else None,
        "power_draw_mw": nvml.optional("nvmlDeviceGetPowerUsage", handle),
        "energy_mj": nvml.optional("nvmlDeviceGetTotalEnergyConsumption", handle),
        "graphics_mhz": graphics_mhz,
        "memory_mhz": memory_mhz,
        "sm_mhz": sample_clock(nvml, handle, sleep),
    }


def sample_clock(nvml, handle, sleep=time.sleep):
    """SM clock in MHz, SAMPLES times. Spread out only when the GPU works: an idle clock proves nothing."""
    utilisation = nvml.optional("nvmlDeviceGetUtilizationRates", handle)
    samples = []
    for number in range(SAMPLES):
        if number and utilisation is not None and utilisation.gpu:
            sleep(SAMPLE_GAP_S)
        clock = nvml.optional("nvmlDeviceGetClockInfo", handle, NVML_CLOCK_SM)
        if clock is not None:
            samples.append(clock)
    return samples


def step_mhz(gpu):
    """The card's clock step, the smallest distance between two clocks that it lists."""
    return smallest_step(gpu["graphics_mhz"]) or DEFAULT_STEP_MHZ


def smallest_step(clocks):
    """The smallest distance between two of the sorted clocks, or None."""
    # itertools.pairwise is newer than the Python of the boxes.
    return min((b - a for a, b in zip(clocks, clocks[1:]) if b > a), default=None)


# --- believe -----------------------------------------------------------------------------------------------------


def evidence_of(signs, gpu):
    """The signs of the current initialisation that go into the record: the box's and the GPU's. Plain JSON."""
    return {
        **signs,
        "persistence_mode": gpu["persistence_mode"],
        "power_limit_mw": gpu["power_limit_mw"],
        "energy_mj": gpu["energy_mj"],
    }


def believe(entry, now, samples, step):
    """(belief, [sentences]) about a record entry, or None, in the light of evidence `now` and clock samples in MHz.

    no_record     nothing of this boot says what was set
    stale         a sign shows that the initialisation in which it was set has ended, or may have
    contradicted  the clock runs above the recorded lock
    confirmed     neither
    """
    if entry is None:
        return "no_record", ["nothing was set in this boot, or the record is gone"]
    against = list(_signs_of_end(entry["evidence"], now))
    if against:
        return "stale", against
    lock = entry["wish"].get("gpu_lock")
    if lock and samples and max(samples) > lock[1] + step:
        return "contradicted", [
            f"the SM clock runs at {max(samples)} MHz, more than one step ({step} MHz) above the lock's {lock[1]} MHz"
        ]
    return "confirmed", [CONFIRMED]


CONFIRMED = (
    "same boot, module, driver version, nvidia-persistenced and power limit as when it was set; persistence mode on, "
    "energy counter not reset, no clock seen above the lock"
)

_MUST_EQUAL = {
    "boot_id": "the box has been rebooted (boot id {then}, now {now})",
    "module_inode": "the nvidia module has been loaded anew (inode {then}, now {now})",
    "driver_version": "the driver was {then} and is {now}",
    "persistenced": "nvidia-persistenced has been started anew or stopped (pid:start {then}, now {now})",
    "power_limit_mw": "the power limit was {then} mW and is {now} mW: someone changed it, or the driver started anew",
}


def _signs_of_end(then, now):
    for name, sentence in _MUST_EQUAL.items():
        if then.get(name) != now[name]:
            yield sentence.format(then=then.get(name), now=now[name])
    if not (then.get("persistence_mode") and now["persistence_mode"]):
        yield "persistence mode is or was off: the lock ends when the last program that uses the GPU ends"
    if now["suspended_s"] - (then.get("suspended_s") or 0) > SUSPEND_TOLERANCE_S:
        yield "the box has been suspended and resumed"
    before, after = then.get("energy_mj"), now["energy_mj"]
    if before is not None and (after is None or after < before):
        yield f"the energy counter was {before} mJ and is {after} mJ: it counts since the driver was loaded"


# --- plan --------------------------------------------------------------------------------------------------------


def fit(wish, gpu):
    """(target, problems, warnings): the wish in this card's terms, and sentences about what it cannot take.

    target: gpu_lock and memory_lock as [min, max] MHz or None, power_limit_mw or None, persistence_mode.
    """
    problems, warnings = [], []
    target = {
        "gpu_lock": wish.gpu_lock,
        "memory_lock": wish.memory_lock,
        "power_limit_mw": None,
        "persistence_mode": wish.persistence_mode,
    }
    if wish.gpu_lock and gpu["graphics_mhz"]:
        target["gpu_lock"], problems, warnings = _lock_target(wish, gpu)
    memory = gpu["memory_mhz"]
    if wish.memory_lock and memory:
        for name, value in (
            ("memory_min_mhz", wish.memory_min_mhz),
            ("memory_max_mhz", wish.memory_max_mhz),
        ):
            if value and not memory[0] <= value <= memory[-1]:
                problems.append(
                    f"{label(gpu)} takes memory clocks of {memory[0]} to {memory[-1]} MHz: {name} ({value}) is outside"
                )
    if wish.power_limit_w is not None:
        target["power_limit_mw"], problem = _power_target(wish.power_limit_w, gpu)
        problems += [problem] if problem else []
    return target, problems, warnings


def _lock_target(wish, gpu):
    """([min, max] on the card's grid, problems, warnings)."""
    lock, problems, warnings = [], [], []
    clocks = gpu["graphics_mhz"]
    for name, mhz in (("min_mhz", wish.min_mhz), ("max_mhz", wish.max_mhz)):
        if name == "min_mhz" and mhz == 0:
            lock.append(0)
            continue
        if not clocks[0] <= mhz <= clocks[-1]:
            span = f"{clocks[0]} to {clocks[-1]} MHz in steps of {step_mhz(gpu)}"
            problems.append(f"{label(gpu)} takes clocks of {span}: {name} ({mhz}) is outside")
            continue
        # Down, never up: the maximum is there to keep the box alive.
        below = max(clock for clock in clocks if clock <= mhz)
        lock.append(below)
        if below != mhz:
            sentence = f"{label(gpu)}: {name} ({mhz}) is not one of its clocks, the next below is {below}"
            if wish.strict_steps:
                problems.append(f"{sentence}: give that, or set strict_steps to false")
            else:
                warnings.append(f"{sentence}, which is what is set")
    return lock, problems, warnings


def _power_target(watts, gpu):
    if gpu["power_limit_mw"] is None:
        return (
            None,
            f"{label(gpu)} has no power limit that can be set: leave power_limit_w out for it",
        )
    if watts == "default":
        if gpu["power_default_mw"] is None:
            return (
                None,
                f"{label(gpu)} does not tell its default power limit: give power_limit_w in watts",
            )
        return gpu["power_default_mw"], None
    wanted = round(watts * 1000)
    low, high = gpu["power_min_mw"], gpu["power_max_mw"]
    if low is not None and not low <= wanted <= high:
        return None, (
            f"{label(gpu)} takes power limits of {low / 1000:g} to {high / 1000:g} W "
            f"(default {(gpu['power_default_mw'] or 0) / 1000:g}): power_limit_w ({watts}) is outside"
        )
    return wanted, None


def plan(target, gpu, entry, belief, reapply="always"):
    """(actions, changes) that bring one GPU to its target.

    actions  [NVML setter, arguments...] in the order to call them: persistence mode first (it begins the
             initialisation that the rest lives in), the clock lock last.
    changes  [{setting, before, after}]: what is not as wished now. A setter that is only repeated, as the one guard
             against a foreign `nvidia-smi -rgc`, is an action and no change.
    """
    actions, changes = [], []

    def change(setting, before, after):
        changes.append({"setting": setting, "before": before, "after": after})

    if gpu["persistence_mode"] != target["persistence_mode"]:
        actions.append(["nvmlDeviceSetPersistenceMode", int(target["persistence_mode"])])
        change(
            "persistence_mode",
            _on_off(gpu["persistence_mode"]),
            _on_off(target["persistence_mode"]),
        )
    wanted, now = target["power_limit_mw"], gpu["power_limit_mw"]
    if wanted is not None and abs(now - wanted) >= POWER_TOLERANCE_MW:
        actions.append(["nvmlDeviceSetPowerManagementLimit", wanted])
        change("power_limit", f"{now / 1000:g} W", f"{wanted / 1000:g} W")

    recorded = entry["wish"] if entry else {}
    believed = belief == "confirmed"
    for setting, setter, managed in (
        ("memory_lock", "MemoryLockedClocks", _memory_is_ours(target, recorded)),
        ("gpu_lock", "GpuLockedClocks", True),
    ):
        if not managed:
            continue
        differs = not believed or recorded.get(setting) != target[setting]
        if differs:
            before = show_lock(recorded.get(setting)) if believed else "unknown"
            change(setting, before, show_lock(target[setting]))
        if differs or reapply == "always":
            verb = "Set" if target[setting] else "Reset"
            actions.append([f"nvmlDevice{verb}{setter}", *(target[setting] or [])])
    return actions, changes


def _memory_is_ours(target, recorded):
    # Without a memory wish memory clocks are left alone, except that a lock of ours is taken back.
    return bool(target["memory_lock"] or recorded.get("memory_lock") or target["gpu_lock"] is None)


def _on_off(flag):
    return "on" if flag else "off"


def show_lock(lock):
    """A lock as a person reads it; None is "unlocked", as far as tandem has set it."""
    return f"{lock[0]}-{lock[1]} MHz" if lock else "unlocked"


# --- apply and read back -----------------------------------------------------------------------------------------


def apply(nvml, handle, gpu, actions, memory_required=False):
    """Call the setters. Returns (errors, warnings, memory_supported)."""
    errors, warnings, memory_supported = [], [], True
    for name, *arguments in actions:
        try:
            nvml(name, handle, *arguments)
        except NvmlCallError as exc:
            if "MemoryLockedClocks" in name and exc.code in (NOT_SUPPORTED, FUNCTION_NOT_FOUND):
                memory_supported = False
                # A card that knows no memory lock has none to be reset.
                if name.startswith("nvmlDeviceSet"):
                    sentence = f"{label(gpu)} cannot lock its memory clock: {explain(exc.code)}"
                    (errors if memory_required else warnings).append(sentence)
                continue
            shown = ", ".join(str(argument) for argument in arguments)
            errors.append(f"{label(gpu)}: {name}({shown}) failed: {explain(exc.code)}")
            if exc.code in GPU_GONE:
                break
    return errors, warnings, memory_supported


def read_back(nvml, handle, gpu, target, sleep=time.sleep):
    """(gpu with what reads otherwise now, errors): whether what was set is there, as far as it can be read."""
    after, errors = dict(gpu), []
    after["persistence_mode"] = bool(nvml("nvmlDeviceGetPersistenceMode", handle))
    after["power_limit_mw"] = nvml.optional("nvmlDeviceGetPowerManagementLimit", handle)
    if after["persistence_mode"] != target["persistence_mode"]:
        errors.append(
            f"{label(gpu)}: persistence mode was switched {_on_off(target['persistence_mode'])} and reads "
            f"{_on_off(after['persistence_mode'])}: see `systemctl status nvidia-persistenced` and its options"
        )
    wanted = target["power_limit_mw"]
    if wanted is not None and abs(after["power_limit_mw"] - wanted) >= POWER_TOLERANCE_MW:
        errors.append(
            f"{label(gpu)}: the power limit was set to {wanted / 1000:g} W and reads "
            f"{after['power_limit_mw'] / 1000:g} W: stop what else sets it (nvidia-smi -pl, another tuning service)"
        )
    lock = target["gpu_lock"]
    ceiling = lock[1] + step_mhz(gpu) if lock else None
    if lock and gpu["sm_mhz"] and gpu["sm_mhz"][-1] > ceiling:
        after["sm_mhz"] = _settle(nvml, handle, ceiling, sleep)
        if after["sm_mhz"] and after["sm_mhz"][-1] > ceiling:
            errors.append(
                f"{label(gpu)}: the lock {show_lock(lock)} was accepted and the SM clock still runs at "
                f"{after['sm_mhz'][-1]} MHz: the driver does not hold it (NVIDIA/open-gpu-kernel-modules#1314); "
                "stop the load, then try another driver release or a power limit"
            )
    return after, errors


def _settle(nvml, handle, ceiling, sleep):
    """Samples in MHz until one is at or below the ceiling, for about half a second."""
    samples = []
    for _attempt in range(25):
        clock = nvml.optional("nvmlDeviceGetClockInfo", handle, NVML_CLOCK_SM)
        if clock is None:
            break
        samples.append(clock)
        if clock <= ceiling:
            break
        sleep(SAMPLE_GAP_S)
    return samples


# --- all of it ---------------------------------------------------------------------------------------------------


def run(wish, reapply="always", check=False, timeout=30.0):
    """Convergence.run() on this box, in a child process that a hung driver cannot hold. Raises Fault and its kinds."""

    def work(progress):
        host = Host()
        record = Record(host.root)
        with contextlib.ExitStack() as stack:
            if not check:
                stack.enter_context(record.locked(timeout / 3))
            nvml = stack.enter_context(Nvml(load_pynvml(), progress))
            return Convergence(nvml, host, record, wish, reapply, check).run()

    return guarded(work, timeout)


@dataclass
class Convergence:
    """One run that brings every wished GPU to the wish or, with `check`, tells what would be done.

    Inside an NVML session; unless `check`, inside `record.locked()`.
    """

    nvml: Nvml
    host: Host
    record: Record
    wish: Wish
    reapply: str = "always"
    check: bool = False
    sleep: object = time.sleep

    def run(self):
        """{changed, driver_version, gpus_seen, gpus: [...], errors: [...], warnings: [...]}, plain data.

        Faults are collected: a GPU that fails does not keep the others from being done.
        """
        # Before any setter: were a sign to change while we work, the record must carry the older one.
        self.signs = {**self.host.evidence(), "driver_version": self.nvml("nvmlSystemGetDriverVersion")}
        self.entries = self.record.entries()
        result = {
            "changed": False,
            "driver_version": self.signs["driver_version"],
            "gpus_seen": self.nvml("nvmlDeviceGetCount"),
            "gpus": [],
            "errors": [],
            "warnings": list(self._persistence_warnings()),
        }
        for name, handle, sentence in select(self.nvml, self.wish):
            if handle is None:
                result["errors"].append(sentence)
                continue
            try:
                report = self._one(handle)
            except NvmlCallError as exc:
                result["errors"].append(card_fault(name, exc))
                continue
            result["gpus"].append(report)
            result["errors"] += report["errors"]
            result["warnings"] += report.pop("warnings")
            result["changed"] = result["changed"] or bool(report["changes"])
        return result

    def _persistence_warnings(self):
        if not self.wish.persistence_mode:
            yield (
                "persistence_mode is false: the driver drops lock and power limit when the last program that uses the "
                "GPU ends, so they are never believed and every run reports a change"
            )
        elif self.signs["persistenced"] is None:
            yield (
                "nvidia-persistenced is not running: persistence mode is then the driver's own, which NVIDIA "
                "deprecates; enable nvidia-persistenced.service"
            )

    def _one(self, handle):
        gpu = observe(self.nvml, handle, self.sleep)
        entry = self.entries.get(gpu["uuid"])
        belief, evidence = believe(entry, evidence_of(self.signs, gpu), gpu["sm_mhz"], step_mhz(gpu))
        target, errors, warnings = fit(self.wish, gpu)
        actions, changes = ([], []) if errors else plan(target, gpu, entry, belief, self.reapply)
        before = _state_of(gpu, target, entry, belief)
        memory_supported = entry is None or entry["memory_supported"]
        after = gpu
        if actions and not self.check:
            after, errors, more, memory_supported = self._put_in_force(handle, gpu, entry, target, actions)
            warnings += more
        return {
            "index": gpu["index"],
            "uuid": gpu["uuid"],
            "name": gpu["name"],
            "belief": belief,
            "evidence": evidence,
            "before": before,
            "after": _state_after(before, target, changes, errors, memory_supported),
            "actions": [_show_call(action) for action in actions],
            "changes": changes,
            "sm_mhz": max(after["sm_mhz"], default=None),
            "power_draw_w": _watts(after["power_draw_mw"]),
            "errors": errors,
            "warnings": warnings,
        }

    def _put_in_force(self, handle, gpu, entry, target, actions):
        """Apply, read back, and record: (gpu as read back, errors, warnings, memory_supported)."""
        locks = {"gpu_lock": target["gpu_lock"], "memory_lock": target["memory_lock"]}
        if entry is not None and entry["wish"] != locks:
            # Forget before the first setter: cut short in between, the old entry would be believed and untrue.
            self.record.update({gpu["uuid"]: None})
        errors, warnings, memory_supported = apply(self.nvml, handle, gpu, actions, self.wish.memory_required)
        after = gpu
        if not errors:  # else what reads otherwise is no news, and a GPU that is gone would say so twice
            try:
                after, errors = read_back(self.nvml, handle, gpu, target, self.sleep)
            except NvmlCallError as exc:
                errors.append(f"{label(gpu)}: reading back failed: {exc}")
        fresh = {"wish": locks, "memory_supported": memory_supported, "evidence": evidence_of(self.signs, after)}
        self.record.update({gpu["uuid"]: None if errors else fresh})
        return after, errors, warnings, memory_supported


def _state_of(gpu, target, entry, belief):
    recorded = entry["wish"] if entry else {}
    locks = dict.fromkeys(("gpu_lock", "memory_lock"), "unknown")
    if belief == "confirmed":
        locks = {name: show_lock(recorded[name]) for name in locks}
        if recorded["memory_lock"] and not entry["memory_supported"]:
            locks["memory_lock"] = "not supported"
    if not _memory_is_ours(target, recorded):
        locks["memory_lock"] = "left alone"
    return {"persistence_mode": gpu["persistence_mode"], "power_limit_w": _watts(gpu["power_limit_mw"]), **locks}


def _state_after(before, target, changes, errors, memory_supported):
    if errors:
        return {**before, "gpu_lock": "unknown", "memory_lock": "unknown"}
    after = dict(before)
    for item in changes:
        if item["setting"] == "power_limit":
            after["power_limit_w"] = _watts(target["power_limit_mw"])
        elif item["setting"] == "persistence_mode":
            after["persistence_mode"] = target["persistence_mode"]
        else:
            after[item["setting"]] = item["after"]
    if target["memory_lock"] and not memory_supported:
        after["memory_lock"] = "not supported"
    return after


def _watts(milliwatts):
    return None if milliwatts is None else milliwatts / 1000


def _show_call(action):
    name, *arguments = action
    return f"{name}({', '.join(str(argument) for argument in arguments)})"
