"""The AMQP link against a server whose every word is ours: refusals, nonsense, silence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from pamqp import base, body, commands, header
from pamqp.frame import marshal

from battlebrokers.contenders.dialogue import scripts_of
from battlebrokers.contenders.reader import parse_contender
from battlebrokers.errors import LinkError
from battlebrokers.protocols.amqp.link import AmqpLink
from battlebrokers.protocols.base import Completion, Endpoint, Failure, Held, LinkOptions, Outgoing, Subscription
from battlebrokers.protocols.registry import make_link
from battlebrokers.protocols.script import Say, Script
from support.amqp_server import AmqpServer, Peer
from support.links import Ear, until

pytestmark = pytest.mark.slow


@pytest.fixture
async def server() -> AsyncIterator[AmqpServer]:
    async with AmqpServer().serving() as serving:
        yield serving


class Ends(Ear):
    """Keeps how each message ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[tuple[int, Completion, int]] = []

    def acknowledged(self, link, tokens, at_ns, completion, reason) -> None:  # type: ignore[no-untyped-def]
        self.ends += [(token, completion, reason) for token in tokens]


async def opened(server: AmqpServer, ear: Ear | None = None, **options: object) -> tuple[AmqpLink, Ear, Peer]:
    """A link that is let in, and who serves it."""
    heartbeat = int(options.pop("heartbeat", 0))
    ear = ear or Ear()
    settings = LinkOptions("me", connect_timeout_s=10.0, **options)  # type: ignore[arg-type]
    link = make_link("amqp", Endpoint("tcp", "127.0.0.1", server.port, ""), settings, ear)
    opening = asyncio.create_task(link.open())
    peer = await server.welcome(heartbeat=heartbeat)
    for _ in range(4):
        peer.usual(*await peer.read())
    await opening
    assert isinstance(link, AmqpLink)
    return link, ear, peer


def one(token: int = 0, payload: bytes = b"x", qos: int = 1) -> Outgoing:
    return Outgoing(b"a/b", [payload], qos, False, token)


async def consuming(link: AmqpLink, peer: Peer, *filters: str) -> None:
    asking = asyncio.create_task(link.subscribe([Subscription(each, 1) for each in filters]))
    peer.usual(1, await peer.until("Basic.Consume"))
    for _ in filters[1:]:
        peer.usual(1, await peer.until("Queue.Bind"))
    assert [granted.qos for granted in await asking] == [1] * len(filters)


async def test_guest_is_who_we_are_unless_somebody_says_otherwise(server: AmqpServer):
    link, _, _ = await opened(server)
    assert server.introduction.response == "\0guest\0guest"
    link.abort()
    script = Script(protocol="amqp", username="${uuid}", password="${token}")
    link, _, _ = await opened(server, script=script, known={"uuid": "u1", "token": "t1"})
    assert server.introduction.response == "\0u1\0t1"
    link.abort()


async def test_confirms_come_one_by_one_several_at_once_and_as_refusals(server: AmqpServer):
    link, ear, peer = await opened(server)
    for token in range(6):
        link.publish(one(token))
    assert link.unacknowledged == 6
    assert [await peer.content() for _ in range(6)] == [b"x"] * 6
    peer.send(2, commands.Basic.Ack(2), commands.Basic.Ack(3, True), commands.Basic.Nack(5, True))
    await until(lambda: len(ear.acked) + len(ear.refused) == 5)
    assert ear.acked == [1, 0, 2]
    assert ear.refused == [(3, 120), (4, 120)]
    peer.send(2, commands.Basic.Ack(99), commands.Basic.Ack(6))
    await until(lambda: 5 in ear.acked)
    assert link.unacknowledged == 0
    link.abort()


async def test_an_unroutable_mandatory_message_is_refused_once(server: AmqpServer):
    say = Say("publish", target="k.${resource}", text="${payload}", headers={"mandatory": "true", "v": "${id}"})
    link, ear, peer = await opened(server, script=Script(protocol="amqp", publish=say))
    link.publish(one(10))
    link.publish(one(11))
    published = await peer.until("Basic.Publish")
    assert (published.routing_key, published.mandatory) == ("k.a-b", True)  # type: ignore[attr-defined]
    _, head = await peer.read()
    assert isinstance(head, header.ContentHeader)
    assert head.properties.headers == {"v": "1"}
    second = commands.Basic.Properties(message_id="2")
    peer.send(
        2,
        commands.Basic.Return(312, "NO_ROUTE", "amq.topic", "k.a-b"),
        header.ContentHeader(0, 1, second),
        body.ContentBody(b"x"),
        commands.Basic.Ack(2, True),
    )
    await until(lambda: ear.acked and ear.refused)
    assert ear.acked == [10]
    assert ear.refused == [(11, 312)]
    assert (link.structured, link.structure_bytes, link.url_bytes) == (True, 1, 5)
    assert not ear.messages
    link.abort()


