"""Every number on the page is in the JSON that it was drawn from; this is found out without the report's own code."""

import re

import pytest

NUMBER = re.compile(r"\d+(?:\.\d+)?")


def looked_up(place, documents):
    """What stands at FILE#POINTER, and the last step there."""
    file, _, pointer = place.partition("#")
    value, step = documents[file], ""
    for step in pointer.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        value = value[int(step)] if isinstance(value, list) else value[step]
    return value, step


def traced(element):
    return {"data-from", "data-key", "data-file"} & element.attributes.keys()


def test_each_shown_number_is_the_one_in_the_file(fixed):
    _, tree, documents = fixed
    shown = [element for element in tree.with_attribute("data-from") if element.tag == "data"]
    assert len(shown) > 300
    for element in shown:
        value, _ = looked_up(element.attributes["data-from"], documents)
        assert float(element.attributes["value"]) == value
        text = element.text
        number, percent = re.fullmatch(r"([+-]?[\d.]+)( %)?", text).groups()
        digits = len(number.partition(".")[2])
        exact = value * 100 if percent else value
        assert abs(float(number) - exact) <= 0.5 * 10**-digits + 1e-9, (text, value)


def test_each_shown_text_and_time_is_the_one_in_the_file(fixed):
    _, tree, documents = fixed
    for element in tree.with_attribute("data-from"):
        value, _ = looked_up(element.attributes["data-from"], documents)
        if element.tag == "time":
            assert element.attributes["datetime"] == value
            assert element.text == value[:16].replace("T", " ")
        elif element.tag == "span":
            assert element.text == " ".join(value.split())
    for element in tree.with_attribute("data-key"):
        assert element.text == looked_up(element.attributes["data-key"], documents)[1].replace("_", " ")
    for element in tree.with_attribute("data-file"):
        assert element.text in documents


def test_no_number_stands_anywhere_else(fixed):
    """Outside of what is traced, of style and of pictures (next test) the page has no digit at all."""
    _, tree, _ = fixed
    rest = tree.texts(lambda element: traced(element) or element.tag in ("style", "svg"))
    assert [text for text in rest if re.search(r"\d", text)] == []


def test_pictures_show_only_numbers_of_their_figure(fixed):
    _, tree, _ = fixed
    figures = tree.tagged("figure")
    assert figures
    for figure in figures:
        known = set()
        for element in figure.all(traced):
            known |= set(NUMBER.findall(element.text))
        for picture in figure.tagged("svg"):
            shown = set(NUMBER.findall(" ".join(picture.texts())))
            assert shown <= known, (figure.attributes["id"], shown - known)


def test_a_number_that_is_not_in_the_file_is_found(fixed, drawn, texts):
    """The proof above can fail: the page of other files is not theirs."""
    _, _, documents = fixed
    changed = {path: text.replace("67.6", "67.5") for path, text in texts.items()}
    _, tree = drawn(changed)
    with pytest.raises(AssertionError):
        test_each_shown_number_is_the_one_in_the_file((None, tree, documents))
