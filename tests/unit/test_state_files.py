"""Files that we keep between runs, damaged: each reader goes on as if there were none, or says what to do."""

import base64
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import bench
import find_clock
import pytest
import roll
import state_file

ROOT = Path(__file__).parents[2]
DAMAGED = {
    "empty": b"",
    "blank": b" \n",
    "cut off": b'{"format": 1, "res',
    "null": b"null",
    "a list": b"[1]",
    "a text": b'"text"',
    "a number": b"7",
    "no text": b"\xff\xfe\x00\x01",
    "zeros": bytes(64),
    "another format": b'{"format": 99, "version": 99}',
    "no object in it": b'{"format": 1, "version": 1, "results": [], "gpus": [], "files": [], "revision": "r"}',
    "too deep": b"[" * 200_000,
}
# JSON objects, if not of our format
OBJECTS = (DAMAGED["another format"], DAMAGED["no object in it"])
damaged = pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)


def load(name, path):
    """A program or module by its path."""
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def utils():
    """module_utils as a package of its own name."""
    sys.path.insert(0, str(ROOT))
    yield importlib.import_module
    sys.path.remove(str(ROOT))


def slurped(content):
    return {"content": base64.b64encode(content).decode(), "encoding": "base64"}


@damaged
def test_what_slurp_brings(content):
    read = slurped(content)
    assert state_file.state_object(read) == (json.loads(content) if content in OBJECTS else None)
    assert bench.bench_stored(read) in (None, {"format": 1, "results": {}})
    assert not bench.bench_compares(bench.bench_stored(read), "decode_chat", {}, state_file.state_object(read))
    assert roll.roll_mark(read), "a mark that cannot be read is a mark"
    search = state_file.object_of(content.decode(errors="replace"))
    assert not find_clock.find_clock_resumable(search, {}, "box1") and not find_clock.find_clock_done(search, {}, {})
    assert find_clock.find_clock_own_wish({"state": "locked"}, search) == {"state": "locked"}


def test_no_file_and_one_that_could_not_be_read():
    for read in (None, {}, {"skipped": True}, {"failed": False, "msg": "source is a directory: /x"}):
        assert state_file.state_object(read) is None and bench.bench_stored(read) is None
    assert roll.roll_mark({}) == roll.roll_mark({"skipped": True}) == {}
    assert roll.roll_mark({"msg": "source is a directory"}) == {"who": "unknown"}
    assert roll.roll_mark(slurped(b'{"who": "me"}')) == {"who": "me"}


def test_a_baseline_of_which_a_part_is_damaged():
    good = {"lock_mhz": 2100, "about": {"clocks": {}}, "cases": {"a": {"value": 1, "recipe": {}, "runs": []}}}
    bad = [
        {},
        None,
        3,
        {**good, "about": None},
        {**good, "about": {}},
        {**good, "cases": {"a": {"value": 1}}},
        {**good, "cases": []},
    ]
    stored = {"format": 1, "latest": "good", "results": {"good": good, **{str(n): one for n, one in enumerate(bad)}}}
    assert bench.bench_stored(slurped(json.dumps(stored).encode())) == {**stored, "results": {"good": good}}


@damaged
def test_the_line_of_an_engines_start(content):
    line = content.decode(errors="replace")
    good = '{"ready_s": 10, "warm_s": 1}'
    assert roll.roll_start_time([line]) == "no engine has started in this boot"
    assert (
        roll.roll_start_time([line, good, '{"ready_s": "x"}'])
        == "the start of the engine took 11 s (1 s of it to warm up)"
    )


@damaged
def test_the_lock(tmp_path, content):
    lock = load("site_lock", "library/site_lock.py")
    path = tmp_path / "lock.json"
    path.write_bytes(content)
    me = {"run": "a:b:c:d:1:2"}
    # whoever wrote it may still be at work
    assert lock.read(path)["run"] == "unknown" and not lock.take(str(path), me)
    assert lock.take(str(path), me, "unknown") and lock.read(path) == me


@pytest.mark.parametrize("run", [7, None, [], {}, "", "x", "a:b", "a:b:c:d:x:y", "::::"])
def test_a_holder_of_another_format_is_no_run_that_is_known(tmp_path, run):
    lock = load("site_lock", "library/site_lock.py")
    (tmp_path / "lock.json").write_text(json.dumps({"run": run}))
    here = load("this_run", "plugins/lookup/this_run.py")
    assert here.state(lock.read(tmp_path / "lock.json"), here.this_run()) == "unknown"


