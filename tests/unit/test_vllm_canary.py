"""The canary against a small server that answers as engines do, or wrongly in each way that has been seen."""

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "roles/vllm/files/vllm-canary"
KEY = "a-key-of-these-tests-0123"
WANTED = ["--tools", "--reasoning", "--kv-cache-dtype", "fp8", "--min-acceptance", "0.5"]


class Engine:
    """A healthy engine with speculative decoding; each attribute is a way to be otherwise."""

    cache_dtype = "fp8"
    max_model_len = 262144
    content = "A lighthouse shows ships where the coast is, by night and in fog."
    reasoning = "The visitor wants to know about lighthouses."
    tool_deltas = (
        {"index": 0, "id": "call-1", "type": "function", "function": {"name": "get_weather"}},
        {"index": 0, "function": {"arguments": '{"city": '}},
        {"index": 0, "function": {"arguments": '"Oslo"}'}},
    )
    finish = "tool_calls"
    done = "[DONE]"
    drafted, accepted = 200, 160  # by each chat
    hang = False
    status = 200

    def __init__(self, **other):
        for name, value in other.items():
            assert hasattr(Engine, name), name
            setattr(self, name, value)
        self.drafts, self.lock = [0, 0], threading.Lock()
        self.prompts, self.keys, self.bodies = [], set(), []

    def chat(self, body):
        with self.lock:
            self.drafts = [self.drafts[0] + self.drafted, self.drafts[1] + self.accepted]
        return self.content

    def completion(self, prompt):
        return f"as the prompt's first line says: {prompt.splitlines()[0][:40]}"


class FlippingEngine(Engine):
    """Of the prompts it is asked again, those whose place in the run is in `flips` get another answer."""

    flips = ()

    def __init__(self, flips):
        super().__init__()
        self.flips, self.again = flips, 0

    def completion(self, prompt):
        if prompt not in self.prompts[:-1]:
            return super().completion(prompt)
        self.again += 1
        return super().completion(prompt) + (" or not" if self.again in self.flips else "")


class CorruptEngine(Engine):
    """Bug E3: after a long prompt, all that is asked again is answered otherwise."""

    def completion(self, prompt):
        long_ones = sum(len(other) > 20000 for other in self.prompts)
        return super().completion(prompt) + "!" * long_ones


class PatientEngine(Engine):
    """Answers no chat before all three have arrived."""

    def __init__(self):
        super().__init__()
        self.all = threading.Barrier(3, timeout=10)

    def chat(self, body):
        self.all.wait()
        return super().chat(body)


