"""A small HTTP/1.1 server on asyncio: what a client of vLLM's API needs, and the sight of a client that goes away."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from email.utils import formatdate

REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
MAX_HEAD, MAX_BODY = 1 << 16, 1 << 28


class BadRequest(Exception):
    pass


class Request:
    def __init__(self, method, path, headers, body):
        self.method, self.path, self.headers, self.body = method, path, headers, body

    def header(self, name):
        return self.headers.get(name, "")


class Response:
    """A whole answer; `content` is a dict, sent as JSON, or text."""

    def __init__(self, content="", status=200, kind="application/json", headers=()):
        self.status, self.kind, self.headers = status, kind, dict(headers)
        text = json.dumps(content, separators=(",", ":"), ensure_ascii=False) if isinstance(content, dict) else content
        self.body = text.encode()


class Stream:
    """An answer in pieces: an async iterator of str, sent as server-sent events as they come."""

    def __init__(self, pieces):
        self.pieces = pieces


class Connection(asyncio.Protocol):
    """One client. Its requests are answered one after another; when it goes away, the one under way is cancelled."""

    def __init__(self, server):
        self.server, self.buffer, self.task, self.closing = server, bytearray(), None, False
        self.writable = asyncio.Event()
        self.writable.set()

    def connection_made(self, transport):
        self.transport = transport
        self.server.connections.add(self)

    def connection_lost(self, _):
        self.server.connections.discard(self)
        self.writable.set()
        if self.task:
            self.task.cancel()

    def pause_writing(self):
        self.writable.clear()

    def resume_writing(self):
        self.writable.set()

    def data_received(self, data):
        self.buffer += data
        if not self.task:
            self.next()

    def next(self):
        """Start answering the next request, if the buffer has a whole one."""
        try:
            request = self.take()
        except BadRequest as error:
            self.transport.write(f"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n{error}".encode())
            self.transport.close()
            return
        if request:
            self.task = asyncio.ensure_future(self.answer(request))
            self.task.add_done_callback(self.done)

    def done(self, task):
        self.task = None
        if task.cancelled() or self.transport.is_closing():
            return
        if task.exception():
            self.transport.close()
            asyncio.get_running_loop().call_exception_handler(
                {"message": "simulated: a request failed", "exception": task.exception()}
            )
        elif self.closing:
            self.transport.close()
        else:
            self.next()

    def take(self):
        """The first whole request in the buffer, else None. Raises BadRequest."""
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self.buffer) > MAX_HEAD:
                raise BadRequest("head too long")
            return None
        lines = self.buffer[:end].decode("latin-1").split("\r\n")
        try:
            method, target, _ = lines[0].split(" ", 2)
        except ValueError:
            raise BadRequest("no request line") from None
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        if headers.get("expect", "").lower() == "100-continue" and len(self.buffer) == end + 4:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body, rest = self.chunked(end + 4)
            if body is None:
                return None
        else:
            length = headers.get("content-length", "0")
            if not length.isdecimal() or int(length) > MAX_BODY:
                raise BadRequest("bad content-length")
            rest = end + 4 + int(length)
            if len(self.buffer) < rest:
                return None
            body = bytes(self.buffer[end + 4 : rest])
        del self.buffer[:rest]
        self.closing = headers.get("connection", "").lower() == "close"
        return Request(method, target.split("?")[0], headers, body)

    def chunked(self, at):
        body = bytearray()
        while True:
            line = self.buffer.find(b"\r\n", at)
            if line < 0:
                return None, 0
            try:
                size = int(self.buffer[at:line].split(b";")[0], 16)
            except ValueError:
                raise BadRequest("bad chunk") from None
            if size == 0:
                end = self.buffer.find(b"\r\n", line + 2)
                return (None, 0) if end < 0 else (bytes(body), end + 2)
            at = line + 2 + size + 2
            if len(self.buffer) < at:
                return None, 0
            body += self.buffer[line + 2 : at - 2]

    async def answer(self, request):
        started = time.monotonic()
        response = await self.server.handle(request)
        if isinstance(response, Stream):
            await self.stream(response)
            status = 200
        else:
            status = response.status
            headers = {"content-length": str(len(response.body)), **response.headers}
            if response.body:
                headers["content-type"] = response.kind
            self.transport.write(self.head(status, headers) + (b"" if request.method == "HEAD" else response.body))
        self.server.log(self.transport.get_extra_info("peername"), request, status, time.monotonic() - started)

    async def stream(self, response):
        self.transport.write(
            self.head(200, {"content-type": "text/event-stream; charset=utf-8", "transfer-encoding": "chunked"})
        )
        async with contextlib.aclosing(response.pieces) as pieces:
            async for piece in pieces:
                data = piece.encode()
                self.transport.write(b"%x\r\n%s\r\n" % (len(data), data))
                await self.writable.wait()
        self.transport.write(b"0\r\n\r\n")

    def head(self, status, headers):
        lines = [
            f"HTTP/1.1 {status} {REASONS.get(status, 'Unknown')}",
            f"date: {formatdate(usegmt=True)}",
            "server: simulated",
        ]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if self.closing:
            lines.append("connection: close")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class Server:
    """handle: async function from Request to Response or Stream. log: called after each answer."""

    def __init__(self, handle, log):
        self.handle, self.log, self.connections, self.server = handle, log, set(), None

    async def start(self, host, port):
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(lambda: Connection(self), host, port, backlog=2048)

    async def stop(self):
        """No new connections; answers under way may end."""
        self.server.close()
        while any(connection.task for connection in self.connections):
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.transport.close()
