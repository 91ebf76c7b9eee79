"""Notifications in a response that never ends."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest

from battlebrokers.errors import LinkError
from battlebrokers.protocols.base import Subscription
from battlebrokers.protocols.http.scripted import ScriptedHttpLink
from battlebrokers.protocols.script import Listening, Notification, Say, Script
from support.links import Ear, until
from support.web import Asked, Web, scripted_link

pytestmark = pytest.mark.usefixtures("quiet_loop")

STREAM = Script(
    "http",
    listening=Listening(way="stream", fetch=Say("get", "/subscribe/${uuid}")),
    notification=Notification(payload="$.payload", encoding="base64"),
)
BEGIN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


async def streaming(web: Web, ear: Ear, **options: object) -> tuple[ScriptedHttpLink, Asked]:
    link = scripted_link(web, ear, STREAM, known={"uuid": "u1"}, **options)
    await link.open()
    subscribing = asyncio.ensure_future(link.subscribe([Subscription("a"), Subscription("b")]))
    asked = await web.asked()
    assert asked.target == "/subscribe/u1"
    asked.send(BEGIN)
    assert [granted.qos for granted in await subscribing] == [0, 0]
    return link, asked


def line(number: int, end: str = "\n") -> bytes:
    return (json.dumps({"payload": base64.b64encode(b"%d" % number).decode()}) + end).encode()


async def test_objects_of_a_stream_are_messages_whatever_separates_them(web: Web):
    ear = Ear()
    link, asked = await streaming(web, ear)
    asked.chunk(line(0))
    asked.chunk(line(1, "") + line(2, "\r\n\r\n"))
    asked.chunk(line(3, ""))
    await until(lambda: len(ear.messages) == 4)
    asked.chunk(line(4)[:9])
    asked.chunk(line(4)[9:] + b"\n\n")
    await until(lambda: len(ear.messages) == 5)
    assert ear.payloads == [b"0", b"1", b"2", b"3", b"4"]
    assert ear.faults == []
    link.abort()
    await asked.ended()


async def test_the_bytes_of_a_stream_are_all_counted(web: Web):
    ear = Ear()
    link, asked = await streaming(web, ear)
    sent = 0
    for number in range(10):
        data = line(number)
        asked.chunk(data)
        sent += len(f"{len(data):x}") + 4 + len(data)
    await until(lambda: len(ear.messages) == 10)
    assert sum(each.wire_size for each in ear.messages) == sent
    await link.close()


async def test_nonsense_in_a_stream_is_told_and_the_stream_goes_on(web: Web):
    ear = Ear()
    link, asked = await streaming(web, ear)
    asked.chunk(b"nonsense\n" + line(1) + b'{"payload": "no base64!"}\n{"other": 1}\n')
    await until(lambda: len(ear.faults) == 3)
    assert ear.payloads == [b"1"]
    link.abort()


@pytest.mark.parametrize("ending", ["properly", "closed", "reset", "malformed"])
async def test_a_stream_that_ends_is_asked_for_again(web: Web, ending: str):
    ear = Ear()
    link, asked = await streaming(web, ear)
    for round_number in range(8):
        asked.chunk(line(round_number))
        await until(lambda wanted=round_number: len(ear.messages) == wanted + 1)
        if ending == "properly":
            asked.send(b"0\r\n\r\n")
        elif ending == "malformed":
            asked.send(b"-7\r\n")
        elif ending == "reset":
            asked.reset()
        else:
            asked.close()
        asked = await web.asked()
        asked.send(BEGIN)
    assert ear.closings == []
    assert len(ear.faults) == (8 if ending == "malformed" else 0)
    link.abort()


async def test_a_stream_that_cannot_be_had_any_more_is_told_as_closed(web: Web):
    ear = Ear()
    link, asked = await streaming(web, ear)
    asked.close()
    for _ in range(4):
        (await web.asked()).answer(503)
    await until(lambda: ear.closings)
    [(detail, reason)] = ear.closings
    assert reason == 503
    assert "failed 5 times in a row" in detail
    with pytest.raises(LinkError, match="not open"):
        await link.subscribe([Subscription("a")])
    # Whoever opens it again gets a stream again.
    await link.open()
    subscribing = asyncio.ensure_future(link.subscribe([Subscription("a")]))
    (await web.asked()).send(BEGIN)
    await subscribing
    await link.close()


async def test_a_refused_stream_is_a_refused_subscription(web: Web):
    link = scripted_link(web, Ear(), STREAM, known={"uuid": "u1"})
    await link.open()
    subscribing = asyncio.ensure_future(link.subscribe([Subscription("a")]))
    (await web.asked()).answer(401)
    [granted] = await subscribing
    assert (granted.qos, granted.reason) == (-1, 401)
    link.abort()


async def test_a_paused_client_does_not_read_its_stream(web: Web):
    ear = Ear()
    link, asked = await streaming(web, ear)
    link.pause_reading()
    # More than sockets and buffers hold: it can only be written when somebody reads.
    filler = b" " * (1 << 20) + b"\n"
    for _ in range(24):
        asked.chunk(filler)
    asked.chunk(line(1))
    writing = asyncio.ensure_future(asked.writer.drain())
    await asyncio.sleep(0.2)
    assert not writing.done()
    assert ear.messages == []
    link.resume_reading()
    await until(lambda: ear.payloads == [b"1"])
    await writing
    link.abort()


async def test_server_sent_events_are_understood(web: Web):
    ear = Ear()
    link = scripted_link(web, ear, STREAM, known={"uuid": "u1"})
    await link.open()
    subscribing = asyncio.ensure_future(link.subscribe([Subscription("a")]))
    asked = await web.asked()
    asked.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: hello\nevent: x\ndata: " + line(1) + b"\n")
    await subscribing
    await until(lambda: ear.payloads == [b"1"])
    assert ear.faults == []
    link.abort()
