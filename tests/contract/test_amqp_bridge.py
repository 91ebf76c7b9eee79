"""AMQP links in RabbitMQ, beside its MQTT clients and beside pika: what one says, the others hear."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator

import pika
import pytest

from battlebrokers.contenders.broker_url import parse_broker_url
from battlebrokers.contenders.dialogue import scripts_of
from battlebrokers.contenders.lifecycle import RunningContender, start_contender
from battlebrokers.contenders.reader import parse_contender
from battlebrokers.errors import LinkError
from battlebrokers.protocols.base import Endpoint, Failure, Held, Link, LinkOptions, Outgoing, Subscription
from battlebrokers.protocols.registry import make_link
from battlebrokers.protocols.script import Say, Script
from support.links import Ear, until

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.xdist_group("amqp bridge")]


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningContender]:
    with start_contender("rabbitmq", "tuned", tmp_path_factory.mktemp("rabbitmq")) as running:
        yield running


@pytest.fixture
def make(rabbitmq: RunningContender) -> Iterator[Callable[..., tuple[Link, Ear]]]:
    made: list[Link] = []

    def maker(protocol: str, **options: object) -> tuple[Link, Ear]:
        url = parse_broker_url(rabbitmq.endpoints["tcp" if protocol == "mqtt" else protocol])
        ear = Ear()
        settings = LinkOptions(f"c-{uuid.uuid4().hex[:8]}", keep_alive_s=30, **options)  # type: ignore[arg-type]
        link = make_link(protocol, Endpoint(url.transport, url.host, url.port, url.path), settings, ear)
        made.append(link)
        return link, ear

    yield maker
    for link in made:
        link.abort()


@pytest.fixture
def topic() -> str:
    return f"bridge/{uuid.uuid4().hex[:8]}"


@pytest.mark.parametrize(("speaks", "hears"), [("mqtt", "amqp"), ("amqp", "mqtt")])
@pytest.mark.parametrize("qos", [0, 1])
async def test_mqtt_and_amqp_hear_each_other(make, topic: str, speaks: str, hears: str, qos: int):
    client, ear = make(hears)
    await client.open()
    assert (await client.subscribe([Subscription(f"{topic}/+/x/#", qos)]))[0].qos == qos
    device, sender = make(speaks)
    await device.open()
    payloads = [bytes([n]) * (n + 16) for n in range(100)]
    device.publish(Outgoing(f"{topic}/a/x".encode(), payloads[:50], qos, False, 0))
    device.publish(Outgoing(f"{topic}/b/x/y/z".encode(), payloads[50:], qos, False, 50))
    device.publish(Outgoing(f"{topic}/b/y".encode(), [b"not asked for"], qos, False, 100))
    await until(lambda: len(ear.messages) == 100 and (not qos or len(sender.acked) == 101))
    assert ear.payloads == payloads
    assert {message.topic.decode() for message in ear.messages} == {f"{topic}/a/x", f"{topic}/b/x/y/z"}
    assert {message.qos for message in ear.messages} == {qos}


async def test_pika_reads_what_we_write(make, topic: str, rabbitmq: RunningContender):
    url = parse_broker_url(rabbitmq.endpoints["amqp"])
    connection = await asyncio.to_thread(pika.BlockingConnection, pika.ConnectionParameters(url.host, url.port))
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(queue, "amq.topic", topic.replace("/", ".") + ".#")
    say = Say("publish", target="${topic|dots}.more", text="${payload}", headers={"colour": "${name}"})
    link, sender = make("amqp", script=Script(protocol="amqp", publish=say), known={"name": "red"})
    plain, acked = make("amqp")
    await link.open()
    await plain.open()
    long = bytes(range(256)) * 2000
    link.publish(Outgoing(topic.encode(), [long], 1, False, 0))
    await until(lambda: sender.acked)
    plain.publish(Outgoing(topic.encode(), [b""], 1, False, 0))
    await until(lambda: acked.acked)
    method, properties, got = channel.basic_get(queue, auto_ack=True)
    assert (method.routing_key, got) == (topic.replace("/", ".") + ".more", long)
    assert (properties.headers, properties.delivery_mode) == ({"colour": "red"}, 2)
    _, properties, got = channel.basic_get(queue, auto_ack=True)
    assert (got, properties.delivery_mode) == (b"", 2)
    connection.close()


async def test_a_mandatory_message_nobody_wants_is_refused(make, topic: str):
    say = Say("publish", text="${payload}", headers={"mandatory": "true"})
    link, sender = make("amqp", script=Script(protocol="amqp", publish=say))
    client, ear = make("amqp")
    await link.open()
    await client.open()
    await client.subscribe([Subscription(f"{topic}/wanted", 1)])
    for token in range(20):
        name = f"{topic}/{'wanted' if token % 2 else 'unwanted'}"
        link.publish(Outgoing(name.encode(), [b"%d" % token], 1, False, token))
    await until(lambda: len(sender.acked) + len(sender.refused) == 20)
    assert sorted(sender.acked) == list(range(1, 20, 2))
    assert sorted(sender.refused) == [(token, 312) for token in range(0, 20, 2)]
    await until(lambda: len(ear.messages) == 10)


DIRECT = """\
name: direct
about: Letters at another exchange than the usual one.
run: {external: true}
ports: {amqp: 5672}
endpoints: {amqp: "amqp://${host}:${port.amqp}"}
speak:
  amqp:
    headers: {exchange: amq.direct}
    publish: {publish: "to-${resource}", json: {topic: "${topic}", data: "${payload}"}}
    subscribe: {steps: [{subscribe: "to-${resource}"}, {subscribe: "to-all"}]}
    notification: {payload: $.data, topic: $.topic}
