"""What a person reads when machines do not answer."""

import pytest
from reach import unreachable_text  # plugins/filter/reach.py

SAID = "Task failed: Make sure this host can be reached over ssh: ssh: connect to host x port 22: No route to host"
BOXES, GATEWAYS = ["box1", "box2", "box3"], ["gateway1"]


def lost(name, **more):
    return {"inventory_hostname": name, "reached": {"unreachable": True, "msg": SAID}, **more}


@pytest.mark.parametrize(
    ("names", "boxes", "last"),
    [
        (["box1"], BOXES, "To go on without box1 for now: --limit 'gpu_boxes:!box1'"),
        (["box1", "box3"], BOXES, "To go on without box1 and box3 for now: --limit 'gpu_boxes:!box1:!box3'"),
        (["box1"], ["box1"], "  Is it on, is its ansible_host right, and does `ssh box1 sudo -n true` work?"),
        (
            ["box1", "gateway1"],
            BOXES,
            "A gateway must answer, or leave the inventory: it has to be told which boxes leave and come back.",
        ),
    ],
)
def test_the_way_on_leads_somewhere(names, boxes, last):
    lines = unreachable_text([lost(name) for name in names], boxes, GATEWAYS).splitlines()
    assert lines[-1] == last
    assert [line for line in lines if "cannot be reached" in line] == [
        f"{name} ({name}) cannot be reached: ssh: connect to host x port 22: No route to host." for name in names
    ]


def test_the_command_to_try_has_user_and_address():
    text = unreachable_text([lost("box1", ansible_host="10.0.0.7", ansible_user="admin")], BOXES, GATEWAYS)
    assert "box1 (10.0.0.7)" in text and "`ssh admin@10.0.0.7 sudo -n true`" in text
