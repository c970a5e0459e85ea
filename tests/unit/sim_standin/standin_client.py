"""What the tests of the stand-in share: an engine behind a port, whichever it is, and what is asked of it."""

import concurrent.futures
import http.client
import json
import pathlib
import signal
import socket
import sys
import time

from real_vllm import KEY

STANDIN = pathlib.Path(__file__).parents[3] / "sim" / "standin"
sys.path.insert(0, str(STANDIN))

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Bonn", "Rome"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


class Answer:
    def __init__(self, status, kind, text):
        self.status, self.kind, self.text = status, kind, text

    @property
    def json(self):
        return json.loads(self.text)

    @property
    def events(self):
        """What the server-sent events carry, each a dict, the last "[DONE]"."""
        lines = [line[6:] for line in self.text.split("\n\n") if line]
        assert all(line.startswith("data: ") for line in self.text.split("\n\n") if line), self.text[-500:]
        return [line if line == "[DONE]" else json.loads(line) for line in lines]

    @property
    def content(self):
        """The words of a streamed chat or completion."""
        choices = [choice for event in self.events[:-1] for choice in event.get("choices", [])]
        return "".join(choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in choices)

    @property
    def reasons(self):
        choices = [choice for event in self.events[:-1] for choice in event.get("choices", [])]
        return [choice["finish_reason"] for choice in choices if choice["finish_reason"]]


class Engine:
    """Whatever answers at a port."""

    def __init__(self, port):
        self.port = port

    def connect(self, timeout=60):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def ask(self, method, path, body=None, key=KEY, timeout=60):
        """body: a dict, or text that is sent as it is."""
        connection = self.connect(timeout)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        if body is not None:
            headers["Content-Type"] = "application/json"
            body = body if isinstance(body, str) else json.dumps(body)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return Answer(response.status, response.getheader("content-type"), response.read().decode())
        finally:
            connection.close()

    def chat(self, text="hi", **more):
        return self.ask(
            "POST", "/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": text}], **more}
        )

    def complete(self, prompt="hi", **more):
        return self.ask("POST", "/v1/completions", {"model": "m", "prompt": prompt, **more})

    def open_stream(self, **more):
        """A chat's stream that has begun: (connection, response)."""
        connection = self.connect()
        body = {
            "model": "m",
            "messages": [{"role": "user", "content": "hi"}],
            "stream": True,
            "ignore_eos": True,
            **more,
        }
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
        response.read(100)
        return connection, response

    def metrics(self):
        """{name with its labels: value}"""
        page = self.ask("GET", "/metrics").text
        lines = (line.rsplit(" ", 1) for line in page.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, value in lines}

    def metric(self, start):
        """The sum of the metrics whose name with labels begins so."""
        return sum(value for name, value in self.metrics().items() if name.startswith(start))

    def watch_prefill(self, tokens):
        """[(share of the KV cache, prompt tokens counted)] while a prompt of so many new tokens is worked on."""
        prompt, seen = [7 + number % 200 for number in range(tokens)], []
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            asked = pool.submit(self.complete, prompt, max_tokens=1)
            while not asked.done():
                page = self.metrics().items()
                seen.append(
                    tuple(
                        sum(value for name, value in page if name.startswith(f"vllm:{start}{{"))
                        for start in ("kv_cache_usage_perc", "prompt_tokens_total")
                    )
                )
                time.sleep(0.01)
        assert asked.result().status == 200, asked.result().text
        return seen

    def wait_until(self, condition, seconds=10):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "timed out"
            time.sleep(0.05)


class StandIn(Engine):
    def __init__(self, port, process, log):
        super().__init__(port)
        self.process, self.log = process, log

    def handles_sigterm(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        caught = int(status.split("SigCgt:")[1].split()[0], 16)
        return bool(caught >> (signal.SIGTERM - 1) & 1)

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def wait(self, seconds=20):
        return self.process.wait(seconds)

    def output(self):
        return self.log.read_text()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
