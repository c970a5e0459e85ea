"""The container toolkit's packages and CDI specification, judged. Fixtures, shaped as toolkit 1.18 writes them."""

import copy
import json

import pytest
import yaml
from container_toolkit import cdi_findings, toolkit_finding  # plugins/filter/container_toolkit.py, see conftest.py

NAMES = [
    "libnvidia-container-tools",
    "libnvidia-container1",
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
]
DRIVER = "580.95.05"
CARDS = ["GPU-c92e34ac-b9c7-b02c-850e-6e3049136628", "GPU-19b134fb-6202-feca-d501-8d95b5b66f4c"]
LIB = "/usr/lib/x86_64-linux-gnu/"


def packages(*versions):
    return {name: {"version": version, "held": True} for name, version in zip(NAMES, versions, strict=True)}


def mount(path):
    return {"hostPath": path, "containerPath": path, "options": ["ro", "nosuid", "nodev", "bind"]}


SPEC = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/gpu",
    "devices": [
        {"name": name, "containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{index}"}]}}
        for index, uuid in enumerate(CARDS)
        for name in (str(index), uuid)
    ]
    + [{"name": "all", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}, {"path": "/dev/nvidia1"}]}}],
    "containerEdits": {
        "deviceNodes": [{"path": "/dev/nvidiactl"}],
        "mounts": [
            mount(f"{LIB}libcuda.so.{DRIVER}"),
            mount(f"{LIB}libnvidia-ml.so.{DRIVER}"),
            # others have versions of their own
            mount(f"{LIB}libnvidia-egl-gbm.so.1.1.2"),
            mount("/run/nvidia-persistenced/socket"),
        ],
    },
}


def spec(change):
    changed = copy.deepcopy(SPEC)
    change(changed)
    return yaml.safe_dump(changed)


@pytest.mark.parametrize("write", [yaml.safe_dump, json.dumps])
def test_the_specification_of_these_cards_and_this_driver(write):
    assert cdi_findings(write(SPEC), DRIVER, CARDS) == []


def test_libraries_may_be_given_to_each_device():
    def move(spec):
        spec["devices"][1]["containerEdits"] |= {"mounts": spec.pop("containerEdits")["mounts"]}

    assert cdi_findings(spec(move), DRIVER, CARDS) == []


def test_another_driver():
    (finding,) = cdi_findings(yaml.safe_dump(SPEC), "580.126.09", CARDS)
    assert finding == "it mounts libraries of driver 580.95.05, loaded is 580.126.09"


def test_two_drivers():
    text = spec(lambda spec: spec["containerEdits"]["mounts"].append(mount(f"{LIB}libcuda.so.580.126.09")))
    assert "580.126.09, 580.95.05" in cdi_findings(text, DRIVER, CARDS)[0]


def test_the_version_in_a_comment_does_not_count():
    text = "# 580.126.09\n" + yaml.safe_dump(SPEC)
    assert cdi_findings(text, DRIVER, CARDS) == []
    assert len(cdi_findings(text, "580.126.09", CARDS)) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "it is absent"),
        ("", "it is no CDI specification"),
        ("a: [", "it is no CDI specification"),
        ("kind: nvidia.com/gpu\n", "it is no CDI specification (KeyError: 'devices')"),
        (spec(lambda spec: spec.update(kind="amd.com/gpu")), "its kind is amd.com/gpu"),
        (spec(lambda spec: spec["containerEdits"].pop("mounts")), "libraries of driver none"),
        (spec(lambda spec: spec["devices"].pop(1)), f"it does not name {CARDS[0]}"),
        (spec(lambda spec: spec["devices"].append({"name": "GPU-gone", "containerEdits": {}})), "it names GPU-gone"),
    ],
)
def test_each_fault_is_one_finding(text, words):
    (finding,) = cdi_findings(text, DRIVER, CARDS)
    assert words in finding


def test_a_bare_box_and_a_whole_toolkit_pass():
    assert toolkit_finding(packages(None, None, None, None), None) == ""
    assert toolkit_finding(packages(*["1.18.0-1"] * 4), None) == ""


def test_different_versions_are_refused_with_the_way_out():
    mixed = packages("1.18.1-1", "1.18.0-1", "1.18.0-1", "1.18.0-1")
    finding = toolkit_finding(mixed, None)
    for word in [
        "libnvidia-container-tools 1.18.1-1",
        "libnvidia-container1 1.18.0-1",
        "nvidia_container_toolkit_version",
    ]:
        assert word in finding
    # the way out
    assert toolkit_finding(mixed, "1.18.1-1") == ""


@pytest.mark.parametrize(("found", "wish"), [("1.17.8-1", None), (None, "1.9.0-1"), ("1.18.0-1", "1.17.8-1")])
def test_a_toolkit_that_does_not_refresh_by_itself_is_refused(found, wish):
    assert "1.18 or newer" in toolkit_finding(packages(*[found] * 4), wish)
