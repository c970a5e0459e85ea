"""Every number on the page is in the JSON that it was drawn from; this is found out without the report's own code."""

import report_check


def test_each_shown_number_is_the_one_in_the_file(fixed):
    _, tree, documents = fixed
    assert len([element for element in tree.with_attribute("data-from") if element.tag == "data"]) > 300
    assert report_check.wrong_numbers(tree, documents) == []


def test_each_shown_text_and_time_is_the_one_in_the_file(fixed):
    _, tree, documents = fixed
    assert report_check.wrong_texts(tree, documents) == []


def test_no_number_stands_anywhere_else(fixed):
    """Outside of what is traced, of style and of pictures (next test) the page has no digit at all."""
    assert report_check.untraced(fixed[1]) == []


def test_pictures_show_only_numbers_of_their_figure(fixed):
    _, tree, _ = fixed
    assert tree.tagged("figure")
    assert report_check.wrong_pictures(tree) == []


def test_something_of_every_file_is_shown(fixed):
    _, tree, documents = fixed
    assert report_check.left_out(tree, documents) == []
    assert report_check.left_out(tree, {**documents, "new.json": {}}) == ["nothing of new.json is shown"]


def test_what_is_not_in_the_file_is_found(fixed, drawn, texts):
    """The proofs above can fail: the page of other files is not theirs."""
    _, _, documents = fixed
    _, tree = drawn({path: text.replace("67.6", "67.5") for path, text in texts.items()})
    assert report_check.wrong_numbers(tree, documents)
    _, tree = drawn({path: text.replace("field report", "a neighbour") for path, text in texts.items()})
    assert report_check.wrong_texts(tree, documents)
    made, _ = drawn(texts)
    spoilt = made.html.replace("<figcaption>", "<figcaption>7 ").replace("<desc ", "<desc>98765</desc><desc ")
    tree = report_check.Reader(spoilt).root
    assert report_check.untraced(tree) and report_check.wrong_pictures(tree)
