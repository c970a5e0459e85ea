"""What the simulated engine can be told to do wrong. Names are those of SIM_FAULT and POST /sim/fault."""

from __future__ import annotations

FAULTS = {
    "never-ready": "loads for ever: no port opens",
    "exit-at-start": "ends with a traceback and exit code 1 while it loads",
    "crash-loop": "ends with exit code 0 five seconds after it was ready, as vLLM does when its engine dies",
    "hang": "healthy, and no completion is ever answered",
    "long-500": "answers prompts above 1000 tokens with 500",
    "corrupt": "each prompt above 1000 tokens changes the answers to everything after it",
    "exclamations": "answers consist of exclamation marks",
    "no-tool-call": "answers in text where a tool must be called",
    "low-acceptance": "10 % of the drafts are accepted, and decode is as slow as that makes it",
    "half-speed": "prefill and decode take twice as long",
    "cache-dtype": "vllm:cache_config_info says auto, whatever was asked for",
    "oom": "a prompt above 1000 tokens ends the engine, exit code 0",
    "illegal-instruction": "a prompt above 1000 tokens ends a child by SIGILL, and then the engine, exit code 0",
}
LONG_PROMPT = 1000


def check(names):
    """The set of these names. Raises ValueError naming an unknown one and those that exist."""
    for name in names:
        if name not in FAULTS:
            raise ValueError(f"simulated fault {name!r} does not exist; there are {', '.join(FAULTS)}")
    return set(names)


def from_environment(text):
    return check([name.strip() for name in (text or "").split(",") if name.strip()])
