"""The same requests to the stand-in and to real vLLM (sim/engine, by Docker): what others rely on must be alike.

Skipped without Docker, or before sim/engine/build.sh has run.
"""

import contextlib
import http.client
import json
import re
import subprocess
import time

import pytest
import real_vllm
from real_vllm import FIELD_REPORT, IMAGE, KEY, docker
from standin_client import STANDIN, WEATHER, Engine

NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}
HI = [{"role": "user", "content": "hi"}]
pytestmark = real_vllm.needed()


class Real(Engine):
    """vLLM's CPU build in a container."""

    def __init__(self, container):
        super().__init__(container.port)
        self.container = container

    def terminate(self):
        self.container.stop()

    def wait(self):
        return self.container.exit_code()


@pytest.fixture
def pair(real_engine, standin):
    return Real(real_engine), standin


def shape(value):
    """A value's structure: keys and types, not contents."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return {int: "number", float: "number", bool: "bool", type(None): "null"}.get(type(value), type(value).__name__)


def kinds(answer):
    """The sequence of events, neighbours of one shape taken together: with drafts a step has several tokens."""
    found = []
    for event in answer.events:
        if not found or shape(event) != found[-1]:
            found.append(shape(event))
    return found


REQUESTS = {
    "models": ("GET", "/v1/models", None, KEY),
    "models without key": ("GET", "/v1/models", None, None),
    "models with a wrong key": ("GET", "/v1/models", None, "wrong"),
    "health": ("GET", "/health", None, None),
    "ping": ("GET", "/ping", None, None),
    "load": ("GET", "/load", None, None),
    "version": ("GET", "/version", None, None),
    "post to health": ("POST", "/health", {}, KEY),
    "get of completions": ("GET", "/v1/completions", None, KEY),
    "no such route": ("GET", "/no-such", None, None),
    "no such route below v1": ("GET", "/v1/no-such", None, None),
    "no such route below v1, with key": ("GET", "/v1/no-such", None, KEY),
    "tokenize": ("POST", "/tokenize", {"model": "m", "prompt": "hello"}, None),
    "tokenize a chat": ("POST", "/tokenize", {"model": "m", "messages": HI}, None),
    "completion": ("POST", "/v1/completions", {"model": "m", "prompt": "hello", "max_tokens": 4}, KEY),
    "completion of token ids": ("POST", "/v1/completions", {"model": "m", "prompt": [1, 2, 3], "max_tokens": 4}, KEY),
    "completion without key": ("POST", "/v1/completions", {"model": "m", "prompt": "hello"}, None),
    "invocations": ("POST", "/invocations", {"model": "m", "prompt": "hello", "max_tokens": 4}, None),
    "completion of no model": ("POST", "/v1/completions", {"model": "other", "prompt": "x"}, KEY),
    "completion too long": ("POST", "/v1/completions", {"model": "m", "prompt": "x", "max_tokens": 300000}, KEY),
    "completion below zero": ("POST", "/v1/completions", {"model": "m", "prompt": "x", "temperature": -1}, KEY),
    "chat": ("POST", "/v1/chat/completions", {"model": "m", "messages": HI, "max_tokens": 12}, KEY),
    "chat with no model named": ("POST", "/v1/chat/completions", {"messages": HI, "max_tokens": 12}, KEY),
    "chat of no model": ("POST", "/v1/chat/completions", {"model": "other", "messages": HI}, KEY),
    "chat without messages": ("POST", "/v1/chat/completions", {"model": "m"}, KEY),
    "chat that is no json": ("POST", "/v1/chat/completions", '{"model":"m", bad', KEY),
    "chat of no tokens": ("POST", "/v1/chat/completions", {"model": "m", "messages": HI, "max_tokens": -1}, KEY),
    "tool without tools": (
        "POST",
        "/v1/chat/completions",
        {"model": "m", "messages": HI, "tool_choice": "required"},
        KEY,
    ),
    "tool that is not there": (
        *("POST", "/v1/chat/completions"),
        {
            "model": "m",
            "messages": HI,
            "tools": [WEATHER],
            "tool_choice": {"type": "function", "function": {"name": "x"}},
        },
        KEY,
    ),
    "required tool": (
        *("POST", "/v1/chat/completions"),
        {"model": "m", "messages": HI, "tools": [WEATHER], "tool_choice": "required", "max_tokens": 500, **NO_THINKING},
        KEY,
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_answers_are_alike(pair, name):
    method, path, body, key = REQUESTS[name]
    real, standin = (engine.ask(method, path, body, key) for engine in pair)
    assert (standin.status, standin.kind) == (real.status, real.kind), (standin.text, real.text)
    if not real.text:
        assert standin.text == ""
    elif real.status == 200:
        assert shape(standin.json) == shape(real.json)
    else:
        assert standin.json == real.json


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "hello", "max_tokens": 6}),
        ("/v1/completions", {"prompt": "hello", "max_tokens": 6, "stream_options": {"include_usage": True}}),
        ("/v1/chat/completions", {"messages": HI, "max_tokens": 8}),
        ("/v1/chat/completions", {"messages": HI, "max_tokens": 8, "stream_options": {"include_usage": True}}),
    ],
)
def test_streams_are_alike(pair, path, body):
    # the same words each time: half a character at the end of the model's random ones would be an event without text
    body = {"model": "m", "stream": True, "temperature": 0, **body}
    # on a busy machine vLLM puts all tokens into one event
    answers = ([engine.ask("POST", path, body) for engine in pair] for _ in range(10))
    real, standin = next(answer for answer in answers if all(len(each.events) > 3 for each in answer))
    assert (standin.status, standin.kind) == (real.status, real.kind)
    assert kinds(standin) == kinds(real)
    assert standin.reasons == real.reasons == ["length"]


def test_streamed_tool_calls_are_alike(pair):
    body = {"model": "m", "messages": HI, "tools": [WEATHER], "stream": True, "max_tokens": 500, **NO_THINKING}
    chosen = {"type": "function", "function": {"name": "weather"}}
    for choice in "required", chosen:
        answers = [engine.ask("POST", "/v1/chat/completions", {**body, "tool_choice": choice}) for engine in pair]
        found = []
        for answer in answers:
            deltas = [choice["delta"] for event in answer.events[:-1] for choice in event["choices"]]
            calls = [call for delta in deltas for call in delta.get("tool_calls") or []]
            assert calls, answer.text
            opened = {key: shape(value) for key, value in calls[0].items()}
            further = {json.dumps(shape(call)) for call in calls[1:]}
            json.loads("".join(call["function"].get("arguments") or "" for call in calls))
            found.append((opened, further, answer.reasons))
        (*real, reasons), (*standin, said) = found
        assert standin == real
        # random weights may go on with white space, which the grammar allows, to the last token
        assert said == (["tool_calls"] if choice == "required" else ["stop"])
        assert reasons in (said, ["length"])


def families(page):
    """{metric: (type, names of labels)}"""
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE))
    labels = {}
    for line in page.splitlines():
        found = re.match(r"(vllm:\w+)\{(.*)\} \S+$", line)
        if found:
            base = re.sub(r"_(bucket|count|sum)$", "", found[1])
            name = base if types.get(base) == "histogram" else found[1]
            labels.setdefault(name, set()).update(re.findall(r'(\w+)="', found[2]))
    return {name: (kind, labels.get(name, set())) for name, kind in types.items() if name.startswith("vllm:")}


def test_metrics_are_alike(pair):
    real, standin = (families(engine.ask("GET", "/metrics", key=None).text) for engine in pair)
    # README: no times of creation, no count of the tool parser's calls; drafts are not on a CPU
    expected = {
        name: about
        for name, about in real.items()
        if not name.endswith("_created") and not name.startswith("vllm:tool_call_parser")
    }
    info = standin.pop("vllm:cache_config_info")
    assert info == ("gauge", expected.pop("vllm:cache_config_info")[1] | {"simulated"})
    more = {name for name in standin if name.startswith("vllm:spec_decode")}
    assert {name: about for name, about in standin.items() if name not in more} == expected
    assert len(more) == 4


def test_counters_count_alike(pair):
    for engine in pair:
        before = engine.metrics()
        engine.chat(max_tokens=7, ignore_eos=True)
        engine.complete([5, 6, 7], max_tokens=3, ignore_eos=True)
        after = engine.metrics()

        def grown(start, before=before, after=after):
            return sum(value - before.get(name, 0) for name, value in after.items() if name.startswith(start))

        assert grown("vllm:generation_tokens_total") == 10
        assert grown('vllm:request_success_total{engine="0",finished_reason="length"') == 2
        assert grown("vllm:time_to_first_token_seconds_count") == 2
        assert grown("vllm:e2e_request_latency_seconds_count") == 2
        assert engine.metric("vllm:num_requests_running{") == engine.metric("vllm:num_requests_waiting{") == 0


def test_a_long_prefill_shows_in_both_chunk_by_chunk(real_engine, start):
    """The gateway's probe takes an engine for hung whose counters stand still."""
    for engine in Real(real_engine), start(SIM_TIME_SCALE="2"):
        before = engine.metric("vllm:prompt_tokens_total{")
        # chunks of 4096 tokens: four steps, of which a look may miss one
        seen = engine.watch_prefill(14_000)
        shares = [share for share, counted in seen if share and counted == before]
        assert shares == sorted(shares) and len(set(shares)) >= 3, seen
        # the prompt counts once it is through
        assert {counted - before for _, counted in seen} <= {0, 14_000}
        assert engine.metric("vllm:prompt_tokens_total{") == before + 14_000
        assert engine.metric("vllm:kv_cache_usage_perc{") == 0


