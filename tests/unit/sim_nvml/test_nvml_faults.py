"""Faults on request, and the trace of what was called."""

import textwrap
import time
from pathlib import Path

import pytest

SET = "say([code(n.nvmlDeviceSetGpuLockedClocks, g, 0, 2100) for g in gpus()])"


def test_an_error_of_one_call_on_one_gpu(machine):
    machine.ctl("error", "nvmlDeviceSetGpuLockedClocks", "NOT_SUPPORTED", "--gpu", 1)
    with machine.client():
        assert machine.run(SET) == [0, 3]
        assert machine.locks() == {0: [0, 2100], 1: None}


def test_errors_by_number_pattern_and_name_without_version(machine):
    machine.ctl("error", "nvmlDeviceSet*", 999)
    machine.ctl("error", "nvmlDeviceGetCount", "IRQ_ISSUE")
    assert machine.run("n.nvmlDeviceGetHandleByIndex(0); say(code(n.nvmlDeviceGetCount))") == 11
    machine.ctl("clear", "error.nvmlDeviceGetCount")
    assert machine.run(SET) == [999, 999]
    machine.ctl("clear")
    assert machine.run(SET) == [0, 0]


@pytest.mark.parametrize("code", [4, 9, 15, 18, 999])
def test_an_error_of_init(machine, code):
    machine.ctl("error", "nvmlInit*", code)
    assert machine.raw("say(code(n.nvmlInit))") == code


def test_a_lost_gpu_leaves_the_other(machine):
    script = """
        lost, other = gpus()
        os.system(f'{sys.executable} ' + os.environ['SIMCTL'] + ' set gpu0.lost 1')
        say([code(n.nvmlDeviceSetGpuLockedClocks, lost, 0, 2100), code(n.nvmlDeviceGetClockInfo, lost, 1),
             code(n.nvmlDeviceGetMigMode, lost), code(n.nvmlDeviceGetHandleByIndex, 0), n.nvmlDeviceGetCount(),
             code(n.nvmlDeviceSetGpuLockedClocks, other, 0, 2100), code(n.nvmlDeviceGetHandleByIndex, 1)])
    """
    machine.env["SIMCTL"] = str(Path(__file__).parents[3] / "sim/nvml/simctl")
    assert machine.run(script) == [15, 15, 15, 15, 2, 0, 0]


def test_a_call_that_hangs(machine):
    machine.ctl("hang", "nvmlDeviceGetPowerUsage", 0.7, "--gpu", 0)
    script = """
        def seconds(function, *arguments):
            start = time.monotonic(); function(*arguments); return time.monotonic() - start
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        say([seconds(n.nvmlDeviceGetPowerUsage, g) for g in gpus()])
    """
    hung, other = machine.run(script)
    assert hung >= 0.7, "a signal ended the hang"
    assert other < 0.3
    assert "nvmlDeviceGetPowerUsage gpu=0 -> hangs" in machine.ctl("trace")


def test_a_hanging_call_holds_nobody_else_and_can_be_killed(machine):
    machine.ctl("hang", "nvmlInit", 60)
    process = machine.start("n.nvmlInit()")
    deadline = time.monotonic() + 10
    while not (machine.dir / "trace").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert machine.locks() == {0: None, 1: None}
    process.kill()
    assert process.wait(timeout=5) == -9
    machine.ctl("clear")
    assert machine.run("say(n.nvmlDeviceGetCount())") == 2


def test_the_trace_has_pid_function_arguments_and_code(machine):
    pid = machine.run("n.nvmlDeviceSetGpuLockedClocks(gpus()[1], 300, 2100); say(os.getpid())")
    machine.run("say(code(n.nvmlDeviceSetPowerManagementLimit, gpus()[0], 1))")
    setters = [line.split(" ", 1)[1] for line in machine.ctl("trace", "--setters", "--clear").splitlines()]
    assert setters[0] == f"{pid} nvmlDeviceSetGpuLockedClocks gpu=1 minGpuClockMHz=300 maxGpuClockMHz=2100 -> 0"
    assert setters[1].endswith(" nvmlDeviceSetPowerManagementLimit gpu=0 limit=1 -> 2")
    assert len(setters) == 2
    assert machine.ctl("trace") == ""


def test_many_clients_at_once_lose_nothing(machine):
    """Writers on both GPUs, one of them killed in the middle: each GPU has its own last word, and the file is whole."""
    work = """
        n.nvmlInit()
        say('ready')
        g = gpus()[{gpu}]
        for i in range(60):
            n.nvmlDeviceSetPowerManagementLimit(g, 200000 + {gpu} * 100000 + i * 1000)
            n.nvmlDeviceGetTotalEnergyConsumption(g)
        say('done')
        sys.stdin.read()
        n.nvmlShutdown()
    """
    with machine.client():
        processes = [machine.start(textwrap.dedent(work.format(gpu=gpu))) for gpu in (0, 1, 0, 1, 0)]
        for process in processes:
            assert process.stdout.readline() == '"ready"\n'
        processes[-1].kill()
        for process in processes[:-1]:
            assert process.stdout.readline() == '"done"\n'
            process.communicate(timeout=30)
        processes[-1].wait()
        assert [gpu["power_limit_w"] for gpu in machine.state()] == [259, 359]
        assert [gpu["initialisations"] for gpu in machine.state()] == [1, 1]
