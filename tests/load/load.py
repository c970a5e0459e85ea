#!/usr/bin/env python3
"""Clients that stream chat completions through a gateway, and count what went wrong.

    OPENAI_API_KEY=... tests/load/load.py --url http://192.168.1.10:8080 --model qwen3.8-27b --clients 8 --requests 1000

Each client keeps its connection, as real ones do, and sends one request after another, until so many are done or a file
appears. A request counts as failed when it was not answered with 200, was cut short, ended without a finish_reason or
`[DONE]`, had no text, carried an error, or was aborted by the engine: vLLM answers requests that it aborts with 200,
`finish_reason: "abort"` and a proper `[DONE]`.

Prints one JSON object; exits 1 when any request failed or none was made. Standard library only.
"""

import argparse
import asyncio
import collections
import json
import os
import pathlib
import ssl
import sys
import time
import urllib.parse


class Failed(Exception):
    """Why a request failed, in few words, so that the same reasons are counted together."""


class Connection:
    """One HTTP/1.1 connection that is kept and made anew when the server has closed it."""

    def __init__(self, url, insecure):
        parts = urllib.parse.urlsplit(url)
        self.host, self.base = parts.hostname, parts.path.rstrip("/")
        self.port = parts.port or {"http": 80, "https": 443}[parts.scheme]
        self.ssl = ssl.create_default_context() if parts.scheme == "https" else None
        if self.ssl and insecure:
            self.ssl.check_hostname, self.ssl.verify_mode = False, ssl.CERT_NONE
        self.reader = self.writer = None

    def close(self):
        if self.writer:
            self.writer.close()
        self.reader = self.writer = None

    async def send(self, path, headers, data):
        """The answer's (status, headers); its body is to be read by `pieces`."""
        # a close that has arrived meanwhile is no failure; one that crosses the request is
        if self.reader is not None and self.reader.at_eof():
            self.close()
        used = self.reader is not None
        if not used:
            try:
                self.reader, self.writer = await asyncio.open_connection(self.host, self.port, ssl=self.ssl)
            except OSError as exc:
                raise Failed(f"no connection: {exc.strerror or type(exc).__name__}") from None
        head = [f"POST {self.base}{path} HTTP/1.1", f"Host: {self.host}:{self.port}", f"Content-Length: {len(data)}"]
        head += [f"{name}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + data)
        try:
            await self.writer.drain()
            line = await self.reader.readline()
        except OSError:
            line = b""
        if not line:
            raise Failed(f"closed before the answer, on a {'used' if used else 'new'} connection")
        status = int(line.split()[1])
        got = {}
        while (line := (await self.reader.readline()).strip()) != b"":
            name, _, value = line.decode(errors="replace").partition(":")
            got[name.lower()] = value.strip()
        return status, got

    async def pieces(self, headers):
        """The body piece by piece. Failed when it ends before its end."""
        try:
            if headers.get("transfer-encoding", "").lower() == "chunked":
                while True:
                    size = int((await self.reader.readline()).split(b";")[0], 16)
                    piece = await self.reader.readexactly(size + 2)
                    if not size:
                        break
                    yield piece[:-2]
            elif "content-length" in headers:
                yield await self.reader.readexactly(int(headers["content-length"]))
            else:
                while piece := await self.reader.read(65536):
                    yield piece
        except (OSError, ValueError, asyncio.IncompleteReadError):
            raise Failed("cut short") from None
        if headers.get("connection", "").lower() == "close":
            self.close()


async def events(pieces):
    """The data of a stream's server-sent events."""
    rest = b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip()


async def request(connection, path, headers, body, result):
    """One streamed completion; fills `result` with `first` (seconds to the first text) and `seconds`. Raises Failed."""
    started = time.monotonic()
    status, got = await connection.send(path, headers, json.dumps(body).encode())
    pieces = connection.pieces(got)
    if status != 200:
        text = b"".join([piece async for piece in pieces]).decode(errors="replace")
        raise Failed(f"status {status}: {' '.join(text.split())[:200]}")
    finish, done, text = None, False, 0
    async for data in events(pieces):
        if data == b"[DONE]":
            done = True
            continue
        event = json.loads(data)
        if "error" in event:
            raise Failed(f"error in the stream: {json.dumps(event['error'])[:200]}")
        for choice in event.get("choices", []):
            delta = choice.get("delta", {})
            if delta.get("content") or delta.get("reasoning"):
                result.setdefault("first", time.monotonic() - started)
                text += 1
            finish = choice.get("finish_reason") or finish
    result["seconds"] = time.monotonic() - started
    if finish == "abort":
        raise Failed("aborted by the engine (finish_reason abort)")
    if not done:
        raise Failed("no [DONE]")
    if finish is None:
        raise Failed("no finish_reason")
    if not text:
        raise Failed("no text")


class Load:
    """All clients together."""

    def __init__(self, args, key):
        self.args, self.left = args, args.requests
        self.headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        if key:
            self.headers["Authorization"] = f"Bearer {key}"
        self.reasons, self.results, self.failures = collections.Counter(), [], []
        self.started = time.monotonic()

    def more(self):
        if self.args.stop_file and self.args.stop_file.exists():
            return False
        if time.monotonic() - self.started > self.args.seconds:
            return False
        if self.left is None:
            return True
        self.left -= 1
        return self.left >= 0

    async def client(self, number):
        connection, count = Connection(self.args.url, self.args.insecure), 0
        headers = dict(self.headers)
        if self.args.session_header:
            headers[self.args.session_header] = f"client-{number}"
        while self.more():
            count += 1
            question = f"Client {number}, question {count}. " + "word " * self.args.prompt_words
            body = {
                "model": self.args.model,
                "messages": [{"role": "user", "content": question}],
                "max_tokens": self.args.max_tokens,
                "stream": True,
            }
            if self.args.ignore_eos:
                body["ignore_eos"] = True
            result = {}
            try:
                await asyncio.wait_for(
                    request(connection, "/v1/chat/completions", headers, body, result), self.args.timeout
                )
            except TimeoutError:
                self.fail(f"no end within {self.args.timeout:g} s", connection)
            except Failed as exc:
                self.fail(str(exc), connection)
            except ValueError as exc:
                self.fail(f"no proper answer: {exc}", connection)
            else:
                self.results.append(result)
            await asyncio.sleep(self.args.pause)

    def fail(self, reason, connection):
        connection.close()
        self.reasons[reason] += 1
        self.failures.append({"at": round(time.monotonic() - self.started, 2), "reason": reason})

    async def run(self):
        await asyncio.gather(*(self.client(number) for number in range(self.args.clients)))
        failed = sum(self.reasons.values())
        first = [result["first"] for result in self.results]
        whole = [result["seconds"] for result in self.results]
        return {
            "requests": len(self.results) + failed,
            "failed": failed,
            "reasons": dict(self.reasons),
            # when, in seconds since the start, so that they can be laid beside a roll's log
            "failures": self.failures[:50],
            "seconds": round(time.monotonic() - self.started, 2),
            "ttft_s": {"p50": percentile(first, 50), "p99": percentile(first, 99), "max": percentile(first, 100)},
            "request_s": {"p50": percentile(whole, 50), "p99": percentile(whole, 99), "max": percentile(whole, 100)},
        }


def percentile(values, percent):
    """By the nearest-rank rule; None of nothing."""
    if not values:
        return None
    return round(sorted(values)[max(0, -(-len(values) * percent // 100) - 1)], 3)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True, help="http://HOST:PORT, without /v1")
    parser.add_argument("--model", required=True)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--requests", type=int, help="how many in all; without it until --stop-file appears")
    parser.add_argument("--stop-file", type=pathlib.Path, help="clients finish what they have begun when it exists")
    parser.add_argument(
        "--seconds",
        type=float,
        default=1800,
        help="the end in any case, also where nobody is left to write the stop file",
    )
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--ignore-eos", action="store_true", help="have all of --max-tokens, which vLLM grants")
    parser.add_argument("--prompt-words", type=int, default=20)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between two requests of a client")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one request")
    parser.add_argument("--session-header", help="send a value of each client's own in this header")
    parser.add_argument("--insecure", action="store_true", help="take any certificate")
    args = parser.parse_args(argv)
    if args.requests is None and args.stop_file is None:
        parser.error("give --requests or --stop-file, or it would never end")
    # from the environment, so that it stands in no process list
    outcome = asyncio.run(Load(args, os.environ.get("OPENAI_API_KEY")).run())
    print(json.dumps(outcome))
    return 1 if outcome["failed"] or not outcome["requests"] else 0


if __name__ == "__main__":
    sys.exit(main())
