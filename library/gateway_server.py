#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: drain and restore servers of HAProxy."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gateway_server
short_description: Drain servers of HAProxy, wait until they are idle, and restore them
description:
  - Speaks to HAProxy through its admin socket. Runs on the host of the HAProxy, as root.
  - An unknown server (unless O(unknown_ok=true)), an unknown backend, or a HAProxy that does not answer is an error.
options:
  backend:
    description: HAProxy's backend.
    type: str
    default: engines
  servers:
    description: Names of servers in it. With O(state=status) an empty list stands for all.
    type: list
    elements: str
    default: []
  state:
    description:
      - V(drained) sends no new requests to the servers; running ones go on, and health checks too.
      - V(idle) waits until drained servers have no session and no queue here, and their engines nothing that runs or
        waits, twice in a row. Changes nothing. Sessions of engines that have worked on nothing for 120 s are not waited
        for, and told as a warning, where O(metrics_urls) names every server.
      - V(up) lets the servers have requests again as soon as their health is known, and waits until they are exactly
        C(UP).
      - V(status) only looks.
    type: str
    choices: [drained, idle, up, status]
    default: status
  minimum_up:
    description:
      - With O(state=drained), how many servers of the backend must stay exactly C(UP). Where fewer would be left
        nothing is drained.
      - Draining servers that are not C(UP) takes nothing away and is always allowed.
    type: int
    default: 1
  assume_up:
    description:
      - With O(state=drained), names of further servers to count as C(UP), known or not. For a prediction whose run
        would have brought them up before.
    type: list
    elements: str
    default: []
  unknown_ok:
    description:
      - Whether servers that HAProxy does not have are left out instead of being an error. For a prediction whose run
        would have made them known before.
    type: bool
    default: false
  metrics_urls:
    description: With O(state=idle), addresses of the engines' C(/metrics) by server name.
    type: dict
    default: {}
  timeout:
    description: Seconds to wait with O(state=idle) and O(state=up).
    type: float
    default: 60
  wait:
    description: With O(state=up), whether to wait until the servers are C(UP), rather than only let them.
    type: bool
    default: true
  socket:
    description: Path of the admin socket.
    type: path
    default: /run/haproxy/admin.sock
  master_socket:
    description:
      - Path of the master's socket. Through it the processes are asked that a reload has replaced, as their sessions
        count.
      - Where there is none, only the engines' C(/metrics) know what such a process still works on.
    type: path
    default: /run/haproxy-master.sock
attributes:
  check_mode:
    description: Predicts what would be drained and restored. Does not wait.
    support: full
  diff_mode:
    description: Shows status and administrative state of the servers that change.
    support: full
  idempotent:
    description: A server that is as wished is left alone.
    support: full
author:
  - tandem (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Take a box out
  gateway_server:
    servers: [box1-main]
    state: drained

- name: Wait until it works on nothing
  gateway_server:
    servers: [box1-main]
    state: idle
    metrics_urls:
      box1-main: http://192.168.1.11:8000/metrics
    timeout: 1800

- name: Take it in again
  gateway_server:
    servers: [box1-main]
    state: up
    timeout: 120
"""

RETURN = r"""
servers:
  description: What was found before and after, per server. In check mode C(after) is as predicted.
  returned: success
  type: dict
  sample:
    box1-main:
      before: {status: UP, admin: ready, sessions: 3, queued: 0, check: L7OK 200, agent: L7OK}
      after: {status: DRAIN, admin: drain, sessions: 3, queued: 0, check: L7OK 200, agent: L7OK}
actions:
  description: What was done, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample: [drain box1-main]
unknown:
  description: Of O(servers) those that HAProxy does not have, with O(unknown_ok=true).
  returned: success
  type: list
  elements: str
up:
  description: Names of all servers of the backend that are exactly C(UP).
  returned: success
  type: list
  elements: str
version:
  description: HAProxy's version.
  returned: success
  type: str
configuration:
  description: The description that HAProxy's configuration gives itself; role gateway puts a hash there.
  returned: success
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tandem_gateway import Admin, Gateway, GatewayError, Master, summary


def main():
    """Entry point: the logic is in module_utils, here it meets Ansible."""
    module = AnsibleModule(
        argument_spec={
            "backend": {"type": "str", "default": "engines"},
            "servers": {"type": "list", "elements": "str", "default": []},
            "state": {"type": "str", "choices": ["drained", "idle", "up", "status"], "default": "status"},
            "minimum_up": {"type": "int", "default": 1},
            "assume_up": {"type": "list", "elements": "str", "default": []},
            "unknown_ok": {"type": "bool", "default": False},
            "metrics_urls": {"type": "dict", "default": {}},
            "timeout": {"type": "float", "default": 60},
            "wait": {"type": "bool", "default": True},
            "socket": {"type": "path", "default": "/run/haproxy/admin.sock"},
            "master_socket": {"type": "path", "default": "/run/haproxy-master.sock"},
        },
        supports_check_mode=True,
    )
    params = module.params
    names, state = params["servers"], params["state"]
    if state != "status" and not names:
        module.fail_json(msg=f"servers is empty; name the servers that are to be {state}")
    foreign = sorted(set(params["metrics_urls"]) - set(names))
    if foreign:
        module.fail_json(msg=f"metrics_urls names {', '.join(foreign)}, which is not in servers")

    admin = Admin(params["socket"])
    master = Master(params["master_socket"])
    gateway = Gateway(admin, master, params["backend"], names, module.check_mode, params["unknown_ok"])
    actions = []
    try:
        info = admin.info()
        everything, before = gateway.look()
        before = before if names else everything
        if state == "drained":
            actions = gateway.drain(params["minimum_up"], params["assume_up"])
        elif state == "idle" and not module.check_mode:
            for left in gateway.wait_idle(params["metrics_urls"], params["timeout"]):
                module.warn(f"{left}, of which its engine knows nothing: they are not waited for")
        elif state == "up":
            actions = gateway.restore(params["timeout"], params["wait"])
        everything, after = gateway.look()
        after = after if names else everything
    except GatewayError as exc:
        module.fail_json(msg=str(exc))

    shown = {name: {"before": summary(before[name]), "after": summary(after[name])} for name in before}
    if module.check_mode:
        for action in actions:
            predicted = {"drain": ("DRAIN", "drain"), "ready": ("UP", "ready")}[action.split()[0]]
            shown[action.split()[1]]["after"].update(zip(("status", "admin"), predicted))
    diff = []
    for action in actions:
        name = action.split()[1]
        sides = {side: {key: shown[name][side][key] for key in ("status", "admin")} for side in ("before", "after")}
        diff.append({"before_header": f"server {name}", "after_header": f"server {name}", **sides})
    module.exit_json(
        changed=bool(actions),
        servers=shown,
        actions=actions,
        unknown=[name for name in names if name not in everything],
        up=sorted(name for name, one in everything.items() if one["up"]),
        version=info.get("Version", ""),
        configuration=info.get("description", ""),
        diff=diff,
    )


if __name__ == "__main__":
    main()
