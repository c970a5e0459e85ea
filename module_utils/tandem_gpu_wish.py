# SPDX-License-Identifier: Apache-2.0
"""What is wanted of a box's GPU clocks and power, and which wishes make no sense on any card.

No Ansible and no NVML in here: the modules, the boot program and the role's preflight (on the controller) share it.
What only the card can tell (its range, its grid, its power constraints) is checked in tandem_gpu_clocks.py.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields

# pynvml hands any Python integer to C as an unsigned int: -1 and 2**32 wrap silently. No card is near this.
MHZ_CEILING = 20000
WATT_CEILING = 2000
UUID = re.compile(r"GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class WishError(ValueError):
    """The wish makes no sense. `problems` holds one sentence per fault."""

    def __init__(self, problems):
        self.problems = list(problems)
        super().__init__("; ".join(self.problems))


@dataclass(frozen=True)
class Wish:
    """Clocks in MHz, power in W. `gpus` is ("all",), or UUIDs and indexes as strings."""

    state: str = "locked"
    min_mhz: int = 0
    max_mhz: int | None = None
    memory_min_mhz: int | None = None
    memory_max_mhz: int | None = None
    memory_required: bool = False
    power_limit_w: float | str | None = None
    persistence_mode: bool = True
    gpus: tuple = ("all",)
    expected_gpus: int | None = None
    strict_steps: bool = False

    @classmethod
    def parse(cls, options, prefix=""):
        """A Wish from plain data (module options, role variables, the desired-state file).

        Numbers may be strings, as `-e` and templates make them. Raises WishError, each sentence naming the
        setting with `prefix` before it.
        """
        known = {field.name for field in fields(cls)}
        problems = [
            f"{prefix}{name} is not a setting: known are {', '.join(sorted(known))}"
            for name in sorted(set(options) - known)
        ]
        values = {}
        for name in known & set(options):
            try:
                values[name] = _CONVERT[name](options[name])
            except ValueError as exc:
                problems.append(f"{prefix}{name} ({options[name]}) {exc}")
        if not problems:
            wish = cls(**values)
            problems = list(wish.problems(prefix))
        if problems:
            raise WishError(problems)
        return wish

    def as_dict(self):
        """Plain data that JSON can hold and parse() reads back."""
        return {**asdict(self), "gpus": list(self.gpus)}

    def problems(self, prefix=""):
        """Sentences about settings that contradict each other or no card could take."""
        if self.state == "locked":
            if self.max_mhz is None:
                yield (
                    f"{prefix}max_mhz is missing: {prefix}state locked needs the highest clock to allow, such as 2100 "
                    "(the field report's stable value)"
                )
            elif self.max_mhz == 0:
                yield f"{prefix}max_mhz (0) would stop the GPU: give the highest clock to allow, such as 2100"
            elif self.min_mhz > self.max_mhz:
                yield (
                    f"{prefix}min_mhz ({self.min_mhz}) is above {prefix}max_mhz ({self.max_mhz}): "
                    f"lower {prefix}min_mhz (0 lets idle clocks fall) or raise {prefix}max_mhz"
                )
            if self.memory_max_mhz is None and (self.memory_min_mhz is not None or self.memory_required):
                named = "memory_min_mhz" if self.memory_min_mhz is not None else "memory_required"
                yield f"{prefix}{named} is set without {prefix}memory_max_mhz: set both or neither"
            elif self.memory_max_mhz is not None and (self.memory_min_mhz or 0) > self.memory_max_mhz:
                yield (
                    f"{prefix}memory_min_mhz ({self.memory_min_mhz}) is above {prefix}memory_max_mhz "
                    f"({self.memory_max_mhz}): lower the one or raise the other"
                )
        if self.expected_gpus is not None and "all" not in self.gpus and self.expected_gpus < len(self.gpus):
            yield (
                f"{prefix}expected_gpus ({self.expected_gpus}) is fewer than the {len(self.gpus)} entries of "
                f"{prefix}gpus: raise it or shorten the list"
            )

    @property
    def gpu_lock(self):
        """[min, max] MHz, or None for unlocked."""
        return [self.min_mhz, self.max_mhz] if self.state == "locked" else None

    @property
    def memory_lock(self):
        """[min, max] MHz, or None when no memory lock is wanted."""
        if self.state != "locked" or self.memory_max_mhz is None:
            return None
        return [self.memory_min_mhz or 0, self.memory_max_mhz]


def _state(value):
    if value not in ("locked", "unlocked"):
        raise ValueError("must be locked or unlocked")
    return value


def _integer(value, low, high, unit):
    text = str(value).strip()
    if isinstance(value, bool) or not re.fullmatch(r"[+-]?\d+", text):
        raise ValueError(f"is no whole number: give {unit} from {low} to {high}")
    if not low <= int(text) <= high:
        raise ValueError(f"is out of range: give {unit} from {low} to {high}")
    return int(text)


def _mhz(value):
    return _integer(value, 0, MHZ_CEILING, "MHz")


def _optional_mhz(value):
    return None if value is None or value == "" else _mhz(value)


def _watts(value):
    if value is None or value == "":
        return None
    if value == "default":
        return value
    try:
        watts = float(value)
    except (TypeError, ValueError):
        watts = 0.0
    if isinstance(value, bool) or not 1 <= watts <= WATT_CEILING:
        raise ValueError(f"is no power limit: give watts from 1 to {WATT_CEILING}, or default, or leave it out")
    return int(watts) if watts == int(watts) else watts


def _flag(value):
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in ("true", "yes", "on", "1"):
        return True
    if text in ("false", "no", "off", "0"):
        return False
    raise ValueError("must be true or false")


def _count(value):
    return None if value is None or value == "" else _integer(value, 1, 64, "a number of GPUs")


def _gpus(value):
    entries = value.split(",") if isinstance(value, str) else value
    if isinstance(entries, int) and not isinstance(entries, bool):
        entries = [entries]
    if not isinstance(entries, (list, tuple)) or not entries:
        raise ValueError("must be all, or a list of GPU UUIDs or indexes")
    names = tuple(str(entry).strip() for entry in entries)
    for name in names:
        if name != "all" and not re.fullmatch(r"\d{1,2}", name) and not UUID.fullmatch(name):
            raise ValueError(f"holds {name!r}: give all, indexes such as 0, or whole UUIDs such as gpu_info lists")
    if "all" in names and len(names) > 1:
        raise ValueError("holds all beside other entries: give one or the other")
    if len(set(names)) != len(names):
        raise ValueError("names a GPU twice")
    return names


_CONVERT = {
    "state": _state,
    "min_mhz": _mhz,
    "max_mhz": _optional_mhz,
    "memory_min_mhz": _optional_mhz,
    "memory_max_mhz": _optional_mhz,
    "memory_required": _flag,
    "power_limit_w": _watts,
    "persistence_mode": _flag,
    "gpus": _gpus,
    "expected_gpus": _count,
    "strict_steps": _flag,
}
