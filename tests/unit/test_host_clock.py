"""The box's clock against the controller's, as the role's own variables hand them to the filter."""

import json
import re
import subprocess
import time
from pathlib import Path

import pytest
from host_fixtures import host

ROOT = Path(__file__).parents[2]
ROLE = ROOT / "roles/host_preflight"
FINDINGS = "{{ __host_preflight_findings }}"


@pytest.mark.parametrize(("wrong_by", "told"), [(0, False), (3600, True), (-3600, True)])
def test_a_clock_that_is_wrong_is_told(tmp_path, wrong_by, told):
    info = host(time=time.time() + wrong_by)
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars_files": [str(ROLE / "defaults/main.yml"), str(ROLE / "vars/main.yml")],
        "vars": {"__host_preflight_looked": {"host_info": info}},
        "tasks": [{"ansible.builtin.copy": {"dest": str(tmp_path / "out"), "content": FINDINGS}}],
    }
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    command = ["ansible-playbook", "-i", "localhost,", str(tmp_path / "play.yml")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    findings = json.loads((tmp_path / "out").read_text())
    assert bool(findings) is told
    assert all(re.match("its clock differs by 3[56][0-9]{2} s", finding) for finding in findings)
