"""AMQP 0-9-1 spoken by RabbitMQ and pika: methods, contents and acknowledgements are tshark's.

Deviations, with their reasons:

- tshark counts frames: a message of ours with content is one method frame, one header frame and its body frames.
- tshark counts publishes from the channel's opening, the protocol from Confirm.Select on: here nothing is published on
  a channel before its Confirm.Select.
- tshark lets an acknowledgement of several cover what was got with automatic acknowledgement: nothing is got so here.
- tshark pairs acknowledgements with what they acknowledge, but no synchronous methods: those are checked by count
  (each has one answer, by the protocol).
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from pathlib import Path

import pytest

from battlebrokers.contenders.lifecycle import RunningContender
from battlebrokers.dissect.amqp_methods import METHODS
from support.wiretap import nanoseconds, needs, overheard, tshark, wiretap

pika = pytest.importorskip("pika", reason="pika is not installed")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.broker,
    pytest.mark.xdist_group("rabbitmq"),
    needs("tshark", "dumpcap", why="(apt install tshark)"),
]
CONTENTS = ("Basic.Publish", "Basic.Deliver", "Basic.GetOk")


def converse(port: int) -> None:
    """Declare, publish with and without confirms, deliver with every kind of acknowledgement, fail, get, big bodies."""
    guest = pika.PlainCredentials("guest", "guest")
    parameters = pika.ConnectionParameters("127.0.0.1", port, heartbeat=1, credentials=guest)
    with contextlib.closing(pika.BlockingConnection(parameters)) as connection:
        channel = connection.channel()
        plain = connection.channel()
        channel.exchange_declare("bb", "topic")
        channel.queue_declare("q")
        channel.queue_bind("q", "bb", "dev.#")
        for number in range(50):
            plain.basic_publish("bb", f"dev.{number}", b"plain %d" % number)
        channel.confirm_delivery()
        for number in range(50):
            channel.basic_publish("bb", f"dev.{number}", b"confirmed" * number)
        channel.basic_publish("bb", "dev.big", os.urandom(300_000))
        with contextlib.suppress(pika.exceptions.UnroutableError):
            channel.basic_publish("bb", "nobody", b"returned", mandatory=True)
        for _ in range(3):
            channel.basic_get("q")
        channel.basic_qos(prefetch_count=40)
        taken: list[int] = []
        for delivery, _, _ in channel.consume("q", inactivity_timeout=2):
            if delivery is None:
                break
            taken.append(delivery.delivery_tag)
            if len(taken) <= 10:
                channel.basic_ack(delivery.delivery_tag)
            elif len(taken) % 10 == 0:
                channel.basic_ack(delivery.delivery_tag, multiple=True)
            elif len(taken) > 90 and len(taken) % 2:
                channel.basic_reject(delivery.delivery_tag, requeue=False)
        channel.basic_nack(taken[-1], multiple=True, requeue=False)
        channel.cancel()
        channel.basic_get("q")
        connection.process_data_events(2.5)
        with contextlib.suppress(pika.exceptions.ChannelClosedByBroker):
            connection.channel().queue_declare("missing", passive=True)
        again = connection.channel()
        again.confirm_delivery()
        again.basic_publish("bb", "dev.again", b"same number, new tags")
        again.queue_delete("q")


def test_methods_contents_and_acknowledgements_are_tsharks(rabbitmq: RunningContender, tmp_path: Path) -> None:
    assert rabbitmq.place is not None
    server = rabbitmq.place.ports.numbers["amqp"]
    capture = tmp_path / "amqp.pcapng"
    with wiretap(capture, server):
        converse(server)
    fields = ["amqp.type", "amqp.method.class", "amqp.method.method", "amqp.init.protocol"]
    rows = tshark(capture, fields, decode_as=f"tcp.port=={server},amqp", only="amqp")
    methods = Counter(
        METHODS[int(group), int(number)].name
        for row in rows
        for group, number in zip(row["amqp.method.class"], row["amqp.method.method"], strict=True)
    )
    types = Counter(kind for row in rows for kind in row["amqp.type"])
    said = overheard(capture, server)
    ours = Counter(kind for one in said for kind in one.kinds)
    assert ours.pop("ProtocolHeader") == sum(len(row["amqp.init.protocol"]) for row in rows) == 1
    assert ours.pop("Heartbeat") == types["8"] > 0
    assert ours == methods
    assert sum(one.stream.malformed + one.stream.undecoded_bytes for one in said) == 0
    exchanges = [row for one in said for row in one.exchanges]
    acknowledged = [row for row in exchanges if row.request.found.kind in CONTENTS]
    answered = [row for row in acknowledged if row.response is not None]
    # Of what an acknowledgement acknowledges tshark tells in its first pass only.
    fields = ["frame.number", "frame.time_epoch", "amqp.message_in"]
    rows = tshark(capture, fields, decode_as=f"tcp.port=={server},amqp", passes=1)
    when = {row["frame.number"][0]: nanoseconds(row["frame.time_epoch"][0]) for row in rows}
    theirs = Counter(
        (when[message], nanoseconds(row["frame.time_epoch"][0])) for row in rows for message in row["amqp.message_in"]
    )
    assert Counter((row.request.first_ns, row.response.first_ns) for row in answered) == theirs
    assert len(answered) == len(acknowledged)
    assert all(row.response.first_ns >= row.request.last_ns for row in exchanges if row.response is not None)
    synchronous = Counter(row.request.found.kind for row in exchanges if row.rule == "order")
    for kind, count in synchronous.items():
        assert count == methods[kind], kind
    assert [row.request.found.kind for row in exchanges if row.rule == "order" and row.response is None] == []