def test_a_client_that_goes_away_frees_its_place_in_both(pair):
    for engine in pair:
        connection, response = engine.open_stream(max_tokens=8000)
        engine.wait_until(lambda engine=engine: engine.metric("vllm:num_requests_running{") == 1)
        response.close()
        connection.close()
        engine.wait_until(lambda engine=engine: engine.metric("vllm:num_requests_running{") == 0)


BAD = {
    "unknown flag": ["--no-such-flag", "3"],
    "no such choice": ["--kv-cache-dtype", "fpx"],
    "no number": ["--gpu-memory-utilization", "abc"],
}


def test_command_lines_are_refused_alike():
    # one process for all: vLLM's imports take seconds
    ask = """
import contextlib, io, json, sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
for name, arguments in json.loads(sys.argv[1]).items():
    parser = FlexibleArgumentParser(prog="vllm")
    make_arg_parser(parser.add_subparsers(dest="subparser").add_parser("serve", prog="vllm serve"))
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
        parser.parse_args(["serve", "/models", *arguments])
    print("SAID", json.dumps([name, said.getvalue()]))
"""
    run = docker("run", "--rm", "--entrypoint", "python3", IMAGE, "-c", ask, json.dumps(BAD))
    said = dict(json.loads(line[5:]) for line in run.stdout.splitlines() if line.startswith("SAID "))
    assert len(said) == len(BAD), run.stderr
    for name, arguments in BAD.items():
        ours = subprocess.run(
            [STANDIN / "vllm", "serve", "/models", *arguments], capture_output=True, text=True, check=False
        )
        assert ours.returncode == 2
        # other options share a name in vLLM, which it then shows: --gpu-memory-utilization/--device-memory-utilization
        theirs = re.sub(r"(argument --[\w-]+)/--[\w-]+", r"\1", said[name].splitlines()[-1])
        assert ours.stderr.splitlines()[-1] == theirs


