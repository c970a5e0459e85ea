"""observe -> believe -> plan -> apply by table and by property, on an in-process stand-in for NVML."""

from __future__ import annotations

import itertools

import pytest
from ansible.module_utils.tandem_gpu_clocks import CONFIRMED, Convergence, believe, fit, observe, plan
from ansible.module_utils.tandem_gpu_nvml import Nvml
from ansible.module_utils.tandem_gpu_wish import Wish
from gpu_clocks_fake import UUIDS, FakeHost, FakeNvml, FakeRecord
from hypothesis import given
from hypothesis import strategies as st

RESET, LOCK = "nvmlDeviceResetGpuLockedClocks", "nvmlDeviceSetGpuLockedClocks"
BELIEFS = ("no_record", "stale", "contradicted", "confirmed")


class Lab:
    """Two fake cards with host and record, and one line per run."""

    def __init__(self):
        self.nvml, self.host, self.record = FakeNvml(), FakeHost(), FakeRecord()

    def run(self, check=False, reapply="always", **wish):
        return Convergence(
            Nvml(self.nvml), self.host, self.record, Wish.parse(wish), reapply, check, sleep=lambda seconds: None
        ).run()

    def settings(self):
        return [card.settings() for card in self.nvml.cards]


@pytest.fixture
def lab():
    return Lab()


def observed(card_change=lambda card: None):
    nvml = FakeNvml()
    card_change(nvml.cards[0])
    return observe(Nvml(nvml), nvml.cards[0])


def entry(gpu_lock, memory_lock=None):
    return {"wish": {"gpu_lock": gpu_lock, "memory_lock": memory_lock}, "memory_supported": True, "evidence": {}}


# --- the planner by table: every belief x every wish ---------------------------------------------------------------

# recorded lock, wish -> does the wish differ from the record
WISHES = [
    ([0, 2100], {"max_mhz": 2100}, False),
    ([0, 2100], {"max_mhz": 1800}, True),
    ([0, 2100], {"min_mhz": 210, "max_mhz": 2100}, True),
    ([0, 2100], {"state": "unlocked"}, True),
    (None, {"max_mhz": 2100}, True),
    (None, {"state": "unlocked"}, False),
]


@pytest.mark.parametrize("reapply", ["always", "on_drift"])
@pytest.mark.parametrize("belief", BELIEFS)
@pytest.mark.parametrize(("recorded", "options", "differs"), WISHES)
def test_lock_for_every_belief_and_wish(recorded, options, differs, belief, reapply):
    gpu = observed()
    wish = Wish.parse(options)
    target, problems, _warnings = fit(wish, gpu)
    assert not problems
    actions, changes = plan(target, gpu, None if belief == "no_record" else entry(recorded), belief, reapply)

    not_as_wished = differs or belief != "confirmed"
    lock_changes = [item for item in changes if item["setting"] == "gpu_lock"]
    assert bool(lock_changes) is not_as_wished
    setter = [RESET] if wish.state == "unlocked" else [LOCK, *wish.gpu_lock]
    assert (setter in actions) is (not_as_wished or reapply == "always")
    assert not {"persistence_mode", "power_limit"} & {item["setting"] for item in changes}
    if lock_changes and belief != "confirmed":
        assert lock_changes[0]["before"] == "unknown"


@pytest.mark.parametrize(
    ("now_mw", "wished", "action"),
    [
        (450_000, None, None),
        (450_000, 450, None),
        (450_900, 450, None),  # within 1 W: the card rounds
        (449_000, 450, 450_000),
        (300_000, "default", 450_000),
        (450_000, 312.5, 312_500),
    ],
)
def test_power_limit_changes_from_one_watt(now_mw, wished, action):
    gpu = observed(lambda card: setattr(card, "power_limit", now_mw))
    target, problems, _warnings = fit(Wish(max_mhz=2100, power_limit_w=wished), gpu)
    assert not problems
    actions, changes = plan(target, gpu, entry([0, 2100]), "confirmed")
    assert [step for step in actions if "Power" in step[0]] == (
        [["nvmlDeviceSetPowerManagementLimit", action]] if action else []
    )
    assert [item["setting"] for item in changes] == (["power_limit"] if action else [])


