"""What a reader sees of verdicts and fit."""

from vllm_fit import vllm_fit  # plugins/filter/, see conftest.py
from vllm_report import vllm_lines, vllm_reasons, vllm_refusal, vllm_summary, vllm_table


def verdict(rule, severity, acknowledged=False):
    return {
        "id": rule,
        "severity": severity,
        "says": f"{rule} says",
        "way_out": f"leave {rule}",
        "source": f"{rule}'s source",
        "acknowledged": acknowledged,
    }


def judgement(box, *verdicts, profile="p", fit="it fits"):
    return {"box": box, "profile": profile, "image": "i:1", "verdicts": list(verdicts), "fit": fit}


def test_a_line_has_the_severity_the_reason_the_way_out_and_the_source():
    assert vllm_lines([verdict("E1", "refuse"), verdict("E2", "note", True)]) == [
        "REFUSED [E1] E1 says. Way out: leave E1. Source: E1's source",
        "acknowledged [E2] E2 says. Way out: leave E2. Source: E2's source",
    ]
    assert len(vllm_lines([verdict("E1", "refuse"), verdict("E2", "warn")], ["warn"])) == 1


def test_a_configuration_that_boxes_share_is_told_once():
    same = verdict("E3", "advise")
    lines = vllm_summary([judgement("box1", same), judgement("box2", same), judgement("box3", same, profile="q")])
    assert lines[0] == "box1, box2: p, i:1"
    assert len([line for line in lines if "E3" in line]) == 2
    assert len([line for line in lines if line == "  fit: it fits"]) == 2


def test_another_fit_is_another_configuration():
    assert len(vllm_summary([judgement("box1"), judgement("box2", fit="it does not")])) == 4


def test_a_refusal_names_boxes_reason_and_acknowledgement_once():
    refused = [verdict("E1", "refuse"), verdict("E3", "advise")]
    text = vllm_refusal([judgement("box1", *refused), judgement("box2", *refused), judgement("box3")])
    assert text.count("E1 says") == 1
    assert "box1, box2: p (i:1) is refused; nothing was changed." in text
    assert 'vllm_acknowledge: ["E1"]' in text
    assert "box3" not in text and "E3" not in text


def test_no_refusal_is_an_empty_text():
    assert vllm_refusal([judgement("box1", verdict("E3", "advise"))]) == ""
    assert vllm_refusal([]) == ""


def test_the_table_has_a_line_for_each_profile():
    args = {
        "tensor-parallel-size": 2,
        "kv-cache-dtype": "fp8",
        "kv-cache-memory-bytes": 9 * 2**30,
        "max-model-len": 65536,
    }
    rows = [
        {
            "profile": "one",
            "description": "known",
            "verdicts": [verdict("E1", "refuse"), verdict("E3", "advise")],
            "fit": vllm_fit(args, {"architecture": "qwen3.8-27b"}),
        },
        {"profile": "another", "description": "not known", "verdicts": [], "fit": vllm_fit(args, {})},
    ]
    lines = vllm_table(rows)
    assert len(lines) == 3
    assert "refused (E1)" in lines[1] and "65,536" in lines[1] and lines[1].endswith("known")
    assert "well" in lines[2] and " ? " in lines[2]
    assert lines[0].index("verdict") == lines[1].index("refused") == lines[2].index("well")


def test_a_reason_is_told_once_for_all_profiles():
    rows = [{"profile": name, "verdicts": [verdict("E3", "advise")]} for name in ("one", "another")]
    (line,) = vllm_reasons(rows)
    assert line.startswith("advice [E3]") and line.endswith("(one, another)")
