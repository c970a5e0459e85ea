"""The box's program bench-run, against a small engine, with a stand-in for docker and for pynvml."""

import hashlib
import http.server
import json
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROLE = ROOT / "roles/bench"
PROGRAM = ROLE / "files/bench-run"
KEY = "a-key-that-nobody-may-see"

# `docker exec` runs the script that it is given, with a `vllm` that writes a result in place of vLLM's.
DOCKER = """#!/bin/sh
printf '%s\\n' "$*" >>"$BENCH_TEST/docker.log"
case "$1" in
container) cat "$BENCH_TEST/container.json" ;;
exec) shift 3; exec "$@" ;;
esac
"""
VLLM = """#!{python}
import json, os, sys, urllib.request
base = os.environ["BENCH_TEST"]
options = dict(zip(sys.argv[3::2], sys.argv[4::2]))
open(base + "/vllm.json", "w").write(json.dumps([sys.argv[1:], os.environ.get("OPENAI_API_KEY")]))
if "--dataset-path" in sys.argv:
    open(base + "/prompts.json", "w").write(open(sys.argv[sys.argv.index("--dataset-path") + 1]).read())
urllib.request.urlopen(sys.argv[sys.argv.index("--base-url") + 1] + "/worked")
if os.path.exists(base + "/fails"):
    sys.exit("ValueError: no such thing")
here = sys.argv[sys.argv.index("--result-dir") + 1]
open(here + "/result.json", "w").write(open(base + "/result.json").read())
print("a line that is no JSON")
"""
PYNVML = """
import os, time
class NVMLError(Exception):
    def __init__(self, value):
        self.value = value
def fault(name, card):
    base = os.environ["BENCH_TEST"]
    if os.path.exists(base + "/lost") and card == int(open(base + "/lost").read()): raise NVMLError(15)
    if os.path.exists(base + "/hangs") and name == open(base + "/hangs").read(): time.sleep(60)
    return card
def nvmlInit():
    if os.path.exists(os.environ["BENCH_TEST"] + "/no-driver"): raise NVMLError(9)
def nvmlShutdown(): pass
def nvmlDeviceGetCount(): return 3
def nvmlDeviceGetHandleByIndex(index): return fault("nvmlDeviceGetHandleByIndex", index)
def nvmlDeviceGetName(card): return "NVIDIA GeForce RTX 4090"
def nvmlDeviceGetEnforcedPowerLimit(card): return 450000
def nvmlDeviceGetUUID(card): return f"GPU-{card}"
def nvmlDeviceGetCurrentClocksEventReasons(card): return 0x40 if card == 1 else 0x1
def nvmlDeviceGetClockInfo(card, kind):
    fault("nvmlDeviceGetClockInfo", card)
    return 2100
def nvmlDeviceGetPowerUsage(card): return 180500
def nvmlDeviceGetTemperature(card, kind): return 61
def nvmlDeviceGetUtilizationRates(card): return type("Rates", (), {"gpu": 97})
"""


def milliseconds(name, mean):
    return {f"mean_{name}_ms": mean, f"median_{name}_ms": mean, f"p99_{name}_ms": mean}


RESULT = {
    "completed": 2,
    "failed": 0,
    "total_input_tokens": 100,
    "total_output_tokens": 64,
    "duration": 1.5,
    "output_throughput": 42.0,
    **milliseconds("ttft", 250.0),
    **milliseconds("tpot", 20.0),
    **milliseconds("itl", 50.0),
}
CONTAINER = {
    "Config": {"Labels": {"tandem.config": "abc"}, "Image": "vllm:1", "Cmd": ["/models", "--max-num-seqs=8"]},
    "Image": "sha256:" + "0" * 64,
    "State": {"Running": True, "Status": "running"},
    "HostConfig": {"DeviceRequests": [{"DeviceIDs": ["nvidia.com/gpu=GPU-0", "nvidia.com/gpu=GPU-1"]}]},
}


