"""Which engines a gateway serves, and settings that cannot work."""

import gateway as filters
import pytest

KEY = "0123456789abcdef"
ENDPOINT = {"engine": "main", "port": 8000, "model": "qwen"}
OTHER = ENDPOINT | {"model": "other"}
HYPHEN = ENDPOINT | {"engine": "b-main"}


def box(**changes):
    return {"ansible_host": "192.0.2.1", "vllm_api_key": KEY, "__vllm_endpoints": [ENDPOINT]} | changes


def engines(gateway="gw1", **boxes):
    return filters.gateway_engines(list(boxes), boxes, gateway)


def test_servers():
    found = engines(
        box1=box(__vllm_endpoints=[ENDPOINT, ENDPOINT | {"engine": "second", "port": 8001}]),
        box2=box(ansible_host="fd00::2"),
    )
    assert found["problems"] == []
    assert [(s["name"], s["address"], s["port"]) for s in found["servers"]] == [
        ("box1-main", "192.0.2.1", 8000),
        ("box1-second", "192.0.2.1", 8001),
        ("box2-main", "fd00::2", 8000),
    ]
    assert found["servers"][2]["metrics"] == "http://[fd00::2]:8000/metrics"
    assert KEY not in str(found)


def test_addresses():
    found = engines(
        gateway="box1", box1=box(), box2=box(gateway_engine_address="10.0.0.2"), box3=box(ansible_host=None)
    )
    assert [server["address"] for server in found["servers"]] == ["127.0.0.1", "10.0.0.2", "box3"]
    found = engines(gateway="box1", box1=box(__vllm_endpoints=[ENDPOINT | {"listen": "127.0.0.1"}]))
    assert found["problems"] == [] and found["servers"][0]["address"] == "127.0.0.1"
    found = engines(gateway="box1", box1=box(__vllm_endpoints=[ENDPOINT | {"listen": "192.0.2.1"}]))
    assert found["servers"][0]["address"] == "192.0.2.1"


@pytest.mark.parametrize(
    ("boxes", "words"),
    [
        ({}, "group gpu_boxes is empty"),
        ({"box1": box(), "box2": box(__vllm_endpoints=None)}, "the engines of box2 are not known in this run"),
        ({"box1": {"vllm_api_key": KEY}}, "the engines of box1 are not known"),
        ({"box1": box(), "box2": box(vllm_api_key=KEY + "x")}, "must be the same on all boxes"),
        ({"box1": box(), "box2": box(vllm_api_key=None)}, "is not: box1; box2"),
        ({"box1": box(__vllm_endpoints=[ENDPOINT | {"listen": "127.0.0.1"}])}, "which gw1 cannot reach"),
        (
            {"box1": box(), "box2": box(__vllm_endpoints=[ENDPOINT | {"model": "other"}])},
            "other on box2-main; qwen on box1",
        ),
        ({"box 1": box()}, "box 1-main cannot be a server's name"),
        (
            {"a-b": box(), "a": box(__vllm_endpoints=[ENDPOINT | {"engine": "b-main"}])},
            "two engines would be called a-b-main",
        ),
    ],
)
def test_what_keeps_engines_from_being_served(boxes, words):
    problems = engines(**boxes)["problems"]
    assert len(problems) == 1 and words in problems[0]
    assert KEY not in problems[0]


def settings(**changes):
    return {
        "api_keys": {"alice": KEY},
        "port": 8080,
        "admin_port": 8404,
        "admin_listen": "127.0.0.1",
        "stream_timeout": 3600,
        "drain_timeout": 1800,
        "hang_seconds": 20,
        "min_up": 1,
        "client_connections": 1000,
        "affinity_header": None,
        "tls_certificate": None,
        "tls_key": None,
        "probe_port": 8405,
        "host": "gw1",
        "home": "/",
    } | changes


SERVERS = engines(box1=box(), box2=box())["servers"]


