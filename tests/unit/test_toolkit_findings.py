"""The container toolkit's packages and CDI specification, judged. Fixtures, shaped as toolkit 1.18 writes them."""

import copy
import importlib.machinery
import importlib.util
import io
import json
import sys
import types
from pathlib import Path

import pytest
import yaml
from container_toolkit import (
    cdi_findings,
    toolkit_choice,
    toolkit_reasons,
)  # plugins/filter/container_toolkit.py, see conftest.py

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
        "deviceNodes": [{"path": "/dev/nvidiactl"}, {"path": "/dev/nvidia-uvm"}],
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
        spec["devices"][1]["containerEdits"] |= {"mounts": spec["containerEdits"].pop("mounts")}

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
        (spec(lambda spec: spec["containerEdits"]["deviceNodes"].pop(0)), "it gives containers no /dev/nvidiactl,"),
        (spec(lambda spec: spec["containerEdits"]["deviceNodes"].pop(1)), "it gives containers no /dev/nvidia-uvm,"),
        (spec(lambda spec: spec["devices"][3].pop("containerEdits")), f"it has no device file for {CARDS[1]}"),
        (
            spec(lambda spec: spec["containerEdits"].update(deviceNodes=[{}])),
            "it is no CDI specification (KeyError: 'path')",
        ),
    ],
)
def test_each_fault_is_one_finding(text, words):
    (finding,) = cdi_findings(text, DRIVER, CARDS)
    assert words in finding


def test_unified_memory_may_be_given_to_each_device_and_must_be_to_all():
    def move(spec):
        spec["containerEdits"]["deviceNodes"].pop(1)
        for device in spec["devices"]:
            device["containerEdits"]["deviceNodes"].append({"path": "/dev/nvidia-uvm"})

    def forget_one(spec):
        move(spec)
        spec["devices"][3]["containerEdits"]["deviceNodes"].pop()

    assert cdi_findings(spec(move), DRIVER, CARDS) == []
    (finding,) = cdi_findings(spec(forget_one), DRIVER, CARDS)
    assert "/dev/nvidia-uvm" in finding


# What the real nvidia-ctk writes: fixtures/cdi/README.md

REAL = Path(__file__).parent / "fixtures/cdi"
REAL_CARDS = ["GPU-2872aac5-d2d1-f3d2-06eb-f5d8888c0161", "GPU-c86db48d-22cc-6620-b3e9-64ac4014a7d4"]
NO_UVM = ["it gives containers no /dev/nvidia-uvm, without which CUDA fails"]


