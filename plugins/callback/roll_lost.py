# SPDX-License-Identifier: Apache-2.0
"""The last word on a run that lost a box in the middle of its change."""

from __future__ import annotations

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: roll_lost
type: aggregate
short_description: Says what became of a box that could not be reached any more in the middle of a roll
description:
  - Of a box that gets unreachable no rescue runs, and where nobody else was in its batch nothing runs any more at all.
    A callback still does.
requirements:
  - none but ansible.cfg, which enables it
"""


#: Names of the plays in which boxes are changed one batch after another.
ROLLS = ("Roll", "Rollback")


def how_it_stands(out, back):
    """A sentence about a box, out of the facts that the roll keeps of it; None where it had not begun."""
    if out:
        return "It stays out of the gateways, and a mark on it says that it is half-done."
    if back:
        return "It was back in service, but is not known to serve well; the next run looks at it."
    if back is None:
        return "Nothing had been changed on it."
    return "It had not left the gateways yet; where a mark stands on it, the next run finishes it."


def lost_text(lost, untouched):
    """What to say at the end.

    lost       by box {task: what did not reach it, says: why, stands: how_it_stands}
    untouched  boxes of the roll whose turn did not come
    """
    lines = ["", "The roll lost a box, and goes no further."]
    for box, about in lost.items():
        lines += [f"{box} was not reached any more at: {about['task']}", f"  {about['says']}"]
        lines.append(f"  {about['stands']}")
        lines.append(f"  Is it on, and does `ansible {box} -m ping` answer?")
    if untouched:
        lines.append(f"Not touched: {', '.join(untouched)}.")
    but = "".join(f":!{box}" for box in lost)
    lines += [
        "To go on when it answers again: run the same again, which finishes it first.",
        f"To go on without it: the same with --limit 'gpu_boxes{but}'.",
        "This run may have left its locks; the next one from here takes them over, one from elsewhere is told how.",
    ]
    return "\n".join(lines)


class CallbackModule(CallbackBase):
    """Ansible's entry point."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "roll_lost"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self):
        super().__init__()
        self.play = None
        self.seen = {}

    def v2_playbook_on_play_start(self, play):
        self.play = play

    def v2_runner_on_unreachable(self, result):
        self.seen[result.host.name] = (self.play, result)

    def v2_playbook_on_stats(self, stats):
        # what was ignored is seen as well, but does not count as dark
        lost, untouched = {}, []
        for box, (play, result) in self.seen.items():
            if not stats.dark.get(box) or play.get_name() not in ROLLS:
                continue
            variables = play.get_variable_manager().get_vars(play=play, host=result.host)
            boxes = variables["hostvars"]
            # of a loop each item says it; with no_log nobody does
            items = result.result.get("results") or [result.result]
            says = [
                str(item["msg"]).strip().splitlines()[-1]
                for item in items
                if item.get("unreachable") and item.get("msg")
            ]
            lost[box] = {
                "task": result.task.get_name().strip(),
                "says": says[-1] if says else "why not is hidden, as the task has secrets",
                "stands": how_it_stands(boxes[box].get("__roll_out"), boxes[box].get("__roll_back")),
            }
            untouched = [each for each in variables["ansible_play_hosts_all"] if "__roll_back" not in boxes[each]]
        if lost:
            self._display.display(lost_text(lost, untouched), color="red")
