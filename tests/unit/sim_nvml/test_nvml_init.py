"""nvmlInit and what precedes everything else."""


def test_needs_a_loaded_driver_of_its_own_version(make_machine, library, tmp_path):
    none = make_machine(tmp_path / "none", library, driver=None)
    assert none.raw("say(code(n.nvmlInit))") == 9
    other = make_machine(tmp_path / "other", library, driver="580.126.09")
    assert other.raw("say(code(n.nvmlInit))") == 18


def test_calls_before_init_and_after_the_last_shutdown_fail(machine):
    script = """
        n.nvmlInit(); n.nvmlInit()
        n.nvmlShutdown()
        inside = code(n.nvmlDeviceGetCount)
        handle = n.nvmlDeviceGetHandleByIndex(0)
        n.nvmlShutdown()
        say([inside, code(n.nvmlDeviceGetCount), code(n.nvmlDeviceGetName, handle), code(n.nvmlShutdown)])
    """
    assert machine.raw(script) == [0, 1, 1, 1]


def test_versions(machine):
    script = "say([n.nvmlSystemGetDriverVersion(), n.nvmlSystemGetNVMLVersion(), n.nvmlSystemGetCudaDriverVersion()])"
    assert machine.run(script) == ["580.95.05", "13.580.95.05", 13000]


def test_old_driver_says_function_not_found(make_machine, build, tmp_path):
    assert build(tmp_path, "535.261.03", "--without", "nvmlDeviceSetMemoryLockedClocks").returncode == 0
    machine = make_machine(tmp_path, tmp_path, driver="535.261.03")
    script = """
        gpu = gpus()[0]
        say([n.nvmlSystemGetCudaDriverVersion(), code(n.nvmlDeviceSetMemoryLockedClocks, gpu, 405, 405),
             code(n.nvmlSystemGetDriverBranch), code(n.nvmlDeviceSetGpuLockedClocks, gpu, 0, 2100)])
    """
    assert machine.run(script) == [12020, 13, 13, 0]


def test_files_are_open_to_every_user(machine):
    machine.run("os.umask(0o077); say(0)")
    assert machine.dir.stat().st_mode & 0o7777 == 0o777
    for name in ("state", "state.lock", "clients", "trace"):
        assert (machine.dir / name).stat().st_mode & 0o777 == 0o666, name
