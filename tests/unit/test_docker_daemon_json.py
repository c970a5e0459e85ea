"""daemon.json merged, and what needs a restart: pure functions. The versions are Docker's, the settings fixtures."""

import copy

import pytest
from docker_engine import docker_cdi, docker_judge, docker_merge, docker_read, docker_restart_reasons, docker_wanted
from hypothesis import given
from hypothesis import strategies as st

CDI_SAID = {"features": {"cdi": True}}


def wanted(found, version="26.1.5+dfsg1", registries=(), mirrors=(), own=None):
    return docker_wanted(found, version, list(registries), list(mirrors), own or {})


@pytest.mark.parametrize("version", ["25.0.0", "26.1.5+dfsg1", "28.2.2", "28.2.2-0ubuntu1~24.04.1", None])
def test_cdi_is_said_where_it_must_be(version):
    assert docker_cdi(version) == CDI_SAID


@pytest.mark.parametrize("version", ["28.3.0", "28.5.1-1~debian.12~bookworm", "29.0.0-rc.1", "100.0"])
def test_cdi_is_not_said_where_it_is_the_default(version):
    assert docker_cdi(version) == {}
    assert "features" not in wanted({}, version)


@pytest.mark.parametrize("version", ["20.10.24+dfsg1", "24.0.9"])
def test_a_docker_without_cdi_is_refused(version):
    with pytest.raises(ValueError, match="25 or newer"):
        docker_cdi(version)


def test_cdi_switched_off_by_hand_is_switched_on_where_it_is_the_default():
    found = {"features": {"cdi": False, "containerd-snapshotter": True}}
    assert wanted(found, "28.5.1")["features"] == {"cdi": True, "containerd-snapshotter": True}


def test_an_empty_file_gets_our_settings_only():
    assert wanted({}) == {
        **CDI_SAID,
        "live-restore": True,
        "log-driver": "local",
        "log-opts": {"max-size": "50m", "max-file": "3"},
    }


def test_foreign_keys_survive_at_every_depth():
    found = {
        "dns": ["10.0.0.1"],
        "default-address-pools": [{"base": "172.30.0.0/16", "size": 24}],
        "features": {"containerd-snapshotter": True},
        "runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}},
        "live-restore": False,
    }
    before = copy.deepcopy(found)
    after = wanted(found)
    assert found == before
    assert after["features"] == {"containerd-snapshotter": True, "cdi": True}
    assert after["live-restore"] is True
    assert {key: after[key] for key in ("dns", "default-address-pools", "runtimes")} == {
        key: found[key] for key in ("dns", "default-address-pools", "runtimes")
    }


def test_lists_are_joined_with_ours_first():
    found = {"insecure-registries": ["theirs:5000", "ours:5000"], "registry-mirrors": ["https://theirs"]}
    after = wanted(found, registries=["ours:5000"], mirrors=["https://a", "https://b"])
    assert after["insecure-registries"] == ["ours:5000", "theirs:5000"]
    assert after["registry-mirrors"] == ["https://a", "https://b", "https://theirs"]


def test_the_users_keys_win_and_null_removes():
    found = {"dns": ["10.0.0.1"], "debug": True, "features": {"a": True, "b": True}}
    after = wanted(found, own={"debug": False, "dns": None, "features": {"a": None}, "live-restore": False})
    assert "dns" not in after
    assert (after["debug"], after["live-restore"], after["features"]) == (False, False, {"b": True, "cdi": True})


