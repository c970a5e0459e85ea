# SPDX-License-Identifier: Apache-2.0
"""A program: gives out the files of one model to whoever knows the token. Its argument is a configuration in JSON.

Module model_share puts it on the box for the time of a fetch, so it stands alone: standard library, nothing of ours.

Read-only, one folder, only the names that the configuration lists: file NUMBER is at /TOKEN/NUMBER. The token stands
in the
configuration (0600) and nowhere else: not on a command line, not in the log. Ends after ten minutes without a request.
"""

import hmac
import json
import os
import re
import socket
import socketserver
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

IDLE_SECONDS = 600


class Handler(BaseHTTPRequestHandler):
    server_version = "tandem-model-share"
    sys_version = ""
    # of a client that takes nothing
    timeout = 300

    def do_GET(self):
        self.server.serving(1)
        try:
            self.give(self.command == "GET")
        except OSError:
            # a client that went away, or that takes nothing
            self.close_connection = True
        finally:
            self.server.serving(-1)

    do_HEAD = do_GET

    def give(self, body):
        match = re.match(r"^/([A-Za-z0-9]+)/([0-9]{1,6})$", self.path)
        config = self.server.config
        if (
            not match
            or not hmac.compare_digest(match.group(1), config["token"])
            or int(match.group(2)) >= len(config["names"])
        ):
            self.send_error(404)
            return
        try:
            handle = open(os.path.join(config["root"], config["names"][int(match.group(2))]), "rb")  # noqa: SIM115
        except OSError:
            self.send_error(404)
            return
        with handle:
            size = os.fstat(handle.fileno()).st_size
            asked = re.match(r"^bytes=([0-9]+)-$", self.headers.get("Range", ""))
            start = int(asked.group(1)) if asked else 0
            if asked and start >= size:
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{size}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206 if asked else 200)
            if asked:
                self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(size - start))
            self.send_header("Content-Type", "application/octet-stream")
            self.end_headers()
            if body and size > start:
                self.wfile.flush()
                self.connection.sendfile(handle, start)

    def log_message(self, *args):
        """Nothing: a request's line has the token in it."""


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, config):
        self.config = config
        self.lock = threading.Lock()
        self.active = 0
        self.last = time.monotonic()
        if ":" in config["address"]:
            self.address_family = socket.AF_INET6
        super().__init__((config["address"], 0), Handler)

    def serving(self, change):
        with self.lock:
            self.active += change
            self.last = time.monotonic()

    def service_actions(self):
        if not self.active and time.monotonic() - self.last > IDLE_SECONDS:
            threading.Thread(target=self.shutdown, daemon=True).start()

    def server_bind(self):
        # HTTPServer's own asks a name server for the machine's name
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]


def say(path, content):
    with open(path + ".new", "w", encoding="utf-8") as handle:
        json.dump(content, handle)
    os.replace(path + ".new", path)


def main():
    with open(sys.argv[1], encoding="utf-8") as handle:
        config = json.load(handle)
    try:
        server = Server(config)
    except OSError as error:
        say(
            config["said"],
            {
                "error": f"cannot listen on {config['address']}: {error}. It must be an address of that box: "
                "model_store_box_address"
            },
        )
        return 1
    say(config["said"], {"port": server.server_port})
    print(
        f"gives out {len(config['names'])} files of {config['root']} on {config['address']} port {server.server_port}",
        flush=True,
    )
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
