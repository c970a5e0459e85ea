"""A real HAProxy with the role's own configuration in front of fake engines."""

import hashlib
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import jinja2
from ansible.plugins.test.core import version_compare
from url_host import url_host

ROOT = Path(__file__).parents[3]
ROLE = ROOT / "roles/gateway"
CLIENT_KEY = "client-key-0123456789"
ENGINE_KEY = "engine-key-0123456789"
HAPROXY = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")


def haproxy_version():
    return re.search(r"version (\d+\.\d+)", subprocess.run([HAPROXY, "-v"], capture_output=True, text=True).stdout)[1]


def load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(condition, seconds=10.0, what="the condition"):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"{what} did not come within {seconds} s")


def render(folder, servers, version="2.6", **changes):
    """The role's haproxy.cfg as text, with the paths in `folder`."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ROLE / "templates"), undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    environment.tests["version"] = version_compare
    environment.filters["url_host"] = url_host
    values = {
        "__gateway_haproxy_version": version,
        "__gateway_hash": "0123",
        "__gateway_socket": f"{folder}/admin.sock",
        # no chroot here
        "__gateway_relay": f"{folder}/relay.sock",
        "__gateway_relay_inside": f"{folder}/relay.sock",
        "__gateway_connections": 2000,
        "__gateway_state_file": f"{folder}/server-state",
        "__gateway_clients_file": f"{folder}/clients.map",
        "__gateway_engine_file": f"{folder}/engine.map",
        "__gateway_engine_lua": f"{folder}/engine-key.lua",
        "__gateway_tls_file": f"{folder}/tls.pem",
        "__gateway_engine_key": ENGINE_KEY,
        "__gateway_backend": "engines",
        "__gateway_probe_listen": ["127.0.0.1", 1],
        "__gateway_servers": servers,
        "gateway_listen": "127.0.0.1",
        "gateway_port": 8080,
        "gateway_admin_listen": "127.0.0.1",
        "gateway_admin_port": 8404,
        "gateway_stream_timeout": 3600,
        "gateway_client_connections": 1000,
        "gateway_affinity_header": None,
        "gateway_tls_certificate": None,
    }
    (Path(folder) / "engine-key.lua").write_text(environment.get_template("engine-key.lua.j2").render(values | changes))
    return environment.get_template("haproxy.cfg.j2").render(values | changes)


def unprivileged(text):
    """The configuration without what only root and the distribution's package give."""
    return (
        re.sub(r"(?m)^    (user|group|chroot) .*\n", "", text)
        .replace("user root group root ", "")
        .replace("user haproxy group haproxy ", "")
    )


class Gateway:
    """HAProxy with its probe; `short`: texts of its configuration, and what a test has in their place."""

    def __init__(self, folder, engines, short=None, **changes):
        self.folder, self.engines, self.changes = folder, engines, changes
        self.port, self.admin_port, self.probe_port = free_port(), free_port(), free_port()
        self.socket, self.master = f"{folder}/admin.sock", f"{folder}/master.sock"
        self.probe, self.short = None, short
        digest = hashlib.sha256(CLIENT_KEY.encode()).hexdigest().upper()
        (folder / "clients.map").write_text(f"{digest} alice\n")
        (folder / "engine.map").write_text(f"engine {ENGINE_KEY}\n")
        self.write()
        self.log = open(folder / "haproxy.log", "w")  # noqa: SIM115
        self.process = subprocess.Popen(
            [HAPROXY, "-W", "-S", self.master, "-f", str(folder / "haproxy.cfg")],
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )

    def write(self, **changes):
        servers = [
            {"name": name, "address": "127.0.0.1", "port": engine.port, "model": "model"}
            for name, engine in self.engines.items()
        ]
        self.changes |= changes
        text = render(
            self.folder,
            servers,
            haproxy_version(),
            gateway_port=self.port,
            gateway_admin_port=self.admin_port,
            __gateway_probe_listen=["127.0.0.1", self.probe_port],
            **self.changes,
        )
        text = unprivileged(text)
        # the same checks, in less time
        text = text.replace("inter 2s fastinter 1s downinter 2s", "inter 300ms fastinter 200ms downinter 300ms")
        text = text.replace("agent-inter 2s", "agent-inter 200ms")
        for long, short in (self.short or {}).items():
            assert text.count(long) == 1, long
            text = text.replace(long, short)
        (self.folder / "haproxy.cfg").write_text(text)

    def start_probe(self, **settings):
        config = {
            "listen": ["127.0.0.1", self.probe_port],
            "hang_seconds": 1.0,
            "idle_seconds": 0.5,
            "look_seconds": 0.1,
            "servers": {
                name: {"address": "127.0.0.1", "port": engine.port, "model": "model"}
                for name, engine in self.engines.items()
            },
        }
        (self.folder / "probe.json").write_text(json.dumps(config | settings))
        command = [sys.executable, str(ROLE / "files/gateway-probe"), "--config", str(self.folder / "probe.json")]
        self.probe = subprocess.Popen([*command, "--key-file", str(self.folder / "engine.map")], stdout=self.log)

    def ask(self, command):
        with socket.socket(socket.AF_UNIX) as admin:
            admin.connect(self.socket)
            admin.sendall(command.encode() + b"\n")
            return b"".join(iter(lambda: admin.recv(65536), b"")).decode()

    def answers(self):
        """The socket is there a moment before somebody listens."""
        try:
            return self.ask("show info")
        except OSError:
            return ""

    def reload(self):
        """As haproxy.service does with the role's ExecReload."""
        pid = self.ask("show info").split("\nPid: ")[1].split("\n")[0]
        save = [sys.executable, str(ROLE / "files/gateway-save-state"), self.socket, f"{self.folder}/server-state"]
        subprocess.run([*save, f"{self.folder}/haproxy.cfg"], check=True)
        subprocess.run([HAPROXY, "-c", "-q", "-f", str(self.folder / "haproxy.cfg")], check=True)
        self.process.send_signal(signal.SIGUSR2)
        wait_for(
            lambda: "\nPid: " in (text := self.answers()) and f"\nPid: {pid}\n" not in text, what="the new process"
        )

    def column(self, name, column):
        for line in self.ask("show stat").splitlines():
            cells = line.split(",")
            if cells[:2] == ["engines", name]:
                return cells[column]
        raise AssertionError(f"no server {name}")

    def status(self, name):
        return self.column(name, 17)

    def sessions(self, name):
        """How many it has now."""
        return int(self.column(name, 4))

    def started(self, name):
        """How many it has had."""
        return int(self.column(name, 7))

    def request(self, path="/v1/completions", key=CLIENT_KEY, body=None, port=None, headers=None, timeout=20):
        """(status, text, headers)."""
        request = urllib.request.Request(f"http://127.0.0.1:{port or self.port}{path}", headers=headers or {})
        if key:
            request.add_header("Authorization", f"Bearer {key}")
        if body is not None:
            request.data = body if isinstance(body, bytes) else json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, answer.read().decode(), dict(answer.headers)
        except urllib.error.HTTPError as exc:
            return exc.code, exc.read().decode(), dict(exc.headers)

    def stop(self):
        for process in (self.process, self.probe):
            if process:
                process.terminate()
                try:
                    process.wait(5)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        self.log.close()
