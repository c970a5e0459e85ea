# SPDX-License-Identifier: Apache-2.0
"""The program `tandem-gpu-clocks`: the box's desired GPU clock state, put in force and shown without Ansible.

No Ansible in here, see tandem_gpu_nvml.py. The units tandem-gpu-clocks.service and -check.service run it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time

from . import tandem_gpu_clocks as clocks
from .tandem_gpu_nvml import (
    DRIVER_NOT_LOADED,
    DriverHung,
    Fault,
    Host,
    NvmlUnavailable,
    explain,
)
from .tandem_gpu_record import DESIRED, read_json, write_json
from .tandem_gpu_wish import Wish, WishError

IN_FORCE, NOT_IN_FORCE, UNKNOWN = 0, 1, 2
DEFAULT_WAIT_S = 60
DEFAULT_TIMEOUT_S = 30
# What the check said last. In /run: after a reboot it may say it again.
SAID = "/run/tandem/gpu-clocks-said.json"

DESCRIPTION = """\
Keeps the GPU clock lock and power limit that /etc/tandem/gpu-clocks.json asks for.

  apply   put them in force, whatever is believed now (the boot unit runs this; the engine's unit requires it)
  check   the same without waiting for the driver, and silent unless something was not as wished; says a
          fault that stays only once (the timer runs this)
  status  show a table; changes nothing
  json    the same for programs

Exit code: 0 in force, 1 not in force, 2 unknown (driver, file or permission missing).
"""


def main(arguments=None):
    """Run one command and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="tandem-gpu-clocks",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=("apply", "check", "status", "json"))
    parser.add_argument(
        "--desired",
        default=Host().path(DESIRED),
        help="desired-state file (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    report = COMMANDS[options.command](options.desired)
    return report["exit_code"]


def load(path):
    """(Wish, {wait_seconds, timeout, reapply}) from the desired-state file. Raises Fault."""
    data = read_json(path)
    if data is None:
        raise Fault(f"{path} is missing: run site.yml (role gpu_clocks), or module gpu_clocks with persistent: true")
    try:
        settings = {
            "wait_seconds": float(data.pop("wait_seconds", DEFAULT_WAIT_S)),
            "timeout": float(data.pop("timeout", DEFAULT_TIMEOUT_S)),
            "reapply": data.pop("reapply", "always"),
        }
        return Wish.parse(data), settings
    except (WishError, TypeError, ValueError) as exc:
        raise Fault(f"{path}: {exc}") from exc


def _apply(path):
    report = _report(path, _wait_and_apply)
    _say(report, show_applied(report))
    return report


def _wait_and_apply(wish, settings):
    """Apply, and while the driver is absent or GPUs are missing, again: at boot they appear when they like."""
    deadline = time.monotonic() + settings["wait_seconds"]
    while True:
        late = time.monotonic() >= deadline
        try:
            result = clocks.run(wish, timeout=settings["timeout"])
        except NvmlUnavailable as exc:
            if late or exc.code != DRIVER_NOT_LOADED:
                raise
        else:
            if late or wish.expected_gpus is None or result["gpus_seen"] >= wish.expected_gpus:
                return result
        time.sleep(1)


def _check(path):
    report = _report(path, _check_and_apply)
    said_path = Host().path(SAID)
    said = _said(said_path)
    if report["in_force"] and not report["changed"]:
        if said and not said["in_force"]:
            _say(report, ["in force again"])
        now = {}
    else:
        lines = show_applied(report)
        # Readings differ from minute to minute; the matter is the same.
        now = {"matter": [re.sub(r"[\d.]+", "N", line) for line in lines], "in_force": report["in_force"]}
        if now != said:
            _say(report, lines)
    if now != said:
        write_json(said_path, now, 0o600)
    return report


def _said(path):
    try:
        return read_json(path) or {}
    except Fault:
        return {}


def _check_and_apply(wish, settings):
    if Host().module_dir() is None:
        # Asking NVML would load the module again behind the back of whoever has just unloaded it.
        raise NvmlUnavailable(explain(DRIVER_NOT_LOADED), DRIVER_NOT_LOADED)
    return clocks.run(wish, settings["reapply"], timeout=settings["timeout"])


def _look(wish, settings):
    return clocks.run(wish, reapply="on_drift", check=True, timeout=settings["timeout"])


def _report(path, act):
    """What `act` found, with in_force (true, false, or null for unknown), reason and exit_code. Plain data."""
    report = {
        "desired": None,
        "in_force": None,
        "reason": None,
        "changed": False,
        "gpus": [],
        "errors": [],
        "warnings": [],
    }
    try:
        wish, settings = load(path)
        report["desired"] = wish.as_dict()
        report.update(act(wish, settings))
    except (NvmlUnavailable, DriverHung, Fault) as exc:
        report["reason"] = str(exc)
    except PermissionError as exc:
        report["reason"] = f"{exc.filename} may be used by root only: run as root"
    else:
        # Looking counts what would have to change; applying has changed it.
        report["in_force"] = not report["errors"] and not (act is _look and report["changed"])
        report["reason"] = "; ".join(report["errors"]) or None
    report["exit_code"] = UNKNOWN if report["in_force"] is None else NOT_IN_FORCE - bool(report["in_force"])
    return report


def _status(path):
    report = _report(path, _look)
    print("\n".join(show_status(report)))
    return report


def _json(path):
    report = _report(path, _look)
    print(json.dumps(report, indent=2, sort_keys=True))
    return report


def show_applied(report):
    """Lines for the journal: what was not as wished and is now, or why not."""
    lines = []
    for gpu in report["gpus"]:
        what = ", ".join(f"{item['setting']} {item['before']} -> {item['after']}" for item in gpu["changes"])
        if what and not gpu["errors"]:
            lines.append(f"{clocks.label(gpu)}: {what} ({gpu['belief']}: {'; '.join(gpu['evidence'])})")
    lines += report["errors"] or ([report["reason"]] if report["reason"] else [])
    return (lines or ["in force, set again"]) + report["warnings"]


def _say(report, lines):
    # "<4>" and "<5>" are journal priorities (sd-daemon(3)): warning and notice.
    priority = "<5>" if report["in_force"] else "<4>"
    for line in lines:
        print(f"{priority if not sys.stdout.isatty() else ''}{line}", flush=True)


def show_status(report):
    """A table for a person: GPU, wanted, belief, clock and power now, and the evidence under it."""
    heads = (
        "GPU",
        "NAME",
        "WANTED",
        "IN FORCE",
        "BELIEF",
        "CLOCK NOW",
        "POWER NOW",
        "POWER LIMIT",
        "PERSISTENCE",
    )
    rows = [heads]
    for gpu in report["gpus"]:
        state = gpu["before"]
        rows.append(
            (
                str(gpu["index"]),
                gpu["name"],
                _wanted(report["desired"]),
                "no" if gpu["changes"] or gpu["errors"] else "yes",
                gpu["belief"],
                _unit(gpu["sm_mhz"], "MHz"),
                _unit(gpu["power_draw_w"], "W"),
                _unit(state["power_limit_w"], "W"),
                "on" if state["persistence_mode"] else "off",
            )
        )
    lines = []
    if len(rows) > 1:
        widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
        lines += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
        lines.append("")
    for gpu in report["gpus"]:
        lines += [f"{clocks.label(gpu)}: {sentence}" for sentence in gpu["evidence"]]
        lines += [
            f"{clocks.label(gpu)}: {item['setting']} is {item['before']}, wanted {item['after']}"
            for item in gpu["changes"]
        ]
    lines += report["errors"] or ([report["reason"]] if report["reason"] else [])
    lines += report["warnings"]
    verdict = {True: "in force", False: "NOT in force", None: "UNKNOWN"}[report["in_force"]]
    return [*lines, f"GPU clock state: {verdict}"]


def _wanted(desired):
    wanted = "unlocked"
    if desired["state"] == "locked":
        wanted = clocks.show_lock([desired["min_mhz"], desired["max_mhz"]])
    limit = desired["power_limit_w"]
    if limit is not None:
        wanted += f", {limit} W" if limit != "default" else ", default W"
    return wanted


def _unit(value, unit):
    return "-" if value is None else f"{value:.0f} {unit}"


COMMANDS = {"apply": _apply, "check": _check, "status": _status, "json": _json}
