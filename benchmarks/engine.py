"""The group `engine`: how much load one process of ours can make and take, beside C and paho, on one Mosquitto.

All sides use the same broker and 64-byte payloads; ours records everything, as in any run.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import holding, latency, outpour, throughput
from benchmarks.bench import Bench, mosquitto
from benchmarks.figure import Figure


def figures(bench: Bench) -> Iterator[Figure]:
    """All figures of the group, in the order they are measured."""
    with mosquitto(bench) as broker:
        yield from throughput.figures(bench, broker)
        if bench.wants("engine.added_latency"):
            yield latency.added_latency(bench, broker)
    if bench.wants("engine.sink_vs_paho"):
        yield outpour.sink_vs_paho(bench)
    # Last and on a broker of its own: thousands of sockets just closed are no company for the others.
    if bench.wants("engine.connections"):
        with mosquitto(bench) as broker:
            yield holding.connections(bench, broker)
