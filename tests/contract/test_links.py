"""One suite over every link and real brokers: what a link promises is what it does. What one cannot is in `places`."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from battlebrokers.contenders.broker_url import parse_broker_url
from battlebrokers.contenders.lifecycle import RunningContender, start_contender
from battlebrokers.errors import LinkError
from battlebrokers.protocols.base import (
    Endpoint,
    Failure,
    Held,
    Link,
    LinkOptions,
    Outgoing,
    Subscription,
    Will,
)
from battlebrokers.protocols.registry import capabilities_of, make_link, protocol_names
from support.coap_server import coap_server
from support.http_hub import http_hub, http_script
from support.links import Ear, until
from support.nonsense import nonsense_server
from support.places import PLACES, Place, needs, needs_qos, send, subscribed
from support.ports import free_port
from support.websocket_hub import hub_script, websocket_hub

pytestmark = pytest.mark.broker
SLOW = {"rabbitmq"}


def together(place: Place) -> Any:
    """As a parameter: what is tried with one broker goes to one process, so that it is started once."""
    slow = [pytest.mark.slow] if place.broker in SLOW else []
    group = [pytest.mark.xdist_group(f"links {place.broker}")] if place.broker else []
    return pytest.param(place, marks=[*slow, *group], id=str(place))


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], RunningContender]]:
    """Each broker is started when it is first needed."""
    running: dict[str, RunningContender] = {}

    def started(name: str) -> RunningContender:
        if name not in running:
            folder: Path = tmp_path_factory.mktemp(name)
            running[name] = start_contender(name, "tuned", folder)
        return running[name]

    yield started
    for broker in running.values():
        broker.stop()


@pytest.fixture(scope="module")
def coap_port() -> Iterator[int]:
    """A libcoap server that makes a resource of every path that is PUT."""
    with coap_server() as port:
        yield port


@pytest.fixture(scope="module")
def hub_port() -> Iterator[int]:
    """A server of topics over WebSocket."""
    with websocket_hub() as port:
        yield port


@pytest.fixture(scope="module")
def http_hub_port() -> Iterator[int]:
    """A server of topics over HTTP."""
    with http_hub() as port:
        yield port


@pytest.fixture(params=[together(place) for place in PLACES])
def place(request: pytest.FixtureRequest) -> Place:
    return request.param


@pytest.fixture
def endpoint(
    place: Place,
    brokers: Callable[[str], RunningContender],
    require_broker: Callable[[str], str],
    request: pytest.FixtureRequest,
) -> Endpoint:
    if place.broker == "libcoap":
        return Endpoint("udp", "127.0.0.1", request.getfixturevalue("coap_port"), "")
    if place.broker == "hub":
        return Endpoint("ws", "127.0.0.1", request.getfixturevalue("hub_port"), "/")
    if place.broker == "http-hub":
        return Endpoint("tcp", "127.0.0.1", request.getfixturevalue("http_hub_port"), "")
    if place.protocol == "udp":
        return Endpoint("udp", "127.0.0.1", free_port(), "")
    if not place.broker:
        return Endpoint("memory", "memory", 1)
    require_broker(place.broker)
    url = parse_broker_url(brokers(place.broker).endpoints[place.transport])
    return Endpoint(url.transport, url.host, url.port, url.path)


@pytest.fixture
async def make(place: Place, endpoint: Endpoint) -> AsyncIterator[Callable[..., tuple[Link, Ear]]]:
    """A function that makes links to the place, all closed in the end."""
    made: list[Link] = []

    def maker(client_id: str = "", **options: object) -> tuple[Link, Ear]:
        ear = Ear()
        settings = {"version": place.version or "3.1.1", "keep_alive_s": 30, "script": place.script}
        settings |= {**place.settings, **options}
        name = client_id or f"c-{uuid.uuid4().hex[:12]}"
        link = make_link(place.protocol, endpoint, LinkOptions(name, **settings), ear)  # type: ignore[arg-type]
        made.append(link)
        return link, ear

    yield maker
    for link in made:
        await link.close()


@pytest.fixture
def topics(place: Place) -> Callable[[], str]:
    """A function that gives topics nobody else uses; those of UDP are addresses."""

    def fresh() -> str:
        return f"127.0.0.1:{free_port()}" if place.protocol == "udp" else f"test/{uuid.uuid4().hex[:8]}"

    return fresh


@pytest.fixture
def topic(topics: Callable[[], str]) -> str:
    """A topic nobody else uses."""
    return topics()


def test_every_protocol_there_is_keeps_this_contract():
    assert {place.protocol for place in PLACES} == set(protocol_names())


async def test_a_link_opens_closes_and_opens_again(make):
    link, ear = make()
    assert link.held is Held.OFFLINE
    assert link.room(0) == link.room(1) == 0
    for _ in range(2):
        before = ear.now_ns()
        opened = await link.open()
        assert not opened.session_present
        assert opened.reason == 0
        assert before <= opened.received_ns <= ear.now_ns()
        assert link.held is Held.NO
        assert link.room(0) > 0
        assert link.room(1) > 0
        await link.close()
        assert link.held is Held.OFFLINE
    link.abort()
    assert not ear.closings
    assert not ear.faults


async def test_nothing_is_sent_while_closed(make, topic: str):
    link, _ = make()
    with pytest.raises(LinkError):
        link.publish(Outgoing(topic.encode(), [b"x"], 0, False, 0))
    with pytest.raises(LinkError):
        await link.subscribe([Subscription(topic)])


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_batches_arrive_whole_in_order_and_once(make, topic: str, qos: int, place: Place):
    needs_qos(place, qos)
    wild = place.capabilities.wildcards
    name = f"{topic}/a" if wild else topic
    _, ear = await subscribed(make, f"{topic}/+" if wild else topic, qos=qos)
    link, sender = make()
    await link.open()
    rows = np.random.default_rng(qos).integers(0, 256, (300, 64), np.uint8)
    several = [bytes([n % 256]) * (n * 7 % 200) for n in range(100)]
    sent_bytes = await send(link, name, rows, qos, 1000, heard=ear)
    sent_bytes += await send(link, name, several, qos, 2000, heard=ear)
    sent_bytes += await send(link, name, rows[:1], qos, 3000, heard=ear)
    sent_bytes += await send(link, name, rows[:3], qos, 4000, heard=ear)
    expected = [row.tobytes() for row in rows] + several + [row.tobytes() for row in (*rows[:1], *rows[:3])]
    await until(lambda: len(ear.messages) >= len(expected))
    assert ear.payloads == expected
    # What a dialect tells over WebSocket or HTTP has no QoS of its own.
    assert {message.qos for message in ear.messages} == {0 if place.protocol in {"websocket", "http"} else qos}
    assert {message.topic for message in ear.messages} == {name.encode()}
    assert not any(message.retain or message.dup for message in ear.messages)
    framing = 0 if place.protocol == "udp" else 1
    assert sent_bytes >= sum(map(len, expected)) + framing * len(expected)
    if qos in place.capabilities.acknowledges:
        tokens = [*range(1000, 1300), *range(2000, 2100), 3000, *range(4000, 4003)]
        await until(lambda: len(sender.acked) >= len(tokens))
        assert sorted(sender.acked) == tokens
    assert link.unacknowledged == 0
    assert not sender.refused
    named = 0 if place.protocol in {"udp", "coap"} else len(name)
    assert all(message.wire_size >= len(message.payload) + named for message in ear.messages)


async def test_payloads_may_be_anything(make, topic: str, place: Place):
    _, ear = await subscribed(make, topic)
    link, _ = make()
    await link.open()
    payloads = [b"", b"\x00", b"\xff" * 3, bytes(range(256)), b"x" * 127, b"x" * 128, b"x" * 16_384]
    for token, payload in enumerate(payloads):
        await send(link, topic, [payload], place.sure_qos, token, heard=ear)
    await until(lambda: len(ear.messages) == len(payloads))
    assert ear.payloads == payloads


async def test_a_large_message_arrives_whole(make, topic: str, place: Place):
    needs(place, "large")
    _, ear = await subscribed(make, topic)
    link, sender = make()
    await link.open()
    # A CoAP resource may be seen, empty, before the first long value is there whole.
    await send(link, topic, [b"first"], 1, 4, heard=ear)
    payload = np.random.default_rng(1).integers(0, 256, (1, 2 << 20), np.uint8)
    await send(link, topic, payload, 1, 5)
    await until(lambda: len(ear.messages) == 2 and len(sender.acked) == 2)
    assert ear.payloads == [b"first", payload.tobytes()]
    assert sender.acked == [4, 5]


async def test_only_who_asked_receives_until_he_stops(make, topics: Callable[[], str], place: Place):
    needs(place, "several_filters")
    mine, dropped, foreign = topics(), topics(), topics()
    asking, ear = await subscribed(make, mine, dropped)
    _, deaf = await subscribed(make, foreign)
    link, _ = make()
    await link.open()
    for name in (mine, dropped):
        await send(link, name, [name.encode()], place.sure_qos, heard=ear)
    await until(lambda: len(ear.messages) == 2)
    await asking.unsubscribe([Subscription(dropped)])
    await send(link, dropped, [b"late"], place.sure_qos)
    await send(link, mine, [b"last"], place.sure_qos, heard=ear)
    await until(lambda: len(ear.messages) == 3)
    heard = [(message.topic.decode(), message.payload) for message in ear.messages]
    # Order is a promise within a topic, not among them: NATS keeps a queue for each filter.
    assert sorted(heard[:2]) == sorted([(mine, mine.encode()), (dropped, dropped.encode())])
    assert heard[2:] == [(mine, b"last")]
    assert not deaf.messages


async def test_filters_choose_among_topics(make, topic: str, place: Place):
    needs(place, "wildcards")
    needs(place, "many_levels")
    asking, ear = await subscribed(make, f"{topic}/+/temperature", f"{topic}/all/#")
    _, deaf = await subscribed(make, f"{topic}/other")
    link, sender = make()
    await link.open()
    for last in ("kitchen/temperature", "kitchen/humidity", "all", "all/x/y", "kitchen/x/temperature"):
        link.publish(Outgoing(f"{topic}/{last}".encode(), [last.encode()], 1, False, 0))
    await until(lambda: len(ear.messages) == 3)
    assert sorted(ear.payloads) == [b"all", b"all/x/y", b"kitchen/temperature"]
    await asking.unsubscribe([Subscription(f"{topic}/all/#")])
    for last in ("all/z", "bath/temperature"):
        link.publish(Outgoing(f"{topic}/{last}".encode(), [last.encode()], 1, False, 0))
    await until(lambda: len(ear.messages) == 4 and len(sender.acked) == 7)
    assert ear.payloads[-1] == b"bath/temperature"
    assert not deaf.messages


async def test_the_granted_qos_is_the_upper_bound(make, topic: str, place: Place):
    needs(place, "granted_qos")
    needs_qos(place, 2)
    _, ear = await subscribed(make, topic, qos=1)
    link, _ = make()
    await link.open()
    for qos in (0, 1, 2):
        link.publish(Outgoing(topic.encode(), [b"%d" % qos], qos, False, qos))
    await until(lambda: len(ear.messages) == 3)
    assert sorted((message.payload, message.qos) for message in ear.messages) == [(b"0", 0), (b"1", 1), (b"2", 1)]


async def test_the_window_is_kept_and_every_hold_ends(make, topic: str, place: Place):
    needs(place, "window")
    link, sender = make(inflight=7)
    await link.open()
    owed = list(range(500))
    most = 0

    def push(_: Link) -> None:
        nonlocal most
        while owed and link.room(1):
            count = min(link.room(1), len(owed), 3)
            batch = [owed.pop(0) for _ in range(count)]
            link.publish(Outgoing(topic.encode(), [b"%d" % each for each in batch], 1, False, batch[0]))
            most = max(most, link.unacknowledged)

    sender.on_writable = push
    push(link)
    assert link.held is Held.WINDOW
    await until(lambda: len(sender.acked) == 500)
    assert sorted(sender.acked) == list(range(500))
    assert most == 7
    assert sender.writable_calls > 10


async def test_a_slow_reader_loses_nothing(make, topic: str, place: Place):
    needs(place, "every_message")
    reading, ear = await subscribed(make, topic, qos=1)
    link, sender = make()
    await link.open()
    reading.pause_reading()
    await send(link, topic, np.zeros((200, 100), np.uint8), place.sure_qos)
    if place.sure_qos in place.capabilities.acknowledges:
        await until(lambda: len(sender.acked) == 200)
    assert not ear.messages
    reading.resume_reading()
    await until(lambda: len(ear.messages) == 200)


async def test_a_retained_message_meets_those_who_come_later(make, topic: str, place: Place):
    needs(place, "retain")
    link, sender = make()
    await link.open()
    for token, payload in enumerate((b"old", b"kept")):
        link.publish(Outgoing(topic.encode(), [payload], 1, True, token))
    await until(lambda: len(sender.acked) == 2)
    _, ear = await subscribed(make, topic)
    await until(lambda: ear.messages)
    assert [(message.payload, message.retain) for message in ear.messages] == [(b"kept", True)]
    link.publish(Outgoing(topic.encode(), [b"live"], 1, True, 3))
    await until(lambda: len(ear.messages) == 2)
    assert not ear.messages[1].retain
    link.publish(Outgoing(topic.encode(), [b""], 1, True, 4))
    await until(lambda: len(ear.messages) == 3)


async def test_the_will_speaks_for_who_vanished_not_for_who_left(make, topic: str, place: Place):
    needs(place, "will")
    _, ear = await subscribed(make, f"{topic}/+")
    leaving, _ = make(will=Will(f"{topic}/left", b"left", 1))
    vanishing, _ = make(will=Will(f"{topic}/vanished", b"vanished", 1))
    await leaving.open()
    await vanishing.open()
    await leaving.close()
    vanishing.abort()
    await until(lambda: ear.messages)
    assert ear.payloads == [b"vanished"]


async def test_a_kept_session_delivers_what_came_while_away(make, topic: str, place: Place):
    needs(place, "persistent_session")
    away, ear = await subscribed(make, topic, qos=1, clean=False, session_expiry_s=60)
    await away.close()
    link, sender = make()
    await link.open()
    link.publish(Outgoing(topic.encode(), [b"%d" % n for n in range(50)], 1, False, 0))
    await until(lambda: len(sender.acked) == 50)
    assert not ear.messages
    opened = await away.open()
    assert opened.session_present
    await until(lambda: len(ear.messages) == 50)
    assert ear.payloads == [b"%d" % n for n in range(50)]


async def test_a_shared_group_gets_every_message_once(make, topic: str, place: Place):
    needs(place, "shared_subscription")
    ears = []
    for _ in range(2):
        link, ear = make()
        await link.open()
        granted = await link.subscribe([Subscription(topic, 1, share="group")])
        assert granted[0].qos == 1
        ears.append(ear)
    link, _ = make()
    await link.open()
    link.publish(Outgoing(topic.encode(), [b"%d" % n for n in range(100)], 1, False, 0))
    await until(lambda: sum(len(ear.messages) for ear in ears) == 100)
    assert sorted(ears[0].payloads + ears[1].payloads) == sorted(b"%d" % n for n in range(100))
    assert all(ear.messages for ear in ears)


async def test_who_takes_a_client_id_over_ends_the_older_link(make, place: Place):
    needs(place, "takeover")
    older, ear = make("same-name-" + uuid.uuid4().hex[:6])
    await older.open()
    newer, other = make(older.options.client_id)
    await newer.open()
    await until(lambda: ear.closings)
    assert older.held is Held.OFFLINE
    assert newer.held is Held.NO
    assert not other.closings


async def test_an_aborted_link_is_never_told_of_its_end(make, topic: str, place: Place):
    link, ear = await subscribed(make, topic)
    count = min(20, link.room(place.sure_qos))
    link.publish(Outgoing(topic.encode(), [b"x"] * count, place.sure_qos, False, 0))
    link.abort()
    assert link.held is Held.OFFLINE
    await asyncio.sleep(0.05)
    assert not ear.closings
    assert not ear.faults
    heard = len(ear.messages)
    await asyncio.sleep(0.02)
    assert len(ear.messages) == heard
    await link.open()
    assert link.held is Held.NO


async def test_a_link_that_was_aborted_opens_subscribes_and_receives_again(make, topic: str, place: Place):
    link, ear = await subscribed(make, topic)
    link.abort()
    await link.open()
    granted = await link.subscribe([Subscription(topic, place.sure_qos)])
    assert granted[0].qos == place.sure_qos
    sender, _ = make()
    await sender.open()
    await send(sender, topic, [b"again"], place.sure_qos, heard=ear)
    await until(lambda: ear.messages)
    assert ear.payloads == [b"again"]


async def test_what_a_link_cannot_do_is_refused(make, topic: str, place: Place):
    """Everything its capabilities deny: no exception, no silence, no approximation."""
    can = place.capabilities
    link, ear = make()
    await link.open()
    refusals = 0
    if not can.wildcards:
        assert (await link.subscribe([Subscription("a/+/b")]))[0].qos == -1
        refusals += 1
    if not can.shared_subscription:
        assert (await link.subscribe([Subscription(topic, 0, share="group")]))[0].qos == -1
        refusals += 1
    if can.largest_payload_bytes is not None:
        link.publish(Outgoing(topic.encode(), [b"x" * (can.largest_payload_bytes + 1)], 0, False, 7))
        await until(lambda: ear.refused)
        assert ear.refused[0][0] == 7
        assert ear.refused[0][1] > 0
        refusals += 1
    if place.protocol == "amqp":
        link.publish(Outgoing(topic.encode(), [b"x"], 1, True, 8))
        link.publish(Outgoing(topic.encode(), [b"x"], 2, False, 9))
        await until(lambda: len(ear.refused) == 2)
        assert [token for token, _ in ear.refused] == [8, 9]
        refusals += 1
    if not refusals:
        pytest.skip(f"{place}: there is nothing this link denies")
    assert link.held is Held.NO
    assert not ear.closings


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("protocol", [name for name in protocol_names() if name != "loopback"])
async def test_a_server_that_talks_nonsense_harms_nobody(protocol: str, seed: int, caplog: pytest.LogCaptureFixture):
    can = capabilities_of(protocol)
    transport = next(each for each in ("udp", "tcp", "ws") if each in can.transports)
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    async with nonsense_server(transport, seed) as port:
        ear = Ear()
        script = {"websocket": hub_script(), "http": http_script("stream")}.get(protocol)
        options = LinkOptions("victim", connect_timeout_s=3.0, answer_timeout_s=0.5, script=script)
        link = make_link(protocol, Endpoint(transport, "127.0.0.1", port, ""), options, ear)
        if transport != "udp" and protocol != "http":
            with pytest.raises(LinkError):
                await link.open()
            assert link.held is Held.OFFLINE
        else:
            await link.open()
            link.publish(Outgoing(b"a/b", [b"x"] * 4, 0, False, 0))
            if 0 in can.acknowledges:
                await until(lambda: len(ear.refused) == 4)
                assert all(reason < 0 for _, reason in ear.refused)
                assert {reason for _, reason in ear.refused} <= set(Failure)
                # What is no answer to a request over HTTP is told as its failure only.
                assert ear.faults or protocol == "http"
            assert link.held is Held.NO
            assert link.unacknowledged == 0
        await link.close()
    assert not complaints
    assert not caplog.records
