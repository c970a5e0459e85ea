"""Where a box's Docker comes from. The facts are fixtures written for these tests, not readings of machines."""

import pytest
from docker_engine import PACKAGES, RELEASES, docker_choice  # plugins/filter/docker_engine.py, see conftest.py

BOOKWORM, TRIXIE = ("debian", "12"), ("debian", "13")


def host(release, dockerd=None, **installed):
    """host_info of a box of `release` (ID, VERSION_ID); `installed` are versions by package, with _ for - and .."""
    found = {name: {"version": None, "held": False} for names in PACKAGES.values() for name in names}
    for name in found:
        found[name]["version"] = installed.pop(name.replace("-", "_").replace(".", "_"), None)
    assert not installed
    dockerd = any(entry["version"] for entry in found.values()) if dockerd is None else dockerd
    return {
        "os": {"id": release[0], "version_id": release[1], "pretty_name": " ".join(release)},
        "packages": found,
        "docker": {"installed": dockerd},
    }


@pytest.mark.parametrize(
    ("release", "source", "packages"),
    [
        (BOOKWORM, "docker", ["docker-ce", "docker-ce-cli", "containerd.io"]),
        (TRIXIE, "distribution", ["docker.io", "docker-cli", "containerd"]),
        (("ubuntu", "22.04"), "distribution", ["docker.io", "containerd"]),
        (("ubuntu", "24.04"), "distribution", ["docker.io", "containerd"]),
        (("ubuntu", "26.04"), "distribution", ["docker.io", "containerd"]),
    ],
)
def test_a_bare_box_gets_its_releases_default(release, source, packages):
    choice = docker_choice(host(release), "auto")
    assert (choice["source"], choice["packages"], choice["version"], choice["finding"]) == (source, packages, None, "")


@pytest.mark.parametrize("release", RELEASES)
def test_dockers_own_can_be_had_on_every_release(release):
    choice = docker_choice(host(release), "docker")
    assert choice["packages"] == PACKAGES["docker"] and choice["finding"] == ""
    assert choice["release"] in ("bookworm", "trixie", "jammy", "noble", "resolute")


def test_what_is_installed_stays():
    ce = host(TRIXIE, docker_ce="5:28.5.1-1~debian.13~trixie", containerd_io="1.7.28-1")
    choice = docker_choice(ce, "auto")
    assert (choice["source"], choice["version"], choice["finding"]) == ("docker", "28.5.1-1~debian.13~trixie", "")


@pytest.mark.parametrize(
    ("box", "wish", "words"),
    [
        (
            host(TRIXIE, docker_io="26.1.5+dfsg1-9", containerd="1.7.24"),
            "docker",
            [
                "docker.io 26.1.5+dfsg1-9 is installed",
                "set docker_engine_source to distribution",
                "docker.io containerd",
            ],
        ),
        (
            host(BOOKWORM, docker_ce="5:26.1.5-1", docker_ce_cli="5:26.1.5-1", containerd_io="1.7.24-1"),
            "distribution",
            ["docker_engine_source is distribution", "apt-get remove docker-ce docker-ce-cli containerd.io"],
        ),
        (host(BOOKWORM), "distribution", ["debian 12", "CDI", "set docker_engine_source to docker or auto"]),
        (
            host(BOOKWORM, docker_io="20.10.24+dfsg1-1", containerd="1.6.20"),
            "auto",
            [
                "docker.io 20.10.24",
                "25 or newer",
                "apt-get remove docker.io containerd",
                "docker_engine_source: docker",
            ],
        ),
        (host(TRIXIE, dockerd=True), "auto", ["belongs neither to docker-ce nor to docker.io", "remove it"]),
        (host(("fedora", "44")), "auto", ["fedora 44", "debian 13", "ubuntu 24.04"]),
    ],
)
def test_what_forbids_it_is_one_sentence_with_the_way_out(box, wish, words):
    finding = docker_choice(box, wish)["finding"]
    for word in words:
        assert word in finding
