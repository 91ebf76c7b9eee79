"""What the broker allows and what it breaks: packet sizes, limits that shrank, sessions nobody has, stray answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.errors import LinkError
from battlebrokers.protocols.base import Completion, Endpoint, Failure, Held, Link, LinkOptions, Outgoing, Subscription
from battlebrokers.protocols.mqtt.encode import encode
from battlebrokers.protocols.mqtt.link import MqttLink
from battlebrokers.protocols.mqtt.malformed import PACKET_TOO_LARGE, RECEIVE_MAXIMUM_EXCEEDED
from battlebrokers.protocols.mqtt.packets import (
    ConnAck,
    Disconnect,
    FilterRequest,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
)
from battlebrokers.protocols.mqtt.properties import Properties
from battlebrokers.protocols.mqtt.requests import cut_to_size
from support.examples import examples
from support.links import Bench, Ear, Peer, ScriptedBroker, until


class Witness(Ear):
    """Keeps how each message ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[tuple[int, Completion, int]] = []

    def acknowledged(self, link: Link, tokens, at_ns: int, completion: Completion, reason: int) -> None:
        self.ended += [(token, completion, reason) for token in tokens]


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    async with ScriptedBroker().serving() as serving:
        yield serving


def make(broker: ScriptedBroker, ear: Ear | None = None, **options: object) -> MqttLink:
    settings = LinkOptions("device-1", **{"version": "5", "keep_alive_s": 0, "connect_timeout_s": 10.0, **options})  # type: ignore[arg-type]
    return MqttLink(Endpoint("tcp", "127.0.0.1", broker.port), settings, ear or Ear())


async def joined(broker: ScriptedBroker, link: MqttLink, *, present: bool = False, **limits: object) -> Peer:
    opening = asyncio.ensure_future(link.open())
    peer = await broker.welcome(ConnAck(present, properties=Properties(**limits)))  # type: ignore[arg-type]
    await opening
    return peer


# ── Maximum Packet Size ──────────────────────────────────────────────────────────────────────────────────────────


@given(
    st.lists(st.text(min_size=1, max_size=200), min_size=1, max_size=40),
    st.integers(8, 600),
    st.sampled_from([4, 5]),
    st.booleans(),
)
@examples(100)
def test_no_request_is_larger_than_the_broker_takes_and_none_is_smaller_than_need_be(
    filters: list[str], most_bytes: int, version: int, subscribes: bool
) -> None:
    # [MQTT-3.2.2-15]
    def size(texts: list[str]) -> int:
        packet = Subscribe(1, tuple(map(FilterRequest, texts))) if subscribes else Unsubscribe(1, tuple(texts))
        return len(encode(packet, version))

    filters = [text.replace("+", "a").replace("#", "b").replace("\0", "c") for text in filters]
    filters = [text.encode("utf-8", "replace").decode() for text in filters]
    filters = [text if not text.startswith("$share") else "x" for text in filters]
    runs, too_large = cut_to_size(filters, int(subscribes), version, most_bytes)
    assert sorted([*(place for run in runs for place in run), *too_large]) == list(range(len(filters)))
    for run in runs:
        assert size(filters[run.start : run.stop]) <= most_bytes
    for place in too_large:
        assert size([filters[place]]) > most_bytes
    for run, following in pairwise(runs):
        if run.stop == following.start:
            assert size(filters[run.start : run.stop + 1]) > most_bytes


