"""What a card does under load, lock and power limit."""

import os
import sys
from pathlib import Path

import pytest

SIMCTL = Path(__file__).parents[3] / "sim/nvml/simctl"

READ = """
def read(g):
    return {'sm': n.nvmlDeviceGetClockInfo(g, n.NVML_CLOCK_SM), 'memory': n.nvmlDeviceGetClockInfo(g, n.NVML_CLOCK_MEM),
            'watt': n.nvmlDeviceGetPowerUsage(g) // 1000, 'use': n.nvmlDeviceGetUtilizationRates(g).gpu,
            'pstate': n.nvmlDeviceGetPerformanceState(g), 'reasons': n.nvmlDeviceGetCurrentClocksEventReasons(g),
            'celsius': n.nvmlDeviceGetTemperature(g, 0)}
g = gpus()[0]
"""
IDLE, POWER_CAP = 1, 4


def test_idle(machine):
    assert machine.run(READ + "say(read(g))") == {
        "sm": 210, "memory": 405, "watt": 20, "use": 0, "pstate": 8, "reasons": IDLE, "celsius": 34
    }  # fmt: skip


def test_an_unlocked_card_boosts_and_a_lock_clamps_it(machine):
    machine.ctl("load", 0, 100)
    unlocked = machine.run(READ + "say(read(g))")
    locked = machine.run(READ + "n.nvmlDeviceSetGpuLockedClocks(g, 0, 2100); say(read(g))")
    assert (unlocked["sm"], unlocked["watt"], unlocked["use"], unlocked["reasons"]) == (2520, 450, 100, 0)
    assert locked["sm"] == 2100 and 230 <= locked["watt"] <= 260
    assert locked["celsius"] < unlocked["celsius"]


def test_the_lock_bounds_from_below_as_well(machine):
    script = READ + "n.nvmlDeviceSetGpuLockedClocks(g, 1500, 1500); say(read(g)['sm'])"
    assert machine.run(script) == 1500
    machine.ctl("load", 0, 50)
    assert machine.run(script) == 1500


def test_a_lock_that_is_accepted_and_not_held(machine):
    machine.ctl("set", "gpu0.lock_held", 0)
    machine.ctl("load", "all", 100)
    script = READ + "say([[code(n.nvmlDeviceSetGpuLockedClocks, g, 0, 2100), read(g)['sm']] for g in gpus()])"
    assert machine.run(script) == [[0, 2520], [0, 2100]]


def test_the_power_limit_lowers_the_clock(machine):
    machine.ctl("load", 0, 100)
    limited = machine.run(READ + "n.nvmlDeviceSetPowerManagementLimit(g, 300000); say(read(g))")
    assert limited["watt"] <= 300 and limited["sm"] < 2520 and limited["sm"] % 15 == 0
    assert limited["reasons"] & POWER_CAP
    both = "n.nvmlDeviceSetPowerManagementLimit(g, 300000); n.nvmlDeviceSetGpuLockedClocks(g, 0, 2100); "
    roomy = machine.run(READ + both + "say(read(g))")
    assert roomy["sm"] == 2100 and not roomy["reasons"] & POWER_CAP


def test_memory_lock(machine):
    script = READ + "n.nvmlDeviceSetMemoryLockedClocks(g, 5001, 5001); say(read(g)['memory'])"
    assert machine.run(script) == 5001
    machine.ctl("load", 0, 100)
    assert machine.run(script) == 5001
    assert machine.run(READ + "say(read(g)['memory'])") == 10251


def test_energy_grows_with_time_and_power(machine):
    script = """
        idle, loaded = gpus()
        before = [n.nvmlDeviceGetTotalEnergyConsumption(g) for g in (idle, loaded)]
        start = time.monotonic()
        time.sleep(0.3)
        after = [n.nvmlDeviceGetTotalEnergyConsumption(g) for g in (idle, loaded)]
        say([(new - old) / (time.monotonic() - start) for old, new in zip(before, after)])
    """
    machine.ctl("load", 1, 100)
    idle, loaded = machine.run(script)  # mJ per second: mW
    assert 15_000 < idle < 25_000
    assert 350_000 < loaded < 500_000


def test_processes_and_their_load(machine):
    processes = """
def processes(g):
    return [[p.pid, p.usedGpuMemory >> 20] for p in n.nvmlDeviceGetComputeRunningProcesses(g)]
"""
    script = READ + processes + "say([[*processes(g), read(g)['use']] for g in gpus()])"
    with machine.holder("--gpu", 1, "--memory-mib", 20000, "--load", 70) as process:
        assert machine.run(script) == [[0], [[process.pid, 20000], 70]]
    assert machine.run(script) == [[0], [0]]


def test_a_process_that_computes_may_ask_nvml_itself(machine):
    """And its children too: none of that ends its hold on the card."""
    ask = """
import subprocess, sys, os, pynvml as n
n.nvmlInit()
def pids():
    return [p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(n.nvmlDeviceGetHandleByIndex(0))]
print(pids(), flush=True)
if len(sys.argv) == 1:
    subprocess.run([sys.executable, __file__, 'child'])
    print(pids(), os.getpid())
"""
    script = machine.dir.parent / "ask.py"
    script.write_text(ask)
    done = machine.program(sys.executable, SIMCTL, "hold", "--", sys.executable, script)
    own, child, again = done.stdout.splitlines()
    pid = again.split()[-1]
    assert (own, child, again) == (f"[{pid}]", f"[{pid}]", f"[{pid}] {pid}")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes pid namespaces")
def test_a_container_sees_its_own_processes_and_all_memory(machine):
    """The machine sees the pids that it knows them by, as with the real driver."""
    ask = (
        READ
        + "say([[p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(g)], n.nvmlDeviceGetMemoryInfo(g).used >> 20])"
    )
    with machine.holder("--gpu", 0, "--memory-mib", 1000, within=["unshare", "--pid", "--fork"]) as unshare:
        children = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children")
        [pid] = map(int, children.read_text().split())
        outside = machine.run(ask)
        elsewhere = machine.run(ask, within=["unshare", "--pid", "--fork"])
    assert outside == [[pid], 1395]
    assert elsewhere == [[], 1395]


def test_a_process_changes_its_own_load_and_a_killed_one_leaves_nothing(machine):
    with machine.holder("--gpu", "all", "--load", 10) as process:
        [note] = [path for path in (machine.dir / "holders").iterdir() if path.suffix != ".lock"]
        note.write_text("gpu0.memory_mib 5\ngpu0.load 100\n")
        script = READ + "say([read(g)['use'] for g in gpus()])"
        assert machine.run(script) == [100, 0]
        process.kill()
        process.wait()
        assert machine.run(script) == [0, 0]
    assert list((machine.dir / "holders").iterdir()) == []
