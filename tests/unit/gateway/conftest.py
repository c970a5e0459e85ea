"""Fixtures: a real HAProxy with the role's configuration in front of fake engines, and module gateway_server."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fake_engine import FakeEngine
from gateway_lab import HAPROXY, ROOT, Gateway, load, wait_for


@pytest.fixture
def engines():
    made = {f"box{number}-main": FakeEngine() for number in (1, 2)}
    yield made
    for engine in made.values():
        engine.stop()


@pytest.fixture
def gateway(tmp_path, engines):
    if not HAPROXY:
        pytest.fail("haproxy is not installed; sim/setup.sh (make setup) brings it")
    # a path of a UNIX socket is short
    made = Gateway(Path(os.path.realpath(tmp_path)), engines)
    try:
        wait_for(made.answers, what="HAProxy")
        wait_for(lambda: all(made.status(name) == "UP" for name in engines), what="UP")
        yield made
    finally:
        made.stop()


@pytest.fixture
def run_module(monkeypatch):
    """run_module(params, check) -> the module's result, with `failed`."""
    import ansible.module_utils
    from ansible.module_utils.basic import AnsibleModule
    from ansible.module_utils.testing import patch_module_args

    for name in ("tandem_gateway",):
        module = load(f"ansible.module_utils.{name}", ROOT / f"module_utils/{name}.py")
        monkeypatch.setattr(ansible.module_utils, name, module, raising=False)
    gateway_server = load("gateway_server", ROOT / "library/gateway_server.py")

    class Ended(Exception):
        pass

    def run(params, check=False):
        result = {}

        def end(self, failed=False, **kwargs):
            result.update({"failed": failed, **kwargs})
            raise Ended

        monkeypatch.setattr(AnsibleModule, "exit_json", end)
        monkeypatch.setattr(AnsibleModule, "fail_json", lambda self, msg, **kwargs: end(self, True, msg=msg, **kwargs))
        with patch_module_args(params | {"_ansible_check_mode": check}), pytest.raises(Ended):
            gateway_server.main()
        return result

    return run
