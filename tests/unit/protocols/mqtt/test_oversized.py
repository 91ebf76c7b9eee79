"""Messages larger than anything expected: left out, answered, counted, and nothing of them is kept."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.protocols.base import Endpoint, Failure, LinkOptions
from battlebrokers.protocols.mqtt.encode import encode
from battlebrokers.protocols.mqtt.link import MqttLink
from battlebrokers.protocols.mqtt.malformed import PACKET_TOO_LARGE
from battlebrokers.protocols.mqtt.packets import V5, ConnAck, Publish, SubAck
from support.examples import examples
from support.links import Bench, Ear, until
from support.websocket_server import WebServer, frame

LIMIT = 1_000
SMALL_AND_LARGE = st.lists(st.tuples(st.sampled_from([5, 5, 5, 300, 1_100, 3_000]), st.integers(0, 2)), max_size=25)


def as_told(version: str, chunks: list[bytes]) -> dict[str, object]:
    with Bench(version, options={"largest_bytes": LIMIT}) as bench:
        bench.wire.take()
        for chunk in chunks:
            bench.receive(chunk)
            assert len(bench.connection.tail or b"") <= LIMIT
        assert not bench.ear.closings
        return {
            "messages": [heard.payload for heard in bench.ear.messages],
            "answers": sorted(bench.frames()),
            "kinds": bench.ear.fault_kinds,
        }


@pytest.mark.parametrize("version", ["3.1.1", "5"])
@examples(60)
@given(wanted=SMALL_AND_LARGE, places=st.lists(st.integers(0, 1 << 20), max_size=12))
def test_they_are_left_out_however_the_stream_is_cut(version: str, wanted: list[tuple[int, int]], places: list[int]):
    level = 5 if version == "5" else 4
    frames = [
        encode(Publish("t", bytes([number]) * size, qos, False, False, number + 1 if qos else None), level)
        for number, (size, qos) in enumerate(wanted)
    ]
    stream = b"".join(frames)
    borders = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    cut = [stream[a:b] for a, b in itertools.pairwise(borders) if a < b]
    told = as_told(version, cut)
    assert told["messages"] == [bytes([number]) * size for number, (size, _) in enumerate(wanted) if size < LIMIT]
    assert told["kinds"] == [Failure.OVERSIZED] * sum(size > LIMIT for size, _ in wanted)
    acknowledged = [(0x40, 0x50)[qos - 1].to_bytes() + bytes((2, 0, n + 1)) for n, (_, qos) in enumerate(wanted) if qos]
    assert told["answers"] == sorted(acknowledged)


def test_another_packet_of_that_size_ends_the_connection_with_its_reason():
    with Bench("5", options={"largest_bytes": LIMIT}) as bench:
        bench.wire.take()
        bench.receive(encode(SubAck(7, [0] * 2_000), V5)[:500])
        assert bench.ear.fault_kinds == [Failure.MALFORMED]
        assert len(bench.ear.closings) == 1
        (goodbye,) = bench.frames()
        assert goodbye[:1] + goodbye[2:3] == bytes((0xE0, PACKET_TOO_LARGE))


async def test_over_websocket_they_are_left_out_as_well_in_one_frame_or_in_many():
    ear = Ear()
    async with WebServer("mqtt").serving() as server:
        options = LinkOptions("client-1", version="5", keep_alive_s=0, largest_bytes=LIMIT)
        link = MqttLink(Endpoint("ws", "127.0.0.1", server.port), options, ear)
        opening = asyncio.ensure_future(link.open())
        peer = await server.accept()
        await peer.frame()
        peer.send(frame(encode(ConnAck(), V5), 2))
        await opening
        huge = encode(Publish("t", bytes(3 << 20)), V5)
        after = encode(Publish("t", b"after"), V5)
        peer.send(frame(huge + after, 2))
        for place in range(0, len(huge), 1 << 16):
            peer.send(frame(huge[place : place + (1 << 16)], 2))
        peer.send(frame(after, 2))
        await until(lambda: len(ear.messages) == 2)
        assert ear.payloads == [b"after", b"after"]
        assert ear.fault_kinds == [Failure.OVERSIZED] * 2
        link.abort()
