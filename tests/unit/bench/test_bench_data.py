"""Results, baselines and lines; the role's recipes and prompts; and the schema that the reports keep to."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from bench import (
    bench_baseline,
    bench_before,
    bench_compares,
    bench_lines,
    bench_not_as_wished,
    bench_outputs,
    bench_result,
    bench_too_slow,
)
from bench_results import gpu, run
from bench_verdict import bench_sound, bench_verdict

ROLE = Path(__file__).parents[3] / "roles/bench"
RECIPES = yaml.safe_load((ROLE / "vars/main.yml").read_text())["__bench_recipes"]
SCHEMA = json.loads((ROLE / "files/bench.schema.json").read_text())
ABOUT = {
    "hash": "abc",
    "image": "vllm/vllm-openai:v0.33.0",
    "image_id": "sha256:" + "0" * 64,
    "arguments": ["/models", "--max-num-seqs=8"],
    "environment": {"PATH": None, "VLLM_LOGGING_LEVEL": "INFO"},
    "cards": [{"index": 0, "name": "NVIDIA GeForce RTX 4090", "power_limit_w": 450.0}],
    "vllm_version": "0.33.0",
    "model": "m",
    "max_model_len": 16384,
    "driver": "580.95.05",
    "clocks": {"max_mhz": 2100},
    "simulated": True,
}
ENDPOINT = {"engine": "main", "profile": "p", "hash": "abc"}
AT = "2026-11-30T06:00:00Z"


def whole(value, seed=0, **over):
    """A run as bench-run prints it."""
    times = {"mean": 300.0, "median": 300.0, "p99": 400.0}
    return {
        **run(value, seed),
        **{"output_tok_s": value, "ttft_ms": times, "tpot_ms": times, "itl_ms": times},
        **{"acceptance": 0.85, "acceptance_length": 2.7, "gpus": [gpu(0, events={"sw_power_cap": 0.5}), gpu(1)]},
        **{"started": AT, "seconds": 20.0, "measured_seconds": 8.0, "client": ["vllm", "bench", "serve"]},
        **over,
    }


def outputs(*values, **about):
    runs = [whole(value, n) for n, value in enumerate(values)]
    return {"decode_chat": {"about": {**ABOUT, **about}, "profile": "kept", "prompts_sha256": "0" * 64, "runs": runs}}


def made(*values, **about):
    return bench_result(outputs(*values, **about), RECIPES, "box1", ENDPOINT, AT, "abcdef-dirty")


def valid(result, verdict):
    report = {"format": 1, "box": "box1", "at": AT, "engines": {"main": {"result": result, "verdict": verdict}}}
    jsonschema.Draft202012Validator(SCHEMA).validate(report)
    return report


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_a_result_is_the_median_of_its_runs():
    result = made(70.0, 50.0, 60.0)
    case = result["cases"]["decode_chat"]
    assert (case["value"], case["acceptance"], result["lock_mhz"], result["seconds"]) == (60.0, 0.85, 2100, 60.0)
    assert (result["profile"], result["simulated"]) == ("p", True)
    valid(result, bench_verdict(None, result))


@pytest.mark.parametrize(
    ("clocks", "lock"),
    [
        ({"state": "locked", "max_mhz": 2100}, 2100),
        # the settings of unlocked cards still say where they would be locked
        ({"state": "unlocked", "max_mhz": 2100}, None),
        ({}, None),
        (None, None),
    ],
)
def test_unlocked_cards_have_no_lock(clocks, lock):
    assert made(60, clocks=clocks)["lock_mhz"] == lock


def test_the_profile_is_that_of_what_runs():
    """Before a change the inventory's is another one; the box knows what it serves."""
    assert made(60.0)["profile"] == "p"
    assert made(60.0, hash="def")["profile"] == "kept"


def test_a_skipped_case():
    given = {**outputs(60.0), "prefill_32k": {"about": ABOUT, "skipped": "max-model-len is 16384"}}
    result = bench_result(given, RECIPES, "box1", ENDPOINT, AT)
    valid(result, bench_verdict(None, result))
    assert "  prefill_32k    skipped: max-model-len is 16384" in bench_lines(result, bench_verdict(None, result))


def test_what_could_not_be_measured_is_skipped_and_the_rest_is_told():
    (one,) = outputs(60.0).values()
    ran = [
        {
            "item": "prefill_8k",
            "rc": 1,
            "stdout": "",
            "stderr": "vllm bench serve ended with 1; its last lines:\na\nOOM\n",
        },
        {"item": "decode_chat", "rc": 0, "stdout": json.dumps(one), "stderr": ""},
        {"item": "prefill_2k", "rc": 1, "stdout": "", "stderr": ""},
    ]
    result = bench_result(bench_outputs(ran), RECIPES, "box1", ENDPOINT, AT)
    assert result["cases"]["prefill_8k"] == {
        "skipped": "could not be measured: vllm bench serve ended with 1; its last lines: OOM"
    }
    assert result["cases"]["prefill_2k"] == {"skipped": "could not be measured: it said nothing"}
    assert result["cases"]["decode_chat"]["value"] == 60.0
    valid(result, bench_verdict(None, result))


