# SPDX-License-Identifier: Apache-2.0
"""Machines that a run does not have: not in the inventory, or they did not answer; settings that nobody reads."""

from __future__ import annotations

import difflib
import os
import re

EXAMPLE = "inventory/lab/hosts.yml shows how"


def unreachable_text(lost, boxes, gateways):
    """What to say of machines that cannot be reached.

    lost      variables of each: inventory_hostname, ansible_host and ansible_user where set, and `reached`, the result
    boxes     names of all boxes of the run
    gateways  names of all gateways
    """
    lines, names = [], [str(of_host["inventory_hostname"]) for of_host in lost]
    for name, of_host in zip(names, lost, strict=True):
        address = of_host.get("ansible_host") or name
        login = f"{of_host['ansible_user']}@{address}" if of_host.get("ansible_user") else address
        said = str(of_host["reached"].get("msg", "")).strip().splitlines() or ["no reason was given"]
        reason = said[-1].split(" over ssh: ")[-1].rstrip(".")
        lines.append(f"{name} ({address}) cannot be reached: {reason}.")
        lines.append(f"  Is it on, is its ansible_host right, and does `ssh {login} sudo -n true` work?")
    if set(names) & set(gateways):
        lines.append(
            "A gateway must answer, or leave the inventory: it has to be told which boxes leave and come back."
        )
    elif set(boxes) - set(names):
        without = "".join(f":!{name}" for name in names)
        lines.append(f"To go on without {' and '.join(names)} for now: --limit 'gpu_boxes{without}'")
    return "\n".join(lines)


def inventory_findings(groups, hosts, limit="", gateways_suffice=False):
    """Sentences about what plays would not find in the inventory; none when they have hosts to run on.

    groups            Ansible's `groups`: names of hosts by group
    hosts             names of the run's hosts, what --limit left
    limit             --limit as it was given
    gateways_suffice  whether the playbook also does something where the run has gateways alone
    """
    boxes, gateways = set(groups.get("gpu_boxes", [])), set(groups.get("gateways", []))
    findings = []
    if not boxes:
        has = "is empty" if "gpu_boxes" in groups else "is not in the inventory"
        findings.append(f"No host in gpu_boxes: the group {has}. {_meant('gpu_boxes', groups, boxes | gateways)}")
    elif _same("gpu_boxes", groups, boxes | gateways):
        findings.append(f"Hosts would be left out. {_meant('gpu_boxes', groups, boxes | gateways)}")
    if near := _near("gateways", groups, boxes | gateways) if not gateways else _same("gateways", groups, gateways):
        missing = "No host in gateways, the group of the machines in front of the boxes" if not gateways else ""
        findings.append(f"{missing or 'Gateways would be left out'}. {_there_is(near, groups, 'gateways')}")
    if findings:
        return findings
    if not boxes & set(hosts) and not (gateways_suffice and gateways & set(hosts)):
        left = ", ".join(host for host in hosts if host != "localhost") or "no host"
        return [
            f"No host in gpu_boxes: --limit {limit} leaves {left}, and gpu_boxes has {', '.join(sorted(boxes))}. "
            "Correct --limit, or leave it out."
        ]
    return []


def unread_settings(groups, folder):
    """Sentences about files of group_vars and host_vars that Ansible does not read, as their names are misspelled.

    groups  Ansible's `groups`
    folder  inventory_dir; null or empty where the inventory is no file
    """
    findings = []
    for place, what, known in (("group_vars", "group", list(groups)), ("host_vars", "host", groups["all"])):
        path = os.path.join(folder or "", place)
        for entry in sorted(os.listdir(path)) if folder and os.path.isdir(path) else []:
            name = re.sub(r"\.(ya?ml|json)$", "", entry)
            # a group that this inventory does not have may be another's
            if name in known or name in ("gpu_boxes", "gateways") or entry.startswith(".") or entry.endswith("~"):
                continue
            near = [each for each in known if _plain(each).rstrip("es") == _plain(name).rstrip("es")]
            if what == "group" and not near:
                near = difflib.get_close_matches(name.lower(), ["gpu_boxes", "gateways"], n=1, cutoff=0.8)
            if near:
                findings.append(f"{path}/{entry} is read by nothing: no {what} is called {name}. Is {near[0]} meant?")
    return findings


def _plain(name):
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _others(groups, known):
    """Groups that somebody made, with hosts that are not `known` to be in a right one."""
    return [
        name
        for name, hosts in groups.items()
        if name not in ("all", "ungrouped", "gpu_boxes", "gateways") and set(hosts) - known
    ]


def _same(wanted, groups, known):
    """Groups that are called like `wanted` but for case, dashes and a plural."""
    return [name for name in _others(groups, known) if _plain(name).rstrip("es") == _plain(wanted).rstrip("es")]


def _near(wanted, groups, known):
    by_plain = {_plain(name): name for name in _others(groups, known)}
    near = difflib.get_close_matches(_plain(wanted), by_plain, n=1, cutoff=0.8)
    return _same(wanted, groups, known) or [by_plain[each] for each in near]


def _there_is(names, groups, wanted):
    name = names[0]
    return (
        f"There is {name} ({', '.join(groups[name])}): is that meant? Call it {wanted}, with exactly these letters, "
        "and its folder in group_vars likewise."
    )


def _meant(wanted, groups, known):
    if near := _near(wanted, groups, known):
        return _there_is(near, groups, wanted)
    others = _others(groups, known)
    if others:
        return f"There are {', '.join(others)}. The machines with the cards belong into {wanted}; {EXAMPLE}."
    alone = [host for host in groups.get("ungrouped", []) if host != "localhost"]
    which = f"{', '.join(alone)} {'are' if len(alone) > 1 else 'is'} in no group. " if alone else ""
    return f"{which}The machines with the cards belong into {wanted}; {EXAMPLE}."


class FilterModule:
    """Ansible's entry point."""

    def filters(self):
        return {
            "unreachable_text": unreachable_text,
            "inventory_findings": inventory_findings,
            "unread_settings": unread_settings,
        }
