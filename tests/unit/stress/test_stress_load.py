"""The whole run against a small HTTP engine: what is sent, and what a failing engine, a dead one and an Xid become."""

import json
import os
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from stress import stress_verdict

ROOT = Path(__file__).parents[3]
PROGRAM = ROOT / "roles/stress/files/stress-run"
SYSTEMCTL = """#!/bin/sh
printf 'ActiveState=active\\nInvocationID=%s\\n' "$(cat "$FAKE/invocation")"
"""
JOURNALCTL = """#!/bin/sh
while [ ! -e "$FAKE/xid" ]; do sleep 0.05; done
cat "$FAKE/xid"
sleep 60
"""


PYNVML = """
import time
class NVMLError(Exception):
    def __init__(self, value):
        self.value = value
def nvmlInit(): pass
def nvmlShutdown(): pass
def nvmlDeviceGetCount(): return 2
def nvmlDeviceGetHandleByIndex(index):
    if index == {lost}: raise NVMLError(15)
    return index
def nvmlDeviceGetName(card): return "NVIDIA GeForce RTX 4090"
def nvmlDeviceGetUUID(card): return f"GPU-{{card}}"
def nvmlDeviceGetCurrentClocksEventReasons(card): return 0x204
def nvmlDeviceGetClockInfo(card, kind): return 2000 + card
def nvmlDeviceGetPowerUsage(card):
    if card == {hangs}: time.sleep(60)
    return 180500
def nvmlDeviceGetTemperature(card, kind): return 61
def nvmlDeviceGetUtilizationRates(card): return type("Rates", (), {{"gpu": 97}})
"""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((len(body["prompt"]), self.headers["Authorization"], body))
        behaviour = self.server.behaviour(len(self.server.asked))
        if behaviour == "hang":
            self.server.hangs.wait(20)
            return
        if behaviour == "refuse":
            answer = b'{"error": {"message": "simulated refusal"}}'
            self.send_response(500)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)
            return
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        for number in range(4):
            reason = ("abort" if behaviour == "abort" else "length") if number == 3 else None
            self.say({"choices": [{"text": "a", "finish_reason": reason}]})
        self.say({"choices": [], "usage": {"completion_tokens": 4}})
        if behaviour != "truncate":
            self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def say(self, row):
        self.wfile.write(b"data: " + json.dumps(row).encode() + b"\n\n")


@pytest.fixture
def engine():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.asked, server.behaviour, server.hangs = [], lambda number: "answer", threading.Event()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.hangs.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def run(tmp_path, engine):
    """Runs the program; returns (summary, verdict). `meanwhile` is called once the first request was asked."""
    for folder in ("etc/tandem/vllm", "proc/sys/kernel/random", "var/lib/tandem/stress/r", "bin"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "lib/tandem").mkdir(parents=True)
    for name in ("tandem_gpu_nvml.py", "tandem_gpu_watch.py"):
        shutil.copy(ROOT / "module_utils" / name, tmp_path / "lib/tandem")
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("boot-1\n")
    (tmp_path / "etc/tandem/gpu-clocks.json").write_text('{"state": "locked", "max_mhz": 2100}')
    (tmp_path / "etc/tandem/vllm/main.env").write_text("VLLM_API_KEY='secret'\n")
    (tmp_path / "invocation").write_text("one")
    for name, text in (("systemctl", SYSTEMCTL), ("journalctl", JOURNALCTL)):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        "FAKE": str(tmp_path),
        "TANDEM_STRESS_ROOT": str(tmp_path),
        "TANDEM_LIBRARY": str(tmp_path / "lib/tandem"),
        "TANDEM_NVML_TIMEOUT": "0.5",
        "PYTHONDONTWRITEBYTECODE": "1",
    }

    def start(seconds=1.0, bursts=((5000, 1), (4700, 3)), meanwhile=None, path=environment["PATH"]):
        url = f"http://127.0.0.1:{engine.server_port}"
        one = {
            "engine": "main",
            "unit": "vllm-main.service",
            "url": url,
            "model": "m",
            "secrets": "/etc/tandem/vllm/main.env",
        }
        spec = {
            "seconds": seconds,
            "bursts": [{"prompt_tokens": length, "at_once": width, "estimated_s": 0.2} for length, width in bursts],
            "output_tokens": 4,
            "pause_s": 0.1,
            "engines": [one],
            "trial": None,
        }
        (tmp_path / "var/lib/tandem/stress/r/spec.json").write_text(json.dumps(spec))
        # -S: no site-packages, as on a box, which has no pynvml of its own
        process = subprocess.Popen([sys.executable, "-S", PROGRAM, "work", "r"], env={**environment, "PATH": path})
        if meanwhile:
            while not engine.asked:
                assert process.poll() is None
            meanwhile()
        assert process.wait(30) == 0
        told = subprocess.run(
            [sys.executable, "-S", PROGRAM, "result", "r"], env=environment, capture_output=True, check=True
        )
        found = json.loads(told.stdout)
        return found, stress_verdict(found)

    return start