@pytest.fixture
def canary(tmp_path):
    """Runs the canary against an engine: (exit code, {check: (outcome, says)}, stderr)."""
    servers = []
    secrets = tmp_path / "env"
    secrets.write_text(f"# comment\nVLLM_API_KEY='{KEY}'\n")

    def run(engine, *options, timeout=30):
        class Handler(BaseHTTPRequestHandler):
            def answer(self, text, status=200):
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text.encode())

            def do_GET(self):
                if self.path == "/metrics":
                    labels = f'block_size="16",cache_dtype="{engine.cache_dtype}",mamba_block_size="None"'
                    self.answer(
                        f"# HELP vllm:cache_config_info of the cache\nvllm:cache_config_info{{{labels}}} 1.0\n"
                        f'vllm:spec_decode_num_draft_tokens_total{{engine="0"}} {engine.drafts[0]}.0\n'
                        f'vllm:spec_decode_num_accepted_tokens_total{{engine="0"}} {engine.drafts[1]}.0\n'
                    )
                else:
                    engine.keys.add(self.headers.get("Authorization"))
                    listed = [{"id": "tiny", "max_model_len": engine.max_model_len}]
                    self.answer(json.dumps({"data": listed}))

            def do_POST(self):
                engine.keys.add(self.headers.get("Authorization"))
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                engine.bodies.append(body)
                if engine.hang:
                    stop.wait()
                elif engine.status != 200:
                    self.answer('{"error": {"message": "EngineCore encountered an issue."}}', engine.status)
                elif body.get("stream"):
                    events = [{"choices": [{"delta": {"tool_calls": [part]}}]} for part in engine.tool_deltas]
                    events = events or [{"choices": [{"delta": {"content": engine.content}}]}]
                    events.append({"choices": [{"delta": {}, "finish_reason": engine.finish}]})
                    text = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
                    self.answer(f"{text}data: {engine.done}\n\n" if engine.done else text)
                elif "messages" in body:
                    message = {"content": engine.chat(body), "reasoning": engine.reasoning}
                    self.answer(json.dumps({"choices": [{"message": message}]}))
                else:
                    prompt = body["prompt"]
                    if len(prompt) > engine.max_model_len:
                        self.answer('{"error": {"message": "longer than max_model_len"}}', 400)
                        return
                    engine.prompts.append(prompt)
                    usage = {"prompt_tokens": len(prompt) // 2}
                    self.answer(json.dumps({"choices": [{"text": engine.completion(prompt)}], "usage": usage}))

            def log_message(self, *_):
                pass

        stop = threading.Event()
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append((server, stop))
        command = [sys.executable, PROGRAM, "--url", f"http://127.0.0.1:{server.server_address[1]}", "--model", "tiny"]
        command += ["--secrets", secrets, "--timeout", str(timeout), "--json", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        told = json.loads(done.stdout)
        assert told["ok"] == (done.returncode == 0)
        assert KEY not in done.stdout + done.stderr
        return (
            done.returncode,
            {check["name"]: (check["outcome"], check["says"]) for check in told["checks"]},
            done.stderr,
        )

    yield run
    for server, stop in servers:
        stop.set()
        server.shutdown()


def fails(result, name):
    """What the one failed check says."""
    code, checks, stderr = result
    assert code == 1
    assert [check for check, (outcome, _) in checks.items() if outcome == "fail"] == [name]
    assert stderr.count("\n") == 1 and checks[name][1] in stderr
    return checks[name][1]


def test_a_healthy_engine_passes_every_check(canary):
    engine = Engine()
    code, checks, stderr = canary(engine, *WANTED)
    assert (code, stderr) == (0, "")
    assert {outcome for outcome, _ in checks.values()} == {"pass"}
    assert list(checks) == ["kv_cache", "text", "reasoning", "acceptance", "tools", "integrity"]
    assert "480 of 600 drafted tokens were accepted (0.80)" in checks["acceptance"][1]
    assert engine.keys == {f"Bearer {KEY}"}


def test_questions_are_asked_at_once_as_the_box_is_out_of_service_meanwhile(canary):
    assert canary(PatientEngine(), *WANTED)[0] == 0


def test_what_is_not_wanted_is_skipped_with_a_reason(canary):
    code, checks, _ = canary(Engine())
    assert code == 0
    skipped = {name for name, (outcome, says) in checks.items() if outcome == "skipped" and says}
    assert skipped == {"kv_cache", "reasoning", "acceptance", "tools"}


def test_integrity_asks_the_same_again_after_something_long(canary):
    engine = Engine()
    canary(engine)
    a, b, again = engine.prompts[:3], engine.prompts[3], engine.prompts[4:]
    assert a == again and len(set(a)) == 3
    # three or more characters a token; two blocks of 1616 tokens, or nothing comes from the prefix cache
    assert len(b) > 1.5 * max(map(len, a)) and min(map(len, a)) > 3 * 1616 and not any(b[:100] in probe for probe in a)
    completions = [body for body in engine.bodies if "prompt" in body]
    assert {body["temperature"] for body in completions} == {0}
    # else the prompts' first answers come from the cache of the run before
    other = Engine()
    canary(other)
    assert not set(a) & set(other.prompts)


def test_e3_answers_that_change_after_a_long_prompt(canary):
    said = fails(canary(CorruptEngine(), *WANTED), "integrity")
    assert "3 prompts had another answer after" in said and "vllm#53912" in said


def test_one_answer_that_differs_is_a_near_tie(canary):
    engine = FlippingEngine(flips=[2])
    code, checks, _ = canary(engine)
    assert code == 0
    assert checks["integrity"][1].startswith("one of 6 answers differed, as near ties do")
    assert len(engine.prompts) == 14


@pytest.mark.parametrize("flips", [(1, 3), (2, 5)], ids=["in one round", "in two rounds"])
def test_two_answers_that_differ_are_a_fault(canary, flips):
    assert "2 prompts had another answer" in fails(canary(FlippingEngine(flips)), "integrity")


@pytest.mark.parametrize("limit", [400, 1000, 4096])
def test_prompts_fit_into_a_short_context(canary, limit):
    code, checks, _ = canary(Engine(max_model_len=limit))
    assert (code, checks["integrity"][0]) == (0, "pass")


def test_a_context_too_short_for_a_probe_is_said(canary):
    code, checks, _ = canary(Engine(max_model_len=200))
    assert (code, checks["integrity"][0]) == (0, "skipped")


@pytest.mark.parametrize("content", ["!" * 64, "!!!!", "ok " + "! " * 20])
def test_e12_one_character_over_and_over(canary, content):
    assert "are '!'" in fails(canary(Engine(content=content, reasoning=None)), "text")


def test_e12_after_sound_thinking(canary):
    assert "are '!'" in fails(canary(Engine(content="!" * 8)), "text")


def test_an_empty_answer(canary):
    assert "is empty" in fails(canary(Engine(content=None, reasoning=None)), "text")


def test_e6_acceptance_that_collapsed(canary):
    said = fails(canary(Engine(drafted=50, accepted=5), *WANTED), "acceptance")
    assert "15 of 150 drafted tokens were accepted (0.10), wanted is 0.5 or more" in said


@pytest.mark.parametrize(("drafted", "accepted"), [(0, 0), (15, 1)], ids=["no drafts", "too few drafts"])
def test_acceptance_that_cannot_be_measured_is_not_judged(canary, drafted, accepted):
    code, checks, _ = canary(Engine(drafted=drafted, accepted=accepted), *WANTED)
    assert code == 0
    assert checks["acceptance"][0] == "skipped" and checks["acceptance"][1].startswith("not measured: ")


def test_acceptance_exactly_at_the_floor_passes(canary):
    assert canary(Engine(drafted=100, accepted=50), *WANTED)[1]["acceptance"][0] == "pass"


def test_another_kv_cache_than_wanted(canary):
    assert fails(canary(Engine(cache_dtype="auto"), *WANTED), "kv_cache") == "the KV cache is auto, wanted is fp8"


def test_two_names_of_one_kv_cache_format(canary):
    assert canary(Engine(cache_dtype="fp8_e4m3"), *WANTED)[0] == 0


def delta(name="get_weather", arguments='{"city": "Oslo"}', call="call-1"):
    return ({"index": 0, "id": call, "function": {"name": name, "arguments": arguments}},)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"tool_deltas": (), "finish": "stop"}, "no tool call came, but text"),
        ({"tool_deltas": delta(arguments='{"city": "Os')}, "arguments are not JSON"),
        ({"tool_deltas": delta(arguments="{}")}, "not what the tool asks for"),
        ({"tool_deltas": delta(arguments="[]")}, "not what the tool asks for"),
        ({"tool_deltas": delta(name="get_time")}, "not of get_weather"),
        ({"tool_deltas": delta(call=None)}, "has no id"),
        ({"finish": "length"}, "finish_reason length, not tool_calls"),
        ({"done": None}, "did not end with [DONE]"),
        ({"done": "{half\n\ndata: [DONE]"}, "not JSON"),
        ({"done": '{"error": {"message": "dead"}}\n\ndata: [DONE]'}, "holds an error"),
    ],
)
def test_a_tool_call_that_is_not_well_formed(canary, fault, words):
    assert words in fails(canary(Engine(**fault), *WANTED), "tools")


