"""The group `links`: how fast the links that are no MQTT speak, beside plain loops of aiohttp on the same server, and
what is left of us without any broker."""

from __future__ import annotations

from collections.abc import Iterator

from battlebrokers.contenders.lifecycle import start_contender
from benchmarks import loopback_pair, websocket_pair
from benchmarks.bench import Bench, Broker
from benchmarks.figure import AT_MOST, Figure, compared, judged
from benchmarks.http_pair import DEVICES, WINDOW, run_aiohttp, run_ours
from benchmarks.serving import running_server

_LIMIT_KIB = 12.0
"""What one connection may cost, as in `engine.connections`."""
_FEW = 50


def figures(bench: Bench) -> Iterator[Figure]:
    """All figures of the group, in the order they are measured."""
    if bench.wants("links.http_vs_aiohttp"):
        yield http_vs_aiohttp(bench)
    if bench.wants("links.websocket_vs_aiohttp"):
        yield websocket_vs_aiohttp(bench)
    if bench.wants("links.websocket_clients"):
        yield websocket_clients(bench)
    if bench.wants("links.loopback"):
        yield loopback(bench)


def http_vs_aiohttp(bench: Bench) -> Figure:
    """Requests a second with as many in flight on both sides."""
    seconds = 0.5 if bench.quick else 5.0
    with running_server("benchmarks.http_server") as port:
        ours, peer = bench.interleaved(
            "POST of 64 bytes", lambda: run_ours(port, seconds), lambda: run_aiohttp(port, seconds)
        )
    return compared(
        "links.http_vs_aiohttp", ours, peer, target=1.0, unit="req/s",
        note=f"answered POST requests of one process, {DEVICES * WINDOW} in flight ÷ a loop of aiohttp on uvloop",
    )  # fmt: skip


def websocket_vs_aiohttp(bench: Bench) -> Figure:
    """Messages answered and notified, with as many in flight on both sides."""
    seconds = 0.5 if bench.quick else 5.0
    with running_server("benchmarks.websocket_server") as port:
        ours, peer = bench.interleaved(
            "JSON of 64 bytes over WebSocket",
            lambda: websocket_pair.run_ours(port, seconds),
            lambda: websocket_pair.run_aiohttp(port, seconds),
        )
    in_flight = websocket_pair.DEVICES * websocket_pair.WINDOW
    return compared(
        "links.websocket_vs_aiohttp", ours, peer, target=1.0, unit="msg/s",
        note=f"messages of one process, each answered and notified, {in_flight} in flight ÷ aiohttp on uvloop",
    )  # fmt: skip


def websocket_clients(bench: Bench) -> Figure:
    """Memory per held connection: each publishes, is answered and is notified, again and again."""
    count = 500 if bench.quick else 5000
    seconds = 1.0 if bench.quick else 15.0
    with running_server("benchmarks.websocket_server") as port:
        # What the process needs for itself is what it needs with a few connections.
        few = websocket_pair.held(port, _FEW, min(seconds, 2.0))
        many = websocket_pair.held(port, count, seconds)
    each_kib = (many["memory_bytes"] - few["memory_bytes"]) / (count - _FEW) / 1024
    bench.say(f"WebSocket clients: {many}, {each_kib:.2f} KiB each")
    served = many["answered"] == many["received"] == many["expected"] >= count
    return judged(
        "links.websocket_clients", each_kib, _LIMIT_KIB, target=1.0, unit="KiB", bound=AT_MOST,
        provided=many["held"] == count and not many["dropped"] and served,
        note=f"memory per connection of one process holding {many['held']:,} for {seconds:.0f} s, {many['dropped']} "
        f"dropped, {many['answered']:,} of {many['expected']:,} messages answered and notified ÷ the most we allow "
        "ourselves",
    )  # fmt: skip


def loopback(bench: Bench) -> Figure:
    """The floor of our own overhead: how many more messages there are without broker and sockets."""
    seconds = 0.5 if bench.quick else 5.0
    # In the host's own network: a ratio this coarse needs no other TCP.
    with start_contender("mosquitto", "tuned", bench.folder / "mosquitto") as running:
        broker = Broker(running)
        ours, peer = bench.interleaved(
            "acknowledged messages of 64 bytes in memory | over MQTT",
            lambda: loopback_pair.run_loopback(seconds),
            lambda: loopback_pair.run_mqtt(broker.host, broker.port, seconds),
        )
        title = broker.title
    in_flight = loopback_pair.DEVICES * loopback_pair.WINDOW
    return compared(
        "links.loopback", ours, peer, target=1.0, unit="msg/s",
        note=f"acknowledged messages of one process in its memory, {in_flight} in flight ÷ our MQTT link on {title}",
    )  # fmt: skip