def test_order_is_persistence_power_memory_lock(lab):
    for card in lab.nvml.cards:
        card.persistence = False
    lab.run(max_mhz=2100, power_limit_w=300, memory_max_mhz=10501)
    first = [name for name, index, _arguments in lab.nvml.calls if index == 0]
    assert first == [
        "nvmlDeviceSetPersistenceMode",
        "nvmlDeviceSetPowerManagementLimit",
        "nvmlDeviceSetMemoryLockedClocks",
        LOCK,
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_mhz": 9000}, "takes clocks of 210 to 3105 MHz in steps of 15: max_mhz (9000) is outside"),
        ({"max_mhz": 100}, "max_mhz (100) is outside"),
        ({"min_mhz": 100, "max_mhz": 2100}, "min_mhz (100) is outside"),
        ({"max_mhz": 2101, "strict_steps": True}, "max_mhz (2101) is not one of its clocks, the next below is 2100"),
        ({"max_mhz": 2100, "power_limit_w": 700}, "takes power limits of 150 to 600 W (default 450)"),
        ({"max_mhz": 2100, "power_limit_w": 100}, "power_limit_w (100) is outside"),
        ({"max_mhz": 2100, "memory_max_mhz": 12000}, "memory_max_mhz (12000) is outside"),
    ],
)
def test_what_the_card_cannot_take_is_refused_before_any_setter(lab, options, words):
    result = lab.run(**options)
    assert words in result["errors"][0] and UUIDS[0] in result["errors"][0]
    assert len(result["errors"]) == 2  # one sentence per card
    assert lab.nvml.calls == [] and lab.record.stored == {}


def test_a_clock_between_two_steps_is_taken_down_with_a_warning(lab):
    result = lab.run(max_mhz=2114)
    assert lab.nvml.cards[0].lock == (0, 2100)
    assert "max_mhz (2114) is not one of its clocks, the next below is 2100" in result["warnings"][0]
    assert lab.run(max_mhz=2114)["changed"] is False


# --- belief ----------------------------------------------------------------------------------------------------------

NOW = {
    "boot_id": "b",
    "module_inode": 1,
    "driver_version": "580.95.05",
    "persistenced": "7:8",
    "suspended_s": 10.0,
    "persistence_mode": True,
    "power_limit_mw": 450_000,
    "energy_mj": 1000,
}


@pytest.mark.parametrize(
    ("sign", "then"),
    [
        ("boot_id", "a"),
        ("module_inode", 2),
        ("driver_version", "570.1"),
        ("persistenced", "7:7"),
        ("persistenced", None),
        ("suspended_s", 0.0),
        ("persistence_mode", False),
        ("power_limit_mw", 449_999),
        ("energy_mj", 1001),
    ],
)
def test_each_sign_alone_makes_the_record_stale(sign, then):
    belief, evidence = believe({**entry([0, 2100]), "evidence": {**NOW, sign: then}}, NOW, [210], 15)
    assert belief == "stale" and len(evidence) == 1


def test_persistence_mode_off_now_makes_the_record_stale():
    belief, _evidence = believe({**entry([0, 2100]), "evidence": NOW}, {**NOW, "persistence_mode": False}, [210], 15)
    assert belief == "stale"


@pytest.mark.parametrize(
    ("samples", "belief"),
    [
        ([210, 210, 210], "confirmed"),  # idle proves nothing
        ([2100, 2115, 2100], "confirmed"),  # one step above is a reading's noise
        ([2100, 2116, 2100], "contradicted"),
        ([], "confirmed"),
    ],
)
def test_clock_above_the_lock_contradicts(samples, belief):
    assert believe({**entry([0, 2100]), "evidence": NOW}, NOW, samples, 15)[0] == belief


def test_a_clock_below_the_minimum_proves_nothing():
    recorded = {**entry([1800, 2100]), "evidence": NOW}
    assert believe(recorded, NOW, [210], 15) == ("confirmed", [CONFIRMED])


def test_an_unlocked_record_cannot_be_contradicted():
    assert believe({**entry(None), "evidence": NOW}, NOW, [2520], 15)[0] == "confirmed"


def test_energy_that_cannot_be_read_any_more_is_not_believed():
    assert believe({**entry([0, 2100]), "evidence": NOW}, {**NOW, "energy_mj": None}, [210], 15)[0] == "stale"


# --- faults ----------------------------------------------------------------------------------------------------------


