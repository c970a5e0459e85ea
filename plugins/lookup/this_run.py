# SPDX-License-Identifier: Apache-2.0
"""Which run of Ansible this is, and whether another one on this machine still goes on."""

from __future__ import annotations

import getpass
import os
import socket
from datetime import datetime

from ansible.plugins.lookup import LookupBase

DOCUMENTATION = r"""
name: this_run
short_description: Who runs Ansible here, in which process, since when
description:
  - Without a term, the run itself as a dict of C(run), which tells runs apart, C(who), C(host), C(pid) and C(since).
  - Ask once and keep the answer. Where there is no C(/proc), each worker process counts as a run of its own.
  - With the dicts of other runs, as a lock names them, V(going) or V(over) for each, or V(unknown) for one on another
    machine or in another container.
author:
  - tandem (!UNKNOWN)
options:
  _terms:
    description: Runs to be judged.
    type: list
    elements: dict
"""


def stat(pid):
    """(parent's pid, start time in clock ticks since boot) of a process, or None when there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as handle:
            fields = handle.read().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[1]), int(fields[19])


def command(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as handle:
            return handle.read()
    except OSError:
        return b""


def main_process():
    """The pid of ansible-playbook itself: its workers are forks with the same command line."""
    pid = os.getpid()
    while (found := stat(pid)) and command(found[0]) == command(pid):
        pid = found[0]
    return pid


def first_line(path):
    try:
        with open(path, encoding="utf-8") as handle:
            return handle.readline().strip() or "unknown"
    except OSError:
        return "unknown"


def process_space():
    """Where process numbers count: the same for all of a machine, another one in each container."""
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return "unknown"


def this_run():
    pid = main_process()
    host, started = socket.gethostname(), (stat(pid) or (0, 0))[1]
    # host names repeat: two machines, or two containers, may have the same
    machine, boot = first_line("/etc/machine-id"), first_line("/proc/sys/kernel/random/boot_id")
    return {
        "run": f"{host}:{machine}:{process_space()}:{boot}:{pid}:{started}",
        "who": f"{getpass.getuser()}@{host}",
        "host": host,
        "pid": pid,
        "since": datetime.now().astimezone().isoformat(timespec="seconds"),
    }


def state(holder, here):
    """going | over | unknown, for a run that a lock names, seen from the run `here`."""
    *place, boot, _, _ = here["run"].split(":")
    try:
        *its_place, its_boot, its_pid, its_start = holder["run"].split(":")
        its_pid, its_start = int(its_pid), int(its_start)
    except (ValueError, AttributeError, KeyError):
        return "unknown"
    if its_place != place or boot == "unknown" or (its_boot != boot and "unknown" in place):
        return "unknown"
    found = stat(its_pid) if its_boot == boot else None
    return "going" if found and found[1] == its_start else "over"


class LookupModule(LookupBase):
    """Ansible's entry point."""

    def run(self, terms, variables=None, **kwargs):
        here = this_run()
        return [state(holder, here) for holder in terms] if terms else [here]
