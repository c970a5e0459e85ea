# SPDX-License-Identifier: Apache-2.0
"""Filters of role gateway: which engines it serves, and what in its settings cannot work."""

from __future__ import annotations

import hashlib
import os
import re

LOOPBACK = ("127.0.0.1", "::1", "localhost")
NAME = re.compile(r"^[A-Za-z0-9_.-]+$")
KEY = re.compile(r"^[A-Za-z0-9._~+/=-]{16,}$")
HOW_TO_MAKE_A_KEY = "make one with openssl rand -hex 24"


def gateway_engines(boxes, hostvars, gateway):
    """{servers, problems}: the engines of all boxes as HAProxy's servers, and sentences about what keeps them from it.

    boxes     names of the group gpu_boxes
    hostvars  Ansible's; of a box: __vllm_endpoints (role vllm's preflight: where they listen), vllm_api_key,
              ansible_host, gateway_engine_address
    gateway   the name of the gateway in the inventory; a box may be its own gateway

    A server is {name, box, engine, address, port, model, metrics: address of its /metrics}. No key is in the result.
    """
    servers, problems, keys = [], [], {}
    unknown = [box for box in boxes if not (hostvars[box].get("__vllm_endpoints") or [])]
    if not boxes:
        problems.append("group gpu_boxes is empty, so there is no engine to serve. Put the boxes into the inventory")
    if unknown:
        problems.append(
            f"the engines of {', '.join(unknown)} are not known in this run, and leaving them out would cut them "
            "off. Run without "
            "--limit, or take a box that is gone out of the inventory"
        )
    for box in boxes:
        of_box = hostvars[box]
        if box in unknown:
            continue
        listen = of_box["__vllm_endpoints"][0].get("listen") or "0.0.0.0"
        keys.setdefault(_digest(of_box.get("vllm_api_key")), []).append(box)
        if box == gateway and listen in (*LOOPBACK, "0.0.0.0", "::"):
            address = "127.0.0.1" if listen != "::1" else "::1"
        else:
            address = of_box.get("gateway_engine_address") or of_box.get("ansible_host") or box
        address = str(address).removeprefix("[").removesuffix("]")
        spot = f"[{address}]" if ":" in address else address
        if listen in LOOPBACK and box != gateway:
            problems.append(
                f"vllm_listen of {box} is {listen}, which {gateway} cannot reach. Set it to an address of the "
                "box, or 0.0.0.0"
            )
        for endpoint in of_box["__vllm_endpoints"]:
            name = f"{box}-{endpoint['engine']}"
            if not NAME.match(name):
                problems.append(
                    f"{name} cannot be a server's name: box names may have letters, digits, and . _ - only. "
                    "Rename the box"
                )
            servers.append(
                {
                    "name": name,
                    "box": str(box),
                    "engine": str(endpoint["engine"]),
                    "address": address,
                    "port": int(endpoint["port"]),
                    "model": str(endpoint["model"]),
                    "metrics": f"http://{spot}:{endpoint['port']}/metrics",
                }
            )
    names = [server["name"] for server in servers]
    for name in sorted({name for name in names if names.count(name) > 1}):
        problems.append(f"two engines would be called {name} (box, then engine). Rename one of them")
    if len(keys) > 1:
        groups = "; ".join(", ".join(found) for found in keys.values())
        problems.append(
            f"vllm_api_key must be the same on all boxes behind a gateway, and is not: {groups}. Set it once, for "
            "the group gpu_boxes"
        )
    models = sorted({server["model"] for server in servers})
    if len(models) > 1:
        told = "; ".join(
            f"{model} on {', '.join(s['name'] for s in servers if s['model'] == model)}" for model in models
        )
        problems.append(
            f"all engines behind a gateway must serve one model by one name, and these serve several: {told}. "
            "Give them one served-model-name, or each model a gateway and an inventory of its own"
        )
    return {"servers": servers, "problems": problems}


