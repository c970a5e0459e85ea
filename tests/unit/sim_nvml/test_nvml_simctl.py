"""simctl: what it says, and what it refuses."""

import json
import sys
from pathlib import Path

SIMCTL = Path(__file__).parents[3] / "sim/nvml/simctl"


def test_locks_expect(machine):
    with machine.client():
        machine.run("[n.nvmlDeviceSetGpuLockedClocks(g, 0, 2100) for g in gpus()]; say(0)")
        assert machine.ctl("locks", "--expect", "0-2100") == "gpu0 0-2100\ngpu1 0-2100\n"
        machine.run("n.nvmlDeviceSetGpuLockedClocks(gpus()[1], 0, 1800); say(0)")
        assert "expected 0-2100" in machine.ctl("locks", "--expect", "0-2100", fails=True)
    assert machine.ctl("locks", "--expect", "none") == "gpu0 none\ngpu1 none\n"


def test_state_of_a_machine_where_nothing_ever_ran(make_machine, library, tmp_path):
    machine = make_machine(tmp_path, library, driver=None)
    state = json.loads(machine.ctl("state", "--json"))
    assert (state["driver"], state["clients"], len(state["gpus"]), state["simulated"]) == (None, False, 2, True)


def test_refuses_nonsense(machine):
    assert "GPU '2'" in machine.ctl("load", 2, 50, fails=True)
    assert "0..100" in machine.ctl("load", 0, 101, fails=True)
    assert "must be a number or one of" in machine.ctl("error", "nvmlInit", "NO_SUCH", fails=True)
    assert "no-such-program" in machine.ctl("hold", "--", "no-such-program", fails=True)


def test_hold_gives_the_commands_exit_code(machine):
    done = machine.program(sys.executable, SIMCTL, "hold", "--", "sh", "-c", "exit 7")
    assert done.returncode == 7
