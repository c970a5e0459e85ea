"""Who may reach an engine's port: where it listens, whom the packet filter admits, and what the kernel makes of it."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import vllm_open as rules  # plugins/filter/, see conftest.py

ROOT = Path(__file__).parents[2]
NAMES = {
    "gw.lan": ["192.0.2.10", "fd00::10"],
    "many.lan": ["192.0.2.12", "192.0.2.11", "192.0.2.11"],
    "self.lan": ["127.0.1.1", "::1"],
    "local.lan": ["fe80::1%3", "192.0.2.9"],
}


def resolve(name, _, type=None):
    if name not in NAMES:
        raise socket.gaierror(-2, "Name or service not known")
    return [(0, type, 6, "", (address, 0)) for address in NAMES[name]]


def sources(gateways, allowed=(), box="box1"):
    """`gateways`: hostvars by name."""
    return rules.vllm_sources(box, list(gateways), gateways, list(allowed), resolve)


@pytest.mark.parametrize(
    ("listen", "gateways", "allowed", "reached_at", "address"),
    [
        (None, [], [], "192.0.2.1", "127.0.0.1"),
        # the one-box lab: its own gateway, and nobody else
        (None, ["box1"], [], "192.0.2.1", "127.0.0.1"),
        (None, ["box1", "gw1"], [], "192.0.2.1", "0.0.0.0"),
        (None, ["gw1"], [], "192.0.2.1", "0.0.0.0"),
        (None, ["gw1"], [], "fd00::1", "::"),
        (None, ["gw1"], [], "box1.lan", "0.0.0.0"),
        (None, [], ["192.0.2.30"], "192.0.2.1", "0.0.0.0"),
        ("", ["gw1"], [], None, "0.0.0.0"),
        ("192.0.2.1", ["gw1"], [], "192.0.2.1", "192.0.2.1"),
        ("0.0.0.0", [], [], "192.0.2.1", "0.0.0.0"),
    ],
)
def test_an_engine_listens_as_narrowly_as_serves(listen, gateways, allowed, reached_at, address):
    assert rules.vllm_listen_address(listen, "box1", gateways, allowed, reached_at) == address


@pytest.mark.parametrize(
    ("gateways", "allowed", "v4", "v6"),
    [
        ({"gw1": {"ansible_host": "192.0.2.10"}}, [], ["192.0.2.10"], []),
        ({"gw1": {"ansible_host": "fd00::10"}}, [], [], ["fd00::10"]),
        ({"gw1": {"ansible_host": "[fd00::10]"}}, [], [], ["fd00::10"]),
        ({"gw1": {"ansible_host": "gw.lan"}}, [], ["192.0.2.10"], ["fd00::10"]),
        ({"gw.lan": {}}, [], ["192.0.2.10"], ["fd00::10"]),
        ({"gw1": {"ansible_host": "many.lan"}}, [], ["192.0.2.11", "192.0.2.12"], []),
        ({"gw1": {"ansible_host": "local.lan"}}, [], ["192.0.2.9"], ["fe80::1"]),
        # the box itself comes over its loopback
        ({"box1": {"ansible_host": "192.0.2.1"}}, [], [], []),
        ({"gw1": {"ansible_host": "::ffff:192.0.2.10"}}, [], ["192.0.2.10"], []),
        # as gateway_engines takes it
        ({"gw1": {"ansible_host": "[fd00::10]"}}, [], [], ["fd00::10"]),
        # several addresses, or behind NAT; the name is not asked
        (
            {"gw1": {"ansible_host": "nowhere", "gateway_source_addresses": ["10.0.0.1", "fd00::/64"]}},
            [],
            ["10.0.0.1"],
            ["fd00::/64"],
        ),
        ({}, ["192.0.2.0/24", "192.0.2.7", "2001:db8::1"], ["192.0.2.0/24"], ["2001:db8::1"]),
        ({}, ["0.0.0.0/1", "128.0.0.0/1"], ["0.0.0.0/0"], []),
    ],
)
def test_whom_the_filter_admits(gateways, allowed, v4, v6):
    assert sources(gateways, allowed) == {"v4": v4, "v6": v6, "problems": []}


@pytest.mark.parametrize(
    ("gateways", "allowed", "words"),
    [
        (
            {"gw1": {"ansible_host": "nowhere"}},
            [],
            ["gw1", "ansible_host nowhere", "Name or service not known", "gateway_source_addresses"],
        ),
        (
            {"gw1": {"ansible_host": "self.lan"}},
            [],
            ["self.lan", "this machine's loopback", "gateway_source_addresses"],
        ),
        ({"gw1": {"ansible_host": "127.0.0.1"}}, [], ["this machine's loopback"]),
        ({}, ["192.0.2.7/24"], ["vllm_allowed_sources", "write 192.0.2.7 or 192.0.2.0/24"]),
        ({}, ["monitor.lan"], ["vllm_allowed_sources has 'monitor.lan'", "address or a network"]),
        ({}, ["192.0.2.1-192.0.2.9"], ["address or a network"]),
        ({}, ["192.0.2.300"], ["address or a network"]),
        ({"gw1": {"gateway_source_addresses": ["eth0"]}}, [], ["gateway_source_addresses of gw1 has 'eth0'"]),
    ],
)
def test_what_cannot_be_admitted_is_told(gateways, allowed, words):
    (problem,) = sources(gateways, allowed)["problems"]
    assert [word for word in words if word not in problem] == []


@pytest.mark.parametrize(
    ("listen", "gateways", "allowed", "filtered", "words"),
    [
        ("127.0.0.1", [], [], True, None),
        ("127.0.0.1", [], [], False, None),
        ("::1", [], [], False, None),
        ("0.0.0.0", ["gw1"], ["192.0.2.10"], True, None),
        # its own gateway: nobody else is admitted
        ("0.0.0.0", ["box1"], [], True, None),
        ("0.0.0.0", [], ["192.0.2.30"], True, None),
        ("0.0.0.0", [], [], True, "neither a gateway nor vllm_allowed_sources"),
        ("192.0.2.1", [], [], True, "vllm_listen is 192.0.2.1"),
        ("::", ["gw1"], ["::/0"], True, "::/0, which is everybody"),
        ("0.0.0.0", ["gw1"], ["192.0.2.10"], False, "vllm_filter is false"),
    ],
)
def test_when_an_engine_is_open_to_everybody(listen, gateways, allowed, filtered, words):
    told = rules.vllm_open_to_all(listen, gateways, sources({}, allowed), filtered)
    assert (words in told) if words else told == ""


@pytest.mark.parametrize(
    ("engines", "left", "restored", "ports"),
    [
        ([{"name": "a"}, {"name": "b", "port": 8002}], {}, [], [8000, 8002]),
        # an engine that was taken out of the list and still runs: its port stays closed
        ([{"name": "a"}], {"vllm-b": {"running": True, "labels": {"tandem.port": "8002"}}}, [], [8000, 8002]),
        ([{"name": "a"}], {"vllm-b": None, "vllm-c": {"labels": None}, "vllm-d": {"labels": {}}}, [], [8000]),
        # a change of the port that failed: the engine listens on the earlier one again
        ([{"name": "a", "port": 8001}], {}, ["/models", "--host=0.0.0.0", "--port=8000"], [8000, 8001]),
        ([{"name": "a"}], {}, ["/models", "--port=8000", "--port"], [8000]),
    ],
)
def test_a_port_on_which_an_engine_listens_is_filtered_wanted_or_not(engines, left, restored, ports):
    assert rules.vllm_filtered_ports(engines, 8000, left, restored) == ports


def test_a_gateway_that_comes_from_another_address_is_told_before_a_box_is_touched():
    boxes = {
        "box1": {"v4": ["192.0.2.10"], "v6": [], "filters": True},
        "box2": {"v4": ["192.0.2.0/24"], "v6": ["fd00::10"], "filters": True},
        "open": {"v4": [], "v6": [], "filters": False},
        "other": None,
    }
    told = rules.vllm_not_admitted(
        [
            "box1 10.0.0.5",
            "box1 192.0.2.10",
            "box2 192.0.2.77",
            "box2 fd00::11",
            "box2",
            "open 10.0.0.5",
            "other 10.0.0.5",
        ],
        "gw1",
        boxes,
    )
    assert told == [
        "gw1 reaches box1 from 10.0.0.5, and the engines of box1 would admit 192.0.2.10. "
        "Set gateway_source_addresses of gw1 to all addresses from which it reaches boxes",
        "gw1 reaches box2 from fd00::11, and the engines of box2 would admit 192.0.2.0/24, fd00::10. "
        "Set gateway_source_addresses of gw1 to all addresses from which it reaches boxes",
    ]


# --- the file, and the kernel


@pytest.fixture(scope="module")
def render(tmp_path_factory):
    """Renders the filter of a box with `settings`, through the role's own variables; all cases in one run."""
    folder = tmp_path_factory.mktemp("filter")
    shutil.copytree(ROOT / "roles/vllm", folder / "roles/vllm")
    (folder / "roles/vllm/tasks/render_for_tests.yml").write_text(
        json.dumps(
            [
                {
                    "ansible.builtin.template": {"src": "filter.nft.j2", "dest": "{{ rendered }}", "mode": "0600"},
                    "vars": {"__vllm_sources": "{{ admitted }}"},
                }
            ]
        )
    )

    def run(cases):
        hosts = {
            name: {"ansible_connection": "local", "rendered": str(folder / name), **settings}
            for name, settings in cases.items()
        }
        inventory = {
            "all": {"hosts": hosts, "children": {"gateways": {"hosts": {"gw1": {"ansible_host": "192.0.2.10"}}}}}
        }
        (folder / "hosts.json").write_text(json.dumps(inventory))
        role = {"ansible.builtin.include_role": {"name": "vllm", "tasks_from": "render_for_tests"}}
        play = [{"hosts": ",".join(cases), "gather_facts": False, "tasks": [role]}]
        (folder / "play.yml").write_text(json.dumps(play))
        done = subprocess.run(
            ["ansible-playbook", "-i", str(folder / "hosts.json"), str(folder / "play.yml")],
            cwd=ROOT,
            env={**os.environ, "ANSIBLE_ROLES_PATH": str(folder / "roles")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return {name: (folder / name).read_text() for name in cases}

    return run


@pytest.fixture(scope="module")
def filters(render):
    admits = {"v4": ["192.0.2.10", "198.51.100.0/24"], "v6": ["fd00::10"], "problems": [], "filters": True}
    return render(
        {
            "both": {"admitted": admits, "vllm_engines": [{"name": "a"}, {"name": "b", "port": 8001}]},
            "left": {
                "admitted": admits,
                "__vllm_looked_left": {"host_info": {"containers": {"vllm-b": {"labels": {"tandem.port": "8002"}}}}},
                "__vllm_restored_arguments": ["--port=8003"],
            },
            "nobody": {"admitted": {**admits, "v4": [], "v6": []}},
            "network": {"admitted": {**admits, "v4": ["10.0.0.0/8"], "v6": []}},
            "everybody": {"vllm_listen": "0.0.0.0", "admitted": {**admits, "v4": ["0.0.0.0/0"], "v6": ["::/0"]}},
        }
    )


def test_the_table_is_exchanged_whole_and_no_other_is_touched(filters):
    for text in filters.values():
        lines = [line for line in text.splitlines() if "table" in line and not line.startswith("#")]
        assert lines == ["table inet tandem_vllm", "delete table inet tandem_vllm", "table inet tandem_vllm {"]
        assert "flush" not in text


def test_every_port_is_filtered_and_only_those(filters):
    assert filters["both"].count("{ 8000, 8001 }") == 2
    assert filters["left"].count("{ 8000, 8002, 8003 }") == 2
    assert "{ 8000 } jump engines" in filters["nobody"] and "saddr" not in filters["nobody"]
    # acknowledged: still nobody may take an engine's place
    assert "jump engines" not in filters["everybody"] and "skuid != 0 drop" in filters["everybody"]


IN_A_NETWORK = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--net"]
# not on the path of an ordinary user
os.environ["PATH"] += ":/usr/sbin"


def can_filter():
    if not shutil.which("nft"):
        return False
    done = subprocess.run([*IN_A_NETWORK, "nft", "add", "table", "inet", "t"], capture_output=True, check=False)
    return done.returncode == 0


needs_nft = pytest.mark.skipif(not can_filter(), reason="nft, or a network of one's own to try it in, is not here")


@needs_nft
def test_nft_takes_it_twice_and_keeps_what_others_filter(filters, tmp_path):
    for name, text in filters.items():
        (tmp_path / name).write_text(text)
        script = f"""
            nft add table inet filter; nft add chain inet filter mine
            nft --check --file {name}
            nft --file {name}; nft list table inet tandem_vllm >first
            nft --file {name}; nft list table inet tandem_vllm >second
            cmp first second; nft list chain inet filter mine
        """
        done = subprocess.run(
            [*IN_A_NETWORK, "sh", "-ec", script], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (name, done.stderr)


@needs_nft
@pytest.mark.skipif(os.geteuid() != 0, reason="another user is needed to take a port")
def test_nobody_but_root_can_take_an_engines_port(filters, tmp_path):
    (tmp_path / "filter").write_text(filters["nobody"])
    program = tmp_path / "program.py"
    program.write_text(
        """
import os, socket, sys
def listener(uid, port):
    reading, writing = os.pipe()
    if not os.fork():
        os.setuid(uid)
        listening = socket.create_server(("127.0.0.1", port))
        os.write(writing, b"x")
        while True:
            talk, _ = listening.accept()
            talk.sendall(b"mine")
            talk.close()
    os.read(reading, 1)
def ask(port):
    try:
        return socket.create_connection(("127.0.0.1", port), 1).recv(9).decode()
    except OSError as error:
        return type(error).__name__
listener(1000, 8000); listener(1000, 9000); print(ask(8000), ask(9000))
"""
    )
    script = f"ip link set lo up; nft --file {tmp_path}/filter; {sys.executable} {program} & sleep 4; kill %1; wait"
    answers = {}
    for uid in ("1000", "0"):
        program.write_text(program.read_text().replace("listener(1000, 8000)", f"listener({uid}, 8000)"))
        done = subprocess.run(
            ["unshare", "--net", "--pid", "--fork", "--kill-child", "bash", "-c", script],
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        answers[uid] = done.stdout.strip()
    assert answers == {"1000": "TimeoutError mine", "0": "mine mine"}


NEIGHBOUR = """
unshare --net sleep 60 & peer=$!
until [ "$(readlink /proc/$peer/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
ip link set lo up
ip link add toward type veth peer name back
ip link set back netns $peer
ip addr add 192.0.2.1/24 dev toward; ip addr add fd00::1/64 dev toward nodad; ip link set toward up
nsenter --net=/proc/$peer/ns/net sh -ec '
  for address in 192.0.2.10/24 192.0.2.66/24; do ip addr add $address dev back; done
  for address in fd00::10/64 fd00::66/64; do ip addr add $address dev back nodad; done
  ip link set back up'
nft --file filter
python3 listen.py >/dev/null & sleep 0.5
nsenter --net=/proc/$peer/ns/net python3 ask.py 192.0.2.10 192.0.2.66 fd00::10 fd00::66
python3 ask.py 192.0.2.1 127.0.0.1 fd00::1
kill %1 %2
"""


@needs_nft
@pytest.mark.skipif(os.geteuid() != 0, reason="a second network is needed")
def test_a_neighbour_reaches_the_port_from_an_admitted_address_alone(filters, tmp_path):
    (tmp_path / "filter").write_text(filters["both"])
    (tmp_path / "listen.py").write_text(
        "import socket\n"
        "for port in 8000, 8001, 9000:\n"
        "    globals()[f's{port}'] = socket.create_server(('::', port), family=socket.AF_INET6, dualstack_ipv6=True)\n"
        "__import__('time').sleep(60)\n"
    )
    (tmp_path / "ask.py").write_text(
        "import socket, sys\n"
        "for source in sys.argv[1:]:\n"
        "    for port in 8000, 8001, 9000:\n"
        "        try:\n"
        "            to = 'fd00::1' if ':' in source else '192.0.2.1'\n"
        "            socket.create_connection((to, port), 3, (source, 0)).close()\n"
        "            print(source, port)\n"
        "        except OSError as error:\n"
        "            print(source, port, type(error).__name__)\n"
    )
    done = subprocess.run(
        ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-ec", NEIGHBOUR],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    reached = ["192.0.2.10", "fd00::10", "192.0.2.1", "127.0.0.1", "fd00::1"]
    wanted = [f"{source} {port}" for source in reached for port in (8000, 8001, 9000)]
    for stranger in ("192.0.2.66", "fd00::66"):
        wanted += [f"{stranger} {port} ConnectionRefusedError" for port in (8000, 8001)] + [f"{stranger} 9000"]
    assert sorted(done.stdout.splitlines()) == sorted(wanted), done.stderr


def test_what_nft_says_against_the_file_is_in_the_journal():
    """LogLevelMax drops what the unit's processes say at the level SyslogLevel, which is info unless it is set."""
    unit = (ROOT / "roles/vllm/files/tandem-vllm-filter.service").read_text().splitlines()
    assert {"LogLevelMax=notice", "SyslogLevel=notice"} <= set(unit)
    assert "tandem-vllm-filter.service" in (ROOT / "roles/vllm/tasks/why.yml").read_text()