def test_a_gpu_that_fails_is_forgotten_and_the_other_recorded(lab):
    lab.run(max_mhz=2100)
    lab.nvml.cards[0].errors["nvmlDeviceSetGpuLockedClocks"] = 999
    result = lab.run(max_mhz=1800)
    assert list(lab.record.stored) == [UUIDS[1]]
    assert UUIDS[0] in result["errors"][0] and "(0, 1800)" in result["errors"][0]


def test_the_old_entry_is_gone_before_the_first_setter(lab):
    lab.run(max_mhz=2100)
    seen = []
    original = lab.nvml.nvmlDeviceSetGpuLockedClocks

    def spy(card, *arguments):
        seen.append(dict(lab.record.stored))
        original(card, *arguments)

    lab.nvml.nvmlDeviceSetGpuLockedClocks = spy
    lab.run(max_mhz=1800)
    assert UUIDS[0] not in seen[0] and UUIDS[1] not in seen[1]


def test_a_failed_power_limit_does_not_keep_the_lock_from_being_set(lab):
    lab.nvml.cards[0].errors["nvmlDeviceSetPowerManagementLimit"] = 3
    result = lab.run(max_mhz=2100, power_limit_w=300)
    assert lab.nvml.cards[0].lock == (0, 2100)
    assert "SetPowerManagementLimit(300000) failed" in result["errors"][0]
    assert UUIDS[0] not in lab.record.stored


def test_one_sentence_when_the_gpu_is_gone(lab):
    lab.nvml.cards[0].persistence = False
    for name in ("SetPersistenceMode", "SetPowerManagementLimit", "SetGpuLockedClocks"):
        lab.nvml.cards[0].errors[f"nvmlDevice{name}"] = 15
    result = lab.run(max_mhz=2100, power_limit_w=300)
    assert len(result["errors"]) == 1 and "fallen off the bus" in result["errors"][0]
    assert [name for name, index, _arguments in lab.nvml.calls if index == 0] == ["nvmlDeviceSetPersistenceMode"]
    assert lab.nvml.cards[1].lock == (0, 2100)


def test_a_setter_without_effect_is_found_on_reading_back(lab):
    lab.nvml.nvmlDeviceSetPowerManagementLimit = lambda card, milliwatts: None
    result = lab.run(max_mhz=2100, power_limit_w=300)
    assert "was set to 300 W and reads 450 W" in result["errors"][0]
    assert lab.record.stored == {}


def test_fewer_gpus_than_expected(lab):
    result = lab.run(max_mhz=2100, expected_gpus=3)
    assert "sees 2 GPU(s), and at least 3" in result["errors"][0]
    assert [card.lock for card in lab.nvml.cards] == [(0, 2100)] * 2  # what is there is locked all the same


def test_no_gpu_at_all_is_no_success():
    lab = Lab()
    lab.nvml.cards = []
    assert "sees 0 GPU(s)" in lab.run(max_mhz=2100)["errors"][0]


@pytest.mark.parametrize(
    ("gpus", "locked", "words"),
    [
        ("all", [0, 1], None),
        ([0], [0], None),
        ("0,1", [0, 1], None),
        ([UUIDS[1]], [1], None),
        ([5], [], "index 5, and the driver sees 2 GPU(s)"),
        (["GPU-22222222-2222-2222-2222-222222222222", 1], [1], f"present are {UUIDS[0]}, {UUIDS[1]}"),
    ],
)
def test_selection(lab, gpus, locked, words):
    result = lab.run(max_mhz=2100, gpus=gpus)
    assert [card.index for card in lab.nvml.cards if card.lock] == locked
    assert (words in result["errors"][0]) if words else result["errors"] == []


def test_a_working_card_is_sampled_over_time(lab):
    pauses = []
    lab.nvml.cards[0].load = 100
    observe(Nvml(lab.nvml), lab.nvml.cards[0], pauses.append)
    assert len(pauses) == 2
    observe(Nvml(lab.nvml), lab.nvml.cards[1], pauses.append)
    assert len(pauses) == 2


# --- properties ------------------------------------------------------------------------------------------------------

