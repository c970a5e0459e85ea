"""Fetching: from hub, web, path; resumed, refused, repaired; never half a model, never a token where it does not
belong."""

import json
import os
import time

import pytest
from model_store_fake import COMMIT, MODEL, TOTAL, content_of, sha256, sums

BIG = "model-1.safetensors"


def hub_run(store, hub, **more):
    return store(source="hub", endpoint=hub.url, **more)


def test_hub_fetches_everything_once(store, hub):
    predicted = hub_run(store, hub, check=True)
    assert predicted["changed"] and not store.path.exists() and not store.path.parent.exists()
    assert predicted["fetch"] == {"files": 5, "bytes": TOTAL, "resumed_bytes": 0, "names": list(MODEL)}
    assert "would fetch 5 files, 3.1 MB" in predicted["says"]
    done = hub_run(store, hub)
    assert done["changed"] and done["fetch"] == predicted["fetch"] and done["diff"] == predicted["diff"]
    assert content_of(store.path) == MODEL
    assert sorted(os.listdir(store.path.parent)) == [".tandem.lock", COMMIT, COMMIT + ".tandem.json"]
    asked = len(hub.requests)
    again = hub_run(store, hub)
    assert (again["changed"], again["hashed"], len(hub.requests)) == (False, 0, asked)
    assert again["fetch"]["bytes"] == 0 and again["complete"]


def test_token_goes_to_the_hub_and_not_to_where_it_redirects(store, hub):
    hub_run(store, hub, hub_token="hf_secret")
    assert hub.requests and all(headers.get("Authorization") == "Bearer hf_secret" for _, _, headers in hub.requests)
    assert hub.cdn.requests and not any("Authorization" in headers for _, _, headers in hub.cdn.requests)


def test_token_is_kept_on_the_hubs_own_redirects(store, hub):
    path = f"/owner/model/resolve/{COMMIT}/config.json"
    hub.files["/api/resolve-cache/config.json"] = hub.files.pop(path)
    hub.redirects[path] = "/api/resolve-cache/config.json"
    hub_run(store, hub, hub_token="hf_secret")
    (headers,) = [headers for _, asked, headers in hub.requests if asked == "/api/resolve-cache/config.json"]
    assert headers["Authorization"] == "Bearer hf_secret"


def test_token_is_in_no_file_and_no_result(store, hub):
    result = hub_run(store, hub, hub_token="hf_secret")
    assert "hf_secret" not in json.dumps(result) + "".join(store.log)
    for path in store.path.parent.rglob("*"):
        assert path.is_dir() or b"hf_secret" not in path.read_bytes()


def test_redirect_to_another_scheme_is_refused(store, hub):
    hub.redirects[f"/owner/model/resolve/{COMMIT}/{BIG}"] = "ftp://127.0.0.1/x"
    with pytest.raises(store.Error, match="refused"):
        hub_run(store, hub)


def test_an_interrupted_download_is_gone_on_from(store, hub):
    cut = 1_200_000

    def cut_short(handler):
        handler.answer(200, MODEL[BIG][:cut], length=len(MODEL[BIG]))

    hub.cdn.faults[f"/{BIG}"] = [cut_short]
    hub_run(store, hub)
    assert hub.cdn.fetched(f"/{BIG}") == [None, f"bytes={cut}-"]
    assert content_of(store.path) == MODEL


def test_the_next_run_goes_on_where_this_one_gave_up(store, hub):
    def cut_short(handler):
        handler.answer(200, MODEL[BIG][:900_000], length=len(MODEL[BIG]))

    def unavailable(handler):
        handler.answer(503, b"")

    hub.cdn.faults[f"/{BIG}"] = [cut_short, unavailable, unavailable, unavailable, unavailable]
    with pytest.raises(store.Error, match=r"HTTP 503, 4 times in a row.*the next run goes on") as caught:
        hub_run(store, hub)
    assert "secret" not in str(caught.value)
    assert not store.path.exists()
    predicted = hub_run(store, hub, check=True)
    assert predicted["fetch"]["resumed_bytes"] == 900_000
    del hub.cdn.requests[:]
    done = hub_run(store, hub)
    assert hub.cdn.fetched(f"/{BIG}")[0] == "bytes=900000-"
    assert done["fetch"]["bytes"] == predicted["fetch"]["bytes"]
    assert content_of(store.path) == MODEL


