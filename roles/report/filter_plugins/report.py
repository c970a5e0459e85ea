# SPDX-License-Identifier: Apache-2.0
"""Filter report_page: the page out of a folder of results."""

from __future__ import annotations

import sys
from pathlib import Path

from ansible.errors import AnsibleFilterError


def report_page(folder):
    """{file, html, files, unknown} of the JSON files below `folder`.

    file     where the page belongs: index.html in the folder of the newest result's day
    html     the page
    files    how many files it was made of
    unknown  sentences about files that are not understood
    """
    root = Path(folder).resolve()
    if not root.is_dir():
        raise AnsibleFilterError(
            f"report_folder is {root}, and there is no such folder. Measure first, with playbooks/bench.yml, "
            "or name another folder"
        )
    try:
        tandem_report = _package()
        texts = {
            str(path.relative_to(root)): path.read_text(encoding="utf-8", errors="replace")
            for path in sorted(root.rglob("*.json"))
        }
        made = tandem_report.page(texts)
    except ImportError as error:
        raise AnsibleFilterError(
            f"{error}: the charts need it, and this controller's Python ({sys.executable}) does not have it; "
            "make controller installs it"
        ) from error
    except ValueError as error:
        raise AnsibleFilterError(f"report_folder is {root}: {error}") from error
    return {
        "file": str(root / made.day / "index.html"),
        "html": made.html,
        "files": made.files,
        "unknown": [f"not understood: {file}: {why}" for file, why in made.unknown],
    }


def _package():
    python = str(Path(__file__).resolve().parents[1] / "python")
    if python not in sys.path:
        sys.path.insert(0, python)
    import tandem_report.page

    return tandem_report.page


class FilterModule:
    """Ansible's entry point."""

    def filters(self):
        return {"report_page": report_page}
