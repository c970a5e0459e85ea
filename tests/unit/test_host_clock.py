"""The box's clock against the controller's, as the role's own variables hand them to the filter."""

import json
import re
import time
from pathlib import Path

import pytest
from host_fixtures import host

ROOT = Path(__file__).parents[2]
ROLE = ROOT / "roles/host_preflight"
FINDINGS = "{{ __host_preflight_findings }}"


@pytest.mark.parametrize(("wrong_by", "told"), [(0, False), (3600, True), (-3600, True)])
def test_a_clock_that_is_wrong_is_told(run_play, tmp_path, wrong_by, told):
    info = host(time=time.time() + wrong_by)
    out = tmp_path / "out"
    play = {
        "hosts": "all",
        "connection": "local",
        "gather_facts": False,
        "vars_files": [str(ROLE / "defaults/main.yml"), str(ROLE / "vars/main.yml")],
        "tasks": [{"ansible.builtin.copy": {"dest": str(out), "content": FINDINGS}}],
    }
    code, said = run_play(play, "box1", __host_preflight_looked={"host_info": info})
    assert code == 0, said
    findings = json.loads(out.read_text())
    assert bool(findings) is told
    assert all(re.match("its clock differs by 3[56][0-9]{2} s", finding) for finding in findings)
