"""The report's package, the fixed results that it is drawn from, and a reader of what came out."""

import json
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FIXTURES = Path(__file__).parent / "fixtures"
sys.path.insert(0, str(ROOT / "roles/report/python"))

from tandem_report.page import page  # noqa: E402

VOID = {"meta", "link", "br", "img", "hr", "input"}


class Element:
    """An element of the page: `tag`, `attributes`, `parent`, `content` (elements and texts)."""

    def __init__(self, tag, attributes=(), parent=None):
        self.tag, self.attributes, self.parent, self.content = tag, dict(attributes), parent, []

    def all(self, wanted=lambda element: True):
        for one in self.content:
            if isinstance(one, Element):
                if wanted(one):
                    yield one
                yield from one.all(wanted)

    def tagged(self, *tags):
        return list(self.all(lambda element: element.tag in tags))

    def with_attribute(self, name):
        return list(self.all(lambda element: name in element.attributes))

    def texts(self, but=lambda element: False):
        """The texts below, without those in elements of which `but` is true."""
        for one in self.content:
            if isinstance(one, str):
                yield one
            elif not but(one):
                yield from one.texts(but)

    @property
    def text(self):
        return " ".join("".join(self.texts()).split())


class Reader(HTMLParser):
    """HTML as a tree; complains about an end that has no beginning."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.root = self.here = Element("")
        self.feed(html)
        self.close()
        assert self.here is self.root, f"<{self.here.tag}> is not closed"

    def handle_starttag(self, tag, attributes):
        element = Element(tag, attributes, self.here)
        self.here.content.append(element)
        if tag not in VOID:
            self.here = element

    def handle_startendtag(self, tag, attributes):
        self.here.content.append(Element(tag, attributes, self.here))

    def handle_endtag(self, tag):
        assert self.here.tag == tag, f"</{tag}> ends <{self.here.tag}>"
        self.here = self.here.parent

    def handle_data(self, data):
        self.here.content.append(data)


def read_texts(folder=FIXTURES):
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.json")}


@pytest.fixture
def texts():
    """{path: text} of the fixed results: two boxes, three profiles, a clock search, a stress run. Change it at will."""
    return read_texts()


@pytest.fixture
def drawn():
    """A function: {path: text} -> (Page, tree)."""

    def draw(texts):
        made = page(texts)
        return made, Reader(made.html).root

    return draw


@pytest.fixture(scope="session")
def fixed():
    """(Page, tree, {path: parsed}) of the fixed results; to be read only."""
    made = page(read_texts())
    return made, Reader(made.html).root, {path: json.loads(text) for path, text in read_texts().items()}
