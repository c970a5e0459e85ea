"""The page in a real browser, Chromium without a screen: no error, no request, every figure there and whole."""

import re

import pytest
import report_check
from conftest import read_texts
from report_check import framed, opened
from tandem_report.page import page

pytestmark = pytest.mark.skipif(
    report_check.CHROMIUM is None, reason="no Chromium on this machine; make setup installs it"
)


@pytest.fixture(scope="module")
def made():
    return page(read_texts()).html


def test_it_opens_without_an_error_and_with_every_figure(made, tmp_path):
    dom, said = opened(tmp_path, "index.html", made)
    assert said == []
    figures = re.findall(r'<figure id="([^"]+)"', made)
    assert len(figures) > 12
    assert re.findall(r'<figure id="([^"]+)"', dom) == figures
    assert dom.count('role="img"') == made.count('role="img"') > 20


@pytest.mark.parametrize("width", report_check.WIDTHS)
def test_it_asks_for_nothing_and_nothing_is_cut_off_on_a_phone_or_a_desk(made, tmp_path, width):
    assert report_check.wrong_in_browser(tmp_path, made, width) == []


def test_a_page_that_asks_is_caught_and_its_policy_stops_it(made, tmp_path):
    content = made.replace("</body>", '<img src="http://outside.test/x.png"></body>')
    found, said = framed(tmp_path, content, 390)
    assert found["asked"] == ["http://outside.test/x.png"]
    assert any("Content Security Policy" in line for line in said)
    assert len(report_check.wrong_in_browser(tmp_path, content, 390)) == 1 + len(said)


def test_it_prints(made, tmp_path):
    opened(tmp_path, "index.html", made, f"--print-to-pdf={tmp_path}/page.pdf", "--no-pdf-header-footer")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF-")
