"""The stand-in engine by itself: faults, batching, determinism, command line. No Docker, no vLLM."""

import concurrent.futures
import json
import math
import subprocess
import sys

import pytest
from real_vllm import FIELD_REPORT, KEY
from standin import faults
from standin_client import STANDIN, WEATHER
from vllm_triage import vllm_triage  # plugins/filter/vllm_triage.py

LONG = list(range(1, 1300))
CANARY_PROGRAM = STANDIN.parents[1] / "roles/vllm/files/vllm-canary"


def test_the_same_prompt_gets_the_same_answer(start):
    engine = start()
    first, other, again = (engine.chat(text).json["choices"][0]["message"] for text in ("sky?", "sea?", "sky?"))
    assert first == again != other
    assert first["content"].startswith("Simulated answer:")
    assert first["reasoning"] == "simulated thinking"
    assert start().chat("sky?").json["choices"][0]["message"] == first
    assert engine.chat("sky?", stream=True).content == first["content"]


def test_everything_it_prints_says_simulated(start):
    engine = start()
    engine.chat()
    engine.terminate()
    assert engine.wait() == 0
    assert all("simulated" in line for line in engine.output().splitlines()), engine.output()


def test_a_tool_that_must_be_called_is_called(start):
    engine = start()
    answer = engine.chat(tools=[WEATHER], tool_choice="required", stream=True)
    assert answer.reasons == ["tool_calls"]
    calls = [c for e in answer.events[:-1] for c in e["choices"][0]["delta"].get("tool_calls", [])]
    assert calls[0]["function"]["name"] == "weather" and calls[0]["id"]
    assert json.loads("".join(call["function"].get("arguments", "") for call in calls)) == {"city": "Bonn"}


def test_who_does_not_fit_waits(start):
    arguments = [a if a != "16" else "2" for a in FIELD_REPORT]
    engine = start(*arguments, SIM_TIME_SCALE="4")
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        asked = [pool.submit(engine.complete, max_tokens=200, ignore_eos=True) for _ in range(5)]
        engine.wait_until(lambda: engine.metric("vllm:num_requests_waiting{") == 3)
        assert engine.metric("vllm:num_requests_running{") == 2
        assert 0 < engine.metric("vllm:kv_cache_usage_perc{") <= 1
        assert [future.result().json["usage"]["completion_tokens"] for future in asked] == [200] * 5
    assert engine.metric("vllm:num_requests_running{") == 0


def test_a_client_that_goes_away_frees_its_place(start):
    engine = start(SIM_TIME_SCALE="1")
    connection, response = engine.open_stream(max_tokens=5000)
    assert engine.metric("vllm:num_requests_running{") == 1
    response.close()
    connection.close()
    engine.wait_until(lambda: engine.metric("vllm:num_requests_running{") == 0, 3)
    assert engine.metric('vllm:request_success_total{engine="0",finished_reason="abort"') == 1


def test_the_kv_cache_fills_with_every_chunk_of_a_prompt(start):
    engine = start(SIM_TIME_SCALE="4")
    # ten chunks of 4096 tokens, the last shorter; blocks of 1600, 12 for the state, 375 in all
    expected = [(math.ceil(min(4096 * chunk, 40_000) / 1600) + 12) / 375 for chunk in range(1, 11)]
    seen = engine.watch_prefill(40_000)
    shares = [share for share, counted in seen if share and not counted]
    assert shares == sorted(shares)
    assert set(shares) <= set(expected) and len(set(shares)) >= 8
    assert engine.metric("vllm:kv_cache_usage_perc{") == 0
    # what is in the prefix cache is not computed again, and is in use from the start
    again = {share for share, _ in engine.watch_prefill(40_000) if share}
    assert again <= {expected[-1]}


def test_prefix_cache(start):
    engine = start()
    prompt = list(range(4000))
    for hits in (0, 3200):
        engine.complete(prompt, max_tokens=1)
        assert engine.metric("vllm:prefix_cache_hits_total") == hits


