"""The program on the box: what it makes of its log, and how it puts a trial in force and takes it back."""

import importlib.machinery
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import validate
from stress import stress_report, stress_verdict

ROLE = Path(__file__).parents[3] / "roles/stress"
SCHEMA = json.loads((ROLE / "files/stress.schema.json").read_text())
ENDPOINT = {"engine": "main", "model": "m", "image": "i:1", "profile": "p", "hash": "abc", "port": 8000}


@pytest.fixture
def program(tmp_path, monkeypatch):
    monkeypatch.setenv("TANDEM_STRESS_ROOT", str(tmp_path))
    loader = importlib.machinery.SourceFileLoader("stress_run", str(ROLE / "files/stress-run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("stress_run", loader))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    for folder in (
        "etc/tandem",
        "run/tandem",
        "proc/sys/kernel/random",
        "proc/driver/nvidia",
        "var/lib/tandem/stress/r",
    ):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("boot-1\n")
    return module


def sample(t, mhz=2100, watts=180.0, load=90):
    return {
        "t": t,
        "kind": "sample",
        "gpus": [[mhz, watts, 60, load, 4], [mhz, watts + 1, 61, load, 0]],
        "in_flight": 1,
        "burst": 0,
    }


def rows(*more, wish=None):
    cards = [{"index": index, "uuid": f"GPU-{index}", "name": "NVIDIA GeForce RTX 4090"} for index in range(2)]
    wish = wish or {"state": "locked", "max_mhz": 2100}
    begin = {
        "kind": "begin",
        "boot_id": "boot-1",
        "at": 0.0,
        "driver": "580 (simulated)",
        "simulated": True,
        "wish": wish,
    }
    return [{"t": 0, **begin}, {"t": 0, "kind": "cards", "cards": cards}, *more]


def request(t, tokens=4608, width=1, ok=True):
    if not ok:
        return {"t": t, "kind": "request", "ok": False, "prompt_tokens": tokens, "says": "broken"}
    times = {"ended": 2.0, "ttft_s": 1.0, "decode_s": 1.05, "output_tokens": 64}
    return {"t": t, "kind": "request", "ok": True, "prompt_tokens": tokens, "at_once": width, **times}


SPEC = {
    "seconds": 60,
    "bursts": [{"prompt_tokens": 4608, "at_once": 1}, {"prompt_tokens": 4608, "at_once": 2}],
    "trial": None,
}


def test_a_whole_run_is_summed_up_and_fits_the_schema(program):
    found = program.summary(
        SPEC,
        rows(
            sample(0.2, 210, 20.0, 0),
            sample(1.0),
            request(2.0),
            request(3.0, width=2),
            sample(59.0),
            {"t": 60.0, "kind": "end", "reason": "time"},
        ),
        "boot-1",
    )
    assert found["speeds"] == {"prefill_tok_s": 4608.0, "decode_tok_s": 60.0}
    assert found["requests"]["completed"] == 2
    assert [burst["completed"] for burst in found["bursts"]] == [1, 1]
    # an idle card is no measure of a busy one
    assert found["gpus"][0]["sm_mhz"]["median"] == 2100
    assert found["gpus"][0]["events"] == {"sw_power_cap": 1.0}
    assert found["lock_mhz"] == 2100 and found["simulated"] is True
    verdict = stress_verdict(found)
    assert verdict["outcome"] == "survived"
    validate(stress_report(found, verdict, "box1", "r", [ENDPOINT]), SCHEMA)


def test_a_run_that_a_reboot_cut_off(program):
    found = program.summary(SPEC, rows(sample(1.0), sample(1.25, 2400, 395.0), request(1.2)), "boot-2")
    verdict = stress_verdict(found)
    assert (verdict["what"], verdict["at_s"], verdict["power_w"]) == ("reboot", 1.25, [395.0, 396.0])
    validate(stress_report(found, verdict, "box1", "r", [ENDPOINT]), SCHEMA)


def test_a_run_that_never_began_fits_the_schema_too(program):
    found = program.summary(SPEC, [{"t": 0.1, "kind": "end", "reason": "`mount` ended with 32: no"}], "boot-1")
    verdict = stress_verdict(found)
    assert (verdict["what"], verdict["outcome"]) == ("error", "inconclusive")
    assert "mount" in verdict["says"]
    validate(stress_report(found, verdict, "box1", "r", [ENDPOINT]), SCHEMA)


def test_a_run_whose_program_was_never_started_is_no_reboot(program):
    # the controller or its connection went between the writing of the specification and the start of the unit
    for now in ("boot-1", "boot-2"):
        for boot in ({"boot_id": "boot-1"}, {}):
            found = program.summary({**SPEC, **boot}, [], now)
            verdict = stress_verdict(found)
            assert (verdict["what"], verdict["outcome"]) == ("error", "inconclusive")
            validate(stress_report(found, verdict, "box1", "r", [ENDPOINT]), SCHEMA)
    assert "rebooted before it" in stress_verdict(program.summary({**SPEC, "boot_id": "boot-1"}, [], "boot-2"))["says"]


def test_a_clock_above_the_lock_and_a_failed_request(program):
    found = program.summary(
        SPEC, rows(sample(1.0, 2520), request(2.0, ok=False), {"t": 3, "kind": "end", "reason": "time"}), "boot-1"
    )
    assert found["gpus"][1]["above_lock"] == {"at_s": 1.0, "mhz": 2520}
    assert found["requests"]["failures"] == [{"at_s": 2.0, "says": "broken"}]
    assert stress_verdict(found)["what"] == "clock"


def test_unlocked_cards_have_no_lock_to_be_above(program):
    found = program.summary(SPEC, rows(sample(1.0, 2520), wish={"state": "unlocked", "max_mhz": 2100}), "boot-1")
    assert found["lock_mhz"] is None and found["gpus"][0]["above_lock"] is None


def test_a_long_curve_is_thinned_out_but_for_its_peaks_and_its_end(program):
    samples = [sample(t / 4, 2100, 450.0 if t == 1111 else 180.0) for t in range(8000)]
    curve = program.series(samples)
    assert len(curve) <= program.CURVE_POINTS + 4 * program.WHOLE_S + 1
    assert max(row[2] for row in curve) == 450.0
    assert curve[-1][0] == 1999.75 and curve[-2][0] == 1999.5


def test_a_line_that_a_reboot_cut_in_two_is_left_out(program, tmp_path):
    path = tmp_path / "var/lib/tandem/stress/r/log.jsonl"
    path.write_text('{"t": 1, "kind": "sample"}\n{"t": 2, "ki')
    assert [row["t"] for row in program.log(str(path.parent))] == [1]


def test_every_line_is_whole(program, tmp_path):
    log = program.Log(str(tmp_path / "log.jsonl"))
    log.add("xid", xid=31, says="x")
    assert program.log(str(tmp_path))[0]["xid"] == 31


@pytest.fixture
def box(program, tmp_path, monkeypatch):
    """The commands that a trial uses, and what the clocks' program would have read."""
    (tmp_path / "etc/tandem/gpu-clocks.json").write_text(
        json.dumps({"state": "locked", "max_mhz": 2100, "power_limit_w": None, "gpus": ["all"]})
    )
    calls, mounted = [], []

    def command(*words, check=True):
        calls.append(words)
        if words[0] == "mount":
            mounted.append(words[2])
        if words[0] == "umount":
            mounted.pop()
        if words[:2] == (program.CLOCKS, "apply"):
            path = words[3] if len(words) > 2 else mounted[-1] if mounted else program.WISH
            calls.append(("applied", json.loads(Path(path).read_text())))
        return subprocess.CompletedProcess(words, 0, "", "")

    monkeypatch.setattr(program, "command", command)
    monkeypatch.setattr(program, "mounted", lambda path: bool(mounted))
    monkeypatch.setattr(program, "power_limits", lambda: {"GPU-0": 450, "GPU-1": 400})
    return calls


def applied(calls):
    return [call[1] for call in calls if call[0] == "applied"]


def test_a_trial_is_over_the_boxs_wish_and_leaves_its_file_alone(program, box):
    before = Path(program.WISH).read_text()
    program.begin_trial({"state": "locked", "max_mhz": 2400, "min_mhz": 0})
    assert applied(box)[-1]["max_mhz"] == 2400
    assert Path(program.WISH).read_text() == before
    program.restore()
    assert applied(box)[-1] == json.loads(before)
    assert not Path(program.TRIAL).exists() and not Path(program.BEFORE).exists()


def test_power_limits_that_the_box_leaves_alone_come_back_card_by_card(program, box):
    program.begin_trial({"state": "unlocked", "power_limit_w": 150})
    assert (applied(box)[-1]["state"], applied(box)[-1]["power_limit_w"]) == ("unlocked", 150)
    program.restore()
    assert [(wish["gpus"], wish["power_limit_w"]) for wish in applied(box)[1:]] == [
        (["GPU-0"], 450),
        (["GPU-1"], 400),
        (["all"], None),
    ]


def test_a_trial_that_stayed_does_not_pass_for_the_boxs_own_wish(program, box):
    before = Path(program.WISH).read_text()
    program.begin_trial({"state": "unlocked"})
    Path(program.WISH).write_text(Path(program.TRIAL).read_text())  # as the mount shows it
    wish = program.wish_now

    def unmounted(*words, check=True):
        Path(program.WISH).write_text(before)
        return command(*words, check=check)

    command, program.command = program.command, unmounted
    program.begin_trial({"state": "locked", "max_mhz": 2400})
    assert json.loads(Path(program.BEFORE).read_text())["wish"] == json.loads(before) == wish()


def test_a_trial_ends_although_somebody_reads_it(program, box):
    program.begin_trial({"state": "unlocked"})
    program.restore()
    assert next(call for call in box if call[0] == "umount")[1] == "--lazy"


def test_nothing_on_trial_nothing_to_restore(program, box):
    program.restore()
    assert box == []


def test_a_box_without_a_wish_is_told_what_to_do(program):
    with pytest.raises(program.Failed, match=r"run site\.yml"):
        program.begin_trial({"max_mhz": 2400})


def test_a_run_is_started_once(program, box, monkeypatch, capsys):
    monkeypatch.setattr(program, "unit_state", lambda: (False, ""))
    monkeypatch.setattr(sys, "stdin", __import__("io").StringIO(json.dumps({**SPEC, "engines": []})))
    assert program.start("r2")["started"] is True
    words = next(call for call in box if call[0] == "systemd-run")
    assert "--property=RuntimeMaxSec=360" in words and any("restore" in word for word in words)
    assert json.loads((Path(program.RUNS) / "r2/spec.json").read_text())["boot_id"] == "boot-1"
    assert program.start("r2")["started"] is False


def test_another_run_under_way_is_named(program, box, monkeypatch):
    monkeypatch.setattr(program, "unit_state", lambda: (True, "other"))
    monkeypatch.setattr(sys, "stdin", __import__("io").StringIO(json.dumps(SPEC)))
    with pytest.raises(program.Failed, match="run other is under way"):
        program.start("r3")


@pytest.mark.parametrize("name", ["../x", "", "A", "a/b", "a b"])
def test_names_that_are_no_file_names(program, name):
    with pytest.raises(program.Failed, match="no name of a run"):
        program.folder_of(name)


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("NVRM: Xid (PCI:0000:01:00): 31, pid=1234, name=VLLM::Worker, Ch 00000008", 31),
        ("NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.", 79),
    ],
)
def test_xid_lines(program, line, number):
    assert int(program.XID.search(line).group(1)) == number


def test_look_tells_a_reboot_from_an_end(program, tmp_path, monkeypatch):
    monkeypatch.setattr(program, "unit_state", lambda: (True, "r"))
    path = tmp_path / "var/lib/tandem/stress/r/log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows(sample(1.0))))
    assert (program.look("r")["over"], program.look("r")["rebooted"]) == (False, False)
    assert (program.look("r")["simulated"], program.look("r")["started"]) == (True, "1970-01-01T00:00:00Z")
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("boot-2\n")
    assert program.look("r")["rebooted"] is True
    with path.open("a") as file:
        file.write(json.dumps({"t": 2, "kind": "end", "reason": "time"}) + "\n")
    assert program.look("r")["rebooted"] is False