async def test_a_subscribe_above_the_maximum_packet_size_is_sent_in_pieces_or_not_at_all(
    broker: ScriptedBroker,
) -> None:
    # [MQTT-3.2.2-15]
    link = make(broker)
    peer = await joined(broker, link, maximum_packet_bytes=30)
    wanted = [
        Subscription("a/1"),
        Subscription("b/2"),
        Subscription("c" * 30),
        Subscription("d/3"),
        Subscription("e/4"),
    ]
    asking = asyncio.ensure_future(link.subscribe(wanted))
    await peer.expect(Subscribe(1, (FilterRequest("a/1"), FilterRequest("b/2"))))
    peer.send(SubAck(1, (0, 0x80)))
    await peer.expect(Subscribe(2, (FilterRequest("d/3"), FilterRequest("e/4"))))
    peer.send(SubAck(2, (0, 0)))
    granted = await asking
    assert [(each.subscription, each.qos, each.reason) for each in granted] == [
        (wanted[0], 0, 0), (wanted[1], -1, 0x80), (wanted[2], -1, PACKET_TOO_LARGE),
        (wanted[3], 0, 0), (wanted[4], 0, 0),
    ]  # fmt: skip
    stopping = asyncio.ensure_future(link.unsubscribe(wanted))
    await peer.expect(Unsubscribe(3, ("a/1", "b/2")))
    peer.send(UnsubAck(3, (0, 0)))
    await peer.expect(Unsubscribe(4, ("d/3", "e/4")))
    peer.send(UnsubAck(4, (0, 0)))
    with pytest.raises(LinkError, match="1 filters are too long") as caught:
        await stopping
    assert caught.value.code == PACKET_TOO_LARGE
    link.abort()


# ── limits that shrank between two connections ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("present", [True, False], ids=["session kept", "session lost"])
@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ({"maximum_packet_bytes": 20}, [1, 3]),  # [MQTT-3.2.2-15]
        ({"maximum_qos": 1}, [1, 2]),  # [MQTT-3.2.2-11]
        ({"retain_available": False}, [2, 3]),  # [MQTT-3.2.2-14]
        ({"maximum_packet_bytes": 20, "maximum_qos": 1, "retain_available": False}, []),
    ],
    ids=["packet size", "QoS", "retain", "all"],
)
async def test_what_a_broker_no_longer_takes_is_not_sent_again_and_told_as_of_unknown_fate(
    broker: ScriptedBroker, limits: dict[str, object], left: list[int], present: bool
) -> None:
    ear = Witness()
    link = make(broker, ear, clean=False)
    peer = await joined(broker, link)
    link.publish(Outgoing(b"t", [b"kept"], 1, True, 1))
    link.publish(Outgoing(b"t", [bytes(40)], 1, False, 2))
    link.publish(Outgoing(b"t", [b"once"], 2, False, 3))
    await peer.read_many(3)
    link.abort()
    peer = await joined(broker, link, present=present, **limits)
    again = await peer.read_many(len(left))
    assert [packet.packet_id for packet in again] == left
    assert ear.again == left
    given_up = [token for token in (1, 2, 3) if token not in left]
    assert ear.ended == [(token, Completion.FAILED, Failure.NOT_RESENT) for token in given_up]
    assert link.unacknowledged == len(left)
    assert link.held is Held.NO
    await peer.silence()
    link.abort()


async def test_the_id_of_a_qos_2_message_that_was_given_up_is_not_used_while_the_broker_may_hold_it(
    broker: ScriptedBroker,
) -> None:
    link = make(broker, Witness(), clean=False)
    peer = await joined(broker, link)
    link.publish(Outgoing(b"t", [bytes(40)], 2, False, 1))
    await peer.read()
    link.abort()
    await joined(broker, link, present=True, maximum_packet_bytes=20)
    ids = [link.session.take_id() for _ in range(65_534)]
    assert 1 not in ids
    assert link.session.free_ids() == 65_534
    link.abort()
    await joined(broker, link, present=False)
    assert link.session.free_ids() == 65_535
    link.abort()


# ── Session Present ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", ["3.1.1", "5"])
async def test_a_session_after_a_clean_start_ends_the_connection(broker: ScriptedBroker, version: str) -> None:
    # MQTT 5: [MQTT-3.2.2-4] after a breach of [MQTT-3.2.2-2]; 3.1.1: [MQTT-4.8.0-1] after a breach of [MQTT-3.2.2-1].
    ear = Ear()
    link = make(broker, ear, version=version, clean=True)
    opening = asyncio.ensure_future(link.open())
    peer = await broker.welcome(ConnAck(session_present=True))
    with pytest.raises(LinkError, match="a session is present although a clean start was asked for") as caught:
        await opening
    assert caught.value.code == Failure.MALFORMED
    assert link.held is Held.OFFLINE
    assert len(ear.faults) == 1
    said = await peer.ended()
    assert said == (encode(Disconnect(0x82), 5) if version == "5" else b"")
    await joined(broker, link)
    assert link.held is Held.NO
    link.abort()


