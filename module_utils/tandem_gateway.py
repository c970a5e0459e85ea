# SPDX-License-Identifier: Apache-2.0
"""HAProxy's servers through its admin socket: what they are, and how they are drained and restored.

Runs on the gateway: Python 3.9 and the standard library only. Works with HAProxy 2.4 to 3.2.

Three things decide whether a server gets requests, and all are read: the administrative state (ready, drain, maint),
the health check with its counter, and the agent check. "UP" below is HAProxy's exact status; "UP 1/2" is not it: that
server failed a check or has not been checked yet.

A process that a reload has replaced goes on with its streams. It is not at the admin socket and refuses `set server`;
new requests on its connections are passed to the process that has replaced it (haproxy.cfg). What it still works on is
asked of it through the master's socket.
"""

from __future__ import annotations

import csv
import os
import socket
import time
import urllib.error
import urllib.request

FORCED_MAINT, FORCED_DRAIN = 0x01, 0x08
# as in "show servers state"
STOPPED, RUNNING = 0, 2
POLL_SECONDS = 0.5
# the master's socket refuses for a moment when a reload has just been answered
MASTER_SECONDS = 5
# A session of which the engine knows nothing for so long is a body that does not end, or an answer that is not taken.
LINGER_SECONDS = 120
WORK = ("vllm:num_requests_running", "vllm:num_requests_waiting")


class GatewayError(Exception):
    """One sentence: what, its value, what to do."""


class Admin:
    """HAProxy's admin socket: one command per connection."""

    def __init__(self, path, timeout=10):
        self.path, self.timeout = path, timeout

    def ask(self, command):
        """The answer's text. GatewayError where nobody answers."""
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(self.timeout)
                connection.connect(self.path)
                connection.sendall(command.encode() + b"\n")
                # the master would wait for more
                connection.shutdown(socket.SHUT_WR)
                pieces = []
                while True:
                    piece = connection.recv(65536)
                    if not piece:
                        return b"".join(pieces).decode(errors="replace")
                    pieces.append(piece)
        except PermissionError:
            raise GatewayError(f"{self.path}: permission denied; run with become: true, or as root") from None
        except (FileNotFoundError, ConnectionRefusedError):
            raise GatewayError(
                f"{self.path}: no HAProxy answers there; has role gateway been run on this host, and is "
                "haproxy.service "
                "active?"
            ) from None
        except OSError as exc:
            raise GatewayError(
                f"{self.path}: HAProxy did not answer `{command}` within {self.timeout} s ({exc})"
            ) from None

    def order(self, command):
        """A command that answers nothing when it succeeded."""
        text = self.ask(command).strip()
        if text:
            raise GatewayError(f"HAProxy refused `{command}`: {text}")

    def info(self):
        """{name: value} of `show info`; `description` names the configuration that runs."""
        lines = (line.split(":", 1) for line in self.ask("show info").splitlines() if ":" in line)
        return {name.strip(): value.strip() for name, value in lines}

    def servers(self, backend):
        """{name: server()} of one backend; GatewayError where there is none of that name."""
        stat = rows_of(self.ask("show stat"))
        rows = {row["svname"]: row for row in stat if row["pxname"] == backend}
        if "BACKEND" not in rows:
            known = sorted({row["pxname"] for row in stat if row["svname"] == "BACKEND"})
            raise GatewayError(f"backend {backend} is not one of this HAProxy; it has {', '.join(known) or 'none'}")
        lines = self.ask(f"show servers state {backend}").splitlines()
        # "1", then "# be_id be_name srv_id ...", then the servers
        if len(lines) < 2 or not lines[1].startswith("# "):
            raise GatewayError(f"HAProxy did not tell the servers' states: {' '.join(lines)[:120]}")
        names = lines[1].lstrip("# ").split()
        states = {}
        for line in lines[2:]:
            if line.strip():
                state = dict(zip(names, line.split()))
                states[state["srv_name"]] = state
        return {name: server(rows[name], state) for name, state in states.items() if name in rows}


