"""A group that is misspelled, empty or left out by --limit is an error, in every playbook."""

import subprocess
from pathlib import Path

import pytest
import yaml
from reach import inventory_findings, unread_settings  # plugins/filter/reach.py

ROOT = Path(__file__).parents[2]
PLAYBOOKS = [ROOT / "site.yml", *sorted((ROOT / "playbooks").glob("*.yml"))]
# Imported by others, after their head; report.yml needs no inventory.
PARTS = {"inventory", "reach", "plan", "gateway", "bring_up_hosts", "bring_up_engines", "roll", "finish", "report"}
BOXES = ["box1", "box2"]


def groups(**more):
    named = {name.replace("__", "-"): hosts for name, hosts in more.items()}
    everything = list(dict.fromkeys(host for hosts in named.values() for host in hosts))
    return {"all": everything, "ungrouped": [], **named}


def find(inventory, hosts=None, limit="", **more):
    return inventory_findings(inventory, inventory["all"] if hosts is None else hosts, limit, **more)


@pytest.mark.parametrize(
    "inventory",
    [
        groups(gpu_boxes=BOXES),
        groups(gpu_boxes=BOXES, gateways=["gw"]),
        groups(gpu_boxes=BOXES, gateways=["box1"]),
        groups(gpu_boxes=BOXES, simulated=["box1", "box2"], monitoring=["nas"], gatewatch=["nas"]),
        # names of a user's own, for hosts that the right groups have as well
        groups(gpu_boxes=BOXES, gateways=["gw"], gateway=["gw"], gpu__boxes=["box2"]),
        groups(gpu_boxes=BOXES, gpu_boxes_berlin=["box1"]),
        {**groups(gpu_boxes=BOXES), "ungrouped": ["localhost"]},
    ],
)
def test_a_right_inventory_has_no_finding(inventory):
    assert find(inventory) == []
    assert find(inventory, ["box2"], "box2") == []


@pytest.mark.parametrize(
    "name", ["gpu__boxes", "gpuboxes", "gpu_box", "gpu_Boxes", "GPU_BOXES", "gpubox", "gpu_boxs", "gpus_boxes"]
)
def test_a_misspelled_group_of_boxes_is_named(name):
    (finding,) = find(groups(**{name: BOXES}, gateways=["gw"]))
    assert finding.startswith("No host in gpu_boxes: the group is not in the inventory. There is ")
    assert f"There is {name.replace('__', '-')} (box1, box2): is that meant?" in finding


@pytest.mark.parametrize("name", ["gateway", "Gateways", "gate__ways", "gatway", "gateway_s"])
def test_a_misspelled_group_of_gateways_is_named(name):
    (finding,) = find(groups(gpu_boxes=BOXES, **{name: ["gw"]}))
    assert "No host in gateways" in finding and f"There is {name.replace('__', '-')} (gw): is that meant?" in finding


@pytest.mark.parametrize(
    ("inventory", "words"),
    [
        (groups(gpu_boxes=[]), "No host in gpu_boxes: the group is empty. The machines with the cards belong into"),
        (groups(gpu_boxes=[], gpu__boxes=BOXES), "the group is empty. There is gpu-boxes (box1, box2)"),
        (groups(), "is not in the inventory. The machines with the cards"),
        ({"all": ["a"], "ungrouped": ["a"]}, "a is in no group"),
        (groups(workers=BOXES), "There are workers."),
        # half of the boxes in each of two spellings
        (groups(gpu_boxes=["box1"], gpu__boxes=["box2"]), "Hosts would be left out. There is gpu-boxes (box2)"),
        (groups(gpu_boxes=BOXES, gateways=["gw"], gateway=["gw2"]), "Gateways would be left out. There is gateway"),
    ],
)
def test_what_plays_would_not_find(inventory, words):
    (finding,) = find(inventory)
    assert words in finding


def test_a_limit_that_leaves_no_box():
    inventory = groups(gpu_boxes=BOXES, gateways=["gw"], other=["nas"])
    for host in ("gw", "nas"):
        (finding,) = find(inventory, [host], host)
        assert f"--limit {host} leaves {host}, and gpu_boxes has box1, box2." in finding
    # chat.yml asks gateways alone as well
    assert find(inventory, ["gw"], "gw", gateways_suffice=True) == []
    assert find(inventory, ["nas"], "nas", gateways_suffice=True) != []


def test_files_of_settings_that_are_read_by_nothing(tmp_path):
    known = groups(gpu_boxes=["box1"], gateways=["gw"], rack_a=["box1"])
    right = ["group_vars/all", "group_vars/gpu_boxes.yml", "group_vars/rack_a", "host_vars/box1.yml"]
    # a removed host, a group of another inventory, an editor's own
    others = ["host_vars/box3.yml", "group_vars/rack_b.yml", "group_vars/monitoring", "group_vars/.gpu-boxes.swp"]
    for name in [*right, *others]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert unread_settings(known, str(tmp_path)) == []
    wrong = {
        "group_vars/gpu-boxes.yml": "gpu_boxes",
        "group_vars/Gateway": "gateways",
        "group_vars/gpu_bxes": "gpu_boxes",
    }
    wrong |= {"group_vars/rack-a.json": "rack_a", "host_vars/Box1.yaml": "box1"}
    for name, meant in wrong.items():
        (tmp_path / name).touch()
        (finding,) = unread_settings(known, str(tmp_path))
        assert f"{name} is read by nothing" in finding and f"Is {meant} meant?" in finding
        (tmp_path / name).unlink()
    assert unread_settings(known, None) == unread_settings(known, str(tmp_path / "nowhere")) == []


@pytest.mark.parametrize("path", PLAYBOOKS, ids=lambda path: path.stem)
def test_every_playbook_begins_with_the_check(path):
    if path.stem in PARTS - {"plan"}:
        return
    first = yaml.safe_load(path.read_text())[0].get("ansible.builtin.import_playbook", "")
    head = (path.parent / first).name
    # plan.yml has the check for site.yml and engines.yml
    assert head in ("inventory.yml", "plan.yml")


def test_a_run_on_a_misspelled_group_ends_with_an_error(tmp_path):
    (tmp_path / "hosts.yml").write_text("all: {children: {gpu-boxes: {hosts: {box1: {}}}}}")
    done = subprocess.run(
        ["ansible-playbook", "-i", str(tmp_path / "hosts.yml"), "playbooks/profiles.yml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "There is gpu-boxes (box1): is that meant?" in " ".join(done.stdout.split())
    assert "Judge each profile" not in done.stdout
