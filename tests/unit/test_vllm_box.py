"""What the rules are told of boxes and images."""

import pytest
from vllm_box import vllm_box, vllm_image_cuda, vllm_version  # plugins/filter/vllm_box.py
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
    assert vllm_box(NVML, host("0x2204", "0x2204", loaded="580.95.05")) == {
        "cards": 2,
        "memory_mib": 24564,
        "capability": "8.9",
        "names": ["NVIDIA GeForce RTX 4090"],
        "driver": "580.95.05",
        "gpus": [
            {"index": 0, "name": "NVIDIA GeForce RTX 4090", "display_active": True, "memory_used_mib": 612},
            {"index": 0, "name": "NVIDIA GeForce RTX 4090", "display_active": True, "memory_used_mib": 612},
        ],
    }


def test_f20_an_engine_on_some_cards_is_told_of_the_display_on_those_alone():
    box = vllm_box({**NVML, "gpus": [CARD, {**CARD, "index": 1, "display_active": False}]}, host())
    assert [card["display_active"] for card in vllm_engine_box(box, ["1"])["gpus"]] == [False]
    assert [card["index"] for card in vllm_engine_box(box, None)["gpus"]] == [0, 1]


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
