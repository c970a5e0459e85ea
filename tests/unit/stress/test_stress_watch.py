"""What the action says while a run goes on."""

import importlib.util
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parents[3] / "roles/stress/action_plugins/stress_watch.py"


@pytest.fixture
def say(monkeypatch):
    specification = importlib.util.spec_from_file_location("stress_watch", PLUGIN)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    said = []
    monkeypatch.setattr(module.display, "display", said.append)
    action = object.__new__(module.ActionModule)

    def tell(look, silent=None):
        action._say({"inventory_hostname": "box1"}, look, 60.0, silent)
        return said[-1]

    return tell


def test_a_reading_of_simulated_cards_says_so(say):
    look = {"seconds": 12.0, "simulated": True, "last": {"gpus": [[2100, 249.6, 60, 90, 0]], "in_flight": 2}}
    line = "box1: 12 s of 60 s, 2 requests in flight; GPU 0 2100 MHz, 250 W"
    assert say(look) == f"{line} (simulated cards)"
    assert say({**look, "simulated": False}) == line


def test_a_box_that_does_not_answer(say):
    assert say(None, 31.0) == "box1: no answer for 31 s"
