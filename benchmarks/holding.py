"""What a connection costs us when there are very many in one process. Part of `engine`."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.bench import Bench, Broker
from benchmarks.figure import AT_MOST, Figure, judged
from benchmarks.ours import Evidence, Load, run_ours

_LIMIT_KIB = 12.0
_FEW = 50


def connections(bench: Bench, broker: Broker) -> Figure:
    """Memory per held connection: half of them publish now and then, half listen, all keep alive."""
    count = 1000 if bench.quick else 15_000
    load = Load(per_s=count / 40, warm_up_s=1, measure_s=3 if bench.quick else 30, keep_alive_s=10)
    # What the process needs for itself is what it needs with a few connections.
    few_bytes, few, _ = _held(bench, broker, load, _FEW)
    many_bytes, held, dropped = _held(bench, broker, load, count // 2)
    each_kib = (many_bytes - few_bytes) / max(1, held - few) / 1024
    bench.say(f"connections: {held} of {count} held, {dropped} dropped, {each_kib:.2f} KiB each")
    return judged(
        "engine.connections", each_kib, _LIMIT_KIB, target=1.0, unit="KiB", bound=AT_MOST,
        provided=held == count and not dropped,
        note=f"memory per connection of one process holding {held:,} for {load.measure_s:.0f} s, {dropped} dropped "
        "÷ the most we allow ourselves",
    )  # fmt: skip


def _held(bench: Bench, broker: Broker, load: Load, pairs: int) -> tuple[int, int, int]:
    """(bytes of memory, connections held, connections dropped) of a run."""

    def read(told: Evidence) -> tuple[int, int, int]:
        done = told.operations
        dropped = sum(number for (kind, _), number in done.items() if kind == "lost")
        return told.rss_bytes, done.get(("connect", "ok"), 0), dropped

    return run_ours(replace(load, publishers=pairs, subscribers=pairs), broker, bench.folder, read)