def test_a_busy_server_is_asked_again_and_when_it_says(store, hub):
    def busy(handler):
        handler.answer(429, b"", {"Retry-After": "17"})

    hub.faults[hub.api] = [busy, lambda handler: handler.answer(503, b"")]
    hub_run(store, hub)
    assert store.slept[0] == 17 and 1 <= store.slept[1] <= 30


def test_a_server_that_falls_silent_is_given_up_and_asked_again(store, hub):
    def silent(handler):
        handler.answer(200, MODEL[BIG][:1000], length=len(MODEL[BIG]))
        handler.wfile.flush()
        stop = time.monotonic() + 3
        while time.monotonic() < stop and not hub.cdn.fetched(f"/{BIG}")[1:]:
            os.sched_yield()

    hub.cdn.faults[f"/{BIG}"] = [silent]
    hub_run(store, hub, timeout=0.3)
    assert hub.cdn.fetched(f"/{BIG}") == [None, "bytes=1000-"]


def test_a_server_without_range_sends_all_again(store, hub):
    hub.cdn.ranges = False
    hub.cdn.faults[f"/{BIG}"] = [lambda handler: handler.answer(200, MODEL[BIG][:1000], length=len(MODEL[BIG]))]
    hub_run(store, hub)
    assert content_of(store.path) == MODEL


def test_a_wrong_part_is_thrown_away_once(store, hub):
    part = store.path.with_name(COMMIT + ".part") / (BIG + ".incomplete")
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * 5000)
    hub_run(store, hub)
    assert hub.cdn.fetched(f"/{BIG}") == ["bytes=5000-", None]
    assert content_of(store.path) == MODEL


@pytest.mark.parametrize("wrong", [b"x" * len(MODEL[BIG]), MODEL[BIG] + b"more"])
def test_an_altered_file_is_never_put_in_place(store, hub, wrong):
    hub.cdn.files[f"/{BIG}"] = wrong
    with pytest.raises(store.Error, match=r"fetched twice and is not|is longer than"):
        hub_run(store, hub)
    assert not store.path.exists()
    assert not list(store.path.parent.rglob(BIG + "*"))


@pytest.mark.parametrize(
    ("status", "token", "words"),
    [
        (401, None, "no token was sent"),
        (403, "hf_x", "the token was sent.*licence"),
        (404, None, "repository and commit"),
    ],
)
def test_a_refusal_names_the_way_out(store, hub, status, token, words):
    hub.faults[hub.api] = [lambda handler: handler.answer(status, b"")]
    with pytest.raises(store.Error, match=f"owner/model.*{words}"):
        hub_run(store, hub, hub_token=token)
    assert len(hub.requests) == 1


def test_a_gated_model_is_listed_and_its_files_are_refused(store, hub):
    path = f"/owner/model/resolve/{COMMIT}/config.json"
    hub.faults[path] = [lambda handler: handler.answer(403, b"")]
    with pytest.raises(store.Error, match=r"HTTP 403, no token was sent.*model_store_hub_token.*licence"):
        hub_run(store, hub)


def test_another_commit_than_the_pinned_one_is_refused(store, hub):
    hub.files[hub.api] = json.dumps({**hub.answer, "sha": "f" * 40}).encode()
    with pytest.raises(store.Error, match="answers with commit ffff"):
        hub_run(store, hub)


def test_a_mirror_without_hashes_is_refused(store, hub):
    del hub.answer["siblings"][0]["blobId"]
    hub.files[hub.api] = json.dumps(hub.answer).encode()
    with pytest.raises(store.Error, match=r"no hash or no size for config.json"):
        hub_run(store, hub)


