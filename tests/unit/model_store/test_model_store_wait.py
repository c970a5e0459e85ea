"""A server's own word about when to ask again, in each of its forms.

The first form is what the hub sends: the example of huggingface_hub 2.4.0 (utils/_http.py, parse_ratelimit_headers).
"""

from email.message import Message

import model_store_fake  # noqa: F401 (lets module_utils be found)
import pytest
from ansible.module_utils.tandem_model_wait import wait_of

NOON = 1_798_977_600  # 2027-01-03 12:00:00 UTC


def headers(*pairs):
    message = Message()
    for name, value in pairs:
        message[name] = value
    return message


@pytest.mark.parametrize(
    ("pairs", "wait", "name"),
    [
        ([("RateLimit", '"api";r=0;t=55'), ("RateLimit-Policy", '"fixed window";"api";q=500;w=300')], 55, "api"),
        ([("ratelimit", '"resolvers" ; t = 7 ; r = 0')], 7, "resolvers"),
        ([("RateLimit", "api;r=0;t=9")], 9, "api"),
        ([("RateLimit", '"my, own; limit";r=0;t=9;pk=:YQ==:')], 9, "my, own; limit"),
        # several limits: one that is not used up is not the reason
        ([("RateLimit", '"burst";r=3;t=1, "day";r=0;t=300, "api";r=0;t=55')], 300, "day"),
        ([("RateLimit", '"burst";r=3;t=1'), ("RateLimit", '"api";r=0;t=55')], 55, "api"),
        ([("RateLimit", '"api";r=12;t=55')], None, ""),
        ([("RateLimit", '"api";r=12;t=55'), ("Retry-After", "3")], 3, ""),
        ([("RateLimit", '"api";r=0;t=55'), ("Retry-After", "80")], 80, ""),
        # older drafts and other servers
        ([("RateLimit", "limit=100, remaining=0, reset=50")], 50, ""),
        ([("RateLimit", "limit=100, remaining=7, reset=50")], None, ""),
        ([("RateLimit-Limit", "100"), ("RateLimit-Remaining", "0"), ("RateLimit-Reset", "50")], 50, ""),
        ([("RateLimit-Remaining", "4"), ("RateLimit-Reset", "50")], None, ""),
        ([("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", str(NOON + 40))], 40, ""),
        ([("X-RateLimit-Reset", str((NOON + 40) * 1000))], 40, ""),
        ([("X-RateLimit-Reset", "40")], 40, ""),
        # a time that has passed is no reason to wait
        ([("X-RateLimit-Reset", str(NOON - 40))], None, ""),
        ([("Retry-After", "17")], 17, ""),
        ([("Retry-After", "1.5")], 1.5, ""),
        ([("Retry-After", "Sun, 03 Jan 2027 12:01:30 GMT")], 90, ""),
        # by the server's clock, which is three hours before that of the box
        ([("Date", "Sun, 03 Jan 2027 09:00:00 GMT"), ("Retry-After", "Sun, 03 Jan 2027 09:00:20 GMT")], 20, ""),
        ([("Retry-After", "Sun, 03 Jan 2027 11:00:00 GMT")], 0, ""),
        # what is none
        ([], None, ""),
        ([("Retry-After", "soon")], None, ""),
        ([("Retry-After", "-5")], None, ""),
        ([("RateLimit", '"api";r=0')], None, ""),
        ([("RateLimit", "☃;;=")], None, ""),
        ([("X-RateLimit-Reset", "never")], None, ""),
        ([("Retry-After", "Sun, 99 Foo 2027 25:61:61 GMT")], None, ""),
    ],
)
def test_when_a_server_wants_to_be_asked_again(pairs, wait, name):
    assert wait_of(429, headers(*pairs), NOON) == (wait, name)


def test_limits_are_no_reason_of_another_answer():
    said = headers(("RateLimit", '"api";r=0;t=55'))
    assert wait_of(503, said, NOON) == (None, "")
    said["Retry-After"] = "4"
    assert wait_of(503, said, NOON) == (4, "")


def limited(seconds, code=429):
    return lambda handler: handler.answer(code, b"", {"RateLimit": f'"api";r=0;t={seconds}'})


def fetch(store, hub):
    return store(source="hub", endpoint=hub.url)


def test_the_hubs_rate_limit_is_waited_for_and_told(store, hub):
    hub.faults[hub.api] = [limited(55)]
    fetch(store, hub)
    assert store.slept == [55]
    (warning,) = store.warned
    assert 'HTTP 429, its rate limit "api" is used up; waited 55 s' in warning


def test_one_that_stays_is_the_reason(store, hub):
    hub.faults[hub.api] = [limited(55)] * 4
    with pytest.raises(store.Error, match=r'HTTP 429, its rate limit "api" is used up, 4 times in a row') as caught:
        fetch(store, hub)
    assert store.slept == [55, 55, 55]
    assert "Is the address right" not in str(caught.value) and "model_store_hub_token" in str(caught.value)


def test_one_that_lasts_for_hours_ends_the_run_at_once(store, hub):
    hub.faults[hub.api] = [limited(2 * 86400)]
    with pytest.raises(store.Error, match=r"wants to be asked again in 2 days, at \d\d:\d\d UTC on \d{4}-"):
        fetch(store, hub)
    hub.faults[hub.api] = [limited(10**12)]
    with pytest.raises(store.Error, match="wants to be asked again in"):
        fetch(store, hub)
    assert store.slept == []


def test_a_server_in_maintenance_is_no_rate_limit(store, hub):
    hub.faults[hub.api] = [lambda handler: handler.answer(503, b"", {"Retry-After": "4000"})]
    with pytest.raises(store.Error, match="HTTP 503, and it wants to be asked again in 67 min") as caught:
        fetch(store, hub)
    assert "Too many requests" not in str(caught.value)