@pytest.mark.parametrize("pieces", [1, 7, 10_000])
async def test_deliveries_may_come_in_any_pieces(server: AmqpServer, pieces: int):
    link, ear, peer = await opened(server)
    await consuming(link, peer, "a/#")
    payloads = [b"", b"y", b"z" * 9000, *(b"%d" % n for n in range(20))]
    data = b"".join(peer.deliver(tag, "a.b", payload) for tag, payload in enumerate(payloads, 1))
    for at in range(0, len(data), pieces):
        peer.writer.write(data[at : at + pieces])
        if pieces > 1 or at % 200 == 0:
            await peer.writer.drain()
    await until(lambda: len(ear.messages) == len(payloads))
    assert ear.payloads == payloads
    assert {(message.topic, message.qos) for message in ear.messages} == {(b"a/b", 1)}
    tag = 0
    while tag < len(payloads):
        ack = await peer.until("Basic.Ack")
        assert ack.multiple  # type: ignore[attr-defined]
        tag = ack.delivery_tag  # type: ignore[attr-defined]
    link.abort()


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (b"", Failure.CLOSED),
        (b"\x01\x00\x01\x00\x00", Failure.TRUNCATED),
        (b"\x09\x00\x01\x00\x00\x00\x01x\xce", Failure.MALFORMED),
        (b"\x01\x00\x01\x00\x00\x00\x04\x00\x3c\x00\x3cX", Failure.MALFORMED),
        (b"\x01\x00\x01\x00\x00\x00\x04\xff\xff\xff\xff\xce", Failure.MALFORMED),
        (b"\x02\x00\x01\x00\x00\x00\x01x\xce", Failure.MALFORMED),
        (b"\x03\x00\x01\x00\x00\x00\x01x\xce", Failure.MALFORMED),
        (b"\x01\x00\x02\x00\x00\x00\x05\x00\x3c\x00\x50\x00\xce", Failure.MALFORMED),
        (b"\x01\x00\x01\xff\xff\xff\xff\x00\x3c", Failure.MALFORMED),
    ],
)
async def test_a_broken_connection_fails_what_was_in_flight_once(server: AmqpServer, last: bytes, reason: Failure):
    link, ear, peer = await opened(server)
    link.publish(Outgoing(b"a", [b"1", b"2"], 1, False, 7))
    await peer.content()
    peer.writer.write(last)
    await peer.writer.drain()
    if reason is not Failure.MALFORMED:
        peer.writer.close()
    await until(lambda: ear.closings)
    assert ear.refused == [(7, reason), (8, reason)]
    assert bool(ear.faults) is (reason is Failure.MALFORMED)
    assert link.held is Held.OFFLINE
    assert link.unacknowledged == 0
    assert len(ear.closings) == 1
    with pytest.raises(LinkError):
        link.publish(one())


async def test_a_closed_channel_refuses_with_the_brokers_code(server: AmqpServer):
    link, ear, peer = await opened(server)
    link.publish(one(3))
    await peer.content()
    peer.send(2, commands.Channel.Close(404, "NOT_FOUND - no exchange", 60, 40))
    await until(lambda: ear.closings)
    assert ear.refused == [(3, 404)]
    assert ear.closings == [("the broker closed the channel: NOT_FOUND - no exchange", 404)]
    await peer.until("Channel.CloseOk")


