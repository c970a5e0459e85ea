#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The field report, replayed in the simulation: `make replay`, some fifteen minutes.

One simulated box with the stand-in engine goes through what the report's author tried, with the playbooks that real
boxes get. Every figure goes in through sim/standin/speeds.json, which is taken from the report, and comes out again:
this shows that the tooling measures, refuses, survives a reboot and searches. IT SAYS NOTHING ABOUT ANY HARDWARE.

    sim/replay.py            all of it; ends with a table and a report page below .cache/replay
    sim/replay.py --keep     leaves the simulated box running
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import report_check

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".cache/replay"
INVENTORY = "inventory/sim-replay"
SPEEDS = ROOT / "sim/standin/speeds.json"
#: The cards' grid, as the simulated NVML has it and a 4090 does.
GRID_MHZ = range(210, 3106, 15)
#: The report's final clock lock.
LOCK_MHZ = 2100
#: Of case prefill_2k: below the 4K from which an unlocked box reboots.
PROMPT_TOKENS = 2048
SIMULATED = "simulated: says nothing about hardware"


class Step(NamedTuple):
    """One command of a user.

    title, reported  what is tried, and what the field report says came of it
    playbook         below the root, without .yml
    settings         its -e
    fails            whether it is to end with an error, as a refusal and a reboot do
    judge            output, documents written -> (what was seen, whether that is as the model implies)
    """

    title: str
    reported: str
    playbook: str
    settings: dict
    fails: bool
    judge: object


def implied_clock(speeds, grid=GRID_MHZ):
    """The highest clock on the grid that the simulated power supply survives."""
    return max(clock for clock in grid if clock <= speeds["power"]["survives_up_to_mhz"])


def speed_at(speeds, what, clock_mhz):
    """Share of the unlocked speed of `what` (decode, prefill) at a lock, by the model's straight lines."""
    points = speeds["clock"][what]
    for (low, below), (high, above) in itertools.pairwise(points):
        if low <= clock_mhz <= high:
            return below + (above - below) * (clock_mhz - low) / (high - low)
    return points[-1][1] if clock_mhz > points[-1][0] else points[0][1] * clock_mhz / points[0][0]


def judge_speed(decode, prefill, acceptance):
    """Of a measurement: decode within 5 % of the model, acceptance within 5 points, prefill within 10 %.

    Prompts differ in how many drafts they accept, and a busy machine adds to a short prefill.
    """

    def judge(_output, documents):
        cases = next(iter(documents[-1]["engines"].values()))["result"]["cases"]
        seen = cases["decode_chat"]["value"], cases["prefill_2k"]["value"], cases["decode_chat"]["acceptance"]
        good = (
            abs(seen[0] / decode - 1) <= 0.05
            and abs(seen[1] / prefill - 1) <= 0.10
            and abs(seen[2] - acceptance) <= 0.05
        )
        told = f"{seen[0]:.1f} tok/s, prefill {seen[1]:.0f} (2K prompts, overhead included), {seen[2]:.1%} accepted"
        return told, good

    return judge


def judge_refused(*words):
    """Of a run that must end before anything is changed, with these words."""

    def judge(output, _documents):
        flat = re.sub(r"\s+", " ", output)
        good = all(word in flat for word in words) and not re.search(r"changed=[1-9]", flat)
        return ("refused before anything was touched" if good else "it was not refused as it should be"), good

    return judge


def judge_stress(what):
    """Of a stress run: `what` is survived, or what happened to the box."""

    def judge(_output, documents):
        verdict = documents[-1]["verdict"]
        return verdict["says"], verdict["what"] == what

    return judge


def judge_search(clock_mhz):
    """Of a clock search: the highest clock that survived is exactly this one, and the next on the grid failed."""

    def judge(_output, documents):
        result = documents[-1]["result"] or {"highest_mhz": None, "lowest_failed_mhz": None}
        best, failed = result["highest_mhz"], result["lowest_failed_mhz"]
        above = next(clock for clock in GRID_MHZ if clock > clock_mhz)
        return f"{best} MHz survived, {failed} MHz failed", (best, failed) == (clock_mhz, above)

    return judge


