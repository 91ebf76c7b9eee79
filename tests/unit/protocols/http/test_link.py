"""The HTTP link against a server whose every word is the test's: publishing, the window, logging in, leaving."""

from __future__ import annotations

import asyncio
import base64
import json

import numpy as np
import pytest

from battlebrokers.contenders.dialect import REQUESTS
from battlebrokers.errors import InputError, LinkError
from battlebrokers.protocols.base import (
    Completion,
    Endpoint,
    Failure,
    Held,
    LinkOptions,
    Outgoing,
    Subscription,
)
from battlebrokers.protocols.http.plain import PlainHttpLink
from battlebrokers.protocols.http.scripted import ScriptedHttpLink
from battlebrokers.protocols.http.sender import WINDOW_UNLESS_SAID, Sender
from battlebrokers.protocols.registry import capabilities_of, make_link
from battlebrokers.protocols.script import Say, Script
from support.links import Ear, until
from support.web import Web


def make(
    web: Web, ear: Ear | None = None, *, path: str = "/resources", transport: str = "tcp", **options: object
) -> Sender:
    settings = LinkOptions("device-1", **{"connect_timeout_s": 10.0, **options})  # type: ignore[arg-type]
    link = make_link("http", Endpoint(transport, "127.0.0.1", web.port, path), settings, ear or Ear())
    assert isinstance(link, Sender)
    return link


def out(*payloads: bytes, topic: bytes = b"city/1", token: int = 0, qos: int = 0) -> Outgoing:
    return Outgoing(topic, list(payloads), qos, retain=False, first_token=token)


# ── plain ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_message_is_a_post_to_its_topic_and_any_2xx_is_success(web: Web):
    ear = Ear()
    link = make(web, ear)
    assert isinstance(link, PlainHttpLink)
    assert link.held is Held.OFFLINE
    assert link.room(0) == 0
    await link.open()
    written = link.publish(out(b"\x00\xffpayload", topic="ä b/1".encode(), token=7))
    asked = await web.asked()
    assert (asked.method, asked.target, asked.body) == ("POST", "/resources/%C3%A4%20b/1", b"\x00\xffpayload")
    assert asked.headers["host"] == f"127.0.0.1:{web.port}"
    assert written == len(asked.raw)
    assert (link.structure_bytes, link.url_bytes) == (9, len(f"http://127.0.0.1:{web.port}{asked.target}"))
    assert link.unacknowledged == 1
    asked.answer(204)
    await until(lambda: ear.acked)
    assert ear.acked == [7]
    assert link.unacknowledged == 0
    await link.close()


async def test_a_matrix_of_payloads_goes_out_row_by_row(web: Web):
    link = make(web)
    await link.open()
    rows = np.arange(12, dtype=np.uint8).reshape(3, 4)
    written = link.publish(Outgoing(b"t", rows, 0, retain=False, first_token=0))
    asked = await web.many(3)
    assert sorted(each.body for each in asked) == [row.tobytes() for row in rows]
    assert written == sum(len(each.raw) for each in asked)
    link.abort()


async def test_each_request_in_flight_has_a_connection_of_its_own_and_connections_are_used_again(web: Web):
    ear = Ear()
    link = make(web, ear, inflight=3)
    await link.open()
    assert link.room(0) == 3
    link.publish(out(b"a", b"b", b"c"))
    assert link.room(0) == 0
    assert link.held is Held.WINDOW
    with pytest.raises(ValueError, match="where 0 have room"):
        link.publish(out(b"d"))
    for asked in await web.many(3):
        asked.answer(200, b"fine")
    await until(lambda: len(ear.acked) == 3)
    assert ear.writable_calls == 1
    for token in range(3, 12):
        link.publish(out(b"x", token=token))
        (await web.asked()).answer(201)
        await until(lambda wanted=token: wanted in ear.acked)
    assert web.connections == 3
    await link.close()


async def test_room_is_told_where_more_can_be_handed_over_at_once(web: Web):
    left = list(range(2, 20))

    def refill(link: object) -> None:
        assert isinstance(link, Sender)
        while left and link.room(0):
            link.publish(out(b"x", token=left.pop(0)))

    ear = Ear(on_writable=refill)
    link = make(web, ear, inflight=2)
    await link.open()
    link.publish(out(b"x", b"y"))
    for _ in range(20):
        (await web.asked()).answer()
    await until(lambda: len(ear.acked) == 20)
    assert sorted(ear.acked) == list(range(20))
    await link.close()


