# SPDX-License-Identifier: Apache-2.0
"""What a box's driver and GPUs are and do now, as plain data. No Ansible in here, see tandem_gpu_nvml.py."""

from __future__ import annotations

import shutil
import subprocess
import time

from .tandem_gpu_clocks import NVML_CLOCK_SM, smallest_step
from .tandem_gpu_nvml import (
    LIBRARY_NOT_FOUND,
    VERSION_MISMATCH,
    Host,
    Nvml,
    NvmlCallError,
    NvmlUnavailable,
    card_fault,
    guarded,
    load_pynvml,
)

NVML_CLOCK_GRAPHICS, NVML_CLOCK_MEMORY, NVML_CLOCK_VIDEO = 0, 2, 3
NVML_TEMPERATURE_GPU = 0
MIB = 1024 * 1024

# nvml.h, nvmlClocksEventReasons.
EVENT_REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    # named in the headers of newer drivers only
    0x200: "board_limit",
    0x400: "reliability",
}


def gather(timeout=30.0, sample_seconds=0.0, sample_interval=0.1):
    """Everything, or with no usable driver {available: False, reason: ...}. Raises DriverHung and Fault only."""
    host = Host()
    info = {
        "available": False,
        "reason": None,
        "nvml_code": None,
        "driver_version": None,
        "nvml_version": None,
        "cuda_version": None,
        "module_version": host.module_version(),
        "installed_module_version": installed_module_version(),
        "persistenced": host.persistenced() is not None,
        "gpus": [],
        "failed": [],
        "errors": [],
    }

    def work(progress):
        with Nvml(load_pynvml(), progress) as nvml:
            found = describe(nvml)
            found["samples"] = sample(nvml, sample_seconds, sample_interval, found)
            return found

    try:
        found = guarded(work, timeout + sample_seconds)
    except NvmlUnavailable as exc:
        info["reason"] = str(exc)
        info["nvml_code"] = exc.code
    else:
        samples = found.pop("samples")
        info.update(found, available=True)
        for gpu in info["gpus"]:
            gpu["samples"] = samples.get(gpu["uuid"])
        info["errors"] = [card["says"] for card in info["failed"]]
    info["reboot_needed"], info["reboot_reason"] = reboot_needed(info)
    return info


def installed_module_version():
    """Version of the nvidia module that a reload would load (`modinfo`), or None."""
    program = shutil.which("modinfo", path="/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin")
    if program is None:
        return None
    done = subprocess.run(
        [program, "-F", "version", "nvidia"],
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )
    return done.stdout.strip() or None


def reboot_needed(info):
    """(bool, sentence or None): whether what is loaded differs from what is installed."""
    loaded, installed = info["module_version"], info["installed_module_version"]
    if loaded and installed and loaded != installed:
        return (
            True,
            f"reboot needed: nvidia module {loaded} is loaded and {installed} is installed",
        )
    if info["nvml_code"] == VERSION_MISMATCH:
        return True, f"reboot needed: {info['reason']}"
    if installed and not loaded and info["nvml_code"] not in (None, LIBRARY_NOT_FOUND):
        return True, (
            f"nvidia module {installed} is installed and none is loaded: `modprobe nvidia`, or reboot when nouveau "
            "holds the cards"
        )
    return False, None


def describe(nvml):
    """Driver versions and every GPU. One that does not answer is in `failed`, with a sentence."""
    cuda = nvml.optional("nvmlSystemGetCudaDriverVersion")
    result = {
        "driver_version": nvml("nvmlSystemGetDriverVersion"),
        "nvml_version": nvml.optional("nvmlSystemGetNVMLVersion"),
        "cuda_version": None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        "gpus": [],
        "failed": [],
    }
    for index in range(nvml("nvmlDeviceGetCount")):
        try:
            result["gpus"].append(describe_gpu(nvml, nvml("nvmlDeviceGetHandleByIndex", index), index))
        except NvmlCallError as exc:
            result["failed"].append(failed(index, exc))
    return result


def failed(index, exc, uuid=None):
    """An NvmlCallError of one card as plain data. One that is lost does not tell its UUID any more."""
    return {"index": index, "uuid": uuid, "code": exc.code, "call": exc.call, "says": card_fault(index, exc)}


def describe_gpu(nvml, handle, index):
    """One GPU. Memory in MiB, power in W, clocks in MHz, temperature in Celsius; None where it does not tell."""

    def ask(name, *arguments):
        return nvml.optional(name, handle, *arguments)

    pci = nvml("nvmlDeviceGetPciInfo", handle)
    memory = nvml("nvmlDeviceGetMemoryInfo", handle)
    limits = ask("nvmlDeviceGetPowerManagementLimitConstraints")
    capability = ask("nvmlDeviceGetCudaComputeCapability")
    mig = ask("nvmlDeviceGetMigMode")
    utilisation = ask("nvmlDeviceGetUtilizationRates")
    display = ask("nvmlDeviceGetDisplayActive")
    running = processes(nvml, handle)
    return {
        "index": index,
        "uuid": nvml("nvmlDeviceGetUUID", handle),
        "name": nvml("nvmlDeviceGetName", handle),
        "pci_bus_id": _text(pci.busId),
        "pci_device_id": f"0x{pci.pciDeviceId:08X}",
        "compute_capability": None if capability is None else f"{capability[0]}.{capability[1]}",
        "memory_total_mib": memory.total // MIB,
        "memory_used_mib": memory.used // MIB,
        "memory_others_mib": memory_of_others(nvml, handle, memory, running),
        "display_active": None if display is None else bool(display),
        "mig_mode": None if mig is None else bool(mig[0]),
        "persistence_mode": bool(nvml("nvmlDeviceGetPersistenceMode", handle)),
        "power_limit_w": _thousandth(ask("nvmlDeviceGetPowerManagementLimit")),
        "power_enforced_limit_w": _thousandth(ask("nvmlDeviceGetEnforcedPowerLimit")),
        "power_default_limit_w": _thousandth(ask("nvmlDeviceGetPowerManagementDefaultLimit")),
        "power_min_limit_w": _thousandth(limits and limits[0]),
        "power_max_limit_w": _thousandth(limits and limits[1]),
        "power_draw_w": _thousandth(ask("nvmlDeviceGetPowerUsage")),
        "energy_j": _thousandth(ask("nvmlDeviceGetTotalEnergyConsumption")),
        "temperature_c": ask("nvmlDeviceGetTemperature", NVML_TEMPERATURE_GPU),
        "utilization_percent": None if utilisation is None else utilisation.gpu,
        "clocks": {
            "graphics_mhz": ask("nvmlDeviceGetClockInfo", NVML_CLOCK_GRAPHICS),
            "sm_mhz": ask("nvmlDeviceGetClockInfo", NVML_CLOCK_SM),
            "memory_mhz": ask("nvmlDeviceGetClockInfo", NVML_CLOCK_MEMORY),
            "video_mhz": ask("nvmlDeviceGetClockInfo", NVML_CLOCK_VIDEO),
        },
        "supported_clocks": supported_clocks(nvml, handle),
        "event_reasons": event_reasons(nvml, handle),
        "processes": running,
    }


