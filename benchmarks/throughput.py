"""End-to-end rates: messages that left a publisher, crossed the broker and arrived, per second. Part of `engine`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from benchmarks.bench import Bench, Broker
from benchmarks.c_pair import require_c_pair, run_c_pair
from benchmarks.figure import AT_MOST, Figure, compared
from benchmarks.ours import PAYLOAD_BYTES, Load, plain_load, run_ours
from benchmarks.paho_pair import FASTEST_AHEAD, run_paho

_QOS0 = (
    "engine.qos0_vs_c", "engine.qos0_vs_paho", "engine.qos0_vs_held_paho", "engine.cpu_vs_c", "engine.many_clients",
)  # fmt: skip
_CARRIED = 0.97
"""Of what was offered; where less arrives, the limit is reached."""
_RAISES = 6
_RECORDING, _RECORDING_CPU = "engine.recording", "engine.recording_cpu"


def figures(bench: Bench, broker: Broker) -> Iterator[Figure]:
    """All of them."""
    sides = Sides(bench, broker)
    if bench.wants(*_QOS0):
        yield from _qos0(bench, sides)
    if bench.wants(_RECORDING, _RECORDING_CPU):
        yield from _recording(bench, sides)
    if bench.wants("engine.qos1_vs_paho"):
        yield _qos1(bench, sides)


@dataclass(frozen=True)
class Sides:
    """Who can be measured on this broker."""

    bench: Bench
    broker: Broker

    def ours(self, load: Load) -> tuple[float, float]:
        """(deliveries per second, CPU µs per delivery) of one process of ours."""
        return run_ours(load, self.broker, self.bench.folder, lambda told: (told.delivered_per_s, told.cpu_us))

    def most(self, load: Load, guess: float) -> tuple[float, float]:
        """The same where less arrives than is offered: first a fifth above a guess, then more until it is too much.

        What is far more than the broker takes only costs both of us time.
        """
        found, offered = (0.0, 0.0), 1.2 * guess
        for _ in range(_RAISES):
            found = max(found, self.ours(replace(load, per_s=offered)))
            if found[0] < _CARRIED * offered:
                break
            offered *= 1.2
        return found

    def watched(self, load: Load) -> float:
        """Deliveries per second by the live counters, which are there whether events are kept or not."""
        return run_ours(load, self.broker, self.bench.folder, lambda told: told.watched_per_s)

    def cpu_us(self, load: Load) -> float:
        """CPU µs of ours per message the broker carried, whether events are kept or not."""
        return run_ours(load, self.broker, self.bench.folder, lambda told: told.cpu_us_at(load.per_s))

    def c_pair(self) -> tuple[float, float]:
        """The same as `ours` of two C processes."""
        self.broker.settle()
        messages = 50_000 if self.bench.quick else 600_000
        return run_c_pair(self.broker.host, self.broker.port, PAYLOAD_BYTES, messages, self.bench.folder)

    def paho(self, qos: int, ahead: int = 0) -> float:
        """Deliveries per second of paho, for as long as a run of ours; `ahead`: see `run_paho`."""
        load = plain_load(self.bench)
        self.broker.settle()
        seconds = load.warm_up_s + load.measure_s
        where = self.broker.host, self.broker.port
        return run_paho(*where, qos=qos, payload_bytes=PAYLOAD_BYTES, seconds=seconds, ahead=ahead)


def _qos0(bench: Bench, sides: Sides) -> Iterator[Figure]:
    require_c_pair()
    load = plain_load(bench)
    pairs = 100 if bench.quick else 1000
    crowd = replace(load, publishers=pairs, subscribers=pairs)
    rounds = []
    for number in range(bench.rounds):
        c, c_us = sides.c_pair()
        ours, ours_us = sides.most(load, c)
        paho, held = sides.paho(0), sides.paho(0, FASTEST_AHEAD[0])
        many, many_us = sides.ours(replace(crowd, per_s=1.2 * ours))
        rounds.append((ours, ours_us, c, c_us, paho, held, many))
        bench.say(
            f"QoS 0, round {number + 1} of {bench.rounds}: ours {ours:,.0f}/s ({ours_us:.2f} µs), "
            f"C {c:,.0f}/s ({c_us:.2f} µs), paho {paho:,.0f}/s and {held:,.0f}/s, "
            f"{pairs} pairs {many:,.0f}/s ({many_us:.2f} µs)"
        )
    sums = (list(side) for side in zip(*rounds, strict=True))
    ours_per_s, ours_cpu, c_per_s, c_cpu, paho_per_s, held_per_s, many_per_s = sums
    yield compared(
        "engine.qos0_vs_c", ours_per_s, c_per_s, target=1.0, unit="msg/s",
        note="QoS 0 end to end: 10 publishers and 10 subscribers in one process ÷ mosquitto_pub -l and mosquitto_sub",
    )  # fmt: skip
    yield compared(
        "engine.qos0_vs_paho", ours_per_s, paho_per_s, target=5.0, unit="msg/s",
        note="the same ÷ paho-mqtt 2, a publisher and a subscriber in one process; it waits for nobody, as we and C do",
    )  # fmt: skip
    yield compared(
        "engine.qos0_vs_held_paho", ours_per_s, held_per_s, target=5.0, unit="msg/s",
        note="the same ÷ paho-mqtt 2 whose publisher waits while more than 1000 messages are on their way, its fastest",
    )  # fmt: skip
    yield compared(
        "engine.cpu_vs_c", ours_cpu, c_cpu, target=1.5, unit="µs/msg", bound=AT_MOST,
        note="CPU time per delivered message, recording included ÷ that of the two C processes, which record nothing",
    )  # fmt: skip
    yield compared(
        "engine.many_clients", many_per_s, ours_per_s, target=0.8, unit="msg/s",
        note=f"{pairs} publishers and {pairs} subscribers ÷ 10 and 10, each in one process",
    )  # fmt: skip


def _recording(bench: Bench, sides: Sides) -> Iterator[Figure]:
    """At the broker's limit in messages; where it has time to spare in CPU: the limit hides what recording costs."""
    load = plain_load(bench)
    if bench.wants(_RECORDING):
        silent = replace(load, keep_events=False)
        kept, unkept = bench.interleaved("recording", partial(sides.watched, load), partial(sides.watched, silent))
        yield compared(
            _RECORDING, kept, unkept, target=0.9, unit="msg/s",
            note="rate with every event recorded as Parquet ÷ rate with nothing recorded, the broker at its limit",
        )  # fmt: skip
    if bench.wants(_RECORDING_CPU):
        carried = replace(load, per_s=round(sides.ours(load)[0] / 2))
        silent = replace(carried, keep_events=False)
        kept, unkept = bench.interleaved("recording", partial(sides.cpu_us, carried), partial(sides.cpu_us, silent))
        yield compared(
            _RECORDING_CPU, kept, unkept, target=1.11, unit="µs/msg", bound=AT_MOST,
            note=f"CPU time per message sent and received at {carried.per_s:,.0f} msg/s, half the broker's capacity, "
            "with every event recorded as Parquet ÷ with nothing recorded",
        )  # fmt: skip


def _qos1(bench: Bench, sides: Sides) -> Figure:
    load = replace(plain_load(bench), qos=1)
    ours, paho = bench.interleaved("QoS 1", lambda: sides.ours(load)[0], lambda: sides.paho(1, FASTEST_AHEAD[1]))
    return compared(
        "engine.qos1_vs_paho", ours, paho, target=3.0, unit="msg/s",
        note="QoS 1 end to end: 10 publishers and 10 subscribers in one process ÷ paho-mqtt 2 with its fastest window",
    )  # fmt: skip