@damaged
def test_the_record_of_clocks(tmp_path, utils, content):
    record = utils("module_utils.tandem_gpu_record").Record(str(tmp_path))
    path = Path(record.path)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert record.entries() == {}
    entry = {"wish": {"gpu_lock": [210, 2100]}, "evidence": {"energy_mj": 7}}
    record.update({"GPU-1": entry})
    assert record.entries() == {"GPU-1": entry}


def test_a_record_in_whose_place_a_folder_stands_or_whose_entries_are_damaged(tmp_path, utils):
    record = utils("module_utils.tandem_gpu_record").Record(str(tmp_path))
    Path(record.path).mkdir(parents=True)
    assert record.entries() == {}
    good = {"wish": {"gpu_lock": None}, "evidence": {"suspended_s": 0.5, "energy_mj": None}}
    record.update({"GPU-1": good})
    bad = [
        None,
        {},
        {"wish": {}, "evidence": []},
        {"wish": {"gpu_lock": 7}, "evidence": {}},
        {"wish": {"gpu_lock": ["a", "b"]}, "evidence": {}},
    ]
    bad += [{"wish": {}, "evidence": {"suspended_s": "1"}}, {"wish": {}, "evidence": {"energy_mj": []}}]
    gpus = {"GPU-1": good} | {f"GPU-bad{number}": one for number, one in enumerate(bad)}
    Path(record.path).write_text(json.dumps({"version": 1, "gpus": gpus}))
    assert record.entries() == {"GPU-1": good}


@damaged
def test_the_manifest_of_weights(tmp_path, utils, content):
    store = utils("module_utils.tandem_model_store").Store
    (tmp_path / "r.tandem.json").write_bytes(content)
    found = store(str(tmp_path / "r"), "r")
    assert found.manifest == {"revision": "r", "files": {}, "complete": False} and found.files() == []
    assert store.revision_of(str(tmp_path / "r")) in (None, "r")


@pytest.fixture
def stress(tmp_path, monkeypatch):
    program = load("stress_run", "roles/stress/files/stress-run")
    for name in ("WISH", "BEFORE", "TRIAL"):
        monkeypatch.setattr(program, name, str(tmp_path / name))
    monkeypatch.setattr(program, "RUNS", str(tmp_path))
    program.done = []
    monkeypatch.setattr(program, "command", lambda *words, check=True: program.done.append(words))
    monkeypatch.setattr(program, "mounted", lambda path: not program.done)
    return program


@damaged
def test_a_stress_run(stress, tmp_path, content):
    for name in ("WISH", "BEFORE", "TRIAL"):
        (tmp_path / name).write_bytes(content)
    # the trial ends, whatever became of the note
    stress.restore()
    if content:
        assert [words[0] for words in stress.done] == ["umount", stress.CLOCKS] and not (tmp_path / "BEFORE").exists()
    if content not in OBJECTS:
        with pytest.raises(stress.Failed, match=r"WISH is (damaged|missing).*site.yml"):
            stress.wish_now()
    (tmp_path / "run").mkdir()
    with pytest.raises(stress.Failed, match="there is no run run on this box"):
        stress.result("run")
    (tmp_path / "run/spec.json").write_bytes(content)
    with pytest.raises(stress.Failed, match=r"spec.json is damaged.*remove .*run"):
        stress.result("run")


@pytest.fixture(scope="module")
def bench_run(tmp_path_factory):
    """The program, beside the module_utils that it has on a box as package `tandem`."""
    library = tmp_path_factory.mktemp("library")
    (library / "tandem").symlink_to(ROOT / "module_utils")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TANDEM_LIBRARY", str(library))
        patch.syspath_prepend(str(library))
        yield load("bench_run", "roles/bench/files/bench-run")


@damaged
def test_what_a_measurement_reads(tmp_path, bench_run, content):
    (tmp_path / "about.json").write_bytes(content)
    assert bench_run.profile_of(str(tmp_path / "about.json"), "a") is None
    assert isinstance(bench_run.object_of(content.decode(errors="replace")), dict)


