# SPDX-License-Identifier: Apache-2.0
"""Filter unreachable_text: machines that did not answer, and the way on. Pure."""

from __future__ import annotations


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


class FilterModule:
    """Ansible's entry point."""

    def filters(self):
        return {"unreachable_text": unreachable_text}
