"""Filter unknown_role_variables: misspelled role variables."""

from role_variables import unknown_role_variables  # plugins/filter/role_variables.py, see conftest.py

OPTIONS = {"box_name": {"type": "str"}, "box_cards": {"type": "dict", "options": {"count": {"type": "int"}}}}


def test_known_names_pass():
    assert unknown_role_variables(["box_name", "box_cards"], OPTIONS) == []


def test_a_misspelled_name_is_told_with_the_nearest():
    assert unknown_role_variables(["box_name", "box_crads"], OPTIONS) == [
        "box_crads is not a variable of this role: did you mean box_cards?"
    ]


def test_a_name_like_none_of_them_is_told_with_all():
    (sentence,) = unknown_role_variables(["box_zzzzzzzzzz"], OPTIONS)
    assert sentence.endswith("known are box_cards, box_name.")


def test_each_name_once_and_in_order():
    sentences = unknown_role_variables(["box_b_x", "box_a_x", "box_b_x"], OPTIONS)
    assert [sentence.split()[0] for sentence in sentences] == ["box_a_x", "box_b_x"]


def test_a_role_without_variables_knows_none():
    assert len(unknown_role_variables(["box_name"], {})) == 1
