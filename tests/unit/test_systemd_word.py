"""Words of a unit, checked against what systemd makes of them."""

import shutil
import subprocess

import pytest
from ansible.errors import AnsibleFilterError
from systemd import systemd_word  # plugins/filter/systemd.py, see conftest.py

AWKWARD = ["plain", "two words", '{"a":1}', "100%", "$HOME", "${HOME}", "back\\slash", 'quo"te', "it's", "%n", ""]


@pytest.mark.parametrize("text", AWKWARD)
def test_a_word_is_quoted(text):
    word = systemd_word(text)
    assert word[0] == word[-1] == '"'
    assert "\n" not in word


def test_specifiers_variables_and_quotes_are_literal():
    assert systemd_word('%n $HOME "x" \\') == '"%%n $$HOME \\"x\\" \\\\"'


def test_a_line_break_is_refused():
    with pytest.raises(AnsibleFilterError, match="line break"):
        systemd_word("a\nb")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_takes_every_awkward_word(tmp_path):
    unit = tmp_path / "words.service"
    unit.write_text(
        "[Unit]\nDescription=words\n[Service]\nExecStart=/bin/echo " + " ".join(map(systemd_word, AWKWARD)) + "\n"
    )
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert "words.service" not in done.stderr, done.stderr