def gateway_problems(settings, servers):
    """Sentences about settings that cannot work; empty when all is well. No key is in them.

    settings  the role's variables, named without `gateway_`, with `probe_port`, `host` (this gateway) and `home`
              (where paths start)
    servers   of gateway_engines
    """
    problems = []
    problems += _key_problems(settings["api_keys"])
    ports = {name: int(settings[name]) for name in ("port", "admin_port")}
    for name, port in ports.items():
        if not 1 <= port <= 65535:
            problems.append(f"gateway_{name} is {port}; allowed is 1 to 65535")
    taken = {f"gateway_{name}": port for name, port in ports.items()} | {"the probe": int(settings["probe_port"])}
    taken |= {f"engine {server['name']}": server["port"] for server in servers if server["box"] == settings["host"]}
    for port in sorted(set(taken.values())):
        users = [name for name, one in taken.items() if one == port]
        if len(users) > 1:
            problems.append(
                f"{' and '.join(users)} want the same port {port} on {settings['host']}. Change one of them"
            )
    if settings["admin_listen"] in ("0.0.0.0", "::", "*", ""):
        problems.append(
            f"gateway_admin_listen is '{settings['admin_listen']}', which is every address: status page and "
            "metrics ask for no key. Set "
            "it to 127.0.0.1, or to this host's address in a network of administrators"
        )
    for name, low, high in (("stream_timeout", 60, 86400), ("drain_timeout", 1, 86400), ("hang_seconds", 5, 600)):
        if not low <= int(settings[name]) <= high:
            problems.append(f"gateway_{name} is {settings[name]} s; allowed is {low} to {high}")
    if not 10 <= int(settings["client_connections"]) <= 8000:
        problems.append(
            f"gateway_client_connections is {settings['client_connections']}; allowed is 10 to 8000, which all clients "
            "together may have"
        )
    if not 0 <= int(settings["min_up"]) <= max(0, len(servers)):
        problems.append(
            f"gateway_min_up is {settings['min_up']}; allowed is 0 to {len(servers)}, the number of engines "
            "behind the gateway"
        )
    header = settings["affinity_header"]
    if header and not re.match(r"^[A-Za-z0-9-]+$", header):
        problems.append(f"gateway_affinity_header is '{header}'; it must be the name of a header, such as X-Session-Id")
    problems += _tls_problems(settings)
    return problems


def _digest(key):
    return hashlib.sha256(str(key).encode()).hexdigest() if key else None


def _key_problems(keys):
    if not keys:
        return [
            "gateway_api_keys is empty, so nobody could use the gateway. Set it in a vault: a name for each "
            "client and its key; " + HOW_TO_MAKE_A_KEY
        ]
    problems = []
    for name, key in keys.items():
        if not NAME.match(str(name)):
            problems.append(
                f"gateway_api_keys has a client '{name}'; names go into the log and may have letters, digits, and "
                ". _ - only"
            )
        if not KEY.match(str(key)):
            problems.append(
                f"the key of {name} in gateway_api_keys must be 16 or more of the characters A-Z a-z 0-9 . _ ~ + / = - "
                f"(it has {len(str(key))}); {HOW_TO_MAKE_A_KEY}"
            )
    for digest in {_digest(key) for key in keys.values()}:
        same = [str(name) for name, key in keys.items() if _digest(key) == digest]
        if len(same) > 1:
            problems.append(f"{' and '.join(same)} have the same key in gateway_api_keys; give each its own")
    return problems


def _tls_problems(settings):
    names = ("tls_certificate", "tls_key")
    given = [name for name in names if settings[name]]
    if len(given) == 1:
        other = next(name for name in names if name not in given)
        return [f"gateway_{given[0]} is set and gateway_{other} is not; TLS needs both, plain HTTP neither"]
    problems = []
    for name in given:
        path = os.path.join(settings["home"], settings[name])
        try:
            with open(path, encoding="utf-8", errors="replace") as handle:
                text = handle.read()
        except OSError as exc:
            problems.append(
                f"gateway_{name} is {settings[name]}, which cannot be read on the controller: {exc.strerror}"
            )
            continue
        mark = "BEGIN CERTIFICATE" if name == "tls_certificate" else "PRIVATE KEY"
        if mark not in text and not text.startswith("$ANSIBLE_VAULT"):
            problems.append(f"gateway_{name} is {settings[name]}, which holds no '{mark}': it must be a PEM file")
    return problems


def gateway_key_hash(key):
    """A client's key as HAProxy's map has it: SHA-256 in capital hexadecimal digits."""
    return hashlib.sha256(str(key).encode()).hexdigest().upper()


def gateway_status_text(results):
    """One line about the servers of each gateway, from results of module gateway_server looped as `__gateway`."""
    return "; ".join(
        f"{result['__gateway']}: {name} {server['after']['status']}, {server['after']['sessions']} sessions"
        for result in results
        for name, server in result["servers"].items()
    )