@pytest.mark.parametrize("there", ["a folder", "nothing"])
def test_the_states_that_a_gateway_keeps_for_a_reload(tmp_path, there):
    if there == "a folder":
        (tmp_path / "state/x").mkdir(parents=True)
    (tmp_path / "haproxy.cfg").write_text("")
    command = [
        sys.executable,
        ROOT / "roles/gateway/files/gateway-save-state",
        tmp_path / "none.sock",
        tmp_path / "state",
    ]
    done = subprocess.run([*command, tmp_path / "haproxy.cfg"], capture_output=True, text=True)
    assert done.returncode == 0 and "could not be kept" in done.stderr and not (tmp_path / "state").exists()


# ---- vllm-last-good


class Kept:
    """/var/lib/tandem/vllm/main of a box, and the program on it; docker knows one container, of configuration "a"."""

    def __init__(self, root):
        self.root, self.current = root, root / "var/lib/tandem/vllm/main/current"
        self.good = {
            "hash": "a",
            "profile": "p",
            "image": "i",
            "image_id": "sha256:1",
            "arguments": [],
            "canary": [],
            "since": "then",
        }
        for path, text in (
            ("etc/systemd/system/vllm-main.service", "--label tandem.config=a"),
            ("etc/tandem/vllm/main.env", ""),
        ):
            (root / path).parent.mkdir(parents=True)
            (root / path).write_text(text)
        docker = root / "docker"
        container = {"Config": {"Labels": {"tandem.config": "a"}, "Image": "i"}, "Image": "sha256:1", "Args": []}
        docker.write_text(f"#!/bin/sh\necho '{json.dumps([container])}'\n")
        docker.chmod(0o755)
        self.current.mkdir(parents=True)
        for part, text in (("unit", "u"), ("env", "e"), ("about.json", json.dumps(self.good))):
            (self.current / part).write_text(text)

    def call(self, *words):
        command = [sys.executable, ROOT / "roles/vllm/files/vllm-last-good", "--root", self.root, *words]
        return subprocess.run(command, env={"PATH": f"{self.root}:/usr/bin:/bin"}, capture_output=True, text=True)

    def check(self, words):
        """Each command of the program where `current` cannot be used."""
        status = self.call("status", "main")
        assert status.returncode == 0, status.stderr
        assert json.loads(status.stdout)["main"] == {"current": None, "previous": None, "starts": None}
        assert (
            words in status.stderr and "there is no current configuration of vllm-main to go back to" in status.stderr
        )
        restored = self.call("restore", "--engine", "main", "--from", "current")
        assert restored.returncode == 1 and "Traceback" not in restored.stderr
        kept = self.call("keep", "--engine", "main", "--config", "a", "--profile", "p")
        assert kept.returncode == 0 and json.loads(kept.stdout)["changed"], kept.stderr
        assert json.loads(self.call("status", "main").stdout)["main"]["current"]["hash"] == "a"
        assert os.path.lexists(f"{self.current}.unreadable")


@pytest.fixture
def kept(tmp_path):
    return Kept(tmp_path)


@damaged
def test_the_last_good_configuration(kept, content):
    (kept.current / "about.json").write_bytes(content)
    kept.check("cannot be used")


@pytest.mark.parametrize(
    "change", [{"hash": None}, {"hash": 7}, {"image_id": ""}, {"canary": "words"}, {"canary": [1]}, {"since": []}]
)
def test_a_last_good_configuration_of_another_format(kept, change):
    (kept.current / "about.json").write_text(json.dumps(kept.good | change))
    kept.check("not of this format")


@pytest.mark.parametrize("part", ["unit", "env", "about.json"])
@pytest.mark.parametrize("what", ["missing", "a folder", "a link", "no text", "another's"])
def test_parts_of_the_last_good_configuration(kept, part, what):
    path = kept.current / part
    if what == "no text":
        path.write_bytes(b"\xff\xfe")
    elif what == "another's":
        if os.geteuid():
            pytest.skip("only root can give a file away")
        os.chown(path, 1, 1)
    else:
        path.rename(kept.root / "moved")
        if what == "a folder":
            path.mkdir()
        elif what == "a link":
            path.symlink_to(kept.root / "moved")
    kept.check("cannot be used")


@pytest.mark.parametrize("what", ["a file", "a link"])
def test_no_folder_of_the_last_good_configuration(kept, what):
    kept.current.rename(kept.root / "moved")
    if what == "a file":
        kept.current.write_text("x")
    else:
        kept.current.symlink_to(kept.root / "moved")
    kept.check("is no folder")
