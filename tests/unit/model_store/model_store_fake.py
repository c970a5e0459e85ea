"""Small servers that stand for a hub, its content network and a web server, and module model_store run against them
in this process."""

import contextlib
import hashlib
import importlib.util
import json
import re
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import ansible.module_utils
import pytest

ROOT = Path(__file__).parents[3]
if str(ROOT / "module_utils") not in ansible.module_utils.__path__:
    ansible.module_utils.__path__.append(str(ROOT / "module_utils"))

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem + "_under_test", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def safetensors(size, fill=b"\x07"):
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + fill * size


MODEL = {
    "config.json": b'{"model_type": "qwen3"}',
    "model-1.safetensors": safetensors(3_000_000),
    "model-2.safetensors": safetensors(50_000, b"\x09"),
    "sub/tokenizer.json": b"{}",
    "model.safetensors.index.json": json.dumps(
        {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    ).encode(),
}
TOTAL = sum(len(each) for each in MODEL.values())


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def git(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def sums(files):
    return "".join(f"{sha256(content)}  {name}\n" for name, content in files.items()).encode()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server = self.server
        path = self.path.split("?")[0]
        server.requests.append((self.command, self.path, dict(self.headers)))
        if server.faults.get(path):
            fault = server.faults[path].pop(0)
            if fault is not None and fault(self) is not False:
                return
        if path in server.redirects:
            self.answer(302, b"", {"Location": server.redirects[path]})
            return
        if path not in server.files:
            self.answer(404, b"")
            return
        content = server.files[path]
        asked = re.match(r"bytes=(\d+)-$", self.headers.get("Range", "")) if server.ranges else None
        start = int(asked.group(1)) if asked else 0
        if asked and start >= len(content):
            self.answer(416, b"")
        elif asked:
            self.answer(206, content[start:], {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"})
        else:
            self.answer(200, content)

    do_HEAD = do_GET

    def answer(self, status, content, headers=None, length=None):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content) if length is None else length))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)
        if length is not None:
            self.close_connection = True

    def log_message(self, *args):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.files, self.redirects, self.faults, self.requests = {}, {}, {}, []
        self.ranges = True

    def handle_error(self, *args):
        """A client that hangs up is part of the tests."""

    def fetched(self, path):
        return [
            headers.get("Range")
            for method, asked, headers in self.requests
            if method == "GET" and asked.split("?")[0] == path
        ]


@pytest.fixture
def serve():
    with contextlib.ExitStack() as stack:

        def start():
            server = stack.enter_context(Server())
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
            stack.callback(server.shutdown)
            return server

        yield start


@pytest.fixture
def hub(serve):
    """A hub that redirects LFS files to a content network, as Hugging Face does; `hub.cdn` is that one."""
    server, server.cdn = serve(), None
    server.cdn = serve()
    siblings = []
    for name, content in MODEL.items():
        each = {"rfilename": name, "size": len(content), "blobId": git(content)}
        path = f"/owner/model/resolve/{COMMIT}/{name}"
        if name.endswith(".safetensors"):
            each["lfs"] = {"sha256": sha256(content), "size": len(content), "pointerSize": 130}
            server.redirects[path] = f"{server.cdn.url}/{name}?signature=secret"
            server.cdn.files[f"/{name}"] = content
        else:
            server.files[path] = content
        siblings.append(each)
    server.answer = {"sha": COMMIT, "siblings": siblings}
    server.api = f"/api/models/owner/model/revision/{COMMIT}"
    server.files[server.api] = json.dumps(server.answer).encode()
    return server


@pytest.fixture
def web(serve):
    server = serve()
    server.files = {f"/m/{name}": content for name, content in MODEL.items()}
    server.files["/m/SHA256SUMS"] = sums(MODEL)
    return server


@pytest.fixture
def store(tmp_path, monkeypatch):
    """`store(source=..., ...)` runs the module; `store.path` is its folder."""
    library = load(ROOT / "library/model_store.py")
    http = importlib.import_module("ansible.module_utils.tandem_model_http")
    monkeypatch.setattr(
        http.Client.__init__, "__defaults__", ("", None, 5, 4, True, lambda seconds: run.slept.append(seconds), "")
    )
    defaults = {
        "path": str(tmp_path / "models/model" / COMMIT),
        "source": "none",
        "revision": COMMIT,
        "repository": "owner/model",
        "endpoint": "",
        "hub_token": None,
        "url": None,
        "share_token": None,
        "from_path": None,
        "files": None,
        "exclude": [],
        "verify": "quick",
        "reserve_gib": 0,
        "timeout": 5,
        "tries": 4,
        "delete_old": False,
    }

    def run(check=False, **params):
        module = SimpleNamespace(
            params={**defaults, **params}, check_mode=check, _diff=True, log=run.log.append, warn=run.warned.append
        )
        return library.run(module)

    run.path, run.slept, run.log, run.warned = Path(defaults["path"]), [], [], []
    run.Error = library.ModelError
    return run


@pytest.fixture
def model_folder(tmp_path):
    def make(name="source", files=MODEL):
        for each, content in files.items():
            path = tmp_path / name / each
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return tmp_path / name

    return make


def content_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
