"""build.sh: once, then current; again when something changed; the key and the served directory stay."""

import shutil
import subprocess

import pytest
from packages_under_test import BUILD, Build


@pytest.fixture
def own(build, cache, tmp_path):
    """A build of the test's own, to spoil: a copy of the session's."""
    root = tmp_path / "out"
    shutil.copytree(build.root, root, symlinks=True)
    return Build(root, cache)


def test_second_run_is_current(own):
    before = (own.root / own.cuda / "InRelease").stat()
    assert own.run() == "== packages: current\n"
    after = (own.root / own.cuda / "InRelease").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_newer_appears_in_the_directory_that_is_served(own):
    inode, key = own.root.stat().st_ino, (own.root / own.key).read_bytes()
    assert "built in" in own.run("--with-newer")
    assert own.root.stat().st_ino == inode
    assert (own.root / own.key).read_bytes() == key, "boxes trust this key already"
    assert len(own.debs(own.cuda)) == 15
    own.run()
    assert len(own.debs(own.cuda)) == 10, "the newer ones are withdrawn again"


def test_cut_short_build_is_done_anew(own):
    (own.root / ".key").unlink()
    shutil.rmtree(own.root / "libnvidia-container")
    (own.root / ".new").mkdir()
    assert "built in" in own.run()
    assert len(own.debs(own.toolkit)) == 4 and not (own.root / ".new").exists()


def test_secret_key_is_private_and_not_published(own):
    for name in ("cuda-debian12", "cuda-debian13", "libnvidia-container"):
        assert (own.cache / f"packages/keys/{name}.asc").stat().st_mode & 0o077 == 0
    for key in own.root / own.key, own.root / "libnvidia-container/gpgkey":
        assert key.read_text().startswith("-----BEGIN PGP PUBLIC KEY BLOCK-----")


@pytest.mark.parametrize("arguments", [[], ["out", "--newest"], ["out", "more"]])
def test_usage(arguments, tmp_path):
    done = subprocess.run([BUILD, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "usage: sim/packages/build.sh OUTDIR [--with-newer]" in done.stderr
    assert list(tmp_path.iterdir()) == []
