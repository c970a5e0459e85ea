"""Results of measurements, as role bench makes them, to be spoilt by tests."""


def a_recipe(**over):
    return {
        "figure": "decode_tok_s",
        "prompts": "chat",
        "input_tokens": None,
        "output_tokens": 128,
        "requests": 4,
        "concurrency": 1,
        **over,
    }


def gpu(index=0, **over):
    return {
        "index": index,
        "uuid": f"GPU-{index}",
        "samples": 20,
        "sm_mhz": {"min": 2085, "median": 2100, "max": 2100},
        "power_w": {"min": 170, "median": 180, "max": 190},
        "temperature_c": {"min": 50, "median": 55, "max": 60},
        "utilization": {"min": 90, "median": 97, "max": 99},
        "events": {},
        **over,
    }


def run(value, seed=0, **over):
    return {
        "seed": seed,
        "value": value,
        "completed": 4,
        "failed": 0,
        "aborted": 0,
        "input_tokens": 400,
        "output_tokens": 512,
        "prefix_cache_hit_rate": 0.0,
        "other_requests": 0,
        "other_tokens": 0,
        "most_in_flight": 1,
        "nvml": "",
        "gpus": [gpu(0), gpu(1)],
        **over,
    }


def case(values, acceptance=None, expects="decode_tok_s", recipe=None, **over):
    """`over` goes into every run."""
    return {
        "recipe": recipe or a_recipe(),
        "expects": expects,
        "value": sorted(values)[len(values) // 2],
        "acceptance": acceptance,
        "runs": [run(value, seed, **over) for seed, value in enumerate(values)],
    }


def result(values, lock_mhz=2100, **over):
    return {"lock_mhz": lock_mhz, "cases": {"decode_chat": case(values, **over)}}
