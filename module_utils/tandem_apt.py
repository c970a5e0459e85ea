# SPDX-License-Identifier: Apache-2.0
"""APT's repositories as seen by APT itself: keys with their fingerprints, files fetched with APT's own helper."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import subprocess
import tempfile

HELPER = "/usr/lib/apt/apt-helper"


class RepositoryError(Exception):
    """A sentence on what is wrong with a repository or its key."""


def fetch(url, timeout=30):
    """Content of `url`, over the proxies and with the certificates and passwords that APT has."""
    with tempfile.TemporaryDirectory() as folder:
        target = os.path.join(folder, "file")
        options = [f"-oAcquire::{scheme}::Timeout={timeout}" for scheme in ("http", "https")]
        try:
            done = subprocess.run(
                [HELPER, *options, "download-file", url, target],
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, "LC_ALL": "C.UTF-8"},
            )
        except OSError as error:
            raise RepositoryError(f"{HELPER} does not run: {error}") from error
        if done.returncode:
            failed = re.search(r"^E: Failed to fetch \S+\s+(.*)$", done.stderr, re.MULTILINE)
            raise RepositoryError(f"{url} cannot be fetched: {failed.group(1) if failed else done.stderr.strip()}")
        with open(target, "rb") as handle:
            return handle.read()


def dearmoured(content):
    """The packets of a key file: as they are, or out of their ASCII armour (RFC 9580, 6.2)."""
    blocks = re.findall(
        rb"-----BEGIN PGP PUBLIC KEY BLOCK-----\r?\n(.*?)-----END PGP PUBLIC KEY BLOCK-----", content, re.DOTALL
    )
    if not blocks:
        return content
    packets = b""
    for block in blocks:
        body = re.split(rb"\r?\n[ \t]*\r?\n", b"\n" + block, maxsplit=1)[-1]
        lines = [line.strip() for line in body.splitlines()]
        # the last line may be a checksum, which begins with "="
        packets += base64.b64decode(b"".join(line for line in lines if not line.startswith(b"=")), validate=True)
    return packets


def armoured(content):
    """The key file as APT reads it under a name that ends in .asc."""
    if b"-----BEGIN PGP PUBLIC KEY BLOCK-----" in content:
        return content
    text = base64.b64encode(content).decode()
    lines = [text[start : start + 64] for start in range(0, len(text), 64)]
    block = ["-----BEGIN PGP PUBLIC KEY BLOCK-----", "", *lines, "-----END PGP PUBLIC KEY BLOCK-----", ""]
    return "\n".join(block).encode()


def fingerprints(content):
    """Fingerprints of the primary keys in the key file `content`; empty when it holds no key."""
    found = []
    try:
        for tag, body in packets_of(dearmoured(content)):
            if tag == 6 and body[:1] == b"\x04":
                length = len(body).to_bytes(2, "big")
                found.append(hashlib.new("sha1", b"\x99" + length + body, usedforsecurity=False).hexdigest().upper())
            elif tag == 6 and body[:1] == b"\x06":
                found.append(hashlib.sha256(b"\x9b" + len(body).to_bytes(4, "big") + body).hexdigest().upper())
            elif tag == 6:
                raise ValueError("a key of a version that is not known")
    except (ValueError, IndexError, binascii.Error):
        return []
    return found


def packets_of(data):
    """(tag, body) of each OpenPGP packet in `data` (RFC 9580, 4.2)."""
    position = 0
    while position < len(data):
        head = data[position]
        if not head & 0x80:
            raise ValueError("no OpenPGP packet")
        position += 1
        if head & 0x40:
            tag, first = head & 0x3F, data[position]
            if first < 192:
                length, used = first, 1
            elif first < 224:
                length, used = ((first - 192) << 8) + data[position + 1] + 192, 2
            elif first == 255:
                length, used = int.from_bytes(data[position + 1 : position + 5], "big"), 5
            else:
                raise ValueError("a packet in parts, which no key is")
        else:
            tag, kind = (head >> 2) & 0x0F, head & 0x03
            if kind == 3:
                raise ValueError("a packet without a length, which no key is")
            used = 1 << kind
            length = int.from_bytes(data[position : position + used], "big")
        position += used
        if position + length > len(data):
            raise ValueError("a packet that is cut short")
        yield tag, data[position : position + length]
        position += length


def normal(fingerprint):
    return re.sub(r"\s", "", str(fingerprint)).upper()


def check_key(content, expected, where):
    """Raises RepositoryError unless `content` holds keys with fingerprints in `expected` and no other."""
    found = fingerprints(content)
    wanted = [normal(one) for one in expected]
    wrong = [one for one in wanted if not re.fullmatch(r"[0-9A-F]{40}([0-9A-F]{24})?", one)]
    if wrong:
        raise RepositoryError(
            f"{', '.join(wrong)} is no fingerprint (of the key at {where}): one has 40 or 64 hexadecimal digits, "
            "as gpg --show-keys prints them; a short key id is not enough"
        )
    if not wanted:
        raise RepositoryError(f"no fingerprint is known that the key at {where} must have; nothing is trusted unseen")
    if not found:
        raise RepositoryError(
            f"{where} holds no OpenPGP key (expected is one with the fingerprint {', '.join(wanted)})"
        )
    if not set(found) <= set(wanted):
        raise RepositoryError(
            f"the key at {where} has the fingerprint {', '.join(found)}, expected is {' or '.join(wanted)}"
        )


def key_of(path, url, expected):
    """(armoured key, fetched): of `path` where that is the expected key, else of `url`. Raises for any other key."""
    try:
        with open(path, "rb") as handle:
            content = handle.read()
        check_key(content, expected, path)
        return content, False
    except (OSError, RepositoryError):
        content = fetch(url)
        check_key(content, expected, url)
        return armoured(content), True