@pytest.mark.parametrize(
    ("inflight", "said", "window"), [(65_535, 0, WINDOW_UNLESS_SAID), (100, 0, 100), (100, 4, 4), (3, 4, 3)]
)
def test_the_window_is_the_smaller_of_scenario_and_contender(inflight: int, said: int, window: int):
    script = Script("http", publish=Say("post", "/"), window=said)
    options = LinkOptions("x", inflight=inflight, script=script)
    assert ScriptedHttpLink(Endpoint("tcp", "h", 1), options, Ear()).window == window


async def test_a_server_that_closes_after_each_answer_gets_a_new_connection_for_each_request(web: Web):
    ear = Ear()
    link = make(web, ear)
    await link.open()
    for token in range(3):
        link.publish(out(b"x", token=token))
        asked = await web.asked()
        asked.answer(Connection="close")
        await until(lambda wanted=token: wanted in ear.acked)
    assert web.connections == 3
    await link.close()


async def test_an_idle_connection_the_server_closed_is_not_used_again(web: Web):
    ear = Ear()
    link = make(web, ear)
    await link.open()
    link.publish(out(b"x"))
    asked = await web.asked()
    asked.answer()
    await until(lambda: ear.acked)
    asked.close()
    await until(lambda: not link._idle)
    link.publish(out(b"x", token=1))
    (await web.asked()).answer()
    await until(lambda: ear.acked == [0, 1])
    assert ear.closings == []
    await link.close()


async def test_a_connection_is_not_trusted_as_long_as_the_server_says_it_keeps_it(web: Web):
    ear = Ear()
    link = make(web, ear)
    await link.open()
    for token in range(2):
        link.publish(out(b"x", token=token))
        (await web.asked()).answer(Keep_Alive="timeout=0, max=100")
        await until(lambda wanted=token: wanted in ear.acked)
    assert web.connections == 2
    link.abort()


async def test_bodies_of_every_kind_complete_a_request(web: Web):
    ear = Ear()
    link = make(web, ear)
    await link.open()
    answers = [
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\nuntil closed",
    ]
    for token, answer in enumerate(answers):
        link.publish(out(b"x", token=token))
        asked = await web.asked()
        for byte in answer:
            asked.send(bytes([byte]))
        if b"1.0" in answer:
            asked.close()
        await until(lambda wanted=token: wanted in ear.acked)
    assert ear.refused == []
    link.abort()


async def test_plain_http_cannot_subscribe_and_says_so(web: Web):
    assert not capabilities_of("http").receive
    link = make(web)
    with pytest.raises(LinkError, match="not open"):
        await link.subscribe([Subscription("a")])
    await link.open()
    with pytest.raises(LinkError, match="plain HTTP cannot subscribe") as caught:
        await link.subscribe([Subscription("a")])
    assert "callback, stream or poll" in caught.value.hint
    await link.unsubscribe([Subscription("a")])
    link.pause_reading()
    link.resume_reading()
    await link.close()


async def test_user_and_password_become_basic_authorization(web: Web):
    link = make(web, username="u", password="p:w")
    await link.open()
    link.publish(out(b"x"))
    assert (await web.asked()).headers["authorization"] == "Basic " + base64.b64encode(b"u:p:w").decode()
    link.abort()


async def test_nobody_listening_is_told_in_words(free_port: int):
    link = PlainHttpLink(Endpoint("tcp", "127.0.0.1", free_port), LinkOptions("x"), Ear())
    with pytest.raises(LinkError, match="nobody listens there"):
        await link.open()
    assert link.held is Held.OFFLINE
    with pytest.raises(LinkError, match="not open"):
        link.publish(out(b"x"))


async def test_a_link_is_opened_once_and_again_after_closing(web: Web):
    link = make(web)
    await link.open()
    with pytest.raises(LinkError, match="already connected"):
        await link.open()
    await link.close()
    await link.close()
    await link.open()
    link.abort()


async def test_closing_waits_for_answers_that_are_on_their_way(web: Web):
    ear = Ear()
    link = make(web, ear)
    await link.open()
    link.publish(out(b"x"))
    asked = await web.asked()
    closing = asyncio.ensure_future(link.close())
    await asyncio.sleep(0)
    asked.answer()
    await closing
    assert ear.acked == [0]


