"""What a caller can set, and what it can learn about that afterwards."""

import os
import tempfile
from pathlib import Path

import pytest


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_setters_need_root_and_readers_do_not(make_machine, library):
    script = """
        n.nvmlInit(); n.nvmlShutdown()  # as root, so that the other user finds root's files
        os.seteuid(65534)
        n.nvmlInit()
        g = gpus()[0]
        say([code(n.nvmlDeviceSetPersistenceMode, g, 1), code(n.nvmlDeviceSetPowerManagementLimit, g, 300000),
             code(n.nvmlDeviceSetGpuLockedClocks, g, 0, 2100), code(n.nvmlDeviceResetGpuLockedClocks, g),
             code(n.nvmlDeviceSetMemoryLockedClocks, g, 405, 10501), code(n.nvmlDeviceResetMemoryLockedClocks, g),
             n.nvmlDeviceGetPowerManagementLimit(g), code(n.nvmlDeviceGetTotalEnergyConsumption, g)])
        n.nvmlShutdown()
    """
    with tempfile.TemporaryDirectory() as path:  # pytest's own directories are closed to other users
        os.chmod(path, 0o755)
        os.mkdir(f"{path}/sim-nvml")
        os.chmod(f"{path}/sim-nvml", 0o1777)
        machine = make_machine(Path(path), library)
        process = machine.start(script, stderr=-1)
        output, errors = process.communicate(timeout=30)
        assert (output, errors) == ("[4, 4, 4, 4, 4, 4, 450000, 0]\n", "")
        assert [gpu["initialisations"] for gpu in machine.state()] == [2, 2]  # the other user's is in the file


@pytest.mark.parametrize(
    ("asked", "installed"),
    [
        ((0, 2100), [0, 2100]),
        ((210, 2107), [210, 2100]),
        ((210, 2108), [210, 2115]),
        ((1, 99), [210, 210]),
        ((0, 4000), [0, 3105]),
        ((0, -1), [0, 3105]),  # pynvml wraps it to 2**32 - 1
        ((0, 2**32 + 900), [0, 900]),  # and cuts this to 900
        ((2100, 2100), [2100, 2100]),
    ],
)
def test_locks_are_rounded_without_a_word(machine, asked, installed):
    script = f"""
        g = gpus()[1]
        n.nvmlDeviceSetPersistenceMode(g, 1)
        say(code(n.nvmlDeviceSetGpuLockedClocks, g, *{asked}))
    """
    assert machine.run(script) == 0
    assert machine.locks() == {0: None, 1: installed}


def test_minimum_above_maximum_is_refused_and_changes_nothing(machine):
    script = """
        g = gpus()[0]
        n.nvmlDeviceSetPersistenceMode(g, 1)
        n.nvmlDeviceSetGpuLockedClocks(g, 0, 1800)
        say([code(n.nvmlDeviceSetGpuLockedClocks, g, 2600, 2100),
             code(n.nvmlDeviceSetMemoryLockedClocks, g, 10501, 405)])
    """
    assert machine.run(script) == [2, 2]
    assert machine.locks()[0] == [0, 1800]


def test_no_getter_tells_of_a_lock(machine):
    """Everything a reader can ask of an idle card is the same with and without a lock."""
    ask = """
        g = gpus()[0]
        n.nvmlDeviceSetPersistenceMode(g, 1)
        {setting}
        names = [x for x in dir(n) if x.startswith('nvmlDeviceGet') and not x.startswith('nvmlDeviceGetHandle')]
        answers = {{}}
        for name in names:
            if any(word in name for word in ('Energy', 'Field')):
                continue
            try:
                answers[name] = str(getattr(n, name)(g))
            except (n.NVMLError, TypeError, ValueError) as error:
                answers[name] = type(error).__name__
        answers.update((f'clock{{i}}', n.nvmlDeviceGetClockInfo(g, i)) for i in range(3))
        say(answers)
    """
    without = machine.run(ask.format(setting="pass"))
    locked = machine.run(ask.format(setting="n.nvmlDeviceSetGpuLockedClocks(g, 0, 2100)"))
    assert machine.locks()[0] == [0, 2100]
    assert without == locked
    assert len(without) > 100


def test_reset_takes_the_lock_away(machine):
    script = """
        for g in gpus():
            n.nvmlDeviceSetPersistenceMode(g, 1)
            n.nvmlDeviceSetGpuLockedClocks(g, 0, 2100)
            n.nvmlDeviceSetMemoryLockedClocks(g, 405, 5001)
        n.nvmlDeviceResetGpuLockedClocks(gpus()[0])
        say(0)
    """
    machine.run(script)
    assert machine.locks() == {0: None, 1: [0, 2100]}
    assert [gpu["memory_lock_mhz"] for gpu in machine.state()] == [[405, 5001], [405, 5001]]
    machine.run("n.nvmlDeviceResetMemoryLockedClocks(gpus()[1]); say(0)")
    assert [gpu["memory_lock_mhz"] for gpu in machine.state()] == [[405, 5001], None]


@pytest.mark.parametrize(("milliwatt", "code", "limit"), [(149999, 2, 450000), (150000, 0, 150000), (333000, 0, 333000),
                                                          (600000, 0, 600000), (600001, 2, 450000)])  # fmt: skip
def test_power_limit_keeps_to_the_constraints(machine, milliwatt, code, limit):
    script = f"""
        g = gpus()[0]
        say([code(n.nvmlDeviceSetPowerManagementLimit, g, {milliwatt}), n.nvmlDeviceGetPowerManagementLimit(g),
             n.nvmlDeviceGetEnforcedPowerLimit(g), n.nvmlDeviceGetPowerManagementLimit(gpus()[1])])
    """
    assert machine.run(script) == [code, limit, limit, 450000]


def test_field_values(machine):
    script = """
        g = gpus()[0]
        n.nvmlDeviceSetPowerManagementLimit(g, 300000)
        fields = n.nvmlDeviceGetFieldValues(g, [
            n.NVML_FI_DEV_POWER_REQUESTED_LIMIT, n.NVML_FI_DEV_POWER_DEFAULT_LIMIT, n.NVML_FI_DEV_POWER_MIN_LIMIT,
            n.NVML_FI_DEV_POWER_MAX_LIMIT, n.NVML_FI_DEV_POWER_INSTANT, n.NVML_FI_DEV_MEMORY_TEMP])
        say([[f.nvmlReturn, f.value.uiVal] for f in fields])
    """
    assert machine.run(script) == [[0, 300000], [0, 450000], [0, 150000], [0, 600000], [0, 20000], [3, 0]]
