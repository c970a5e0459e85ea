"""A pytest plugin: with --strict-skips or CI=true, a skipped test that may_skip.txt does not list is an error.

A witness that cannot be had, a program that is missing: a test that says nothing must not pass for one that holds.
"""

import os
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

LIST = Path(__file__).with_name("may_skip.txt")


def read(path):
    """[(pattern of test ids, words that the skip's reason has)]"""
    lines = [line.split(None, 1) for line in path.read_text().splitlines() if line.strip() and line[0] != "#"]
    if bad := [line for line in lines if len(line) != 2]:
        raise pytest.UsageError(f"{path}: a line is a test and the reason why it may be skipped; found: {bad[0][0]}")
    return [(pattern, reason.strip()) for pattern, reason in lines]


def pytest_addoption(parser):
    parser.addoption(
        "--strict-skips", action="store_true", help="a skip that is not listed is an error; so with CI=true"
    )
    parser.addoption("--may-skip", type=Path, default=LIST, help="the list of tests that may be skipped (%(default)s)")


def pytest_configure(config):
    if config.getoption("--strict-skips") or os.environ.get("CI") == "true":
        config.pluginmanager.register(Skips(config))


class Skips:
    def __init__(self, config):
        self.config, self.listed, self.unlisted = config, read(config.getoption("--may-skip")), {}

    def see(self, report):
        if not report.skipped or hasattr(report, "wasxfail"):
            return
        name = report.nodeid.removeprefix("tests/unit/")
        says = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not any(fnmatchcase(name, pattern) and reason in says for pattern, reason in self.listed):
            self.unlisted[name] = says

    def pytest_runtest_logreport(self, report):
        self.see(report)

    # A file that is skipped as a whole; of those pytest-xdist's workers tell their controller only at their end.
    def pytest_collectreport(self, report):
        self.see(report)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node, error):
        self.unlisted |= getattr(node, "workeroutput", {}).get("unlisted_skips", {})

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["unlisted_skips"] = self.unlisted
        elif self.unlisted and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        if self.unlisted:
            terminalreporter.section(f"skipped, and not in {LIST.name}: an error")
            for name, reason in sorted(self.unlisted.items()):
                terminalreporter.line(f"{name}: {reason}")
