"""How fast the simulated engine is: speeds.json, the configuration and the cards' clock, nothing else. Pure."""

from __future__ import annotations

import itertools
import json
import math
import pathlib

FILE = pathlib.Path(__file__).resolve().parent.parent / "speeds.json"


def load(path=FILE):
    return json.loads(path.read_text())


def at_clock(points, mhz):
    """Factor at a clock, from [[MHz, factor], ...] in rising order: straight between, proportional below, then flat."""
    if mhz is None or mhz >= points[-1][0]:
        return points[-1][1]
    if mhz <= points[0][0]:
        return points[0][1] * mhz / points[0][0]
    for (low, at_low), (high, at_high) in itertools.pairwise(points):
        if mhz <= high:
            return at_low + (at_high - at_low) * (mhz - low) / (high - low)
    raise AssertionError("unreachable: mhz is below the last point")


def chance_of(acceptance, drafts):
    """The p with which accepted over drafted is `acceptance` where each draft is accepted with p, and only after those
    before it: p + p^2 + ... + p^drafts = acceptance * drafts, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if sum(middle**k for k in range(1, drafts + 1)) < acceptance * drafts:
            low = middle
        else:
            high = middle
    return (low + high) / 2


class Speeds:
    """Speeds of one configuration.

    kv: "fp8" or "16-bit". drafts: speculative tokens per step, 0 for none. tensor_parallel: cards.
    """

    def __init__(self, data, kv, drafts, tensor_parallel, half=False, acceptance=None):
        self.data, self.kv, self.drafts = data, kv, drafts
        by_drafts = data["draft_tokens"]["relative_speed"]
        by_cards = data["cards"]["relative_speed"]
        self.healthy_acceptance = data["decode"][kv]["acceptance"] if drafts else None
        self.acceptance = self.healthy_acceptance if acceptance is None or not drafts else acceptance
        #: of a draft, to be accepted after all before it were
        self.chance = chance_of(self.acceptance, drafts) if drafts else 0.0
        self.factor = by_cards.get(str(tensor_parallel), 1.0) * (0.5 if half else 1.0)
        known = by_drafts.get(str(drafts), by_drafts[max(by_drafts)])
        #: seconds of one decode step of one stream, at full clock; it takes as long whether drafts are accepted or not
        self.step_s = self.mean_length(self.healthy_acceptance) / (data["decode"][kv]["tok_s"] * known * self.factor)

    def mean_length(self, acceptance):
        """Tokens per decode step."""
        return 1 + self.drafts * (acceptance or 0)

    def decode_step_s(self, running, mhz):
        slowdown = 1 + self.data["batching"]["slowdown_per_further_stream"] * (max(running, 1) - 1)
        return self.step_s * slowdown / at_clock(self.data["clock"]["decode"], mhz)

    def decode_tok_s(self, running, mhz):
        """Of each stream."""
        return self.mean_length(self.acceptance) / self.decode_step_s(running, mhz)

    def prefill_tok_s(self, mhz):
        return self.data["prefill"][self.kv]["tok_s"] * self.factor * at_clock(self.data["clock"]["prefill"], mhz)


def memory_blocks(data, kv, drafts, tensor_parallel, utilization, prefix, kv_bytes=None):
    """(block size in tokens, blocks in the pool, state blocks per request, bytes of a block) of Qwen3.8-27B.

    As vLLM 0.25 to 0.28 make it of a card's memory: 48 GDN and 16 attention layers, which share blocks. kv_bytes: per
    card, else from the utilization.
    """
    page = (48 / tensor_parallel) * 128 * 128 * 4 + (10240 / tensor_parallel) * (3 + drafts) * 2
    per_token = 2 * (4 / tensor_parallel) * 256 * (1 if kv == "fp8" else 2)
    size = 16 * math.ceil(page / (16 * per_token))
    memory = data["memory"]
    if kv_bytes is None:
        gib = memory["kv_gib_per_card"] + (utilization - memory["at_utilization"]) * memory["card_mib"] / 1024
        kv_bytes = max(gib, 0) * 2**30
    block_bytes = (17 if drafts else 16) * size * per_token
    return size, int(kv_bytes // block_bytes), 3 * ((2 if prefix else 1) + drafts), block_bytes
