"""The simulated engine: continuous batching in simulated seconds, over the speeds of speeds.json.

Up to max_num_seqs requests run, as far as their blocks fit the pool; the others wait in their order. Prefill is one
request's at a time, in chunks, at the speed of the cards' clock then; decode goes in steps, each of which yields one
token and as many drafts as are accepted.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import math
import random

from . import text
from .cards import NoCards
from .faults import LONG_PROMPT


class Failed(Exception):
    """The request ends with this status and message; nothing was sent yet or an error event is."""

    def __init__(self, message, status=500):
        super().__init__(message)
        self.status = status


class Job:
    """One request. prompt: token ids; pieces: function that gives an iterator of its tokens; limit: most of them."""

    def __init__(self, prompt, pieces, limit):
        self.prompt, self.pieces, self.limit = prompt, pieces, limit
        self.wake, self.aborted, self.error, self.cached = None, False, None, 0
        # of the pool: what it needs in the end, which lets it in or not, and what it has so far, which /metrics shows
        self.blocks, self.held = 0, 0


class Engine:
    def __init__(self, settings, speeds, cards, metrics, faults, scale, on_death, on_power_failure, power_mhz=None):
        """settings: max_num_seqs, chunk, block_size, blocks, state_blocks, prefix (bool), memory_mib.
        scale: simulated seconds per second. power_mhz: highest clock lock that the power supply survives; None: any."""
        self.settings, self.speeds, self.cards, self.metrics, self.faults = settings, speeds, cards, metrics, faults
        self.scale, self.on_death, self.on_power_failure, self.power_mhz = scale, on_death, on_power_failure, power_mhz
        self.running, self.waiting = set(), collections.deque()
        self.prefilling, self.decoding, self.corruptions = asyncio.Lock(), 0, 0
        self.cache = collections.OrderedDict()  # hashes of whole blocks, the oldest first
        self.mhz, self.read_at, self.draining, self.dead = None, -math.inf, False, False

    # ---- time ----

    def now(self):
        return asyncio.get_running_loop().time() * self.scale

    async def until(self, job, when):
        """Sleep until a simulated time, or until the job is to end."""
        loop = asyncio.get_running_loop()
        delay = (when - self.now()) / self.scale
        if job.aborted or job.error:
            return
        if delay <= 0:
            await asyncio.sleep(0)
            return
        job.wake = loop.create_future()
        timer = loop.call_later(delay, lambda: job.wake.done() or job.wake.set_result(None))
        try:
            await job.wake
        finally:
            timer.cancel()
            job.wake = None

    def stop(self, job, error=None):
        job.aborted, job.error = not error, error
        if job.wake and not job.wake.done():
            job.wake.set_result(None)

    def stop_all(self, error=None):
        """Every request ends now: with finish_reason abort, or with an error."""
        for job in [*self.running, *self.waiting]:
            self.stop(job, error)

    # ---- cards ----

    def put_load(self):
        load = self.speeds.data["load"]
        now = load["prefill"] if self.prefilling.locked() else load["decode"] if self.decoding else load["idle"]
        if now != getattr(self, "load", None):
            self.load = now
            with contextlib.suppress(OSError):
                self.cards.hold(self.settings["memory_mib"], now)
            self.read_at = -math.inf

    async def clock(self):
        """The cards' clock, read at most every half second; from a thread, as NVML may hang."""
        loop = asyncio.get_running_loop()
        if loop.time() - self.read_at > 0.5:
            self.read_at = loop.time()
            try:
                self.mhz = await loop.run_in_executor(None, self.cards.clock)
            except NoCards as error:
                self.die(f"CUDA error: {error}")
        return self.mhz

    def die(self, why):
        if not self.dead:
            self.dead = True
            self.stop_all(Failed("EngineCore encountered an issue. See stack trace (above) for the root cause."))
            self.on_death(why)

    # ---- a request's way ----

    def usage(self):
        """Share of the pool that is in use: it grows with every chunk of a prompt, then with the answer."""
        return min(1.0, sum(job.held for job in self.running) / max(self.settings["blocks"], 1))

    def blocks_of(self, tokens):
        """What a request takes of the pool once that many of its tokens are computed, or are about to be."""
        blocks = math.ceil(tokens / self.settings["block_size"]) + self.settings["state_blocks"]
        return min(blocks, self.settings["blocks"])

    def pump(self):
        """Let in who fits, in order."""
        settings = self.settings
        while self.waiting and len(self.running) < settings["max_num_seqs"]:
            job = self.waiting[0]
            used = sum(other.blocks for other in self.running)
            if self.running and used + job.blocks > settings["blocks"]:
                return
            self.waiting.popleft()
            self.running.add(job)
            if job.wake and not job.wake.done():
                job.wake.set_result(None)

    def lookup(self, job):
        """Tokens of the prompt that the prefix cache has; remembers its whole blocks."""
        size = self.settings["block_size"]
        if not self.settings["prefix"]:
            return 0
        known, still, key = 0, True, 0
        for start in range(0, len(job.prompt) - size + 1, size):
            key = hash((key, tuple(job.prompt[start : start + size])))
            if still and key in self.cache:
                known += size
            else:
                still = False
            self.cache[key] = True
            self.cache.move_to_end(key)
        while len(self.cache) > self.settings["blocks"]:
            self.cache.popitem(last=False)
        # the last token is always computed
        known = min(known, len(job.prompt) - 1)
        self.metrics.count("prefix_cache_queries", len(job.prompt))
        self.metrics.count("prefix_cache_hits", known)
        return known

    async def run(self, job):
        """Yields (tokens of a step, finish reason or None); the last with stop, length or abort. Raises Failed."""
        job.blocks = self.blocks_of(len(job.prompt) + job.limit)
        arrived, first, reason, made = self.now(), None, "abort", 0
        if self.dead:
            raise Failed("EngineCore encountered an issue. See stack trace (above) for the root cause.")
        self.waiting.append(job)
        self.pump()
        try:
            while job not in self.running and not job.aborted and not job.error:
                await self.turn(job)
            started = self.now()
            await self.prefill(job)
            prefilled = last = self.now()
            async for pieces, ended in self.decode(job):
                now = self.now()
                if first is None:
                    first = now
                    self.metrics.observe("time_to_first_token_seconds", first - arrived)
                else:
                    self.metrics.observe("inter_token_latency_seconds", now - last)
                last = now
                made += len(pieces)
                self.metrics.count("generation_tokens", len(pieces))
                self.metrics.observe(
                    "iteration_tokens_total", len(pieces) + (len(job.prompt) if made == len(pieces) else 0)
                )
                yield pieces, ended
                if ended:
                    reason = ended
                    break
            self.finished(job, made, arrived, started, prefilled, first or last, last)
        except Failed:
            reason = "error"
            raise
        finally:
            self.running.discard(job)
            if job in self.waiting:
                self.waiting.remove(job)
            self.metrics.count("request_success", 1, reason)
            self.pump()
            self.put_load()

    async def turn(self, job):
        job.wake = asyncio.get_running_loop().create_future()
        try:
            await job.wake
        finally:
            job.wake = None

    async def prefill(self, job):
        long = len(job.prompt) > LONG_PROMPT
        if job.error:
            raise job.error
        if long and "long-500" in self.faults:
            raise Failed("simulated fault long-500")
        if "hang" in self.faults:
            while not job.aborted and not job.error:
                await self.turn(job)
        async with self.prefilling:
            self.put_load()
            if job.aborted:
                return
            if long and self.faults & {"oom", "illegal-instruction"}:
                self.die("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
            job.cached = self.lookup(job)
            when = self.now() + self.speeds.data["request_overhead_s"]["value"]
            left = len(job.prompt) - job.cached
            power = self.speeds.data["power"]
            if self.power_mhz and left > power["prompt_tokens"] and not self.cards.survives(power, self.power_mhz):
                self.on_power_failure(left)
            while left > 0 and not job.aborted and not job.error:
                chunk = min(left, self.settings["chunk"])
                when += chunk / self.speeds.prefill_tok_s(await self.clock())
                left -= chunk
                # as vLLM: blocks for a chunk are taken when it is scheduled
                job.held = self.blocks_of(len(job.prompt) - left)
                await self.until(job, when)
        self.put_load()
        if job.error:
            raise job.error
        if long:
            self.corruptions += "corrupt" in self.faults
        computed = len(job.prompt) - job.cached
        self.metrics.count("prompt_tokens", len(job.prompt))
        self.metrics.count("prompt_tokens_by_source", computed, "local_compute")
        self.metrics.count("prompt_tokens_by_source", job.cached, "local_cache_hit")
        self.metrics.count("prompt_tokens_cached", job.cached)
        self.metrics.count("prompt_tokens_cached_by_source", job.cached, "device")
        self.metrics.observe("request_prefill_kv_computed_tokens", computed)

    async def decode(self, job):
        """Yields (tokens, finish reason or None); the last with a reason."""
        speeds = self.speeds
        chance = random.Random(text.digest(job.prompt, "drafts"))
        pieces, made, when = iter(job.pieces()), 0, self.now()
        upcoming = next(pieces, None)
        self.decoding += 1
        self.put_load()
        try:
            while True:
                step = []
                accepted = self.accepted(chance) if made else 0  # the first token comes out of the prefill
                while upcoming is not None and len(step) < 1 + accepted and made + len(step) < job.limit:
                    step.append(upcoming)
                    upcoming = next(pieces, None)
                made += len(step)
                job.held = self.blocks_of(len(job.prompt) + made)
                if job.error:
                    raise job.error
                if job.aborted:
                    yield [], "abort"
                    return
                if upcoming is None or made >= job.limit:
                    yield step, "stop" if upcoming is None else "length"
                    return
                yield step, None
                when = max(when, self.now() - 0.1 * self.scale) + speeds.decode_step_s(
                    self.decoding, await self.clock()
                )
                await self.until(job, when)
        finally:
            self.decoding -= 1
            self.put_load()

    def accepted(self, chance):
        """Drafts accepted in this step, counted as vLLM's metrics do."""
        drafts = self.speeds.drafts
        if not drafts:
            return 0
        accepted = 0
        while accepted < drafts and chance.random() < self.speeds.chance:
            accepted += 1
        self.metrics.count("spec_decode_num_drafts")
        self.metrics.count("spec_decode_num_draft_tokens", drafts)
        self.metrics.count("spec_decode_num_accepted_tokens", accepted)
        for position in range(accepted):
            self.metrics.count("spec_decode_num_accepted_tokens_per_pos", 1, str(position))
        return accepted

    def finished(self, job, made, arrived, started, prefilled, first, last):
        observe = self.metrics.observe
        observe("request_prompt_tokens", len(job.prompt))
        observe("request_generation_tokens", made)
        observe("request_max_num_generation_tokens", made)
        observe("request_params_n", 1)
        observe("request_params_max_tokens", job.limit)
        observe("e2e_request_latency_seconds", last - arrived)
        observe("request_queue_time_seconds", started - arrived)
        observe("request_inference_time_seconds", last - started)
        observe("request_prefill_time_seconds", prefilled - started)
        observe("request_decode_time_seconds", last - first)
        observe("request_num_preemptions", 0)
        if made > 1:
            observe("request_time_per_output_token_seconds", (last - first) / (made - 1))