@pytest.mark.parametrize(
    ("channel", "close"),
    [
        (0, commands.Connection.Close(320, "CONNECTION_FORCED", 0, 0)),
        (0, commands.Connection.Close(541, "INTERNAL_ERROR", 60, 40)),
        (2, commands.Channel.Close(404, "NOT_FOUND - no exchange", 60, 40)),
    ],
    ids=["forced", "internal error", "one of several publishes"],
)
async def test_publishes_whose_fate_a_close_leaves_open_have_failed_and_are_not_called_refused(
    server: AmqpServer, channel: int, close: base.Frame
):
    ear = Ends()
    link, _, peer = await opened(server, ear)
    for token in (3, 4):
        link.publish(one(token))
    await peer.content()
    peer.send(channel, close)
    await until(lambda: ear.closings)
    assert ear.closings[0][1] == close.reply_code  # type: ignore[attr-defined]
    assert ear.ends == [(3, Completion.FAILED, Failure.CLOSED), (4, Completion.FAILED, Failure.CLOSED)]


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        # AMQP 0-9-1, 4.2.3: an oversized frame; 4.2.7: heartbeats belong to channel 0 and carry nothing.
        (b"\x03\x00\x01\x00\x00\x1f\xf9", "a frame of 8193 bytes is larger than the agreed 8192"),
        (b"\x08\x00\x01\x00\x00\x00\x00\xce", "a heartbeat came on channel 1 with 0 bytes in it"),
        (b"\x08\x00\x00\x00\x00\x00\x01x\xce", "a heartbeat came on channel 0 with 1 bytes in it"),
    ],
)
async def test_a_frame_error_is_told_with_501_before_the_connection_ends(server: AmqpServer, frame: bytes, words: str):
    link, ear, peer = await opened(server)
    peer.writer.write(frame + bytes(1_000_000 if len(frame) < 8 else 0))
    closing = await peer.until("Connection.Close")
    assert closing.reply_code == 501  # type: ignore[attr-defined]
    assert ear.faults == [words]
    assert ear.closings == [(f"closed after malformed bytes: {words}", Failure.MALFORMED)]
    assert link.held is Held.OFFLINE
    peer.send(0, commands.Connection.CloseOk())
    assert await peer.reader.read() == b""


async def test_a_frame_of_the_agreed_size_and_a_proper_heartbeat_are_taken(server: AmqpServer):
    link, ear, peer = await opened(server)
    await consuming(link, peer, "a")
    whole = peer.deliver(1, "a", b"x" * 8184)
    parts = [body.ContentBody(b"x" * 8184)]
    start = whole[: whole.index(b"\x03\x00\x01\x00\x00")]
    peer.writer.write(start + b"".join(marshal(part, 1) for part in parts) + b"\x08\x00\x00\x00\x00\x00\x00\xce")
    await until(lambda: ear.messages)
    assert len(ear.messages[0].payload) == 8184
    assert not ear.faults
    link.abort()


async def test_a_slow_reader_reads_the_rest_before_its_socket_is_closed(server: AmqpServer):
    link, ear, peer = await opened(server)
    await consuming(link, peer, "a")
    link.pause_reading()
    for tag in range(1, 200):
        peer.writer.write(peer.deliver(tag, "a", b"x" * 4000))
    closing = asyncio.create_task(link.close())
    await peer.until("Connection.Close")
    done = marshal(commands.Connection.CloseOk(), 0)
    peer.writer.write(done[:5])
    await peer.writer.drain()
    peer.writer.write(done[5:])
    # A reset would raise here.
    assert await peer.reader.read() == b""
    await closing
    assert not ear.closings


async def test_the_brokers_goodbye_is_answered_and_told(server: AmqpServer):
    link, ear, peer = await opened(server)
    peer.send(0, commands.Connection.Close(320, "CONNECTION_FORCED", 0, 0))
    await until(lambda: ear.closings)
    assert ear.closings == [("the broker closed the connection: CONNECTION_FORCED", 320)]
    await peer.until("Connection.CloseOk")
    assert link.held is Held.OFFLINE


async def test_a_cancelled_consumer_ends_the_link(server: AmqpServer):
    link, ear, peer = await opened(server)
    await consuming(link, peer, "a", "b")
    peer.send(1, commands.Basic.Cancel("1", True))
    await until(lambda: ear.closings)
    assert "queue is gone" in ear.closings[0][0]
    assert link.held is Held.OFFLINE


async def test_a_confirm_that_does_not_come_is_a_timeout_and_a_late_one_nothing(server: AmqpServer):
    link, ear, peer = await opened(server, answer_timeout_s=0.3, inflight=1)
    link.publish(one(4))
    assert link.held is Held.WINDOW
    await until(lambda: ear.refused)
    assert ear.refused == [(4, Failure.TIMEOUT)]
    assert ear.writable_calls == 1
    peer.send(2, commands.Basic.Ack(1))
    link.publish(one(5))
    peer.send(2, commands.Basic.Ack(2))
    await until(lambda: ear.acked)
    assert ear.acked == [5]
    link.abort()


