"""The share: what the other box's program gives out, and that module model_store fetches from it."""

import http.client
import json
import os
import subprocess
import sys
import time

import pytest
from model_store_fake import COMMIT, MODEL, ROOT, content_of, load

TOKEN = "a1B2" * 10
PROGRAM = ROOT / "module_utils/tandem_model_serve.py"


@pytest.fixture
def give_out(model_folder, tmp_path):
    """A running share of the model; its `url`, the `files` that the other side gets, and its `process`."""
    root = model_folder()
    config, said = tmp_path / "share.json", tmp_path / "share.said"
    library = load(ROOT / "library/model_share.py")
    files = library.share_files(str(root), COMMIT, check=False)
    names = [each["name"] for each in files]
    content = {"root": str(root), "names": names, "said": str(said), "token": TOKEN, "address": "127.0.0.1"}
    config.write_text(json.dumps(content))
    with open(tmp_path / "log", "w") as log:
        process = subprocess.Popen([sys.executable, "-B", PROGRAM, config], stdout=log, stderr=log)
    for _ in range(200):
        if said.exists():
            break
        time.sleep(0.02)
    port = json.loads(said.read_text())["port"]
    yield {
        "port": port,
        "url": f"http://127.0.0.1:{port}",
        "files": files,
        "names": names,
        "root": root,
        "log": tmp_path / "log",
        "library": library,
    }
    process.terminate()
    process.wait(10)


def ask(share, path, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", share["port"], timeout=5)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read(), answer


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        (f"/{TOKEN}/0", "GET", 200),
        (f"/{TOKEN}/0", "HEAD", 200),
        (f"/{TOKEN}/0", "PUT", 501),
        (f"/{TOKEN}/0", "DELETE", 501),
        (f"/{TOKEN}/99", "GET", 404),
        (f"/{TOKEN}/", "GET", 404),
        (f"/{TOKEN}/config.json", "GET", 404),
        (f"/{TOKEN}/../share.json", "GET", 404),
        (f"/{'x' * 40}/0", "GET", 404),
        ("/0", "GET", 404),
        ("/", "GET", 404),
    ],
)
def test_only_the_files_are_given_out_and_only_to_who_knows_the_token(give_out, path, method, status):
    got, body, _ = ask(give_out, path, method)
    assert got == status
    assert (body == MODEL[give_out["names"][0]]) == (status == 200 and method == "GET")
    assert TOKEN not in give_out["log"].read_text()


def test_range(give_out):
    number = give_out["names"].index("model-1.safetensors")
    content = MODEL["model-1.safetensors"]
    status, body, answer = ask(give_out, f"/{TOKEN}/{number}", Range="bytes=1000000-")
    assert (status, body) == (206, content[1_000_000:])
    assert answer.headers["Content-Range"] == f"bytes 1000000-{len(content) - 1}/{len(content)}"
    assert ask(give_out, f"/{TOKEN}/{number}", Range=f"bytes={len(content)}-")[0] == 416


def test_another_box_fetches_from_it(store, give_out):
    look = store(source="box")
    assert look["needs_listing"] and not look["changed"] and not look["complete"]
    box = {"source": "box", "url": give_out["url"], "share_token": TOKEN, "files": give_out["files"]}
    predicted = store(check=True, **{**box, "url": None})
    done = store(**box)
    assert predicted["fetch"] == done["fetch"] and done["fetch"]["files"] == 5
    assert content_of(store.path) == MODEL
    again = store(source="box")
    assert again["complete"] and not again["changed"] and not again["needs_listing"]


def test_altered_bytes_are_refused(store, give_out):
    path = give_out["root"] / "model-1.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(store.Error, match="altered on the way or at the source") as caught:
        store(source="box", url=give_out["url"], share_token=TOKEN, files=give_out["files"])
    assert TOKEN not in str(caught.value)
    with pytest.raises(give_out["library"].ModelError, match=r"model-1.safetensors is not what it was"):
        give_out["library"].share_files(str(give_out["root"]), COMMIT, check=False)


def test_hashes_are_computed_once(give_out, monkeypatch):
    monkeypatch.setattr(give_out["library"], "file_hash", lambda *_: pytest.fail("hashed again"))
    assert give_out["library"].share_files(str(give_out["root"]), COMMIT, check=False) == sorted(
        give_out["files"], key=lambda each: each["name"]
    )
    assert all(each["hash"] for each in give_out["files"])


def test_check_mode_hashes_and_writes_nothing(model_folder):
    root = model_folder()
    library = load(ROOT / "library/model_share.py")
    files = library.share_files(str(root), COMMIT, check=True)
    assert {each["name"]: each["hash"] for each in files} == dict.fromkeys(MODEL)
    assert os.listdir(root.parent) == ["source"]


def test_half_a_model_is_not_given_out(model_folder):
    root = model_folder()
    (root / "model-2.safetensors").unlink()
    with pytest.raises(Exception, match=r"model-2.safetensors is missing"):
        load(ROOT / "library/model_share.py").share_files(str(root), COMMIT, check=False)


def test_an_address_of_another_machine_is_named(tmp_path):
    config, said = tmp_path / "share.json", tmp_path / "said"
    content = {"root": "/", "names": [], "said": str(said), "token": TOKEN, "address": "192.0.2.1"}
    config.write_text(json.dumps(content))
    assert subprocess.run([sys.executable, "-B", PROGRAM, config], check=False, timeout=20).returncode == 1
    assert "model_store_box_address" in json.loads(said.read_text())["error"]


def test_it_ends_by_itself(tmp_path, model_folder):
    config = tmp_path / "share.json"
    content = {"root": str(model_folder()), "names": [], "said": str(tmp_path / "said"), "token": TOKEN}
    config.write_text(json.dumps({**content, "address": "127.0.0.1"}))
    program = PROGRAM.read_text().replace("IDLE_SECONDS = 600", "IDLE_SECONDS = 0.2")
    assert "IDLE_SECONDS = 0.2" in program
    short = tmp_path / "model-share"
    short.write_text(program)
    assert subprocess.run([sys.executable, "-B", short, config], check=False, timeout=20).returncode == 0


def test_a_box_that_is_about_to_fetch_tells_the_others_what(store, hub, tmp_path):
    first = store(source="hub", endpoint=hub.url, check=True)
    second = store(source="box", files=first["listing"], path=str(tmp_path / "other" / COMMIT), check=True)
    assert second["fetch"] == first["fetch"]
    assert "listing" not in store(source="hub", endpoint=hub.url)
