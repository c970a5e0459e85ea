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
    host, boot, pid, started = here["run"].split(":")
    assert this_run.state({"run": f"{host}:{boot}:{pid}:{int(started) - 1}"}, here) == "over"
    assert this_run.state({"run": f"{host}:another-boot:{pid}:{started}"}, here) == "over"


def test_what_cannot_be_known():
    here = this_run.this_run()
    assert this_run.state({"run": "elsewhere:boot:1:2"}, here) == "unknown"
    assert this_run.state({"run": "unknown"}, here) == "unknown"
