"""What the rules are told of boxes and images."""

import pytest
from vllm_box import (  # plugins/filter/vllm_box.py
    gpu_faults,
    vllm_box,
    vllm_card_faults,
    vllm_image_cuda,
    vllm_version,
)
from vllm_engines import vllm_engine_box  # plugins/filter/vllm_engines.py

CARD = {
    "index": 0,
    "compute_capability": "8.9",
    "name": "NVIDIA GeForce RTX 4090",
    "memory_total_mib": 24564,
    "memory_used_mib": 22800,
    "memory_others_mib": 612,
    "display_active": True,
}
NVML = {"available": True, "driver_version": "580.95.05", "gpus": [CARD, CARD]}
NO_NVML = {"available": False, "reason": "no driver", "gpus": []}


def host(*devices, loaded=None):
    return {
        "gpus_on_pci": [{"slot": "0", "device": device, "driver": None} for device in devices],
        "nvidia_loaded": loaded,
    }


def test_a_running_driver_says_it():
    card = {
        "index": 0,
        "name": "NVIDIA GeForce RTX 4090",
        "memory_mib": 24564,
        "capability": "8.9",
        "display_active": True,
        "memory_used_mib": 612,
    }
    assert vllm_box(NVML, host("0x2204", "0x2204", loaded="580.95.05")) == {
        "cards": 2,
        "memory_mib": 24564,
        "capability": "8.9",
        "names": ["NVIDIA GeForce RTX 4090"],
        "driver": "580.95.05",
        "gpus": [card, card],
    }


def test_f20_an_engine_on_some_cards_is_told_of_the_display_on_those_alone():
    box = vllm_box({**NVML, "gpus": [CARD, {**CARD, "index": 1, "display_active": False}]}, host())
    assert [card["display_active"] for card in vllm_engine_box(box, ["1"])["gpus"]] == [False]
    assert [card["index"] for card in vllm_engine_box(box, None)["gpus"]] == [0, 1]


LOST = {"index": 1, "uuid": None, "code": 15, "call": "nvmlDeviceGetHandleByIndex", "says": "GPU 1 has fallen off"}
ONE = {**CARD, "uuid": "GPU-a", "pci_bus_id": "00000000:01:00.0"}
TWO = {**CARD, "index": 1, "uuid": "GPU-b", "pci_bus_id": "00000000:41:00.0"}
ONE_LOST = {**NVML, "gpus": [ONE], "failed": [LOST]}


def test_f9_a_lost_card_is_a_card_all_the_same():
    assert vllm_box(ONE_LOST, host("0x2684", "0x2684"))["cards"] == 2
    assert vllm_box({**NVML, "gpus": [], "failed": [LOST, LOST]}, host("0x2684", "0x2684"))["cards"] == 2


@pytest.mark.parametrize(
    ("wanted", "faults"),
    [
        (None, 1),
        ("all", 1),
        (["all"], 1),
        ([1], 1),
        (["1"], 1),
        ([0], 0),
        (["GPU-a"], 0),
        # the lost card's UUID is not known, so it may be the one
        (["GPU-b"], 1),
        (["GPU-a", "GPU-b"], 1),
        ([7], 0),
    ],
)
def test_f9_the_fault_of_a_card_is_told_to_who_wants_it(wanted, faults):
    assert len(gpu_faults(ONE_LOST, wanted)) == faults


def test_f9_a_card_that_ceased_to_answer_keeps_its_uuid():
    info = {**NVML, "gpus": [ONE], "failed": [{**LOST, "uuid": "GPU-b", "code": 10}]}
    assert gpu_faults(info, ["GPU-c"]) == [] and len(gpu_faults(info, ["GPU-b"])) == 1


def test_f9_engines_are_told_of_their_cards_once():
    engines = [{"name": "a", "gpus": [0]}, {"name": "b", "gpus": [1]}]
    assert vllm_card_faults(ONE_LOST, host(), [{"name": "main"}]) == ["GPU 1 has fallen off"]
    assert vllm_card_faults(ONE_LOST, host(), engines) == ["GPU 1 has fallen off"]
    assert vllm_card_faults(ONE_LOST, host(), engines[:1]) == []
    assert vllm_card_faults(NO_NVML, host(), engines) == []


def bound(*slots):
    cards = [{"slot": slot, "device": "0x2684", "driver": "nvidia"} for slot in slots]
    return {"gpus_on_pci": cards, "nvidia_loaded": "580.95.05"}