async def test_heartbeats_are_sent_and_silence_ends_the_link(server: AmqpServer):
    _, ear, peer = await opened(server, heartbeat=1, keep_alive_s=1)
    beats = 0
    while beats < 2:
        _, got = await asyncio.wait_for(peer.read(), 60)
        beats += type(got).__name__ == "Heartbeat"
    await until(lambda: ear.closings)
    assert "silent" in ear.closings[0][0]
    assert ear.closings[0][1] == Failure.TIMEOUT


async def test_a_refused_login_says_why(server: AmqpServer):
    link = make_link("amqp", Endpoint("tcp", "127.0.0.1", server.port, ""), LinkOptions("me"), Ear())
    opening = asyncio.create_task(link.open())
    peer = await server.accept()
    peer.send(0, commands.Connection.Start(0, 9, {}, "PLAIN", "en_US"))
    await peer.reader.readexactly(8)
    await peer.until("Connection.StartOk")
    peer.send(0, commands.Connection.Close(403, "ACCESS_REFUSED", 0, 0))
    with pytest.raises(LinkError, match="ACCESS_REFUSED") as caught:
        await opening
    assert caught.value.code == 403
    assert "password" in caught.value.hint
    assert link.held is Held.OFFLINE


async def test_a_server_that_says_nothing_is_given_up(server: AmqpServer):
    options = LinkOptions("me", connect_timeout_s=0.2)
    link = make_link("amqp", Endpoint("tcp", "127.0.0.1", server.port, ""), options, Ear())
    with pytest.raises(LinkError, match=r"within 0\.2 s"):
        await link.open()
    assert link.held is Held.OFFLINE


async def test_nobody_listening_is_said_in_words(free_port: int):
    link = make_link("amqp", Endpoint("tcp", "127.0.0.1", free_port, ""), LinkOptions("me"), Ear())
    with pytest.raises(LinkError, match="nobody listens there"):
        await link.open()


DIALECT = """\
name: letters
about: Letters at an exchange of its own.
run: {external: true}
ports: {amqp: 5672}
endpoints: {amqp: "amqp://${host}:${port.amqp}"}
speak:
  amqp:
    headers: {content_type: application/json}
    login: {publish: "hello", headers: {exchange: ex}, json: {i: "${name}"}}
    publish: {publish: "in.${name}", headers: {exchange: ex}, json: {d: "${payload}", t: "${topic}"}}
    subscribe:
      steps:
        - {subscribe: "out.${topic|dots}.*", headers: {exchange: ex}}
        - {publish: "want", text: "${topic}"}
        - {subscribe: "all.#"}
      undo: {publish: "enough", text: "${topic}"}
    notification: {when: {$.d: "*"}, payload: $.d, topic: $.t}
    logout: {publish: "bye", text: "${name}"}
"""


def dialect() -> Script:
    return scripts_of(parse_contender(DIALECT, "letters.yaml"))["amqp"]


async def said(peer: Peer) -> tuple[str, str, bytes]:
    """Exchange, routing key and body of the next message the client publishes."""
    published = await peer.until("Basic.Publish")
    _, head = await peer.read()
    _, text = await peer.read()
    assert head.properties.content_type == "application/json"  # type: ignore[attr-defined]
    return published.exchange, published.routing_key, text.value  # type: ignore[attr-defined]


async def bound(peer: Peer, name: str = "Queue.Bind") -> tuple[str, str]:
    got = await peer.until(name)
    peer.usual(1, got)
    return got.exchange, got.routing_key  # type: ignore[attr-defined]


async def test_a_dialect_wraps_and_unwraps(server: AmqpServer):
    link, ear, peer = await opened(server, script=dialect(), known={"name": "n1"})
    assert await said(peer) == ("ex", "hello", b'{"i":"n1"}')
    link.publish(one(0, b"\x00\xff"))
    assert await said(peer) == ("ex", "in.n1", b'{"d":"AP8=","t":"a/b"}')
    asking = asyncio.create_task(link.subscribe([Subscription("a/b", 1), Subscription("a/+", 1)]))
    assert await bound(peer) == ("ex", "out.a.b.*")
    assert await said(peer) == ("amq.topic", "want", b"a/b")
    assert await bound(peer) == ("amq.topic", "all.#")
    peer.usual(1, await peer.until("Basic.Consume"))
    assert [granted.qos for granted in await asking] == [1, -1]
    for tag, text in enumerate([b'{"d":"AP8=","t":"a/b"}', b"{", b'{"other":1}', b'{"d":"%"}'], 1):
        peer.writer.write(peer.deliver(tag, "out.a.b.c", text))
    await until(lambda: len(ear.faults) == 2)
    assert [(message.topic, message.payload) for message in ear.messages] == [(b"a/b", b"\x00\xff")]
    assert link.held is Held.NO
    link.abort()