def test_bursts_are_sent_in_turn_with_the_key_and_prompts_that_no_cache_knows(run, engine):
    found, verdict = run()
    assert [length for length, _, _ in engine.asked[:4]] == [5000, 4700, 4700, 4700]
    assert {key for _, key, _ in engine.asked} == {"Bearer secret"}
    prompts = [tuple(body["prompt"][:16]) for _, _, body in engine.asked]
    assert len(set(prompts)) == len(prompts)
    assert found["requests"]["failed"] == 0 and found["end"] == "time"
    assert found["speeds"]["prefill_tok_s"] > 0
    # there is no NVML here, and without the cards' readings nothing is claimed
    assert (verdict["what"], verdict["outcome"]) == ("nothing", "inconclusive")
    assert "NVML does not answer" in verdict["says"]


def nvml(tmp_path, lost=None, hangs=None):
    (tmp_path / "lib/tandem/pynvml.py").write_text(PYNVML.format(lost=lost, hangs=hangs))


def test_the_cards_are_watched(run, tmp_path):
    nvml(tmp_path)
    found, _ = run()
    assert found["nvml"] is None and [gpu["index"] for gpu in found["gpus"]] == [0, 1]
    assert found["gpus"][1]["sm_mhz"]["max"] == 2001
    assert found["gpus"][1]["events"] == {"sw_power_cap": 1.0, "board_limit": 1.0}


def test_f9_a_lost_card_is_named_and_the_other_is_watched(run, tmp_path):
    nvml(tmp_path, lost=0)
    found, _ = run()
    assert found["nvml"].startswith("GPU 0 has fallen off the bus (NVML error 15): power the box off and on")
    (gpu,) = found["gpus"]
    assert (gpu["index"], gpu["sm_mhz"]["max"]) == (1, 2001)


def test_f22_a_driver_that_hangs_stops_the_samples_and_not_the_load(run, tmp_path):
    nvml(tmp_path, hangs=1)
    found, _ = run(2.0)
    assert "did not answer within 0.5 s (last call: nvmlDeviceGetPowerUsage on GPU 1)" in found["nvml"]
    assert found["end"] == "time" and found["requests"]["failed"] == 0


@pytest.mark.parametrize("behaviour", ["refuse", "abort", "truncate"])
def test_an_answer_that_is_none_is_a_failed_request(run, engine, behaviour):
    engine.behaviour = lambda number: behaviour if number == 2 else "answer"
    found, verdict = run()
    assert found["requests"]["failed"] == 1 and verdict["what"] == "requests"
    assert ("simulated refusal" if behaviour == "refuse" else "broke off") in verdict["says"]


def test_an_engine_that_stops_answering_did_not_survive(run, engine):
    engine.behaviour = lambda number: "hang" if number > 1 else "answer"
    found, _ = run(2.0)
    assert found["requests"]["completed"] == 1 and found["requests"]["failed"] == 0
    assert found["waiting"].pop("age_s") > 1
    assert found["waiting"] == {"prompt_tokens": 4700, "at_once": 3, "estimated_s": 0.2}
    # as after a run that was long enough to tell
    assert stress_verdict({**found, "waiting": {**found["waiting"], "age_s": 31.0}})["what"] == "hang"


def test_an_exception_is_the_last_word(run, tmp_path):
    (tmp_path / "bin/journalctl").unlink()
    found, verdict = run(path=f"{tmp_path}/bin")
    assert "journalctl" in found["end"] and (verdict["what"], verdict["outcome"]) == ("error", "inconclusive")


def test_an_engine_that_was_started_anew_ends_the_run(run, tmp_path):
    found, verdict = run(30, meanwhile=lambda: (tmp_path / "invocation").write_text("two"))
    assert verdict["what"] == "engine" and "was started anew" in verdict["says"]
    assert found["last_s"] < 10


def test_an_xid_ends_the_run(run, tmp_path):
    def report():
        (tmp_path / "xid.new").write_text("NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.\n")
        (tmp_path / "xid.new").rename(tmp_path / "xid")

    _, verdict = run(30, meanwhile=report)
    assert verdict["what"] == "xid" and "Xid 79" in verdict["says"]


def test_an_engine_that_does_not_serve_is_not_put_under_stress(run, tmp_path):
    (tmp_path / "bin/systemctl").write_text(SYSTEMCTL.replace("active\\n", "failed\\n"))
    found, verdict = run()
    assert verdict["what"] == "error" and "vllm-main.service is failed, not active" in verdict["says"]
    assert found["requests"]["completed"] == 0
