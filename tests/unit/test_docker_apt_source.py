"""Other entries for a repository, taken out of APT's source files."""

import pytest
from apt_source import apt_without  # plugins/filter/apt_source.py, see conftest.py

PATTERN = r"/(libnvidia-container|nvidia-docker|nvidia-container-runtime)/"
LEGACY = (
    "deb [signed-by=/usr/share/keyrings/nvidia.gpg] https://nvidia.github.io/libnvidia-container/stable/deb/$(ARCH) /\n"
)
DEBIAN = "deb http://deb.debian.org/debian trixie main\n"


def test_a_file_of_nothing_else_is_left_empty():
    assert apt_without(LEGACY, "/etc/apt/sources.list.d/nvidia-container-toolkit.list", PATTERN) == ""
    assert apt_without("# generated\n" + LEGACY, "nvidia.list", PATTERN) == ""


def test_other_lines_and_comments_stay():
    text = "# mine\n" + DEBIAN + LEGACY + "# deb https://nvidia.github.io/nvidia-docker/ubuntu18.04/amd64 /\n"
    after = "# mine\n" + DEBIAN + "# deb https://nvidia.github.io/nvidia-docker/ubuntu18.04/amd64 /\n"
    assert apt_without(text, "/etc/apt/sources.list", PATTERN) == after


def test_stanzas_are_taken_out_whole():
    keep = "Types: deb\nURIs: http://deb.debian.org/debian\nSuites: trixie\nComponents: main\n"
    drop = "Types: deb\nURIs: https://nvidia.github.io/libnvidia-container/stable/deb/\nSuites: /\n"
    assert apt_without(keep + "\n" + drop, "/etc/apt/sources.list.d/all.sources", PATTERN) == keep
    assert apt_without(drop, "/etc/apt/sources.list.d/nvidia.sources", PATTERN) == ""


def test_a_file_without_such_an_entry_stays_as_it_is():
    assert apt_without(DEBIAN, "/etc/apt/sources.list", PATTERN) == DEBIAN


DOCKER = r"^https?://download\.docker\.com/linux/"
OLD = "deb [arch=amd64 signed-by=/etc/apt/keyrings/docker.gpg] https://download.docker.com/linux/debian trixie stable\n"


def stanza(uris, extra=""):
    return f"Types: deb\nURIs: {uris}\nSuites: trixie\nComponents: stable\n{extra}"


@pytest.mark.parametrize(
    "line",
    [
        OLD,
        OLD.replace("[arch=amd64 signed-by=/etc/apt/keyrings/docker.gpg] ", ""),
        OLD.replace("[arch", "[ arch").replace(".gpg]", ".gpg ]"),
        OLD.replace("deb ", "deb-src ", 1),
        OLD.replace("] ", "]\t"),
        "  " + OLD.replace("https", "http"),
        OLD.rstrip() + " # mine\n",
    ],
)
def test_a_line_goes_by_its_address(line):
    """The report that this came from: a pattern for addresses was searched in whole lines, and its ^ never matched."""
    assert apt_without(line, "/etc/apt/sources.list.d/docker.list", DOCKER) == ""
    assert apt_without(DEBIAN + line + DEBIAN, "/etc/apt/sources.list", DOCKER) == DEBIAN + DEBIAN


@pytest.mark.parametrize(
    "entry",
    [
        "deb [signed-by=/usr/share/keyrings/cuda/debian12/key.gpg] http://deb.debian.org/debian trixie main\n",
        "deb http://deb.debian.org/debian trixie main # https://download.docker.com/linux/debian\n",
        "# " + OLD + DEBIAN,
    ],
)
def test_what_only_looks_like_an_address_stays(entry):
    assert apt_without(entry, "/etc/apt/sources.list", r"/(cuda/debian[0-9]+|linux)/") == entry


def test_of_several_addresses_in_a_stanza_the_others_stay():
    text = stanza("https://download.docker.com/linux/debian\n https://mirror.example/docker", "Signed-By: /etc/k.gpg\n")
    after = stanza("https://mirror.example/docker", "Signed-By: /etc/k.gpg\n")
    assert apt_without(text, "docker.sources", DOCKER) == after
    assert apt_without(text.replace("\n https://mirror.example/docker", ""), "docker.sources", DOCKER) == ""


@pytest.mark.parametrize("word", ["no", "0", "False"])
def test_a_stanzas_other_fields_comments_and_switch_are_no_addresses(word):
    other = stanza("http://deb.debian.org/debian", "Signed-By: /k/https://download.docker.com/linux/x\n")
    assert apt_without(other, "a.sources", "download.docker.com/linux/") == other
    comment = stanza("http://deb.debian.org/debian\n# https://download.docker.com/linux/debian")
    assert apt_without(comment, "a.sources", DOCKER) == comment
    off = stanza("https://download.docker.com/linux/debian", f"Enabled: {word}\n")
    assert apt_without(off, "a.sources", DOCKER) == off
    both = f"# mine\n\n{off}\n \n{stanza('https://download.docker.com/linux/debian')}"
    assert apt_without(both, "a.sources", DOCKER) == f"# mine\n\n{off}"
