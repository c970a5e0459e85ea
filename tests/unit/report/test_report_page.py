"""What the page shows: each figure where it belongs, marks on what is simulated, expectations with their source."""

import json
import re

import pytest

LATEST = "2026-11-30/bench-box1-054512.json"
REAL = "2026-11-30/bench-made-up-060200.json"


def titles(element):
    return [figure.tagged("strong")[0].text for figure in element.tagged("figure")]


def section(tree, box):
    return next(one for one in tree.tagged("section") if one.tagged("h2")[0].text.split()[0] == box)


def article(tree, box, heading):
    return next(one for one in section(tree, box).tagged("article") if one.tagged("h3")[0].text.split()[0] == heading)


def test_each_profile_of_each_box_has_the_three_figures(fixed):
    _, tree, _ = fixed
    for profile in ("qwen3.8-27b-int4", "qwen3.8-27b-int4-flash-attn-bf16", "qwen3.8-27b-int4-initial"):
        assert titles(article(tree, "box1", profile))[:3] == ["Key measures", "Throughput", "MTP acceptance"]
    # without speculation there is no acceptance to show
    assert titles(article(tree, "made-up", "qwen3.8-27b-int4-concurrent")) == ["Key measures", "Throughput"]


def test_a_box_has_comparisons_changes_history_search_and_stress(fixed):
    _, tree, _ = fixed
    box = titles(section(tree, "box1"))
    assert box[0] == "Profiles side by side"
    # three configurations one after the other
    assert box.count("Before and after") == 2
    assert box[-4:] == ["History", "Candidate against current", "Highest stable clock", "Stress run"]
    assert "Against the baseline" in titles(article(tree, "box1", "qwen3.8-27b-int4"))


def test_every_picture_has_a_text_alternative(fixed):
    _, tree, _ = fixed
    pictures = tree.tagged("svg")
    assert len(pictures) > 20
    ids = [element.attributes["id"] for element in tree.with_attribute("id")]
    assert len(ids) == len(set(ids))
    for picture in pictures:
        assert picture.attributes["role"] == "img"
        title, desc = picture.content[0], picture.content[1]
        assert (title.tag, desc.tag) == ("title", "desc")
        assert picture.attributes["aria-labelledby"].split() == [title.attributes["id"], desc.attributes["id"]]
        assert title.text and len(desc.text) > 1
    key = next(one for one in pictures if one.content[0].text == "Key measures, simulated")
    assert re.search(
        r"Decode, one stream: measured \d+\.\d tok/s, before \d+\.\d tok/s, expected 67\.6 tok/s; ", key.text
    )


def test_every_figure_has_its_numbers_as_a_table(fixed):
    _, tree, _ = fixed
    for figure in tree.tagged("figure"):
        head, *rows = figure.tagged("tr")
        assert rows
        assert {len(row.tagged("td", "th")) for row in rows} == {len(head.tagged("th"))}, figure.attributes["id"]


def test_expectations_stand_with_their_source(fixed):
    _, tree, documents = fixed
    expects = documents[LATEST]["engines"]["main"]["expects"]
    notes = article(tree, "box1", "qwen3.8-27b-int4").tagged("figure")[0].text
    for measure, text in (("decode_tok_s", "67.6 tok/s"), ("prefill_tok_s", "5016 tok/s"), ("acceptance", "84.9 %")):
        assert f"{text}, {expects[measure]['source']}" in notes


def test_expectations_come_from_the_verdict_where_the_file_has_no_others(texts, drawn):
    document = json.loads(texts[LATEST])
    del document["engines"]["main"]["expects"]
    _, tree = drawn({LATEST: json.dumps(document)})
    notes = tree.tagged("figure")[0].text
    assert "Expected: decode, one stream 67.6 tok/s, field report, August 2026" in notes
    assert "Expected: MTP acceptance" not in notes


