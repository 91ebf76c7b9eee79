"""The keep-alive: what we send keeps the connection, whatever we read; who is busy is not dropped for being late."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from battlebrokers.protocols.base import Arrivals, Endpoint, Failure, Link, LinkOptions, Outgoing, Subscription, Will
from battlebrokers.protocols.mqtt.connection import PING, SHORTEST_GRACE_S
from battlebrokers.protocols.mqtt.encode import encode
from battlebrokers.protocols.mqtt.link import MqttLink
from battlebrokers.protocols.mqtt.packets import PingResp, Publish
from battlebrokers.protocols.wheel import TICK_S
from support.links import Bench, Ear, mosquitto

MESSAGE = encode(Publish("t", b"x"), 4)
PINGRESP = encode(PingResp(), 4)


class Clock:
    """Moves the wheel of a bench by hand, with whatever happens at each of its ticks."""

    def __init__(self, bench: Bench, keep_alive_s: int) -> None:
        self.bench = bench
        self.connection = bench.connection
        self.wheel = bench.connection.wheel
        self.connection.keep_alive(keep_alive_s)
        self.wheel.leave(self.connection)
        self.due = self.wheel.tick + self.connection.keep_ticks
        self.pings: list[int] = []

    def run(self, seconds: float, *, reads: bytes = b"", publishes: bool = False) -> None:
        for _ in range(round(seconds / TICK_S)):
            if self.connection.gone:
                return
            self.wheel.tick += 1
            if reads:
                self.bench.receive(reads)
            if publishes:
                self.bench.link.publish(Outgoing(b"t", [b"x"], 0, False, 0))
            if self.wheel.tick >= self.due:
                self.due = self.connection.beat()
                assert self.due > self.wheel.tick or self.connection.gone
            self.pings += [self.wheel.tick] * self.bench.wire.take().count(PING)


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Bench() as made:
        made.wire.take()
        yield made


def seconds_between(ticks: list[int]) -> list[float]:
    return [(after - before) * TICK_S for before, after in pairwise(ticks)]


@pytest.mark.parametrize("paused", [True, False], ids=["reads nothing", "reads other things"])
def test_a_pingreq_leaves_within_every_keep_alive_although_no_pingresp_is_seen(bench: Bench, paused: bool) -> None:
    # MQTT 5: [MQTT-3.1.2-20]; 3.1.1: [MQTT-3.1.2-23].
    if paused:
        bench.link.pause_reading()
    clock = Clock(bench, keep_alive_s=3)
    clock.run(60, reads=b"" if paused else MESSAGE)
    assert len(clock.pings) >= 20
    assert max(seconds_between(clock.pings)) <= 3
    assert not bench.ear.closings


def test_who_sends_anyway_need_not_ping_as_long_as_the_broker_is_heard(bench: Bench) -> None:
    clock = Clock(bench, keep_alive_s=3)
    clock.run(20, reads=MESSAGE, publishes=True)
    assert clock.pings == []
    clock.run(20, publishes=True)
    assert clock.pings != []
    assert "no answer to PINGREQ" in bench.ear.closings[0][0]


@pytest.mark.parametrize("keep_alive_s", [1, 3, 60])
def test_a_busy_broker_has_several_seconds_and_at_least_the_keep_alive_to_answer(
    bench: Bench, keep_alive_s: int
) -> None:
    grace_s = max(SHORTEST_GRACE_S, keep_alive_s)
    assert grace_s >= 5
    clock = Clock(bench, keep_alive_s)
    clock.run(0.9 * keep_alive_s + TICK_S)
    assert len(clock.pings) == 1
    clock.run(grace_s - 1)
    assert not bench.ear.closings
    bench.receive(PINGRESP)
    clock.run(grace_s - 1)
    assert not bench.ear.closings
    clock.run(keep_alive_s + grace_s)
    assert bench.ear.closings[0][1] == Failure.TIMEOUT


def test_silence_counts_from_when_we_read_again(bench: Bench) -> None:
    clock = Clock(bench, keep_alive_s=1)
    bench.link.pause_reading()
    clock.run(300)
    bench.link.resume_reading()
    clock.run(SHORTEST_GRACE_S - 1)
    assert not bench.ear.closings
    clock.run(3)
    assert "no answer to PINGREQ" in bench.ear.closings[0][0]


class SlowEar(Ear):
    """Reads ten messages a second, as a client with `reads: 10/s` does."""

    def arrived(self, link: Link, at_ns: int, flags: int, topic: bytes, payload: bytes, wire_size: int) -> None:
        super().arrived(link, at_ns, flags, topic, payload, wire_size)
        self._rest(link, 1)

    def arrived_many(self, link: Link, at_ns: int, arrivals: Arrivals) -> None:
        super().arrived_many(link, at_ns, arrivals)
        self._rest(link, len(arrivals.flags))

    def _rest(self, link: Link, count: int) -> None:
        link.pause_reading()
        asyncio.get_running_loop().call_later(count / 10, link.resume_reading)


@pytest.mark.broker
@pytest.mark.slow
async def test_mosquitto_keeps_a_client_that_reads_too_slowly(tmp_path: Path, require_broker) -> None:
    require_broker("mosquitto")
    with mosquitto(tmp_path) as (port,):
        ear = SlowEar()
        place = Endpoint("tcp", "127.0.0.1", port)
        # A reader so far behind does not see that it was dropped; the witness of its will does.
        will = Will("will/slow-reader", b"dropped")
        reader = MqttLink(place, LinkOptions("slow-reader", keep_alive_s=1, will=will), ear)
        await reader.open()
        await reader.subscribe([Subscription("t")])
        witness = Ear()
        writer = MqttLink(place, LinkOptions("writer"), witness)
        await writer.open()
        await writer.subscribe([Subscription("will/#")])
        # Mosquitto drops who sent nothing for one and a half keep-alives, and looks for them every five seconds.
        for _ in range(100):
            writer.publish(Outgoing(b"t", [bytes(8192)] * 20, 0, False, 0))
            await asyncio.sleep(0.1)
        assert ear.messages
        assert not ear.closings
        assert witness.payloads == []
        reader.abort()
        await writer.close()
