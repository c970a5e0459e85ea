"""Each role's papers: defaults, argument_specs and README name the same variables, and something uses them."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ROLES = sorted(path.parent.parent for path in (ROOT / "roles").glob("*/meta/argument_specs.yml"))
USERS = [
    path
    for folder in ("roles", "playbooks", "plugins")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".yml", ".j2", ".py") and path.name != "argument_specs.yml" and path.parent.name != "defaults"
]


def options(role):
    return yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]["options"]


def defaults(role):
    path = role / "defaults/main.yml"
    return (yaml.safe_load(path.read_text()) or {}) if path.exists() else {}


def test_every_role_has_papers():
    assert [role.name for role in ROLES] == sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir())


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_defaults_and_argument_specs_agree(role):
    required = {name for name, option in options(role).items() if option.get("required")}
    assert set(defaults(role)) == set(options(role)) - required
    for name, value in defaults(role).items():
        # one that depends on others is described there
        assert options(role)[name].get("default") == value or "{{" in str(value), name


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_every_variable_is_in_the_readme_and_used(role):
    readme = (role / "README.md").read_text()
    used = "".join(path.read_text() for path in USERS)
    for name in options(role):
        assert f"`{name}`" in readme, name
        assert re.search(rf"\b{name}\b", used), name