SETTERS = [
    "nvmlDeviceSetPersistenceMode",
    "nvmlDeviceSetPowerManagementLimit",
    "nvmlDeviceSetMemoryLockedClocks",
    "nvmlDeviceResetMemoryLockedClocks",
    "nvmlDeviceSetGpuLockedClocks",
    "nvmlDeviceResetGpuLockedClocks",
]
mhz = st.integers(210, 3105)
wishes = st.builds(
    lambda pair, memory, **rest: {
        "min_mhz": min(pair),
        "max_mhz": max(pair),
        **({"memory_max_mhz": memory} if memory else {}),
        **rest,
    },
    pair=st.tuples(st.one_of(st.just(0), mhz), mhz),
    memory=st.one_of(st.none(), st.sampled_from([405, 5001, 10501])),
    state=st.sampled_from(["locked", "locked", "unlocked"]),
    power_limit_w=st.one_of(st.none(), st.just("default"), st.integers(150, 600)),
)
# What may have happened to a card since the last run.
events = st.lists(
    st.sampled_from(["reset", "lock", "power", "persistence", "energy", "load", "boot", "forget"]), max_size=4
)


def happen(lab, names):
    for name, card in itertools.product(names, lab.nvml.cards):
        if name == "reset":
            card.lock = None
        elif name == "lock":
            card.lock = (0, 2700)
        elif name == "power":
            card.power_limit = 200_000
        elif name == "persistence":
            card.persistence = False
        elif name == "energy":
            card.energy = 0
        elif name == "load":
            card.load = 100
        elif name == "boot":
            lab.host.signs["boot_id"] += "x"
        else:
            lab.record.stored.pop(card.uuid, None)


@given(before=wishes, wish=wishes, what=events)
def test_apply_twice_is_apply_once(before, wish, what):
    lab = Lab()
    lab.run(**before)
    happen(lab, what)
    assert lab.run(**wish)["errors"] == []
    once, recorded = lab.settings(), dict(lab.record.stored)
    second = lab.run(**wish)
    assert second["changed"] is False
    assert lab.settings() == once and lab.record.stored == recorded


@given(before=wishes, wish=wishes, what=events, reapply=st.sampled_from(["always", "on_drift"]))
def test_check_predicts_apply_and_writes_nothing(before, wish, what, reapply):
    lab = Lab()
    lab.run(**before)
    happen(lab, what)
    settings, recorded, calls = lab.settings(), dict(lab.record.stored), len(lab.nvml.calls)
    predicted = lab.run(check=True, reapply=reapply, **wish)
    assert (lab.settings(), lab.record.stored, len(lab.nvml.calls)) == (settings, recorded, calls)
    applied = lab.run(reapply=reapply, **wish)
    assert predicted["changed"] == applied["changed"]
    for expected, got in zip(predicted["gpus"], applied["gpus"], strict=True):
        for name in ("actions", "changes", "belief", "before", "after"):
            assert expected[name] == got[name], name
    # Changed exactly when something was not as wished: unchanged means that not even a reading differs.
    if not applied["changed"]:
        assert [card[:2] for card in lab.settings()] == [card[:2] for card in settings]


@given(
    before=wishes,
    wish=wishes,
    what=events,
    faults=st.dictionaries(st.tuples(st.integers(0, 1), st.sampled_from(SETTERS)), st.sampled_from([2, 3, 4, 15, 999])),
)
def test_no_path_records_a_gpu_whose_write_failed(before, wish, what, faults):
    lab = Lab()
    lab.run(**before)
    happen(lab, what)
    for (index, name), code in faults.items():
        lab.nvml.cards[index].errors[name] = code
    lab.nvml.calls.clear()
    lab.record.history.clear()
    result = lab.run(**wish)
    for card, report in zip(lab.nvml.cards, result["gpus"], strict=True):
        failed = [
            name
            for name, index, _arguments in lab.nvml.calls
            if index == card.index
            and name in card.errors
            and not ("MemoryLockedClocks" in name and card.errors[name] == 3)  # cannot: a warning, see above
        ]
        assert bool(failed) == bool(report["errors"])
        assert (card.uuid in lab.record.stored) is not bool(failed)
        if failed:
            wished = {"gpu_lock": report["after"]["gpu_lock"]}
            assert wished == {"gpu_lock": "unknown"}


@given(wish=wishes, what=events)
def test_a_confirmed_lock_is_in_force_unless_set_elsewhere_unseen(wish, what):
    """After every run the card holds what the record says, whatever had happened."""
    lab = Lab()
    lab.run(max_mhz=2100)
    happen(lab, what)
    lab.run(**wish)
    for card in lab.nvml.cards:
        recorded = lab.record.stored[card.uuid]["wish"]["gpu_lock"]
        assert (list(card.lock) if card.lock else None) == recorded