def judge_page(reports):
    """Of the report: every number on the page is in the replay's JSON, and Chromium finds nothing wrong with it."""

    def judge(_output, _documents):
        pages = sorted(Path(reports).rglob("index.html"))
        if not pages:
            return "no page was written", False
        figures, numbers, problems = report_check.check(pages[-1], Path(reports))
        if "simulated" not in pages[-1].read_text(encoding="utf-8"):
            problems.append("it does not say that it is simulated")
        if problems:
            return "; ".join(problems[:5]), False
        told = f"{figures} figures; {numbers} numbers, each as in its file; no error and no request in Chromium"
        return told, figures > 0 and numbers > 0

    return judge


def judge_done(seen):
    """Of a run that has to end well and no more."""
    return lambda _output, _documents: (seen, True)


INITIAL = {"vllm_profile": "qwen3.8-27b-int4-initial"}
PITFALL_1 = {"vllm_profile": "qwen3.8-27b-int4-flash-attn-fp8"}
# With its chunk of 4096 tokens the check of a start is a prompt of more than 4K, which reboots a box without a lock.
PITFALL_2 = {"vllm_profile": "qwen3.8-27b-int4-flash-attn-bf16", "vllm_args": {"max-num-batched-tokens": None}}
FINAL = {"vllm_profile": "qwen3.8-27b-int4"}
# So are some of the canary's prompts. The report's author had neither.
UNLOCKED = {"gpu_clocks_state": "unlocked", "vllm_canary": "never"}


def steps(speeds, reports):
    """All steps in their order; results go to the folder `reports`."""
    decode, prefill, limit = speeds["decode"], speeds["prefill"], implied_clock(speeds)

    def site(title, reported, settings, judge, fails=False):
        asked = {**settings, "roll_gate": "off", "tandem_allow_interruption": True}
        return Step(title, reported, "site", asked, fails, judge)

    def bench(title, reported, settings, kind, clock_mhz):
        whole = prefill[kind]["tok_s"] * speed_at(speeds, "prefill", clock_mhz)
        judge = judge_speed(
            decode[kind]["tok_s"] * speed_at(speeds, "decode", clock_mhz),
            # the client's figure has each request's overhead in it
            PROMPT_TOKENS / (PROMPT_TOKENS / whole + speeds["request_overhead_s"]["value"]),
            decode[kind]["acceptance"],
        )
        asked = {"bench_measure": "quick", "bench_cases": ["decode_chat", "prefill_2k"], "report_folder": reports}
        return Step(title, reported, "playbooks/bench", {**settings, **asked}, False, judge)

    def stress(title, reported, settings, trial, what):
        asked = {"stress_confirm": True, "stress_seconds": 10, "stress_trial": trial, "stress_reports": reports}
        return Step(title, reported, "playbooks/stress", {**settings, **asked}, what != "survived", judge_stress(what))

    search = {
        "stress_confirm": True,
        "stress_reports": reports,
        "find_clock_seconds": 10,
        "find_clock_low_mhz": limit - 60,
        "find_clock_high_mhz": limit + 60,
    }
    refused = ("FLASH_ATTN", "is refused; nothing was changed")
    return [
        site("initial, cards unlocked", "runs, with warnings", {**INITIAL, **UNLOCKED}, judge_done("serves")),
        bench("initial", "67.6 tok/s, prefill 5016, 84.9 % accepted", INITIAL, "fp8", 2520),
        stress("initial, long prompts", "the whole server reboots", INITIAL, None, "reboot"),
        site("FLASH_ATTN with fp8", "refuses to start", {**PITFALL_1, **UNLOCKED}, judge_refused(*refused), True),
        site("bf16 KV cache", "runs, a clean log", {**PITFALL_2, **UNLOCKED}, judge_done("serves")),
        bench("bf16 KV cache", "31.7 tok/s, prefill 4230, 76.3 % accepted", PITFALL_2, "16-bit", 2520),
        site("final, lock 2100 MHz", "runs", FINAL, judge_done("serves")),
        bench("final", "lock costs decode 10 %, prefill 10 to 15 %", FINAL, "fp8", LOCK_MHZ),
        stress("power limit 150 W", "no reboot", FINAL, {"state": "unlocked", "power_limit_w": 150}, "survived"),
        stress("power limit 200 W", "still reboots", FINAL, {"state": "unlocked", "power_limit_w": 200}, "reboot"),
        stress("clock lock 2400 MHz", "still reboots", FINAL, {"max_mhz": 2400}, "reboot"),
        stress("clock lock 2100 MHz", "stable under load", FINAL, {"max_mhz": LOCK_MHZ}, "survived"),
        Step(
            "the highest stable clock",
            "2100 stable, 2400 not; nothing between was tried",
            "playbooks/find_clock",
            {**FINAL, **search},
            False,
            judge_search(limit),
        ),
        Step("the report page", "", "playbooks/report", {"report_folder": reports}, False, judge_page(reports)),
    ]


