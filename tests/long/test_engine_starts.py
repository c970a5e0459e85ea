"""The simulation's engine started often: with AMX a third of its starts died at the first prompt longer than a chunk.

On a processor without AMX it shows only that starts do not fail otherwise; tests/unit/sim_engine looks at the choice.
"""

import json
import urllib.request

import real_vllm
from real_vllm import FIELD_REPORT, KEY, docker

STARTS = 20
CHUNK = 4096  # --max-num-batched-tokens of FIELD_REPORT


def complete(engine, tokens):
    """A prompt of that many tokens, answered; no two of them begin alike."""
    prompt = [100 + (tokens + index * 7) % 100 for index in range(tokens)]
    body = {"model": "m", "prompt": prompt, "max_tokens": 4, "temperature": 0}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    request = urllib.request.Request(engine.url + "/v1/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)["choices"][0]["finish_reason"]


def test_every_start_serves_a_prompt_longer_than_a_chunk(tmp_path):
    assert real_vllm.why_not() is None
    model = real_vllm.make_model(tmp_path / "model")
    failed = []
    for start in range(1, STARTS + 1):
        engine = real_vllm.Container(tmp_path, model, FIELD_REPORT, options=["--env", "PYTHONFAULTHANDLER=1"])
        try:
            # a machine that is busy with a lab is no fault of an engine
            engine.wait_ready(900)
            for tokens in (CHUNK + 1, 2 * CHUNK + 1):
                assert complete(engine, tokens) == "length"
        except (OSError, AssertionError):
            log = docker("logs", engine.container)
            state = docker("inspect", "-f", "{{json .State}}", engine.container).stdout
            failed.append(f"start {start}: {state}{log.stdout[-3000:]}\n{log.stderr[-3000:]}")
        finally:
            engine.remove()
    assert not failed, f"{len(failed)} of {STARTS} starts failed\n" + "\n\n".join(failed)
