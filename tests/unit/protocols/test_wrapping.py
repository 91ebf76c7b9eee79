from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.errors import InputError
from battlebrokers.protocols.base import LinkOptions
from battlebrokers.protocols.script import Listening, Notification, Say, Script
from battlebrokers.protocols.wrapping import (
    completed,
    kept,
    publishing,
    resource_of,
    subscribing,
    unwrapped,
    window_of,
)
from support.examples import examples

OPTIONS = LinkOptions("c", known={"uuid": "u"}, known_of_topics={"a/b": {"listener.uuid": ["x", "y"]}})


def test_a_publish_knows_the_node_the_topic_and_its_listeners():
    say = Say("post", "/m/${uuid}?t=${topic}", json={"to": ["${listener.uuid}"], "r": "${resource}", "p": "${payload}"})
    request = publishing(say, OPTIONS, "a/b", url=True)
    target, body, _ = request.render({"payload": b"\x00", "id": "1", "seq": "1"})
    assert target == b"/m/u?t=a/b"
    assert body == b'{"to":["x","y"],"r":"a-b","p":"AA=="}'


def test_an_unknown_name_is_said_before_anything_is_sent():
    with pytest.raises(InputError, match="tokn"):
        publishing(Say("post", "/${tokn}"), OPTIONS, "a/b")
    with pytest.raises(InputError, match="payload"):
        subscribing(Say("get", "/${payload}"), OPTIONS, "a/b")


def test_what_was_learned_when_logging_in_is_known_afterwards():
    request = subscribing(Say("get", "/${token}/${filter}"), OPTIONS, "a/b", learned={"token": "t"})
    assert request.render({"id": "1"})[0] == b"/t/a/b"


def test_general_headers_stand_in_every_request_and_special_ones_win():
    script = Script(
        protocol="coap",
        headers={"accept": "50", "279": "me"},
        publish=Say("put", "/", headers={"accept": "0"}),
        login=[Say("get", "/")],
        listening=Listening(way="observe", steps=[Say("get", "/")], fetch=Say("get", "/"), undo=[Say("get", "/")]),
    )
    made = completed(script)
    assert made is completed(script)
    assert made is not None
    assert made.publish is not None
    assert made.publish.headers == {"accept": "0", "279": "me"}
    listening = made.listening
    assert listening is not None
    for say in (*made.login, *listening.steps, *listening.undo, listening.fetch):
        assert say is not None
        assert say.headers == {"accept": "50", "279": "me"}
    assert completed(None) is None


@pytest.mark.parametrize(
    ("notification", "body", "found"),
    [
        (Notification(), b"\xff\x00", [(b"t", b"\xff\x00")]),
        (Notification(encoding="hex"), b"ff00", [(b"t", b"\xff\x00")]),
        (Notification(encoding="hex"), b"xyz", None),
        (Notification(payload="$.d"), b'{"d":"text"}', [(b"t", b"text")]),
        (Notification(payload="$.d", topic="$.n"), b'{"d":"1","n":"x/y"}', [(b"x/y", b"1")]),
        (Notification(payload="$.d", topic="$.n"), b'{"d":"1","n":5}', [(b"t", b"1")]),
        (Notification(payload="$.d", when={"$.k": "n"}), b'{"d":"1","k":"other"}', []),
        (Notification(payload="$.d"), b"[", None),
        (Notification(payload="$.d"), b"{}", None),
        (Notification(payload="$.d", each="$.all"), b'{"all":[{"d":"1"},{"d":"2"}]}', [(b"t", b"1"), (b"t", b"2")]),
        (Notification(payload="$.d", each="$.all"), b'{"all":3}', None),
        (Notification(each="$", encoding="text"), b'["a","b"]', [(b"t", b"a"), (b"t", b"b")]),
    ],
)
def test_notifications_are_unwrapped(notification: Notification, body: bytes, found: object):
    assert unwrapped(notification, body, b"t") == found


@examples(200)
@given(st.binary(max_size=80), st.sampled_from(["base64", "hex", "text", "raw"]))
def test_no_bytes_break_the_unwrapping(body: bytes, encoding: str):
    for notification in (Notification(encoding=encoding), Notification(payload="$.a[0]", each="$", encoding=encoding)):  # type: ignore[arg-type]
        found = unwrapped(notification, body, b"t")
        assert found is None or all(isinstance(payload, bytes) for _, payload in found)


def test_a_value_an_answer_does_not_have_is_named():
    say = Say("post", "/", keep={"uuid": "$.uuid", "code": "status"})
    assert kept(say, {"uuid": "u"}, {}, 201) == {"uuid": "u", "code": "201"}
    assert kept(say, {}, {}, 201) == "uuid"


def test_the_window_is_the_dialects_then_the_scenarios_then_the_protocols():
    assert window_of(Script(protocol="x", window=3), LinkOptions("c", inflight=9), 8) == 3
    assert window_of(Script(protocol="x"), LinkOptions("c", inflight=9), 8) == 9
    assert window_of(None, LinkOptions("c"), 8) == 8


def test_resources_are_names_every_middleware_takes():
    assert resource_of("a/b.c d_e-f") == "a-b-c-d_e-f"
