"""The report's package, the fixed results that it is drawn from."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FIXTURES = Path(__file__).parent / "fixtures"
sys.path[:0] = [str(ROOT / "roles/report/python"), str(ROOT / "sim")]

from report_check import Reader  # noqa: E402
from tandem_report.page import page  # noqa: E402


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
