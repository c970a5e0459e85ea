# SPDX-License-Identifier: Apache-2.0
"""Filter url_host: an address as it stands in a URL, or before `:PORT`. Pure."""

from __future__ import annotations


def url_host(address):
    """IPv6 in brackets (RFC 3986), a zone with its % written as %25 (RFC 6874); names and IPv4 as they are."""
    address = str(address)
    if ":" not in address or address.startswith("["):
        return address
    return f"[{address.replace('%25', '%').replace('%', '%25')}]"


class FilterModule:
    """Ansible's entry point."""

    def filters(self):
        return {"url_host": url_host}
