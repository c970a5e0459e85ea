"""The page in a real browser, Chromium without a screen: no error, no request, every figure there and whole."""

import html
import json
import re
import shutil
import subprocess

import pytest
from conftest import read_texts
from tandem_report.page import page

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((found for name in NAMES if (found := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine; make setup installs it")
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    # it asks its maker for this and that; no machine of a test should
    "--disable-background-networking",
    "--proxy-server=127.0.0.1:9",
    "--enable-logging=stderr",
    "--virtual-time-budget=5000",
)
# The page in a frame as wide as a phone or a desk, and what a script beside it sees there: what it asked for (even
# where its policy stopped it), what is wider than the frame, words that leave their picture or meet others or a point.
FRAME = """
<body style="margin:0"><iframe id="page" src="index.html" style="width:%dpx;height:3000px;border:0"></iframe>
<pre id="found"></pre>
<script>
document.getElementById("page").onload = () => {
  const frame = document.getElementById("page"), page = frame.contentDocument;
  const found = {
    asked: frame.contentWindow.performance.getEntriesByType("resource").map(entry => entry.name),
    width: page.documentElement.scrollWidth,
    pictures: [],
  };
  for (const picture of page.querySelectorAll("figure svg")) {
    const edge = picture.getBoundingClientRect();
    const words = [...picture.querySelectorAll("text")].map(word => [word.textContent, word.getBoundingClientRect()]);
    const points = [...picture.querySelectorAll("circle")].map(point => point.getBoundingClientRect());
    const leaves = box => box.left < edge.left - 1 || box.right > edge.right + 1 || box.top < edge.top - 1
      || box.bottom > edge.bottom + 1;
    const covers = (one, other) => Math.min(one.right, other.right) - Math.max(one.left, other.left) > 1
      && Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 4;
    found.pictures.push({
      figure: picture.closest("figure").id,
      size: [edge.width, edge.height],
      words: words.length,
      marks: [...picture.querySelectorAll(".rect, circle, .line")]
        .filter(mark => mark.getBoundingClientRect().width > 0).length,
      outside: words.filter(([, box]) => leaves(box)).map(([text]) => text),
      hidden: words.filter(([, box]) => points.some(point => covers(box, point))).map(([text]) => text),
      covered: words.flatMap(([text, box], index) =>
        words.slice(index + 1).filter(([, other]) => covers(box, other)).map(([other]) => [text, other])),
    });
  }
  document.getElementById("found").textContent = JSON.stringify(found);
};
</script>
"""


@pytest.fixture(scope="module")
def made():
    return page(read_texts()).html


@pytest.fixture
def opened(tmp_path):
    """A function: (file name, HTML, options) -> (the DOM as HTML, what the console said)."""

    def open_page(name, content, *options):
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        done = subprocess.run(
            [CHROMIUM, *OPTIONS, f"--user-data-dir={tmp_path}/profile", *options, "--dump-dom", path.as_uri()],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout, [line for line in done.stderr.splitlines() if re.search(r"CONSOLE[:(]", line)]

    return open_page


@pytest.fixture
def framed(opened, tmp_path):
    """A function: (HTML, width) -> (what FRAME found, what the console said)."""

    def frame(content, width):
        (tmp_path / "index.html").write_text(content, encoding="utf-8")
        dom, said = opened("frame.html", FRAME % width, "--allow-file-access-from-files", "--window-size=1400,3200")
        found = re.search(r'<pre id="found">(.*?)</pre>', dom, re.DOTALL)[1]
        assert found, "the page was not loaded"
        return json.loads(html.unescape(found)), said

    return frame


def test_it_opens_without_an_error_and_with_every_figure(opened, made):
    dom, said = opened("index.html", made)
    assert said == []
    figures = re.findall(r'<figure id="([^"]+)"', made)
    assert len(figures) > 12
    assert re.findall(r'<figure id="([^"]+)"', dom) == figures
    assert dom.count('role="img"') == made.count('role="img"') > 20


@pytest.mark.parametrize("width", [390, 1200])
def test_it_asks_for_nothing_and_nothing_is_cut_off_on_a_phone_or_a_desk(framed, made, width):
    found, said = framed(made, width)
    assert (found["asked"], said) == ([], [])
    assert found["width"] <= width
    assert len(found["pictures"]) == made.count('role="img"')
    for picture in found["pictures"]:
        assert picture["size"][0] > 200 and picture["size"][1] > 20, picture
        assert picture["words"] and picture["marks"], picture
        assert picture["outside"] == [], picture
        assert picture["covered"] == [], picture
        assert picture["hidden"] == [], picture


def test_a_page_that_asks_is_caught_and_its_policy_stops_it(framed, made):
    found, said = framed(made.replace("</body>", '<img src="http://outside.test/x.png"></body>'), 390)
    assert found["asked"] == ["http://outside.test/x.png"]
    assert any("Content Security Policy" in line for line in said)


def test_it_prints(opened, made, tmp_path):
    opened("index.html", made, f"--print-to-pdf={tmp_path}/page.pdf", "--no-pdf-header-footer")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF-")
