"""The group `sdn`: the broker inside the network beside Mosquitto, peer-to-peer and os-ken's framework.

All on the same four switches in a row, switched by one daemon without the kernel's help. What is measured besides the
figures goes to `sdn.json`, and from there to a page and the tables of the docs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TypeVar

from battlebrokers.sdn.lab.open_vswitch import what_is_missing
from benchmarks import sdn_changes
from benchmarks.bench import Bench
from benchmarks.figure import AT_MOST, Figure, compared, judged
from benchmarks.sdn_mqtt import MqttNetwork
from benchmarks.sdn_network import MODES, PORT, PUBLISHER, BenchNetwork, bench_network
from benchmarks.sdn_report import kept
from benchmarks.sdn_search import fitted, highest_carried
from benchmarks.sdn_story import Busy, Changes, Latency, Rate, Story, Uplink
from benchmarks.sdn_traffic import Loader, LoggedLoad, Target, Traffic

T = TypeVar("T")
_SWEEP = (1, 2, 4, 8, 16, 32, 64)
_LATENCY_RATE = 500.0
_BUSY_RATE = 4000.0
_SENSORS = 2
_READINGS = 200
_TREE_7, _TREE_32 = "sdn.tree_vs_reactive", "sdn.tree_vs_reactive_32"
_DIRECT_7, _DIRECT_32 = "sdn.tree_vs_direct", "sdn.tree_vs_direct_32"
_OS_KEN = {"reactive": "sdn.reactive_vs_os_ken", "direct": "sdn.direct_vs_os_ken"}
_FRAMEWORK = {"reactive": "os-ken framework", "direct": "os-ken framework, direct"}
_LATENCY, _UPLINK, _SWEPT = "sdn.latency", "sdn.uplink", "sdn.cost_per_copy"
_BUSY = {"group": "sdn.controller_group", "tree": "sdn.controller_tree"}
_KILLED = {"group": "sdn.killed_group", "tree": "sdn.killed_tree"}
_UNSUBSCRIBED, _SUBSCRIBED = "sdn.unsubscribed", "sdn.subscribed"
_TRIALS = {"tree": 400, "group": 300, "reactive": 200, "direct": 100}
_ON_SEVEN = (_LATENCY, _UPLINK, *_BUSY.values(), *_KILLED.values(), _UNSUBSCRIBED, _SUBSCRIBED)


@dataclass(frozen=True)
class Effort:
    """How long and how closely to look."""

    seconds: float
    runs: int
    within: float
    at_most_s: float = 30.0

    def highest(self, network: BenchNetwork, traffic: Traffic, guess: float) -> float:
        """Messages a second, every copy of which came in time, so many times; one try more than that may fail."""
        network.warm(traffic)

        def carries(rate: float) -> bool:
            # Where others share the machine it halts now and then, and the faster side loses more by that.
            carried = failed = 0
            while carried < self.runs and failed < min(2, self.runs):
                network.settle()
                if network.loader.run(traffic, rate, self.seconds).was_carried(self.seconds):
                    carried += 1
                else:
                    failed += 1
            return carried == self.runs

        last = time.monotonic() + self.at_most_s
        return highest_carried(carries, guess, within=self.within, is_late=lambda: time.monotonic() > last)


def figures(bench: Bench) -> Iterator[Figure]:
    """All figures of the group, in the order they are measured."""
    missing = what_is_missing()
    if missing is not None and not bench.only:
        # Who asked for everything gets the rest; who asked for this is told that it cannot be.
        bench.say(f"sdn is left out: {missing.message} ({missing.hint})")
        return
    loader = Loader(bench.folder)
    with kept(bench.output) as story:
        if bench.wants(*_ON_SEVEN):
            with bench_network(bench, loader, 7) as network:
                yield from _of_seven(bench, network, story)
        # For rates the cables between switches are short cuts: pairs of interfaces cost the one thread that switches
        # more than the copies do, and are no part of any mode.
        if bench.wants(_TREE_7, _DIRECT_7, *_OS_KEN.values()):
            with bench_network(bench, loader, 7, "patch") as network:
                yield from _rates(bench, network, story, 7)
        if bench.wants(_TREE_32, _DIRECT_32):
            with bench_network(bench, loader, 32, "patch") as network:
                yield from _rates(bench, network, story, 32)
        if bench.wants(_SWEPT):
            with bench_network(bench, loader, 4 if bench.quick else max(_SWEEP), "patch") as network:
                yield _cost_per_copy(bench, network, story)


def _of_seven(bench: Bench, network: BenchNetwork, story: Story) -> Iterator[Figure]:
    for mode in ("group", "tree"):
        if bench.wants(_BUSY[mode]):
            yield _controller(bench, network, story, mode)
    if bench.wants(_UNSUBSCRIBED, _SUBSCRIBED):
        yield from _changes(bench, network, story)
    for mode in ("group", "tree"):
        if bench.wants(_KILLED[mode]):
            yield _killed(bench, network, story, mode)
    if bench.wants(_UPLINK):
        yield _uplink(bench, network, story)
    if bench.wants(_LATENCY):
        yield _latency(bench, network, story)


def _rates(bench: Bench, network: BenchNetwork, story: Story, subscribers: int) -> Iterator[Figure]:
    """Our modes and those they are compared with in turns, the others once."""
    effort = Effort(0.2, 1, 2.0) if bench.quick else Effort(0.6, 2, 1.08)
    sides: dict[str, Callable[[], Traffic]] = {
        mode: partial(network.ours, mode, subscribers) for mode in ("tree", "group", "reactive", "direct")
    }
    if subscribers == 7:
        sides |= {name: partial(network.os_ken, mode, subscribers) for mode, name in _FRAMEWORK.items()}
    guesses = {name: (60_000.0 if name in ("tree", "group") else 5_000.0) / subscribers for name in sides}
    found: dict[str, list[float]] = {name: [] for name in sides}
    rounds = 1 if bench.quick else 5 if subscribers == 7 else 3
    for place in range(rounds):
        for name, side in sides.items():
            rate = effort.highest(network, side(), guesses[name])
            guesses[name] = max(rate, 50.0)
            found[name].append(rate * subscribers)
            bench.say(f"{name} to {subscribers}, round {place + 1} of {rounds}: {rate:,.0f} messages/s")
    mqtt: list[MqttNetwork] = []

    def mosquitto() -> Traffic:
        mqtt.append(MqttNetwork(network))
        return mqtt[-1].traffic(subscribers)

    once: dict[str, Callable[[], Traffic]] = {
        "peer-to-peer": lambda: network.peers(subscribers),
        "mosquitto": mosquitto,
    }
    if subscribers != 7:
        once[_FRAMEWORK["reactive"]] = lambda: network.os_ken("reactive", subscribers)
    for name, side in once.items():
        rate = effort.highest(network, side(), 20_000 / subscribers)
        found[name] = [rate * subscribers]
        bench.say(f"{name} to {subscribers}: {rate:,.0f} messages/s")
    for one in mqtt:
        one.close()
    story.rates[str(subscribers)] = [Rate(name, median(rates), rates) for name, rates in found.items()]
    where = f"{subscribers} subscribers over 4 switches, copies delivered without loss"
    if subscribers == 7:
        yield compared(_TREE_7, found["tree"], found["reactive"], target=2.5, unit="copies/s",
                       note=f"{where}: tree ÷ reactive")  # fmt: skip
        yield compared(_DIRECT_7, found["tree"], found["direct"], target=1, unit="copies/s",
                       note=f"{where}: tree ÷ direct")  # fmt: skip
        for mode, name in _OS_KEN.items():
            yield compared(name, found[mode], found[_FRAMEWORK[mode]], target=3, unit="copies/s",
                           note=f"{where}: our {mode} mode ÷ the same on os-ken's framework")  # fmt: skip
    else:
        plain = median(found["tree"]) / max(1.0, found[_FRAMEWORK["reactive"]][0])
        yield compared(_TREE_32, found["tree"], found["reactive"], target=5, unit="copies/s",
                       note=f"{where}: tree ÷ reactive (÷ reactive on os-ken's framework: {plain:.1f})")  # fmt: skip
        yield compared(_DIRECT_32, found["tree"], found["direct"], target=1, unit="copies/s",
                       note=f"{where}: tree ÷ direct")  # fmt: skip


def _cost_per_copy(bench: Bench, network: BenchNetwork, story: Story) -> Figure:
    """From one subscriber to many: what does one more cost?"""
    effort = Effort(0.2, 1, 2.0) if bench.quick else Effort(0.4, 1, 1.12, 10.0)
    counts = [count for count in _SWEEP if count <= len(network.subscribers)]
    mqtt: list[MqttNetwork] = []

    def mosquitto(count: int) -> Traffic:
        if not mqtt:
            mqtt.append(MqttNetwork(network))
        return mqtt[0].traffic(count)

    sides: dict[str, Callable[[int], Traffic]] = {
        **{mode: partial(network.ours, mode) for mode in MODES},
        "peer-to-peer": network.peers,
        "mosquitto": mosquitto,
    }
    for name, side in sides.items():
        points: list[tuple[int, float]] = []
        guess = 6_000.0
        for count in counts:
            rate = effort.highest(network, side(count), guess)
            points.append((count, rate))
            guess = max(50.0, rate / 1.4)
        told = ", ".join(f"{count}: {rate:,.0f}" for count, rate in points)
        bench.say(f"sweep, {name}, messages/s by subscribers: {told}")
        story.sweep[name] = points
    for one in mqtt:
        one.close()
    lines = {name: fitted(points) for name, points in story.sweep.items()}
    costs = {name: line.b_us if line else 0.0 for name, line in lines.items()}
    return judged(_SWEPT, costs["tree"], costs["peer-to-peer"], target=0.5, unit="µs", bound=AT_MOST,
                  # Less than nothing is what a machine that was busy otherwise says.
                  provided=costs["tree"] > 0,
                  note="one more subscriber, b of 1/rate = a + b·k over 1 to 64: tree ÷ peer-to-peer")  # fmt: skip


def _sides(network: BenchNetwork, mqtt: list[MqttNetwork]) -> dict[str, Callable[[], Traffic]]:
    def mosquitto() -> Traffic:
        mqtt.append(MqttNetwork(network))
        return mqtt[-1].traffic(7)

    return {
        **{mode: partial(network.ours, mode, 7) for mode in MODES},
        "peer-to-peer": lambda: network.peers(7),
        "mosquitto": mosquitto,
    }


def _latency(bench: Bench, network: BenchNetwork, story: Story) -> Figure:
    """At a rate all can carry; for Mosquitto also how long joining takes."""
    seconds = 0.5 if bench.quick else 3.0
    mqtt: list[MqttNetwork] = []
    story.latency.clear()
    for name, side in _sides(network, mqtt).items():
        traffic = side()
        network.warm(traffic)
        network.settle()
        outcome = network.loader.run(traffic, _LATENCY_RATE, seconds, nap_us=0)
        found = (outcome.p50_ns / 1e3, outcome.p90_ns / 1e3, outcome.p99_ns / 1e3, outcome.max_ns / 1e3)
        story.latency.append(Latency(name, *found, lost=outcome.lost))
        bench.say(f"{name} at {_LATENCY_RATE:g} messages/s: p50 {found[0]:.0f} µs, p99 {found[2]:.0f} µs")
    trials = 5 if bench.quick else 50
    load = LoggedLoad(network.loader, mqtt[0].traffic(1), sdn_changes.RATE, 120, network.folder / "mqtt.log")
    try:
        times = mqtt[0].joined_ns(network.subscribers[4], trials)
        load.end()
    finally:
        load.kill()
        mqtt[0].close()
    answers, joins = [b - a for a, b, _ in times], [c - b for _, b, c in times]
    story.changes["mosquitto"] = Changes.of(trials, answers, joins)
    p50 = {one.name: one.p50_us for one in story.latency}
    return judged(_LATENCY, p50["tree"], p50["mosquitto"], target=1, unit="µs", bound=AT_MOST,
                  note=f"p50 at {_LATENCY_RATE:g} messages/s to 7 subscribers: tree ÷ Mosquitto")  # fmt: skip


def _uplink(bench: Bench, network: BenchNetwork, story: Story) -> Figure:
    """Two sensors behind one uplink; packets as the interfaces count them."""
    mqtt: list[MqttNetwork] = []
    story.uplink.clear()
    far = sum(network.host(name).port.switch != 1 for name in network.subscribers)
    sent = _SENSORS * _READINGS
    formula = {
        "reactive": (sent, sent * far),
        "direct": (sent, 0),
        "group": (sent, sent * far),
        "tree": (sent, sent),
        "peer-to-peer": (sent * 7, sent * far),
        "mosquitto": (sent, sent),
    }
    second = network.lab.udp_socket(PUBLISHER, PORT + 1)
    for name, side in _sides(network, mqtt).items():
        traffic = side()
        network.warm(traffic)
        network.settle()
        # Two sensors on one connection are two messages on it: MQTT has one client at the uplink here.
        doors = [second if not traffic.prefix else one.door for one in traffic.targets]
        more = [Target(door, one.ipv4, one.port, 1) for door, one in zip(doors, traffic.targets, strict=True)]
        both = Traffic([*traffic.targets, *more], traffic.receivers, traffic.prefix)
        before = network.packets()
        outcome = network.loader.run(both, 100, _READINGS / 100)
        after = network.packets()
        counted = (after["uplink"] - before["uplink"], after["link"] - before["link"])
        story.uplink.append(Uplink(name, *counted, *formula[name], lost=outcome.lost))
        bench.say(f"{name}: {counted[0]} packets on the uplink, {counted[1]} on the first link")
    second.close()
    for one in mqtt:
        one.close()
    found = {one.name: one for one in story.uplink}
    clean = all(one.uplink == one.uplink_formula for one in story.uplink if one.name != "mosquitto")
    return judged(_UPLINK, found["tree"].uplink, found["peer-to-peer"].uplink, target=0.143, unit="packets",
                  bound=AT_MOST, provided=clean,
                  note="packets on the publisher's uplink, S·R against S·R·M: tree ÷ peer-to-peer")  # fmt: skip


def _controller(bench: Bench, network: BenchNetwork, story: Story, mode: str) -> Figure:
    """What the controller does for messages: as long at rest as under load, and the same in reactive mode."""
    seconds = 1.0 if bench.quick else 5.0
    spent: dict[str, Busy] = {}
    for name in (mode, "reactive", *(["direct"] if mode == "tree" else [])):
        traffic = network.ours(name, 7)
        network.warm(traffic)
        network.settle()
        # The kernel counts in hundredths of a second, and its own work at the wrong moment falls to anybody.
        tries = sorted(
            (_busy(network, traffic, name, seconds) for _ in range(1 if bench.quick else 3)),
            key=lambda one: one.extra_ticks,
        )
        one = spent[name] = tries[len(tries) // 2]
        bench.say(
            f"controller, {name}: {one.load_ticks} ticks for {one.copies} copies, {one.rest_ticks} at rest; "
            f"{one.load_packet_ins} packet-ins"
        )
    story.busy |= spent
    one, other = spent[mode], spent["reactive"]
    # Beacons come every second, so one more or less falls into the time; nothing else may ask.
    quiet = one.extra_ticks <= 1 and one.load_packet_ins <= one.rest_packet_ins + 2 * 2 * len(network.topology.wires)
    return judged(
        _BUSY[mode], float(max(0, one.extra_ticks)), float(max(1, other.extra_ticks)), target=0.05, unit="ticks",
        bound=AT_MOST, provided=quiet,
        note=f"controller CPU for {one.copies:,} copies beyond that at rest, in clock ticks: {mode} ÷ reactive",
    )  # fmt: skip


def _busy(network: BenchNetwork, traffic: Traffic, name: str, seconds: float) -> Busy:
    rest_ticks, rest_ins, _ = _watched(network, partial(time.sleep, seconds))
    load = partial(network.loader.run, traffic, _BUSY_RATE, seconds)
    ticks, packet_ins, outcome = _watched(network, load)
    return Busy(name, outcome.received, seconds, rest_ticks, ticks, rest_ins, packet_ins)


def _watched(network: BenchNetwork, work: Callable[[], T]) -> tuple[int, int, T]:
    before_ins = int(network.ask("GET", "/statistics")["packet_ins"])
    before = network.controller_ticks()
    done = work()
    ticks = network.controller_ticks() - before
    return ticks, int(network.ask("GET", "/statistics")["packet_ins"]) - before_ins, done


def _changes(bench: Bench, network: BenchNetwork, story: Story) -> Iterator[Figure]:
    found = {}
    for mode, count in _TRIALS.items():
        one = found[mode] = sdn_changes.trials(bench, network, mode, 3 if bench.quick else count)
        story.changes[mode] = Changes.of(one.trials, one.answer_ns, one.join_ns, one.unsubscribed, one.subscribed)
    # Too few because time was over is not enough.
    trials = max(sum(one.trials for one in found.values()), 0 if bench.quick else sum(_TRIALS.values()))
    under = ", ".join(f"{one.trials} {mode} at {one.rate:g} messages/s" for mode, one in found.items())
    yield judged(_UNSUBSCRIBED, sum(one.unsubscribed for one in found.values()), trials, target=1, unit="trials",
                 note=f"no copy of what was sent after an unsubscribe was answered; {under}")  # fmt: skip
    yield judged(_SUBSCRIBED, sum(one.subscribed for one in found.values()), trials, target=1, unit="trials",
                 note=f"every message sent after a subscribe was answered came; {under}")  # fmt: skip


def _killed(bench: Bench, network: BenchNetwork, story: Story, mode: str) -> Figure:
    traffic = network.ours(mode, 7)
    network.warm(traffic)
    survived = sdn_changes.killed(network, traffic)
    story.killed[mode] = survived
    bench.say(
        f"{mode}: {survived.received} of {survived.expected} copies came, {survived.without_s:.1f} s without controller"
    )
    return judged(_KILLED[mode], survived.received, survived.expected, target=1, unit="copies",
                  note=f"controller killed and restarted at {survived.rate:g} messages/s, {mode}: "
                       "came ÷ sent")  # fmt: skip
