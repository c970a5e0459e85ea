"""The plugin that makes an unlisted skip an error, on small suites: in one process, and in two of pytest-xdist."""

import textwrap
from pathlib import Path

import pytest

SUITE = {
    "test_one.py": """
        import pytest
        def test_holds(): pass
        @pytest.mark.skip(reason="only root may")
        def test_listed(): pass
        @pytest.mark.xfail(reason="known")
        def test_known(): assert False
    """,
    "test_marked.py": """
        import pytest
        @pytest.mark.skipif(True, reason="no such program")
        def test_marked(): pass
    """,
    "test_fixture.py": """
        import pytest
        @pytest.fixture
        def thing(): pytest.skip("cannot be had: no network")
        def test_with_it(thing): pass
    """,
    "test_whole_file.py": """
        import pytest
        pytest.importorskip("no_such_module")
        def test_never_seen(): pass
    """,
    "test_other_reason.py": """
        import pytest
        @pytest.mark.skip(reason="no compiler")
        def test_listed(): pass
    """,
}


@pytest.fixture
def suite(pytester, monkeypatch):
    """Runs files of SUITE under the plugin; returns (exit code, what was printed)."""
    monkeypatch.setenv("CI", "false")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    pytester.path.joinpath("may_skip.txt").write_text("# why\n\ntest_*.py::test_listed  only root may\n")

    def run(*options, files=("test_one.py",), run="runpytest_inprocess"):
        for name in files:
            pytester.path.joinpath(name).write_text(textwrap.dedent(SUITE[name]))
        done = getattr(pytester, run)("-p", "skips", "--may-skip=may_skip.txt", *options)
        return done.ret, done.stdout.str() + done.stderr.str()

    return run


def test_a_listed_skip_and_an_expected_failure_are_none(suite):
    code, output = suite("--strict-skips")
    assert code == 0 and "1 skipped" in output


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("test_marked.py", "test_marked.py::test_marked: Skipped: no such program"),
        ("test_fixture.py", "test_fixture.py::test_with_it: Skipped: cannot be had: no network"),
        ("test_whole_file.py", "test_whole_file.py: Skipped: could not import 'no_such_module'"),
        ("test_other_reason.py", "test_other_reason.py::test_listed: Skipped: no compiler"),
    ],
)
def test_an_unlisted_skip_is_an_error(suite, name, says):
    code, output = suite("--strict-skips", files=("test_one.py", name))
    assert code == 1 and says in output
    assert suite()[0] == 0, "somebody who runs a test alone may lack what another needs"


def test_with_workers_all_are_seen_and_ci_needs_no_option(suite, monkeypatch):
    monkeypatch.setenv("CI", "true")
    code, output = suite("-n", "2", "--dist", "loadfile", files=SUITE, run="runpytest_subprocess")
    # a section of its own, below the ordinary ones
    assert code == 1 and output.split("an error")[1].count(": Skipped: ") == 4


def test_a_line_without_a_reason_is_refused(suite, pytester):
    pytester.path.joinpath("list.txt").write_text("test_one.py::test_listed\n")
    code, output = suite("--strict-skips", "--may-skip=list.txt")
    assert code == 4 and "the reason why it may be skipped; found: test_one.py::test_listed" in output