@pytest.mark.parametrize(
    ("found", "driver", "options"),
    [
        ({"log-driver": "journald", "log-opts": {"tag": "x"}}, "journald", {"tag": "x"}),
        ({"log-driver": "journald"}, "journald", None),
        ({"log-driver": "json-file"}, "json-file", {"max-size": "50m", "max-file": "3"}),
        ({"log-driver": "local", "log-opts": {"max-size": "5m"}}, "local", {"max-size": "5m", "max-file": "3"}),
        # options without a driver are those of json-file, Docker's default
        ({"log-opts": {"labels": "x"}}, "json-file", {"labels": "x", "max-size": "50m", "max-file": "3"}),
    ],
)
def test_a_chosen_log_driver_stays_and_files_get_limits(found, driver, options):
    after = wanted(found)
    assert (after["log-driver"], after.get("log-opts")) == (driver, options)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=4),
    max_leaves=8,
)
OBJECT = st.dictionaries(st.sampled_from("abcd"), JSON, max_size=4)


@given(OBJECT, OBJECT)
def test_merging_twice_changes_nothing(found, wish):
    once = docker_merge(found, wish)
    assert docker_merge(once, wish) == once


@given(OBJECT, OBJECT)
def test_keys_that_are_not_named_stay(found, wish):
    after = docker_merge(found, wish)
    assert {key: value for key, value in after.items() if key not in wish} == {
        key: value for key, value in found.items() if key not in wish
    }


def test_a_second_run_wants_what_the_first_wrote():
    first = wanted({"log-opts": {"tag": "x"}, "registry-mirrors": ["https://theirs"]}, mirrors=["https://ours"])
    assert wanted(first, mirrors=["https://ours"]) == first


@pytest.mark.parametrize("text", [None, "", " \n"])
def test_no_file_and_an_empty_one_are_no_settings(text):
    assert docker_read(text) == {"settings": {}, "finding": ""}


def test_reading():
    assert docker_read('\ufeff{"debug": true}') == {"settings": {"debug": True}, "finding": ""}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"debug": true,}', ["not JSON", "line 1 column 1"]),
        ("debug: true", ["not JSON", "line 1"]),
        ("[1]", ["holds [1], not an object"]),
    ],
)
def test_what_is_no_json_object_is_one_sentence(text, words):
    read = docker_read(text)
    assert read["settings"] == {}
    for word in ["/etc/docker/daemon.json", "correct it", *words]:
        assert word in read["finding"]


# A key that is not there is dockerd's default, and no value: one run settles it.


@pytest.mark.parametrize(
    "own",
    [
        {"live-restore": None},
        {"live-restore": False},
        {"log-driver": None},
        {"log-driver": None, "log-opts": None},
        {"log-opts": None},
        {"log-opts": {"max-size": None}},
        {"log-opts": {"max-size": None, "max-file": None}},
        {"log-opts": {}},
        {"features": None},
        {"features": {}},
        {"features": {"buildkit": None}},
        {"default-ulimits": {"nofile": {"Soft": None}}},
        {"dns": []},
        {"dns": None, "debug": None, "live-restore": None},
        {"insecure-registries": None},
    ],
)
@pytest.mark.parametrize("version", ["26.1.5", "28.5.1"])
@pytest.mark.parametrize(
    "before", [{}, {"live-restore": True, "log-driver": "local", "dns": ["10.0.0.1"], "debug": None}]
)
def test_what_is_set_to_null_or_empty_is_settled_after_one_run(own, version, before):
    first = wanted(before, version, own=own)
    assert wanted(first, version, own=own) == first
    # the daemon, restarted with it, runs with dockerd's own values where the file says nothing
    loaded = {
        "live-restore": bool(first.get("live-restore")),
        "log-driver": first.get("log-driver") or "json-file",
        "features.cdi": first.get("features", {}).get("cdi", version == "28.5.1"),
    }
    docker = {"version": version, "config_is_newer": False, "loaded": loaded}
    assert docker_restart_reasons(docker, first, first) == []


