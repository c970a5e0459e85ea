"""Facts of boxes that nobody has read: fixtures/hosts/, with changes laid over them."""

import copy
from pathlib import Path

import yaml

FOLDER = Path(__file__).parent / "fixtures/hosts"


def host(name="bare", **changes):
    """The fixture `name` over bare.yml, with `changes`, whose names are paths into it: gpus_on_pci__1__device."""
    info = yaml.safe_load((FOLDER / "bare.yml").read_text())
    if name != "bare":
        info |= yaml.safe_load((FOLDER / f"{name}.yml").read_text())
    info = copy.deepcopy(info)
    for path, value in changes.items():
        *parents, last = [int(part) if part.isdigit() else part for part in path.split("__")]
        target = info
        for part in parents:
            target = target[part]
        target[last] = value
    return info
