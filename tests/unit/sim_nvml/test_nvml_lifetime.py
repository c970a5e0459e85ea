"""How long a setting lasts: one initialisation of the GPU."""

import pytest

LOCK = """
for g in gpus():
    n.nvmlDeviceSetGpuLockedClocks(g, 0, 2100)
    n.nvmlDeviceSetPowerManagementLimit(g, 300000)
"""
PERSIST = "for g in gpus(): n.nvmlDeviceSetPersistenceMode(g, {mode})\n"
READ = "g = gpus()[0]; say([n.nvmlDeviceGetPersistenceMode(g), n.nvmlDeviceGetPowerManagementLimit(g)])"
BOTH, NONE = {0: [0, 2100], 1: [0, 2100]}, {0: None, 1: None}


def test_the_last_client_takes_the_lock_with_it(machine):
    assert machine.run(LOCK + "say(n.nvmlDeviceGetPowerManagementLimit(gpus()[0]))") == 300000
    assert "gpu_lock_max_mhz 2100" not in (machine.dir / "state").read_text()
    assert machine.locks() == NONE
    assert machine.run(READ) == [0, 450000]


def test_another_client_keeps_it(machine):
    with machine.client():
        machine.run(LOCK + "say(0)")
        assert machine.locks() == BOTH
        assert machine.run(READ) == [0, 300000]
    assert machine.locks() == NONE


def test_a_computing_process_keeps_it(machine):
    with machine.holder():
        machine.run(LOCK + "say(0)")
        assert machine.locks() == BOTH
    assert machine.locks() == NONE


def test_persistence_mode_keeps_it(machine):
    machine.run(PERSIST.format(mode=1) + LOCK + "say(0)")
    assert machine.locks() == BOTH
    assert machine.run(READ) == [1, 300000]
    machine.run(PERSIST.format(mode=0) + "say(0)")
    assert machine.locks() == NONE
    assert machine.run(READ) == [0, 450000]


def test_persistence_mode_is_each_gpus_own(machine):
    machine.run("n.nvmlDeviceSetPersistenceMode(gpus()[1], 1)\n" + LOCK + "say(0)")
    assert machine.locks() == {0: None, 1: [0, 2100]}


def test_a_killed_client_counts_as_gone(machine):
    process = machine.start("n.nvmlInit()" + LOCK + "say('set'); time.sleep(60)")
    assert process.stdout.readline() == '"set"\n'
    assert machine.locks() == BOTH
    process.kill()
    process.wait()
    assert machine.locks() == NONE
    assert machine.run(READ) == [0, 450000]


@pytest.mark.parametrize("event", [["reload"], ["reset", "all"]])
def test_reload_and_reset_lose_everything(machine, event):
    machine.run(PERSIST.format(mode=1) + LOCK + "say(0)")
    machine.ctl(*event)
    assert machine.locks() == NONE
    assert machine.run(READ) == [0, 450000]


def test_reset_is_one_gpus(machine):
    machine.run(PERSIST.format(mode=1) + LOCK + "say(0)")
    machine.ctl("reset", 0)
    assert machine.locks() == {0: None, 1: [0, 2100]}


def test_a_driver_in_use_does_not_go(machine):
    with machine.client():
        assert "in use" in machine.ctl("reload", fails=True)
        assert "in use" in machine.ctl("unload", fails=True)
        assert machine.run("say(0)") == 0
    machine.ctl("unload")
    assert machine.raw("say(code(n.nvmlInit))") == 9


def test_a_reload_is_visible_in_the_module_directory(machine):
    module = machine.root / "sys/module/nvidia"
    before = module.stat().st_ino
    machine.ctl("reload", "580.126.09")
    assert module.stat().st_ino != before
    assert (module / "version").read_text() == "580.126.09\n"
    assert "580.126.09" in (machine.root / "proc/driver/nvidia/version").read_text()
    assert machine.raw("say(code(n.nvmlInit))") == 18


def test_the_energy_counter_starts_anew_with_each_initialisation(machine):
    machine.ctl("load", "all", 100)
    read = "time.sleep(0.2); say([n.nvmlDeviceGetTotalEnergyConsumption(g) for g in gpus()])"
    persistent = machine.run(PERSIST.format(mode=1) + read)
    assert all(new > old for old, new in zip(persistent, machine.run(read), strict=True))
    machine.ctl("reload")
    machine.ctl("load", "all", 0)
    assert all(new < old / 5 for old, new in zip(persistent, machine.run(read), strict=True))