class Master(Admin):
    """The master's socket, through which the processes answer that a reload has replaced: `@!PID COMMAND`."""

    def __init__(self, path):
        super().__init__(path, timeout=2)

    def replaced(self):
        """PIDs of the processes that reloads have replaced and that still live; none where there is no such socket."""
        if not os.path.exists(self.path):
            return []
        deadline = time.monotonic() + MASTER_SECONDS
        while True:
            try:
                text = self.ask("show proc")
                break
            except GatewayError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.2)
        # a section ends where the next begins
        lines = text.partition("# old workers")[2].split("\n#")[0].splitlines()
        return [line.split()[0] for line in lines if line[:1].isdigit()]

    def rows(self, pid):
        """What `show stat` of a replaced process says; nothing when it has ended meanwhile."""
        for _ in range(2):
            try:
                # one that is not found is told in a sentence, which has no such columns
                return [row for row in rows_of(self.ask(f"@!{pid} show stat")) if row.get("pxname")]
            except GatewayError:
                # one that is just ending may take the question and never answer
                continue
        return []

    def work(self, backend):
        """{server: (sessions, queued)} of all these processes together."""
        found = {}
        for pid in self.replaced():
            for row in self.rows(pid):
                if row["pxname"] == backend:
                    sessions, queued = found.get(row["svname"], (0, 0))
                    found[row["svname"]] = sessions + int(row["scur"] or 0), queued + int(row["qcur"] or 0)
        return found


def rows_of(text):
    """The answer to `show stat`, a dict for each line."""
    return list(csv.DictReader(text.lstrip("# ").splitlines()))


def server(row, state):
    """What matters of a server, from its row of `show stat` and its line of `show servers state`.

    {status, admin: ready | drain | maint, up: exactly UP, settled: its health counter is full or it is down, so that
    `ready` sends nobody to an engine that was not checked, checked: it has a health check, sessions, queued, check,
    agent}
    """
    flags, operational = int(state["srv_admin_state"]), int(state["srv_op_state"])
    admin = "maint" if flags & FORCED_MAINT else "drain" if flags & FORCED_DRAIN else "ready"
    checked = row.get("check_status", "") != ""
    full = int(row.get("check_rise") or 1) + int(row.get("check_fall") or 1) - 1
    healthy = checked and int(row.get("check_health") or 0) >= full
    return {
        "status": row["status"],
        "admin": admin,
        "up": row["status"] == "UP" and flags == 0 and operational == RUNNING,
        "settled": healthy or (operational == STOPPED and admin != "maint"),
        "checked": checked or row["status"] != "no check",
        "sessions": int(row["scur"] or 0),
        "queued": int(row["qcur"] or 0),
        "check": _told(row, "check_status", "check_code", "last_chk"),
        "agent": _told(row, "agent_status", "last_agt"),
    }


def _told(row, *names):
    """What a check last said; a star before its status means that the next one is under way."""
    return " ".join(filter(None, (row.get(name) for name in names))).removeprefix("* ")


def summary(one):
    """The part of a server that results and diffs show."""
    return {name: one[name] for name in ("status", "admin", "sessions", "queued", "check", "agent")}


def too_few(servers, names, minimum_up, assume_up=()):
    """Why draining `names` would leave fewer than `minimum_up` servers UP; None when it would not.

    Draining a server that is not UP takes nothing away, and is how a broken one gets mended. `assume_up` are counted as
    UP: others that will be by then.
    """
    up = {name for name, one in servers.items() if one["up"]} | set(assume_up) - set(names)
    left = up - set(names)
    if left == up or len(left) >= minimum_up:
        return None
    others = ", ".join(f"{name} {one['status']}" for name, one in sorted(servers.items()) if name not in names)
    return (
        f"draining {', '.join(sorted(up & set(names)))} would leave {len(left)} of {len(servers)} servers UP, "
        f"gateway_min_up is {minimum_up}; the others: {others or 'none'}. Bring the others up first, "
        "lower gateway_min_up, or allow it with -e tandem_allow_interruption=true"
    )


def work(url, timeout=5):
    """Requests that run and wait in the engine whose /metrics is at `url`; 0 where nothing listens any more.

    GatewayError when it cannot be told.
    """
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=timeout) as answer:
            text = answer.read().decode(errors="replace")
    except urllib.error.URLError as exc:
        if isinstance(exc.reason, ConnectionRefusedError):
            return 0
        raise GatewayError(f"{url}: {exc.reason}") from None
    except (OSError, ValueError) as exc:
        raise GatewayError(f"{url}: {exc or type(exc).__name__}") from None
    values = [line.rsplit(" ", 1)[1] for line in text.splitlines() if line.startswith(WORK)]
    if not values:
        raise GatewayError(f"{url}: has none of {', '.join(WORK)}; is it an engine's /metrics?")
    return int(sum(float(value) for value in values))