async def test_a_dialect_takes_back_what_it_bound_where_it_bound_it(server: AmqpServer):
    link, _, peer = await opened(server, script=dialect(), known={"name": "n1"})
    asking = asyncio.create_task(link.subscribe([Subscription("a/b", 1), Subscription("c/d", 1)]))
    for key in ("out.a.b.*", "out.c.d.*"):
        assert await bound(peer) == ("ex", key)
        assert await bound(peer) == ("amq.topic", "all.#")
        if key == "out.a.b.*":
            peer.usual(1, await peer.until("Basic.Consume"))
    await asking
    leaving = asyncio.create_task(link.unsubscribe([Subscription("a/b", 1)]))
    assert await bound(peer, "Queue.Unbind") == ("ex", "out.a.b.*")
    # The other filter still needs all.#; so the next word is the dialect's own.
    assert await said(peer) == ("amq.topic", "enough", b"a/b")
    await leaving
    closing = asyncio.create_task(link.close())
    assert await said(peer) == ("amq.topic", "enough", b"c/d")
    assert await said(peer) == ("amq.topic", "bye", b"n1")
    peer.usual(0, await peer.until("Connection.Close"))
    peer.writer.close()
    await closing


async def test_a_kept_session_is_left_where_it_was_bound_and_not_undone(server: AmqpServer):
    settings = LinkOptions("kept", clean=False, script=dialect(), known={"name": "n1"}, connect_timeout_s=10.0)
    kept = make_link("amqp", Endpoint("tcp", "127.0.0.1", server.port, ""), settings, Ear())
    opening = asyncio.create_task(kept.open())
    peer = await server.welcome()
    # Both queues of the session are still there.
    assert await said(peer) == ("ex", "hello", b'{"i":"n1"}')
    assert (await opening).session_present
    leaving = asyncio.create_task(kept.unsubscribe([Subscription("a/b", 1)]))
    assert await bound(peer, "Queue.Unbind") == ("ex", "out.a.b.*")
    assert await bound(peer, "Queue.Unbind") == ("amq.topic", "all.#")
    assert await said(peer) == ("amq.topic", "enough", b"a/b")
    await leaving
    asking = asyncio.create_task(kept.subscribe([Subscription("c/d", 1)]))
    assert await bound(peer) == ("ex", "out.c.d.*")
    assert await said(peer) == ("amq.topic", "want", b"c/d")
    await bound(peer)
    await asking
    closing = asyncio.create_task(kept.close())
    assert await said(peer) == ("amq.topic", "bye", b"n1"), "a kept subscription is not undone"
    peer.usual(0, await peer.until("Connection.Close"))
    peer.writer.close()
    await closing


async def test_a_message_larger_than_anything_expected_is_not_kept_but_acknowledged_and_counted(server: AmqpServer):
    link, ear, peer = await opened(server, largest_bytes=10_000)
    await consuming(link, peer, "a/#")
    huge = peer.deliver(1, "a.b", bytes(50_000))
    for place in range(0, len(huge), 9_000):
        peer.writer.write(huge[place : place + 9_000])
        await peer.writer.drain()
        await asyncio.sleep(0)
    peer.writer.write(peer.deliver(2, "a.b", b"after") + peer.deliver(3, "a.b", bytes(9_000)))
    await until(lambda: len(ear.messages) == 2)
    assert [len(heard.payload) for heard in ear.messages] == [5, 9_000]
    assert ear.fault_kinds == [Failure.OVERSIZED]
    tags = []
    while not tags or tags[-1] < 3:
        tags.append((await peer.until("Basic.Ack")).delivery_tag)  # type: ignore[attr-defined]
    link.abort()


async def test_a_frame_larger_than_agreed_ends_the_connection(server: AmqpServer):
    link, ear, peer = await opened(server)
    peer.writer.write(b"\x03\x00\x01" + (8_193).to_bytes(4, "big") + bytes(100))
    await until(lambda: ear.closings)
    assert ear.fault_kinds == [Failure.MALFORMED]
    link.abort()
