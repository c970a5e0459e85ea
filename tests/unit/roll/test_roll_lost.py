"""A box that is lost in the middle of its change has the last word, whoever else was in its batch."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
#: What Ansible itself does about a lost box is what roles and callback build on, so it is asked here as well.
PLAYBOOK = """
- name: Roll
  hosts: box1:box2:box3
  gather_facts: false
  serial: "{{ batches }}"
  max_fail_percentage: 0
  tasks:
    - ansible.builtin.assert:
        that: ansible_play_hosts_all | difference(ansible_play_hosts) | length == 0
        fail_msg: behind a lost box
    - block:
        - ansible.builtin.set_fact: {__roll_out: true, __roll_back: false}
        - name: Change it
          ansible.builtin.command: "true"
          vars:
            ansible_connection: "{{ 'ssh' if inventory_hostname == 'box2' else 'local' }}"
            ansible_host: 127.0.0.1
            ansible_port: 1
        - ansible.builtin.set_fact: {__roll_out: false, __roll_back: true}
        - ansible.builtin.debug: {msg: "finished {{ inventory_hostname }}"}
      rescue:
        - ansible.builtin.debug: {msg: brought back}
- name: Finish
  hosts: box1:box2:box3
  gather_facts: false
  tasks:
    - ansible.builtin.debug: {msg: "finish {{ inventory_hostname }}"}
"""


@pytest.mark.parametrize(
    ("batches", "gate", "others"),
    [("[1]", False, ["box1"]), ("[1, 2]", False, ["box1", "box3"]), ("[2, 1]", True, ["box1"])],
)
def test_a_lost_box_is_named_with_the_way_on(tmp_path, batches, gate, others):
    playbook = tmp_path / "play.yml"
    playbook.write_text(PLAYBOOK)
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_FORCE_COLOR": "0"}
    command = [
        "ansible-playbook",
        "-i",
        "box1,box2,box3,",
        "-c",
        "local",
        str(playbook),
        "-e",
        f"{{batches: {batches}}}",
    ]
    done = subprocess.run(command, check=False, env=environment, cwd=ROOT, capture_output=True, text=True)
    said = done.stdout
    assert done.returncode != 0
    assert "brought back" not in said, "no rescue runs for a box that cannot be reached"
    assert ("behind a lost box" in said.split("PLAY RECAP")[0]) is gate
    assert [box for box in ("box1", "box2", "box3") if f"finished {box}" in said] == others
    last = said[said.index("The roll lost a box") :]
    assert "box2 was not reached any more at: Change it" in last and "refused" in last
    assert "--limit 'gpu_boxes:!box2'" in last
    assert ("Not touched: box3." in last) is ("box3" not in others)


def test_a_run_that_loses_nobody_says_nothing(tmp_path):
    playbook = tmp_path / "play.yml"
    playbook.write_text(PLAYBOOK.replace("'ssh'", "'local'"))
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    command = ["ansible-playbook", "-i", "box1,box2,box3,", "-c", "local", str(playbook), "-e", "{batches: [1]}"]
    done = subprocess.run(command, check=True, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert "The roll lost" not in done.stdout
