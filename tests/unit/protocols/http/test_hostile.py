"""Servers that answer badly: each way has its kind, nothing is raised into the loop, and the next message goes out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from battlebrokers.protocols.base import Endpoint, Failure, LinkOptions, Outgoing
from battlebrokers.protocols.http.head import BODY_LIMIT_BYTES, HEAD_LIMIT_BYTES
from battlebrokers.protocols.http.plain import PlainHttpLink
from support.links import Ear, until
from support.web import Asked, Web

pytestmark = pytest.mark.usefixtures("quiet_loop")


def make(web: Web, ear: Ear, **options: object) -> PlainHttpLink:
    settings = LinkOptions("device-1", **options)  # type: ignore[arg-type]
    return PlainHttpLink(Endpoint("tcp", "127.0.0.1", web.port, "/"), settings, ear)


async def outcome(web: Web, misbehave: Callable[[Asked], Awaitable[None]], **options: object) -> list[tuple[int, int]]:
    """What one message comes to when the server does that; afterwards another one is answered properly."""
    ear = Ear()
    link = make(web, ear, **options)
    await link.open()
    link.publish(Outgoing(b"t", [b"x"], 1, retain=False, first_token=5))
    asked = await web.asked()
    doing = asyncio.ensure_future(misbehave(asked))
    await until(lambda: ear.refused or ear.acked)
    doing.cancel()
    link.publish(Outgoing(b"t", [b"y"], 1, retain=False, first_token=6))
    (await web.asked()).answer()
    await until(lambda: 6 in ear.acked)
    assert link.unacknowledged == 0
    assert ear.closings == []
    await link.close()
    assert 5 not in ear.acked or not ear.refused
    return ear.refused


def sends(data: bytes, *, then_close: bool = False) -> Callable[[Asked], Awaitable[None]]:
    async def misbehave(asked: Asked) -> None:
        asked.send(data)
        if then_close:
            asked.close()

    return misbehave


@pytest.mark.parametrize("status", [300, 400, 401, 404, 413, 429, 500, 503, 999])
async def test_a_status_that_is_no_success_is_a_refusal_with_that_status(web: Web, status: int):
    assert await outcome(web, sends(b"HTTP/1.1 %d No\r\nContent-Length: 2\r\n\r\nno" % status)) == [(5, status)]


@pytest.mark.parametrize(
    "data",
    [
        b"H",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwhole\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
    ],
)
async def test_a_half_response_is_truncated(web: Web, data: bytes):
    assert await outcome(web, sends(data, then_close=True)) == [(5, Failure.TRUNCATED)]


async def test_a_socket_closed_before_the_answer_is_closed(web: Web):
    assert await outcome(web, sends(b"", then_close=True)) == [(5, Failure.CLOSED)]


async def test_a_socket_reset_before_the_answer_is_closed(web: Web):
    async def reset(asked: Asked) -> None:
        asked.reset()

    assert await outcome(web, reset) == [(5, Failure.CLOSED)]


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nabsurd header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\xff\xfe: \x00\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (BODY_LIMIT_BYTES + 1),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffff\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: brotli\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_malformed(web: Web, data: bytes):
    assert await outcome(web, sends(data)) == [(5, Failure.MALFORMED)]


async def endless(asked: Asked, beginning: bytes, again: bytes) -> None:
    asked.send(beginning)
    while True:
        asked.send(again)
        await asked.writer.drain()


async def test_endless_headers_are_malformed_once_the_limit_is_passed(web: Web):
    assert await outcome(web, lambda asked: endless(asked, b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 100)) == [
        (5, Failure.MALFORMED)
    ]
    line = b"X: " + b"y" * 4096
    assert await outcome(web, lambda asked: endless(asked, b"HTTP/1.1 200 OK\r\n" + line, b"y" * HEAD_LIMIT_BYTES)) == [
        (5, Failure.MALFORMED)
    ]


async def test_an_endless_body_is_malformed_once_the_limit_is_passed(web: Web):
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"100000\r\n" + bytes(1 << 20) + b"\r\n"
    assert await outcome(web, lambda asked: endless(asked, head, chunk)) == [(5, Failure.MALFORMED)]


async def test_a_stall_is_a_timeout(web: Web):
    async def stall(asked: Asked) -> None:
        await asyncio.sleep(10)

    assert await outcome(web, stall, answer_timeout_s=0.3) == [(5, Failure.TIMEOUT)]


async def test_a_stall_in_the_middle_of_an_answer_is_a_timeout(web: Web):
    assert await outcome(web, sends(b"HTTP/1.1 200 OK\r\nContent-Le"), answer_timeout_s=0.3) == [(5, Failure.TIMEOUT)]


async def test_an_answer_that_comes_a_little_at_a_time_must_be_complete_in_time(web: Web):
    async def drip(asked: Asked) -> None:
        asked.send(b"HTTP/1.1 200 OK\r\n")
        while True:
            asked.send(b"X: y\r\n")
            await asyncio.sleep(0.02)

    assert await outcome(web, drip, answer_timeout_s=0.4) == [(5, Failure.TIMEOUT)]


async def test_an_answer_with_something_behind_it_counts_and_its_connection_is_given_up(web: Web):
    assert await outcome(web, sends(b"HTTP/1.1 204 A\r\n\r\nHTTP/1.1 500 B\r\n\r\n")) == []
    assert web.connections == 2


async def test_words_nobody_asked_for_end_the_connection_and_nothing_else(web: Web):
    ear = Ear()
    link = make(web, ear)
    await link.open()
    link.publish(Outgoing(b"t", [b"x"], 0, retain=False, first_token=0))
    asked = await web.asked()
    asked.answer()
    await until(lambda: ear.acked)
    asked.send(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    await asked.ended()
    link.publish(Outgoing(b"t", [b"x"], 0, retain=False, first_token=1))
    (await web.asked()).answer()
    await until(lambda: ear.acked == [0, 1])
    assert ear.faults == []
    await link.close()


async def test_a_server_that_is_gone_fails_each_message_and_is_found_again_when_it_is_back(free_port: int):
    ear = Ear()
    web = Web()
    async with web.serving():
        link = make(web, ear)
        await link.open()
        link.publish(Outgoing(b"t", [b"x"], 0, retain=False, first_token=0))
        (await web.asked()).answer(Connection="close")
        await until(lambda: ear.acked == [0])
    link.publish(Outgoing(b"t", [b"x", b"y"], 0, retain=False, first_token=1))
    await until(lambda: len(ear.refused) == 2)
    assert sorted(ear.refused) == [(1, Failure.CLOSED), (2, Failure.CLOSED)]
    async with Web().serving() as again:
        link.endpoint = Endpoint("tcp", "127.0.0.1", again.port, "/")
        link.publish(Outgoing(b"t", [b"x"], 0, retain=False, first_token=3))
        (await again.asked()).answer()
        await until(lambda: ear.acked == [0, 3])
        await link.close()


async def test_a_window_full_of_bad_answers_empties_itself(web: Web):
    ear = Ear()
    link = make(web, ear, inflight=6, answer_timeout_s=1.0)
    await link.open()
    link.publish(Outgoing(b"t", [b"x"] * 6, 0, retain=False, first_token=0))
    requests = await web.many(6)
    requests[0].close()
    requests[1].send(b"HTTP/1.1 2")
    requests[1].close()
    requests[2].send(b"nonsense")
    requests[3].answer(500)
    requests[4].answer(200)
    await until(lambda: not link.unacknowledged)
    kinds = sorted(reason for _, reason in ear.refused)
    assert kinds == sorted([Failure.CLOSED, Failure.TRUNCATED, Failure.MALFORMED, 500, Failure.TIMEOUT])
    assert len(ear.acked) == 1
    assert link.room(0) == 6
    await link.close()