@pytest.mark.parametrize("name", ["../../etc/cron.d/x", "/etc/passwd", "a//b", "a\\b", "a\nb"])
def test_names_that_leave_the_folder_are_refused(store, hub, name):
    hub.answer["siblings"][0]["rfilename"] = name
    hub.files[hub.api] = json.dumps(hub.answer).encode()
    with pytest.raises(store.Error, match="no path inside a folder"):
        hub_run(store, hub)
    assert content_of(store.path.parents[1]) == {"model/.tandem.lock": str(os.getpid()).encode()}


# --- what is here ----------------------------------------------------------------------------------------------------


def test_a_truncated_file_is_found_and_fetched_again_by_rename(store, hub):
    hub_run(store, hub)
    os.truncate(store.path / BIG, 1000)
    inode = (store.path / BIG).stat().st_ino
    predicted = hub_run(store, hub, check=True)
    assert predicted["fetch"]["names"] == [BIG] and predicted["fetch"]["bytes"] == len(MODEL[BIG])
    assert (store.path / BIG).stat().st_size == 1000
    with open(store.path / BIG, "rb") as served:
        result = hub_run(store, hub)
        assert served.read() == MODEL[BIG][:1000]  # what an engine has mapped stays
    assert [each["name"] for each in result["fetched"]] == [BIG]
    assert (store.path / BIG).stat().st_ino != inode
    assert content_of(store.path) == MODEL
    assert hub_run(store, hub)["changed"] is False


