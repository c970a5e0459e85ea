#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: what the NVIDIA driver and GPUs of a box are and do."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_info
short_description: Tell what NVIDIA driver and GPUs a box has
description:
  - Asks NVML for driver, library and CUDA versions and for every GPU, in one call to the box.
  - A box without a driver is no failure. It answers RV(gpu_info.available=false) and the reason.
requirements:
  - For more than the reason, on the managed host the driver, and nvidia-ml-py, installed or as
    C(/usr/local/lib/tandem/pynvml.py).
options:
  sample_seconds:
    description: How long to watch clocks and power of every GPU. V(0) does not.
    type: float
    default: 0
  sample_interval:
    description: Seconds between two samples.
    type: float
    default: 0.1
  timeout:
    description: Seconds after which a driver that does not answer is given up, so that the play does not hang.
    type: int
    default: 30
attributes:
  check_mode:
    description: Changes nothing, in check mode and without.
    support: full
  diff_mode:
    description: There is nothing to show.
    support: none
  idempotent:
    description: Changes nothing.
    support: full
author:
  - tandem (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Look at the cards
  gpu_info:
  register: cards

- name: Watch the clocks for ten seconds while the engine works
  gpu_info:
    sample_seconds: 10
  register: cards
"""

RETURN = r"""
gpu_info:
  description: The box's driver and GPUs. Values that a card does not tell are null.
  returned: always
  type: dict
  contains:
    available:
      description: Whether NVML answers.
      type: bool
    reason:
      description: Why it does not, as a sentence with a way out.
      type: str
    nvml_code:
      description: NVML's return code when it does not; null when Python's binding is missing.
      type: int
    driver_version:
      description: Version that NVML reports for the driver.
      type: str
      sample: 580.95.05
    nvml_version:
      description: Version of the library.
      type: str
      sample: 13.580.95.05
    cuda_version:
      description: Newest CUDA version that the driver supports.
      type: str
      sample: "13.0"
    module_version:
      description: Version of the loaded kernel module.
      type: str
    installed_module_version:
      description: Version of the kernel module on disk, which the next load would load.
      type: str
    reboot_needed:
      description: Whether a reboot, or reloading the module, is needed. What is loaded differs from what is installed.
      type: bool
    reboot_reason:
      description: Why.
      type: str
    persistenced:
      description: Whether nvidia-persistenced is running.
      type: bool
    failed:
      description: GPUs that do not answer, or ceased to during O(sample_seconds).
      type: list
      elements: dict
      contains:
        index:
          description: NVML index, which stays when a card is lost.
          type: int
        uuid:
          description: UUID; null where the card does not tell it any more.
          type: str
        code:
          description: NVML's return code.
          type: int
          sample: 15
        call:
          description: The call that failed.
          type: str
          sample: nvmlDeviceGetHandleByIndex
        says:
          description: What that means and what to do, as a sentence.
          type: str
    errors:
      description: The sentences of RV(gpu_info.failed).
      type: list
      elements: str
    gpus:
      description: Every GPU that answers.
      type: list
      elements: dict
      contains:
        index:
          description: NVML index, in PCI bus order.
          type: int
        uuid:
          description: UUID of the GPU.
          type: str
        name:
          description: Product name.
          type: str
          sample: NVIDIA GeForce RTX 4090
        pci_bus_id:
          description: PCI address.
          type: str
          sample: "00000000:01:00.0"
        pci_device_id:
          description: PCI device and vendor id.
          type: str
          sample: "0x268410DE"
        compute_capability:
          description: CUDA compute capability.
          type: str
          sample: "8.9"
        memory_total_mib:
          description: Memory in MiB.
          type: int
        memory_used_mib:
          description: Memory in use in MiB, with what the driver keeps to itself.
          type: int
        memory_others_mib:
          description: Of it what neither the driver nor a program that computes has, as a display and its desktop do.
          type: int
        display_active:
          description: Whether a display is driven.
          type: bool
        mig_mode:
          description: Whether MIG is on; null where there is no MIG.
          type: bool
        persistence_mode:
          description: Whether persistence mode is on.
          type: bool
        power_limit_w:
          description: Requested power limit.
          type: float
        power_enforced_limit_w:
          description: Power limit in force, the lowest of all limiters.
          type: float
        power_default_limit_w:
          description: The card's default power limit.
          type: float
        power_min_limit_w:
          description: Lowest power limit that the card takes.
          type: float
        power_max_limit_w:
          description: Highest power limit that the card takes.
          type: float
        power_draw_w:
          description: Power drawn now.
          type: float
        energy_j:
          description: Energy used since the driver was loaded.
          type: float
        temperature_c:
          description: Temperature of the GPU.
          type: int
        utilization_percent:
          description: Share of the last moment in which the GPU worked.
          type: int
        clocks:
          description: Current clocks, C(graphics_mhz), C(sm_mhz), C(memory_mhz), C(video_mhz).
          type: dict
        supported_clocks:
          description: C(memory_mhz) as a list; C(graphics_min_mhz), C(graphics_max_mhz), C(graphics_step_mhz).
          type: dict
        event_reasons:
          description: Why clocks are below their maximum now.
          type: list
          elements: str
          sample: [gpu_idle]
        processes:
          description: Programs that compute on the GPU, as C(pid), C(name), C(used_mib).
          type: list
          elements: dict
        samples:
          description:
            - With O(sample_seconds) what was seen. C(count) samples, C(busy) of them while the GPU worked;
              C(sm_mhz_min), C(sm_mhz_max) and C(event_reasons) of the busy ones; C(power_max_w) of all.
          type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tandem_gpu_info import gather
from ansible.module_utils.tandem_gpu_nvml import Fault


def main():
    """Entry point: the logic is in module_utils, here it meets Ansible."""
    module = AnsibleModule(
        argument_spec={
            "sample_seconds": {"type": "float", "default": 0},
            "sample_interval": {"type": "float", "default": 0.1},
            "timeout": {"type": "int", "default": 30},
        },
        supports_check_mode=True,
    )
    params = module.params
    if params["sample_seconds"] < 0 or params["sample_interval"] <= 0 or params["timeout"] < 1:
        module.fail_json(msg="sample_seconds must be 0 or more, sample_interval above 0, timeout at least 1")
    try:
        info = gather(params["timeout"], params["sample_seconds"], params["sample_interval"])
    except Fault as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(changed=False, gpu_info=info)


if __name__ == "__main__":
    main()
