"""The filter plugins importable by their file names, Ansible's commands found without an activated venv, real vLLM."""

import json
import os
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest
import real_vllm

os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "plugins/filter"))

# a machine that is busy with a lab is no fault of what is tested
hypothesis.settings.register_profile("tandem", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("tandem")

pytest_plugins = ["skips", "pytester"]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """`pytest -n 2 --dist loadfile`: a file's tests stay together, and so do all files that ask real vLLM.

    pytest-xdist has --dist loadgroup for that, which does nothing with pytest 9.2 (pytest-xdist 3.8).
    """
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            return "real vLLM" if file.endswith(real_vllm.TOGETHER) else file

    return Scheduling(config, log)


@pytest.fixture
def run_play(tmp_path):
    """Runs a play, given as data, with the roles of here; returns (exit code, what was printed, with single blanks)."""

    def run(play, boxes, **variables):
        (tmp_path / "play.yml").write_text(json.dumps([play]))
        (tmp_path / "vars.json").write_text(json.dumps(variables))
        done = subprocess.run(
            ["ansible-playbook", "-i", f"{boxes},", str(tmp_path / "play.yml"), "-e", f"@{tmp_path / 'vars.json'}"],
            cwd=ROOT,
            env={**os.environ, "ANSIBLE_ROLES_PATH": str(ROOT / "roles")},
            capture_output=True,
            text=True,
            check=False,
        )
        said = " ".join((done.stdout + done.stderr).split())
        assert "[DEPRECATION WARNING]" not in said, said
        return done.returncode, said

    return run


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """Folder with the tiny model of sim/engine; not to be changed. Skips where the image is not, which makes it."""
    if reason := real_vllm.why_not():
        pytest.skip(reason)
    return real_vllm.make_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="session")
def shared_vllm(tmp_path_factory, tiny_model):
    shared = real_vllm.Shared(tmp_path_factory.mktemp, tiny_model)
    yield shared
    shared.remove()


@pytest.fixture
def real_engine(shared_vllm):
    """Running real vLLM with the field report's command line, of model `m`: a real_vllm.Container."""
    return shared_vllm.get()
