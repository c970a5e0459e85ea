"""Error sentences, the guard against a hung driver, the record file, and what the host tells."""

import os
import time

import pytest
from ansible.module_utils.tandem_gpu_info import sample
from ansible.module_utils.tandem_gpu_nvml import (
    DriverHung,
    Fault,
    Host,
    Nvml,
    NvmlCallError,
    NvmlUnavailable,
    explain,
    guarded,
)
from ansible.module_utils.tandem_gpu_record import Record, StoreError, read_json, write_json
from gpu_clocks_fake import FakeError, FakeNvml

pynvml = pytest.importorskip("pynvml")
CODES = sorted(
    value for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_") and isinstance(value, int)
)


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_a_meaning_and_a_way_out(code):
    sentence = explain(code)
    meaning, _colon, way_out = sentence.partition(": ")
    assert f"(NVML error {code})" in meaning and len(way_out) > 15


@pytest.mark.parametrize("code", [code for code in CODES if code not in (5, 22, 30)])
def test_codes_that_can_occur_have_a_sentence_of_their_own(code):
    assert "undocumented" not in explain(code)


def test_missing_function_is_the_old_drivers_fault():
    with pytest.raises(NvmlCallError) as caught:
        Nvml(FakeNvml())("nvmlDeviceGetTomorrow")
    assert caught.value.code == 13 and "update the driver" in str(caught.value)


def test_optional_answers_none_only_where_it_is_not_supported():
    nvml = FakeNvml()
    nvml.cards[0].errors["nvmlDeviceGetTotalEnergyConsumption"] = 3
    assert Nvml(nvml).optional("nvmlDeviceGetTotalEnergyConsumption", nvml.cards[0]) is None
    nvml.cards[0].errors["nvmlDeviceGetTotalEnergyConsumption"] = 15
    with pytest.raises(NvmlCallError):
        Nvml(nvml).optional("nvmlDeviceGetTotalEnergyConsumption", nvml.cards[0])


def test_f9_a_card_that_is_lost_while_it_is_watched_leaves_the_other():
    fake, now = FakeNvml(), [0.0]
    fake.nvmlDeviceGetClockInfo = lambda card, kind: fake._ask("nvmlDeviceGetClockInfo", card).sm_mhz
    for card in fake.cards:
        card.load = 100
    found = {"gpus": [{"index": card.index, "uuid": card.uuid} for card in fake.cards], "failed": []}

    def sleep(seconds):
        now[0] += seconds
        if now[0] > 1:
            fake.cards[1].errors["nvmlDeviceGetClockInfo"] = 15

    samples = sample(Nvml(fake), 3, 0.5, found, clock=lambda: now[0], sleep=sleep)
    assert [gpu["index"] for gpu in found["gpus"]] == [0]
    assert [(card["index"], card["uuid"], card["code"]) for card in found["failed"]] == [(1, fake.cards[1].uuid, 15)]
    assert list(samples) == [fake.cards[0].uuid] and samples[fake.cards[0].uuid]["busy"] == 6


def test_version_mismatch_names_both_versions(tmp_path, monkeypatch):
    nvml = FakeNvml()

    def fails():
        raise FakeError(18)

    nvml.nvmlInit = fails
    nvml.nvmlSystemGetNVMLVersion = lambda: "13.580.126.09"
    (tmp_path / "sys/module/nvidia").mkdir(parents=True)
    (tmp_path / "sys/module/nvidia/version").write_text("580.95.05\n")
    monkeypatch.setenv("TANDEM_GPU_ROOT", str(tmp_path))
    with pytest.raises(NvmlUnavailable, match=r"library 13\.580\.126\.09, loaded kernel module 580\.95\.05.*reboot"):
        Nvml(nvml).__enter__()


# --- the guard -------------------------------------------------------------------------------------------------------


def test_guard_returns_the_result():
    assert guarded(lambda progress: {"a": [1, None]}, 10) == {"a": [1, None]}


def test_guard_carries_more_than_a_pipe_holds():
    assert len(guarded(lambda progress: "x" * 1_000_000, 10)) == 1_000_000