def test_null_takes_the_key_away():
    after = wanted({"live-restore": True, "log-driver": "local"}, own={"live-restore": None, "log-driver": None})
    assert "live-restore" not in after and "log-driver" not in after
    assert wanted({"log-opts": {"max-size": "5m"}}, own={"log-opts": None}).get("log-opts") is None
    assert wanted({"log-opts": {"max-size": "5m"}}, own={"log-opts": {"max-size": None}})["log-opts"] == {
        "max-file": "3"
    }
    assert "default-ulimits" not in wanted({}, own={"default-ulimits": {"nofile": {"Soft": None}}})
    assert wanted({"builder": {"gc": {"enabled": True}}}, own={"builder": {"gc": {"enabled": None}}})["builder"] == {
        "gc": {}
    }


@pytest.mark.parametrize(
    ("found", "own"),
    [
        ({"live-restore": False}, {"live-restore": None}),
        ({"live-restore": None}, {"live-restore": None}),
        ({}, {"live-restore": False}),
        ({"log-driver": "json-file"}, {"log-driver": None}),
        ({"dns": None}, {"dns": None}),
        ({"dns": None}, {}),
        ({"builder": {"gc": None}}, {"builder": {"gc": None}}),
    ],
)
def test_what_comes_to_the_same_is_not_written_anew(found, own):
    """A file that is written anew is newer than the daemon, which is a reason for a restart."""
    settled = wanted({}, own={"live-restore": None, "log-driver": None} | own)
    found = {**{key: value for key, value in settled.items() if key not in own}, **found}
    own = {"live-restore": None, "log-driver": None} | own
    assert wanted(found, own=own) == found


def test_cdi_stays_on_whatever_is_said_of_features():
    for own in ({"features": None}, {"features": {}}, {"features": {"cdi": None}}):
        assert wanted({"features": {"cdi": True, "a": True}}, own=own)["features"]["cdi"] is True


# What in daemon.json forbids that engines run


def daemon(**said):
    fact = {"security": ["apparmor", "cgroupns", "seccomp"], "swarm": False, "config_is_newer": False}
    return fact | {"root": "/var/lib/docker", "root_filesystem": "ext2/ext3"} | said


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (
            "userns-remap",
            "default",
            ["userns-remap default", "--network host", "docker_engine_daemon: {userns-remap: null}"],
        ),
        ("userns-remap", "lab:lab", ["userns-remap lab:lab"]),
        ("cdi-spec-dirs", ["/etc/cdi"], ["cdi-spec-dirs /etc/cdi", "/run/cdi/nvidia.yaml", "{cdi-spec-dirs: null}"]),
        ("cdi-spec-dirs", [""], ["cdi-spec-dirs"]),
        ("cdi-spec-dirs", [], ["cdi-spec-dirs empty"]),
        ("default-runtime", "runsc", ["default-runtime runsc", "sandbox", "{default-runtime: null}"]),
        ("default-runtime", "io.containerd.kata.v2", ["sandbox"]),
        ("default-runtime", "nvidia", ["default-runtime nvidia, which its runtimes do not name"]),
        ("storage-driver", "vfs", ["copies the whole image", "{storage-driver: null}"]),
        ("features", True, ["features of daemon.json is True"]),
        ("features", ["cdi"], ["must be an object"]),
    ],
)
def test_settings_that_engines_cannot_run_with_are_refused_with_the_way_out(key, value, words):
    found = {key: value}
    runtimes = {"runtimes": {"runsc": {"path": "/usr/bin/runsc"}}}
    judged = docker_judge(daemon(), found, wanted(runtimes | found))
    for word in words:
        assert word in judged
    # set by the inventory it is as bad
    assert docker_judge(daemon(), {}, wanted(runtimes, own={key: value}))
    # the way out
    assert docker_judge(daemon(), found, wanted(found, own={key: None})) == ""


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"userns-remap": ""},
        {"cdi-spec-dirs": ["/etc/cdi", "/var/run/cdi/"]},
        {"cdi-spec-dirs": ["/run/cdi"]},
        {"default-runtime": "runc"},
        {"default-runtime": "io.containerd.runc.v2"},
        {"default-runtime": "nvidia", "runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}}},
        {"default-runtime": "crun", "runtimes": {"crun": {"path": "/usr/bin/crun"}}},
        {"storage-driver": "overlay2"},
        {"selinux-enabled": True},
        {"features": {"containerd-snapshotter": True, "cdi": False}},
        # the engine's container is on the host's network, with limits, log and namespaces of its own
        {"iptables": False, "icc": False, "bridge": "none", "default-ipc-mode": "private", "no-new-privileges": True},
        {"exec-opts": ["native.cgroupdriver=cgroupfs"], "cgroup-parent": "lab.slice", "seccomp-profile": "unconfined"},
        {"log-driver": "syslog", "default-ulimits": {"nofile": {"Name": "nofile", "Soft": 1024, "Hard": 524288}}},
        {"data-root": "/srv/docker", "userland-proxy": False, "init": True, "mtu": 1400},
    ],
)
def test_settings_that_engines_run_with_pass(found):
    assert docker_judge(daemon(), found, wanted(found)) == ""