def test_defaults_are_well():
    assert filters.gateway_problems(settings(), SERVERS) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"api_keys": {}}, "gateway_api_keys is empty"),
        ({"api_keys": {"alice": "short-secret"}}, "the key of alice in gateway_api_keys must be 16 or more"),
        ({"api_keys": {"alice": "with a blank in it!"}}, "the key of alice"),
        ({"api_keys": {"alice": None}}, "the key of alice"),
        ({"api_keys": {"al ice": KEY}}, "a client 'al ice'"),
        ({"api_keys": {"alice": KEY, "bob": KEY}}, "alice and bob have the same key"),
        ({"port": 0}, "gateway_port is 0; allowed is 1 to 65535"),
        ({"admin_port": 8080}, "gateway_port and gateway_admin_port want the same port 8080"),
        ({"port": 8405}, "gateway_port and the probe want the same port"),
        ({"host": "box1", "port": 8000}, "gateway_port and engine box1-main want the same port 8000 on box1"),
        ({"admin_listen": "0.0.0.0"}, "is every address"),
        ({"admin_listen": "::"}, "is every address"),
        ({"hang_seconds": 1}, "gateway_hang_seconds is 1 s; allowed is 5 to 600"),
        ({"client_connections": 9}, "gateway_client_connections is 9; allowed is 10 to 8000"),
        ({"client_connections": 8001}, "gateway_client_connections is 8001"),
        ({"min_up": 3}, "gateway_min_up is 3; allowed is 0 to 2"),
        ({"affinity_header": "X Session"}, "gateway_affinity_header is 'X Session'"),
        ({"tls_certificate": "/c.pem"}, "gateway_tls_certificate is set and gateway_tls_key is not"),
        ({"tls_certificate": "/no/c.pem", "tls_key": __file__}, "cannot be read on the controller: No such file"),
    ],
)
def test_settings_that_cannot_work(changes, words):
    problems = filters.gateway_problems(settings(**changes), SERVERS)
    assert any(words in problem for problem in problems), problems
    for problem in problems:
        assert KEY not in problem and "short-secret" not in problem


def test_tls_files(tmp_path):
    (tmp_path / "c.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    (tmp_path / "k.pem").write_text("$ANSIBLE_VAULT;1.1;AES256\n")
    given = settings(tls_certificate="c.pem", tls_key="k.pem", home=str(tmp_path))
    assert filters.gateway_problems(given, SERVERS) == []
    (tmp_path / "k.pem").write_text("nothing")
    assert "holds no 'PRIVATE KEY'" in filters.gateway_problems(given, SERVERS)[0]


def test_the_key_is_hashed_as_haproxy_does():
    assert filters.gateway_key_hash("abc") == "BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https://haproxy.org/", "2.6"),
        ("HA-Proxy version 2.4.22-0ubuntu0.22.04.3 2023/12/04", "2.4"),
        ("haproxy:\n  Installed: (none)\n  Candidate: 3.0.11-1+deb13u4\n", "3.0"),
        ("haproxy:\n  Installed: (none)\n  Candidate: (none)\n", ""),
        ("", ""),
    ],
)
def test_version(text, version):
    assert filters.gateway_version(text) == version


def test_status_text():
    result = {"__gateway": "gw1", "servers": {"box1-main": {"after": {"status": "UP", "sessions": 2}}}}
    assert filters.gateway_status_text([result]) == "gw1: box1-main UP, 2 sessions"


def told(status, admin="ready", check="L7OK 200", agent="L7OK up", **more):
    server = {"status": status, "admin": admin, "sessions": 0, "queued": 0, "check": check, "agent": agent}
    return {"__gateway": "gw1", "servers": {"box1-main": {"before": server, "after": server}}, "unknown": []} | more


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (told("UP"), None),
        (
            told("DOWN (agent)", agent="L7STS down #hung: no token and no progress for 20 s"),
            "probe says: hung: no token and no",
        ),
        (
            told("DOWN", check="L4CON Connection refused"),
            "L4CON Connection refused; nothing listens there (systemctl status vllm-main.service on box1), or the",
        ),
        (told("DOWN", check="L4TOUT"), "does its packet filter let the gateway in"),
        (told("DOWN", check="L7STS 503 status"), "the engine says that it is dead"),
        (told("DOWN", check="L7TOUT"), "/health was not answered"),
        (told("DOWN", check="L6RSP odd"), "see systemctl status vllm-main.service on box1"),
        (told("DOWN 1/2"), "checks have not come to an end"),
        (told("UP 1/3", check="L7TOUT"), "checks have not come to an end"),
        (told("DOWN", check="", agent=""), "check: none yet; agent: none yet"),
        (told("DRAIN", admin="drain"), "gateway_keep_drained"),
        (told("MAINT", admin="maint", check=""), "maintenance"),
        ({"__gateway": "gw1", "skipped": True}, None),
        (
            {"__gateway": "gw1", "unreachable": True, "msg": "Failed to connect.\n"},
            "gw1 cannot be asked: Failed to connect",
        ),
        ({"__gateway": "gw1", "msg": "no HAProxy answers there"}, "gw1 cannot be asked: no HAProxy answers there"),
        ({"__gateway": "gw1", "servers": {}, "unknown": ["box1-main"]}, "is not one of gw1's servers"),
    ],
)
def test_engines_that_get_no_requests_are_told_with_the_reason(result, words):
    problems = filters.gateway_not_up([result], engines(box1=box())["servers"])
    assert len(problems) == (words is not None), problems
    assert not problems or words in problems[0], problems
