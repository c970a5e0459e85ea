# SPDX-License-Identifier: Apache-2.0
"""Cards watched while something else goes on: samples out of a child process, for bench-run and stress-run.

No Ansible in here, see tandem_gpu_nvml.py. A driver that hangs ends the samples, not the program that asked for them.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time

from .tandem_gpu_nvml import (
    LIBRARY_DIR,
    DriverHung,
    Fault,
    Nvml,
    NvmlCallError,
    _child,
    _end,
    card_fault,
    load_pynvml,
)

TIMEOUT_S = 10.0
NVML_CLOCK_SM = 1
NVML_TEMPERATURE_GPU = 0
# NVML_FI_DEV_POWER_INSTANT; the ordinary reading is an average over a second on these cards
POWER_INSTANT = 186
ROW = b"row "


class CardWatch:
    """Samples of the cards `uuids` (none is all), every `interval` seconds, from when it is made until close().

    To be made before the program has threads: it forks.
    """

    def __init__(self, interval, uuids=(), timeout=TIMEOUT_S, library=LIBRARY_DIR):
        self.timeout = timeout
        self._descriptor, write_end = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _child(lambda progress: _sample(progress, interval, set(uuids), library), self._descriptor, write_end)
        os.close(write_end)

    def rows(self, stopped):
        """Yield {"cards": [{index, uuid, name}], "failed": [sentence]}, then {"gpus": [reading]} for these cards.

        Ends with the first row after `stopped` (a threading.Event) is set. Raises Fault where NVML or a card does not
        answer, DriverHung where a call does not return.
        """
        data, doing, since = b"", "start-up", time.monotonic()
        while True:
            if not select.select([self._descriptor], [], [], 0.2)[0]:
                if time.monotonic() - since > self.timeout:
                    raise DriverHung(
                        f"the driver did not answer within {self.timeout:g} s (last call: {doing}): look for Xid or "
                        "hung-task lines in `dmesg`"
                    )
                continue
            chunk = os.read(self._descriptor, 65536)
            if not chunk:
                raise Fault(_last_word(data, doing))
            since = time.monotonic()
            *lines, data = (data + chunk).split(b"\n")
            for line in lines:
                if line.startswith(ROW):
                    yield json.loads(line[len(ROW) :])
                    if stopped.is_set():
                        return
                elif line.startswith(b"{"):
                    data = line + b"\n" + data
                else:
                    doing = line.decode()

    def close(self):
        """End the child. One that hangs in the kernel is not waited for."""
        os.close(self._descriptor)
        try:
            os.kill(self._pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        _end(self._pid)


def _last_word(data, doing):
    try:
        outcome = json.loads(data.decode().strip().splitlines()[-1])
    except (ValueError, IndexError):
        return f"the NVML process ended during {doing}; look at `dmesg`"
    return outcome.get("unavailable") or outcome.get("failed") or f"the NVML process ended during {doing}"


def _sample(progress, interval, uuids, library):
    def tell(row):
        progress(ROW.decode() + json.dumps(row))

    with Nvml(load_pynvml(library), progress) as nvml:
        cards, failed = [], []
        for index in range(nvml("nvmlDeviceGetCount")):
            try:
                handle = nvml("nvmlDeviceGetHandleByIndex", index)
                card = {"index": index, "uuid": nvml("nvmlDeviceGetUUID", handle)}
                if not uuids or card["uuid"] in uuids:
                    cards.append((handle, {**card, "name": nvml("nvmlDeviceGetName", handle)}))
            except NvmlCallError as exc:
                failed.append(card_fault(index, exc))
        if uuids and len(cards) == len(uuids):
            failed = []  # of somebody else
        tell({"cards": [card for _, card in cards], "failed": failed})
        while True:
            tell({"gpus": [_reading(nvml, handle, card["index"]) for handle, card in cards]})
            time.sleep(interval)


def _reading(nvml, handle, index):
    """Clock in MHz, power in W (average and, where it is told, of now), temperature in Celsius, event reasons."""
    try:
        reasons = nvml.optional("nvmlDeviceGetCurrentClocksEventReasons", handle)
        return {
            "sm_mhz": nvml("nvmlDeviceGetClockInfo", handle, NVML_CLOCK_SM),
            "power_w": nvml("nvmlDeviceGetPowerUsage", handle) / 1000,
            "power_now_w": _power_now(nvml, handle),
            "temperature_c": nvml("nvmlDeviceGetTemperature", handle, NVML_TEMPERATURE_GPU),
            "utilization": nvml("nvmlDeviceGetUtilizationRates", handle).gpu,
            "reasons": reasons or 0,
        }
    except NvmlCallError as exc:
        raise Fault(card_fault(index, exc)) from None


def _power_now(nvml, handle):
    fields = nvml.optional("nvmlDeviceGetFieldValues", handle, [POWER_INSTANT])
    told = fields and fields[0].nvmlReturn == 0 and fields[0].value.uiVal
    return told / 1000 if told else None
