"""Other entries for a repository, taken out of APT's source files."""

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
