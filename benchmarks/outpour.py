"""How fast one process can publish when nothing but itself is the limit. Part of `engine`."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.bench import Bench
from benchmarks.figure import Figure, compared
from benchmarks.ours import PAYLOAD_BYTES, plain_load, run_ours
from benchmarks.paho_pair import run_paho
from benchmarks.rates import steady_rate
from benchmarks.sink import HOST, Sink, Watch, running_sink

_TOPIC_BYTES = len("bench/0")
_FRAME_BYTES = 2 + 2 + _TOPIC_BYTES + PAYLOAD_BYTES


def sink_vs_paho(bench: Bench) -> Figure:
    """Ten publishers of ours beside one of paho; what the sink has read counts."""
    with running_sink() as sink:
        ours, paho = bench.interleaved("publishing into a sink", lambda: _ours(bench, sink), lambda: _paho(bench, sink))
    return compared(
        "engine.sink_vs_paho", ours, paho, target=10.0, unit="msg/s",
        note="QoS 0 publish rate of one process into a sink that only reads ÷ paho-mqtt 2 into the same sink",
    )  # fmt: skip


def _ours(bench: Bench, sink: Sink) -> float:
    load = replace(plain_load(bench), subscribers=0, per_s=2_000_000.0)
    watch = Watch(sink, _FRAME_BYTES)
    watch.start()
    run_ours(load, sink, bench.folder, lambda told: told.window)
    return steady_rate(watch.stop())


def _paho(bench: Bench, sink: Sink) -> float:
    load = plain_load(bench)
    watch = Watch(sink, _FRAME_BYTES)
    watch.start()
    seconds = load.warm_up_s + load.measure_s
    run_paho(HOST, sink.port, qos=0, payload_bytes=PAYLOAD_BYTES, seconds=seconds, subscribe=False)
    return steady_rate(watch.stop())
