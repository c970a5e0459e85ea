"""What a box needs below its engine, and how the plan shows it. The facts are fixtures, not machines."""

import pytest
from host_fixtures import host
from nvidia_driver import FILES, driver_plan, host_need, needs_table


def path(exists):
    return {"exists": exists, "modified": 1.0 if exists else None, "free_mib": 500000, "filesystem": 1, "names": []}


@pytest.mark.parametrize(
    ("facts", "wish", "others", "need", "reasons"),
    [
        ({"name": "serving"}, {}, {}, "nothing", []),
        ({"name": "serving"}, {}, {"live": ["clocks differ"]}, "live", ["clocks differ"]),
        ({"name": "debian13"}, {}, {}, "live", ["to install: nvidia-driver-pinning-595, nvidia-driver-cuda, "]),
        (
            {"name": "serving", "nvidia_packages__libnvidia-ml1__held": False},
            {},
            {},
            "live",
            ["not held: libnvidia-ml1"],
        ),
        (
            {"name": "serving", f"paths__{FILES[0]}": path(False), f"paths__{FILES[1]}": path(True)},
            {},
            {},
            "live",
            [f"to write: {FILES[0]}"],
        ),
        ({"name": "serving", "docker__config_is_newer": True}, {}, {}, "daemon", ["daemon.json is newer"]),
        ({"name": "serving"}, {}, {"daemon": ["log-driver differs"]}, "daemon", ["log-driver differs"]),
        ({"name": "serving"}, {"branch": "590"}, {}, "reboot", ["nvidia_driver_branch is 590", "to install: "]),
        (
            {"name": "serving", "nvidia_installed": "595.91.07"},
            {},
            {"daemon": ["log-driver differs"], "live": ["clocks differ"]},
            "reboot",
            ["595.91.07 is installed", "log-driver differs", "clocks differ"],
        ),
        ({"name": "ubuntu26.04"}, {}, {}, "reboot", ["nova_core holds the cards", "to install: "]),
        # somebody else's driver: neither packages nor files are ours
        ({"name": "bare", f"paths__{FILES[0]}": path(False)}, {"source": "none"}, {}, "nothing", []),
    ],
)
def test_the_greatest_need_counts_and_all_reasons_are_given(facts, wish, others, need, reasons):
    info = host(**facts)
    found = host_need(info, driver_plan(info, **wish), **others)
    assert found["need"] == need
    assert len(found["reasons"]) == len(reasons), found["reasons"]
    for reason, part in zip(found["reasons"], reasons, strict=True):
        assert part in reason


def test_a_bare_box_with_a_new_daemon_json_needs_no_restart():
    info = host(docker__config_is_newer=True)
    assert host_need(info, driver_plan(info))["need"] == "live"


def test_the_table_has_a_line_for_each_box_and_each_reason():
    rows = [
        {"box": "box1", "need": "nothing", "engine": "nothing", "reasons": []},
        {"box": "workstation", "need": "reboot", "engine": "restart", "reasons": ["driver", "clocks"]},
    ]
    assert needs_table(rows).splitlines() == [
        "box          host needs  engine needs  because",
        "box1         nothing     nothing",
        "workstation  reboot      restart       driver",
        "                                       clocks",
    ]
