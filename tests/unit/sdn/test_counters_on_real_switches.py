"""What is counted is what happened, while subscriptions, modes and groups change under load, on real Open vSwitch.

`published` and `refused` are exact. `delivered` is as exact as Open vSwitch: what its cache has counted since its last
round (half a second) is attributed to the tables of after a change.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from battlebrokers.sdn.core.network import Port
from battlebrokers.sdn.core.resources import Directory, Mode
from battlebrokers.sdn.counters import Sums
from battlebrokers.sdn.observer import Observer
from support.datagrams import udp_frame
from support.dummy_switches import DummySwitches, LoopInBackground, RealNetwork, background, needs_open_vswitch, ovs
from support.waiting import until

__all__ = ["background", "ovs"]
pytestmark = [pytest.mark.slow, pytest.mark.broker, needs_open_vswitch]

PUBLISHER, NEAR, FAR, GUEST = HOSTS = [
    ("00:00:00:00:01:01", "10.0.0.1", Port(1, 1)),
    ("00:00:00:00:01:02", "10.0.0.2", Port(1, 2)),
    ("00:00:00:00:01:03", "10.0.0.3", Port(2, 1)),
    ("00:00:00:00:01:04", "10.0.0.4", Port(2, 2)),
]
PORTS = {1: frozenset({1, 2, 3}), 2: frozenset({1, 2, 3})}
WIRES = [(Port(1, 3), Port(2, 3))]


class Load:
    """Messages one after another, until told to stop."""

    def __init__(self, real: RealNetwork, address: str, pause_s: float = 0) -> None:
        self._real, self._address, self._pause_s = real, address, pause_s
        self._stop = threading.Event()
        self.refused = 0
        self.sent_at: list[float] = []
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.wait(self._pause_s):
            mac, ipv4, port = PUBLISHER
            self._real.inject(port, udp_frame(mac, ipv4, self._address, b"message %08d" % self.sent))
            self.sent_at.append(time.monotonic())
            if self.sent % 10 == 0:
                mac, ipv4, port = NEAR
                self._real.inject(port, udp_frame(mac, ipv4, self._address, b"by a subscriber"))
                self.refused += 1

    @property
    def sent(self) -> int:
        return len(self.sent_at)

    def in_the_cache_at(self, change_at: float) -> int:
        """Messages of the last second: more than the half a second after which Open vSwitch looks at its cache."""
        return sum(change_at - 1 <= at <= change_at + 0.1 for at in self.sent_at)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)


@pytest.fixture
def real(ovs: DummySwitches, background: LoopInBackground, tmp_path: Path) -> Iterator[RealNetwork]:
    network = RealNetwork(ovs, tmp_path, background, PORTS, WIRES)
    try:
        network.start()
        network.announce(HOSTS)
        yield network
    finally:
        network.stop()


def copies(real: RealNetwork) -> int:
    return sum(count for (_, frame), count in real.came().items() if b"message " in frame)


def looked(observer: Observer, background: LoopInBackground) -> Sums:
    background.run(observer._take_in())
    return observer.sums()


def settled(observer: Observer, background: LoopInBackground, address: str, sent: int) -> Sums:
    """Switches tell their counters late: half a second is usual."""
    until(lambda: looked(observer, background).published[address] >= sent, what="all messages to be counted")
    return looked(observer, background)


@pytest.mark.parametrize("mode", Mode)
def test_while_nothing_changes_all_is_counted_exactly(
    real: RealNetwork, background: LoopInBackground, mode: Mode
) -> None:
    observer = Observer(real.controller)
    directory, resource = Directory().created(mode)
    for mac, ipv4, _ in (NEAR, FAR):
        directory = directory.subscribed(resource.address, mac, ipv4)
    real.change(directory)
    with Load(real, resource.address) as load:
        time.sleep(1)
    until(lambda: copies(real) == 2 * load.sent, what="all copies")
    sums = settled(observer, background, resource.address, load.sent)
    assert sums.published[resource.address] == load.sent
    assert sums.refused[resource.address] == load.refused
    assert sums.delivered[resource.address] == 2 * load.sent


@pytest.mark.parametrize("mode", Mode)
def test_under_load_published_stays_exact_and_delivered_within_what_the_cache_holds(
    real: RealNetwork, background: LoopInBackground, mode: Mode
) -> None:
    observer = Observer(real.controller)
    directory, resource = Directory().created(mode)
    at = resource.address
    for mac, ipv4, _ in (NEAR, FAR):
        directory = directory.subscribed(at, mac, ipv4)
    real.change(directory)
    others = [one for one in Mode if one is not mode]
    may_differ = 0
    changes = [
        (directory.subscribed(at, *GUEST[:2]), 1), (directory, 1),
        (directory.changed(at, mode=others[0]), 2), (directory.changed(at, mode=others[1]), 2),
    ]  # fmt: skip
    with Load(real, at, pause_s=0.005) as load:
        for changed, copies_that_differ in changes:
            began = len(load.sent_at)
            # Time enough for the cache to have been looked at since the change before.
            until(lambda began=began: load.sent_at[-1] - load.sent_at[began - 1] > 1.2 if began else load.sent)  # type: ignore[misc]
            real.change(changed)
            may_differ += load.in_the_cache_at(time.monotonic()) * copies_that_differ
    last = b"message %08d" % (load.sent - 1)
    until(lambda: sum(last in frame for _, frame in real.came()) == 2, what="the last message")
    sums = settled(observer, background, at, load.sent)
    assert sums.published[at] == load.sent
    assert sums.refused[at] == load.refused
    assert abs(sums.delivered[at] - copies(real)) <= may_differ


def test_changes_one_upon_the_other_lose_no_count_of_messages(real: RealNetwork, background: LoopInBackground) -> None:
    observer = Observer(real.controller)
    directory, resource = Directory().created(Mode.TREE)
    at = resource.address
    directory = directory.subscribed(at, *NEAR[:2])
    real.change(directory)
    with Load(real, at) as load:
        for mode in (*Mode, *Mode):
            directory = directory.changed(at, mode=mode)
            real.change(directory)
            real.change(directory.subscribed(at, *FAR[:2]))
            until(lambda goal=load.sent + 20: load.sent >= goal)  # type: ignore[misc]
            real.change(directory)
    sums = settled(observer, background, at, load.sent)
    assert sums.published[at] == load.sent
    assert sums.refused[at] == load.refused


def test_a_resource_that_is_removed_has_counted_all_that_was_refused(
    real: RealNetwork, background: LoopInBackground
) -> None:
    observer = Observer(real.controller)
    directory, resource = Directory().created(Mode.TREE)
    at = resource.address
    real.change(directory.subscribed(at, *NEAR[:2]))
    with Load(real, at) as load:
        time.sleep(0.5)
    until(lambda: copies(real) == load.sent, what="all copies")
    real.cache_is_counted()
    real.change(Directory())
    until(lambda: observer.sums().published[at] == load.sent, what="the last words of its rules")
    assert observer.sums().refused[at] == load.refused
    assert observer.sums().delivered[at] == load.sent
