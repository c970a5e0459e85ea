"""Module gpu_files: several text files in one call, in check, diff and normal mode."""

import os

import pytest


@pytest.fixture
def files(box, tmp_path):
    """(run, directory): run the module for two files below a directory that is not there yet."""
    target = tmp_path / "target"
    owner = {"owner": str(os.geteuid()), "group": str(os.getegid())}

    def run(first="one\n", mode="0755", **options):
        wanted = [
            {"path": str(target / "a"), "content": first, "mode": mode},
            {"path": str(target / "b"), "content": "ü\n"},
        ]
        return box.module("gpu_files", files=wanted, **{"directories": [str(target)], **owner, **options})

    return run, target


def test_check_then_apply_then_nothing(files):
    run, target = files
    predicted = run(check=True, diff=True)
    assert predicted["changed"] is True and not target.exists()
    applied = run(diff=True)
    assert applied["changed_paths"] == predicted["changed_paths"] == [str(target), str(target / "a"), str(target / "b")]
    assert applied["diff"] == predicted["diff"]
    assert (target / "a").read_text() == "one\n" and (target / "b").read_bytes() == "ü\n".encode()
    assert (target / "a").stat().st_mode & 0o777 == 0o755 and (target / "b").stat().st_mode & 0o777 == 0o644
    assert run()["changed"] is False
    assert run(check=True)["changed"] is False


def test_only_what_differs_changes(files):
    run, target = files
    run()
    before = (target / "b").stat().st_ino
    result = run(first="two\n", diff=True)
    assert result["changed_paths"] == [str(target / "a")]
    assert (result["diff"][0]["before"], result["diff"][0]["after"]) == ("one\n", "two\n")
    assert (target / "b").stat().st_ino == before
    assert sorted(os.listdir(target)) == ["a", "b"]


def test_mode_alone_is_a_change(files):
    run, target = files
    run()
    (target / "a").chmod(0o600)
    target.chmod(0o700)
    assert run(check=True)["changed_paths"] == [str(target), str(target / "a")]
    assert (target / "a").stat().st_mode & 0o777 == 0o600
    assert run()["changed"] is True
    assert (target / "a").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("check", [True, False])
def test_a_directory_that_nobody_makes_is_an_error(files, check):
    run, target = files
    result = run(check=check, directories=[])
    assert result["failed"] is True and str(target) in result["msg"]


def test_a_directory_in_the_place_of_a_file(files):
    run, target = files
    (target / "a").mkdir(parents=True)
    result = run()
    assert result["failed"] is True and "move it away" in result["msg"]