class Gateway:
    """Acts on the servers `names` of one backend. `check` only reads; with `unknown_ok` servers may be unknown."""

    def __init__(
        self, admin, master, backend, names, check=False, unknown_ok=False, clock=time.monotonic, sleep=time.sleep
    ):
        self.admin, self.master, self.backend, self.names, self.check = admin, master, backend, names, check
        self.unknown_ok = unknown_ok
        self.clock, self.sleep = clock, sleep

    def look(self):
        """(all servers of the backend, the named ones)."""
        servers = self.admin.servers(self.backend)
        for name, (sessions, queued) in self.master.work(self.backend).items():
            if name in servers:
                servers[name]["sessions"] += sessions
                servers[name]["queued"] += queued
        unknown = [name for name in self.names if name not in servers]
        if unknown and not self.unknown_ok:
            raise GatewayError(
                f"backend {self.backend} has no server {', '.join(unknown)}; it has "
                f"{', '.join(sorted(servers)) or 'none'}. Run the play of the gateways, so that they know every engine"
            )
        return servers, {name: servers[name] for name in self.names if name in servers}

    def set(self, name, state):
        self.admin.order(f"set server {self.backend}/{name} state {state}")

    def drain(self, minimum_up, assume_up=()):
        """Drains; returns what it did."""
        servers, mine = self.look()
        # maint stops the health checks, and a server that comes back from it counts as up before it was asked
        todo = [name for name, one in mine.items() if one["admin"] != "drain"]
        why = too_few(servers, todo, minimum_up, assume_up)
        if why:
            raise GatewayError(f"nothing was drained: {why}")
        if not self.check:
            for name in todo:
                self.set(name, "drain")
            _, mine = self.look()
            left = [name for name, one in mine.items() if one["admin"] != "drain"]
            if left:
                raise GatewayError(f"{', '.join(left)} did not take the drain")
        return [f"drain {name}" for name in todo]

    def wait_idle(self, urls, timeout):
        """Waits until, twice in a row, no session and no queue is here and nothing runs or waits in the engines.

        The engines are asked as well, as other gateways and clients may send them requests. Sessions whose engine has
        worked on nothing for LINGER_SECONDS do not count: nobody would get an answer on them. Returns what they are.
        """
        deadline, quiet, since = self.clock() + timeout, 0, None
        while True:
            _, mine = self.look()
            open_ = [name for name, one in mine.items() if one["admin"] == "ready"]
            if open_:
                raise GatewayError(f"{', '.join(open_)} gets requests, so it will not be idle: drain it first")
            busy = [
                f"{name} has {one['sessions']} sessions, {one['queued']} queued"
                for name, one in mine.items()
                if one["sessions"] or one["queued"]
            ]
            # the engines of all of these can tell, nothing waits here for a place in one, and nothing runs in one
            lingers = busy and set(urls) == set(mine) and not any(one["queued"] for one in mine.values())
            sessions = list(busy)
            for name, url in urls.items():
                try:
                    count = work(url)
                except GatewayError as exc:
                    busy.append(str(exc))
                else:
                    if count:
                        busy.append(f"the engine of {name} works on {count} requests")
            since = (since or self.clock()) if lingers and busy == sessions else None
            if since is not None and self.clock() - since >= LINGER_SECONDS:
                return sessions
            quiet = 0 if busy else quiet + 1
            if quiet == 2:
                return []
            if busy and self.clock() >= deadline:
                raise GatewayError(f"not idle after {timeout:g} s: {'; '.join(busy)}")
            self.sleep(POLL_SECONDS)

    def restore(self, timeout, wait):
        """Makes the servers ready, and with `wait` waits until they are exactly UP; returns what it did."""
        deadline, did = self.clock() + timeout, []
        _, mine = self.look()
        unchecked = [name for name, one in mine.items() if not one["checked"]]
        if unchecked:
            raise GatewayError(f"{', '.join(unchecked)} has no health check, so nobody knows whether it is up")
        if self.check:
            return [f"ready {name}" for name, one in mine.items() if one["admin"] != "ready"]
        while True:
            for name, one in mine.items():
                if one["admin"] == "maint":
                    # health checks begin again; `ready` at once would send requests to an engine that was not asked yet
                    self.set(name, "drain")
                elif one["admin"] == "drain" and one["settled"]:
                    self.set(name, "ready")
                    did.append(f"ready {name}")
            _, mine = self.look()
            missing = [name for name, one in mine.items() if not (one["up"] if wait else one["admin"] == "ready")]
            if not missing:
                return did
            if self.clock() >= deadline:
                told = "; ".join(
                    f"{name} is {mine[name]['status']} (check: {mine[name]['check'] or 'none yet'}; agent: "
                    f"{mine[name]['agent'] or 'none yet'})"
                    for name in missing
                )
                if any((mine[name]["check"] or "").startswith("L4") for name in missing):
                    told += (
                        ". A connection from this gateway is refused or lost: does the packet filter of the box admit "
                        "it (gateway_source_addresses)?"
                    )
                raise GatewayError(f"not UP after {timeout:g} s: {told}")
            self.sleep(POLL_SECONDS)
