"""Role gpu_clocks without a box: preflight, power budget, verify's verdict, and the units as systemd reads them."""

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import jinja2
import pytest
import yaml

ROOT = Path(__file__).parents[3]
ROLE = ROOT / "roles" / "gpu_clocks"
SPEC = yaml.safe_load((ROLE / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
DEFAULTS = yaml.safe_load((ROLE / "defaults/main.yml").read_text())


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem + "_under_test", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FILTERS = load(ROLE / "filter_plugins/gpu_clocks.py").FilterModule().filters()


def wish(**changes):
    """The settings of the module as vars/main.yml makes them of the role's defaults."""
    names = yaml.safe_load((ROLE / "vars/main.yml").read_text())["__gpu_clocks_wish"]
    return {name: DEFAULTS[f"gpu_clocks_{name}"] for name in names} | changes


# --- variables -------------------------------------------------------------------------------------------------------


def test_the_module_gets_every_setting():
    task = yaml.safe_load((ROLE / "tasks/configure.yml").read_text())[0]["gpu_clocks"]
    module = yaml.safe_load((ROOT / "library/gpu_clocks.py").read_text().split('r"""')[1].split('"""')[0])
    assert set(task) == set(module["options"])
    assert set(wish()) | {"reapply", "persistent", "wait_seconds", "timeout"} == set(task)


@pytest.mark.parametrize(
    ("changes", "limits", "sentence"),
    [
        ({"min_mhz": 2600}, {}, "gpu_clocks_min_mhz (2600) is above gpu_clocks_max_mhz (2100)"),
        ({"max_mhz": "x"}, {}, "gpu_clocks_max_mhz (x) is no whole number"),
        ({}, {"check_interval": [1, 5, 86400]}, "gpu_clocks_check_interval (1) is out of range: give 5 to 86400"),
        ({}, {"timeout": ["601", 1, 600]}, "gpu_clocks_timeout (601) is out of range"),
    ],
)
def test_problems(changes, limits, sentence):
    (problem,) = FILTERS["gpu_clocks_problems"](wish(**changes), limits)
    assert sentence in problem


def test_defaults_have_no_problem():
    assert FILTERS["gpu_clocks_problems"](wish(), {"psu_watts": [None, 100, 10000]}) == []


def test_what_the_plan_says_of_the_clocks():
    change = {"setting": "gpu_lock", "before": "unlocked", "after": "0-2100 MHz"}
    power = {"setting": "power_limit_w", "before": 450.0, "after": 350.0}
    cards = [{"index": 0, "changes": [change]}, {"index": 1, "changes": [change, power]}, {"index": 2, "changes": []}]
    assert FILTERS["gpu_clocks_reasons"](cards) == [
        "gpu_lock of GPU 0 and 1 is unlocked, wanted is 0-2100 MHz",
        "power_limit_w of GPU 1 is 450.0, wanted is 350.0",
    ]


# --- power budget ----------------------------------------------------------------------------------------------------


def budget(psu, cards=2, host=300, card=450, **changes):
    return FILTERS["gpu_clocks_power_budget"](wish(**changes), cards, psu, host, card)


def test_two_cards_at_450_on_1000_watts_are_refused():
    found = budget(1000)
    assert found["carried"] is False
    assert "2 cards x 450 W" in found["sentence"] and "= 1200 W" in found["sentence"]
    assert "gpu_clocks_power_limit_w to at most 350" in found["sentence"]
    assert "gpu_clocks_psu_acknowledged" in found["sentence"]


def test_a_lock_does_not_count_as_a_limit_but_is_told_with_its_source():
    sentence = budget(1000)["sentence"]
    assert "field report" in sentence and "not measured by tandem" in sentence and "800 W" in sentence
    assert "lock the clocks as well" in budget(1000, max_mhz=2400)["sentence"]


@pytest.mark.parametrize(
    ("psu", "limit", "carried"),
    [(1200, None, True), (1199, None, False), (1000, 350, True), (1000, 351, False), (1000, "default", False)],
)
def test_limits_count(psu, limit, carried):
    assert budget(psu, power_limit_w=limit)["carried"] is carried


def test_strings_as_extra_vars_make_them():
    assert budget("1000", cards="2", host="300", card="450")["carried"] is False


# --- verify's verdict ------------------------------------------------------------------------------------------------


def seen(index, busy, sm_mhz_max):
    samples = {"count": 10, "busy": busy, "sm_mhz_max": sm_mhz_max, "power_max_w": 250.0}
    return {
        "index": index,
        "uuid": f"GPU-{index}",
        "samples": samples,
        "supported_clocks": {"graphics_step_mhz": 15},
    }


@pytest.mark.parametrize(
    ("gpus", "needs_load", "words"),
    [
        ([seen(0, 10, 2100), seen(1, 10, 2115)], True, None),
        ([seen(0, 10, 2100), seen(1, 10, 2520)], True, "GPU 1 (GPU-1) ran at 2520 MHz under load"),
        ([seen(0, 10, 2116), seen(1, 10, 2100)], True, "GPU 0 (GPU-0) ran at 2116 MHz"),
        ([seen(0, 0, None), seen(1, 10, 2100)], True, "GPU 0 (GPU-0) was idle in all 10 samples"),
        ([seen(0, 0, None), seen(1, 10, 2100)], False, None),
    ],
)
def test_above_lock(gpus, needs_load, words):
    problems = FILTERS["gpu_clocks_above_lock"](gpus, "all", "2100", needs_load)
    assert (words in problems[0] and len(problems) == 1) if words else problems == []


def test_above_lock_looks_at_the_selected_gpus_only():
    gpus = [seen(0, 10, 2520), seen(1, 10, 2520)]
    assert len(FILTERS["gpu_clocks_above_lock"](gpus, ["GPU-1"], 2100, True)) == 1
    assert len(FILTERS["gpu_clocks_above_lock"](gpus, [0], 2100, True)) == 1
    assert "2520 MHz in 10 busy samples" in FILTERS["gpu_clocks_seen_text"](gpus, 2100)


# --- units -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def units(tmp_path):
    """The rendered units, with a program that exists and stand-ins for the units they name."""
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined)
    for template in (ROLE / "templates").glob("*.j2"):
        text = environment.from_string(template.read_text()).render(ansible_managed="by Ansible", **DEFAULTS)
        (tmp_path / template.stem).write_text(text + "\n")
    return tmp_path


def section(path, name):
    """{key: [values]} of one section of a unit."""
    keys = {}
    current = None
    for line in path.read_text().splitlines():
        if line.startswith("["):
            current = line.strip("[]")
        elif current == name and "=" in line and not line.startswith("#"):
            key, value = line.split("=", 1)
            keys.setdefault(key, []).extend(value.split())
    return keys


def test_units_pass_systemd_analyze(units):
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd-analyze")
    names = []
    for path in units.glob("tandem-*"):
        # The program is not installed here; everything else is checked as it stands.
        path.write_text(path.read_text().replace("/usr/local/sbin/tandem-gpu-clocks", "/bin/true"))
        names.append(str(path))
    for name in ("nvidia-persistenced", "docker"):
        (units / f"{name}.service").write_text("[Service]\nExecStart=/bin/true\n")
    done = subprocess.run([program, "verify", "--man=no", *names], capture_output=True, text=True, check=False)
    about_ours = [line for line in done.stderr.splitlines() if "tandem-gpu-clocks" in line]
    assert about_ours == []
    assert done.returncode == 0, done.stderr


def test_boot_unit_order(units):
    unit = section(units / "tandem-gpu-clocks.service", "Unit")
    assert "nvidia-persistenced.service" in unit["After"] and "nvidia-persistenced.service" in unit["Wants"]
    assert unit["Before"] == ["docker.service"]
    assert not [key for key in unit if key.startswith("Condition")]
    assert unit["StartLimitIntervalSec"] == ["0"]
    service = section(units / "tandem-gpu-clocks.service", "Service")
    assert service["Type"] == ["oneshot"] and service["RemainAfterExit"] == ["no"]
    limit = DEFAULTS["gpu_clocks_wait_seconds"] + DEFAULTS["gpu_clocks_timeout"]
    assert int(service["TimeoutStartSec"][0]) > limit


def test_boot_unit_is_wanted_by_everything_that_takes_the_lock_away(units):
    wanted = set(section(units / "tandem-gpu-clocks.service", "Install")["WantedBy"])
    sleeps = {"suspend.target", "hibernate.target", "hybrid-sleep.target", "suspend-then-hibernate.target"}
    assert wanted == {"multi-user.target", "nvidia-persistenced.service"} | sleeps
    # Behind them: a sleep target is reached when the box is awake again.
    assert sleeps <= set(section(units / "tandem-gpu-clocks.service", "Unit")["After"])


def test_udev_rule_matches_either_module_name(units):
    rule = (units / "70-tandem-gpu-clocks.rules").read_text().splitlines()[-1]
    assert 'ACTION=="add"' in rule and 'SUBSYSTEM=="module"' in rule and 'KERNEL=="nvidia|nvidia_current"' in rule
    assert 'TAG+="systemd"' in rule and 'ENV{SYSTEMD_WANTS}+="tandem-gpu-clocks.service"' in rule


def test_check_is_quiet_and_repeats(units):
    service = section(units / "tandem-gpu-clocks-check.service", "Service")
    assert service["SuccessExitStatus"] == ["1", "2"] and service["LogLevelMax"] == ["notice"]
    timer = section(units / "tandem-gpu-clocks-check.timer", "Timer")
    assert timer["OnUnitInactiveSec"] == [str(DEFAULTS["gpu_clocks_check_interval"])]


def test_the_box_gets_every_file_that_its_programs_import():
    """tandem-gpu-clocks the one, bench-run and stress-run the other."""
    files = re.findall(r"^  - (tandem_\w+)\.py$", (ROLE / "vars/main.yml").read_text(), re.M)
    needed, left = set(), ["tandem_gpu_program", "tandem_gpu_watch"]
    while left:
        name = left.pop()
        needed.add(name)
        text = (ROOT / "module_utils" / f"{name}.py").read_text()
        imported = set(re.findall(r"^from \.(tandem_\w+) import", text, re.M)) | set(
            re.findall(r"^from \. import (tandem_\w+)", text, re.M)
        )
        left += imported - needed
    assert set(files) == needed