# ── Receive Maximum ──────────────────────────────────────────────────────────────────────────────────────────────


def messages(count: int, qos: int, first_id: int = 1, pad: int = 0) -> bytes:
    # Bulk paths want frames that are alike, the one for single frames those that are not.
    return b"".join(encode(Publish("t", b"x" * (1 + pad * n), qos, packet_id=first_id + n), 5) for n in range(count))


@pytest.mark.parametrize("pad", [0, 1], ids=["alike", "unlike"])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("allowed", [3, 40])
def test_a_broker_that_exceeds_our_receive_maximum_is_told_and_left(allowed: int, qos: int, pad: int) -> None:
    # [MQTT-3.3.4-9]
    with Bench("5", options={"receive_maximum": allowed}) as bench:
        bench.receive(messages(allowed, qos, pad=pad))
        assert not bench.ear.closings
        if qos == 2:
            bench.receive(b"".join(encode(PubRel(place), 5) for place in range(1, allowed + 1)))
        bench.receive(messages(allowed, qos, 100, pad))
        assert not bench.ear.closings
        if qos == 2:
            bench.receive(b"".join(encode(PubRel(place), 5) for place in range(100, allowed + 100)))
        bench.wire.take()
        bench.receive(messages(allowed + 1, qos, 200, pad))
        assert bench.ear.closings[0][1] == Failure.MALFORMED
        assert f"we allow {allowed} (Receive Maximum)" in bench.ear.closings[0][0]
        assert bench.wire.take() == encode(Disconnect(RECEIVE_MAXIMUM_EXCEEDED), 5)
        # What came was measured all the same.
        assert len(bench.ear.messages) == 3 * allowed + 1


def test_qos_2_messages_count_until_they_are_released() -> None:
    # [MQTT-3.3.4-9]
    with Bench("5", options={"receive_maximum": 3}) as bench:
        for place in (1, 2, 3):
            bench.receive(messages(1, 2, place))
        bench.receive(encode(PubRel(1), 5))
        bench.receive(messages(1, 2, 4))
        assert not bench.ear.closings
        bench.receive(messages(1, 2, 5))
        assert "4 messages open at once" in bench.ear.closings[0][0]


def test_each_connection_counts_anew_and_without_a_limit_nothing_is_counted() -> None:
    with Bench("5", options={"receive_maximum": 2, "clean": False}) as bench:
        bench.receive(messages(2, 2))
        bench.link.abort()
        bench.connect(ConnAck(session_present=True))
        bench.receive(messages(2, 2, 10))
        assert not bench.ear.closings
    for version in ("3.1.1", "5"):
        with Bench(version) as bench:
            bench.receive(b"".join(encode(Publish("t", b"", 1, packet_id=n), 4 if version == "3.1.1" else 5)
                                   for n in range(1, 1000)))  # fmt: skip
            assert not bench.ear.closings


# ── acknowledgements of nothing ──────────────────────────────────────────────────────────────────────────────────


async def test_acknowledgements_of_nothing_are_counted_over_all_connections(broker: ScriptedBroker) -> None:
    link = make(broker)
    peer = await joined(broker, link)
    assert link.stray_acknowledgements == 0
    peer.send(PubAck(9), PubComp(8), PubRec(7, 0x80), SubAck(6, (0,)))
    await until(lambda: link.stray_acknowledgements == 4)
    link.abort()
    peer = await joined(broker, link)
    peer.send(*(PubAck(place) for place in range(1, 31)))
    await until(lambda: link.stray_acknowledgements == 34)
    assert link.held is Held.NO
    link.abort()
