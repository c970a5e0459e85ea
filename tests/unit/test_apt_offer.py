"""What a repository offers, asked of it by APT itself, with a repository and keys that are made here."""

import subprocess

import pytest
from test_apt_keys import gpg, gpgs, module


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A signed repository with two versions of a driver; its folder, in which are its key and another."""
    folder = tmp_path_factory.mktemp("offer")
    folder.chmod(0o755)
    home, out = folder / "gnupg", folder / "repository"
    home.mkdir(mode=0o700)
    out.mkdir()
    for name, version in [("nvidia-driver-cuda", "590.48.01-1"), ("nvidia-driver-cuda", "595.71.05-1"), ("other", "1")]:
        root = folder / name
        (root / "DEBIAN").mkdir(parents=True, exist_ok=True)
        (root / "DEBIAN/control").write_text(
            f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: t\nDescription: t\n"
        )
        subprocess.run(["dpkg-deb", "--build", "--root-owner-group", root, out], check=True, capture_output=True)
    with open(out / "Packages", "w") as packages:
        subprocess.run(["apt-ftparchive", "packages", "."], cwd=out, stdout=packages, check=True)
    release = subprocess.run(["apt-ftparchive", "release", "."], cwd=out, capture_output=True, check=True).stdout
    (folder / "Release").write_bytes(release)
    for name in ("vendor", "other"):
        gpg(home, "--passphrase", "", "--quick-generate-key", name, "ed25519", "sign", "never")
        gpg(home, "--armor", "-o", out / f"{name}.asc", "--export", name)
        gpg(home, "-o", out / f"{name}.gpg", "--export", name)
    gpg(home, "-u", "vendor", "--clear-sign", "-o", out / "InRelease", folder / "Release")
    subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=False)
    return out


@pytest.fixture(autouse=True)
def settings(tmp_path, monkeypatch):
    """APT reads as root here, as pytest's folders are for nobody else; the file, for more settings."""
    config = tmp_path / "apt.conf"
    config.write_text('APT::Sandbox::User "root";')
    monkeypatch.setenv("APT_CONFIG", str(config))
    return config


def ask(repository, key="vendor.asc", fingerprint="vendor.asc", **more):
    return module(
        "apt_offer",
        **{
            "url": f"file:{repository}/",
            "key_path": "/nowhere",
            "key_url": f"file:{repository}/{key}",
            "fingerprints": gpgs(repository / fingerprint),
            "packages": ["nvidia-driver-*", "nvidia-persistenced"],
            **more,
        },
    )["apt_offer"]


@pytest.mark.parametrize("key", ["vendor.asc", "vendor.gpg"])
def test_versions_are_found_the_newest_first(repository, key):
    assert ask(repository, key) == {
        "error": None,
        "versions": {"nvidia-driver-cuda": ["595.71.05-1", "590.48.01-1"]},
    }


def test_the_key_must_be_the_expected_one(repository):
    found = ask(repository, fingerprint="other.asc")
    vendor, other = gpgs(repository / "vendor.asc")[0], gpgs(repository / "other.asc")[0]
    assert found["versions"] == {} and f"has the fingerprint {vendor}, expected is {other}" in found["error"]


def test_the_index_must_be_signed_by_that_key(repository):
    found = ask(repository, "other.asc", "other.asc")
    assert (found["versions"] == {} and "NO_PUBKEY" in found["error"]) or "not bound" in found["error"]


def test_a_repository_that_is_not_there_is_an_error_in_apts_words(repository):
    found = ask(repository, url=f"file:{repository}/nowhere/")
    assert found["versions"] == {} and "nowhere" in found["error"]


def test_the_boxs_own_sources_are_asked_without_touching_its_lists(repository, tmp_path, settings):
    (tmp_path / "box.list").write_text(f"deb [signed-by={repository}/vendor.asc] file:{repository}/ /\n")
    (tmp_path / "lists/partial").mkdir(parents=True)
    settings.write_text(
        f'APT::Sandbox::User "root"; Dir::Etc::sourcelist "{tmp_path}/box.list"; Dir::Etc::sourceparts "/dev/null"; '
        f'Dir::State::lists "{tmp_path}/lists";'
        # as update-notifier has one, which writes that the box's lists are fresh
        + "".join(
            f'APT::Update::{name} {{"touch {tmp_path}/hook";}};' for name in ("Pre-Invoke", "Post-Invoke-Success")
        )
    )
    found = module("apt_offer", packages=["nvidia-driver-cuda"])["apt_offer"]
    assert found == {"error": None, "versions": {"nvidia-driver-cuda": ["595.71.05-1", "590.48.01-1"]}}
    assert [path.name for path in (tmp_path / "lists").iterdir()] == ["partial"]
    assert not (tmp_path / "hook").exists()
