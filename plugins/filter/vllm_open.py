# SPDX-License-Identifier: Apache-2.0
"""Who may reach the ports of a box's engines: where they listen, and whom the packet filter admits. Pure functions."""

from __future__ import annotations

import ipaddress
import socket

LOOPBACK = ("127.0.0.1", "::1")
EVERY_ADDRESS = ("0.0.0.0", "::")


def vllm_listen_address(listen, box, gateways, allowed, engine_address):
    """Where the engines of `box` listen: `listen` (vllm_listen), or where that is null the narrowest that serves.

    gateways        names of the group gateways
    allowed         vllm_allowed_sources
    engine_address  where gateways reach the box: an IPv6 address needs a socket of that kind, which takes IPv4 as well
    """
    if listen:
        return listen
    if not allowed and not others(box, gateways):
        return "127.0.0.1"
    return "::" if ":" in str(engine_address or "") else "0.0.0.0"


def vllm_sources(box, gateways, hostvars, allowed, resolve=socket.getaddrinfo):
    """{v4, v6, problems}: the addresses and networks that may reach the engines of `box`, besides the box itself.

    gateways  names of the group gateways. Each comes from its gateway_source_addresses, or where that is not set from
              all addresses of its ansible_host; the box itself needs no entry.
    hostvars  Ansible's
    allowed   vllm_allowed_sources: addresses and networks, IPv4 and IPv6
    """
    networks, problems = [], []

    def take(entries, variable):
        for entry in [entries] if isinstance(entries, str) else entries or []:
            try:
                networks.append(_network(entry))
            except ValueError as error:
                problems.append(f"{variable} has {entry!r}: {error}")

    take(allowed, "vllm_allowed_sources")
    for gateway in others(box, gateways):
        of_gateway = hostvars[gateway]
        if given := of_gateway.get("gateway_source_addresses"):
            take(given, f"gateway_source_addresses of {gateway}")
            continue
        name = str(of_gateway.get("ansible_host") or gateway)
        found, why = _addresses(name, resolve)
        networks += found
        if not found:
            problems.append(
                f"the engines of {box} admit the addresses of {gateway} alone, and its ansible_host {name} {why}. "
                f"Set gateway_source_addresses of {gateway} to the addresses from which it reaches the boxes, "
                'such as ["192.168.1.10"]'
            )
    v4, v6 = (ipaddress.collapse_addresses(net for net in networks if net.version == version) for version in (4, 6))
    return {"v4": [_text(net) for net in v4], "v6": [_text(net) for net in v6], "problems": problems}


def vllm_open_to_all(listen, gateways, sources, filtered):
    """Why anybody may reach the engines' ports, as the beginning of a sentence; "" where not.

    listen    of vllm_listen_address
    gateways  names of the group gateways
    sources   of vllm_sources
    filtered  vllm_filter
    """
    if listen in LOOPBACK:
        return ""
    if not filtered:
        return f"vllm_listen is {listen} and vllm_filter is false"
    if everybody := [net for net in sources["v4"] + sources["v6"] if net.endswith("/0")]:
        return f"the sources that the engines admit are {', '.join(everybody)}, which is everybody"
    if not gateways and not sources["v4"] + sources["v6"]:
        return f"vllm_listen is {listen}, and neither a gateway nor vllm_allowed_sources says who may reach it"
    return ""


def vllm_filtered_ports(engines, port, left, restored):
    """The ports that the packet filter of a box knows: also of engines that run there and are not in vllm_engines.

    engines   vllm_engines
    port      vllm_port, of engines without one of their own
    left      containers of engines that are no longer wanted, by name (of host_info; null where there is none)
    restored  arguments of the configurations that this run has put back
    """
    ports = {int(engine.get("port") or port) for engine in engines}
    labels = [container.get("labels") or {} for container in left.values() if container]
    ports |= {int(each["tandem.port"]) for each in labels if str(each.get("tandem.port", "")).isdigit()}
    for word in restored:
        name, _, value = str(word).partition("=")
        if name == "--port" and value.isdigit():
            ports.add(int(value))
    return sorted(ports)


def vllm_not_admitted(lines, gateway, boxes):
    """Sentences about boxes whose engines do not admit `gateway` from where it comes.

    lines  "BOX ADDRESS" for each box: the address that the gateway's routes send from; an empty one is not known
    boxes  by name the sources (of vllm_sources) with `filters`, whether the box refuses others, or null where not known
    """
    sentences = []
    for line in lines:
        box, _, address = line.partition(" ")
        sources = boxes.get(box)
        if not sources or not sources["filters"] or not address.strip():
            continue
        come = ipaddress.ip_address(address.strip().split("%")[0])
        if not any(come in ipaddress.ip_network(net) for net in sources["v4"] + sources["v6"]):
            admitted = ", ".join(sources["v4"] + sources["v6"]) or "nobody"
            sentences.append(
                f"{gateway} reaches {box} from {come}, and the engines of {box} would admit {admitted}. "
                f"Set gateway_source_addresses of {gateway} to all addresses from which it reaches boxes"
            )
    return sentences


def others(box, gateways):
    """The gateways that are another machine than `box`."""
    return [gateway for gateway in gateways or [] if gateway != box]


def _network(entry):
    """Raises ValueError with the end of a sentence."""
    text = str(entry)
    try:
        net = ipaddress.ip_network(text)
    except ValueError:
        try:
            whole = ipaddress.ip_network(text, strict=False)
        except ValueError:
            raise ValueError("it must be an address or a network, such as 192.168.1.20 or 192.168.1.0/24") from None
        raise ValueError(
            f"it is an address with the mask of a network; write {text.split('/')[0]} or {whole}"
        ) from None
    mapped = net.network_address.ipv4_mapped if net.version == 6 and net.prefixlen == 128 else None
    return ipaddress.ip_network(mapped) if mapped else net


def _addresses(name, resolve):
    """(networks, why there are none): of an address, itself; of a name, all that it has."""
    try:
        found = [ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))]
    except ValueError:
        try:
            answers = resolve(name, None, type=socket.SOCK_STREAM)
        except OSError as error:
            return [], f"has no address that this machine could find ({error.strerror or error})"
        found = [ipaddress.ip_address(answer[4][0].split("%")[0]) for answer in answers]
    # what this machine calls itself, as where the gateway is the controller
    reached = [address for address in found if not address.is_loopback]
    return [_network(address) for address in reached], "is an address of this machine's loopback alone"


def _text(net):
    return str(net.network_address) if net.prefixlen == net.max_prefixlen else str(net)


class FilterModule:
    """Ansible's entry point."""

    def filters(self):
        return {
            "vllm_listen_address": vllm_listen_address,
            "vllm_sources": vllm_sources,
            "vllm_open_to_all": vllm_open_to_all,
            "vllm_filtered_ports": vllm_filtered_ports,
            "vllm_not_admitted": vllm_not_admitted,
        }