def test_guard_names_the_call_that_hangs_and_ends_the_child(tmp_path):
    def hang(progress):
        (tmp_path / "pid").write_text(str(os.getpid()))
        progress("nvmlDeviceGetCount")
        time.sleep(60)

    started = time.monotonic()
    with pytest.raises(DriverHung, match="nvmlDeviceGetCount"):
        guarded(hang, 0.3)
    assert time.monotonic() - started < 5
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_guard_tells_of_a_child_that_dies():
    def die(progress):
        progress("nvmlInit")
        os.kill(os.getpid(), 15)

    with pytest.raises(Fault, match="ended during nvmlInit with wait status 15"):
        guarded(die, 10)


def test_guard_passes_faults_on():
    def unavailable(progress):
        raise NvmlUnavailable("no driver", 9)

    with pytest.raises(NvmlUnavailable, match="no driver") as caught:
        guarded(unavailable, 10)
    assert caught.value.code == 9

    def denied(progress):
        raise PermissionError(13, "Permission denied", "/run/tandem")

    with pytest.raises(Fault, match="/run/tandem may be used by root only"):
        guarded(denied, 10)

    def bug(progress):
        return {}["missing"]

    with pytest.raises(Fault, match=r"(?s)unexpected: .*KeyError"):
        guarded(bug, 10)


def test_guard_gives_the_child_no_stdio(capfd):
    guarded(lambda progress: os.write(1, b"noise"), 10)
    os.write(1, b"mine")
    assert capfd.readouterr().out == "mine"


# --- the record ------------------------------------------------------------------------------------------------------

ENTRY = {"wish": {"gpu_lock": [0, 2100]}, "memory_supported": True, "evidence": {}}


def test_record_merges_and_forgets(tmp_path):
    record = Record(str(tmp_path))
    record.update({"a": ENTRY, "b": ENTRY})
    record.update({"a": None})
    assert list(Record(str(tmp_path)).entries()) == ["b"]
    assert os.stat(record.path).st_mode & 0o777 == 0o600
    assert os.listdir(os.path.dirname(record.path)) == ["gpu-clocks.json"]


@pytest.mark.parametrize(
    "content",
    ["", "null", "[]", "{", '{"version": 99, "gpus": {}}', '{"version": 1, "gpus": {"a": 1}}', "\x00\xff"],
)
def test_a_damaged_record_is_none(tmp_path, content):
    record = Record(str(tmp_path))
    record.update({"a": ENTRY})
    with open(record.path, "w", encoding="latin-1") as stream:
        stream.write(content)
    assert record.entries() == {}
    record.update({"b": ENTRY})
    assert list(record.entries()) == ["b"]


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = str(tmp_path / "file.json")
    write_json(path, {"old": 1}, 0o600)
    with pytest.raises(TypeError):
        write_json(path, {"new": object()}, 0o600)
    assert read_json(path) == {"old": 1}
    assert os.listdir(tmp_path) == ["file.json"]


def test_two_writers_exclude_each_other(tmp_path):
    first, second = Record(str(tmp_path)), Record(str(tmp_path))
    with first.locked(), pytest.raises(StoreError, match=rf"process {os.getpid()} has held"), second.locked(0.1):
        pass
    with second.locked(0.1):
        pass


# --- the host --------------------------------------------------------------------------------------------------------


def test_module_version_from_either_place(tmp_path):
    host = Host(str(tmp_path))
    assert host.module_version() is None and host.module_dir() is None
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (me@host)\nGCC version:\n"
    )
    assert host.module_version() == "580.95.05"
    (tmp_path / "sys/module/nvidia_current").mkdir(parents=True)
    (tmp_path / "sys/module/nvidia_current/version").write_text("550.1\n")
    assert host.module_version() == "550.1" and host.module_dir().endswith("nvidia_current")


def test_persistenced_by_pid_file_or_by_search(tmp_path):
    host = Host(str(tmp_path))
    assert host.persistenced() is None
    stat = tmp_path / "proc/812/stat"
    stat.parent.mkdir(parents=True)
    stat.write_text("812 (nvidia-persiste) S " + " ".join(str(number) for number in range(4, 50)))
    assert host.persistenced() == "812:22"
    pid_file = tmp_path / "run/nvidia-persistenced/nvidia-persistenced.pid"
    pid_file.parent.mkdir(parents=True)
    pid_file.write_text("812\n")
    assert host.persistenced() == "812:22"
    # A pid file that a dead daemon left, its number now another program's.
    stat.write_text("812 (cat) S " + " ".join(str(number) for number in range(4, 50)))
    assert host.persistenced() is None


def test_this_machine_has_not_slept_between_two_looks():
    assert abs(Host("").suspended_seconds() - Host("").suspended_seconds()) < 0.5
