"""Role model_store without a box: preflight's judgement, the variables' papers, and the modules' arguments."""

import json
import subprocess
import sys

import pytest
import yaml
from model_store_fake import COMMIT, ROOT, load

ROLE = ROOT / "roles/model_store"
SPEC = yaml.safe_load((ROLE / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
DEFAULTS = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
JUDGE = load(ROLE / "filter_plugins/model_store.py").FilterModule().filters()["model_store_judge"]


def judge(**changes):
    settings = {name.removeprefix("model_store_"): value for name, value in DEFAULTS.items()}
    return JUDGE({**settings, "has_token": False, "boxes": ["box1", "box2"], **changes})


def hub(**changes):
    return judge(source="hub", repository="owner/Model-27B", revision=COMMIT, **changes)


def test_defaults_are_in_order_and_fetch_nothing():
    assert judge() == {"path": None, "problems": []}


def test_every_setting_of_the_module_is_given_by_both_task_files_or_of_no_use_there():
    module = yaml.safe_load((ROOT / "library/model_store.py").read_text().split('r"""')[1].split('"""')[0])["options"]
    first = set(yaml.safe_load((ROLE / "tasks/store.yml").read_text())[0]["model_store"])
    block = yaml.safe_load((ROLE / "tasks/box.yml").read_text())[1]["block"]
    (second,) = [set(task["model_store"]) for task in block if "model_store" in task]
    assert first == set(module) - {"files", "share_token", "tries"}
    assert second == set(module) - {"repository", "endpoint", "hub_token", "from_path", "tries"}


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"source": "hub", "repository": "owner/Model-27B", "revision": COMMIT}, f"/srv/models/Model-27B/{COMMIT}"),
        ({"source": "web", "url": "http://depot/m/x/", "revision": "a" * 64}, f"/srv/models/x/{'a' * 64}"),
        ({"source": "path", "path": "/mnt/y", "revision": COMMIT, "folder": "/data"}, f"/data/y/{COMMIT}"),
        ({"source": "box", "box": "box1", "name": "z", "revision": COMMIT}, f"/srv/models/z/{COMMIT}"),
    ],
)
def test_where_the_model_is(changes, path):
    assert judge(**changes) == {"path": path, "problems": []}


@pytest.mark.parametrize("revision", ["main", "v1.0", COMMIT[:12], COMMIT.upper(), "a" * 64, "", None])
def test_a_hub_revision_that_is_no_commit_is_refused_with_the_way_out(revision):
    (problem,) = judge(source="hub", repository="owner/x", revision=revision)["problems"]
    assert "model_store_revision" in problem and "40 hexadecimal digits" in problem
    assert "git ls-remote" in problem or "not set" in problem


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"source": "hub", "revision": COMMIT}, "needs model_store_repository: OWNER/NAME"),
        ({"source": "web", "revision": COMMIT}, "needs model_store_url"),
        ({"source": "path", "revision": COMMIT}, "needs model_store_path"),
        ({"source": "box", "revision": COMMIT}, "needs model_store_box"),
        ({"source": "box", "revision": COMMIT, "box": "bxo1", "name": "x"}, "did you mean box1"),
        ({"source": "box", "revision": COMMIT, "box": "box1"}, "model_store_name is not set"),
        ({"source": "path", "revision": COMMIT, "path": "mnt/x"}, "mnt/x; it must be an absolute path"),
        ({"source": "path", "revision": COMMIT, "path": "/mnt/x", "name": "../x"}, "model_store_name is ../x"),
        ({"source": "web", "revision": COMMIT, "url": "ftp://x/y"}, "http or https address"),
        ({"source": "web", "revision": COMMIT, "url": "http://u:p@x/y"}, "has a user in it (...@x)"),
        ({"source": "hub", "revision": COMMIT, "repository": "https://huggingface.co/a/b"}, "must be OWNER/NAME"),
        ({"reserve_gib": -1}, "model_store_reserve_gib is -1; allowed is 0 to 10000"),
        ({"timeout": 1}, "model_store_timeout is 1; allowed is 5 to 3600"),
        ({"folder": "/srv/a,b"}, "model_store_folder is /srv/a,b"),
    ],
)
def test_problems(changes, words):
    (problem,) = judge(**changes)["problems"]
    assert words in problem


def test_a_token_in_the_clear_is_refused():
    (problem,) = hub(hub_endpoint="http://mirror.lab", has_token=True)["problems"]
    assert "for all to read" in problem
    assert hub(hub_endpoint="http://mirror.lab")["problems"] == []


def run_module(module, **arguments):
    """As Ansible runs it: arguments through the real argument spec."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/unit/gpu_clocks/run_module.py"), module],
        input=json.dumps(arguments),
        capture_output=True,
        text=True,
        check=False,
    )
    return json.loads(done.stdout)


def test_the_module_censors_its_token(tmp_path):
    result = run_module(
        "model_store",
        path=str(tmp_path / "m" / COMMIT),
        source="hub",
        repository="owner/model",
        revision=COMMIT,
        # so that the error has it to tell
        endpoint="http://127.0.0.1:9/hf_secret_token",
        hub_token="hf_secret_token",
        tries=1,
    )
    assert result["failed"] and "127.0.0.1:9" in result["msg"] and "refused" in result["msg"]
    assert "hf_secret_token" not in json.dumps(result)
    assert "http://127.0.0.1:9/****" in result["msg"]


def test_the_share_module_wants_a_real_token(tmp_path):
    result = run_module("model_share", name="box2", path=str(tmp_path), address="127.0.0.1", token="short")
    assert result["failed"] and "32 or more" in result["msg"]