def test_speed_is_the_reports_in_its_own_bench(start, tmp_path):
    engine = start(SIM_TIME_SCALE="4")
    command = [
        sys.executable,
        STANDIN / "vllm",
        "bench",
        "serve",
        "--port",
        str(engine.port),
        "--model",
        "m",
        "--ignore-eos",
    ]
    options = [
        "--random-input-len",
        "256",
        "--random-output-len",
        "512",
        "--num-prompts",
        "2",
        "--max-concurrency",
        "1",
    ]
    save = ["--save-result", "--result-dir", tmp_path, "--result-filename", "r.json"]
    run = subprocess.run(
        [*command, *options, *save],
        env={"OPENAI_API_KEY": KEY, "SIM_TIME_SCALE": "4", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["simulated"] and result["completed"] == 2 and result["failed"] == 0
    assert result["total_input_tokens"] == 512 and result["total_output_tokens"] == 1024
    assert 1000 / result["median_tpot_ms"] == pytest.approx(67.6, rel=0.08)
    assert result["spec_decode_acceptance_rate"] == pytest.approx(84.9, abs=4)


# ---- faults ----


def canary(engine):
    return engine.complete("canary", max_tokens=20, temperature=0).json["choices"][0]["text"]


def test_corrupt(start):
    engine = start(SIM_FAULT="corrupt")
    before = canary(engine)
    assert canary(engine) == before
    assert engine.complete(LONG, max_tokens=1).status == 200
    assert canary(engine) != before


def test_healthy_engines_are_not_corrupted(start):
    engine = start()
    before = canary(engine)
    engine.complete(LONG, max_tokens=1)
    assert canary(engine) == before


def test_long_500(start):
    engine = start(SIM_FAULT="long-500")
    assert engine.complete(LONG, max_tokens=1).status == 500
    assert engine.complete("short", max_tokens=1).status == 200


def test_oom_ends_the_process_with_0(start):
    engine = start(SIM_FAULT="oom")
    assert engine.complete("short", max_tokens=1).status == 200
    assert engine.complete(LONG, max_tokens=1).status == 500
    assert engine.wait() == 0
    assert "CUDA out of memory" in engine.output()


def test_a_core_that_dies_of_a_signal_says_where(start):
    """In Python's own words, which role vllm's triage reads."""
    engine = start(SIM_FAULT="illegal-instruction", PYTHONFAULTHANDLER="1")
    assert engine.complete("short", max_tokens=1).status == 200
    assert engine.complete(LONG, max_tokens=1).status == 500
    assert engine.wait() == 0
    found = vllm_triage(engine.output())
    assert found[0]["reason"].startswith("EngineCore died of SIGILL (signal 4), in ")
    assert found[0]["reason"].endswith(" in run_engine_core")


def test_exclamations(start):
    engine = start(SIM_FAULT="exclamations")
    assert set(canary(engine)) == {"!"}
    message = engine.chat().json["choices"][0]["message"]
    assert set(message["content"]) == {"!"} and message["reasoning"] is None


def test_exclamations_to_many_at_once(start):
    engine = start(SIM_FAULT="exclamations")
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        asked = [
            pool.submit(engine.complete, f"canary {number}", max_tokens=40, ignore_eos=endless, stream=stream)
            for number in range(6)
            for endless in (False, True)
            for stream in (False, True)
        ]
        for index, answer in enumerate(future.result() for future in asked):
            said = answer.content if index % 2 else answer.json["choices"][0]["text"]
            assert said == "!" * (40 if index // 2 % 2 else 24), answer.text
    assert "Traceback" not in engine.output()


#: fault -> the checks of role vllm's canary that must fail for it
CANARY = {
    "": [],
    "half-speed": [],
    "cache-dtype": ["kv_cache"],
    "exclamations": ["text", "reasoning", "tools"],
    "low-acceptance": ["acceptance"],
    "no-tool-call": ["tools"],
    "corrupt": ["integrity"],
    "long-500": ["integrity"],
    "oom": ["integrity"],
    "hang": ["text"],
}


@pytest.mark.parametrize("fault", CANARY)
def test_the_canary_finds(start, tmp_path, fault):
    """Role vllm's own canary."""
    engine = start(SIM_FAULT=fault, SIM_TIME_SCALE="50")
    (tmp_path / "secrets").write_text(f"VLLM_API_KEY='{KEY}'\n")
    run = subprocess.run(
        [
            *(sys.executable, CANARY_PROGRAM, "--url", f"http://127.0.0.1:{engine.port}", "--model", "m", "--json"),
            *("--tools", "--reasoning", "--kv-cache-dtype", "fp8", "--min-acceptance", "0.5"),
            *("--secrets", tmp_path / "secrets", "--timeout", "2" if fault == "hang" else "60"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    failed = [check["name"] for check in json.loads(run.stdout)["checks"] if check["outcome"] == "fail"]
    assert (run.returncode, failed) == (bool(CANARY[fault]), CANARY[fault]), run.stdout
    # no traceback of the stand-in itself
    assert all("simulated" in line for line in engine.output().splitlines()), engine.output()


def test_no_tool_call(start):
    answer = start(SIM_FAULT="no-tool-call").chat(tools=[WEATHER], tool_choice="required", stream=True)
    assert answer.content.startswith("Simulated answer:") and answer.reasons == ["stop"]


def test_hang(start):
    engine = start(SIM_FAULT="hang")
    with pytest.raises(TimeoutError):
        engine.ask("POST", "/v1/completions", {"model": "m", "prompt": "x"}, timeout=0.5)
    assert engine.ask("GET", "/health").status == 200
    assert engine.ask("GET", "/v1/models").status == 200


def test_never_ready(start):
    engine = start(ready=False, SIM_FAULT="never-ready")
    engine.wait_until(engine.handles_sigterm)
    with pytest.raises(ConnectionRefusedError):
        engine.ask("GET", "/health")
    engine.terminate()
    assert engine.wait() == 143


def test_exit_at_start(start):
    engine = start(ready=False, SIM_FAULT="exit-at-start")
    assert engine.wait() == 1
    assert "Traceback" in engine.output()


def test_crash_loop(start):
    assert start(SIM_FAULT="crash-loop").wait() == 0


def test_cache_dtype(start):
    for fault, dtype in (("", "fp8"), ("cache-dtype", "auto")):
        names = start(SIM_FAULT=fault).metrics()
        assert sum(f'cache_dtype="{dtype}"' in name for name in names) == 1


def test_slow_ones_are_slow_and_faults_come_and_go(start):
    engine = start(SIM_TIME_SCALE="1")
    healthy = engine.ask("GET", "/sim").json["decode_tok_s"]
    for fault, factor in (("half-speed", 0.5), ("low-acceptance", 1.2 / 2.698)):
        answer = engine.ask("POST", "/sim/fault", {"faults": [fault]})
        assert answer.json["faults"] == [fault]
        assert answer.json["decode_tok_s"] == pytest.approx(healthy * factor, rel=0.01)
    assert engine.ask("POST", "/sim/fault", {"faults": []}).json["decode_tok_s"] == healthy
    assert engine.ask("POST", "/sim/fault", {"faults": []}, key=None).status == 401
    wrong = engine.ask("POST", "/sim/fault", {"faults": ["no-such"]})
    assert wrong.status == 400 and "'no-such' does not exist; there are never-ready" in wrong.text


def test_the_readme_names_every_fault():
    readme = (STANDIN / "README.md").read_text()
    assert [name for name in faults.FAULTS if f"`{name}`" not in readme] == []


# ---- command line ----


def serve(*arguments, **environment):
    return subprocess.run(
        [sys.executable, STANDIN / "vllm", "serve", *arguments],
        env={"TANDEM_SIM_REQUIRE_GPU": "0", "PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--no-such-flag", "3"], 2, "vllm: error: unrecognized arguments: --no-such-flag 3"),
        (["--port", "1.5"], 2, "vllm serve: error: argument --port: invalid int value: '1.5'"),
        (["--gpu-memory-utilization", "93"], 1, "Input should be less than or equal to 1"),
        (["--tool-call-parser", "no-such"], 1, "invalid tool call parser: no-such"),
        (["--attention-backend", "FLASH_ATTN", "--kv-cache-dtype", "fp8"], 1, "FP8 KV cache requires FA3 on SM90"),
        (["--max-model-len", "2000000"], 1, "larger than the available KV cache memory"),
    ],
)
def test_what_vllm_refuses(arguments, code, words):
    run = serve("/models", *arguments)
    assert (run.returncode, words in run.stderr) == (code, True), run.stderr


def test_a_fault_that_does_not_exist_is_named():
    run = serve("/models", SIM_FAULT="hang,hnag")
    assert run.returncode == 1 and "'hnag' does not exist; there are" in run.stderr


def test_without_cards_it_does_not_start():
    run = serve("/models", TANDEM_SIM_REQUIRE_GPU="1")
    assert run.returncode == 1 and "Failed to infer device type" in run.stderr


def test_parse_check():
    good, bad = (
        subprocess.run([STANDIN / "parse-check", "--", "/models", *more], capture_output=True, text=True, check=False)
        for more in (["--max-num-seqs=8"], ["--max-num-seq=8"])
    )
    assert good.returncode == 0 and json.loads(good.stdout)["version"] == "0.32.0"
    assert bad.returncode == 1 and "unrecognized arguments: --max-num-seq=8" in bad.stderr
