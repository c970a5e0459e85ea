"""What role vllm says of an engine that failed. A roll tries the box once more, so nothing is said of how it stands."""

import re
from pathlib import Path

import jinja2
import pytest
import yaml

TASKS = Path(__file__).parents[2] / "roles/vllm/tasks"
STATE = re.compile(r"serves|was stopped|boot does not start|leaves it as it is|could not be brought back")
KNOWN = {
    "__vllm_why": "vllm-main.service on box1 did not become ready.",
    "__vllm_need": "restart",
    "__vllm_unit": "vllm-main.service",
    "__vllm_wanted_hash": "new",
    "__vllm_last_good": {"hash": "old", "profile": "p", "image": "i", "since": "then"},
    "__vllm_not_back": "it is not ready.",
    "inventory_hostname": "box1",
}


def said(file, outcome, **more):
    """The message of the file's last task, which fails."""
    task = yaml.safe_load((TASKS / file).read_text())[-1]
    while "rescue" in task:
        task = task["rescue"][-1]
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined)
    environment.filters["bool"] = bool
    environment.filters["regex_replace"] = lambda value, pattern, by="": re.sub(pattern, by, str(value))

    def render(value, known):
        if isinstance(value, dict):
            return {name: render(one, known) for name, one in value.items()}
        return environment.from_string(value).render(known)

    known = {**KNOWN, "__vllm_outcome": outcome, **more}
    for name, value in (task.get("vars") or {}).items():
        known[name] = render(value, known)
    return render(task["ansible.builtin.fail"]["msg"], known)


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        ("back", "old, was put back and passed"),
        ("failed", "failed at first: it is not ready."),
        ("nothing", "no other"),
    ],
)
def test_in_a_roll_what_was_done_is_told_and_no_state(outcome, words):
    text = said("rescue.yml", outcome, __vllm_state_told_later=True)
    assert text.startswith(KNOWN["__vllm_why"]) and words in text
    assert not STATE.search(text.removeprefix(KNOWN["__vllm_why"])), text


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        ("back", "box1 serves its last good configuration again: old"),
        ("failed", "old, could not be brought back either: it is not ready. vllm-main.service was stopped"),
        ("nothing", "box1 serves nothing through it"),
    ],
)
def test_elsewhere_it_is_the_last_word_and_tells_the_state(outcome, words):
    assert words in " ".join(said("rescue.yml", outcome).split())


def test_what_this_run_had_not_touched():
    assert "had not touched it" in said("rescue.yml", "nothing", __vllm_need="nothing", __vllm_state_told_later=True)


@pytest.mark.parametrize("target", ["previous", "current"])
def test_a_rollback_leaves_the_state_to_its_end(target):
    returned = "The configuration that served until now, old, was put back as well and failed at first: no."
    text = said("rollback_engine.yml", "", __vllm_target_name=target, __vllm_returned=returned)
    assert (returned in text) == (target == "previous")
    assert not re.search(r"serves (again|nothing)", text)