async def test_what_is_in_flight_has_failed_when_the_link_is_dropped(web: Web):
    ear = Ear()
    link = make(web, ear, inflight=4)
    await link.open()
    link.publish(out(b"x", b"y", b"z"))
    await web.asked()
    link.abort()
    assert sorted(ear.refused) == [(token, Failure.CLOSED) for token in range(3)]
    assert link.unacknowledged == 0
    await asyncio.sleep(0.05)
    assert len(ear.refused) == 3


async def test_connections_come_from_the_source_address(web: Web):
    link = make(web, source_address="127.0.0.77")
    await link.open()
    link.publish(out(b"x"))
    asked = await web.asked()
    assert asked.writer.get_extra_info("peername")[0] == "127.0.0.77"
    link.abort()


# ── with a dialect ───────────────────────────────────────────────────────────────────────────────────────────────

MESHBLU = Script(
    "http",
    login=[
        Say(
            "post",
            "/token",
            json={"user": "${username}"},
            statuses=[201],
            keep={"token": "$.token", "where": "header:Location ~ [0-9]+$"},
        )
    ],
    publish=Say(
        "put",
        "/${where}/messages?id=${id}",
        headers={"X-Seq": "${seq}"},
        json={"devices": ["${listener.uuid}"], "payload": "${payload}", "topic": "${resource}"},
        success={"$.ok": True},
    ),
    headers={"X-Token": "${token}"},
    logout=[Say("delete", "/token/${token}")],
)


async def opened(web: Web, ear: Ear, script: Script = MESHBLU, **options: object) -> Sender:
    known = {"/city/1": {"listener.uuid": ["u1", "u2"]}, "city/1": {"listener.uuid": ["u1", "u2"]}}
    link = make(web, ear, path="/", script=script, username="ann", known_of_topics=known, **options)
    opening = asyncio.ensure_future(link.open())
    if script.login:
        asked = await web.asked()
        assert asked.json == {"user": "ann"}
        asked.answer(201, {"token": "t\r\nEvil: 1"}, Location="/users/42")
    await opening
    return link


async def test_a_dialect_logs_in_publishes_and_logs_out(web: Web):
    script = MESHBLU
    ear = Ear()
    link = await opened(web, ear, script)
    assert isinstance(link, ScriptedHttpLink)
    written = link.publish(out(b"\x01\x02"))
    asked = await web.asked()
    assert asked.method == "PUT"
    assert asked.target.startswith("/42/messages?id=")
    assert asked.json == {"devices": ["u1", "u2"], "payload": base64.b64encode(b"\x01\x02").decode(), "topic": "city-1"}
    assert asked.headers["x-token"] == "t  Evil: 1"
    assert asked.headers["x-seq"] == "0"
    assert asked.headers["content-type"] == "application/json"
    url = f"http://127.0.0.1:{web.port}{asked.target}"
    assert (written, link.structure_bytes, link.url_bytes) == (len(asked.raw), len(asked.body), len(url))
    asked.answer(200, {"ok": True})
    await until(lambda: ear.acked == [0])
    closing = asyncio.ensure_future(link.close())
    asked = await web.asked()
    assert (asked.method, asked.target) == ("DELETE", "/token/t%0D%0AEvil%3A%201")
    asked.answer()
    await closing


async def test_every_request_has_an_id_of_its_own(web: Web):
    link = await opened(web, Ear(), inflight=8)
    link.publish(out(*[b"x"] * 8))
    assert len({asked.target for asked in await web.many(8)}) == 8
    link.abort()


@pytest.mark.parametrize(
    ("status", "body", "completion", "reason"),
    [
        (200, {"ok": True}, Completion.ACKED, 0),
        (200, {"ok": False}, Completion.FAILED, Failure.UNEXPECTED),
        (200, {}, Completion.FAILED, Failure.UNEXPECTED),
        (200, '{"ok": tr', Completion.FAILED, Failure.UNEXPECTED),
        (200, "[" * 100_000, Completion.FAILED, Failure.UNEXPECTED),
        (200, b"\xff\xfe", Completion.FAILED, Failure.UNEXPECTED),
        (500, {"ok": True}, Completion.REFUSED, 500),
        (302, "", Completion.REFUSED, 302),
        (401, {"error": "no"}, Completion.REFUSED, 401),
    ],
)
async def test_answers_are_judged_by_status_and_document(
    web: Web, status: int, body: object, completion: Completion, reason: int
):
    ear = Ear()
    link = await opened(web, ear)
    link.publish(out(b"x"))
    (await web.asked()).answer(status, body)  # type: ignore[arg-type]
    await until(lambda: ear.reasons)
    assert ear.reasons == [reason]
    assert bool(ear.acked) is (completion is Completion.ACKED)
    link.abort()


