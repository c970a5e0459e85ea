"""Keys of repositories: fingerprints as gpg counts them, and the module that lets only the expected key onto a box."""

import json
import re
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "module_utils"))
from tandem_apt import RepositoryError, armoured, check_key, fingerprints  # noqa: E402

DEBIANS = sorted(Path("/usr/share/keyrings").glob("debian-archive-*-automatic.*"))


def gpg(home, *arguments, **more):
    return subprocess.run(
        ["gpg", "--homedir", home, "--batch", "--quiet", *arguments], capture_output=True, check=True, **more
    )


def gpgs(path):
    """What gpg says are the fingerprints of the primary keys in a file."""
    said = subprocess.run(["gpg", "--with-colons", "--show-keys", path], capture_output=True, text=True, check=True)
    # Debian's have a line between a key and its fingerprint, which names who may revoke it
    return re.findall(r"^pub:.*\n(?:(?!fpr:).*\n)*fpr:::::::::(\w+):", said.stdout, re.MULTILINE)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Two keys by gpg, an old kind with subkeys and a new one: their folder, which holds them in both forms."""
    folder = tmp_path_factory.mktemp("keys")
    home = folder / "gnupg"
    home.mkdir(mode=0o700)
    for name, kind in (("one", "rsa2048"), ("two", "ed25519")):
        gpg(home, "--passphrase", "", "--quick-generate-key", f"{name} <{name}@x>", kind, "default", "never")
        gpg(home, "--armor", "-o", folder / f"{name}.asc", "--export", name)
        gpg(home, "-o", folder / f"{name}.gpg", "--export", name)
    gpg(home, "--armor", "-o", folder / "both.asc", "--export")
    subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=False)
    (folder / "page.asc").write_text("<html>log in</html>\n")
    (folder / "empty.asc").touch()
    whole = (folder / "one.gpg").read_bytes()
    (folder / "cut.asc").write_bytes(whole[:100])
    return folder


@pytest.mark.parametrize("name", ["one.asc", "one.gpg", "two.asc", "two.gpg", "both.asc"])
def test_fingerprints_are_those_that_gpg_counts(keys, name):
    expected = gpgs(keys / name)
    assert len(expected) == (2 if name == "both.asc" else 1)
    assert fingerprints((keys / name).read_bytes()) == expected


@pytest.mark.parametrize("path", DEBIANS, ids=lambda path: path.name)
def test_debians_own_keys_count_as_gpg_counts_them(path):
    assert fingerprints(path.read_bytes()) == gpgs(path)


def test_there_are_keys_of_debian_to_count():
    assert DEBIANS or not Path("/usr/share/keyrings/debian-archive-keyring.gpg").exists()


@pytest.mark.parametrize("name", ["page.asc", "empty.asc", "cut.asc"])
def test_what_is_no_key_has_no_fingerprint(keys, name):
    assert fingerprints((keys / name).read_bytes()) == []


def test_a_key_without_armour_gets_one_that_gpg_reads(keys, tmp_path):
    (tmp_path / "key.asc").write_bytes(armoured((keys / "one.gpg").read_bytes()))
    assert gpgs(tmp_path / "key.asc") == gpgs(keys / "one.asc")
    assert armoured((keys / "one.asc").read_bytes()) == (keys / "one.asc").read_bytes()


def test_only_the_expected_key_passes(keys):
    one, two = gpgs(keys / "one.asc")[0], gpgs(keys / "two.asc")[0]
    text = (keys / "one.asc").read_bytes()
    check_key(text, [one], "x")
    check_key(text, [two, " ".join(one[i : i + 4] for i in range(0, 40, 4)).lower()], "x")
    check_key((keys / "both.asc").read_bytes(), [one, two], "x")
    for content, expected, words in [
        (text, [two], [f"has the fingerprint {one}", f"expected is {two}"]),
        # one key more than expected would be trusted as well
        ((keys / "both.asc").read_bytes(), [one], [two]),
        (text, [], ["nothing is trusted unseen"]),
        (b"<html>", [one], ["holds no OpenPGP key", one]),
        # the short id is not enough
        (text, [one[-16:]], [one[-16:], "40 or 64 hexadecimal digits"]),
        (text, [""], ["is no fingerprint"]),
        (text, [one, "unknown"], ["UNKNOWN is no fingerprint"]),
    ]:
        with pytest.raises(RepositoryError) as error:
            check_key(content, expected, "x")
        for word in words:
            assert word in str(error.value)


@pytest.fixture
def served(keys):
    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=keys)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def module(name, **arguments):
    """Runs a module of ours as root would have it; its answer."""
    check = arguments.pop("check", False)
    given = {"ANSIBLE_MODULE_ARGS": {**arguments, "_ansible_check_mode": check, "_ansible_remote_tmp": "/tmp"}}
    program = (
        "import sys, runpy, ansible.module_utils, types\n"
        f"sys.path.insert(0, {str(ROOT / 'module_utils')!r})\n"
        "import tandem_apt; sys.modules['ansible.module_utils.tandem_apt'] = tandem_apt\n"
        "from ansible.module_utils import basic\n"
        f"basic._ANSIBLE_ARGS = {json.dumps(given)!r}.encode(); basic._ANSIBLE_PROFILE = 'legacy'\n"
        f"runpy.run_path({str(ROOT / 'library' / (name + '.py'))!r}, run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_a_key_is_put_there_once_and_replaced_when_it_is_another(keys, served, tmp_path):
    one, two = gpgs(keys / "one.asc")[0], gpgs(keys / "two.asc")[0]
    path = tmp_path / "keyrings/vendor.asc"
    wish = {"path": str(path), "url": f"{served}/one.asc", "fingerprints": [one]}
    predicted = module("apt_key_file", check=True, **wish)
    assert predicted["changed"] and not path.exists() and predicted["diff"]["after"] == one + "\n"
    assert module("apt_key_file", **wish)["changed"]
    assert path.read_bytes() == (keys / "one.asc").read_bytes() and path.stat().st_mode & 0o777 == 0o644
    # nothing is fetched for a box that has it
    assert not module("apt_key_file", **wish | {"url": "http://127.0.0.1:9/gone"})["changed"]
    path.chmod(0o600)
    assert module("apt_key_file", **wish)["changed"] and path.stat().st_mode & 0o777 == 0o644
    # rotation: another key is expected from now on
    rotated = module("apt_key_file", **wish | {"url": f"{served}/two.gpg", "fingerprints": [two]})
    assert rotated["diff"]["before"] == one + "\n" and rotated["diff"]["after"] == two + "\n"
    assert gpgs(path) == [two]
    # and what nobody can read is replaced as well
    path.write_text("<html>")
    assert module("apt_key_file", **wish)["changed"] and gpgs(path) == [one]


@pytest.mark.parametrize("name", ["two.asc", "both.asc", "page.asc", "empty.asc", "nowhere.asc"])
def test_another_key_is_refused_and_leaves_what_is_there(keys, served, tmp_path, name):
    one = gpgs(keys / "one.asc")[0]
    path = tmp_path / "vendor.asc"
    path.write_text("what was there")
    answer = module("apt_key_file", path=str(path), url=f"{served}/{name}", fingerprints=[one])
    assert answer["failed"] and "Nothing was entered" in answer["msg"], answer
    assert one in answer["msg"] or "404" in answer["msg"]
    assert path.read_text() == "what was there"


def test_apts_and_hosts_helper_are_one():
    from host_fixtures import host_info
    from tandem_apt import HELPER

    assert host_info.APT_HELPER == HELPER
