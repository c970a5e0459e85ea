"""What the cards are, and what a GeForce card does not do."""


def test_two_4090s(machine):
    script = """
        say([[n.nvmlDeviceGetName(g), n.nvmlDeviceGetCudaComputeCapability(g), n.nvmlDeviceGetPciInfo(g).busId,
              n.nvmlDeviceGetPciInfo(g).pciDeviceId, n.nvmlDeviceGetMemoryInfo(g).total >> 20,
              n.nvmlDeviceGetPowerManagementLimitConstraints(g), n.nvmlDeviceGetPowerManagementDefaultLimit(g),
              n.nvmlDeviceGetDisplayActive(g), n.nvmlDeviceGetIndex(g)] for g in gpus()])
    """
    same = ["NVIDIA GeForce RTX 4090", [8, 9]]
    rest = [0x268410DE, 24564, [150000, 600000], 450000, 0]
    assert machine.run(script) == [[*same, "00000000:01:00.0", *rest, 0], [*same, "00000000:41:00.0", *rest, 1]]


def test_uuids_are_the_machines_own_and_stay(machine):
    script = "say([n.nvmlDeviceGetUUID(g) for g in gpus()])"
    first = machine.run(script)
    machine.ctl("reload")
    assert machine.run(script) == first
    machine.env["SIM_NVML_MACHINE_ID"] = "another"
    assert len({*first, *machine.run(script)}) == 4


def test_handles_by_uuid_and_bus(machine):
    script = """
        uuid = n.nvmlDeviceGetUUID(gpus()[1])
        say([n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID(uuid)),
             n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByPciBusId('0000:41:00.0')),
             code(n.nvmlDeviceGetHandleByUUID, 'GPU-0'), code(n.nvmlDeviceGetHandleByPciBusId, '0000:42:00.0'),
             code(n.nvmlDeviceGetHandleByIndex, 2)])
    """
    assert machine.run(script) == [1, 1, 6, 6, 2]


def test_a_container_sees_the_cards_it_was_given(machine):
    devices = machine.root / "dev"
    devices.mkdir()
    for name in ("nvidiactl", "nvidia1"):
        (devices / name).touch()
    machine.run(
        "n.nvmlDeviceSetGpuLockedClocks(gpus()[0], 0, 2100); n.nvmlDeviceSetPersistenceMode(gpus()[0], 1); say(0)"
    )
    script = (
        "say([[n.nvmlDeviceGetIndex(g), n.nvmlDeviceGetMinorNumber(g), n.nvmlDeviceGetPciInfo(g).bus] for g in gpus()])"
    )
    assert machine.run(script) == [[0, 1, 0x41]]
    assert machine.locks() == {0: None, 1: [0, 2100]}


def test_cards_are_configurable(machine):
    machine.ctl("set", "gpus", 1)
    machine.ctl("set", "gpu0.name", "NVIDIA GeForce RTX 4080")
    machine.ctl("set", "gpu0.power_max_w", 516)
    machine.ctl("set", "gpu0.display_active", 1)
    script = """
        say([[n.nvmlDeviceGetName(g), n.nvmlDeviceGetPowerManagementLimitConstraints(g),
              n.nvmlDeviceGetDisplayActive(g)] for g in gpus()])
    """
    assert machine.run(script) == [["NVIDIA GeForce RTX 4080", [150000, 516000], 1]]


def test_what_geforce_does_not_support(machine):
    script = """
        g = gpus()[0]
        say({f.__name__: code(f, g, *a) for f, *a in [
            (n.nvmlDeviceGetMigMode,), (n.nvmlDeviceSetMigMode, 1), (n.nvmlDeviceGetSerial,),
            (n.nvmlDeviceGetApplicationsClock, 0), (n.nvmlDeviceSetApplicationsClocks, 10501, 2100),
            (n.nvmlDeviceGetMaxCustomerBoostClock, 0), (n.nvmlDeviceGetCurrentDriverModel,),
            (n.nvmlDeviceGetTotalEccErrors, 0, 0), (n.nvmlDeviceGetNvLinkState, 0), (n.nvmlDeviceGetBoardPartNumber,)]})
    """
    assert {name: value for name, value in machine.run(script).items() if value != 3} == {}