# ---- last: this one ends the engine that all tests ask ----


def test_sigterm_with_time_to_finish(real_engine, start):
    for engine in Real(real_engine), start(*FIELD_REPORT, "--shutdown-timeout", "60"):
        # long enough to be there when it ends: vLLM's tiny model makes 500 tokens a second, the stand-in 1350
        connection, response = engine.open_stream(max_tokens=3000)
        engine.terminate()
        time.sleep(0.5)
        refused = engine.complete(max_tokens=1)
        assert (refused.status, refused.json["error"]["type"]) == (500, "InternalServerError")
        assert refused.json["error"]["message"] == "cannot schedule new futures after shutdown"
        assert engine.ask("GET", "/health").status == 200
        assert engine.ask("GET", "/v1/models").status == 200
        text = response.read().decode()
        connection.close()
        assert '"finish_reason":"length"' in text and text.endswith("data: [DONE]\n\n")
        finished = time.monotonic()
        assert engine.wait() == 0
        assert time.monotonic() - finished < 30
    assert "[shutdown] API server: shutdown triggered" in real_engine.log()


def what_came(connection, response):
    """The rest of a stream, as far as it comes within ten seconds."""
    connection.sock.settimeout(10)
    text = ""
    with contextlib.suppress(OSError, http.client.IncompleteRead):
        while line := response.readline():
            text += line.decode()
    return text


@pytest.fixture
def without_time(tiny_model, tmp_path):
    container = real_vllm.Container(tmp_path, tiny_model, FIELD_REPORT)
    try:
        container.wait_ready()
        yield Real(container)
    finally:
        container.remove()


def test_sigterm_without(without_time, start):
    # vLLM was seen to end the stream with finish_reason abort, to end it with an error event, and to let it hang until
    # the client goes away: in each case the answer is no whole one. The stand-in does the first.
    for engine, ends in (without_time, False), (start(SIM_TIME_SCALE="1"), True):
        connection, response = engine.open_stream(max_tokens=8000)
        engine.terminate()
        text = what_came(connection, response)
        response.close()
        connection.close()
        assert '"finish_reason":"length"' not in text and '"finish_reason":"stop"' not in text
        if ends:
            assert '"finish_reason":"abort"' in text and text.endswith("data: [DONE]\n\n")
        elif text.endswith("data: [DONE]\n\n"):
            assert '"finish_reason":"abort"' in text or '"error"' in text
        assert engine.wait() == 0
