"""Notifications that the middleware brings to our listener, and the subscriptions behind them."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from battlebrokers.errors import LinkError
from battlebrokers.protocols.base import Subscription
from battlebrokers.protocols.http import callbacks
from battlebrokers.protocols.http.callbacks import callback_server
from battlebrokers.protocols.http.scripted import ScriptedHttpLink
from battlebrokers.protocols.script import Listening, Notification, Say, Script
from support.links import Ear, until
from support.web import Web, scripted_link

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quiet_loop")]

PAYLOAD = bytes(range(256))
IN_BASE64 = base64.b64encode(PAYLOAD).decode()

CALLBACK = Script(
    "http",
    listening=Listening(
        way="callback",
        steps=[
            Say("post", "/${resource}", json={"nu": ["${callback}"]}, statuses=[201], keep={"sub": "header:Location"})
        ],
        undo=[Say("delete", "${sub|path}")],
    ),
    notification=Notification(
        when={"$.sgn.nev": None},
        payload="$.sgn.nev.con",
        encoding="base64",
        topic="$.sgn.sur",
        answer=Say("post", statuses=[200], headers={"X-RSC": "2000", "X-RI": "${ri}"}, keep={"ri": "header:X-M2M-RI"}),
    ),
)
TOPICS: dict[str, dict[str, str | list[str]]] = {"a/1": {}, "a/2": {}, "b/1": {}}


async def subscribed(
    web: Web, ear: Ear, script: Script = CALLBACK, wanted: str = "a/1", **options: object
) -> tuple[ScriptedHttpLink, str]:
    link = scripted_link(web, ear, script, known_of_topics=TOPICS, **options)
    await link.open()
    subscribing = asyncio.ensure_future(link.subscribe([Subscription(wanted, 1)]))
    asked = await web.asked()
    asked.answer(201, Location="/subs/7")
    [granted] = await subscribing
    assert granted.qos == 1
    return link, asked.json["nu"][0]


def notice(payload: str = IN_BASE64) -> dict[str, Any]:
    return {"m2m:sgn": {"nev": {"con": payload}, "sur": "/sub/1"}}


class Middleware:
    """Calls back over one connection, with whatever bytes the test says."""

    def __init__(self, url: str) -> None:
        self.place = urlsplit(url)

    async def __aenter__(self) -> Middleware:
        assert self.place.hostname == "127.0.0.1"
        self.reader, self.writer = await asyncio.open_connection(self.place.hostname, self.place.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    def call(self, body: bytes | dict[str, Any], **headers: str) -> int:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        head = f"POST {self.place.path} HTTP/1.1\r\nHost: us\r\n{lines}Content-Length: {len(content)}\r\n\r\n"
        self.writer.write(head.encode() + content)
        return len(head) + len(content)

    async def answer(self) -> tuple[int, dict[str, str]]:
        head = (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 60)).decode()
        first, *lines = head.split("\r\n")[:-2]
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        await self.reader.readexactly(int(headers.get("content-length", 0)))
        return int(first.split()[1]), headers


async def test_notifications_come_to_the_clients_own_url_and_are_answered_as_the_dialect_says(web: Web):
    ear = Ear()
    link, url = await subscribed(web, ear)
    async with Middleware(url) as middleware:
        size = middleware.call(notice(), X_M2M_RI="r1")
        status, headers = await middleware.answer()
        assert (status, headers["x-rsc"], headers["x-ri"]) == (200, "2000", "r1")
        [message] = ear.messages
        assert (message.topic, message.payload, message.wire_size) == (b"/sub/1", PAYLOAD, size)
        # A question whether we are there is answered likewise, and is no message.
        middleware.call({"m2m:sgn": {"vrq": True}}, X_M2M_RI="r2")
        assert (await middleware.answer())[1]["x-ri"] == "r2"
        assert len(ear.messages) == 1
        assert ear.faults == []
    link.abort()


async def test_what_cannot_be_read_is_told_as_malformed_and_the_link_lives_on(web: Web):
    ear = Ear()
    link, url = await subscribed(web, ear)
    async with Middleware(url) as middleware:
        for body in (b"{", b"\xff", json.dumps(notice("no base64!")).encode(), b"[" * 100_000):
            middleware.call(body)
            assert (await middleware.answer())[0] == 200
        assert len(ear.faults) == 4
        middleware.call(notice())
        await middleware.answer()
    assert ear.payloads == [PAYLOAD]
    assert ear.closings == []
    link.abort()


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense-without-an-end" * 10,
        b"GET\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -4\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000,
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\xaa" * 40,
    ],
    ids=["no request", "no target", "negative length", "endless headers", "negative chunk", "TLS"],
)
async def test_a_malformed_request_is_answered_with_400_and_told(web: Web, data: bytes):
    ear = Ear()
    link, url = await subscribed(web, ear)
    async with Middleware(url) as middleware:
        middleware.writer.write(data)
        assert (await middleware.answer())[0] == 400
        assert await middleware.reader.read() == b""
    assert len(ear.faults) == 1
    async with Middleware(url) as middleware:
        middleware.call(notice())
        assert (await middleware.answer())[0] == 200
    assert ear.payloads == [PAYLOAD]
    link.abort()


@pytest.mark.parametrize("whole_ones", [0, 2])
@pytest.mark.parametrize("part", [b"POST /", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n1234"])
async def test_a_request_that_stops_half_way_is_closed(
    web: Web, monkeypatch: pytest.MonkeyPatch, part: bytes, whole_ones: int
):
    monkeypatch.setattr(callbacks, "PATIENCE_S", 0.5)
    ear = Ear()
    link, url = await subscribed(web, ear)
    async with Middleware(url) as idle, Middleware(url) as middleware:
        idle.call(notice())
        assert (await idle.answer())[0] == 200
        for _ in range(whole_ones):
            middleware.call(notice())
        middleware.writer.write(part)
        for _ in range(whole_ones):
            assert (await middleware.answer())[0] == 200
        assert (await middleware.answer())[0] == 408
        assert await middleware.reader.read() == b""
        assert len(ear.faults) == 1
        # Who has nothing to say may stay.
        idle.call(notice())
        assert (await idle.answer())[0] == 200
    link.abort()


async def test_a_request_that_comes_slowly_is_waited_for(web: Web, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(callbacks, "PATIENCE_S", 1.0)
    ear = Ear()
    link, url = await subscribed(web, ear)
    async with Middleware(url) as middleware:
        body = json.dumps(notice()).encode()
        head = f"POST {middleware.place.path} HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        size = -(-len(body) // 8)
        # All of it takes longer than the patience that every single piece has.
        for piece in [head, *(body[at : at + size] for at in range(0, len(body), size))]:
            middleware.writer.write(piece)
            await asyncio.sleep(0.15)
        assert (await middleware.answer())[0] == 200
    assert ear.payloads == [PAYLOAD]
    assert ear.faults == []
    link.abort()


async def test_a_path_nobody_has_is_not_found(web: Web):
    link, url = await subscribed(web, Ear())
    async with Middleware(url.rpartition("/")[0]) as middleware:
        middleware.call(notice())
        assert (await middleware.answer())[0] == 404
    link.abort()


async def test_large_and_chunked_bodies_and_a_client_that_asks_first(web: Web):
    ear = Ear()
    link, url = await subscribed(web, ear)
    large = bytes(range(256)) * 8192
    document = json.dumps(notice(base64.b64encode(large).decode())).encode()

    async def in_pieces() -> AsyncIterator[bytes]:
        for place in range(0, len(document), 100_000):
            yield document[place : place + 100_000]

    async with aiohttp.ClientSession() as session:
        async with session.post(url, data=in_pieces()) as answer:
            assert answer.status == 200
        async with session.post(url, data=document, expect100=True) as answer:
            assert answer.status == 200
    assert ear.payloads == [large, large]
    link.abort()


async def test_several_notifications_on_one_connection_without_waiting_are_all_answered(web: Web):
    ear = Ear()
    link, url = await subscribed(web, ear)
    async with Middleware(url) as middleware:
        for number in range(50):
            middleware.call(notice(base64.b64encode(b"%d" % number).decode()))
        for _ in range(50):
            assert (await middleware.answer())[0] == 200
    assert ear.payloads == [b"%d" % number for number in range(50)]
    link.abort()


async def test_a_paused_client_answers_callbacks_late(web: Web):
    ear = Ear()
    link, url = await subscribed(web, ear)
    async with Middleware(url) as middleware, Middleware(url) as other:
        link.pause_reading()
        middleware.call(notice())
        other.call(notice())
        await until(lambda: len(link._reception._postponed) == 2)  # type: ignore[union-attr]
        assert ear.messages == []
        link.resume_reading()
        assert (await middleware.answer())[0] == 200
        assert (await other.answer())[0] == 200
    assert len(ear.messages) == 2
    link.abort()


async def test_all_clients_of_a_loop_share_one_listener_and_the_last_one_closes_it(web: Web):
    ears = [Ear(), Ear()]
    (one, url_of_one), (two, url_of_two) = [await subscribed(web, ear, source_address="127.0.0.9") for ear in ears]
    assert urlsplit(url_of_one).netloc == urlsplit(url_of_two).netloc
    assert url_of_one != url_of_two
    async with Middleware(url_of_two) as middleware:
        middleware.call(notice())
        await middleware.answer()
        assert [len(ear.messages) for ear in ears] == [0, 1]
        two.abort()
        middleware.call(notice())
        assert (await middleware.answer())[0] == 404
    server = callback_server("127.0.0.1")
    one.abort()
    assert server.receivers == {}
    with pytest.raises(OSError):
        await Middleware(url_of_one).__aenter__()


async def test_subscriptions_are_undone_when_the_client_leaves(web: Web):
    link, _ = await subscribed(web, Ear())
    closing = asyncio.ensure_future(link.close())
    asked = await web.asked()
    assert (asked.method, asked.target) == ("DELETE", "/subs/7")
    asked.answer(200)
    await closing


async def test_a_filter_becomes_one_subscription_for_each_topic_and_is_undone_for_each(web: Web):
    link = scripted_link(web, Ear(), CALLBACK, known_of_topics=TOPICS)
    await link.open()
    subscribing = asyncio.ensure_future(link.subscribe([Subscription("a/+"), Subscription("c/1")]))
    for number, target in enumerate(["/a-1", "/a-2", "/c-1"]):
        asked = await web.asked()
        assert asked.target == target
        asked.answer(201, Location=f"/subs/{number}")
    assert [granted.qos for granted in await subscribing] == [0, 0]
    undoing = asyncio.ensure_future(link.unsubscribe([Subscription("a/+")]))
    for number in range(2):
        asked = await web.asked()
        assert asked.target == f"/subs/{number}"
        # One that fails does not keep the others.
        asked.answer(404 if not number else 200)
    with pytest.raises(LinkError, match="status 404"):
        await undoing
    link.abort()


async def test_a_refused_subscription_is_told_with_its_status_and_the_others_are_kept(web: Web):
    link = scripted_link(web, Ear(), CALLBACK)
    await link.open()
    subscribing = asyncio.ensure_future(link.subscribe([Subscription("a"), Subscription("b")]))
    (await web.asked()).answer(403)
    (await web.asked()).answer(201, Location="/subs/1")
    assert [(granted.qos, granted.reason) for granted in await subscribing] == [(-1, 403), (0, 0)]
    link.abort()


async def test_a_subscription_nobody_answers_raises_a_link_error(web: Web):
    link = scripted_link(web, Ear(), CALLBACK)
    await link.open()
    subscribing = asyncio.ensure_future(link.subscribe([Subscription("a")]))
    (await web.asked()).close()
    with pytest.raises(LinkError, match="closed before an answer came"):
        await subscribing
    link.abort()


@pytest.mark.parametrize(
    ("listening", "words"),
    [
        (None, "does not say how to subscribe"),
        (Listening(way="observe"), "no subscriptions by 'observe'"),
        (Listening(way="stream"), "need a `fetch`"),
    ],
)
async def test_what_the_file_does_not_offer_is_refused_in_words(web: Web, listening: Listening | None, words: str):
    link = scripted_link(web, Ear(), Script("http", listening=listening))
    await link.open()
    with pytest.raises(LinkError, match=words):
        await link.subscribe([Subscription("a")])
    await link.close()


async def test_each_element_of_a_list_is_a_message(web: Web):
    ear = Ear()
    script = Script(
        "http",
        listening=CALLBACK.listening,
        notification=Notification(each="$.data", payload="$.value", encoding="hex", topic="$.id"),
    )
    link, url = await subscribed(web, ear, script)
    async with Middleware(url) as middleware:
        size = middleware.call({"data": [{"id": "x", "value": "00ff"}, {"id": "y", "value": "01"}]})
        assert (await middleware.answer())[0] == 200
        assert [(each.topic, each.payload) for each in ear.messages] == [(b"x", b"\x00\xff"), (b"y", b"\x01")]
        assert sum(each.wire_size for each in ear.messages) == size
        middleware.call({"data": 5})
        await middleware.answer()
        assert len(ear.faults) == 1
    link.abort()