def test_clocks_on_offer(machine):
    script = """
        g = gpus()[0]
        say([n.nvmlDeviceGetSupportedMemoryClocks(g), n.nvmlDeviceGetSupportedGraphicsClocks(g, 10501),
             n.nvmlDeviceGetMaxClockInfo(g, n.NVML_CLOCK_SM), code(n.nvmlDeviceGetSupportedGraphicsClocks, g, 9000)])
    """
    memory, graphics, highest, unknown = machine.run(script)
    assert memory == [10501, 10251, 5001, 810, 405]
    assert graphics == list(range(3105, 209, -15)) and highest == 3105
    assert unknown == 6


def test_memory_versions_agree(machine):
    script = """
        g = gpus()[0]
        one, two = n.nvmlDeviceGetMemoryInfo(g), n.nvmlDeviceGetMemoryInfo(g, version=n.nvmlMemory_v2)
        say([one.total, one.used, one.free, two.total, two.used, two.reserved, two.free])
    """
    with machine.holder("--gpu", 0, "--memory-mib", 20000):
        total, used, free, total2, used2, reserved2, free2 = machine.run(script)
    assert used2 == 20000 << 20 and reserved2 > 0
    assert total == used + free == total2 == used2 + reserved2 + free2
    assert used == used2 + reserved2


def test_lists_of_processes_that_nobody_is_in_are_empty(machine):
    script = """
        say([[f(g) for f in (n.nvmlDeviceGetGraphicsRunningProcesses, n.nvmlDeviceGetGraphicsRunningProcesses_v2,
                             n.nvmlDeviceGetMPSComputeRunningProcesses, n.nvmlDeviceGetComputeRunningProcesses)]
             for g in gpus()])
    """
    assert machine.run(script) == [[[], [], [], []]] * 2


def test_fields_are_of_the_scope_that_was_asked_for(machine):
    """The card's own power, and that of a module or of the memory, which a GeForce card does not tell."""
    script = """
        scopes = [n.NVML_POWER_SCOPE_GPU, n.NVML_POWER_SCOPE_MODULE, n.NVML_POWER_SCOPE_MEMORY]
        fields = [(field, scope) for field in (n.NVML_FI_DEV_POWER_INSTANT, n.NVML_FI_DEV_POWER_DEFAULT_LIMIT)
                  for scope in scopes]
        say([[value.nvmlReturn, value.value.uiVal] for value in n.nvmlDeviceGetFieldValues(gpus()[0], fields)])
    """
    assert machine.run(script) == [[0, 20000], [3, 0], [3, 0], [0, 450000], [3, 0], [3, 0]]


def test_affinity_is_of_the_cpus_that_are_there(machine):
    script = """
        g = gpus()[0]
        masks = n.nvmlDeviceGetCpuAffinity(g, 16)
        n.nvmlDeviceSetCpuAffinity(g)
        say([sum(bin(mask).count('1') for mask in masks), os.sysconf('SC_NPROCESSORS_ONLN'),
             n.nvmlDeviceGetMemoryAffinity(g, 1, n.NVML_AFFINITY_SCOPE_NODE)[0] & 1,
             code(n.nvmlDeviceGetCpuAffinityWithinScope, g, 16, 2), code(n.nvmlDeviceGetCpuAffinity, g, 0)])
    """
    near, online, node, wrong_scope, no_room = machine.run(script)
    assert near == online and (node, wrong_scope, no_room) == (1, 2, 2)


def test_reasons_that_newer_headers_name(machine):
    machine.ctl("set", "gpu1.event_reasons", "0x600")
    machine.ctl("load", 1, 50)
    script = (
        "say([[n.nvmlDeviceGetCurrentClocksEventReasons(g), n.nvmlDeviceGetSupportedClocksEventReasons(g) & 0x600]"
        " for g in gpus()])"
    )
    assert machine.run(script) == [[1, 0x600], [0x600, 0x600]]
