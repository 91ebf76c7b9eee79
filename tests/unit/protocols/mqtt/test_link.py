"""The link against a broker that follows a script: what it says, what it tells, and how it takes bad answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import numpy as np
import pytest

from battlebrokers.errors import InputError, LinkError
from battlebrokers.protocols.base import Endpoint, Failure, Granted, Held, LinkOptions, Outgoing, Subscription, Will
from battlebrokers.protocols.mqtt.link import MqttLink
from battlebrokers.protocols.mqtt.packets import (
    ConnAck,
    Connect,
    Disconnect,
    FilterRequest,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
    WillMessage,
)
from battlebrokers.protocols.mqtt.properties import Properties
from support.links import Ear, Peer, ScriptedBroker, until


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    async with ScriptedBroker().serving() as serving:
        yield serving


def make(broker: ScriptedBroker, ear: Ear | None = None, **options: object) -> MqttLink:
    settings = LinkOptions("device-1", **{"keep_alive_s": 0, "connect_timeout_s": 10.0, **options})  # type: ignore[arg-type]
    return MqttLink(Endpoint("tcp", "127.0.0.1", broker.port), settings, ear or Ear())


async def joined(broker: ScriptedBroker, link: MqttLink, answer: ConnAck | None = None) -> Peer:
    opening = asyncio.ensure_future(link.open())
    peer = await broker.welcome(answer)
    await opening
    return peer


def one(payload: bytes = b"x", qos: int = 1, token: int = 0, topic: bytes = b"t", retain: bool = False) -> Outgoing:
    return Outgoing(topic, [payload], qos, retain, token)


# ── opening ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_greeting_says_what_the_options_say(broker: ScriptedBroker):
    will = Will("last/words", b"bye", 1, True, 5)
    link = make(broker, version="5", username="u", password="p", clean=False, session_expiry_s=60, receive_maximum=9)
    link = MqttLink(link.endpoint, LinkOptions(**{**vars_of(link.options), "will": will, "topic_alias": True}), Ear())
    peer = await joined(broker, link)
    assert peer.hello == Connect(
        "device-1",
        5,
        False,
        0,
        "u",
        b"p",
        WillMessage("last/words", b"bye", 1, True, Properties(will_delay_s=5)),
        Properties(session_expiry_s=60, receive_maximum=9, topic_alias_maximum=1024),
    )
    await link.close()


def vars_of(options: LinkOptions) -> dict[str, object]:
    return {name: getattr(options, name) for name in LinkOptions.__slots__}


async def test_an_old_version_carries_no_properties(broker: ScriptedBroker):
    link = make(broker, will=Will("w", b"", 0, False, 9), session_expiry_s=7)
    peer = await joined(broker, link)
    assert peer.hello == Connect("device-1", 4, True, 0, None, None, WillMessage("w", b""))
    link.abort()


async def test_the_welcome_is_handed_on_with_its_time(broker: ScriptedBroker):
    ear = Ear()
    link = make(broker, ear, clean=False)
    before = ear.now_ns()
    opening = asyncio.ensure_future(link.open())
    await broker.welcome(ConnAck(session_present=True))
    opened = await opening
    assert opened.session_present
    assert opened.reason == 0
    assert before <= opened.received_ns <= ear.now_ns()
    link.abort()


@pytest.mark.parametrize(
    ("version", "reason", "words"),
    [
        ("3.1.1", 5, "not authorized"),
        ("3.1.1", 2, "client identifier rejected"),
        ("5", 0x86, "bad user name or password"),
    ],
)
async def test_a_refusal_is_told_in_words(broker: ScriptedBroker, version: str, reason: int, words: str):
    ear = Ear()
    link = make(broker, ear, version=version)
    opening = asyncio.ensure_future(link.open())
    peer = await broker.welcome(ConnAck(reason=reason))
    with pytest.raises(LinkError, match=words) as caught:
        await opening
    assert caught.value.code == reason
    assert link.held is Held.OFFLINE
    await peer.ended()
    assert not ear.closings
    assert not ear.faults


async def test_nobody_listening_is_told_in_words(free_port: int):
    link = MqttLink(Endpoint("tcp", "127.0.0.1", free_port), LinkOptions("x"), Ear())
    with pytest.raises(LinkError, match="nobody listens there"):
        await link.open()
    assert link.held is Held.OFFLINE


async def test_a_server_that_never_answers_is_given_up(broker: ScriptedBroker):
    link = make(broker, connect_timeout_s=0.1)
    with pytest.raises(LinkError, match=r"did not answer CONNECT within 0\.1 s"):
        await link.open()
    peer = await broker.accept()
    assert await peer.ended() != b""


async def test_a_server_that_closes_at_once_is_told(broker: ScriptedBroker):
    ear = Ear()
    link = make(broker, ear)
    opening = asyncio.ensure_future(link.open())
    (await broker.accept()).close()
    with pytest.raises(LinkError, match=r"closed the connection|connection broke"):
        await opening
    assert not ear.closings


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xd0\x00", b"\x20\x03\x00\x00\x00", b"\x20\x7f"]
)
async def test_something_else_than_a_welcome_is_malformed(broker: ScriptedBroker, answer: bytes):
    ear = Ear()
    # Only what is no whole packet is waited for in vain.
    link = make(broker, ear, connect_timeout_s=0.3 if answer == b"\x20\x7f" else 60)
    opening = asyncio.ensure_future(link.open())
    peer = await broker.accept()
    await peer.read()
    peer.send(answer)
    with pytest.raises(LinkError):
        await opening
    assert len(ear.faults) == (1 if answer != b"\x20\x7f" else 0)
    assert not ear.closings
    assert link.held is Held.OFFLINE


async def test_a_link_can_be_cancelled_while_it_opens(broker: ScriptedBroker):
    link = make(broker)
    opening = asyncio.ensure_future(link.open())
    peer = await broker.accept()
    await peer.read()
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await peer.ended()
    other = await joined(broker, link)
    assert link.held is Held.NO
    other.close()


async def test_opening_twice_is_refused(broker: ScriptedBroker):
    link = make(broker)
    await joined(broker, link)
    with pytest.raises(LinkError, match="already connected"):
        await link.open()
    link.abort()


def test_an_unknown_version_is_an_input_error():
    with pytest.raises(InputError, match="MQTT 4 is not spoken"):
        MqttLink(Endpoint("tcp", "h", 1), LinkOptions("x", version="4"), Ear())


async def test_an_assigned_client_id_is_kept_for_the_next_time(broker: ScriptedBroker):
    link = MqttLink(Endpoint("tcp", "127.0.0.1", broker.port), LinkOptions("", version="5", keep_alive_s=0), Ear())
    await joined(broker, link, ConnAck(properties=Properties(assigned_client_id="auto-7")))
    link.abort()
    peer = await joined(broker, link)
    assert peer.hello.client_id == "auto-7"
    link.abort()


async def test_messages_right_behind_the_welcome_are_not_lost(broker: ScriptedBroker):
    ear = Ear()
    link = make(broker, ear, clean=False)
    opening = asyncio.ensure_future(link.open())
    queued = [Publish("q", bytes([n]), 1, packet_id=n + 1) for n in range(30)]
    peer = await broker.welcome(ConnAck(True), *queued)
    await opening
    assert ear.payloads == [bytes([n]) for n in range(30)]
    assert await peer.read_many(30) == [PubAck(n + 1) for n in range(30)]
    link.abort()


# ── closing ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_close_says_goodbye_and_abort_does_not(broker: ScriptedBroker):
    ear = Ear()
    link = make(broker, ear)
    peer = await joined(broker, link)
    link.publish(one(b"last", qos=0))
    await link.close()
    assert await peer.read() == Publish("t", b"last")
    assert await peer.read() == Disconnect()
    assert await peer.ended() == b""
    peer = await joined(broker, link)
    link.abort()
    assert await peer.ended() == b""
    assert link.held is Held.OFFLINE
    await link.close()
    assert not ear.closings


async def test_an_unexpected_end_is_told_once(broker: ScriptedBroker):
    ear = Ear()
    link = make(broker, ear)
    peer = await joined(broker, link)
    peer.close()
    await until(lambda: ear.closings)
    assert ear.closings == [("the broker closed the connection", Failure.CLOSED)]
    assert link.held is Held.OFFLINE
    assert link.room(0) == 0
    with pytest.raises(LinkError):
        link.publish(one(qos=0))


async def test_the_broker_says_why_it_goes(broker: ScriptedBroker):
    ear = Ear()
    link = make(broker, ear, version="5")
    peer = await joined(broker, link)
    peer.send(
        Publish("t", b"before"), Disconnect(0x8E, Properties(reason_string="another one")), Publish("t", b"after")
    )
    await until(lambda: ear.closings)
    assert ear.closings == [("the broker said goodbye: session taken over (another one)", 0x8E)]
    assert ear.payloads == [b"before"]


async def test_nonsense_ends_the_connection_and_is_told(broker: ScriptedBroker):
    ear = Ear()
    link = make(broker, ear, version="5")
    peer = await joined(broker, link)
    peer.send(Publish("t", b"good"), b"\x36\x05\x00\x01t\x00\x00")
    await until(lambda: ear.closings)
    assert ear.payloads == [b"good"]
    assert len(ear.faults) == 1
    assert ear.closings[0][1] == Failure.MALFORMED
    assert await peer.read() == Disconnect(0x81)


@pytest.mark.parametrize(
    "packet", [b"\x10\x00", b"\xc0\x00", b"\x20\x02\x00\x00", b"\xf0\x00", b"\xe0\x00", b"\x82\x00"]
)
async def test_packets_a_broker_never_sends_are_nonsense(broker: ScriptedBroker, packet: bytes):
    ear = Ear()
    link = make(broker, ear)
    peer = await joined(broker, link)
    peer.send(packet)
    await until(lambda: ear.closings)
    assert len(ear.faults) == 1


# ── subscribing ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_subscriptions_get_one_answer_each(broker: ScriptedBroker):
    link = make(broker)
    peer = await joined(broker, link)
    wanted = [Subscription("a/#", 1), Subscription("b", 2), Subscription("c", 0, share="g")]
    asking = asyncio.ensure_future(link.subscribe(wanted))
    filters = (FilterRequest("a/#", 1), FilterRequest("b", 2), FilterRequest("$share/g/c", 0))
    await peer.expect(Subscribe(1, filters))
    peer.send(SubAck(1, (1, 0x80, 0)))
    assert await asking == [Granted(wanted[0], 1, 1), Granted(wanted[1], -1, 0x80), Granted(wanted[2], 0, 0)]
    stopping = asyncio.ensure_future(link.unsubscribe(wanted[:1]))
    await peer.expect(Unsubscribe(2, ("a/#",)))
    peer.send(UnsubAck(2))
    await stopping
    link.abort()


async def test_an_answer_that_never_comes_is_an_error(broker: ScriptedBroker):
    link = make(broker, connect_timeout_s=0.2)
    peer = await joined(broker, link)
    with pytest.raises(LinkError, match="did not answer SUBSCRIBE"):
        await link.subscribe([Subscription("a")])
    peer.send(SubAck(1, (0,)), PubAck(77))
    await until(lambda: link.session.ignored == 2)
    assert link.session.requests is None
    link.abort()


async def test_a_lost_connection_fails_waiting_requests(broker: ScriptedBroker):
    link = make(broker)
    peer = await joined(broker, link)
    asking = asyncio.ensure_future(link.subscribe([Subscription("a")]))
    await peer.read()
    peer.close()
    with pytest.raises(LinkError, match="closed the connection"):
        await asking
    with pytest.raises(LinkError, match="needs an open link"):
        await link.subscribe([Subscription("a")])


async def test_an_invalid_filter_is_an_error_before_it_is_sent(broker: ScriptedBroker):
    link = make(broker)
    peer = await joined(broker, link)
    with pytest.raises(LinkError, match="cannot be sent"):
        await link.subscribe([Subscription("a/#/b")])
    await peer.silence()
    link.abort()


# ── publishing and acknowledgements ──────────────────────────────────────────────────────────────────────────────


async def test_qos_1_is_done_with_puback(broker: ScriptedBroker):
    ear = Ear()
    link = make(broker, ear)
    peer = await joined(broker, link)
    rows = np.arange(40, dtype=np.uint8).reshape(10, 4)
    written = link.publish(Outgoing(b"t", rows, 1, True, 500))
    rows[:] = 0
    assert written == 10 * (2 + 3 + 2 + 4)
    for at in range(10):
        await peer.expect(Publish("t", bytes(range(at * 4, at * 4 + 4)), 1, True, packet_id=at + 1))
    assert link.unacknowledged == 10
    peer.send(*(PubAck(at) for at in (3, 1, 2)))
    await until(lambda: len(ear.acked) == 3)
    assert ear.acked == [502, 500, 501]
    assert link.unacknowledged == 7
    link.abort()


async def test_qos_2_is_done_with_pubcomp(broker: ScriptedBroker):
    ear = Ear()
    link = make(broker, ear)
    peer = await joined(broker, link)
    link.publish(Outgoing(b"t", [b"a", b"bb"], 2, False, 7))
    assert await peer.read_many(2) == [Publish("t", b"a", 2, packet_id=1), Publish("t", b"bb", 2, packet_id=2)]
    peer.send(PubRec(1), PubRec(2))
    assert await peer.read_many(2) == [PubRel(1), PubRel(2)]
    assert not ear.acked
    assert link.unacknowledged == 2
    peer.send(PubComp(1))
    await until(lambda: ear.acked == [7])
    peer.send(PubRec(2), PubComp(2), PubRec(9))
    assert await peer.read_many(2) == [PubRel(2), PubRel(9)]
    assert ear.acked == [7, 8]
    assert link.session.ignored == 1
    link.abort()


async def test_reasons_of_mqtt_5_are_handed_on(broker: ScriptedBroker):
    ear = Ear()
    link = make(broker, ear, version="5")
    peer = await joined(broker, link)
    link.publish(Outgoing(b"t", [b"a", b"b"], 1, False, 0))
    link.publish(Outgoing(b"t", [b"c", b"d"], 2, False, 10))
    await peer.read_many(4)
    peer.send(PubAck(1, 0x10), PubAck(2, 0x97), PubRec(3, 0x87), PubRec(4, 0x10))
    await peer.expect(PubRel(4))
    peer.send(PubComp(4))
    await until(lambda: len(ear.acked) == 2)
    assert ear.acked == [0, 11]
    assert ear.refused == [(1, 0x97), (10, 0x87)]
    assert ear.reasons[0] == 0x10
    assert link.unacknowledged == 0
    await peer.silence()
    link.abort()


async def test_many_acknowledgements_with_one_reason_are_told_at_once(broker: ScriptedBroker):
    ear = Ear()
    link = make(broker, ear, version="5")
    peer = await joined(broker, link)
    link.publish(Outgoing(b"t", np.zeros((50, 3), np.uint8), 1, False, 0))
    await peer.read_many(50)
    peer.send(*(PubAck(at, 0x10) for at in range(1, 51)))
    await until(lambda: len(ear.acked) == 50)
    assert set(ear.reasons) == {0x10}
    link.abort()


@pytest.mark.parametrize("qos", [1, 2])
async def test_the_window_holds_and_an_acknowledgement_opens_it_once(broker: ScriptedBroker, qos: int):
    ear = Ear()
    link = make(broker, ear, inflight=3)
    peer = await joined(broker, link)
    assert link.room(qos) == 3
    link.publish(Outgoing(b"t", [b"1", b"2", b"3"], qos, False, 0))
    assert link.held is Held.WINDOW
    assert link.room(qos) == 0
    assert link.room(0) > 0
    with pytest.raises(ValueError, match="where 0 have room"):
        link.publish(one(qos=qos))
    await peer.read_many(3)
    if qos == 2:
        peer.send(PubRec(1), PubRec(2))
        await peer.read_many(2)
        assert link.held is Held.WINDOW
    assert ear.writable_calls == 0
    answer = PubAck if qos == 1 else PubComp
    peer.send(answer(1), answer(2))
    await until(lambda: ear.writable_calls)
    assert link.held is Held.NO
    assert link.room(qos) == 2
    assert ear.writable_calls == 1
    link.abort()


async def test_the_brokers_receive_maximum_narrows_the_window(broker: ScriptedBroker):
    link = make(broker, version="5", inflight=100)
    await joined(broker, link, ConnAck(properties=Properties(receive_maximum=2)))
    assert link.room(1) == 2
    link.publish(Outgoing(b"t", [b"1", b"2"], 1, False, 0))
    assert link.held is Held.WINDOW
    link.abort()


async def test_what_the_broker_does_not_take_is_refused_with_the_reason(broker: ScriptedBroker):
    ear = Ear()
    link = make(broker, ear, version="5")
    limits = Properties(maximum_qos=1, retain_available=False, maximum_packet_bytes=20)
    peer = await joined(broker, link, ConnAck(properties=limits))
    assert link.publish(one(qos=2, token=1)) == 0
    assert not ear.refused
    assert link.publish(one(qos=0, token=2, retain=True)) == 0
    assert link.publish(Outgoing(b"t", np.zeros((2, 50), np.uint8), 1, False, 3)) == 0
    written = link.publish(Outgoing(b"t", [b"ok", bytes(50), b"fine", bytes(15), bytes(14)], 0, False, 10))
    assert link.publish(one(qos=0, token=30, topic=b"")) == 0
    await until(lambda: len(ear.refused) == 7)
    assert ear.refused == [(1, 0x9B), (2, 0x9A), (3, 0x95), (4, 0x95), (11, 0x95), (13, 0x95), (30, 0x90)]
    received = await peer.read_many(3)
    assert [packet.payload for packet in received] == [b"ok", b"fine", bytes(14)]
    assert written == 8 + 10 + 20
    assert link.unacknowledged == 0
    link.abort()


@pytest.mark.parametrize("version", ["3.1.1", "5"])
async def test_messages_like_the_first_and_unlike_it_all_say_what_they_should(broker: ScriptedBroker, version: str):
    link = make(broker, version=version)
    peer = await joined(broker, link)
    topic, other = b"a/usual", b"b/other"
    batches = [
        Outgoing(topic, (b"first",), 0, False, 0),
        Outgoing(topic, (b"again",), 0, False, 1),
        Outgoing(topic, [b"three", b"alike", b"again"], 0, False, 2),
        Outgoing(topic, [b"two", b"unequal"], 0, False, 5),
        Outgoing(topic, (b"longer than usual",), 0, False, 7),
        Outgoing(topic, (b"",), 0, False, 8),
        Outgoing(topic, (b"keep!",), 0, True, 9),
        Outgoing(other, (b"other",), 0, False, 10),
        Outgoing(topic, np.frombuffer(b"arraymatri", np.uint8).reshape(2, 5), 0, False, 11),
        Outgoing(topic, (b"asked",), 1, False, 13),
        Outgoing(topic, (b"final",), 0, False, 14),
    ]
    for batch in batches:
        link.publish(batch)
    heard = await peer.read_many(15)
    assert all(isinstance(packet, Publish) for packet in heard)
    assert [(p.topic.encode(), p.payload, p.qos, p.retain) for p in heard] == [
        (batch.topic, bytes(payload), batch.qos, batch.retain) for batch in batches for payload in batch.payloads
    ]
    link.abort()


async def test_a_broker_that_takes_less_the_next_time_is_not_sent_what_was_usual_before(broker: ScriptedBroker):
    ear = Ear()
    link = make(broker, ear, version="5")
    topic = b"t"
    await joined(broker, link)
    assert link.publish(Outgoing(topic, (bytes(64),), 0, False, 0)) > 64
    link.abort()
    await joined(broker, link, ConnAck(properties=Properties(maximum_packet_bytes=40)))
    assert link.publish(Outgoing(topic, (bytes(64),), 0, False, 1)) == 0
    await until(lambda: ear.refused == [(1, 0x95)])
    link.abort()


async def test_topics_are_named_once_and_then_by_number(broker: ScriptedBroker):
    link = make(broker, version="5", topic_alias=True)
    peer = await joined(broker, link, ConnAck(properties=Properties(topic_alias_maximum=2)))
    for topic in (b"a", b"a", b"b", b"c", b"b"):
        link.publish(one(qos=0, topic=topic))
    said = [(packet.topic, packet.properties.topic_alias) for packet in await peer.read_many(5)]
    assert said == [("a", 1), ("", 1), ("b", 2), ("c", None), ("", 2)]
    link.abort()
    peer = await joined(broker, link)
    link.publish(one(qos=0, topic=b"a"))
    assert (await peer.read()) == Publish("a", b"x")
    link.abort()


async def test_topics_named_by_number_are_resolved(broker: ScriptedBroker):
    ear = Ear()
    link = make(broker, ear, version="5", topic_alias=True)
    peer = await joined(broker, link)
    named = Properties(topic_alias=3)
    peer.send(*[Publish("long/topic", b"1", properties=named)] * 10, *[Publish("", b"2", properties=named)] * 20)
    await until(lambda: len(ear.messages) == 30)
    assert {message.topic for message in ear.messages} == {b"long/topic"}
    peer.send(Publish("", b"3", properties=Properties(topic_alias=4)))
    await until(lambda: ear.closings)
    assert "never given a topic" in ear.faults[0]


async def test_a_broker_that_does_not_read_holds_the_socket(broker: ScriptedBroker):
    ear = Ear()
    link = make(broker, ear)
    peer = await joined(broker, link)
    peer.reader._transport.pause_reading()  # the kernel's buffers fill up behind it
    block = Outgoing(b"t", np.zeros((4, 65_536), np.uint8), 0, False, 0)
    sent = 0
    while link.held is Held.NO:
        sent += link.publish(block)
    assert link.held is Held.SOCKET
    assert link.room(0) == link.room(1) == 0
    peer.reader._limit = 1 << 30
    peer.reader._transport.resume_reading()
    await until(lambda: ear.writable_calls)
    assert link.held is Held.NO
    assert len(await peer.reader.readexactly(sent)) == sent
    link.abort()


async def test_room_for_qos_0_follows_the_size_of_messages(broker: ScriptedBroker):
    link = make(broker)
    await joined(broker, link)
    link.publish(Outgoing(b"t", np.zeros((10, 100), np.uint8), 0, False, 0))
    small = link.room(0)
    link.publish(one(bytes(100_000), qos=0))
    assert small > 1000
    assert 1 <= link.room(0) <= 3
    link.abort()


# ── receiving ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("count", [1, 3, 40])
async def test_received_messages_are_acknowledged_in_order(broker: ScriptedBroker, count: int):
    ear = Ear()
    link = make(broker, ear)
    peer = await joined(broker, link)
    peer.send(*(Publish("t", bytes([n]), 1 + n % 2, packet_id=n + 1) for n in range(count)))
    answers = await peer.read_many(count)
    assert answers == [PubRec(n + 1) if n % 2 else PubAck(n + 1) for n in range(count)]
    assert ear.payloads == [bytes([n]) for n in range(count)]
    peer.send(*(PubRel(n + 1) for n in range(count) if n % 2))
    assert await peer.read_many(count // 2) == [PubComp(n + 1) for n in range(count) if n % 2]
    assert not link.session.incoming
    link.abort()


async def test_a_repeated_qos_2_message_is_delivered_once_and_answered_every_time(broker: ScriptedBroker):
    ear = Ear()
    link = make(broker, ear, clean=False)
    peer = await joined(broker, link)
    first = Publish("t", b"once", 2, packet_id=5)
    again = Publish("t", b"once", 2, dup=True, packet_id=5)
    peer.send(first)
    await peer.expect(PubRec(5))
    peer.send(again)
    await peer.expect(PubRec(5))
    link.abort()
    peer = await joined(broker, link, ConnAck(True))
    peer.send(again)
    await peer.expect(PubRec(5))
    peer.send(PubRel(5))
    await peer.expect(PubComp(5))
    peer.send(PubRel(5))
    await peer.expect(PubComp(5))
    assert ear.payloads == [b"once"]
    peer.send(Publish("t", b"new", 2, packet_id=5))
    await peer.expect(PubRec(5))
    assert ear.payloads == [b"once", b"new"]
    link.abort()


async def test_without_a_session_incoming_ids_begin_anew(broker: ScriptedBroker):
    ear = Ear()
    link = make(broker, ear)
    peer = await joined(broker, link)
    peer.send(Publish("t", b"1", 2, packet_id=5))
    await peer.expect(PubRec(5))
    link.abort()
    opening = asyncio.ensure_future(link.open())
    await broker.welcome(ConnAck(False), Publish("t", b"2", 2, packet_id=5))
    await opening
    assert ear.payloads == [b"1", b"2"]
    link.abort()


async def test_a_paused_reader_takes_nothing_until_resumed(broker: ScriptedBroker):
    ear = Ear()
    link = make(broker, ear)
    link.pause_reading()
    peer = await joined(broker, link)
    peer.send(Publish("t", b"1"))
    await asyncio.sleep(0.05)
    assert not ear.messages
    link.resume_reading()
    await until(lambda: ear.messages)
    link.pause_reading()
    peer.send(Publish("t", b"2"))
    await asyncio.sleep(0.05)
    assert len(ear.messages) == 1
    link.resume_reading()
    await until(lambda: len(ear.messages) == 2)
    link.abort()


# ── sending again ────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_kept_session_gets_repetitions_in_order(broker: ScriptedBroker):
    ear = Ear()
    link = make(broker, ear, clean=False)
    peer = await joined(broker, link)
    link.publish(Outgoing(b"a", np.arange(8, dtype=np.uint8).reshape(4, 2), 1, True, 0))
    link.publish(Outgoing(b"b", [b"x", b"y"], 2, False, 10))
    await peer.read_many(6)
    peer.send(PubAck(2), PubRec(5))
    await peer.expect(PubRel(5))
    link.abort()
    assert link.unacknowledged == 5
    peer = await joined(broker, link, ConnAck(True))
    again = await peer.read_many(5)
    assert again == [
        PubRel(5),
        Publish("a", b"\0\1", 1, True, True, 1),
        Publish("a", b"\4\5", 1, True, True, 3),
        Publish("a", b"\6\7", 1, True, True, 4),
        Publish("b", b"y", 2, False, True, 6),
    ]
    assert ear.again == [0, 2, 3, 11]
    peer.send(PubAck(1), PubAck(3), PubAck(4), PubComp(5), PubRec(6), PubComp(6))
    await until(lambda: len(ear.acked) == 6)
    assert sorted(ear.acked) == [0, 1, 2, 3, 10, 11]
    assert link.unacknowledged == 0
    assert link.held is Held.NO
    link.abort()


async def test_a_lost_session_gets_new_messages(broker: ScriptedBroker):
    ear = Ear()
    link = make(broker, ear)
    peer = await joined(broker, link)
    link.publish(Outgoing(b"b", [b"x", b"y"], 2, False, 10))
    await peer.read_many(2)
    peer.send(PubRec(1))
    await peer.expect(PubRel(1))
    peer.close()
    await until(lambda: ear.closings)
    peer = await joined(broker, link, ConnAck(False))
    assert await peer.read_many(2) == [Publish("b", b"x", 2, packet_id=1), Publish("b", b"y", 2, packet_id=2)]
    assert ear.again == [10, 11]
    link.abort()


async def test_repetitions_respect_the_receive_maximum_and_hold_new_messages(broker: ScriptedBroker):
    ear = Ear()
    link = make(broker, ear, version="5", clean=False)
    peer = await joined(broker, link)
    link.publish(Outgoing(b"t", [b"%d" % n for n in range(5)], 1, False, 0))
    await peer.read_many(5)
    link.abort()
    peer = await joined(broker, link, ConnAck(True, properties=Properties(receive_maximum=2)))
    assert [packet.packet_id for packet in await peer.read_many(2)] == [1, 2]
    await peer.silence()
    assert link.held is Held.WINDOW
    assert link.room(1) == 0
    peer.send(PubAck(1))
    assert (await peer.read()).packet_id == 3
    peer.send(PubAck(2), PubAck(3))
    assert [packet.packet_id for packet in await peer.read_many(2)] == [4, 5]
    assert ear.again == [0, 1, 2, 3, 4]
    assert ear.writable_calls == 0
    peer.send(PubAck(4), PubAck(5))
    await until(lambda: ear.writable_calls == 1)
    assert link.held is Held.NO
    link.abort()


async def test_aliases_are_not_used_in_repetitions(broker: ScriptedBroker):
    link = make(broker, version="5", clean=False, topic_alias=True)
    allowing = Properties(topic_alias_maximum=5)
    peer = await joined(broker, link, ConnAck(properties=allowing))
    link.publish(one(b"1", topic=b"a"))
    link.publish(one(b"2", topic=b"a"))
    assert [packet.topic for packet in await peer.read_many(2)] == ["a", ""]
    link.abort()
    peer = await joined(broker, link, ConnAck(True, properties=allowing))
    assert [packet.topic for packet in await peer.read_many(2)] == ["a", "a"]
    link.abort()


# ── keep-alive ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
async def test_an_idle_link_pings_and_hears_the_answer(broker: ScriptedBroker):
    ear = Ear()
    link = make(broker, ear, keep_alive_s=1)
    peer = await joined(broker, link)
    for _ in range(2):
        await peer.expect(PingReq())
        peer.send(PingResp())
    assert not ear.closings
    link.abort()


async def test_the_servers_keep_alive_wins(broker: ScriptedBroker):
    link = make(broker, version="5", keep_alive_s=0)
    peer = await joined(broker, link, ConnAck(properties=Properties(server_keep_alive_s=1)))
    await peer.expect(PingReq())
    link.abort()


@pytest.mark.slow
async def test_a_broker_that_fell_silent_is_given_up(broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("battlebrokers.protocols.mqtt.connection.SHORTEST_GRACE_S", 1.0)
    ear = Ear()
    link = make(broker, ear, keep_alive_s=1)
    peer = await joined(broker, link)
    await peer.expect(PingReq())
    await until(lambda: ear.closings)
    assert "no answer to PINGREQ" in ear.closings[0][0]
    assert ear.closings[0][1] == Failure.TIMEOUT
    assert link.held is Held.OFFLINE


@pytest.mark.slow
async def test_a_paused_reader_does_not_take_silence_for_death(broker: ScriptedBroker):
    ear = Ear()
    link = make(broker, ear, keep_alive_s=1)
    peer = await joined(broker, link)
    link.pause_reading()
    await peer.expect(PingReq())
    await asyncio.sleep(1.6)
    assert not ear.closings
    link.abort()