@pytest.mark.parametrize("verb", REQUESTS)
async def test_all_verbs(web: Web, verb: str):
    script = Script("http", publish=Say(verb, "/${topic}?p=${payload|base64}"))  # type: ignore[arg-type]
    ear = Ear()
    link = await opened(web, ear, script)
    link.publish(out(b"\r\n"))
    asked = await web.asked()
    assert (asked.method, asked.target, asked.body) == (verb.upper(), "/city/1?p=DQo=", b"")
    assert ("content-length" in asked.headers) is (verb in {"post", "put", "patch"})
    asked.answer()
    await until(lambda: ear.acked == [0])
    link.abort()


async def test_the_body_an_answer_to_head_speaks_of_is_not_waited_for(web: Web):
    """And the connection serves the next request, whose answer has one."""
    login = Say("get", "/login", keep={"key": "$.key"})
    script = Script("http", login=[login], publish=Say("head", "/${key}?p=${payload|hex}"), logout=[login], window=1)
    ear = Ear()
    link = make(web, ear, script=script)
    opening = asyncio.create_task(link.open())
    (await web.asked()).answer(200, {"key": "k"})
    await opening
    for token in range(3):
        await until(lambda: link.room(0))
        link.publish(out(b"x", token=token))
        asked = await web.asked()
        assert (asked.method, asked.target) == ("HEAD", "/resources/k?p=78")
        asked.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        await until(lambda token=token: len(ear.acked) == token + 1)
    closing = asyncio.create_task(link.close())
    (await web.asked()).answer(200, {"key": "k"})
    await closing
    assert ear.acked == [0, 1, 2]
    assert not ear.refused
    assert web.connections == 1


@pytest.mark.parametrize(
    ("status", "body", "words", "code"),
    [
        (401, '{"error": "who?"}', "answered POST /token with status 401", 401),
        (201, "{}", "without 'token'", Failure.UNEXPECTED),
        (201, "nonsense", "without 'token'", Failure.UNEXPECTED),
    ],
)
async def test_a_login_that_is_refused_is_told_in_words(web: Web, status: int, body: str, words: str, code: int):
    link = make(web, script=MESHBLU, path="/")
    opening = asyncio.ensure_future(link.open())
    (await web.asked()).answer(status, body, Location="/1")
    with pytest.raises(LinkError, match=words) as caught:
        await opening
    assert caught.value.code == code
    assert link.held is Held.OFFLINE
    assert not link._idle


async def test_a_login_nobody_answers_is_told_as_a_timeout(web: Web):
    link = make(web, script=MESHBLU, path="/", answer_timeout_s=0.2)
    with pytest.raises(LinkError, match="timeout") as caught:
        await link.open()
    assert caught.value.code == Failure.TIMEOUT


async def test_a_name_nobody_knows_is_told_when_logging_in_and_fails_messages_when_publishing(web: Web):
    with pytest.raises(LinkError, match=r"\$\{nobody\} of GET /\$\{nobody\} is not known"):
        await make(web, script=Script("http", login=[Say("get", "/${nobody}")])).open()
    ear = Ear()
    link = make(web, ear, script=Script("http", publish=Say("get", "/${nobody}")))
    await link.open()
    assert link.publish(out(b"x", token=3)) == 0
    assert ear.refused == []
    await until(lambda: ear.refused)
    assert ear.refused == [(3, Failure.UNEXPECTED)]
    link.abort()


def test_a_filter_that_does_not_exist_is_told_when_the_link_is_made():
    script = Script("http", publish=Say("get", "/${topic|rot13}"))
    with pytest.raises(InputError, match="no such filter"):
        ScriptedHttpLink(Endpoint("tcp", "h", 1), LinkOptions("x", script=script), Ear())


async def test_values_kept_from_a_publish_are_known_to_the_next(web: Web):
    script = Script("http", publish=Say("post", "/${next}", json={"p": "${payload}"}, keep={"next": "$.next"}))
    ear = Ear()
    link = make(web, ear, script=script, path="/", known={"next": "first"})
    await link.open()
    for token, wanted in enumerate(["/first", "/1", "/2"]):
        link.publish(out(b"x", token=token))
        asked = await web.asked()
        assert asked.target == wanted
        asked.answer(200, json.dumps({"next": token + 1}))
        await until(lambda done=token: done in ear.acked)
    link.abort()
