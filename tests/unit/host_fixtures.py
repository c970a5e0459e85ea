"""Facts of boxes that nobody has read: fixtures/hosts/ with changes laid over them, in the shape of host_info's."""

import copy
import importlib.util
from pathlib import Path

import yaml

FOLDER = Path(__file__).parent / "fixtures/hosts"

spec = importlib.util.spec_from_file_location("host_info", Path(__file__).parents[2] / "library/host_info.py")
host_info = importlib.util.module_from_spec(spec)
spec.loader.exec_module(host_info)

FACTS = yaml.safe_load(host_info.RETURN)["host_info"]
TYPES = {"str": str, "bool": bool, "int": int, "float": (float, int), "list": list, "dict": dict}


def differences(value, documented, where):
    """What of `value` is not as `documented`: a name in capitals is every key, null may be where the text says so."""
    if value is None:
        said = str(documented["description"]).lower()
        return [] if "null" in said else [f"{where} is null"]
    if not isinstance(value, TYPES[documented["type"]]) or (isinstance(value, bool) != (documented["type"] == "bool")):
        return [f"{where} is {type(value).__name__}, documented is {documented['type']}"]
    contains = documented.get("contains", {})
    if documented["type"] == "list":
        element = {"type": documented["elements"], "description": "", "contains": contains}
        return [found for item in value for found in differences(item, element, where + "[]")]
    if documented["type"] != "dict":
        return []
    if not contains:
        return [f"{where} is a dict whose keys are not documented"]
    if len(contains) == 1 and next(iter(contains)).isupper():
        contains = dict.fromkeys(value, next(iter(contains.values())))
    found = [f"{where}.{key} is not documented" for key in value if key not in contains]
    for key, inner in contains.items():
        found += differences(value[key], inner, f"{where}.{key}") if key in value else [f"{where} lacks {key}"]
    return found


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
    wrong = differences(info, FACTS, name)
    assert wrong == [], f"host_info cannot say so: {wrong}"
    return info
