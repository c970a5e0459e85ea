# SPDX-License-Identifier: Apache-2.0
"""Fetches the Python files of published vLLM releases, so that their parsers can be asked without their images.

    python scripts/vllm_parsers.py 0.33.0      prints the folder to put first on PYTHONPATH; quick when it is there

A release's image has many GB and its wheel 320 MB, most of it kernels; the Python files are 12 MB of it and lie close
to each other, so they are fetched by HTTP range requests. pip says where the wheel is, by the machine's own settings.
Every file is held against the wheel's RECORD, and RECORD against the hash below. What is fetched runs inside the
engine's image, which has the packages that vLLM imports: tests/unit/test_vllm_real_parsers.py.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
import zipfile
from pathlib import Path

#: sha256 of RECORD in the wheel for x86_64, which lists the hash of every other file. For another release take it from
#: a wheel that `pip download` has fetched whole and checked.
RECORDS = {
    "0.26.0": "e550ed7cec142a9512ef43c8c9a0adedcddec5973b0b2e97a600bfdd2864a44e",
    "0.33.0": "a860951d44545b1b68c2d1484b9a03bbde52f6eae34850a6c22741c60ac386c4",
}
#: bytes between two wanted files that are fetched along rather than asked around
GAP = 256 << 10


class Fault(Exception):
    """Why a release cannot be had, as a sentence."""


class Remote(io.RawIOBase):
    """A file behind HTTP as zipfile wants it: seekable, fetched in pieces."""

    def __init__(self, url):
        super().__init__()
        self.url, self.at, self.pieces = url, 0, []
        # the file that pip trusts, where a machine has its own authority
        self.context = ssl.create_default_context(cafile=os.environ.get("PIP_CERT") or None)
        self.size = int(self._get(0, 0)[1].rpartition("/")[2])

    def _get(self, first, last):
        request = urllib.request.Request(self.url, headers={"Range": f"bytes={first}-{last}"})
        with urllib.request.urlopen(request, timeout=60, context=self.context) as answer:
            if answer.status != 206:
                host = urllib.parse.urlsplit(self.url).hostname
                raise Fault(f"{host} does not answer range requests (status {answer.status})")
            return answer.read(), answer.headers["Content-Range"]

    def fetch(self, start, end):
        """Have the bytes of start..end at hand."""
        self.pieces.append((start, self._get(start, min(end, self.size) - 1)[0]))

    def seekable(self):
        return True

    def readable(self):
        return True

    def tell(self):
        return self.at

    def seek(self, offset, whence=os.SEEK_SET):
        self.at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self.at, os.SEEK_END: self.size}[whence]
        return self.at

    def readinto(self, buffer):
        end = min(self.at + len(buffer), self.size)
        if end <= self.at:
            return 0
        for start, content in self.pieces:
            if start <= self.at and end <= start + len(content):
                break
        else:
            self.fetch(self.at, end)
            start, content = self.pieces[-1]
        buffer[: end - self.at] = content[self.at - start : end - start]
        count, self.at = end - self.at, end
        return count


def cache():
    """As scripts/lib.sh has it."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("TANDEM_CACHE") or Path(home) / "tandem")


def wheel_url(version):
    """Where the wheel is, by pip and its settings; nothing is installed and the wheel is not downloaded."""
    with tempfile.TemporaryDirectory() as nowhere:
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--report", "-", "--target", nowhere]
        command += ["--no-deps", "--ignore-installed", "--only-binary=:all:", "--python-version", "3.11"]
        command += ["--platform", "manylinux_2_28_x86_64", f"vllm=={version}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Fault(f"pip does not find vllm {version}: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout)["install"][0]["download_info"]["url"]


def wanted(name):
    return name.startswith("vllm/") and name.endswith(".py")


def read_wheel(file, version, fetch):
    """{name: content} of the Python files of a wheel. `fetch(start, end)` is told what will be read."""
    with zipfile.ZipFile(file) as wheel:
        record = wheel.read(f"vllm-{version}.dist-info/RECORD")
        found = hashlib.sha256(record).hexdigest()
        if found != RECORDS[version]:
            raise Fault(f"RECORD of vllm {version} has the sha256 {found}, wanted is {RECORDS[version]}")
        hashes = {row[0]: row[1] for row in csv.reader(io.StringIO(record.decode()))}
        entries = sorted((entry for entry in wheel.infolist() if wanted(entry.filename)), key=lambda e: e.header_offset)
        runs = []
        for entry in entries:
            # header, name and a little more come before the content
            end = entry.header_offset + entry.compress_size + len(entry.filename) + 1024
            if runs and entry.header_offset - runs[-1][1] < GAP:
                runs[-1][1] = end
            else:
                runs.append([entry.header_offset, end])
        for start, end in runs:
            fetch(start, end)
        files = {entry.filename: wheel.read(entry) for entry in entries}
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        if hashes.get(name) != f"sha256={digest}":
            raise Fault(f"{name} of vllm {version} is not what RECORD says")
    return files


def python_files(version):
    """The folder with the Python files of a release, fetched if need be. Raises Fault."""
    if version not in RECORDS:
        raise Fault(f"vllm {version} has no hash in scripts/vllm_parsers.py; there are {', '.join(RECORDS)}")
    folder = cache() / f"vllm-python-{version}-{RECORDS[version][:16]}"
    if folder.is_dir():
        return folder
    cache().mkdir(parents=True, exist_ok=True)
    try:
        url = wheel_url(version)
        if url.startswith("file:"):
            files = read_wheel(urllib.request.url2pathname(urllib.parse.urlsplit(url).path), version, lambda *_: None)
        else:
            remote = Remote(url)
            files = read_wheel(io.BufferedReader(remote, 1 << 20), version, remote.fetch)
    except (OSError, zipfile.BadZipFile) as error:
        raise Fault(f"the Python files of vllm {version} cannot be fetched: {error}") from error
    part = Path(tempfile.mkdtemp(prefix="vllm-python.", dir=cache()))
    try:
        for name, content in files.items():
            (part / name).parent.mkdir(parents=True, exist_ok=True)
            (part / name).write_bytes(content)
        part.chmod(0o755)
        # whole or not at all
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


if __name__ == "__main__":
    try:
        print(*map(python_files, sys.argv[1:]), sep="\n")
    except Fault as fault:
        sys.exit(f"error: {fault}")
