"""playbooks/report.yml on this machine, and that the fixed results are what the playbooks write."""

import json
import os
import re
import shutil
import subprocess

import jsonschema
import pytest
from conftest import FIXTURES, ROOT
from referencing import Registry, Resource


@pytest.fixture
def reported(tmp_path):
    """A function: options -> (exit code, output) of the playbook over a copy of the fixed results."""
    folder = tmp_path / "reports"
    shutil.copytree(FIXTURES, folder)

    def report(*options):
        done = subprocess.run(
            ["ansible-playbook", "playbooks/report.yml", "-e", f"report_folder={folder}", *options],
            cwd=ROOT,
            env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    return report


def changes(output):
    return int(re.search(r"changed=(\d+)", output)[1])


def test_check_predicts_the_run_writes_and_the_second_run_changes_nothing(reported, tmp_path):
    page = tmp_path / "reports/2026-11-30/index.html"
    code, output = reported("--check", "--diff")
    assert (code, changes(output), page.exists()) == (0, 1, False)
    code, output = reported()
    assert (code, changes(output)) == (0, 1)
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert f"{page}, of 8 files" in " ".join(output.split())
    code, output = reported()
    assert (code, changes(output)) == (0, 0)


def test_a_folder_that_is_not_there_and_a_misspelled_setting_are_named(reported):
    code, output = reported("-e", "report_folder=/nowhere")
    assert code and "report_folder is /nowhere, and there is no such folder" in " ".join(output.split())
    code, output = reported("-e", "report_foldr=x")
    assert code and "did you mean report_folder?" in " ".join(output.split())


@pytest.mark.parametrize("kind", ["bench", "compare", "find_clock", "stress"])
def test_the_fixed_results_keep_to_the_schemas(kind):
    schemas = {path.name: json.loads(path.read_text()) for path in ROOT.glob("roles/*/files/*.schema.json")}
    schema = schemas[f"{kind}.schema.json"]
    registry = Registry().with_resources(
        [(name, Resource.from_contents(one)) for name, one in schemas.items() if "$schema" in one]
    )
    found = list(FIXTURES.rglob(f"{kind}-*.json"))
    assert found
    for path in found:
        jsonschema.Draft202012Validator(schema, registry=registry).validate(json.loads(path.read_text()))
