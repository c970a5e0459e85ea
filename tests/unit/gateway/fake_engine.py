"""An engine's HTTP surface in a few lines: slots, a queue, vLLM's metric names, streams, and ways to fail."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FakeEngine:
    """`slots` requests run at once and the others wait; a token takes `pace` seconds, a prompt's first `prefill`.

    `hung`: nothing moves and no completion is answered, everything else is. `sick`: /health is 503. `status`:
    completions are answered with it.
    """

    def __init__(self, port=0, slots=2, pace=0.01, prefill=0.0, key="engine-key-0123456789"):
        self.slots, self.pace, self.prefill, self.key = threading.Semaphore(slots), pace, prefill, key
        self.hung = self.sick = False
        self.status = 200
        self.tokens = self.running = self.waiting = self.gone = 0
        self.cache = 0.0
        self.seen = []  # (path, headers, body) of completions
        self.asked = []  # (method, headers) of a browser's questions
        self.lock = threading.Lock()
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def answer(self, status, text, kind="application/json"):
                data = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self):
                if self.path == "/health":
                    self.answer(503 if engine.sick else 200, "")
                elif self.path == "/metrics":
                    self.answer(200, engine.metrics(), "text/plain")
                else:
                    self.answer(200, json.dumps({"object": "list", "data": [{"id": "model"}]}))

            def do_OPTIONS(self):
                engine.asked.append(("OPTIONS", dict(self.headers)))
                self.send_response(200)
                self.send_header("Access-Control-Allow-Origin", "engine-says")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                request = json.loads(body)
                with engine.lock:
                    engine.seen.append((self.path, dict(self.headers), body))
                if self.headers.get("Authorization") != f"Bearer {engine.key}":
                    self.answer(401, '{"error": "Unauthorized"}')
                    return
                if engine.status != 200:
                    self.answer(engine.status, '{"error": {"message": "as told"}}')
                    return
                try:
                    engine.complete(self, request)
                except OSError:
                    engine.gone += 1

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request, client_address):
                """A health check that was answered by its status line closes without reading on."""

        self.server = Server(("127.0.0.1", port), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def metrics(self):
        labels = '{engine="0",model_name="model"}'
        values = {
            "generation_tokens_total": self.tokens,
            "prompt_tokens_total": 0,
            "kv_cache_usage_perc": self.cache,
            "num_requests_running": self.running,
            "num_requests_waiting": self.waiting,
        }
        return "".join(f"vllm:{name}{labels} {float(value)}\n" for name, value in values.items())

    def pause(self, handler, seconds):
        """Work: while hung it stands still. OSError when the client went away."""
        end = time.monotonic() + seconds
        while self.hung or time.monotonic() < end:
            if self.hung:
                end = time.monotonic() + seconds
            time.sleep(min(0.02, max(0.001, seconds)))
            handler.connection.setblocking(False)
            try:
                if handler.connection.recv(1) == b"":
                    raise OSError("the client went away")
            except BlockingIOError:
                pass
            finally:
                handler.connection.setblocking(True)

    def complete(self, handler, request):
        self.waiting += 1
        with self.slots:
            self.waiting -= 1
            self.running += 1
            try:
                for _ in range(int(self.prefill / 0.1) if len(request.get("prompt", "x" * 9)) > 1 else 0):
                    self.pause(handler, 0.1)
                    self.cache += 0.001
                count = request.get("max_tokens", 16)
                if request.get("stream"):
                    handler.send_response(200)
                    handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
                    handler.send_header("Transfer-Encoding", "chunked")
                    handler.end_headers()
                for number in range(count):
                    self.pause(handler, self.pace)
                    self.tokens += 1
                    if request.get("stream"):
                        last = "length" if number == count - 1 else None
                        piece = {"choices": [{"index": 0, "delta": {"content": f"w{number} "}, "finish_reason": last}]}
                        self.chunk(handler, f"data: {json.dumps(piece)}\n\n")
                if request.get("stream"):
                    self.chunk(handler, "data: [DONE]\n\n")
                    handler.wfile.write(b"0\r\n\r\n")
                else:
                    choice = {"index": 0, "text": "w " * count, "finish_reason": "length"}
                    handler.answer(200, json.dumps({"choices": [choice], "usage": {"completion_tokens": count}}))
            finally:
                self.running -= 1

    @staticmethod
    def chunk(handler, text):
        data = text.encode()
        handler.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        handler.wfile.flush()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