def test_what_is_simulated_is_marked_and_nothing_else(fixed):
    _, tree, _ = fixed
    for box, wanted in (("box1", True), ("made-up", False)):
        shown = section(tree, box)
        assert ("simulated" in shown.tagged("h2")[0].text) is wanted
        for figure in shown.tagged("figure"):
            assert ("simulated" in figure.tagged("figcaption")[0].text) is wanted
            assert all(("simulated" in picture.content[0].text) is wanted for picture in figure.tagged("svg"))
    rows = tree.tagged("nav")[0].tagged("tbody")[0].tagged("tr")
    assert [("simulated" in row.text) for row in rows] == [row.text.startswith("box1") for row in rows]
    assert "Figures marked simulated come from a simulated lab" in tree.tagged("header")[0].text


def test_a_page_of_simulated_results_only_says_so_and_a_real_one_does_not(texts, drawn):
    made, tree = drawn({path: text for path, text in texts.items() if path != REAL})
    assert "All figures here come from a simulated lab" in tree.tagged("header")[0].text
    assert "<title>tandem report (simulated)</title>" in made.html
    made, tree = drawn({REAL: texts[REAL]})
    assert "simulated" not in "".join(tree.texts(lambda element: element.tag == "style"))


def test_a_change_names_the_options_that_differ(fixed):
    _, tree, _ = fixed
    newest, first = article(tree, "box1", "Changes").tagged("figure")
    assert "+ --kv-cache-dtype=fp8" in newest.text and "− --kv-cache-dtype=auto" in newest.text  # noqa: RUF001
    assert "Clock lock: 3105 MHz → 2100 MHz." in first.text
    assert "--max-num-seqs" not in newest.text


def changed(text, at, lock_mhz=2100, power_limit_w=None, cases=None):
    """The measurement of a file, later, with other settings of the cards; `cases`: only these."""
    document = json.loads(text)
    result = document["engines"]["main"]["result"]
    result.update(at=at, lock_mhz=lock_mhz)
    result["about"]["clocks"]["power_limit_w"] = power_limit_w
    for case in set(result["cases"]) - set(cases or result["cases"]):
        result["cases"].pop(case)
        document["engines"]["main"]["verdict"]["figures"].pop(case)
    return json.dumps(document)


def test_a_change_of_the_cards_alone_is_a_change_too(texts, drawn):
    first = texts["2026-11-28/bench-box1-091244.json"]
    made = {
        "a.json": changed(first, "2026-11-28T01:00:00Z", lock_mhz=None),
        "b.json": changed(first, "2026-11-28T02:00:00Z", lock_mhz=2100),
        "c.json": changed(first, "2026-11-28T03:00:00Z", lock_mhz=2100, power_limit_w="default"),
        "d.json": changed(first, "2026-11-28T04:00:00Z", lock_mhz=2100, power_limit_w=150),
    }
    _, tree = drawn(made)
    power, lock = article(tree, "box1", "Changes").tagged("figure")
    assert "Clock lock: none → 2100 MHz." in lock.text and "Power limit" not in lock.text
    assert "Power limit: none → 150 W." in power.text and "Clock lock" not in power.text


def test_an_expectation_stands_only_beside_the_case_that_it_is_about(texts, drawn):
    """The report's prefill is a peak of long prompts; one of 2K is not measured against it."""
    first = texts["2026-11-28/bench-box1-091244.json"]
    short = changed(first, "2026-11-30T09:00:00Z", cases=["decode_chat", "prefill_2k"])
    _, tree = drawn({"a.json": short})
    assert "of 5016" not in tree.text and "Expected: prefill" not in tree.text
    assert "Prefill: of case prefill 2k, which no expectation of a profile is about." in tree.text
    assert "of 67.6" in tree.text
    _, tree = drawn({"a.json": changed(first, "2026-11-28T01:00:00Z")})
    assert "of 5016" in tree.text and "no expectation" not in tree.text


def test_figures_of_different_cases_are_no_history_and_not_side_by_side(texts, drawn):
    first = texts["2026-11-28/bench-box1-091244.json"]
    made = {
        "a.json": first,
        "b.json": changed(first, "2026-11-28T10:00:00Z"),
        "c.json": changed(first, "2026-11-28T11:00:00Z", cases=["decode_chat", "prefill_2k"]),
    }
    _, tree = drawn(made)
    history = article(tree, "box1", "Over").tagged("figure")[0]
    assert [picture.content[0].text.partition(" over")[0] for picture in history.tagged("svg")] == [
        "Decode, one stream",
        "MTP acceptance",
    ]
    # in the table each is told apart
    assert [row.tagged("td")[2].text.endswith("prefill 8k") for row in history.tagged("tbody")[0].tagged("tr")] == [
        True,
        True,
        False,
    ]


