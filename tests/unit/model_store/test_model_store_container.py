"""What the engine's container sees of a model's folder: links are followed as in there, and root has no special
rights."""

import os
import shutil
import subprocess
from types import SimpleNamespace

import pytest
from ansible.module_utils import tandem_model_container as container
from ansible.module_utils.tandem_model_files import structure_problems
from model_store_fake import MODEL


@pytest.fixture
def cache(tmp_path):
    """A hub's cache: snapshots/HASH has links to blobs."""
    blobs, snapshot = tmp_path / "hub/blobs", tmp_path / "hub/snapshots/0123"
    blobs.mkdir(parents=True)
    for number, (name, content) in enumerate(MODEL.items()):
        (blobs / f"blob{number}").write_bytes(content)
        path = snapshot / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(os.path.relpath(blobs / f"blob{number}", path.parent))
    return snapshot


def test_a_snapshot_of_a_hubs_cache_is_refused(store, cache):
    # it is a whole model, for the box
    assert structure_problems(str(cache)) == []
    with pytest.raises(store.Error) as caught:
        store(source="none", path=str(cache), revision=None)
    text = str(caught.value)
    assert (
        f"config.json -> ../../blobs/blob0; model-1.safetensors -> ../../blobs/blob1; and {len(MODEL) - 2} more" in text
    )
    assert "hf download REPOSITORY --local-dir" in text and f"cp -rL {cache} FOLDER" in text


def test_what_the_way_out_makes_is_taken(store, cache, tmp_path):
    subprocess.run(["cp", "-rL", str(cache), str(tmp_path / "files")], check=True)
    assert store(source="none", path=str(tmp_path / "files"), revision=None)["complete"]


def link(folder, name, target):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).symlink_to(target)


@pytest.mark.parametrize(
    ("links", "bad"),
    [
        ({"a.json": "config.json"}, []),
        ({"a.json": "./sub/../config.json"}, []),
        ({"sub/a.json": "../config.json"}, []),
        ({"a.json": "b.json", "b.json": "sub/c.json", "sub/c.json": "../config.json"}, []),
        # /models is the folder, in there; the box need not have it
        ({"a.json": "/models/config.json"}, []),
        ({"a.json": "../models/config.json"}, []),
        ({"more": "sub"}, []),
        # absolute, even into the folder itself
        ({"a.json": "{folder}/config.json"}, ["a.json"]),
        ({"a.json": "../{name}/config.json"}, ["a.json"]),
        ({"a.json": "../beside/a.json"}, ["a.json"]),
        ({"a.json": "b.json", "b.json": "../beside/a.json"}, ["a.json", "b.json"]),
        ({"a.json": "missing.json"}, ["a.json"]),
        ({"a.json": "a.json"}, ["a.json"]),
        ({"more": "../beside"}, ["more"]),
        ({"a.json": "/etc/hostname"}, ["a.json"]),
        # no engine reads these
        ({"README.md": "../beside/a.json", "LICENSE": "/nowhere", "x.pth": "/nowhere", ".a.json": "/nowhere"}, []),
    ],
)
def test_links_are_followed_as_in_the_container(model_folder, links, bad):
    folder = model_folder("source")
    (folder.parent / "beside").mkdir()
    (folder.parent / "beside/a.json").write_text("{}")
    for name, target in links.items():
        link(folder, name, target.format(folder=folder, name=folder.name))
    problems = container.container_problems(str(folder))
    assert len(problems) == bool(bad)
    assert all(f"{name} -> " in problems[0] for name in bad)
    assert not bad or "has links that lead to nothing" in problems[0]


def test_a_link_to_the_folder_itself_is_mounted_as_what_it_leads_to(model_folder, tmp_path):
    (tmp_path / "current").symlink_to(model_folder("source"))
    assert container.container_problems(str(tmp_path / "current")) == []


@pytest.fixture
def own(monkeypatch):
    """Gives a file an owner and a mode; for the code alone where the test does not run as root."""
    given, stat = {}, os.stat

    def told(path, *args, **more):
        found = stat(path, *args, **more)
        if str(path) not in given:
            return found
        uid, gid, mode = given[str(path)]
        return SimpleNamespace(st_uid=uid, st_gid=gid, st_mode=found.st_mode & ~0o7777 | mode)

    def own(path, uid, gid, mode):
        given[str(path)] = (uid, gid, mode)
        if os.geteuid() == 0:
            os.chown(path, uid, gid)
            os.chmod(path, mode)

    monkeypatch.setattr(container, "os", SimpleNamespace(**{**vars(os), "stat": told}))
    return own


@pytest.mark.parametrize(
    ("owner", "mode", "problem"),
    [
        ((0, 0), 0o600, False),
        ((0, 0), 0o000, True),
        ((1000, 1000), 0o600, True),
        ((1000, 1000), 0o644, False),
        ((1000, 0), 0o640, False),
        ((1000, 0), 0o604, True),
    ],
)
def test_rights_are_those_of_root_without_capabilities(model_folder, own, owner, mode, problem):
    folder = model_folder("source")
    own(folder / "config.json", *owner, mode)
    problems = container.container_problems(str(folder))
    assert bool(problems) is problem
    if problem:
        assert f"config.json is of user {owner[0]}, mode {mode:04o}" in problems[0] and "chmod -R a+rX" in problems[0]
    # the kernel's own word
    if os.geteuid() == 0:
        bare = ["setpriv", "--inh-caps=-all", "--bounding-set=-all", "cat", str(folder / "config.json")]
        assert (subprocess.run(bare, capture_output=True, check=False).returncode != 0) is problem


def test_a_closed_folder_within(model_folder, own):
    folder = model_folder("source")
    own(folder / "sub", 1000, 1000, 0o700)
    assert "sub/ is of user 1000, mode 0700" in container.container_problems(str(folder))[0]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: (folder / "model-2.safetensors").rename(folder / "sub/x"), "model-2.safetensors is missing"),
        (lambda folder: os.mkfifo(folder / "model-3.safetensors"), "model-3.safetensors is no file"),
        (lambda folder: (folder / "model-3.safetensors").mkdir(), "model-3.safetensors is no file"),
        (lambda folder: (folder / "model-1.safetensors.aria2").write_text(""), "still being downloaded"),
        (lambda folder: (folder / "model.safetensors.index.json").write_text("[]"), "index.json is damaged"),
        (lambda folder: (folder / "model.safetensors.index.json").write_text('{"weight_map": 3}'), "is damaged"),
        (lambda folder: (folder / "config.json").write_text("[]"), "config.json is damaged"),
        (
            lambda folder: (
                (folder / "model.safetensors.index.json").unlink(),
                (folder / "model-1.safetensors").rename(folder / "model-00001-of-00003.safetensors"),
                (folder / "model-2.safetensors").rename(folder / "model-00003-of-00003.safetensors"),
            ),
            "model-00002-of-00003.safetensors is missing",
        ),
    ],
)
def test_what_is_no_whole_model(model_folder, make, words):
    folder = model_folder("source")
    make(folder)
    assert any(words in problem for problem in structure_problems(str(folder)))


def test_shards_may_be_in_a_folder_within(model_folder):
    folder = model_folder("source")
    (folder / "weights").mkdir()
    shutil.move(folder / "model-2.safetensors", folder / "weights")
    (folder / "model.safetensors.index.json").write_text(
        '{"weight_map": {"a": "model-1.safetensors", "b": "weights/model-2.safetensors"}}'
    )
    assert structure_problems(str(folder)) == []
