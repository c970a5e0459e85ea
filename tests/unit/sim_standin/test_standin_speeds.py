"""The stand-in's speeds: the field report's figures, each with its source."""

import random

import pytest
from standin import speeds

DATA = speeds.load()


@pytest.mark.parametrize(
    ("kv", "mhz", "decode", "prefill"),
    [
        ("fp8", None, 67.6, 5016),
        ("fp8", 2520, 67.6, 5016),
        ("fp8", 2100, 67.6 * 0.9, 5016 * 0.87),
        ("16-bit", None, 31.7, 4230),
        ("fp8", 1050, 67.6 * 0.45, 5016 * 0.5 * 1050 / 1785),
    ],
)
def test_one_stream(kv, mhz, decode, prefill):
    made = speeds.Speeds(DATA, kv, drafts=2, tensor_parallel=2)
    assert made.decode_tok_s(1, mhz) == pytest.approx(decode)
    assert made.prefill_tok_s(mhz) == pytest.approx(prefill)


def test_each_further_stream_costs_the_others():
    made = speeds.Speeds(DATA, "fp8", 2, 2)
    each = [made.decode_tok_s(n, None) for n in range(1, 17)]
    assert each == sorted(each, reverse=True)
    together = [n * rate for n, rate in enumerate(each, 1)]
    assert together == sorted(together)


def test_drafts_that_are_refused_cost_their_step():
    healthy, poor = (speeds.Speeds(DATA, "fp8", 2, 2, acceptance=value) for value in (None, 0.1))
    assert healthy.decode_step_s(1, None) == poor.decode_step_s(1, None)
    assert poor.decode_tok_s(1, None) == pytest.approx(67.6 * 1.2 / 2.698)


@pytest.mark.parametrize(("acceptance", "drafts"), [(0.849, 2), (0.1, 2), (0.763, 4), (0.5, 1)])
def test_acceptance_is_accepted_over_drafted(acceptance, drafts):
    chance, draw, accepted = speeds.chance_of(acceptance, drafts), random.Random(1), 0
    for _ in range(20_000):
        for _ in range(drafts):
            if draw.random() >= chance:
                break
            accepted += 1
    assert accepted / (20_000 * drafts) == pytest.approx(acceptance, abs=0.01)


def test_the_pool_is_the_one_that_role_vllm_computes():
    size, blocks, state, _ = speeds.memory_blocks(DATA, "fp8", 2, 2, 0.93, prefix=True)
    assert (size, blocks, state) == (1600, 375, 12)
    assert speeds.memory_blocks(DATA, "fp8", 0, 2, 0.93, prefix=True)[:3:2] == (1568, 6)


def test_every_number_has_a_source():
    def walk(value, has_source):
        if isinstance(value, dict):
            has_source = has_source or "source" in value
            for name, item in value.items():
                if name not in ("source", "about"):
                    walk(item, has_source)
        else:
            assert has_source, value

    walk(DATA, False)
