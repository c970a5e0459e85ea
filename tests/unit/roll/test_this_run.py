"""Which run this is: the same for all tasks of a run, another for the next, and over once its process has gone."""

import importlib.util
import json
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
spec = importlib.util.spec_from_file_location("this_run", ROOT / "plugins/lookup/this_run.py")
this_run = importlib.util.module_from_spec(spec)
spec.loader.exec_module(this_run)

PLAYBOOK = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.set_fact:
        first: "{{ lookup('this_run') }}"
    - ansible.builtin.copy:
        dest: "{{ out }}"
        content: "{{ [first.run, lookup('this_run').run, lookup('this_run', first), first.pid] | to_json }}"
"""


def run(tmp_path, name):
    playbook, out = tmp_path / "play.yml", tmp_path / name
    playbook.write_text(PLAYBOOK)
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_LOCALHOST_WARNING": "false"}
    command = ["ansible-playbook", "-i", "localhost,", "-c", "local", str(playbook), "-e", f"out={out}"]
    subprocess.run(command, check=True, env=environment, cwd=ROOT, capture_output=True)
    return json.loads(out.read_text())


def test_one_identity_for_all_tasks_of_a_run_and_another_for_the_next(tmp_path):
    first, second = run(tmp_path, "a"), run(tmp_path, "b")
    assert first[0] == first[1] and first[2] == "going"
    assert first[0] != second[0]
    here = this_run.this_run()
    assert this_run.state({"run": first[0]}, here) == "over"


def test_a_process_that_goes_on_and_one_whose_number_was_given_out_again():
    here = this_run.this_run()
    assert this_run.state(here, here) == "going"
    host, machine, space, boot, pid, started = here["run"].split(":")
    place = f"{host}:{machine}:{space}"
    assert this_run.state({"run": f"{place}:{boot}:{pid}:{int(started) - 1}"}, here) == "over"
    if machine != "unknown":
        assert this_run.state({"run": f"{place}:another-boot:{pid}:{started}"}, here) == "over"


def test_what_cannot_be_known():
    here = this_run.this_run()
    host, machine, space, boot, pid, started = here["run"].split(":")
    for elsewhere in (
        f"elsewhere:{machine}:{space}:{boot}:1:2",
        # host names repeat, and containers have numbers of their own
        f"{host}:another:{space}:another-boot:{pid}:{started}",
        f"{host}:{machine}:1:{boot}:{pid}:{started}",
        f"{host}:{boot}:{pid}:{started}",
        "unknown",
    ):
        assert this_run.state({"run": elsewhere}, here) == "unknown"


def test_another_boot_says_nothing_where_the_machine_has_no_id(monkeypatch):
    monkeypatch.setattr(this_run, "first_line", lambda path: "unknown" if "machine" in path else "boot")
    here = this_run.this_run()
    assert this_run.state(here, here) == "going"
    assert this_run.state({"run": here["run"].replace(":boot:", ":another:")}, here) == "unknown"