def test_prompts_belong_to_the_recipe():
    stored = bench_baseline(None, made(60.0))
    others = outputs(30.0)
    others["decode_chat"]["prompts_sha256"] = "1" * 64
    verdict = bench_verdict(bench_before(stored), bench_result(others, RECIPES, "box1", ENDPOINT, AT))
    assert verdict["figures"]["decode_chat"]["against"] == "nothing"
    assert "its baseline was measured in another way" in verdict["reason"]


def test_what_is_too_slow_is_said_once_per_engine():
    slow, quick = made(30.0), made(60.0)
    engines = {
        "main": {"result": slow, "verdict": bench_verdict(quick, slow)},
        "second": {"result": quick, "verdict": bench_verdict(quick, quick)},
    }
    (told,) = bench_too_slow(engines)
    assert told.startswith("main is too slow: decode_chat: 30.0 tok/s, before 60.0")
    assert told.endswith("(simulated figures)")


@pytest.mark.parametrize(
    ("over", "wanted"),
    [
        ({}, []),
        ({"running": False}, ["vllm-main"]),
        ({"active": False}, ["vllm-main"]),
        ({"labels": {"tandem.config": "def"}}, ["vllm-main"]),
        ({"labels": {}}, ["vllm-main"]),
        (None, ["vllm-main"]),
    ],
)
def test_what_does_not_serve_the_inventory_s_configuration(over, wanted):
    found = {"running": True, "active": True, "labels": {"tandem.config": "abc"}}
    containers = {"vllm-main": None if over is None else {**found, **over}}
    assert bench_not_as_wished([{**ENDPOINT, "container": "vllm-main"}], containers) == wanted


@pytest.mark.parametrize(
    "spoil",
    [
        lambda report: report.update(more=1),
        lambda report: report["engines"]["main"]["result"]["about"].pop("image"),
        lambda report: report["engines"]["main"]["result"]["cases"]["decode_chat"].update(value=-1),
        lambda report: report["engines"]["main"]["verdict"].update(outcome="good"),
    ],
)
def test_the_schema_refuses(spoil):
    result = made(60.0)
    report = valid(result, bench_verdict(None, result))
    spoil(report)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate(report)


def test_a_baseline_keeps_each_configuration_and_knows_the_latest():
    stored = bench_baseline(None, made(60.0))
    assert bench_before(stored)["cases"]["decode_chat"]["value"] == 60.0
    stored = bench_baseline(stored, made(50.0, hash="def"))
    assert list(stored["results"]) == ["abc", "def"]
    assert bench_before(stored)["cases"]["decode_chat"]["value"] == 50.0
    stored = bench_baseline(stored, made(61.0))
    assert (stored["latest"], bench_before(stored)["cases"]["decode_chat"]["value"]) == ("abc", 60.0)
    for number in range(20):
        stored = bench_baseline(stored, made(60.0, hash=f"h{number}"))
    assert len(stored["results"]) == 8 and stored["latest"] == "h19"
    assert bench_before(None) is None


def values(stored, case="decode_chat"):
    return [run["value"] for run in bench_before(stored)["cases"][case]["runs"]]


def test_a_baseline_does_not_sink_with_falls_that_are_allowed():
    stored = bench_baseline(None, made(60.0))
    stored = bench_baseline(stored, made(55.0))
    assert values(stored) == [60.0]
    # runs with other prompts are more to compare with
    stored = bench_baseline(stored, made(57.0, 70.0, 80.0))
    assert values(stored) == [60.0, 70.0, 80.0]
    assert bench_before(stored)["cases"]["decode_chat"]["value"] == 70.0
    stored = bench_baseline(stored, made(57.0), replace=True)
    assert values(stored) == [57.0]


def test_a_baseline_of_another_recipe_is_replaced():
    stored = bench_baseline(None, made(60.0))
    stored["results"]["abc"]["cases"]["decode_chat"]["recipe"] = {"figure": "another"}
    assert values(bench_baseline(stored, made(50.0))) == [50.0]


