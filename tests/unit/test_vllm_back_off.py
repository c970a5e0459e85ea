"""How long an engine waits after starts that failed, and when it begins to count anew."""

import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "roles/vllm/files/vllm-back-off"
loader = importlib.machinery.SourceFileLoader("vllm_back_off", str(PROGRAM))
sys.dont_write_bytecode = True
back_off = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
loader.exec_module(back_off)


def test_the_waits_grow_to_ten_minutes_and_no_further():
    waits = [back_off.seconds(failed) + back_off.FIRST for failed in range(9)]
    assert waits == [10, 20, 40, 80, 160, 320, 600, 600, 600]
    assert back_off.seconds(10**4) == back_off.seconds(10**12) == 590


@pytest.fixture
def start(tmp_path):
    """Runs the program as the unit's start number `restarts` by itself; returns (failed starts before it, waits)."""

    def run(restarts):
        systemctl = tmp_path / "systemctl"
        systemctl.write_text(f"#!/bin/sh\necho '{restarts}'\n")
        systemctl.chmod(0o755)
        # the program itself, with a clock that does not wait
        words = ["vllm-back-off", "--container", "vllm-main", "--record", str(tmp_path / "run/starts")]
        command = (
            "import importlib.machinery, sys, time\n"
            "time.sleep = lambda seconds: print('slept', seconds)\n"
            f"sys.argv = {words!r}\n"
            f"importlib.machinery.SourceFileLoader('b', {str(PROGRAM)!r}).load_module().main()"
        )
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-B", "-c", command],
            env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        told = json.loads((tmp_path / "run/starts").read_text())
        assert abs(told["since"] - time.time()) < 60
        slept = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("slept")]
        return told["failed"], sum(slept), done.stdout

    return run


def test_each_start_that_systemd_makes_waits_longer(start):
    assert [start(number)[:2] for number in range(4)] == [(0, 0), (1, 10), (2, 30), (3, 70)]
    assert "the last 4 starts in a row failed" in start(4)[2]


def test_a_start_that_somebody_asks_for_does_not_wait_and_counts_anew(start):
    for number in range(4):
        start(number)
    assert start(0)[:2] == (0, 0)
    assert start(1)[:2] == (1, 10)


def test_an_engine_that_worked_in_between_starts_at_once(start, tmp_path):
    for number in range(4):
        start(number)
    # vllm-wait-ready
    (tmp_path / "run/starts").unlink()
    assert start(5)[:2] == (0, 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"failed": null}',
        '{"failed": "x", "since": 1}',
        "5",
        '{"failed": 1e400, "since": 1}',
        '{"failed": 1, "since": 99999999999999999999}',
        "[" * 100000,
    ],
)
def test_a_broken_record_is_none(start, tmp_path, text):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/starts").write_text(text)
    assert start(3)[:2] == (0, 0)


def test_an_engine_starts_where_the_count_cannot_be_written(tmp_path, capsys):
    (tmp_path / "starts/folder").mkdir(parents=True)
    back_off.write(str(tmp_path / "starts"), {"failed": 0, "since": 0})
    (tmp_path / "file").write_text("")
    back_off.write(str(tmp_path / "file/starts"), {"failed": 0, "since": 0})
    assert capsys.readouterr().out.count("the failed starts are not counted: ") == 2


@pytest.mark.parametrize("said", ["", "[not set]", "Failed to connect to bus"])
def test_a_systemctl_that_does_not_say_is_no_reason_to_wait(start, said):
    start(0)
    assert start(said)[:2] == (0, 0)
