"""The last good configuration: kept, rotated, put back, with a docker that answers from a file."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "roles/vllm/files/vllm-last-good"
DOCKER = """#!{python}
import json, sys
path = {state!r}
state, words = json.load(open(path)), sys.argv[1:]
if words[:2] == ["container", "inspect"] and state["container"]:
    print(json.dumps([state["container"]]))
elif words[:2] == ["image", "inspect"] and words[-1] in state["images"]:
    print(state["images"][words[-1]])
elif words[0] == "tag" and "@" not in words[2]:
    state["images"][words[2]] = words[1]
    json.dump(state, open(path, "w"))
else:
    sys.exit(1)
"""
KEY = "VLLM_API_KEY='a-key-of-these-tests'\n"


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path)


class Box:
    def __init__(self, root):
        self.root, self.state = root, root / "docker.json"
        self.unit = root / "etc/systemd/system/vllm-main.service"
        self.env = root / "etc/tandem/vllm/main.env"
        self.kept = root / "var/lib/tandem/vllm/main"
        for folder in (self.unit.parent, self.env.parent, root / "bin"):
            folder.mkdir(parents=True)
        program = root / "bin/docker"
        program.write_text(DOCKER.format(python=sys.executable, state=str(self.state)))
        program.chmod(0o755)
        self.images = {}

    def runs(self, config, image="lab:5000/vllm:1", image_id="sha256:one", **more):
        self.unit.write_text(f"--label tandem.config={config}\n{more}\n")
        self.env.write_text(KEY + config)
        self.images |= {image: image_id, image_id: image_id}
        container = {"Config": {"Labels": {"tandem.config": config}, "Image": image}, "Image": image_id, "Args": ["/m"]}
        self.docker(container)

    def docker(self, container):
        self.state.write_text(json.dumps({"container": container, "images": self.images}))

    def call(self, *words):
        return subprocess.run(
            [sys.executable, PROGRAM, "--root", str(self.root), *words],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PATH": f"{self.root}/bin:{os.environ['PATH']}"},
        )

    def said(self, *words):
        done = self.call(*words)
        assert done.returncode == 0, done.stderr
        assert "a-key-of" not in done.stdout
        return json.loads(done.stdout)

    def keep(self, config):
        words = ("keep", "--engine", "main", "--config", config, "--profile", "p", "--", "--model=m", "--tools")
        return self.said(*words)["changed"]

    def hashes(self):
        found = self.said("status", "main")["main"]
        return [each and each["hash"] for each in (found["current"], found["previous"])]


def test_nothing_is_kept_on_a_bare_box(box):
    box.docker(None)
    assert box.hashes() == [None, None]
    done = box.call("restore", "--engine", "main", "--from", "current")
    assert done.returncode == 1
    assert "no current configuration of vllm-main" in done.stderr


def test_what_works_becomes_current_and_what_was_current_previous(box):
    for config in ("a", "b", "c"):
        box.runs(config)
        assert box.keep(config)
    assert box.hashes() == ["c", "b"]
    assert not box.keep("c")
    about = json.loads((box.kept / "current/about.json").read_text())
    assert set(about) == {"hash", "profile", "image", "image_id", "arguments", "since", "canary"}
    assert about["canary"] == ["--model=m", "--tools"]


def test_a_unit_that_is_only_written_otherwise_does_not_displace_previous(box):
    for config, comment in (("a", 1), ("b", 1), ("b", 2)):
        box.runs(config, comment=comment)
        assert box.keep(config)
    assert box.hashes() == ["b", "a"]


def test_secrets_are_for_root_alone(box):
    box.runs("a")
    box.keep("a")
    assert (box.kept.stat().st_mode & 0o777, (box.kept / "current/env").stat().st_mode & 0o777) == (0o700, 0o600)


def test_what_does_not_run_is_not_kept(box):
    box.runs("a")
    box.unit.write_text("--label tandem.config=b\n")
    for config in ("a", "b"):
        done = box.call("keep", "--engine", "main", "--config", config, "--profile", "p")
        assert done.returncode == 1
        assert "runs configuration a" in done.stderr
    assert box.hashes() == [None, None]


@pytest.mark.parametrize(("which", "config"), [("current", "b"), ("previous", "a")])
def test_unit_and_secrets_come_back(box, which, config):
    for each in ("a", "b"):
        box.runs(each)
        box.keep(each)
    box.runs("broken")
    assert box.said("restore", "--engine", "main", "--from", which)["changed"]
    assert f"tandem.config={config}" in box.unit.read_text()
    assert box.env.read_text() == KEY + config
    assert box.env.stat().st_mode & 0o777 == 0o600
    assert box.unit.stat().st_mode & 0o777 == 0o644
    assert not box.said("restore", "--engine", "main", "--from", which)["changed"]


def test_a_tag_that_moved_is_moved_back(box):
    box.runs("a")
    box.keep("a")
    box.runs("b", image_id="sha256:two")
    assert box.said("restore", "--engine", "main", "--from", "current")["retagged"]
    assert json.loads(box.state.read_text())["images"]["lab:5000/vllm:1"] == "sha256:one"


def test_an_image_that_is_gone_is_named_and_nothing_is_touched(box):
    box.runs("a")
    box.keep("a")
    box.images = {}
    box.runs("b", image_id="sha256:two")
    done = box.call("restore", "--engine", "main", "--from", "current")
    assert done.returncode == 1
    assert "lab:5000/vllm:1 (sha256:one)" in done.stderr
    assert "tandem.config=b" in box.unit.read_text()


def test_half_a_configuration_is_none(box):
    box.runs("a")
    box.keep("a")
    (box.kept / "current/env").unlink()
    assert box.hashes() == [None, None]


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        (None, None),
        ('{"failed": 3, "since": 1796000000}', {"failed": 3, "since": 1796000000}),
        ("", None),
        ("{", None),
        ("[]", None),
        ('{"failed": "many", "since": 1}', None),
        ('{"failed": 1e400, "since": 1}', None),
        ('{"failed": 1, "since": 99999999999999999999}', None),
    ],
)
def test_starts_that_failed_are_told(box, text, starts):
    if text is not None:
        (box.root / "run/tandem").mkdir(parents=True)
        (box.root / "run/tandem/vllm-main.starts").write_text(text)
    assert box.said("status", "main")["main"] == {"current": None, "previous": None, "starts": starts}
