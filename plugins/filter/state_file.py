# SPDX-License-Identifier: Apache-2.0
"""Files of ours that a box or the controller keeps between runs: one that is damaged counts as none. Pure."""

from __future__ import annotations

import base64
import json


def state_object(read):
    """The JSON object in a file, out of the result of slurp (also a failed or skipped one); None for anything else."""
    content = (read or {}).get("content")
    if not isinstance(content, str):
        return None
    try:
        return object_of(base64.b64decode(content).decode())
    except ValueError:
        return None


def object_of(text):
    """The JSON object in `text`, or None."""
    try:
        found = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


class FilterModule:
    """Ansible's entry point."""

    def filters(self):
        return {"state_object": state_object, "object_of": object_of}