def documents_below(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*.json")}


def take(step, log, environment, known):
    """(seconds, what was seen, whether it is as implied) of a step; its output goes to the file `log`."""
    started = time.monotonic()
    command = [str(ROOT / ".venv/bin/ansible-playbook"), "-i", INVENTORY, f"{step.playbook}.yml"]
    with log.open("w", encoding="utf-8") as out:
        done = subprocess.run(
            [*command, "-e", json.dumps(step.settings)], cwd=ROOT, env=environment, stdout=out, stderr=out, check=False
        )
    now = documents_below(FOLDER)
    new = sorted((path for path in now if known.get(path) != now[path]), key=now.get)
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in new]
    seconds = time.monotonic() - started
    if (done.returncode != 0) != step.fails:
        return seconds, f"ended with exit code {done.returncode}", False
    try:
        seen, good = step.judge(log.read_text(encoding="utf-8"), documents)
    except (IndexError, KeyError):
        return seconds, "it wrote no result", False
    return seconds, seen, good


def table(rows):
    """Lines of (title, reported, seen, good)."""
    lines = []
    for title, reported, seen, good in rows:
        lines.append(f"  {'as reported' if good else 'NOT SO':<12} {title}")
        lines += [f"  {'':<12}   field report: {reported}"] if reported else []
        lines.append(f"  {'':<12}   simulated:    {seen}")
    return lines


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--keep", action="store_true", help="leave the simulated box running")
    keep = options.parse_args().keep
    environment = {
        "TANDEM_SIM_LAB": "replay",
        "TANDEM_SIM_NETWORK": "10.98.87",
        **os.environ,
        "TANDEM_SIM_INVENTORY": INVENTORY,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_FORCE_COLOR": "0",
        "ANSIBLE_NOCOLOR": "1",
    }
    environment["PATH"] = f"{ROOT}/.venv/bin:{environment['PATH']}"
    started = time.monotonic()
    shutil.rmtree(FOLDER, ignore_errors=True)
    logs, reports = FOLDER / "logs", FOLDER / "reports"
    logs.mkdir(parents=True)
    reports.mkdir()

    def say(text):
        print(f"[{time.monotonic() - started:4.0f} s] {text}", flush=True)

    def lab(*command):
        with (logs / "lab.log").open("a", encoding="utf-8") as out:
            return subprocess.run(command, cwd=ROOT, env=environment, stdout=out, stderr=out, check=False).returncode

    print(f"The field report of August 2026, replayed. {SIMULATED.capitalize()}; every figure goes in, none comes out.")
    say("a simulated box, bare")
    # what an earlier replay left, but not the daemon
    if lab("ansible-playbook", "-i", INVENTORY, "sim/playbooks/down.yml") or lab("sim/lab.sh", "up"):
        print(f"the simulated box did not start: {logs / 'lab.log'}", file=sys.stderr)
        return 1
    rows = []
    for number, step in enumerate(steps(json.loads(SPEEDS.read_text(encoding="utf-8")), str(reports)), 1):
        say(step.title)
        log = logs / f"{number:02d}-{re.sub('[^a-z0-9]+', '-', step.title.lower())}.log"
        seconds, seen, good = take(step, log, environment, documents_below(FOLDER))
        say(f"  simulated: {seen} ({seconds:.0f} s)")
        rows.append((step.title, step.reported, seen, good))
        if not good:
            print(f"that is not what the model implies; the run's output: {log}", file=sys.stderr)
            break
    print(f"\nThe replay ({SIMULATED}):")
    print("\n".join(table(rows)))
    pages = sorted(reports.rglob("index.html"))
    if pages:
        print(f"\nThe report page, simulated as well: {pages[-1]}")
    if not keep:
        lab("sim/lab.sh", "down")
    return 0 if all(row[3] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
