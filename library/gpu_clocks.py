#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: NVIDIA GPU clock locks and power limits."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_clocks
short_description: Lock the clocks of NVIDIA GPUs and limit their power
description:
  - Locks GPU clocks (and, where wanted, memory clocks), sets the power limit and persistence mode through NVML.
  - NVML can set a clock lock and cannot be asked whether one is in force. What was set is therefore recorded in
    C(/run/tandem/gpu-clocks.json) together with signs of the driver initialisation in which it was set (boot id, inode
    of the loaded module, driver version, start of nvidia-persistenced, persistence mode, power limit, energy counter,
    time suspended), and the record is believed only while none of them has changed and no clock is seen above the lock.
  - Reports C(changed) when something was not as wished or could not be believed to be, never because a setter was
    called.
requirements:
  - On the managed host the NVIDIA driver with C(libnvidia-ml.so.1), 535 or newer.
  - On the managed host nvidia-ml-py, installed or as C(/usr/local/lib/tandem/pynvml.py).
options:
  state:
    description: Whether the clocks are to be locked. With V(unlocked) GPU and memory clock locks are reset.
    type: str
    choices: [locked, unlocked]
    default: locked
  min_mhz:
    description: Lowest GPU clock in MHz. V(0) lets idle clocks fall.
    type: int
    default: 0
  max_mhz:
    description:
      - Highest GPU clock in MHz. Needed with O(state=locked).
      - A value between two clocks of the card is taken down to the lower one, with a warning, or refused with
        O(strict_steps).
    type: int
  memory_min_mhz:
    description: Lowest memory clock in MHz. Needs O(memory_max_mhz).
    type: int
  memory_max_mhz:
    description:
      - Highest memory clock in MHz.
      - Without it memory clocks are left alone, except that a memory lock which this module has set is taken back.
    type: int
  memory_required:
    description: Whether a card that cannot lock its memory clock is an error. Otherwise it is a warning.
    type: bool
    default: false
  power_limit_w:
    description:
      - Power limit in watts, or V(default) for the card's own. Steps of 1 W work.
      - Without it the power limit is left alone.
    type: raw
  persistence_mode:
    description:
      - Persistence mode of the driver. nvidia-persistenced should keep it on.
      - With V(false) the driver forgets lock and power limit when the last program that uses the GPU ends. They are
        then never believed, and every run reports a change.
    type: bool
    default: true
  gpus:
    description: V(all), or a list of GPU UUIDs or indexes.
    type: raw
    default: all
  expected_gpus:
    description: How many GPUs the driver must see at least. The ones that it sees are done even when one is missing.
    type: int
  reapply:
    description:
      - V(always) calls the setters of the locks in every run. It is the only guard against a foreign
        C(nvidia-smi -rgc), does no harm to a running program, and does not count as a change.
      - V(on_drift) calls them only when the lock is not believed to be in force.
    type: str
    choices: [always, on_drift]
    default: always
  strict_steps:
    description: Whether to refuse a clock that the card does not have, rather than take the next lower one.
    type: bool
    default: false
  persistent:
    description:
      - Whether to make this the box's desired state in C(/etc/tandem/gpu-clocks.json), which the boot unit and the
        check timer (role gpu_clocks) put in force.
      - With V(false) the wish lasts until the next of them runs; a warning says so when the desired state is another.
    type: bool
    default: false
  wait_seconds:
    description:
      - How long the boot unit waits for driver and O(expected_gpus). Goes into the desired state with O(persistent).
    type: int
    default: 60
  timeout:
    description: Seconds after which a driver that does not answer is given up, so that the play does not hang.
    type: int
    default: 30
attributes:
  check_mode:
    description: Writes nothing and calls no setter; predicts actions and changes.
    support: full
    details:
      - Where driver, library or nvidia-ml-py are not there yet, a change is predicted with a warning, not a failure.
  diff_mode:
    description: Shows persistence mode, power limit, clock locks, the desired state, and the evidence.
    support: full
  idempotent:
    description: A second run changes nothing.
    support: partial
    details:
      - With O(persistence_mode=false) nothing can be believed, so every run reports a change.