class Engine(http.server.ThreadingHTTPServer):
    """Answers what bench-run asks; `worked` is what the client's work adds to the counters."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.counters = {"num_requests_running": 0, "num_requests_waiting": 0, "prompt_tokens_total": 1000}
        self.worked = {
            "prompt_tokens_total": 100,
            "generation_tokens_total": 64,
            'request_success_total{reason="x"}': 2,
        }
        self.asked = []


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        engine = self.server
        if self.path == "/worked":
            for name, more in engine.worked.items():
                engine.counters[name] = engine.counters.get(name, 0) + more
        answers = {
            "/metrics": "\n".join(f"vllm:{name} {value}" for name, value in engine.counters.items()),
            "/v1/models": json.dumps({"data": [{"id": "m", "max_model_len": 4096}]}),
            "/version": json.dumps({"version": "0.32.0"}),
        }
        self.answer(answers.get(self.path, ""))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, self.headers["Authorization"], body))
        self.answer("{}")

    def answer(self, text):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def engine():
    server = Engine()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def bench(engine, tmp_path):
    """Runs the program; keyword arguments go over the recipe and the order."""
    library = tmp_path / "tandem"
    library.mkdir()
    for name in ("tandem_gpu_nvml.py", "tandem_gpu_watch.py"):
        shutil.copy(ROOT / "module_utils" / name, library)
    (library / "pynvml.py").write_text(PYNVML)
    for name, text in {"docker": DOCKER, "vllm": VLLM.format(python=sys.executable)}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "result.json").write_text(json.dumps(RESULT))
    (tmp_path / "container.json").write_text(json.dumps([CONTAINER]))
    (tmp_path / "secrets").write_text(f"# ours\nVLLM_API_KEY='{KEY}'\n")
    rows = [
        {"conversations": [{"from": "human", "value": f"text {i}"}, {"from": "gpt", "value": "x"}]} for i in range(3)
    ]
    (tmp_path / "chat.json").write_text(json.dumps(rows))

    def run(seeds=(0,), under_load=False, **recipe):
        order = {
            "engine": {
                "container": "vllm-main",
                "url": f"http://127.0.0.1:{engine.server_port}",
                "model": "m",
                "secrets": str(tmp_path / "secrets"),
                "last_good": str(tmp_path / "about.json"),
            },
            "recipe": {
                **{"figure": "decode_tok_s", "prompts": "chat", "input_tokens": None, "output_tokens": 32},
                **{"requests": 2, "concurrency": 1},
                **recipe,
            },
            "seeds": list(seeds),
            "prompts": str(tmp_path / "chat.json"),
            "under_load": under_load,
            "timeout": 60,
        }
        environment = {
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "BENCH_TEST": str(tmp_path),
            "TANDEM_LIBRARY": str(library),
            "TANDEM_NVML_TIMEOUT": "1",
            # the container's own, in life out of its file
            "VLLM_API_KEY": KEY,
        }
        return subprocess.run(
            [sys.executable, "-B", PROGRAM],
            input=json.dumps(order),
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )

    run.folder = tmp_path
    return run


def test_a_run(bench, engine):
    done = bench()
    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout)
    (run,) = output["runs"]
    assert run["value"] == 50.0
    assert (run["completed"], run["failed"], run["aborted"]) == (2, 0, 0)
    assert (run["input_tokens"], run["output_tokens"], run["output_tok_s"]) == (100, 64, 42.0)
    assert run["ttft_ms"] == {"mean": 250.0, "median": 250.0, "p99": 250.0}
    assert (run["acceptance"], run["acceptance_length"], run["prefix_cache_hit_rate"]) == (None, None, None)
    assert (run["other_requests"], run["other_tokens"]) == (0, 0)
    about = output["about"]
    assert (about["hash"], about["vllm_version"], about["max_model_len"]) == ("abc", "0.32.0", 4096)
    assert about["arguments"] == ["/models", "--max-num-seqs=8"]
    # warmed up first, as itself
    path, authorization, body = engine.asked[0]
    assert (path, authorization) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert body["cache_salt"]


def test_what_is_needed_to_repeat_it(bench):
    environment = [
        "PATH=/bin",
        "VLLM_LOGGING_LEVEL=INFO",
        "VLLM_USE_API_KEY=abc",
        "VLLM_URL=http://a:b@c",
        "HF_TOKEN=hf_1",
    ]
    config = {**CONTAINER["Config"], "Env": environment}
    (bench.folder / "container.json").write_text(json.dumps([{**CONTAINER, "Config": config}]))
    done = bench()
    output = json.loads(done.stdout)
    assert output["about"]["environment"] == {
        **{"HF_TOKEN": None, "PATH": None, "VLLM_LOGGING_LEVEL": "INFO", "VLLM_URL": None},
        "VLLM_USE_API_KEY": None,
    }
    cards = [{"index": index, "name": "NVIDIA GeForce RTX 4090", "power_limit_w": 450.0} for index in (0, 1)]
    assert output["about"]["cards"] == cards
    assert output["prompts_sha256"] == hashlib.sha256((bench.folder / "chat.json").read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        ('{"hash": "abc", "profile": "p"}', "p"),
        ('{"hash": "def", "profile": "p"}', None),
        ("not JSON", None),
        (None, None),
    ],
)
def test_the_profile_of_what_runs(bench, kept, told):
    if kept is not None:
        (bench.folder / "about.json").write_text(kept)
    assert json.loads(bench().stdout)["profile"] == told


def test_the_client_has_the_key_and_nobody_else_sees_it(bench):
    done = bench()
    arguments, key = json.loads((bench.folder / "vllm.json").read_text())
    assert key == KEY
    assert KEY not in json.dumps(arguments) + done.stdout + done.stderr + (bench.folder / "docker.log").read_text()


def test_each_seed_has_its_own_prompts(bench):
    assert bench(seeds=[0]).returncode == 0
    assert "text 0" in (bench.folder / "prompts.json").read_text()
    assert bench(seeds=[1]).returncode == 0
    sent = [row["conversations"][0]["value"] for row in json.loads((bench.folder / "prompts.json").read_text())]
    # three in the file: the fourth is the first again, and no twin of it
    assert sent == ["text 2", "Version 2. text 0"]
    arguments, _ = json.loads((bench.folder / "vllm.json").read_text())
    assert arguments[arguments.index("--seed") + 1] == "1"


def test_the_cards_are_watched_while_it_works(bench, engine):
    engine.counters["num_requests_running"] = 1
    done = bench(under_load=True)
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    assert [gpu["uuid"] for gpu in run["gpus"]] == ["GPU-0", "GPU-1"]
    first, second = run["gpus"]
    assert first["sm_mhz"] == {"min": 2100, "median": 2100, "max": 2100}
    assert (first["power_w"]["max"], first["temperature_c"]["max"], first["events"]) == (180.5, 61, {})
    assert second["events"] == {"hw_thermal": 1.0}
    assert (run["nvml"], run["most_in_flight"]) == ("", 1)


def test_a_prefill_that_the_engine_s_counter_never_shows_is_watched_all_the_same(bench):
    (run,) = json.loads(bench().stdout)["runs"]
    assert [gpu["uuid"] for gpu in run["gpus"]] == ["GPU-0", "GPU-1"]
    assert (run["nvml"], run["most_in_flight"]) == ("", 0)


def test_cards_that_cannot_be_watched_are_told(bench):
    (bench.folder / "no-driver").touch()
    (run,) = json.loads(bench().stdout)["runs"]
    assert run["nvml"].startswith("NVML does not start: the NVIDIA kernel driver is not loaded (NVML error 9): ")
    assert run["gpus"] == [] and json.loads(bench().stdout)["about"]["cards"] == []


def test_f9_a_lost_card_of_the_engine_is_told_and_another_is_not(bench):
    (bench.folder / "lost").write_text("1")
    (run,) = json.loads(bench().stdout)["runs"]
    assert run["nvml"].startswith("GPU 1 has fallen off the bus (NVML error 15): power the box off and on")
    assert [gpu["uuid"] for gpu in run["gpus"]] == ["GPU-0"]
    (bench.folder / "lost").write_text("2")
    (run,) = json.loads(bench().stdout)["runs"]
    assert run["nvml"] == "" and [gpu["uuid"] for gpu in run["gpus"]] == ["GPU-0", "GPU-1"]


def test_f22_a_driver_that_hangs_ends_the_samples_and_not_the_measurement(bench):
    (bench.folder / "hangs").write_text("nvmlDeviceGetClockInfo")
    started = time.monotonic()
    (run,) = json.loads(bench().stdout)["runs"]
    assert time.monotonic() - started < 10
    assert "did not answer within 1 s (last call: nvmlDeviceGetClockInfo on GPU 0)" in run["nvml"]
    assert run["value"] == 50.0


def test_f22_a_driver_that_hangs_from_the_first_call(bench):
    (bench.folder / "hangs").write_text("nvmlDeviceGetHandleByIndex")
    done = json.loads(bench().stdout)
    assert done["about"]["cards"] == []
    assert "(last call: nvmlDeviceGetHandleByIndex on GPU 0)" in done["runs"][0]["nvml"]


def test_counters(bench, engine):
    engine.worked |= {
        **{"spec_decode_num_drafts_total": 20, "spec_decode_num_draft_tokens_total": 40},
        **{
            "spec_decode_num_accepted_tokens_total": 34,
            "prefix_cache_queries_total": 100,
            "prefix_cache_hits_total": 25,
        },
        **{'request_success_total{finished_reason="abort"}': 1, 'request_success_total{reason="x"}': 5},
        # 100 are the client's, 2 x 64 are left to the chat template
        "prompt_tokens_total": 528,
    }
    (run,) = json.loads(bench().stdout)["runs"]
    assert (run["acceptance"], run["acceptance_length"], run["prefix_cache_hit_rate"]) == (0.85, 2.7, 0.25)
    assert (run["aborted"], run["other_requests"], run["other_tokens"]) == (1, 3, 300)


def test_prefill(bench, engine):
    done = bench(figure="prefill_tok_s", prompts="random", input_tokens=2048, output_tokens=1)
    (run,) = json.loads(done.stdout)["runs"]
    # 100 tokens of two requests, 0.25 s each
    assert run["value"] == 200.0
    arguments, _ = json.loads((bench.folder / "vllm.json").read_text())
    assert "--dataset-path" not in arguments
    assert arguments[arguments.index("--random-input-len") + 1] == "2048"
    path, _, body = engine.asked[0]
    assert path == "/v1/completions" and len(body["prompt"]) == 2048


def test_throughput(bench, engine):
    (run,) = json.loads(bench(figure="throughput_tok_s", concurrency=4).stdout)["runs"]
    assert run["value"] == 42.0
    assert len(engine.asked) == 4


def test_what_does_not_fit_is_skipped(bench):
    output = json.loads(bench(figure="prefill_tok_s", prompts="random", input_tokens=8192, output_tokens=1).stdout)
    assert output["skipped"] == "it needs 8193 tokens, and max-model-len is 4096"
    assert "runs" not in output


def test_an_engine_with_traffic_is_refused(bench, engine):
    engine.counters["num_requests_waiting"] = 3
    done = bench()
    assert done.returncode == 1
    assert "vllm-main has 3 requests in flight" in done.stderr
    assert not (bench.folder / "vllm.json").exists()


def test_failures_are_sentences(bench, engine):
    (bench.folder / "fails").touch()
    done = bench()
    assert done.returncode == 1
    assert "vllm bench serve in vllm-main ended with 1" in done.stderr
    assert done.stderr.rstrip().endswith("ValueError: no such thing")
    stopped = {**CONTAINER, "State": {"Running": False, "Status": "exited"}}
    (bench.folder / "container.json").write_text(json.dumps([stopped]))
    done = bench()
    assert done.returncode == 1
    assert done.stderr.startswith("container vllm-main does not run (exited)")


def test_the_program_is_executable():
    assert PROGRAM.stat().st_mode & stat.S_IXUSR