@pytest.mark.parametrize(
    ("said", "found", "words"),
    [
        ({"security": ["cgroupns", "userns"]}, {}, "dockerd runs with --userns-remap"),
        ({"security": ["rootless", "seccomp"]}, {}, "a rootless daemon"),
        ({"security": ["selinux"]}, {"selinux-enabled": True}, "have no label for it"),
        ({"swarm": True}, {}, "docker swarm leave"),
        (
            {"root_filesystem": "tmpfs"},
            {},
            "/var/lib/docker, where Docker keeps images, is on tmpfs: images take memory",
        ),
        ({"root": "/mnt/nas", "root_filesystem": "nfs"}, {"data-root": "/mnt/nas/"}, "/mnt/nas, where Docker keeps"),
        ({"root_filesystem": "smb2"}, {}, "over the network"),
    ],
)
def test_what_the_daemon_says_of_itself_is_judged(said, found, words):
    assert words in docker_judge(daemon(**said), found, wanted(found))


@pytest.mark.parametrize(
    ("said", "found", "own"),
    [
        # on the way out already: the run takes it away, with a restart that the plan tells
        ({"security": ["userns"]}, {"userns-remap": "default"}, {"userns-remap": None}),
        ({"swarm": True}, {}, {"live-restore": False}),
        ({"swarm": True}, {}, {"live-restore": None}),
        ({"root_filesystem": "tmpfs"}, {}, {"data-root": "/srv/docker"}),
        ({"root_filesystem": None}, {}, {}),
    ],
)
def test_what_is_being_mended_is_not_refused(said, found, own):
    assert docker_judge(daemon(**said), found, wanted(found, own=own)) == ""


def running(newer=False, **loaded):
    settings = {"live-restore": True, "log-driver": "local", "features.cdi": True}
    return {"version": "26.1.5", "config_is_newer": newer, "loaded": settings | loaded}


def test_a_daemon_that_runs_as_wanted_needs_no_restart():
    want = wanted({})
    assert docker_restart_reasons(running(), want, want) == []


def test_a_daemon_that_does_not_run_needs_no_restart():
    assert docker_restart_reasons({"version": None, "config_is_newer": True, "loaded": {}}, {}, wanted({})) == []


@pytest.mark.parametrize(
    ("docker", "found", "words"),
    [
        (running(), {"debug": True}, "daemon.json gets another features, live-restore, log-driver, log-opts"),
        (running(newer=True), None, "daemon.json was changed after the daemon started"),
        (running(**{"live-restore": False}), None, "runs with live-restore False, wanted is True"),
        (running(**{"log-driver": "json-file"}), None, "runs with log-driver json-file, wanted is local"),
        (running(**{"features.cdi": False}), None, "runs with features.cdi False, wanted is True"),
    ],
)
def test_each_reason_for_a_restart(docker, found, words):
    want = wanted(found or {})
    (reason,) = docker_restart_reasons(docker, want if found is None else found, want)
    assert words in reason
