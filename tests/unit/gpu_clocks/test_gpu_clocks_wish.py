"""Settings that make no sense on any card: one sentence each, naming the setting, its value and the way out."""

import ast
from pathlib import Path

import pytest
from ansible.module_utils.tandem_gpu_wish import Wish, WishError
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"min_mhz": 2600, "max_mhz": 2100}, "p_min_mhz (2600) is above p_max_mhz (2100)"),
        ({}, "p_max_mhz is missing"),
        ({"max_mhz": 0}, "p_max_mhz (0) would stop the GPU"),
        ({"max_mhz": -1}, "p_max_mhz (-1) is out of range: give MHz from 0 to 20000"),
        ({"max_mhz": 2**32}, "p_max_mhz (4294967296) is out of range"),
        ({"max_mhz": "fast"}, "p_max_mhz (fast) is no whole number"),
        ({"max_mhz": 2100.5}, "p_max_mhz (2100.5) is no whole number"),
        ({"max_mhz": True}, "p_max_mhz (True) is no whole number"),
        ({"max_mhz": 2100, "memory_min_mhz": 405}, "p_memory_min_mhz is set without p_memory_max_mhz"),
        ({"max_mhz": 2100, "memory_required": True}, "p_memory_required is set without p_memory_max_mhz"),
        (
            {"max_mhz": 2100, "memory_min_mhz": 5001, "memory_max_mhz": 405},
            "p_memory_min_mhz (5001) is above p_memory_max_mhz (405)",
        ),
        ({"max_mhz": 2100, "power_limit_w": 0}, "p_power_limit_w (0) is no power limit"),
        ({"max_mhz": 2100, "power_limit_w": "lots"}, "p_power_limit_w (lots) is no power limit"),
        ({"max_mhz": 2100, "power_limit_w": float("nan")}, "is no power limit"),
        ({"max_mhz": 2100, "persistence_mode": "maybe"}, "p_persistence_mode (maybe) must be true or false"),
        ({"max_mhz": 2100, "state": "frozen"}, "p_state (frozen) must be locked or unlocked"),
        ({"max_mhz": 2100, "gpus": []}, "p_gpus ([]) must be all, or a list"),
        ({"max_mhz": 2100, "gpus": ["GPU-123"]}, "'GPU-123'"),
        ({"max_mhz": 2100, "gpus": ["all", 0]}, "holds all beside other entries"),
        ({"max_mhz": 2100, "gpus": [1, "1"]}, "names a GPU twice"),
        ({"max_mhz": 2100, "gpus": [0, 1], "expected_gpus": 1}, "p_expected_gpus (1) is fewer than the 2 entries"),
        ({"max_mhz": 2100, "expected_gpus": 0}, "p_expected_gpus (0) is out of range"),
        ({"max_mhz": 2100, "min_mzh": 5}, "p_min_mzh is not a setting: known are expected_gpus"),
    ],
)
def test_refused(options, sentence):
    with pytest.raises(WishError) as caught:
        Wish.parse(options, "p_")
    assert len(caught.value.problems) == 1
    assert sentence in caught.value.problems[0]


def test_every_fault_is_told_at_once():
    with pytest.raises(WishError) as caught:
        Wish.parse({"max_mhz": -1, "power_limit_w": "x", "gpus": []})
    assert len(caught.value.problems) == 3


def test_strings_as_templates_make_them():
    wish = Wish.parse({"max_mhz": "2100", "min_mhz": " 0 ", "power_limit_w": "350", "persistence_mode": "yes"})
    assert wish == Wish(max_mhz=2100, power_limit_w=350, persistence_mode=True)


def test_unlocked_needs_no_clock():
    wish = Wish.parse({"state": "unlocked"})
    assert wish.gpu_lock is None and wish.memory_lock is None


@given(
    st.fixed_dictionaries(
        {"max_mhz": st.integers(1, 20000)},
        optional={
            "memory_max_mhz": st.integers(0, 20000),
            "power_limit_w": st.one_of(st.just("default"), st.floats(1, 2000)),
            "gpus": st.just([0, 1]),
            "strict_steps": st.booleans(),
        },
    )
)
def test_desired_state_file_reads_back(options):
    wish = Wish.parse(options)
    assert Wish.parse(wish.as_dict()) == wish


@pytest.mark.parametrize("path", sorted((ROOT / "module_utils").glob("tandem_gpu_*.py")), ids=lambda path: path.name)
def test_runs_on_the_boxes_python(path):
    """The grammar of Python 3.9, and no annotation evaluated at run time that 3.9 could not."""
    text = path.read_text()
    ast.parse(text, feature_version=(3, 9))
    assert "from __future__ import annotations" in text