# What HAProxy says of a health check that failed -> what an operator looks at. {unit} and {box} are put in.
LOOK_AT = {
    "L4CON": "nothing listens there (systemctl status {unit} on {box}), or the packet filter of {box} does not admit "
    "this gateway (gateway_source_addresses)",
    "L4TOUT": "no answer to a connection: is {box} on, and does its packet filter let the gateway in?",
    "L4OK": "it was not asked to the end",
    "L6": "see systemctl status {unit} on {box}",
    "L7TOUT": "/health was not answered: see journalctl -u {unit} on {box}; systemctl restart {unit} there",
    "L7STS": "the engine says that it is dead: see journalctl -u {unit} on {box}; systemctl restart {unit} there",
    "L7RSP": "no HTTP answer: does another program have its port? See journalctl -u {unit} on {box}",
}


def gateway_not_up(results, servers):
    """Sentences about engines that a gateway sends no requests, each with the reason and the way on; empty for none.

    results  of module gateway_server with unknown_ok, looped over gateways as `__gateway`
    servers  of gateway_engines: the engines that were asked about
    """
    of = {one["name"]: {"box": one["box"], "unit": f"vllm-{one['engine']}.service"} for one in servers}
    problems = []
    for result in results:
        gateway = result["__gateway"]
        if "servers" not in result:
            if not result.get("skipped"):
                told = " ".join(str(result.get("msg") or "no reason was given").split()).rstrip(".")
                problems.append(f"{gateway} cannot be asked: {told}")
            continue
        problems += [
            f"{name} is not one of {gateway}'s servers, so it gets no requests there: run site.yml without --limit"
            for name in result.get("unknown") or []
        ]
        for name, server in result["servers"].items():
            now = server["after"]
            if now["status"] != "UP":
                problems.append(f"{name} is {now['status']} on {gateway}: {_why_not_up(now, **of[name])}")
    return problems


def _why_not_up(now, box, unit):
    """The reason and the way on, of a server as module gateway_server has it."""
    if now["admin"] == "drain":
        return (
            "it was drained after this run had put it back, by another run or by hand; run again, or name the box in "
            "gateway_keep_drained if that is meant"
        )
    if now["admin"] == "maint":
        return "somebody has put it into maintenance by hand; run again, which takes that back"
    agent = now["agent"].partition("#")[2] or now["agent"]
    if "(agent)" in now["status"]:
        restart = f"see journalctl -u {unit} on {box}; systemctl restart {unit} there starts it again"
        return f"the gateway's probe says: {agent or 'down'}; {restart}"
    check = now["check"]
    if not check or check.startswith("L7OK") or now["status"].startswith("UP"):
        told = f"check: {check or 'none yet'}; agent: {agent or 'none yet'}"
        return f"its checks have not come to an end ({told}); run again"
    known = next((text for word, text in LOOK_AT.items() if check.startswith(word)), LOOK_AT["L6"])
    return f"its health check says: {check}; {known.format(box=box, unit=unit)}"


def gateway_lost(results):
    """Which gateways could not be reached, or did not do what they were asked, and why; empty for none.

    results  of module gateway_server, looped as `__gateway`
    """
    lost = []
    for result in results:
        why = " ".join(str(result.get("msg", "")).split()).rstrip(".")
        if result.get("unreachable"):
            lost.append(f"{result['__gateway']} cannot be reached ({why})")
        elif "servers" not in result and not result.get("skipped"):
            lost.append(f"{result['__gateway']}: {why or 'no reason was given'}")
    return lost


def gateway_version(text):
    """HAProxy's version, as "2.6", from what `haproxy -v` says, or `apt-cache policy haproxy`; empty for neither."""
    found = re.search(r"(?:[Vv]ersion|Candidate:) (\d+\.\d+)", text)
    return found.group(1) if found else ""


class FilterModule:
    """Ansible's entry point."""

    def filters(self):
        return {
            "gateway_engines": gateway_engines,
            "gateway_problems": gateway_problems,
            "gateway_key_hash": gateway_key_hash,
            "gateway_status_text": gateway_status_text,
            "gateway_lost": gateway_lost,
            "gateway_not_up": gateway_not_up,
            "gateway_version": gateway_version,
        }
