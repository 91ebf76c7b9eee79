"""Damaged conversations: whatever bytes a broker sends, a connection reads them or ends, once, and never raises."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st
from pamqp import body, commands, frame, header

from battlebrokers.protocols.amqp.connection import Connection
from battlebrokers.protocols.amqp.link import AmqpLink
from battlebrokers.protocols.base import Endpoint, LinkOptions, Outgoing
from battlebrokers.protocols.wheel import wheel_of
from support.examples import examples
from support.links import Ear, Wire

TALK = [
    frame.marshal(each, channel)
    for channel, each in [
        (0, commands.Connection.Start(0, 9, {"a": {"b": True}}, "PLAIN", "en_US")),
        (0, commands.Connection.Tune(10, 131072, 60)),
        (1, commands.Basic.Deliver("1", 1, False, "amq.topic", "a.b")),
        (1, header.ContentHeader(0, 3, commands.Basic.Properties(delivery_mode=2, headers={"x": 1}))),
        (1, body.ContentBody(b"abc")),
        (2, commands.Basic.Ack(1, True)),
        (2, commands.Basic.Return(312, "NO_ROUTE", "x", "k")),
        (2, header.ContentHeader(0, 1, commands.Basic.Properties(message_id="2"))),
        (2, body.ContentBody(b"z")),
        (2, commands.Basic.Nack(2, False)),
        (1, commands.Queue.DeclareOk("q", 0, 0)),
        (1, commands.Channel.Close(404, "x", 0, 0)),
        (0, commands.Connection.Close(320, "x", 0, 0)),
    ]
]


@examples(300)
@given(
    st.lists(st.sampled_from(range(len(TALK))), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4),
    st.integers(1, 200),
)
def test_a_damaged_conversation_ends_at_most_once(picks: list[int], damage: list[tuple[int, int]], piece: int):
    data = bytearray(b"".join(TALK[pick] for pick in picks))
    for place, value in damage:
        data[place % len(data)] = value
    loop = asyncio.new_event_loop()
    try:
        ear = Ear()
        link = AmqpLink(Endpoint("tcp", "nowhere", 1, ""), LinkOptions("x"), ear)
        connection = Connection(link, wheel_of(loop), loop.create_future())
        connection.connection_made(Wire())
        connection.started = None
        link.begin(connection)
        link.publish(Outgoing(b"a", [b"1", b"2", b"3"], 1, False, 0))
        for at in range(0, len(data), piece):
            connection.data_received(bytes(data[at : at + piece]))
        told = len(ear.acked) + len(ear.refused)
        assert len(ear.closings) <= 1
        assert told + link.unacknowledged == 3
        if ear.closings:
            assert told == 3
            assert connection.gone
        link.abort()
    finally:
        loop.close()
