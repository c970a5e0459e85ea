"""Words and values for systemd unit files."""

from __future__ import annotations

from ansible.errors import AnsibleFilterError


def systemd_word(value) -> str:
    """`value` as one word of an Exec line: quoted, with systemd's specifiers (%) and variables ($) taken literally.

    See systemd.service(5), COMMAND LINES. Raises AnsibleFilterError for a line break, which a unit cannot hold.
    """
    text = str(value)
    if "\n" in text:
        raise AnsibleFilterError(f"a line of a systemd unit cannot hold a line break: {text!r}")
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{text}"'


class FilterModule:
    def filters(self):
        return {"systemd_word": systemd_word}