def _text(value):
    return value.decode() if isinstance(value, bytes) else value


def _thousandth(value):
    return None if value is None else value / 1000


def supported_clocks(nvml, handle):
    """Memory clocks, and the graphics clocks at the highest of them as {min, max, step}, in MHz."""
    memory = sorted(nvml.optional("nvmlDeviceGetSupportedMemoryClocks", handle) or [])
    graphics = sorted(nvml.optional("nvmlDeviceGetSupportedGraphicsClocks", handle, memory[-1]) or []) if memory else []
    return {
        "memory_mhz": memory,
        "graphics_min_mhz": graphics[0] if graphics else None,
        "graphics_max_mhz": graphics[-1] if graphics else None,
        "graphics_step_mhz": smallest_step(graphics),
    }


def event_reasons(nvml, handle):
    """Why clocks are below their maximum now, as names; None where the driver does not tell."""
    mask = nvml.optional("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if mask is None:
        # Before driver 535 the same call had another name.
        mask = nvml.optional("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    return None if mask is None else [name for bit, name in EVENT_REASONS.items() if mask & bit]


def processes(nvml, handle):
    """[{pid, name, used_mib}] of the programs that compute on the GPU; None where the driver does not tell."""
    running = nvml.optional("nvmlDeviceGetComputeRunningProcesses", handle)
    if running is None:
        return None
    return [
        {
            "pid": item.pid,
            "name": _process_name(item.pid),
            "used_mib": item.usedGpuMemory and item.usedGpuMemory // MIB,
        }
        for item in running
    ]


def memory_of_others(nvml, handle, memory, running):
    """MiB in use by what does not compute: a display, its desktop. None where the driver does not tell.

    memory   of the call's first version, which counts what the driver keeps to itself as used
    running  of processes()
    """
    version_2 = getattr(nvml.lib, "nvmlMemory_v2", None)
    memory = (version_2 and nvml.optional("nvmlDeviceGetMemoryInfo", handle, version_2)) or memory
    if running is None or any(item["used_mib"] is None for item in running):
        return None
    return max(0, memory.used // MIB - sum(item["used_mib"] for item in running))


def _process_name(pid):
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as stream:
            return stream.read().strip()
    except OSError:
        return None


def sample(nvml, seconds, interval, found, clock=time.monotonic, sleep=time.sleep):
    """Watch every GPU of `found` (of describe()) for `seconds`.

    Returns {uuid: {count, busy, sm_mhz_min, sm_mhz_max, power_max_w, event_reasons}}.

    `busy` counts the samples in which the GPU worked; only those enter minimum and maximum, since an idle clock
    says nothing about a lock. With 0 seconds nothing is sampled. A card that ceases to answer goes over to `failed`,
    and the others are watched on.
    """
    watched, handles = {}, {}
    if seconds <= 0:
        return watched
    for gpu in found["gpus"]:
        watched[gpu["uuid"]] = (gpu, [], [], set())
    end = clock() + seconds
    count = 0
    while clock() < end:
        count += 1
        for gpu, clocks, powers, reasons in list(watched.values()):
            try:
                if gpu["uuid"] not in handles:
                    handles[gpu["uuid"]] = nvml("nvmlDeviceGetHandleByIndex", gpu["index"])
                handle = handles[gpu["uuid"]]
                busy = nvml("nvmlDeviceGetUtilizationRates", handle).gpu > 0
                mhz = nvml("nvmlDeviceGetClockInfo", handle, NVML_CLOCK_SM)
                why = event_reasons(nvml, handle) or []
                power = nvml.optional("nvmlDeviceGetPowerUsage", handle)
            except NvmlCallError as exc:
                found["gpus"].remove(gpu)
                found["failed"].append(failed(gpu["index"], exc, gpu["uuid"]))
                del watched[gpu["uuid"]]
                continue
            if busy:
                clocks.append(mhz)
                reasons.update(why)
            if power is not None:
                powers.append(power)
        sleep(interval)
    return {
        uuid: {
            "count": count,
            "busy": len(clocks),
            "sm_mhz_min": min(clocks, default=None),
            "sm_mhz_max": max(clocks, default=None),
            "power_max_w": _thousandth(max(powers, default=None)),
            "event_reasons": sorted(reasons),
        }
        for uuid, (_gpu, clocks, powers, reasons) in watched.items()
    }
