"""`vllm bench serve`, a subset, under vLLM's option names and with the keys of its result file; standard library only.

Times are simulated seconds: with SIM_TIME_SCALE=4 a run takes a quarter of the time and reports the same rates.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import statistics
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid

from .text import tokens

METRICS = {
    "ttft": "Time to First Token",
    "tpot": "Time per Output Token (excl. 1st token)",
    "itl": "Inter-token Latency",
}
DRAFTS, DRAFT_TOKENS, ACCEPTED = (
    f"vllm:spec_decode_num_{name}_total" for name in ("drafts", "draft_tokens", "accepted_tokens")
)
POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"


class Sample:
    def __init__(self, prompt, output_len, body=None):
        self.prompt, self.output_len, self.body = prompt, output_len, body
        self.prompt_len = len(tokens(prompt))
        self.started = self.ended = self.first = self.last = None
        self.itls, self.output_tokens, self.text, self.error = [], 0, "", ""


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="vllm bench serve", usage="vllm bench serve [options]", description="simulated: a subset of vLLM's"
    )
    add = parser.add_argument
    add("--backend", choices=("vllm", "openai", "openai-chat"), default="openai")
    add("--base-url")
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=8000)
    add("--endpoint", default="/v1/completions")
    add("--model")
    add("--served-model-name")
    add("--dataset-name", choices=("random", "custom", "sharegpt"), default="random")
    add("--dataset-path")
    add("--custom-output-len", type=int, default=256)
    add("--sharegpt-output-len", type=int)
    add("--random-input-len", type=int, default=1024)
    add("--random-output-len", type=int, default=128)
    add("--random-prefix-len", type=int, default=0)
    add("--random-range-ratio", type=float, default=0.0)
    add("--input-len", type=int)
    add("--output-len", type=int)
    add("--num-prompts", type=int, default=1000)
    add("--num-warmups", type=int, default=0)
    add("--max-concurrency", type=int)
    add("--request-rate", type=float, default=math.inf)
    add("--burstiness", type=float, default=1.0)
    add("--seed", type=int, default=0)
    add("--temperature", type=float)
    add("--extra-body", type=json.loads)
    add("--header", nargs="*")
    add("--label")
    add("--metadata", nargs="*")
    add("--result-dir")
    add("--result-filename")
    add("--percentile-metrics", default="ttft,tpot,itl")
    add("--metric-percentiles", default="99")
    add("--ready-check-timeout-sec", type=int, default=0)
    # taken and without meaning here: there is no tokenizer and no progress bar
    for option in ("tokenizer", "tokenizer-mode", "request-id-prefix", "goodput"):
        add(f"--{option}")
    for switch in (
        *("ignore-eos", "save-result", "save-detailed", "append-result", "disable-shuffle", "no-oversample"),
        *("disable-tqdm", "trust-remote-code", "skip-tokenizer-init", "skip-chat-template", "no-stream"),
    ):
        add(f"--{switch}", action="store_true")
    parsed = parser.parse_args(arguments)
    if parsed.num_prompts < 1:
        parser.error(f"argument --num-prompts: {parsed.num_prompts} is below 1")
    if parsed.dataset_name != "random" and not parsed.dataset_path:
        parser.error(f"--dataset-name {parsed.dataset_name} needs --dataset-path")
    return parsed


def random_prompt(chance, length):
    """Text of exactly that many of the stand-in's tokens."""
    words = ("".join(chance.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(4)) for _ in range(length))
    return " ".join(words)


def samples(options):
    chance = random.Random(options.seed)
    if options.dataset_name != "random":
        with open(options.dataset_path, encoding="utf-8") as file:
            if options.dataset_name == "custom":
                rows = [json.loads(line) for line in file if line.strip()]
                wanted = options.output_len or options.custom_output_len
            else:
                turns = [entry["conversations"] for entry in json.load(file) if len(entry.get("conversations", [])) > 1]
                rows = [{"prompt": a["value"], "output_tokens": len(tokens(b["value"]))} for a, b, *_ in turns]
                wanted = options.output_len or options.sharegpt_output_len or -1
        if not options.disable_shuffle:
            chance.shuffle(rows)
        made = [Sample(row["prompt"], wanted if wanted != -1 else int(row["output_tokens"])) for row in rows]
        if not options.no_oversample:
            repeated = [
                Sample(made[i % len(made)].prompt, made[i % len(made)].output_len) for i in range(options.num_prompts)
            ]
            return repeated
        return made[: options.num_prompts]
    prefix = random_prompt(chance, options.random_prefix_len)
    ratio = options.random_range_ratio

    def around(length):
        return max(1, chance.randint(math.floor(length * (1 - ratio)), math.ceil(length * (1 + ratio))))

    made = []
    for _ in range(options.num_prompts):
        body = random_prompt(chance, around(options.input_len or options.random_input_len))
        made.append(Sample(f"{prefix} {body}".strip(), around(options.output_len or options.random_output_len)))
    return made


