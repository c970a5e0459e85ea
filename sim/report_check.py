# SPDX-License-Identifier: Apache-2.0
"""Is a report page true and whole? For the tests, and for `make replay` of the page that it wrote.

Every number on the page is looked up in the JSON that it names, without the report's own code; Chromium opens the page
and tells what its console said, what was asked for, and what is cut off or covered.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import tempfile
from html.parser import HTMLParser
from pathlib import Path

NUMBER = re.compile(r"\d+(?:\.\d+)?")
VOID = {"meta", "link", "br", "img", "hr", "input"}
#: In pixels: a phone and a desk.
WIDTHS = (390, 1200)
CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
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


def wrong_numbers(tree, documents):
    """Numbers of the page that are not what stands at the place that they name."""
    wrong = []
    for element in tree.with_attribute("data-from"):
        if element.tag != "data":
            continue
        value, _ = looked_up(element.attributes["data-from"], documents)
        found = re.fullmatch(r"([+-]?[\d.]+)( %)?", element.text)
        if not found:
            wrong.append(f"{element.text!r} is no number")
            continue
        digits = len(found[1].partition(".")[2])
        exact = value * 100 if found[2] else value
        rounded = abs(float(found[1]) - exact) <= 0.5 * 10**-digits + 1e-9
        if float(element.attributes["value"]) != value or not rounded:
            wrong.append(f"{element.text}, but {element.attributes['data-from']} is {value}")
    return wrong


def wrong_texts(tree, documents):
    """Texts, times and names of the page that are not what stands at the place that they name."""
    wrong = []
    for element in tree.with_attribute("data-from"):
        value, _ = looked_up(element.attributes["data-from"], documents)
        if element.tag == "time" and element.attributes["datetime"] != value:
            wrong.append(f"{element.attributes['datetime']} is not {value}")
        shown = {"time": lambda text: text[:16].replace("T", " "), "span": lambda text: " ".join(text.split())}
        if element.tag in shown and element.text != shown[element.tag](value):
            wrong.append(f"{element.text!r} is not {value!r}")
    for element in tree.with_attribute("data-key"):
        if element.text != looked_up(element.attributes["data-key"], documents)[1].replace("_", " "):
            wrong.append(f"{element.text!r} is not {element.attributes['data-key']}")
    for element in tree.with_attribute("data-file"):
        if element.text not in documents:
            wrong.append(f"there is no file {element.text!r}")
    return wrong


def untraced(tree):
    """Texts with a digit that name no place; of style and pictures this says nothing."""
    rest = tree.texts(lambda element: traced(element) or element.tag in ("style", "svg"))
    return [text for text in rest if re.search(r"\d", text)]


def wrong_pictures(tree):
    """Pictures with a number that their figure does not have in its text and table."""
    wrong = []
    for figure in tree.tagged("figure"):
        known = {number for element in figure.all(traced) for number in NUMBER.findall(element.text)}
        for picture in figure.tagged("svg"):
            unknown = set(NUMBER.findall(" ".join(picture.texts()))) - known
            wrong += [f"the picture in {figure.attributes['id']} shows {number}" for number in sorted(unknown)]
    return wrong


def left_out(tree, documents):
    """Files of which the page shows nothing but their name."""
    shown = {element.attributes["data-from"].partition("#")[0] for element in tree.with_attribute("data-from")}
    return [f"nothing of {file} is shown" for file in sorted(documents.keys() - shown)]


def opened(folder, name, content, *options):
    """(the DOM as HTML, lines of the console) of Chromium with this content as folder/name."""
    path = Path(folder).resolve() / name
    path.write_text(content, encoding="utf-8")
    done = subprocess.run(
        [CHROMIUM, *OPTIONS, f"--user-data-dir={path.parent}/profile", *options, "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{CHROMIUM} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout, [line for line in done.stderr.splitlines() if re.search(r"CONSOLE[:(]", line)]


def framed(folder, content, width):
    """(what FRAME found, lines of the console) of the page `content` in a frame of this width."""
    (Path(folder) / "index.html").write_text(content, encoding="utf-8")
    dom, said = opened(folder, "frame.html", FRAME % width, "--allow-file-access-from-files", "--window-size=1400,3200")
    found = re.search(r'<pre id="found">(.*?)</pre>', dom, re.DOTALL)[1]
    if not found:
        raise RuntimeError("the page was not loaded")
    return json.loads(html.unescape(found)), said


def wrong_in_browser(folder, content, width):
    """What Chromium finds wrong with the page at this width; `folder` is for its files."""
    found, said = framed(folder, content, width)
    wrong = [f"the console: {line}" for line in said] + [f"it asks for {name}" for name in found["asked"]]
    if found["width"] > width:
        wrong.append(f"it is {found['width']} px wide")
    drawn = content.count('role="img"')
    if len(found["pictures"]) != drawn:
        wrong.append(f"{len(found['pictures'])} of {drawn} pictures are there")
    for picture in found["pictures"]:
        if picture["size"][0] <= 200 or picture["size"][1] <= 20 or not picture["words"] or not picture["marks"]:
            wrong.append(f"the picture in {picture['figure']} is empty or tiny: {picture}")
        for kind in ("outside", "covered", "hidden"):
            wrong += [f"{kind} in {picture['figure']}: {words}" for words in picture[kind]]
    return [f"at {width} px: {each}" for each in wrong]


def check(page, folder):
    """(figures, numbers, problems) of a page and the folder of results that it was drawn from, with all checks."""
    content = Path(page).read_text(encoding="utf-8")
    documents = {
        str(path.relative_to(folder)): json.loads(path.read_text(encoding="utf-8"))
        for path in Path(folder).rglob("*.json")
    }
    tree = Reader(content).root
    problems = [
        *wrong_numbers(tree, documents),
        *wrong_texts(tree, documents),
        *untraced(tree),
        *wrong_pictures(tree),
        *left_out(tree, documents),
    ]
    if CHROMIUM is None:
        problems.append("there is no Chromium to open it with; make setup installs it")
    else:
        with tempfile.TemporaryDirectory() as scratch:
            for width in WIDTHS:
                problems += wrong_in_browser(scratch, content, width)
    numbers = [element for element in tree.with_attribute("data-from") if element.tag == "data"]
    return len(tree.tagged("figure")), len(numbers), problems
