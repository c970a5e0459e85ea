# SPDX-License-Identifier: Apache-2.0
"""Action stress_watch: waits for the end of a stress run on a box, through lost connections and reboots of the box.

    stress_watch:
      run: NAME
      seconds: 600          # how long the run is to last
      return_timeout: 900   # how long a box may be away
      interval: 3

Asks `stress-run look` on the box again and again. Returns, never failing for what the load has done to the box:
  over       the run's unit has ended, in the boot in which it began
  rebooted   the box is back with another boot id
  gone       seconds for which the box has not answered; the last answer is in `last_seen`
  last_seen  what `look` said last
An ordinary task cannot do this: a host that does not answer is out of the play.
"""

from __future__ import annotations

import contextlib
import json
import time

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

PROGRAM = "/usr/local/lib/tandem/stress-run"
SAY_EVERY_S = 20
display = Display()


class ActionModule(ActionBase):
    """Ansible's entry point."""

    _VALID_ARGS = frozenset(("run", "seconds", "return_timeout", "interval"))
    _requires_connection = True

    def run(self, tmp=None, task_vars=None):
        answer = super().run(tmp, task_vars)
        arguments = self._task.args
        run = str(arguments["run"])
        seconds, away = float(arguments["seconds"]), float(arguments["return_timeout"])
        interval = float(arguments.get("interval", 3))
        answer.update({"changed": False, "over": False, "rebooted": False, "gone": None, "last_seen": None})
        # The unit ends itself before this; the longest silence of a box is on top.
        deadline = time.monotonic() + seconds + 600
        silent_since, said_at, why = None, 0.0, "nothing"
        while True:
            look, why = self._look(run, why)
            now = time.monotonic()
            if look is None:
                silent_since = silent_since or now
                if now - silent_since > away:
                    return {**answer, "gone": round(now - silent_since), "why": why}
            else:
                silent_since = None
                answer["last_seen"] = look
                if look["rebooted"]:
                    return {**answer, "rebooted": True}
                if look["over"]:
                    return {**answer, "over": True}
                if now > deadline:
                    late = now - deadline + 600
                    raise AnsibleActionFail(
                        f"run {run} has not ended {late:.0f} s after its time: see systemctl status tandem-stress"
                    )
            if now - said_at > SAY_EVERY_S and (look or now - silent_since > SAY_EVERY_S):
                said_at = now
                self._say(task_vars, look, seconds, silent_since and now - silent_since)
            time.sleep(interval)

    def _look(self, run, why):
        """(what the box says or None, why not)."""
        try:
            done = self._low_level_execute_command(f"{PROGRAM} look {run}", sudoable=True)
            return json.loads(done["stdout"].strip().splitlines()[-1]), why
        except (ValueError, IndexError):
            # a box that is going down or coming up answers with other things
            return None, (done.get("stderr") or done.get("stdout") or "no answer").strip()[-300:]
        except (AnsibleConnectionFailure, AnsibleError) as error:
            with contextlib.suppress(AnsibleConnectionFailure, AnsibleError):
                self._connection.reset()
            return None, str(error)[-300:]

    def _say(self, task_vars, look, seconds, silent):
        host = task_vars["inventory_hostname"]
        if look is None:
            display.display(f"{host}: no answer for {silent:.0f} s")
            return
        cards = (look["last"] or {}).get("gpus") or []
        shown = "; ".join(f"GPU {index} {gpu[0]} MHz, {gpu[1]:.0f} W" for index, gpu in enumerate(cards))
        flight = f"{(look['last'] or {}).get('in_flight', 0)} requests in flight"
        mark = " (simulated cards)" if look.get("simulated") else ""
        display.display(
            f"{host}: {look['seconds']:.0f} s of {seconds:.0f} s, {flight}; {shown or 'no reading yet'}{mark}"
        )
