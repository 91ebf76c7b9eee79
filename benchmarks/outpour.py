"""How fast one process can publish when nothing but itself is the limit. Part of `engine`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from benchmarks.bench import Bench
from benchmarks.figure import Figure, compared
from benchmarks.ours import PAYLOAD_BYTES, plain_load, run_ours
from benchmarks.paho_pair import run_paho
from benchmarks.rates import steady_rate
from benchmarks.sink import HOST, Sink, Watch, running_sink

_TOPIC_BYTES = len("bench/0")
_FRAME_BYTES = 2 + 2 + _TOPIC_BYTES + PAYLOAD_BYTES
_FIRST_OFFER_PER_S = 2_000_000.0
_RAISE = 1.5
_MOST_OFFERED_PER_S = 50_000_000.0
_REACHED = 0.95
"""Who sends this share of what is offered was limited by the offer."""


class Offer:
    """What is offered: raised until it is not reached, so that a rate is the engine's limit and not the plan's."""

    def __init__(self, per_s: float = _FIRST_OFFER_PER_S) -> None:
        self.per_s = per_s

    def limit(self, sent_per_s: Callable[[float], float]) -> float:
        """The rate reached under the first offer that is too much; later calls begin with that one."""
        while True:
            reached = sent_per_s(self.per_s)
            if reached < _REACHED * self.per_s or self.per_s >= _MOST_OFFERED_PER_S:
                return reached
            self.per_s *= _RAISE


def sink_vs_paho(bench: Bench) -> Figure:
    """Ten publishers of ours beside one of paho; what the sink has read counts."""
    offer = Offer()
    with running_sink() as sink:
        ours, paho = bench.interleaved(
            "publishing into a sink", lambda: _ours(bench, sink, offer), lambda: _paho(bench, sink)
        )
    return compared(
        "engine.sink_vs_paho", ours, paho, target=10.0, unit="msg/s",
        note=f"QoS 0 publish rate of one process, {offer.per_s:,.0f} msg/s offered and everything recorded, into a "
        "sink that only reads ÷ paho-mqtt 2 into the same sink",
    )  # fmt: skip


def _ours(bench: Bench, sink: Sink, offer: Offer) -> float:
    load = replace(plain_load(bench), subscribers=0)

    def sent_per_s(offered_per_s: float) -> float:
        watch = Watch(sink, _FRAME_BYTES)
        watch.start()
        run_ours(replace(load, per_s=offered_per_s), sink, bench.folder, lambda told: told.window)
        return steady_rate(watch.stop())

    return offer.limit(sent_per_s)


def _paho(bench: Bench, sink: Sink) -> float:
    load = plain_load(bench)
    watch = Watch(sink, _FRAME_BYTES)
    watch.start()
    seconds = load.warm_up_s + load.measure_s
    run_paho(HOST, sink.port, qos=0, payload_bytes=PAYLOAD_BYTES, seconds=seconds, subscribe=False)
    return steady_rate(watch.stop())