@pytest.mark.parametrize(
    ("fault", "words"),
    [({"reasoning": None}, "no reasoning came"), ({"content": "<think>Hm</think>391"}, "part of the answer")],
)
def test_reasoning_that_is_not_apart(canary, fault, words):
    assert words in fails(canary(Engine(**fault), *WANTED), "reasoning")


def test_an_engine_that_answers_with_errors(canary):
    code, checks, _ = canary(Engine(status=500), *WANTED)
    assert code == 1
    assert "answered 500" in checks["text"][1] and "EngineCore" in checks["text"][1]
    assert checks["acceptance"][0] == "skipped"


def test_a_hung_engine_is_asked_once(canary):
    said = fails(canary(Engine(hang=True), *WANTED, timeout=1), "text")
    assert "/v1/chat/completions was not answered" in said


def test_no_engine_at_all(tmp_path):
    secrets = tmp_path / "env"
    command = [sys.executable, PROGRAM, "--url", "http://127.0.0.1:9", "--model", "tiny", "--secrets", secrets]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "") and "cannot be read" in done.stderr
    secrets.write_text("")
    done = subprocess.run([*command, "--kv-cache-dtype", "fp8"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "refused" in done.stderr
    assert done.stdout.count("as the engine did not answer kv_cache") == 5
