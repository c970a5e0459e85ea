"""The lock of a run: never two holders, and a cut-short taker leaves nothing that looks like one."""

import importlib.util
import json
import multiprocessing
from pathlib import Path

import pytest
from ansible.module_utils.testing import patch_module_args

spec = importlib.util.spec_from_file_location("site_lock", Path(__file__).parents[3] / "library/site_lock.py")
site_lock = importlib.util.module_from_spec(spec)
spec.loader.exec_module(site_lock)

ME, YOU = {"run": "me"}, {"run": "you", "who": "you@there"}


def ask(capsys, path, state, holder, **others):
    with patch_module_args({"state": state, "holder": holder, "path": str(path), **others}), pytest.raises(SystemExit):
        site_lock.main()
    said = json.loads(capsys.readouterr().out)
    # what ansible-core before 2.20 adds itself
    said.pop("invocation", None)
    return said


def test_taken_seen_by_others_and_released(tmp_path, capsys):
    path = tmp_path / "folder/lock.json"
    assert ask(capsys, path, "status", ME) == {"changed": False, "mine": False, "holder": None}
    assert ask(capsys, path, "held", ME)["mine"]
    assert ask(capsys, path, "held", ME)["mine"], "taking it again is no fault"
    refused = ask(capsys, path, "held", YOU)
    assert not refused["mine"] and refused["holder"] == ME
    ask(capsys, path, "absent", YOU)
    assert path.exists(), "nobody releases the lock of another"
    assert ask(capsys, path, "absent", ME)["holder"] is None
    assert list(path.parent.iterdir()) == []


def test_taken_over_only_from_the_named_run(tmp_path, capsys):
    path = tmp_path / "lock.json"
    ask(capsys, path, "held", ME)
    assert not ask(capsys, path, "held", YOU, instead_of="somebody")["mine"]
    assert ask(capsys, path, "held", YOU, instead_of="me")["holder"] == YOU


def test_check_mode_takes_nothing(tmp_path, capsys):
    path = tmp_path / "lock.json"
    assert ask(capsys, path, "held", ME, _ansible_check_mode=True)["mine"]
    assert not path.exists()
    ask(capsys, path, "held", YOU)
    assert not ask(capsys, path, "held", ME, _ansible_check_mode=True)["mine"]
    assert ask(capsys, path, "held", ME, instead_of="you", _ansible_check_mode=True)["mine"]
    assert ask(capsys, path, "status", ME)["holder"] == YOU


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "{}"])
def test_a_file_that_is_no_lock_is_held_by_somebody_unknown(tmp_path, capsys, text):
    path = tmp_path / "lock.json"
    path.write_text(text)
    assert ask(capsys, path, "held", ME)["holder"]["run"] == "unknown"
    assert ask(capsys, path, "held", ME, instead_of="unknown")["mine"]


def test_a_holder_without_a_run_is_refused(tmp_path, capsys):
    assert "it needs run" in ask(capsys, tmp_path / "lock.json", "held", {"who": "me"})["msg"]


def _take(arguments):
    path, name = arguments
    return site_lock.take(path, {"run": name})


def test_of_many_takers_one_wins(tmp_path):
    path = str(tmp_path / "lock.json")
    with multiprocessing.Pool(8) as pool:
        won = pool.map(_take, [(path, f"run{index}") for index in range(64)])
    assert won.count(True) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["lock.json"]
