"""What the role does for a box, run by Ansible against a real HAProxy: lost gateways, permissions, check mode."""

import json
import os
import shutil
import subprocess

import pytest
import yaml
from gateway_lab import ROOT, wait_for

ANSIBLE = shutil.which("ansible-playbook")
PLAY = """
- hosts: "{{ which | default('box1') }}"
  gather_facts: false
  tasks:
    - name: Ask
      block:
        - ansible.builtin.include_role:
            name: gateway
            tasks_from: "{{ step }}"
      rescue:
        - ansible.builtin.debug:
            msg: "rescued: {{ results | map(attribute='msg', default='') | join('; ') }}"
          vars:
            results: "{{ ansible_failed_result.results | default([ansible_failed_result]) }}"
"""


def play_it(folder, *options):
    done = subprocess.run(
        [ANSIBLE, "-i", folder / "hosts.yml", folder / "play.yml", *options],
        cwd=ROOT,
        env=os.environ | {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_STDOUT_CALLBACK": "default"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return " ".join((done.stdout + done.stderr).split())


@pytest.fixture
def run(gateway, engines, tmp_path):
    """run(step, **extra variables): what ansible-playbook says; the gateways gw1 and, where `lost`, gw2 that is off."""

    def start(step, *options, lost=False, facts=None, need=None, boxes=("box1", "box2"), **variables):
        box = {
            name: {
                "__vllm_endpoints": [
                    {
                        "engine": "main",
                        "model": "model",
                        "port": engines[f"{name}-main"].port if f"{name}-main" in engines else 1,
                    }
                ],
                "ansible_host": "127.0.0.1",
                **(facts or {}),
            }
            for name in boxes
        }
        for name, needed in (need or {}).items():
            box[name]["tandem_need"] = {"engine": needed}
        off = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
        inventory = {
            "all": {
                "vars": {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"},
                "children": {
                    "gpu_boxes": {"hosts": box},
                    "gateways": {"hosts": {"gw1": {}} | ({"gw2": off} if lost else {})},
                },
            }
        }
        (tmp_path / "hosts.yml").write_text(yaml.safe_dump(inventory))
        (tmp_path / "play.yml").write_text(PLAY)
        extra = {
            "step": step,
            "ansible_become": False,
            "__gateway_socket": gateway.socket,
            "__gateway_restore_timeout": 10,
        }
        return play_it(tmp_path, *options, "-e", json.dumps(extra | variables))

    return start


def test_a_lost_gateway_fails_the_box_and_leaves_it_in_service(gateway, run):
    said = run("drain", lost=True)
    assert "rescued: gw2 cannot be reached" in said and "Nothing was drained" in said
    assert gateway.status("box1-main") == "UP"


def test_a_gateway_that_is_lost_before_the_box_comes_back(gateway, run):
    """The box is "failed", so the play's rescue runs; an unreachable one would just be gone."""
    gateway.ask("set server engines/box1-main state drain")
    said = run("restore", lost=True)
    assert "rescued: gw2 cannot be reached" in said and "The other gateways send box1 requests again" in said
    wait_for(lambda: gateway.status("box1-main") == "UP")
    for step in ("reconcile", "status"):
        assert "rescued: gw2 cannot be reached" in run(step, lost=True)


def test_drain_and_restore(gateway, run):
    assert "rescued: " not in run("drain") and gateway.status("box1-main").startswith("DRAIN")
    assert "rescued: " not in run("restore") and gateway.status("box1-main") == "UP"


def test_the_last_box_is_drained_only_where_somebody_said_so(gateway, run):
    gateway.ask("set server engines/box2-main state drain")
    said = run("drain")
    assert "would leave 0 of 2 servers UP" in said and "-e tandem_allow_interruption=true" in said
    # site.yml's own word, where nobody would be interrupted
    said = run("drain", facts={"tandem_allow_interruption": True, "__tandem_told_to_interrupt": False})
    assert "would leave 0 of 2 servers UP" in said and gateway.status("box1-main") == "UP"
    # rollback.yml and bench.yml, which know no such fact
    assert "rescued: " not in run("drain", tandem_allow_interruption="true")
    assert gateway.status("box1-main").startswith("DRAIN")
    gateway.ask("set server engines/box1-main state ready")
    assert "rescued: " not in run("drain", facts={"__tandem_told_to_interrupt": True})
    assert gateway.status("box1-main").startswith("DRAIN")


def test_a_box_that_is_kept_drained_stays_so(gateway, run):
    gateway.ask("set server engines/box1-main state drain")
    for step in ("restore", "reconcile"):
        assert "rescued: " not in run(step, gateway_keep_drained=["box1"])
        assert gateway.status("box1-main").startswith("DRAIN")


def test_a_run_does_not_end_well_while_an_engine_gets_no_requests(gateway, engines, run):
    quick = {"which": "gpu_boxes", "__gateway_serving_timeout": 3}
    assert "rescued: " not in run("serving", **quick)
    engines["box1-main"].stop()
    wait_for(lambda: gateway.status("box1-main") == "DOWN", what="DOWN")
    gateway.ask("set server engines/box2-main state drain")
    boxes = ("box1", "box2", "box3")
    said = run("serving", lost=True, boxes=boxes, **quick)
    assert "box1-main is DOWN on gw1: its health check says: L4CON" in said
    assert "systemctl status vllm-main.service on box1" in said
    assert "box2-main is DRAIN" in said and "it was drained after this run" in said
    assert "box3-main is not one of gw1's servers" in said and "gw2 cannot be asked" in said
    # a box that is out on purpose is no fault, nor one that is not of this run
    said = run("serving", gateway_keep_drained=["box2"], **quick)
    assert "box1-main is DOWN" in said and "box2-main" not in said
    assert "rescued: " not in run("serving", gateway_keep_drained=["box1", "box2"], **quick)


def test_check_mode_on_a_box_that_the_gateway_does_not_have_yet(gateway, run):
    boxes = ("box1", "box2", "box3")
    for step in ("reconcile", "restore", "drain"):
        assert "rescued: " not in run(step, "--check", which="box3", boxes=boxes)
    assert "has no server box3-main" in run("reconcile", which="box3", boxes=boxes)


def test_check_mode_counts_what_the_run_would_have_brought_up(gateway, engines, run):
    engines["box2-main"].stop()
    wait_for(lambda: gateway.status("box2-main") == "DOWN", what="DOWN")
    assert "would leave 0 of 2" in run("drain", "--check", need={"box1": "restart", "box2": "restart"})
    assert "rescued: " not in run("drain", "--check", need={"box1": "restart", "box2": "start"})
    assert "would leave 0 of 2" in run("drain", need={"box1": "restart", "box2": "start"})
    assert gateway.status("box1-main") == "UP"


@pytest.mark.parametrize("how", ["failed", "unreachable", "well"])
def test_a_gateway_that_is_lost_stops_the_run_before_a_box_is_touched(tmp_path, how):
    """The plays of gateway.yml as they are, with a task in place of the role."""
    text = (ROOT / "playbooks/gateway.yml").read_text()
    plays = yaml.safe_load(text)
    step = {"name": "Converge", "ansible.builtin.ping": None}
    step |= {"failed_when": "inventory_hostname == 'gw1'"} if how == "failed" else {}
    plays[0]["tasks"][1]["block"][0] = step
    plays[0]["tasks"][1]["rescue"] = [{"name": "Give up", "ansible.builtin.fail": {"msg": "gave up"}}]
    plays[1]["tasks"][0] = {
        "name": "Unlock",
        "ansible.builtin.debug": {"msg": "unlocked"},
        "when": plays[1]["tasks"][0]["when"],
    }
    plays.append(
        {"hosts": "gpu_boxes", "gather_facts": False, "tasks": [{"ansible.builtin.debug": {"msg": "touched"}}]}
    )
    for play in plays:
        play.pop("become", None)
    off = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
    hosts = {"gw1": off if how == "unreachable" else {}, "gw2": {}}
    here = {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}
    children = {"gateways": {"hosts": hosts}, "gpu_boxes": {"hosts": {"box1": {}, "box2": {}}}}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"vars": here, "children": children}}))
    (tmp_path / "play.yml").write_text(yaml.safe_dump(plays))
    said = play_it(tmp_path)
    lost = "gw1 failed or cannot be reached any more, so no box was touched" in said
    assert lost == (how != "well") == ("msg: unlocked" in said)
    assert ("msg: touched" in said) == (how == "well")


def test_a_limited_run_asks_the_gateways_whether_the_box_admits_them(run):
    admits = {"v4": ["192.0.2.10"], "v6": [], "problems": [], "filters": True}
    said = run("sources_of_box", "--check", lost=True, facts={"__vllm_sources": admits})
    assert "rescued: " in said
    assert "gw1 reaches box1 from 127.0.0.1, and the engines of box1 would admit 192.0.2.10" in said
    admits["v4"] = ["127.0.0.1"]
    said = run("sources_of_box", "--check", lost=True, facts={"__vllm_sources": admits})
    assert "rescued: " not in said and "failed=0" in said