def test_an_altered_file_shows_even_with_its_old_time(store, hub):
    hub_run(store, hub)
    before = (store.path / BIG).stat()
    with open(store.path / BIG, "r+b") as handle:
        handle.seek(5000)
        handle.write(b"!")
    os.utime(store.path / BIG, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert hub_run(store, hub)["fetch"]["names"] == [BIG]


def test_full_hashes_what_quick_believes(store, hub):
    """Bits that rot change no time: stood for by a manifest that has the rotten file's stamp."""
    hub_run(store, hub)
    (store.path / BIG).write_bytes(b"x" * len(MODEL[BIG]))
    now = (store.path / BIG).stat()
    manifest = store.path.with_name(COMMIT + ".tandem.json")
    content = json.loads(manifest.read_text())
    content["files"][BIG]["stamp"] = [now.st_size, now.st_mtime_ns, now.st_ctime_ns, now.st_ino]
    manifest.write_text(json.dumps(content))
    assert hub_run(store, hub)["changed"] is False
    assert hub_run(store, hub, verify="full", check=True)["fetch"]["names"] == [BIG]
    done = hub_run(store, hub, verify="full")
    assert done["fetch"]["names"] == [BIG] and done["hashed"] >= 5
    assert content_of(store.path) == MODEL


def test_a_touched_file_is_hashed_and_not_fetched(store, hub):
    hub_run(store, hub)
    os.utime(store.path / BIG)
    asked = len(hub.requests)
    result = hub_run(store, hub)
    assert (result["changed"], result["hashed"], len(hub.requests)) == (False, 1, asked)
    assert hub_run(store, hub)["hashed"] == 0


def test_a_lost_manifest_costs_hashing_only(store, hub):
    hub_run(store, hub)
    store.path.with_name(COMMIT + ".tandem.json").unlink()
    result = hub_run(store, hub)
    assert (result["changed"], result["hashed"]) == (False, 5)
    assert hub_run(store, hub)["hashed"] == 0


def test_files_of_the_user_stay(store, hub):
    hub_run(store, hub)
    (store.path / "notes.txt").write_text("mine")
    (store.path / "config.json").unlink()
    hub_run(store, hub)
    assert (store.path / "notes.txt").read_text() == "mine" and (store.path / "config.json").exists()


def test_excluded_files_are_not_fetched_and_can_be_wanted_later(store, hub):
    assert hub_run(store, hub, exclude=["sub/*"])["fetch"]["files"] == 4
    assert hub_run(store, hub, exclude=["sub/*"])["changed"] is False
    assert hub_run(store, hub)["fetch"]["names"] == ["sub/tokenizer.json"]
    with pytest.raises(store.Error, match="all left out"):
        hub_run(store, hub, exclude=["*"])


def test_a_full_disk_is_told_in_numbers_before_anything_is_fetched(store, hub, monkeypatch):
    monkeypatch.setattr("ansible.module_utils.tandem_model_store._free", lambda path: 2_000_000)
    for check in (True, False):
        with pytest.raises(store.Error, match=r"needs 3.1 MB more for 5 files.*has 2.0 MB free, so 1.1 MB are missing"):
            hub_run(store, hub, check=check)
    assert hub.cdn.requests == []


def test_two_runs_at_once_are_refused(store, hub):
    from ansible.module_utils.tandem_model_store import Lock

    with Lock(str(store.path.parent / ".tandem.lock")), pytest.raises(store.Error, match=f"process {os.getpid()}"):
        hub_run(store, hub)


# --- web, path, none -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", [COMMIT, sha256(sums(MODEL))])
def test_web(store, web, revision):
    assert store(source="web", url=web.url + "/m/", revision=revision)["fetch"]["bytes"] == TOTAL
    assert content_of(store.path) == MODEL
    assert store(source="web", url=web.url + "/m", revision=revision)["changed"] is False


def test_web_with_other_sums_than_pinned(store, web):
    with pytest.raises(store.Error, match="not the file that was pinned"):
        store(source="web", url=web.url + "/m", revision="a" * 64)


@pytest.mark.parametrize(
    ("text", "words"), [(b"", "names no file"), (b"<html>", "line 1: not a line"), (b"0" * 64 + b"  ../x\n", "no path")]
)
def test_web_with_strange_sums(store, web, text, words):
    web.files["/m/SHA256SUMS"] = text
    with pytest.raises(store.Error, match=words):
        store(source="web", url=web.url + "/m")


def test_path_without_hashes_is_copied_and_remembered(store, model_folder):
    source = model_folder()
    (source / ".cache").mkdir()
    assert store(source="path", from_path=str(source))["fetch"]["bytes"] == TOTAL
    assert content_of(store.path) == MODEL
    os.truncate(store.path / BIG, 1000)
    assert store(source="path", from_path=str(source))["fetch"]["names"] == [BIG]
    for each in source.rglob("*"):
        if each.is_file():
            each.unlink()
    assert store(source="path", from_path=str(source))["changed"] is False


def test_path_goes_on_from_a_part(store, model_folder):
    part = store.path.with_name(COMMIT + ".part") / (BIG + ".incomplete")
    part.parent.mkdir(parents=True)
    part.write_bytes(MODEL[BIG][:7000])
    result = store(source="path", from_path=str(model_folder()))
    assert result["fetch"]["resumed_bytes"] == 7000 and content_of(store.path) == MODEL


def test_path_with_sums_that_do_not_hold(store, model_folder):
    source = model_folder(files={**MODEL, "SHA256SUMS": sums({**MODEL, BIG: b"other"})})
    with pytest.raises(store.Error, match="not what its source promises"):
        store(source="path", from_path=str(source))
    assert not store.path.exists()


def test_path_in_the_hub_clients_cache_is_checked_by_its_names(store, model_folder, tmp_path):
    blobs = tmp_path / "cache/blobs"
    snapshot = tmp_path / "cache/snapshots" / COMMIT
    for name, content in MODEL.items():
        blobs.mkdir(parents=True, exist_ok=True)
        (blobs / sha256(content)).write_bytes(content)
        (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / name).symlink_to(blobs / sha256(content))
    (blobs / sha256(MODEL[BIG])).write_bytes(b"x" * len(MODEL[BIG]))
    with pytest.raises(store.Error, match="not what its source promises"):
        store(source="path", from_path=str(snapshot))
    with pytest.raises(store.Error, match="is of commit 0123"):
        store(source="path", from_path=str(snapshot), revision="b" * 40)
    (blobs / sha256(MODEL[BIG])).write_bytes(MODEL[BIG])
    store(source="path", from_path=str(snapshot))
    assert content_of(store.path) == MODEL and not (store.path / BIG).is_symlink()


def test_path_that_is_not_mounted(store, tmp_path):
    with pytest.raises(store.Error, match="is the disk or share mounted"):
        store(source="path", from_path=str(tmp_path / "nothing"))


def test_a_source_that_is_no_model_is_refused(store, model_folder):
    source = model_folder(files={**MODEL, BIG: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"})
    with pytest.raises(store.Error, match="pointer of git-lfs"):
        store(source="path", from_path=str(source))


def test_none_checks_what_is_there(store, model_folder):
    folder = model_folder()
    run = {"source": "none", "path": str(folder), "revision": None}
    assert store(**run)["complete"] and not store(**run)["changed"]
    assert "there are no hashes" in store(**run, verify="full")["says"]
    os.truncate(folder / BIG, 100_000)
    with pytest.raises(store.Error, match=r"model-1.safetensors has 100000 bytes, its header says 30000"):
        store(**run)
    (folder / BIG).unlink()
    with pytest.raises(store.Error, match=r"model-1.safetensors is missing, model.safetensors.index.json names it"):
        store(**run)
    with pytest.raises(store.Error, match="does not exist"):
        store(source="none", path="/nowhere", revision=None)


def test_none_full_takes_the_hub_clients_notes(store, model_folder):
    folder = model_folder()
    notes = folder / ".cache/huggingface/download"
    notes.mkdir(parents=True)
    (notes / f"{BIG}.metadata").write_text(f"{COMMIT}\n{sha256(MODEL[BIG])}\n1700000000.0\n")
    run = {"source": "none", "path": str(folder), "revision": None, "verify": "full"}
    assert "1 files have the hash" in store(**run)["says"]
    content = bytearray(MODEL[BIG])
    content[-1] ^= 1
    (folder / BIG).write_bytes(content)
    assert store(**{**run, "verify": "quick"})["complete"]
    with pytest.raises(store.Error, match=r"model-1.safetensors is not what it was"):
        store(**run)


def test_none_changes_nothing(store, model_folder):
    folder = model_folder()
    before = content_of(folder.parent)
    store(source="none", path=str(folder), revision=None, verify="full")
    assert content_of(folder.parent) == before


# --- other revisions -------------------------------------------------------------------------------------------------


@pytest.fixture
def old(store, hub):
    """A revision that was fetched before, and a folder that a person made."""
    path = store.path.with_name("a" * 40)
    store(source="hub", endpoint=hub.url, path=str(path))
    manifest = path.with_name("a" * 40 + ".tandem.json")
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "revision": "a" * 40}))
    (store.path.parent / ("b" * 40)).mkdir()
    return path


