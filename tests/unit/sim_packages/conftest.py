"""The repositories, built once per session into a temporary place with a cache and a key of their own."""

import subprocess

import pytest
from packages_under_test import DRIVER, OLDER_DRIVER, Box, Build


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def build(tmp_path_factory, cache):
    build = Build(tmp_path_factory.mktemp("repositories"), cache)
    build.run()
    return build


@pytest.fixture(scope="session")
def newer(tmp_path_factory, cache):
    build = Build(tmp_path_factory.mktemp("newer"), cache)
    build.run("--with-newer")
    return build


@pytest.fixture(scope="session")
def installed(build, tmp_path_factory):
    """All packages unpacked into one directory, as dpkg would unpack them into /."""
    root = tmp_path_factory.mktemp("installed")
    for repository in build.cuda, build.toolkit:
        # one driver at a time, as dpkg has it
        for deb in build.debs(repository):
            if f"_{OLDER_DRIVER}-" in deb.name:
                continue
            subprocess.run(["dpkg-deb", "-x", deb, root], check=True)
    return root


@pytest.fixture
def bare(installed, tmp_path):
    """A box with the driver's files and no loaded module."""
    return Box(installed, tmp_path / "root")


@pytest.fixture
def box(bare):
    """A box whose loaded module is the installed one."""
    bare.load(DRIVER)
    return bare