def test_a_comparison_tells_both_sides_the_verdict_and_what_the_candidate_changes(fixed):
    _, tree, documents = fixed
    compared = documents["2026-11-30/compare-box1-082110.json"]
    figure = article(tree, "box1", "Comparisons").tagged("figure")[0]
    assert compared["verdict"]["reason"] in figure.text
    assert "image: vllm/vllm-openai:v0.30.0 → vllm/vllm-openai:v0.33.0." in figure.text
    for side in ("current", "candidate"):
        value = compared[side]["result"]["cases"]["decode_chat"]["value"]
        assert f"{side} {value:.1f} tok/s" in figure.tagged("svg")[0].text
    head, first = figure.tagged("tr")[:2]
    assert [cell.text for cell in head.tagged("th")] == ["case", "current", "candidate", "change", "verdict"]
    assert first.tagged("th")[0].text == "decode chat"
    assert [cell.text for cell in first.tagged("td")][2:] == ["+12.2 %", "pass"]


def test_a_comparison_alone_is_a_page_and_stands_in_no_history(texts, drawn):
    path = "2026-11-30/compare-box1-082110.json"
    _, tree = drawn({path: texts[path]})
    assert titles(tree) == ["Candidate against current"]
    assert "no measurement yet" in tree.text
    _, tree = drawn({path: texts[path], LATEST: texts[LATEST]})
    assert "History" not in titles(tree) and "Before and after" not in titles(tree)
    # sides that share no case are a verdict without bars
    document = json.loads(texts[path])
    document["current"]["result"]["cases"].pop("prefill_8k")
    document["candidate"]["result"]["cases"].pop("decode_chat")
    _, tree = drawn({path: json.dumps(document)})
    assert tree.tagged("svg") == []


def test_the_search_tells_what_it_proposes_and_each_step(fixed):
    _, tree, documents = fixed
    search = documents["2026-11-30/find_clock-box1-071000.json"]
    figure = next(one for one in tree.tagged("figure") if "Proposed" in one.text)
    assert f"Proposed: {search['result']['proposed_mhz']} MHz" in figure.text
    assert len(figure.tagged("tbody")[0].tagged("tr")) == len(search["steps"])
    assert len(figure.tagged("svg")) == 4
    assert any("reboot" in picture.content[1].text for picture in figure.tagged("svg"))


@pytest.mark.parametrize(
    ("trial", "told"),
    [
        (None, "with the cards as they are set."),
        ({"state": "unlocked"}, "with the cards unlocked."),
        ({"state": "unlocked", "power_limit_w": 150}, "with the cards unlocked and a power limit of 150 W."),
        ({"max_mhz": 2400}, "with a clock lock of 2400 MHz."),
        ({"state": "locked", "max_mhz": 2100, "power_limit_w": "default"}, "2100 MHz and the default power limit."),
    ],
)
def test_a_stress_run_tells_what_the_cards_were_set_to(texts, drawn, trial, told):
    path = "2026-11-30/stress-box1-040000.json"
    document = json.loads(texts[path])
    document["result"]["trial"] = trial
    _, tree = drawn({path: json.dumps(document)})
    assert told in tree.tagged("figure")[0].text


def test_a_search_under_way_is_shown_as_far_as_it_is(texts, drawn):
    path = "2026-11-30/find_clock-box1-071000.json"
    search = json.loads(texts[path])
    search.update(state="searching", finished=None, result=None, steps=search["steps"][:3])
    _, tree = drawn({path: json.dumps(search)})
    assert "The search is under way." in tree.text
    search["steps"] = []
    _, tree = drawn({path: json.dumps(search)})
    assert tree.tagged("svg") == []