def test_old_revisions_stay_unless_asked(store, hub, old):
    assert hub_run(store, hub)["deleted"] == [] and old.exists()
    assert hub_run(store, hub, delete_old=True, check=True)["deleted"] == ["a" * 40] and old.exists()
    done = hub_run(store, hub, delete_old=True)
    assert done["changed"] and done["deleted"] == ["a" * 40]
    assert sorted(os.listdir(store.path.parent)) == [".tandem.lock", COMMIT, COMMIT + ".tandem.json", "b" * 40]
    assert hub_run(store, hub, delete_old=True)["changed"] is False


def test_a_revision_that_is_used_is_kept(store, hub, old, monkeypatch):
    monkeypatch.setattr("ansible.module_utils.tandem_model_store.used_by", lambda path: ["container vllm-main"])
    done = hub_run(store, hub, delete_old=True)
    assert done["deleted"] == [] and old.exists() and f"kept {'a' * 40}, used by container vllm-main" in done["says"]


def test_used_by_reads_units_and_containers(tmp_path, monkeypatch):
    from ansible.module_utils import tandem_model_store

    unit = tmp_path / "vllm-main.service"
    monkeypatch.setattr(tandem_model_store, "UNITS", [str(tmp_path / "vllm-*.service")])
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\n[ "$1" = ps ] && echo 1 || printf "/vllm-main\\t/srv/models/m/aa\\n"\n')
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    unit.write_text("--mount type=bind,source=/srv/models/m/aab,target=/models,readonly")
    assert tandem_model_store.used_by("/srv/models/m/aa") == ["container vllm-main"]
    assert tandem_model_store.used_by("/srv/models/m/aab") == [str(unit)]
    assert tandem_model_store.used_by("/srv/models/m/a") == []
