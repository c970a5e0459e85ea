"""A report of what was measured a moment ago: stand-in engine, bench-run, the file of playbooks/bench.yml, the page.

No box and no lab: the engine's container runs on this machine.
"""

import importlib.util
import json
import os
import subprocess
import sys

import jsonschema
import pytest
import real_vllm
import report_check
import yaml
from conftest import ROOT

BENCH = ROOT / "roles/bench"
RECIPES = yaml.safe_load((BENCH / "vars/main.yml").read_text())["__bench_recipes"]
STANDIN = "tandem-sim/standin:0.32.0"
SERVE = [
    *("/models", "--served-model-name", "m", "--max-model-len", "16384", "--kv-cache-dtype", "fp8"),
    *("--speculative-config", '{"method": "mtp", "num_speculative_tokens": 2}'),
]
PROFILE = "qwen3.8-27b-int4"
HASH = "0123456789abcdef"
# what playbooks/bench.yml has done by the time that it writes its file
WRITE = [
    {
        "name": "Write what was measured",
        "hosts": "box1",
        "gather_facts": False,
        "connection": "local",
        "tasks": [
            {
                "name": "Load the recipes",
                "ansible.builtin.include_vars": {"file": str(BENCH / "vars/main.yml")},
            },
            {
                "name": "Judge",
                "ansible.builtin.set_fact": {
                    "report_engines": {
                        "main": {
                            "result": "{{ measured }}",
                            "verdict": "{{ none | bench_verdict(measured, expects) }}",
                            "expects": "{{ expects }}",
                        }
                    }
                },
                "vars": {"measured": "{{ outputs | bench_result(__bench_recipes, inventory_hostname, endpoint, at) }}"},
            },
            {
                "name": "Write the file",
                "ansible.builtin.include_tasks": str(ROOT / "playbooks/tasks/bench_report.yml"),
            },
        ],
    }
]
pytestmark = [
    pytest.mark.skipif(report_check.CHROMIUM is None, reason="no Chromium on this machine; make setup installs it"),
    pytest.mark.skipif((reason := real_vllm.why_not(STANDIN)) is not None, reason=str(reason)),
]


def replay():
    spec = importlib.util.spec_from_file_location("replay", ROOT / "sim/replay.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """{case: what bench-run printed} of a stand-in engine that is fast enough for a test."""
    folder = tmp_path_factory.mktemp("engine")
    options = ["--env", "SIM_LOAD_SECONDS=0", "--env", "SIM_TIME_SCALE=10", "--label", f"tandem.config={HASH}"]
    container = real_vllm.Container(folder, folder, SERVE, STANDIN, options)
    try:
        container.wait_ready()
        (folder / "tandem").symlink_to(BENCH.parents[1] / "module_utils")
        return {case: measured(container, case, folder) for case in ("decode_chat", "prefill_2k", "concurrent_8")}
    finally:
        container.remove()


def measured(container, case, folder):
    recipe = RECIPES[case]["recipe"]
    order = {
        "engine": {
            "container": container.container,
            "url": container.url,
            "model": "m",
            "secrets": str(container.secrets),
        },
        "recipe": recipe,
        "prompts": str(BENCH / f"files/prompts/{recipe['prompts']}.json"),
        "seeds": [0],
        "under_load": False,
        "timeout": 240,
    }
    done = subprocess.run(
        [sys.executable, "-B", BENCH / "files/bench-run"],
        env={**os.environ, "TANDEM_LIBRARY": str(folder / "tandem")},
        input=json.dumps(order),
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout)
    # on a box its simulated driver tells; this machine has none
    output["about"]["simulated"] = True
    return output


def playbook(path, inventory, **settings):
    done = subprocess.run(
        ["ansible-playbook", "-i", inventory, path, "-e", json.dumps(settings)],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_was_just_measured_is_a_file_by_the_schema_and_a_page_by_the_browser(outputs, tmp_path):
    reports = tmp_path / "reports"
    profile = yaml.safe_load((ROOT / f"roles/vllm/vars/profiles/{PROFILE}.yml").read_text())
    write = tmp_path / "write.yml"
    write.write_text(yaml.safe_dump(WRITE, sort_keys=False))
    playbook(
        write,
        "box1,",
        outputs=outputs,
        at="2026-11-30T09:00:00Z",
        endpoint={"engine": "main", "profile": PROFILE, "hash": HASH},
        expects=profile["expects"],
        report_folder=str(reports),
    )
    (file,) = reports.rglob("bench-box1-*.json")
    document = json.loads(file.read_text())
    jsonschema.Draft202012Validator(json.loads((BENCH / "files/bench.schema.json").read_text())).validate(document)

    playbook("playbooks/report.yml", "localhost,", report_folder=str(reports))
    seen, good = replay().judge_page(reports)("", [])
    assert good, seen
    (page,) = reports.rglob("index.html")
    # what the file says of each case, as the page rounds it
    text = report_check.Reader(page.read_text()).root.text
    for name, case in document["engines"]["main"]["result"]["cases"].items():
        value = case["value"]
        assert f"{name.replace('_', ' ')}{f'{value:.0f}' if value >= 1000 else f'{value:.1f}'} tok/s" in text

    # the same check finds a figure that was not measured
    value = document["engines"]["main"]["result"]["cases"]["decode_chat"]["value"]
    file.write_text(file.read_text().replace(str(value), str(value + 1)))
    seen, good = replay().judge_page(reports)("", [])
    assert not good and "#/engines/main/result/cases/decode_chat/value is" in seen