"""


async def test_a_dialect_binds_what_its_file_says_and_takes_it_back_there(make, topic: str):
    script = scripts_of(parse_contender(DIRECT, "direct.yaml"))["amqp"]
    client, ear = make("amqp", script=script)
    await client.open()
    granted = await client.subscribe([Subscription(f"{topic}/{last}", 1) for last in "ab"])
    assert [each.qos for each in granted] == [1, 1]
    device, sender = make("amqp", script=script)
    await device.open()
    for last in "ab":
        device.publish(Outgoing(f"{topic}/{last}".encode(), [last.encode()], 1, False, 0))
    await until(lambda: len(ear.messages) == 2)
    assert [(each.topic.decode(), each.payload) for each in ear.messages] == [
        (f"{topic}/a", b"a"),
        (f"{topic}/b", b"b"),
    ]
    await client.unsubscribe([Subscription(f"{topic}/a", 1)])
    for last in "ab":
        device.publish(Outgoing(f"{topic}/{last}".encode(), [b"late"], 1, False, 0))
    await until(lambda: len(ear.messages) == 3 and len(sender.acked) == 4)
    assert ear.messages[-1].topic.decode() == f"{topic}/b"


async def test_an_exchange_that_is_not_there_closes_the_link_with_the_brokers_words(make, topic: str):
    say = Say("publish", text="${payload}", headers={"exchange": "nowhere"})
    link, sender = make("amqp", script=Script(protocol="amqp", publish=say))
    await link.open()
    link.publish(Outgoing(topic.encode(), [b"x"], 1, False, 3))
    await until(lambda: sender.closings)
    assert sender.refused == [(3, 404)]
    assert "no exchange 'nowhere'" in sender.closings[0][0]
    await link.open()
    assert link.held is Held.NO


async def test_wrong_passwords_and_virtual_hosts_are_refused_in_words(make, rabbitmq: RunningContender):
    link, _ = make("amqp", username="guest", password="wrong")
    with pytest.raises(LinkError, match="ACCESS_REFUSED") as caught:
        await link.open()
    assert caught.value.code == 403
    url = parse_broker_url(rabbitmq.endpoints["amqp"])
    elsewhere = make_link("amqp", Endpoint("tcp", url.host, url.port, "/nowhere"), LinkOptions("x"), Ear())
    with pytest.raises(LinkError, match="vhost nowhere not found"):
        await elsewhere.open()


async def test_prefetch_bounds_what_a_reader_is_sent(make, topic: str):
    client, ear = make("amqp", receive_maximum=10)
    await client.open()
    await client.subscribe([Subscription(topic, 1)])
    device, sender = make("amqp")
    await device.open()
    device.publish(Outgoing(topic.encode(), [b"%d" % n for n in range(500)], 1, False, 0))
    await until(lambda: len(ear.messages) == 500 and len(sender.acked) == 500)
    assert ear.payloads == [b"%d" % n for n in range(500)]
    assert max(ear.bulks, default=1) <= 10


async def test_a_broker_that_dies_fails_what_was_in_flight(tmp_path, topic: str):
    running = start_contender("rabbitmq", "tuned", tmp_path)
    try:
        url = parse_broker_url(running.endpoints["amqp"])
        ear = Ear()
        link = make_link("amqp", Endpoint("tcp", url.host, url.port, ""), LinkOptions("x"), ear)
        await link.open()
        await asyncio.to_thread(running.kill)
        if link.held is Held.NO:
            link.publish(Outgoing(topic.encode(), [b"x"], 1, False, 1))
        await until(lambda: ear.closings)
        assert all(reason in (Failure.CLOSED, Failure.TRUNCATED) for _, reason in ear.refused)
        assert link.unacknowledged == 0
        with pytest.raises(LinkError, match="nobody listens there"):
            await link.open()
    finally:
        running.stop()


async def test_a_goodbye_ends_when_the_broker_has_answered_it(make, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("battlebrokers.protocols.shutdown.IDLE_S", 3600.0)
    link, ear = make("amqp")
    await link.open()
    await asyncio.wait_for(link.close(), 60)
    assert ear.closings == []
