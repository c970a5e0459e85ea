"""Filter unknown_role_variables: misspelled role variables."""

import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "plugins" / "filter" / "role_variables.py"
SPEC = importlib.util.spec_from_file_location("role_variables", PATH)
MODULE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(MODULE)
unknown_role_variables = MODULE.FilterModule().filters()["unknown_role_variables"]

OPTIONS = {"box_name": {"type": "str"}, "box_cards": {"type": "dict", "options": {"count": {"type": "int"}}}}
SHAPES = {
    "file": {"argument_specs": {"main": {"options": OPTIONS}, "verify": {"options": {"box_seconds": {}}}}},
    "entry points": {"main": {"options": OPTIONS}, "verify": {"options": {"box_seconds": {}}}},
    "options": {**OPTIONS, "box_seconds": {}},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_known_names_pass(shape):
    assert unknown_role_variables(["box_name", "box_cards", "box_seconds"], SHAPES[shape]) == []


@pytest.mark.parametrize("shape", SHAPES)
def test_a_misspelled_name_is_told_with_the_nearest(shape):
    assert unknown_role_variables(["box_name", "box_crads"], SHAPES[shape]) == [
        "box_crads is not a variable of this role: did you mean box_cards?"
    ]


def test_a_name_like_none_of_them_is_told_with_all():
    (sentence,) = unknown_role_variables(["box_zzzzzzzzzz"], SHAPES["file"])
    assert sentence.endswith("known are box_cards, box_name, box_seconds.")


def test_each_name_once_and_in_order():
    sentences = unknown_role_variables(["box_b_x", "box_a_x", "box_b_x"], SHAPES["file"])
    assert [sentence.split()[0] for sentence in sentences] == ["box_a_x", "box_b_x"]


def test_a_role_without_variables_knows_none():
    assert len(unknown_role_variables(["box_name"], {"argument_specs": {"main": {}}})) == 1