def test_f9_a_card_that_the_driver_could_not_start_is_named():
    info, box = {**NVML, "gpus": [ONE], "failed": []}, bound("0000:01:00.0", "0000:41:00.0")
    (fault,) = vllm_card_faults(info, box, [{"name": "main"}])
    assert "holds 2 cards on the PCI bus and NVML counts 1: 0000:41:00.0 did not start" in fault
    assert vllm_card_faults(info, box, [{"name": "a", "gpus": [0]}]) == []
    assert len(vllm_card_faults(info, box, [{"name": "a", "gpus": [1]}])) == 1
    assert vllm_card_faults({**info, "gpus": [ONE, TWO]}, box, [{"name": "main"}]) == []
    # one that is somebody else's, a virtual machine's or nouveau's, is not the driver's
    box["gpus_on_pci"][1]["driver"] = "vfio-pci"
    assert vllm_card_faults(info, box, [{"name": "main"}]) == []


def test_f9_the_slot_is_compared_whatever_its_letters():
    card = {**TWO, "pci_bus_id": "00000000:C1:00.0"}
    (fault,) = vllm_card_faults({**NVML, "gpus": [card]}, bound("0000:c1:00.0", "0000:e1:00.0"), [{"name": "main"}])
    assert ": 0000:e1:00.0 did not start" in fault


def test_f13_an_engine_on_its_cards_is_not_judged_by_the_card_of_the_screen():
    small = {
        **CARD,
        "index": 2,
        "name": "NVIDIA GeForce GT 1030",
        "memory_total_mib": 2048,
        "compute_capability": "6.1",
    }
    box = vllm_box({**NVML, "gpus": [CARD, {**CARD, "index": 1}, small]}, host())
    assert (box["cards"], box["memory_mib"], box["capability"]) == (3, 2048, "6.1")
    seen = vllm_engine_box(box, [0, 1])
    assert (seen["cards"], seen["memory_mib"], seen["capability"]) == (2, 24564, "8.9")
    assert seen["names"] == ["NVIDIA GeForce RTX 4090"]


def test_without_a_driver_the_pci_bus_says_it():
    box = vllm_box(NO_NVML, host("0x2684", "0x2684"))
    assert box["capability"] == "8.9"
    assert (box["cards"], box["memory_mib"], box["driver"]) == (2, 24564, None)


def test_a_card_that_is_not_in_the_table_is_unknown():
    box = vllm_box(NO_NVML, host("0x2684", "0xffff"))
    assert box == {"cards": 2, "memory_mib": None, "capability": None, "names": [], "driver": None, "gpus": []}


def test_a_box_without_cards():
    box = vllm_box(NO_NVML, host())
    assert box == {"cards": None, "memory_mib": None, "capability": None, "names": [], "driver": None, "gpus": []}


def test_the_least_of_unequal_cards_counts():
    big = {**CARD, "compute_capability": "12.0", "name": "B", "memory_total_mib": 32607}
    box = vllm_box({**NVML, "gpus": [big, CARD]}, host())
    assert (box["capability"], box["memory_mib"]) == ("8.9", 24564)


@pytest.mark.parametrize(
    ("image", "version", "cuda"),
    [
        ("vllm/vllm-openai:v0.33.0", "0.33.0", "13"),
        ("vllm/vllm-openai:v0.33.0@sha256:" + "0" * 64, "0.33.0", "13"),
        ("mirror.lab:5000/vllm/vllm-openai:v0.26.0", "0.26.0", "13"),
        ("vllm/vllm-openai:v0.20.2-cu129", "0.20.2", "12.9"),
        ("vllm/vllm-openai:v0.20.2-cu129-ubuntu2404", "0.20.2", "12.9"),
        ("vllm/vllm-openai:v0.10.0", "0.10.0", ""),
        ("vllm/vllm-openai:v0.34.0", "0.34.0", ""),
        ("10.98.77.2:5000/vllm-cpu:0.32.0", "0.32.0", ""),
        ("vllm/vllm-openai:nightly-0123abc", "", ""),
        ("vllm/vllm-openai:latest", "", ""),
        ("lab:5000/vllm", "", ""),
        ("lab:5000/vllm:1", "", ""),
    ],
)
def test_what_an_image_is_by_its_name(image, version, cuda):
    assert vllm_version(image) == version
    assert vllm_image_cuda(image) == cuda
