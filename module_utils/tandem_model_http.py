# SPDX-License-Identifier: Apache-2.0
"""HTTP for large files: Range resume, retries, and a token that only ever goes to the place it is meant for.

The standard library's urllib sends Authorization on to whatever host it is redirected to. The hub redirects every large
file to a content network, so redirects are followed here with the token left out unless scheme, host and port are the
hub's.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request

from .tandem_model_files import CHUNK, ModelError, file_hash
from .tandem_model_wait import wait_of

AGENT = "tandem-model-store/1"
# Answers after which asking again makes sense.
BUSY = {408, 425, 429, 500, 502, 503, 504}
# Seconds that a run waits because a server wants to be left alone; the hub counts requests by five minutes.
LONGEST = 600
# A server that says nothing, or only a few bytes each time, must come to an end.
PROGRESS = 2**20


class Interrupted(Exception):
    """Worth another try; says why, how long the server wants to be left alone, and whether for too many requests."""

    def __init__(self, why, wait=0.0, limited=False):
        super().__init__(why)
        self.wait = wait
        self.limited = limited


def origin(url):
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def shown(url):
    """`url` as it may stand in a message: signed addresses of content networks carry their secret in the query."""
    return url.split("?", 1)[0]


def span(seconds):
    """Seconds as a person says them."""
    for unit, name in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"


def _way_out(limited):
    if not limited:
        return ""
    return (
        "Too many requests came from this address or token: wait, fetch with fewer boxes at once (model_store_source: "
        "box), or set model_store_hub_token, whose account has a limit of its own. "
    )


class _Redirects(urllib.request.HTTPRedirectHandler):
    http_error_308 = urllib.request.HTTPRedirectHandler.http_error_302

    def __init__(self, client):
        self.client = client

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        if origin(newurl)[0] not in ("http", "https") or (origin(req.full_url)[0], origin(newurl)[0]) == (
            "https",
            "http",
        ):
            raise ModelError(f"{shown(req.full_url)} redirects from https to {shown(newurl)}; that is refused")
        kept = {name: value for name, value in req.header_items() if name in ("Range", "Accept-encoding")}
        return self.client.request(newurl, kept, req.get_method())


class Client:
    """Fetches. `token` is sent to the origin of `endpoint` alone; `tries` counts attempts without progress."""

    def __init__(self, endpoint="", token=None, timeout=60, tries=6, use_proxy=True, sleep=time.sleep, secret=""):
        self.token = token
        self.token_origin = origin(endpoint) if token else None
        self.timeout = timeout
        self.tries = tries
        self.sleep = sleep
        # A part of addresses that must not stand in messages.
        self.secret = secret
        # Sentences about rate limits that were waited for.
        self.waited = []
        handlers = [_Redirects(self)] if use_proxy else [_Redirects(self), urllib.request.ProxyHandler({})]
        self.opener = urllib.request.build_opener(*handlers)

    def request(self, url, headers=None, method="GET"):
        # Compressed, a file would have neither its length nor its hash.
        sent = {"User-Agent": AGENT, "Accept-Encoding": "identity", **(headers or {})}
        if self.token and origin(url) == self.token_origin:
            sent["Authorization"] = f"Bearer {self.token}"
        return urllib.request.Request(url, headers=sent, method=method)

    def shown(self, url):
        return shown(url).replace(self.secret, "...") if self.secret else shown(url)

    def open(self, url, headers=None, method="GET"):
        """The answer, redirects followed; Interrupted where trying again may help, else ModelError."""
        try:
            return self.opener.open(self.request(url, headers, method), timeout=self.timeout)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code in BUSY:
                raise self._busy(url, error) from error
            raise HttpRefusal(f"{self.shown(url)} answers HTTP {error.code} {error.reason}", error.code) from error
        except urllib.error.URLError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error.reason):
                raise ModelError(
                    f"{self.shown(url)}: {error.reason}. Where a proxy or mirror has a private authority, put its "
                    "certificate into "
                    "/usr/local/share/ca-certificates on the box and run update-ca-certificates"
                ) from error
            raise Interrupted(str(error.reason)) from error
        except (OSError, http.client.HTTPException) as error:
            raise Interrupted(str(error) or type(error).__name__) from error

    def _busy(self, url, error):
        """Interrupted, or ModelError where the server wants to be left alone for longer than a run waits."""
        wait, limit = wait_of(error.code, error.headers, time.time())
        limited = error.code == 429
        why = f"HTTP {error.code}"
        if limited:
            why += ", its rate limit" + (f' "{limit}"' if limit else "") + " is used up"
        if (wait or 0) > LONGEST:
            raise ModelError(
                f"{self.shown(url)}: {why}, and it wants to be asked again in {span(wait)}, at "
                f"{time.strftime('%H:%M UTC on %Y-%m-%d', time.gmtime(min(time.time() + wait, 4e9)))}. "
                f"{_way_out(limited)}What has arrived is kept: run the same again then"
            )
        return Interrupted(why, wait or 0.0, limited)

    def _again(self, url, act):
        """What `act` returns; tried again, with growing pauses, while it is interrupted without progress."""
        failures = 0
        while True:
            try:
                return act()
            except Interrupted as error:
                failures = 1 if getattr(error, "progress", False) else failures + 1
                if failures >= self.tries:
                    way_out = _way_out(error.limited) or "Is the address right and can the box reach it? "
                    raise ModelError(
                        f"{self.shown(url)}: {error}, {failures} times in a row. {way_out}"
                        "What has arrived is kept: the next run goes on from there"
                    ) from error
                if error.limited and error.wait:
                    self.waited.append(f"{self.shown(url)}: {error}; waited {span(error.wait)}")
                self.sleep(max(error.wait, min(2.0 ** (failures - 1), 30.0)))

    def get(self, url):
        """(body, headers) of a small answer."""

        def act():
            with self.open(url) as answer:
                try:
                    return answer.read(), answer.headers
                except (OSError, http.client.HTTPException) as error:
                    raise Interrupted(str(error) or type(error).__name__) from error

        return self._again(url, act)

    def get_json(self, url):
        body, headers = self.get(url)
        try:
            return json.loads(body), headers
        except ValueError as error:
            raise ModelError(f"{self.shown(url)} does not answer with JSON; is it a model hub's address?") from error

    def size(self, url):
        def act():
            with self.open(url, method="HEAD") as answer:
                return answer.headers.get("Content-Length")

        length = self._again(url, act)
        if length is None or not length.isdigit():
            raise ModelError(f"{self.shown(url)}: the server does not say how long the file is (no Content-Length)")
        return int(length)

    def fetch(self, url, part, size, wanted):
        """Complete `part`, going on from what it holds, until it has `size` bytes and the hash `wanted`. Returns the
        hash."""
        for last in (False, True):
            self._again(url, lambda: self._go_on(url, part, size))
            found = file_hash(part, wanted.split(":")[0])
            if found == wanted:
                return found
            # A part from another time or mirror may be wrong as well: once more from the beginning.
            os.remove(part)
            if last:
                raise ModelError(
                    f"{self.shown(url)} was fetched twice and is not what its source promises: {found} instead of "
                    f"{wanted}. "
                    "It was altered on the way or at the source; nothing of it was kept"
                )
        raise AssertionError("unreachable")

    def _go_on(self, url, part, size):
        have = os.path.getsize(part) if os.path.exists(part) else 0
        if have > size:
            os.remove(part)
            have = 0
        if have == size and os.path.exists(part):
            return
        start = have
        try:
            answer = self.open(url, {"Range": f"bytes={have}-"} if have else None)
        except HttpRefusal as error:
            if error.code != 416:
                raise
            # The server's file is shorter than what is here.
            os.remove(part)
            raise Interrupted("the server has no more of the file than is here already") from error
        with answer:
            if have and answer.status != 206:
                have = 0  # a server without Range sends all of it again
            elif have and not re.match(rf"bytes {have}-", answer.headers.get("Content-Range", "")):
                raise Interrupted(f"asked for bytes from {have} on, got {answer.headers.get('Content-Range')}")
            with open(part, "r+b" if have else "wb") as handle:
                handle.seek(have)
                reason = "the connection ended"
                while have <= size:
                    try:
                        piece = answer.read1(min(CHUNK, size + 1 - have))
                    except (OSError, http.client.HTTPException) as error:
                        reason = str(error) or type(error).__name__
                        break
                    if not piece:
                        break
                    handle.write(piece)
                    have += len(piece)
                handle.truncate()
                handle.flush()
                os.fsync(handle.fileno())
        if have < size:
            error = Interrupted(f"{reason} after {have} of {size} bytes")
            error.progress = have - start >= PROGRESS
            raise error
        if have > size:
            os.remove(part)
            raise ModelError(
                f"{self.shown(url)} is longer than the {size} bytes that its source promises; nothing of it was kept"
            )


class HttpRefusal(ModelError):
    """An answer that asking again does not change."""

    def __init__(self, sentence, code):
        super().__init__(sentence)
        self.code = code
