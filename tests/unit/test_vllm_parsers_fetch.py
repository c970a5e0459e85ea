"""Fetching parts of a wheel by range requests: what is fetched, and what is not believed."""

import base64
import hashlib
import importlib.util
import io
import os
import re
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/vllm_parsers.py"
FILES = {"vllm/__init__.py": b"__version__ = '1.0'\n", "vllm/deep/er.py": b"x = 1\n" * 500}


@pytest.fixture
def parsers(tmp_path, monkeypatch):
    monkeypatch.setenv("TANDEM_CACHE", str(tmp_path / "cache"))
    spec = importlib.util.spec_from_file_location("vllm_parsers", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def digest(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


@pytest.fixture
def wheel(parsers, monkeypatch):
    """A wheel with 4 MB of kernels between its Python files, behind HTTP: (bytes sent, what to change)."""
    sent, change, servers = [], {"ranges": True}, []
    record = "".join(f"{name},sha256={digest(content)},{len(content)}\n" for name, content in FILES.items()).encode()

    def content():
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("vllm/__init__.py", FILES["vllm/__init__.py"])
            file.writestr("vllm/_C.abi3.so", os.urandom(4 << 20))
            file.writestr("vllm/deep/er.py", change.get("file", FILES["vllm/deep/er.py"]))
            file.writestr("vllm-1.0.dist-info/RECORD", change.get("record", record))
        return packed.getvalue()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = change.setdefault("body", content())
            first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
            part = body[first : last + 1] if change["ranges"] else body
            self.send_response(206 if change["ranges"] else 200)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(body)}")
            self.send_header("Content-Length", str(len(part)))
            self.end_headers()
            sent.append(len(part))
            self.wfile.write(part)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    servers.append(server)
    monkeypatch.setattr(parsers, "wheel_url", lambda version: f"http://127.0.0.1:{server.server_address[1]}/x.whl")
    monkeypatch.setitem(parsers.RECORDS, "1.0", hashlib.sha256(record).hexdigest())
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield sent, change
    server.shutdown()


def test_the_python_files_are_fetched_and_little_else(parsers, wheel):
    sent, _ = wheel
    folder = parsers.python_files("1.0")
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert found == FILES
    assert sum(sent) < 3 << 20
    before = len(sent)
    assert parsers.python_files("1.0") == folder and len(sent) == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"record": b"other"}, "RECORD of vllm 1.0 has the sha256"),
        ({"file": b"import evil"}, "vllm/deep/er.py of vllm 1.0 is not what RECORD says"),
        ({"ranges": False}, "127.0.0.1 does not answer range requests"),
        ({"body": b"no wheel" * 100}, "cannot be fetched: File is not a zip file"),
    ],
)
def test_what_is_not_believed_leaves_nothing_behind(parsers, wheel, change, words):
    wheel[1].update(change)
    with pytest.raises(parsers.Fault, match=re.escape(words)):
        parsers.python_files("1.0")
    assert list(parsers.cache().iterdir()) == []


def test_a_release_without_a_hash_is_not_fetched(parsers):
    with pytest.raises(
        parsers.Fault, match=r"vllm 0\.1 has no hash in scripts/vllm_parsers.py; there are 0\.26\.0, 0\.33\.0"
    ):
        parsers.python_files("0.1")


def test_a_release_that_pip_does_not_find_is_said(parsers, monkeypatch):
    monkeypatch.setitem(parsers.RECORDS, "1.0", "00")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "/nonexistent")
    with pytest.raises(parsers.Fault, match=r"pip does not find vllm 1\.0"):
        parsers.python_files("1.0")
