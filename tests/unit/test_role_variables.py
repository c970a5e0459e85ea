"""Filter unknown_role_variables: misspelled role variables."""

from role_variables import (
    misspelled_prefixes,
    unknown_role_variables,
)  # plugins/filter/role_variables.py, see conftest.py

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


def test_a_name_that_belongs_elsewhere_is_told_where():
    elsewhere = {"box_depth": "it is an option of boxes: box_options: {depth: ...}"}
    (sentence,) = unknown_role_variables(["box_depth"], OPTIONS, elsewhere)
    assert sentence == "box_depth is not a variable of this role: it is an option of boxes: box_options: {depth: ...}"


def test_a_misspelled_prefix_is_found_and_the_users_own_names_are_not():
    known = ["gpu_clocks_max_mhz", "vllm_profile"]
    names = ["gpu_clock_max_mhz", "vlm_profile", "my_profile", "gpu_clocks_max_mhz", "profile", "groups"]
    assert misspelled_prefixes(names, known) == [
        "gpu_clock_max_mhz is read by nothing: did you mean gpu_clocks_max_mhz?",
        "vlm_profile is read by nothing: did you mean vllm_profile?",
    ]
    assert misspelled_prefixes(["rol_soak"]) == ["rol_soak is read by nothing: did you mean roll_soak?"]