author:
  - tandem (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Lock both cards to at most 2100 MHz
  gpu_clocks:
    max_mhz: 2100

- name: Lock the clocks, limit the power, and keep it so over reboots
  gpu_clocks:
    max_mhz: 2100
    power_limit_w: 350
    expected_gpus: 2
    persistent: true

- name: Pin one card for a measurement
  gpu_clocks:
    min_mhz: 1800
    max_mhz: 1800
    strict_steps: true
    gpus:
      - GPU-5f3a2c1e-0000-1111-2222-333344445555

- name: Take the lock and the power limit back
  gpu_clocks:
    state: unlocked
    power_limit_w: default
"""

RETURN = r"""
gpus:
  description: What was found and done per GPU, in the order of O(gpus).
  returned: when the driver answers
  type: list
  elements: dict
  contains:
    index:
      description: NVML index, in PCI bus order.
      type: int
      sample: 0
    uuid:
      description: UUID of the GPU.
      type: str
      sample: GPU-5f3a2c1e-0000-1111-2222-333344445555
    name:
      description: Product name.
      type: str
      sample: NVIDIA GeForce RTX 4090
    belief:
      description:
        - What the run believed about the lock when it came.
        - C(no_record) nothing of this boot says what was set; C(stale) a sign shows that the initialisation in which
          it was set has ended; C(contradicted) the clock runs above the lock; C(confirmed) none of these.
      type: str
      sample: confirmed
    evidence:
      description: Why, as sentences.
      type: list
      elements: str
    before:
      description:
        - C(persistence_mode), C(power_limit_w), C(gpu_lock) and C(memory_lock) as found. A lock not believed is
          C(unknown).
      type: dict
      sample: {persistence_mode: true, power_limit_w: 450.0, gpu_lock: unknown, memory_lock: unknown}
    after:
      description: The same afterwards; in check mode as predicted.
      type: dict
      sample: {persistence_mode: true, power_limit_w: 450.0, gpu_lock: 0-2100 MHz, memory_lock: unlocked}
    actions:
      description: Setters called, or in check mode those that would be.
      type: list
      elements: str
      sample: ["nvmlDeviceSetGpuLockedClocks(0, 2100)"]
    changes:
      description: What was not as wished. Empty when only setters were repeated.
      type: list
      elements: dict
      sample: [{setting: gpu_lock, before: unknown, after: 0-2100 MHz}]
    sm_mhz:
      description: Highest of three samples of the SM clock.
      type: int
      sample: 210
    power_draw_w:
      description: Power drawn now, in watts.
      type: float
      sample: 22.5
    errors:
      description: What failed on this GPU, one sentence each.
      type: list
      elements: str
driver_version:
  description: Version of the driver.
  returned: when the driver answers
  type: str
  sample: 580.95.05
gpus_seen:
  description: Number of GPUs that the driver sees.
  returned: when the driver answers
  type: int
  sample: 2
errors:
  description: Every fault, one sentence with a way out each.
  returned: when the driver answers
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tandem_gpu_clocks import label, run
from ansible.module_utils.tandem_gpu_nvml import Fault, Host, NvmlUnavailable
from ansible.module_utils.tandem_gpu_record import DESIRED, read_json, write_json
from ansible.module_utils.tandem_gpu_wish import Wish, WishError

# Options that say how to run, not what to wish.
CONTROLS = ("reapply", "persistent", "wait_seconds", "timeout")


def main():
    """Entry point: the logic is in module_utils, here it meets Ansible."""
    module = AnsibleModule(
        argument_spec={
            "state": {
                "type": "str",
                "choices": ["locked", "unlocked"],
                "default": "locked",
            },
            "min_mhz": {"type": "int", "default": 0},
            "max_mhz": {"type": "int"},
            "memory_min_mhz": {"type": "int"},
            "memory_max_mhz": {"type": "int"},
            "memory_required": {"type": "bool", "default": False},
            "power_limit_w": {"type": "raw"},
            "persistence_mode": {"type": "bool", "default": True},
            "gpus": {"type": "raw", "default": "all"},
            "expected_gpus": {"type": "int"},
            "reapply": {
                "type": "str",
                "choices": ["always", "on_drift"],
                "default": "always",
            },
            "strict_steps": {"type": "bool", "default": False},
            "persistent": {"type": "bool", "default": False},
            "wait_seconds": {"type": "int", "default": 60},
            "timeout": {"type": "int", "default": 30},
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        wish = Wish.parse({name: value for name, value in params.items() if name not in CONTROLS})
    except WishError as exc:
        module.fail_json(msg=str(exc), errors=exc.problems)
    if params["timeout"] < 1:
        module.fail_json(msg=f"timeout ({params['timeout']}) must be at least 1 second")

    diff = []
    try:
        desired_changed = _desired_state(module, wish, diff)
        result = run(wish, params["reapply"], module.check_mode, params["timeout"])
    except NvmlUnavailable as exc:
        if not module.check_mode:
            module.fail_json(msg=str(exc), nvml_code=exc.code)
        # On a bare box the tasks before this one would have installed the driver, had they been allowed to.
        module.warn(f"the GPUs cannot be asked yet, so a change is predicted: {exc}")
        module.exit_json(changed=True, gpus=[], diff=diff)
    except Fault as exc:
        module.fail_json(msg=str(exc))
    except OSError as exc:
        module.fail_json(msg=f"{exc.filename}: {exc.strerror}: run with become: true, or as root")

    for warning in result.pop("warnings"):
        module.warn(warning)
    result["changed"] = result["changed"] or desired_changed
    result["diff"] = diff + _diff(result["gpus"])
    if result["errors"]:
        module.fail_json(msg="; ".join(result["errors"]), **result)
    module.exit_json(**result)


def _desired_state(module, wish, diff):
    """Write the desired state when it is to be persistent; else warn when it is another. Returns whether it changed."""
    path = Host().path(DESIRED)
    try:
        now = read_json(path)
    except Fault:
        if not module.params["persistent"]:
            raise
        now = {}
    wanted = {**wish.as_dict(), **{name: module.params[name] for name in ("reapply", "wait_seconds", "timeout")}}
    if module.params["persistent"]:
        if now == wanted:
            return False
        diff.append(
            {
                "before_header": path,
                "after_header": path,
                "before": now or {},
                "after": wanted,
            }
        )
        if not module.check_mode:
            # First, so that the units retry what may fail below.
            write_json(path, wanted, 0o644)
        return True
    settings = (
        "state",
        "min_mhz",
        "max_mhz",
        "memory_min_mhz",
        "memory_max_mhz",
        "power_limit_w",
    )
    others = [name for name in settings if now is not None and now.get(name) != wanted[name]]
    if others:
        module.warn(
            f"the box's desired state ({path}) has another {', '.join(others)} and is put in force again by the check "
            "timer and at every engine start: use persistent: true to change it"
        )
    return False


def _diff(gpus):
    diff = []
    for gpu in gpus:
        before = {**gpu["before"], "belief": gpu["belief"], "evidence": gpu["evidence"]}
        after = {**gpu["after"], "belief": "confirmed", "evidence": gpu["evidence"]} if gpu["changes"] else before
        diff.append(
            {
                "before_header": label(gpu),
                "after_header": label(gpu),
                "before": before,
                "after": after,
            }
        )
    return diff


if __name__ == "__main__":
    main()