@pytest.mark.parametrize("path", sorted(REAL.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_real_specifications(path):
    text = path.read_text()
    assert cdi_findings(text, "580.95.05", REAL_CARDS) == (NO_UVM if "no-uvm" in path.stem else [])
    assert "it names" in cdi_findings(text, "580.95.05", REAL_CARDS[:1])[0]
    assert "does not name GPU-other" in cdi_findings(text, "580.95.05", [*REAL_CARDS, "GPU-other"])[0]
    assert (
        cdi_findings(text, "580.126.09", REAL_CARDS)[-1]
        == "it mounts libraries of driver 580.95.05, loaded is 580.126.09"
    )


def test_the_real_specifications_are_those_that_are_meant():
    versions = {path.stem: yaml.safe_load(path.read_text())["cdiVersion"] for path in REAL.glob("*.yaml")}
    assert len(versions) == 7
    assert {name for name, version in versions.items() if version == "0.7.0"} == {"cdi-nvidia-ctk-1.20.0-drm"}
    assert "additionalGids" in (REAL / "cdi-nvidia-ctk-1.20.0-drm.yaml").read_text()


@pytest.mark.parametrize("docker", ["25.0.16", "26.0.2", "26.0.0+dfsg1"])
def test_a_docker_that_does_not_know_cdi_0_7(docker):
    (finding,) = cdi_findings((REAL / "cdi-nvidia-ctk-1.20.0-drm.yaml").read_text(), "580.95.05", REAL_CARDS, docker)
    assert f"CDI version 0.7.0, and Docker {docker}" in finding and "26.1 or newer" in finding and "1.18.2-1" in finding
    assert cdi_findings((REAL / "cdi-nvidia-ctk-1.20.0.yaml").read_text(), "580.95.05", REAL_CARDS, docker) == []


@pytest.mark.parametrize("docker", ["26.1.0", "26.1.5+dfsg1", "28.2.2", "29.0.0-rc.1", None])
def test_a_docker_that_knows_cdi_0_7(docker):
    text = (REAL / "cdi-nvidia-ctk-1.20.0-drm.yaml").read_text()
    assert cdi_findings(text, "580.95.05", REAL_CARDS, docker) == []


# The packages


def offers(*versions, **others):
    found = {name: list(others.get(name.replace("-", "_"), versions)) for name in NAMES}
    return {"error": None, "versions": {name: offered for name, offered in found.items() if offered}}


ABSENT = packages(None, None, None, None)
XZ = "/lib/modules/6.12.48+deb13-amd64/updates/dkms/nvidia.ko.xz"
DEBIANS = "/lib/modules/6.12.48+deb13-amd64/updates/dkms/nvidia-current.ko.xz"


def test_a_bare_box_and_a_whole_toolkit_pass():
    assert toolkit_choice(ABSENT, None, None) == {"version": None, "finding": ""}
    assert toolkit_choice(packages(*["1.18.0-1"] * 4), None, XZ) == {"version": "1.18.0-1", "finding": ""}


def test_different_versions_are_refused_with_the_way_out():
    mixed = packages("1.18.2-1", "1.18.0-1", "1.18.0-1", "1.18.0-1")
    finding = toolkit_choice(mixed, None, XZ)["finding"]
    for word in [
        "libnvidia-container-tools 1.18.2-1",
        "libnvidia-container1 1.18.0-1",
        "nvidia_container_toolkit_version",
    ]:
        assert word in finding
    # the way out
    assert toolkit_choice(mixed, "1.18.2-1", XZ, offers("1.18.2-1")) == {"version": "1.18.2-1", "finding": ""}


@pytest.mark.parametrize(("found", "wish"), [("1.17.8-1", None), (None, "1.9.0-1"), ("1.18.0-1", "1.17.8-1")])
def test_a_toolkit_that_does_not_refresh_by_itself_is_refused(found, wish):
    assert "1.18 or newer" in toolkit_choice(packages(*[found] * 4), wish, None)["finding"]


@pytest.mark.parametrize(
    ("version", "module", "words"),
    [
        # refused by name, also where this kernel's modules are not compressed: the next one's may be
        ("1.18.1-1", XZ, ["1.18.1-1 never refreshes", "nvidia.ko.xz", "1.18.0-1, 1.18.2-1, or 1.19.1-1 and newer"]),
        ("1.18.1-1", None, ["1.18.1-1 never refreshes"]),
        ("1.18.1", None, ["1.18.1 never refreshes"]),
        ("1.18.1~rc.1-1", XZ, ["never refreshes"]),
        ("1.19.0-1", XZ, ["multi-user.target", "1735", "1.19.1-1"]),
        ("1.18.0-1", DEBIANS, ["Debian's own driver, whose module is nvidia-current.ko.xz", "1.18.2-1"]),
        ("1.18.0-1", DEBIANS.removesuffix(".xz"), ["nvidia-current.ko:"]),
    ],
)
def test_versions_that_do_not_refresh_are_refused_by_name(version, module, words):
    asked = toolkit_choice(ABSENT, version, module, offers(version))["finding"]
    installed = toolkit_choice(packages(*[version] * 4), None, module)["finding"]
    for word in words:
        assert word in asked
        assert word in installed
    # a way out is one
    assert not toolkit_choice(packages(*[version] * 4), "1.18.2-1", module, offers("1.18.2-1", version))["finding"]


@pytest.mark.parametrize("version", ["1.18.0-1", "1.18.2-1", "1.18.10-1", "1.19.1-1", "1.20.0-1", "2.0.0-1"])
def test_others_pass(version):
    assert not toolkit_choice(packages(*[version] * 4), None, XZ)["finding"]


@pytest.mark.parametrize("version", ["1.18.2-1", "1.20.0-1"])
def test_debians_own_module_is_found_by_newer_ones(version):
    assert not toolkit_choice(packages(*[version] * 4), None, DEBIANS)["finding"]


def test_a_bare_box_gets_the_newest_that_fits():
    offered = offers("1.19.0-1", "1.18.1-1", "1.18.0-1", "1.17.8-1")
    assert toolkit_choice(ABSENT, None, XZ, offered) == {"version": "1.18.0-1", "finding": ""}
    assert toolkit_choice(ABSENT, None, XZ, offers("1.20.0-1", "1.18.0-1"))["version"] == "1.20.0-1"


def test_a_repository_with_nothing_that_fits_is_an_error_that_lists_what_it_has():
    finding = toolkit_choice(ABSENT, None, XZ, offers("1.18.1-1", "1.17.8-1"))["finding"]
    for word in ["offers 1.18.1-1, 1.17.8-1", "1.18.1-1 never refreshes"]:
        assert word in finding
    assert "offers no version" in toolkit_choice(ABSENT, None, XZ, offers())["finding"]


@pytest.mark.parametrize("wish", ["1.19.9-1", "1.18.0", "newest", "1.20.0-2"])
def test_a_version_that_is_not_offered_is_an_error_that_lists_what_is(wish):
    finding = toolkit_choice(ABSENT, wish, XZ, offers("1.20.0-1", "1.18.1-1", "1.18.0-1"))["finding"]
    assert f"nvidia_container_toolkit_version is {wish}" in finding
    assert "offers 1.20.0-1, 1.18.1-1, 1.18.0-1" in finding
    assert finding.endswith("set nvidia_container_toolkit_version to one of these: 1.20.0-1, 1.18.0-1")


def test_a_version_counts_as_offered_where_all_four_packages_have_it():
    offered = offers("1.20.0-1", "1.18.0-1", libnvidia_container1=["1.18.0-1"])
    assert toolkit_choice(ABSENT, None, XZ, offered)["version"] == "1.18.0-1"
    assert "offers 1.18.0-1;" in toolkit_choice(ABSENT, "1.20.0-1", XZ, offered)["finding"]


def test_a_missing_package_goes_in_at_the_version_of_the_others():
    some = packages("1.18.0-1", None, "1.18.0-1", "1.18.0-1")
    assert toolkit_choice(some, None, XZ, offers("1.20.0-1", "1.18.0-1")) == {"version": "1.18.0-1", "finding": ""}
    finding = toolkit_choice(some, None, XZ, offers("1.20.0-1"))["finding"]
    assert "a package is missing beside those of version 1.18.0-1" in finding and "1.20.0-1" in finding


def test_what_is_installed_stays_though_the_repository_dropped_it():
    assert toolkit_choice(packages(*["1.18.0-1"] * 4), None, XZ, offers("1.20.0-1"))["finding"] == ""
    assert toolkit_choice(packages(*["1.18.0-1"] * 4), "1.18.0-1", XZ, offers())["finding"] == ""


def test_a_repository_that_cannot_be_used_is_told():
    refused = {"error": "http://depot/ cannot be fetched: 404 Not Found", "versions": {}}
    for wish, words in ((None, "the toolkit is to be"), ("1.20.0-1", "the toolkit 1.20.0-1 is to be")):
        finding = toolkit_choice(ABSENT, wish, XZ, refused)["finding"]
        assert words in finding and "404 Not Found; see nvidia_container_toolkit_repository_url" in finding


# /dev/nvidia-uvm in the plan

DROPIN = "/etc/systemd/system/nvidia-cdi-refresh.service.d/tandem.conf"


def box(loaded="580.95.05", **exists):
    there = {"ctk": True, "uvm": True, "dropin": True} | exists
    paths = {"/usr/bin/nvidia-ctk": "ctk", "/dev/nvidia-uvm": "uvm", DROPIN: "dropin"}
    return {"nvidia_loaded": loaded, "paths": {path: {"exists": there[name]} for path, name in paths.items()}}


def reasons(host, cdi="cdi-nvidia-ctk-1.18.0.yaml"):
    return toolkit_reasons(host, cdi and (REAL / cdi).read_text(), DROPIN)


def test_a_converged_box_gives_no_reason():
    assert reasons(box()) == []
    assert reasons(box(), "cdi-nvidia-ctk-1.20.0-drm.yaml") == []


@pytest.mark.parametrize("host", [box(loaded=None, uvm=False), box(ctk=False, uvm=False, dropin=False)])
def test_a_box_without_driver_or_toolkit_has_other_needs(host):
    assert reasons(host, None) == []


@pytest.mark.parametrize(
    ("host", "cdi", "words"),
    [
        (
            box(uvm=False),
            "cdi-nvidia-ctk-1.18.0-no-uvm.yaml",
            "/dev/nvidia-uvm is missing, without which CUDA fails: it is made",
        ),
        # a driver that was reloaded: the specification is of before
        (box(uvm=False), "cdi-nvidia-ctk-1.18.0.yaml", "/dev/nvidia-uvm is missing"),
        (box(uvm=False, dropin=False), None, "/dev/nvidia-uvm is missing"),
        (box(), "cdi-nvidia-ctk-1.20.0-no-uvm.yaml", "the CDI specification gives containers no /dev/nvidia-uvm"),
        # a box that was converged before this was known, and on which somebody loaded the module
        (box(dropin=False), "cdi-nvidia-ctk-1.18.0.yaml", "nothing makes /dev/nvidia-uvm at the next boot"),
    ],
)
def test_missing_unified_memory_is_told_with_what_the_run_does(host, cdi, words):
    (reason,) = reasons(host, cdi)
    assert words in reason


def test_a_specification_that_is_none_is_no_reason_of_its_own():
    assert toolkit_reasons(box(), "a: [", DROPIN) == []


# cards-in-container, which looks as CUDA does


@pytest.fixture(scope="module")
def cards_in_container():
    path = Path(__file__).parents[2] / "roles/nvidia_container_toolkit/files/cards-in-container"
    loader = importlib.machinery.SourceFileLoader("cards_in_container", str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def test_unified_memory_that_cannot_be_opened_is_one_sentence(cards_in_container, tmp_path):
    assert cards_in_container.no_memory("/dev/null") is None
    for path, why in ((tmp_path / "nvidia-uvm", "No such file or directory"), (tmp_path, "Is a directory")):
        said = cards_in_container.no_memory(str(path))
        assert f"{path}: {why}. " in said and "systemctl restart nvidia-cdi-refresh" in said


def test_cuda_is_asked_for_after_nvml_has_answered(cards_in_container, monkeypatch, capsys):
    nvml = types.SimpleNamespace(
        NVMLError=OSError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUUID=lambda _: CARDS[0],
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    lines = io.StringIO("7f00 r-xp 0 00:00 1 /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05\n")
    monkeypatch.setattr(cards_in_container, "open", lambda _: lines, raising=False)
    monkeypatch.setattr(cards_in_container, "no_memory", {"/dev/nvidia-uvm": "CUDA fails"}.get)
    with pytest.raises(SystemExit, match="CUDA fails"):
        cards_in_container.inside()
    assert capsys.readouterr().out.split() == [CARDS[0]]
