"""The CoAP link where a dialect has one stream for all topics, and where a body takes many requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiocoap.numbers.codes import Code

from battlebrokers.protocols.base import Endpoint, Link, LinkOptions, Outgoing, Subscription
from battlebrokers.protocols.coap.message import BLOCK1, URI_PATH, block_option, bytes_in_blocks, encoded_options, head
from battlebrokers.protocols.registry import make_link
from battlebrokers.protocols.script import Listening, Notification, Say, Script
from support.coap_peer import CoapPeer, coap_peer
from support.links import Ear, until

ONE_STREAM = Script(
    protocol="coap",
    headers={"283": "${id}"},
    publish=Say("post", "/messages", json={"payload": "${payload}"}),
    listening=Listening(way="observe", fetch=Say("get", "/subscribe")),
    notification=Notification(payload="$.payload", encoding="base64", topic="$.topic"),
)
TOPICS = [Subscription(name) for name in ("a/1", "a/2", "a/3")]


@pytest.fixture
async def peer() -> AsyncIterator[CoapPeer]:
    async with coap_peer() as serving:
        yield serving


@pytest.fixture
async def speaking(peer: CoapPeer) -> AsyncIterator[tuple[Link, Ear]]:
    ear = Ear()
    link = make_link("coap", Endpoint("udp", "127.0.0.1", peer.port, ""), LinkOptions("c", script=ONE_STREAM), ear)
    await link.open()
    yield link, ear
    link.abort()


async def test_one_stream_for_all_topics_is_observed_once(speaking: tuple[Link, Ear], peer: CoapPeer) -> None:
    link, ear = speaking
    asking = asyncio.create_task(link.subscribe(TOPICS))
    request = await peer.request()
    assert (request.opt.uri_path, request.opt.observe) == (("subscribe",), 0)
    await peer.silence()
    peer.answer(request, Code.CONTENT, observe=1)
    assert [granted.qos for granted in await asking] == [0, 0, 0]
    # Who comes later is served already.
    assert [granted.qos for granted in await link.subscribe([Subscription("a/4")])] == [0]
    for number, name in enumerate((b"a/1", b"a/3"), 2):
        body = b'{"topic":"%s","payload":"AAE="}' % name
        peer.answer(request, Code.CONTENT, body, kind="non", mid=number, observe=number)
    await until(lambda: len(ear.messages) == 2)
    assert [(message.topic, message.payload) for message in ear.messages] == [
        (b"a/1", b"\x00\x01"),
        (b"a/3", b"\x00\x01"),
    ]
    await link.unsubscribe([*TOPICS])
    await peer.silence()
    await link.unsubscribe([Subscription("a/4")])
    assert (await peer.request()).opt.observe == 1


async def test_a_refused_stream_refuses_every_topic_and_may_be_asked_for_again(
    speaking: tuple[Link, Ear], peer: CoapPeer
) -> None:
    link, _ = speaking
    asking = asyncio.create_task(link.subscribe(TOPICS))
    peer.answer(await peer.request(), Code.FORBIDDEN)
    assert [(granted.qos, granted.reason) for granted in await asking] == [(-1, 403)] * 3
    again = asyncio.create_task(link.subscribe(TOPICS[:1]))
    peer.answer(await peer.request(), Code.CONTENT, observe=1)
    assert [granted.qos for granted in await again] == [0]


async def test_an_empty_notification_is_a_sign_of_life(speaking: tuple[Link, Ear], peer: CoapPeer) -> None:
    link, ear = speaking
    asking = asyncio.create_task(link.subscribe(TOPICS[:1]))
    request = await peer.request()
    peer.answer(request, Code.CONTENT, b"", observe=1)
    await asking
    for number, body in enumerate((b"", b"nonsense", b"", b'{"payload":"AAE="}'), 2):
        peer.answer(request, Code.CONTENT, body, kind="non", mid=number, observe=number)
    await until(lambda: ear.messages)
    assert ear.payloads == [b"\x00\x01"]
    assert len(ear.faults) == 1


async def test_a_body_in_blocks_counts_with_all_its_requests(speaking: tuple[Link, Ear], peer: CoapPeer) -> None:
    link, ear = speaking
    # The second waits for the first; the third knows that this server likes smaller blocks.
    told = [link.publish(Outgoing(b"a", [bytes(30_000)], 1, False, token)) for token in range(2)]
    for token in range(3):
        if token == 2:
            told.append(link.publish(Outgoing(b"a", [bytes(30_000)], 1, False, token)))
        came = 0
        while True:
            request = await peer.request()
            came += peer.last_bytes
            block, size = request.opt.block1, 6 if token == 0 else 4
            code = Code.CONTINUE if block.more else Code.CHANGED
            peer.answer(request, code, block1=(block.block_number, block.more, size))
            if not block.more:
                break
        if token != 1:
            assert came == told[token] > link.structure_bytes > 40_000
        await until(lambda done=token + 1: len(ear.acked) == done)


@pytest.mark.parametrize("exponent", [0, 4, 6])
@pytest.mark.parametrize("blocks", [2, 16, 17, 4096, 4097])
@pytest.mark.parametrize("over", [0, 1])
def test_the_sum_of_all_blocks_is_what_each_of_them_takes(blocks: int, exponent: int, over: int) -> None:
    size, options = 1 << exponent + 4, [(URI_PATH, b"a"), (URI_PATH, b"a longer part")]
    body_bytes = (blocks - over) * size + over
    alone = sum(
        len(head(0, 2, 0, b"1234")) + len(encoded_options([*options, (BLOCK1, block)])) + 1 + min(size, body_bytes - at)
        for number, at in enumerate(range(0, body_bytes, size))
        for block in [block_option(number, at + size < body_bytes, exponent)]
    )
    assert bytes_in_blocks(options, body_bytes, exponent, 4) == alone