@pytest.mark.parametrize(
    "clocks", [{"max_mhz": 1800}, {"max_mhz": 2100, "power_limit_w": 200}, {"state": "unlocked", "max_mhz": 2100}]
)
def test_a_baseline_with_other_clocks_is_replaced(clocks):
    stored = bench_baseline(bench_baseline(None, made(60.0, 61.0)), made(50.0, clocks=clocks))
    assert values(stored) == [50.0]
    assert bench_before(stored)["about"]["clocks"] == clocks


@pytest.mark.parametrize(
    ("spoilt", "says"),
    [
        ({"failed": 1}, "1 failed"),
        ({"most_in_flight": 9}, "other load on the engine"),
        ({"value": 0.0}, "its figure is 0"),
        ({"gpus": [gpu(events={"hw_thermal": 0.9})]}, "GPU 0 was throttled"),
    ],
)
def test_a_run_that_says_nothing_is_no_baseline(spoilt, says):
    result = made(60.0, 61.0, 62.0)
    result["cases"]["decode_chat"]["runs"][1].update(spoilt)
    assert says in bench_sound(result)["cases"]["decode_chat"]["skipped"]
    assert bench_sound(made(60.0)) == made(60.0)


def test_a_baseline_of_nothing_does_not_break_later_verdicts():
    """Files that an earlier version wrote may hold one."""
    stored = bench_baseline(None, made(0.0, 0.0, 0.0))
    assert bench_verdict(bench_before(stored), made(60.0, 61.0, 62.0))["outcome"] == "inconclusive"
    verdict = bench_verdict(made(60.0, 60.0, 60.0), made(0.0, 0.0, 60.0))
    assert verdict["outcome"] == "inconclusive" and "its figure is 0" in verdict["reason"]


def test_a_gate_s_baseline_leaves_the_other_cases():
    full = {**outputs(60.0), "prefill_8k": outputs(4000.0)["decode_chat"]}
    stored = bench_baseline(None, bench_result(full, RECIPES, "box1", ENDPOINT, AT))
    stored = bench_baseline(stored, made(61.0), replace=True)
    assert (values(stored), values(stored, "prefill_8k")) == ([61.0], [4000.0])


LOCKED = {"state": "locked", "max_mhz": 2100, "power_limit_w": None}


@pytest.mark.parametrize(
    ("clocks", "case", "changes", "compares"),
    [
        (LOCKED, "decode_chat", {}, True),
        ({**LOCKED, "max_mhz": 2085}, "decode_chat", {}, False),
        ({**LOCKED, "state": "unlocked"}, "decode_chat", {}, False),
        ({**LOCKED, "power_limit_w": 350}, "decode_chat", {}, False),
        (None, "decode_chat", {}, False),
        (LOCKED, "decode_code", {}, False),
        (LOCKED, "decode_chat", {"prompts_sha256": "1" * 64}, False),
        (LOCKED, "decode_chat", {"output_tokens": 64}, False),
    ],
)
def test_what_a_baseline_is_a_measure_for(clocks, case, changes, compares):
    stored = bench_baseline(None, made(60.0, clocks=LOCKED))
    recipe = {**RECIPES["decode_chat"]["recipe"], "prompts_sha256": "0" * 64, **changes}
    assert bench_compares(stored, case, recipe, clocks) is compares
    assert bench_compares(None, case, recipe, clocks) is False


def test_lines():
    result = made(60.0)
    lines = bench_lines(result, bench_verdict(None, result, {"decode_tok_s": {"value": 67.6, "source": "report"}}))
    assert lines[0] == "box1 main: p, vLLM 0.33.0, 1 run in 20 s, simulated figures"
    assert " ".join(lines[1].split()) == (
        "decode_chat 60.0 tok/s first 0.30 s, 85% accepted 2085-2100 MHz, up to 190 W, 60 C pass"
    )
    assert lines[2] == "  pass: decode_chat: 60.0 tok/s, no baseline, expected 67.6 (-11%; report)"


def test_the_recipes_are_those_of_the_schema_and_of_the_spec():
    for recipe in RECIPES.values():
        jsonschema.validate(recipe["recipe"], {**SCHEMA["$defs"]["recipe"], "$defs": SCHEMA["$defs"]})
    options = yaml.safe_load((ROLE / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    assert options["bench_cases"]["choices"] == list(RECIPES)
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
    assert set(defaults) == set(options)


@pytest.mark.parametrize("name", ["chat", "code"])
def test_prompts(name):
    rows = json.loads((ROLE / f"files/prompts/{name}.json").read_text())
    texts = [row["conversations"][0]["value"] for row in rows]
    # three runs of four, none twice; vLLM leaves out what is longer than 1024 tokens
    assert len(set(texts)) == 12
    assert all(len(row["conversations"]) == 2 and 100 < len(text) < 1000 for row, text in zip(rows, texts, strict=True))
