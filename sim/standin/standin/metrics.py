"""/metrics under vLLM's names and labels, in Prometheus' text format. Times are simulated seconds."""

from __future__ import annotations

import time

SECONDS = [
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    20.0,
    40.0,
    80.0,
    160.0,
    640.0,
    2560.0,
]
STEPS = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0]
LONG = [
    0.3,
    0.5,
    0.8,
    1.0,
    1.5,
    2.0,
    2.5,
    5.0,
    10.0,
    15.0,
    20.0,
    30.0,
    40.0,
    50.0,
    60.0,
    120.0,
    240.0,
    480.0,
    960.0,
    1920.0,
    7680.0,
]
COUNTS = [m * 10**e for e in range(6) for m in (1, 2, 5)]

HISTOGRAMS = {
    "request_prompt_tokens": COUNTS,
    "request_generation_tokens": COUNTS,
    "iteration_tokens_total": [1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384],
    "request_max_num_generation_tokens": COUNTS,
    "request_params_n": [1, 2, 5, 10, 20],
    "request_params_max_tokens": COUNTS,
    "time_to_first_token_seconds": SECONDS,
    "inter_token_latency_seconds": STEPS,
    "request_time_per_output_token_seconds": STEPS,
    "e2e_request_latency_seconds": LONG,
    "request_queue_time_seconds": LONG,
    "request_inference_time_seconds": LONG,
    "request_prefill_time_seconds": LONG,
    "request_decode_time_seconds": LONG,
    "request_num_preemptions": [1, 2, 5, 10, 20],
    "request_prefill_kv_computed_tokens": COUNTS,
}
#: name -> the label that vLLM gives it besides engine and model_name, and its values
COUNTERS = {
    "estimated_flops_per_gpu": None,
    "estimated_read_bytes_per_gpu": None,
    "estimated_write_bytes_per_gpu": None,
    "prefix_cache_queries": None,
    "prefix_cache_hits": None,
    "external_prefix_cache_queries": None,
    "external_prefix_cache_hits": None,
    "mm_cache_queries": None,
    "mm_cache_hits": None,
    "num_preemptions": None,
    "prompt_tokens": None,
    "prompt_tokens_by_source": ("source", ("local_compute", "local_cache_hit", "external_kv_transfer")),
    "prompt_tokens_cached": None,
    "prompt_tokens_cached_by_source": ("source", ("device", "host", "p2p", "disk", "external_unspecified")),
    "generation_tokens": None,
    "request_success": ("finished_reason", ("stop", "length", "abort", "error", "repetition")),
}
SPECULATION = ("spec_decode_num_drafts", "spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens")


class Metrics:
    def __init__(self, model, drafts, cache_config):
        """cache_config: a function that gives the labels of vllm:cache_config_info."""
        self.model, self.drafts, self.cache_config = model, drafts, cache_config
        self.created = time.time()
        self.counters = {}
        for name, label in COUNTERS.items():
            for value in label[1] if label else (None,):
                self.counters[name, value] = 0.0
        if drafts:
            self.counters.update({(name, None): 0.0 for name in SPECULATION})
            self.counters.update({("spec_decode_num_accepted_tokens_per_pos", str(i)): 0.0 for i in range(drafts)})
        self.histograms = {name: [[0] * (len(bounds) + 1), 0.0] for name, bounds in HISTOGRAMS.items()}
        self.http = {}

    def count(self, name, by=1, label=None):
        self.counters[name, label] += by

    def observe(self, name, value, times=1):
        counts, _ = self.histograms[name]
        for index, bound in enumerate(HISTOGRAMS[name]):
            if value <= bound:
                counts[index] += times
                break
        else:
            counts[-1] += times
        self.histograms[name][1] += value * times

    def request(self, method, handler, status):
        key = method, handler, f"{status // 100}xx"
        self.http[key] = self.http.get(key, 0) + 1

    def labels(self, **more):
        every = {"engine": "0", "model_name": self.model, **more}
        return "{" + ",".join(f'{name}="{escape(value)}"' for name, value in sorted(every.items())) + "}"

    def text(self, running, waiting, usage):
        lines = []

        def family(name, kind):
            lines.append(f"# HELP {name} simulated")
            lines.append(f"# TYPE {name} {kind}")

        for name, value in (("num_requests_running", running), ("num_requests_waiting", waiting)):
            family(f"vllm:{name}", "gauge")
            lines.append(f"vllm:{name}{self.labels()} {float(value)}")
        family("vllm:num_requests_waiting_by_reason", "gauge")
        for reason, value in (("capacity", waiting), ("deferred", 0)):
            lines.append(f"vllm:num_requests_waiting_by_reason{self.labels(reason=reason)} {float(value)}")
        family("vllm:engine_sleep_state", "gauge")
        for state, value in (("awake", 1.0), ("weights_offloaded", 0.0), ("discard_all", 0.0)):
            lines.append(f"vllm:engine_sleep_state{self.labels(sleep_state=state)} {value}")
        family("vllm:kv_cache_usage_perc", "gauge")
        lines.append(f"vllm:kv_cache_usage_perc{self.labels()} {usage}")
        last = None
        for (name, value), count in self.counters.items():
            if name != last:
                family(f"vllm:{name}_total", "counter")
            last = name
            label = (COUNTERS.get(name) or ("position", ()))[0]
            lines.append(f"vllm:{name}_total{self.labels(**({label: value} if value is not None else {}))} {count}")
        family("vllm:admission_rejections_total", "counter")
        for reason in ("max_num_queued_reqs", "max_num_queued_tokens"):
            lines.append(f'vllm:admission_rejections_total{{model_name="{escape(self.model)}",reason="{reason}"}} 0.0')
        for name, (counts, total) in self.histograms.items():
            family(f"vllm:{name}", "histogram")
            so_far = 0
            for bound, count in zip([*map(float, HISTOGRAMS[name]), "+Inf"], counts, strict=True):
                so_far += count
                lines.append(f"vllm:{name}_bucket{self.labels(le=bound)} {float(so_far)}")
            lines.append(f"vllm:{name}_count{self.labels()} {float(so_far)}")
            lines.append(f"vllm:{name}_sum{self.labels()} {total}")
        family("vllm:cache_config_info", "gauge")
        info = ",".join(
            f'{key}="{escape(value)}"' for key, value in sorted({"engine": "0", **self.cache_config()}.items())
        )
        lines.append(f"vllm:cache_config_info{{{info}}} 1.0")
        family("process_start_time_seconds", "gauge")
        lines.append(f"process_start_time_seconds {self.created}")
        family("http_requests_total", "counter")
        for (method, handler, status), count in self.http.items():
            lines.append(
                f'http_requests_total{{handler="{handler}",method="{method}",status="{status}"}} {float(count)}'
            )
        return "\n".join(lines) + "\n"


def escape(value):
    return str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