def test_what_files_hold_is_text_never_markup(texts, drawn):
    evil = '</desc></svg><script>alert("1")</script><img src=http://x.test/>'
    document = json.loads(texts[LATEST])
    entry = document["engines"]["main"]
    entry["result"].update(box=evil, profile=evil, engine=evil)
    entry["result"]["cases"][evil] = entry["result"]["cases"].pop("decode_chat")
    entry["verdict"].update(reason=evil, outcome="pass")
    entry["expects"]["decode_tok_s"]["source"] = evil
    search = json.loads(texts["2026-11-30/find_clock-box1-071000.json"])
    search["box"]["name"] = search["steps"][3]["what"] = search["steps"][3]["says"] = evil
    made, tree = drawn({"a.json": json.dumps(document), f"{evil}.json": json.dumps(search), "b.json": evil})
    assert tree.tagged("script", "img") == []
    assert "<script" not in made.html
    assert evil in "".join(tree.texts())


def test_the_same_files_give_the_same_page_in_whatever_order(texts, drawn):
    assert drawn(texts)[0] == drawn(dict(reversed(list(texts.items()))))[0]


def test_the_page_belongs_to_the_day_of_the_newest_result(texts, drawn):
    assert drawn(texts)[0].day == "2026-11-30"
    older = {path: text for path, text in texts.items() if path.startswith("2026-11-28")}
    assert drawn(older)[0].day == "2026-11-28"


def test_it_refers_to_nothing_outside(fixed):
    made, tree, _ = fixed
    for element in tree.all():
        for name, value in element.attributes.items():
            if name in ("src", "href", "srcset", "action", "poster", "xlink:href"):
                assert value.startswith("#") or value == "data:,", (element.tag, name, value)
            assert name == "xmlns" or "://" not in (value or "") or name.startswith("data-"), (name, value)
    assert tree.tagged("script", "iframe", "object", "embed") == []
    assert "url(" not in made.html and "@import" not in made.html
    policy = next(one for one in tree.tagged("meta") if one.attributes.get("http-equiv") == "Content-Security-Policy")
    assert policy.attributes["content"].startswith("default-src 'none'")


def test_files_that_are_not_understood_are_named_and_the_others_shown(texts, drawn):
    half = texts[LATEST][:1000]
    no_time = json.loads(texts[LATEST])
    del no_time["engines"]["main"]["result"]["at"]
    strange = {
        "half.json": half,
        "list.json": "[]",
        "drift.json": '{"kind": "drift"}',
        "no-time.json": json.dumps(no_time),
    }
    made, tree = drawn({**texts, **strange})
    assert [file for file, _ in made.unknown] == sorted(strange)
    assert made.files == len(texts)
    for name in strange:
        assert name in tree.tagged("footer")[0].text
    assert len(tree.tagged("figure")) > 10


@pytest.mark.parametrize("texts", [{}, {"a.json": "{"}, {"a.json": "{}"}])
def test_nothing_to_show_is_said_with_the_way_out(texts, drawn):
    with pytest.raises(ValueError, match=r"nothing to report .*playbooks/bench\.yml"):
        drawn(texts)


def test_what_was_skipped_is_told_with_its_reason(fixed):
    _, tree, _ = fixed
    figure = article(tree, "made-up", "qwen3.8-27b-int4-concurrent").tagged("figure")[1]
    assert "Skipped: prefill 32k, it needs 32769 tokens, and max-model-len is 16384." in figure.text


def test_one_case_without_anything_to_compare_is_a_page_too(texts, drawn):
    document = json.loads(texts[LATEST])
    entry = document["engines"]["main"]
    entry["result"]["cases"] = {"decode_chat": entry["result"]["cases"]["decode_chat"]}
    entry["result"]["profile"] = entry["result"]["lock_mhz"] = None
    entry["verdict"] = {"outcome": "inconclusive", "reason": "nothing to compare with", "figures": {}}
    entry.pop("expects")
    _, tree = drawn({LATEST: json.dumps(document)})
    assert titles(tree) == ["Key measures", "Throughput", "MTP acceptance"]
    assert "no profile" in tree.text
