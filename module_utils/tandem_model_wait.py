# SPDX-License-Identifier: Apache-2.0
"""When a server wants to be asked again, by the headers of its refusal. Pure.

The hub sends RateLimit with every answer, as drafts 8 and later of the IETF have it: "api";r=0;t=55, r being what is
left and t the seconds until there is more. Its own client (huggingface_hub, utils/_http.py) takes it for the reason of
a 429 where r is 0, and else Retry-After. Mirrors and proxies have older forms: RateLimit-Reset in seconds,
X-RateLimit-Reset in seconds or as a time.
"""

from __future__ import annotations

import email.utils
import re

# An item of a RateLimit header: a name, as a string or a token, and parameters.
ITEM = re.compile(
    r'(?:"((?:[^"\\]|\\.)*)"|([A-Za-z*][^\s;,="]*))((?:\s*;\s*[a-z*][\w*.-]*\s*(?:=\s*(?:"[^"]*"|[^\s;,"]*))?)+)'
)
# Seconds since 1970 rather than from now.
EPOCH = 10**9


def wait_of(code, headers, now):
    """(seconds to wait or None, name of the limit that is used up or "") for an answer with `code`.

    headers  of the answer, with get and get_all
    now      seconds since 1970, for a server that does not say what time it has
    """
    limits = _limits(headers, now) if code == 429 else []
    waits = [seconds for _, seconds in limits] + [_retry_after(headers, now)]
    found = [seconds for seconds in waits if seconds is not None and seconds >= 0]
    names = [name for name, seconds in limits if found and seconds == max(found)]
    return max(found, default=None), names[0] if names else ""


def _limits(headers, now):
    """(name, seconds until it is open again) of each limit of which nothing is left."""
    text = ", ".join(headers.get_all("RateLimit", []))
    found = []
    for name, token, written in ITEM.findall(text):
        has = dict(re.findall(r"([rt])\s*=\s*(\d+)\b", written))
        if has.get("r") == "0" and "t" in has:
            found.append((name or token, int(has["t"])))
    # draft 7: limit=100, remaining=0, reset=50
    old = dict(re.findall(r"\b(remaining|reset)\s*=\s*(\d+)\b", text))
    if old.get("remaining") == "0" and "reset" in old:
        found.append(("", int(old["reset"])))
    for prefix in ("RateLimit", "X-RateLimit"):
        left, reset = (str(headers.get(f"{prefix}-{name}", "")).strip() for name in ("Remaining", "Reset"))
        if left in ("0", "") and re.fullmatch(r"\d+(\.\d+)?", reset):
            found.append(("", _until(float(reset), headers, now)))
    return found


def _until(reset, headers, now):
    if reset < EPOCH:
        return reset
    # milliseconds, as some have it
    return (reset / 1000 if reset >= 1000 * EPOCH else reset) - _date(headers.get("Date"), now)


def _retry_after(headers, now):
    text = str(headers.get("Retry-After", "")).strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    then = _date(text, None)
    # by the server's own clock, as the box's may be wrong
    return None if then is None else max(0.0, then - _date(headers.get("Date"), now))


def _date(text, default):
    try:
        return email.utils.parsedate_to_datetime(text or "").timestamp()
    except (TypeError, ValueError, OverflowError, IndexError):
        return default