class Client:
    """Streams one request at a time from an engine on this network. scale: simulated seconds per second."""

    def __init__(self, options, scale):
        self.options, self.scale = options, scale
        base = options.base_url or f"http://{options.host}:{options.port}"
        self.base = base.rstrip("/")
        parts = urllib.parse.urlsplit(self.base)
        if parts.scheme != "http":
            sys.exit(f"simulated: --base-url {base}: the stand-in's benchmark speaks http only")
        self.host, self.port = parts.hostname, parts.port or 80
        self.path = parts.path + options.endpoint
        key = os.environ.get("OPENAI_API_KEY")
        self.headers = dict(header.split("=", 1) for header in options.header or [])
        if key:
            self.headers["Authorization"] = f"Bearer {key}"

    def get(self, path):
        with urllib.request.urlopen(
            urllib.request.Request(self.base + path, headers=self.headers), timeout=30
        ) as answer:
            return answer.read().decode()

    def now(self):
        return time.perf_counter() * self.scale

    async def wait(self, seconds):
        """Until /health answers."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                return self.get("/health")
            except OSError as error:
                if time.monotonic() > deadline:
                    sys.exit(f"simulated: {self.base} does not answer after {seconds} s: {error}")
                await asyncio.sleep(0.5)

    def request(self, sample):
        options = self.options
        body = {"model": options.served_model_name or options.model, "stream": True}
        body["stream_options"] = {"include_usage": True}
        if options.backend == "openai-chat":
            body["messages"] = [{"role": "user", "content": sample.prompt}]
            body["max_completion_tokens"] = sample.output_len
        else:
            body["prompt"], body["max_tokens"] = sample.prompt, sample.output_len
        if options.ignore_eos:
            body["ignore_eos"] = True
        if options.temperature is not None:
            body["temperature"] = options.temperature
        body.update(options.extra_body or {})
        data = json.dumps(body).encode()
        head = [f"POST {self.path} HTTP/1.1", f"Host: {self.host}:{self.port}", "Connection: close"]
        head += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
        head += [f"{name}: {value}" for name, value in self.headers.items()]
        return ("\r\n".join(head) + "\r\n\r\n").encode() + data

    async def run(self, sample):
        sample.started = self.now()
        try:
            reader, writer = await asyncio.open_connection(self.host, self.port, limit=1 << 24)
            try:
                writer.write(self.request(sample))
                await self.read(reader, sample)
            finally:
                writer.close()
        except (OSError, ValueError, asyncio.IncompleteReadError) as error:
            sample.error = sample.error or f"{type(error).__name__}: {error}"
        sample.ended = sample.last or self.now()

    async def read(self, reader, sample):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status = int(head.split(" ", 2)[1])
        if status != 200:
            raise ValueError(f"{status} {(await reader.read(2000)).decode(errors='replace')}")
        done = False
        while line := await reader.readline():
            # a chunk's size stands on a line of its own: only lines of events count
            if not line.startswith(b"data: "):
                continue
            data = line[6:].strip()
            if data == b"[DONE]":
                done = True
                break
            self.take(json.loads(data), sample)
        if not done:
            raise ValueError("the stream ended without [DONE]")

    def take(self, event, sample):
        if "error" in event:
            raise ValueError(str(event["error"].get("message")))
        if event.get("usage"):
            sample.output_tokens = event["usage"]["completion_tokens"]
        for choice in event["choices"]:
            delta = choice.get("delta", choice)
            said = delta.get("text") or delta.get("content") or delta.get("reasoning") or ""
            if choice.get("finish_reason") == "abort":
                raise ValueError("aborted by the engine")
            if not said:
                continue
            now = self.now()
            if sample.first is None:
                sample.first = now
            else:
                sample.itls.append(now - sample.last)
            sample.last = now
            sample.text += said


async def run_all(client, made, options):
    limit = asyncio.Semaphore(options.max_concurrency or len(made))
    chance = random.Random(options.seed)

    async def one(sample, queued):
        async with limit:
            sample.queued = client.now() - queued
            await client.run(sample)

    running = []
    for sample in made:
        running.append(asyncio.ensure_future(one(sample, client.now())))
        if options.request_rate != math.inf:
            await asyncio.sleep(chance.expovariate(options.request_rate) / client.scale)
    await asyncio.gather(*running)


def speculation(client):
    """(drafts, draft tokens, accepted tokens, accepted by position), or None where /metrics has no such numbers."""
    found, positions = {}, {}
    try:
        page = client.get("/metrics")
    except (OSError, urllib.error.URLError):
        return None
    for line in page.splitlines():
        name, _, rest = line.partition("{")
        if name in (DRAFTS, DRAFT_TOKENS, ACCEPTED):
            found[name] = float(rest.rsplit(" ", 1)[1])
        elif name == POSITION:
            positions[int(rest.split('position="')[1].split('"')[0])] = float(rest.rsplit(" ", 1)[1])
    if len(found) < 3:
        return None
    return found[DRAFTS], found[DRAFT_TOKENS], found[ACCEPTED], positions


def speculation_result(before, after):
    if not before or not after or after[0] <= before[0]:
        return {}
    drafts, drafted, accepted = (after[i] - before[i] for i in range(3))
    return {
        "spec_decode_acceptance_rate": 100 * accepted / drafted,
        "spec_decode_acceptance_length": 1 + accepted / drafts,
        "spec_decode_num_drafts": int(drafts),
        "spec_decode_draft_tokens": int(drafted),
        "spec_decode_accepted_tokens": int(accepted),
        "spec_decode_per_position_acceptance_rates": [
            (after[3][position] - before[3].get(position, 0)) / drafts for position in sorted(after[3])
        ],
    }


def percentile(values, percent):
    """By linear interpolation, as numpy does."""
    ordered = sorted(values)
    at = (len(ordered) - 1) * percent / 100
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def statistics_of(name, values, percents):
    values = [1000 * value for value in values] or [0.0]
    made = {
        f"mean_{name}_ms": statistics.fmean(values),
        f"median_{name}_ms": statistics.median(values),
        f"std_{name}_ms": statistics.pstdev(values),
    }
    for percent in percents:
        made[f"p{percent:g}_{name}_ms"] = percentile(values, percent)
    return made


def most_tokens_in_a_second(good):
    seconds = {}
    for sample in good:
        at = sample.first
        for wait in [0.0, *sample.itls]:
            at += wait
            seconds[int(at)] = seconds.get(int(at), 0) + sample.output_tokens / (len(sample.itls) + 1)
    return max(seconds.values(), default=0.0)


def most_at_once(made):
    edges = sorted([(s.started, 1) for s in made] + [(s.ended, -1) for s in made])
    now = most = 0
    for _, step in edges:
        now += step
        most = max(most, now)
    return most


def result_of(options, made, duration, scale):
    good = [sample for sample in made if not sample.error and sample.first is not None]
    generated = sum(sample.output_tokens for sample in good)
    read = sum(sample.prompt_len for sample in good)
    percents = [float(percent) for percent in options.metric_percentiles.split(",")]
    values = {
        "ttft": [s.first - s.started for s in good],
        "tpot": [(s.last - s.first) / (s.output_tokens - 1) for s in good if s.output_tokens > 1],
        "itl": [itl for s in good for itl in s.itls],
        "e2el": [s.ended - s.started for s in good],
    }
    result = {
        "date": time.strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": options.backend,
        "backend": options.backend,
        "label": options.label,
        "model_id": options.model,
        "tokenizer_id": options.tokenizer or options.model,
        "num_prompts": options.num_prompts,
        **dict(item.split("=", 1) for item in options.metadata or []),
        "request_rate": options.request_rate if options.request_rate < math.inf else "inf",
        "burstiness": options.burstiness,
        "max_concurrency": options.max_concurrency,
        "simulated": True,
        "sim_time_scale": scale,
        "duration": duration,
        "completed": len(good),
        "failed": len(made) - len(good),
        "total_input_tokens": read,
        "total_output_tokens": generated,
        "request_throughput": len(good) / duration,
        "request_goodput": None,
        "output_throughput": generated / duration,
        "total_token_throughput": (read + generated) / duration,
        "latencies": [s.ended - s.started for s in good],
        "queue_times": [s.queued for s in made],
        "max_output_tokens_per_s": most_tokens_in_a_second(good),
        "max_concurrent_requests": most_at_once(made),
        "rtfx": 0.0,
    }
    for name in options.percentile_metrics.split(","):
        if name in values:
            result.update(statistics_of(name, values[name], percents))
    if options.save_detailed:
        result.update(
            input_lens=[s.prompt_len for s in made],
            output_lens=[s.output_tokens for s in made],
            start_times=[s.started for s in made],
            ttfts=[(s.first or s.started) - s.started for s in made],
            itls=[s.itls for s in made],
            generated_texts=[s.text for s in made],
            errors=[s.error for s in made],
        )
    return result


def show(options, result):
    def line(words, value):
        print(f"{words:<40} {value:<10}" if isinstance(value, int) else f"{words:<40} {value:<10.2f}")

    print("======= Serving Benchmark Result (simulated) =======")
    line("Successful requests:", result["completed"])
    line("Failed requests:", result["failed"])
    if options.max_concurrency:
        line("Maximum request concurrency:", options.max_concurrency)
    line("Benchmark duration (s):", result["duration"])
    line("Total input tokens:", result["total_input_tokens"])
    line("Total generated tokens:", result["total_output_tokens"])
    line("Request throughput (req/s):", result["request_throughput"])
    line("Output token throughput (tok/s):", result["output_throughput"])
    line("Total token throughput (tok/s):", result["total_token_throughput"])
    for name, words in METRICS.items():
        if f"mean_{name}_ms" in result:
            print(f"--- {words} (simulated) ---")
            for key in sorted(key for key in result if key.endswith(f"_{name}_ms") and not key.startswith("std")):
                line(f"{key.split('_')[0].capitalize()} {name.upper()} (ms):", result[key])
    if "spec_decode_acceptance_rate" in result:
        print("--- Speculative Decoding (simulated) ---")
        line("Acceptance rate (%):", result["spec_decode_acceptance_rate"])
        line("Acceptance length:", result["spec_decode_acceptance_length"])
        line("Drafts:", result["spec_decode_num_drafts"])
    print("=" * 52)


def save(options, result):
    name = options.result_filename or f"{options.backend}-{options.request_rate}qps-{uuid.uuid4().hex[:8]}.json"
    path = os.path.join(options.result_dir or "", name)
    if options.result_dir:
        os.makedirs(options.result_dir, exist_ok=True)
    with open(path, "a" if options.append_result else "w", encoding="utf-8") as file:
        if options.append_result and file.tell():
            file.write("\n")
        json.dump(result, file)


async def benchmark(options, scale):
    client = Client(options, scale)
    if options.ready_check_timeout_sec:
        await client.wait(options.ready_check_timeout_sec)
    if not options.model:
        options.model = json.loads(client.get("/v1/models"))["data"][0]["id"]
    made = samples(options)
    for sample in made[: options.num_warmups]:
        await client.run(Sample(sample.prompt, sample.output_len))
    before = speculation(client)
    print("Starting main benchmark run (simulated)...", flush=True)
    started = client.now()
    await run_all(client, made, options)
    result = result_of(options, made, client.now() - started, scale)
    result.update(speculation_result(before, speculation(client)))
    for error in sorted({sample.error for sample in made if sample.error}):
        print(f"simulated: a request failed: {error}", file=sys.stderr)
    return result


def main(arguments):
    options = parse(arguments)
    scale = float(os.environ.get("SIM_TIME_SCALE") or 1)
    try:
        result = asyncio.run(benchmark(options, scale))
    except OSError as error:
        sys.exit(f"simulated: the engine does not answer: {error}")
    show(options, result)
    if options.save_result or options.append_result:
        save(options, result)
