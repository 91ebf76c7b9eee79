"""The broker inside the network while messages flow: subscriptions change, controllers die, cables are cut."""

from __future__ import annotations

import selectors
import struct
import threading
import time
from collections.abc import Iterator

import pytest
from benchmarks.sdn_changes import Trial, judge

from battlebrokers.sdn.lab.open_vswitch import what_is_missing
from support.stage import Stage, stage
from support.waiting import until

_MISSING = what_is_missing()
pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(_MISSING is not None, reason=f"{_MISSING.message}: {_MISSING.hint}" if _MISSING else ""),
]
MODES = ("reactive", "group", "tree")
CYCLES = 60
INTERVAL_S = 0.003
MESSAGE = struct.Struct("!QQQ")
"""Which load, which message of it, when it was sent."""


class Load:
    """A host that publishes all the time, and what everybody else got of it and when."""

    def __init__(self, network: Stage, resource: str, publisher: str = "h1") -> None:
        self._network, self._resource, self._publisher = network, resource, publisher
        self._name = time.monotonic_ns()
        self._sending, self._receiving = threading.Event(), threading.Event()
        self.sent_ns: list[int] = []
        self.came: dict[str, dict[int, int]] = {name: {} for name in network.hosts}
        self.twice = 0
        self._threads = [threading.Thread(target=work) for work in (self._receive, self._send)]

    def __enter__(self) -> Load:
        # Else the first message would ask whose address that is.
        self._network.publish(self._publisher, self._resource, b"hello")
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._sending.set()
        self._threads[1].join()
        self._receiving.set()
        self._threads[0].join()

    def copied(self, host: str, sent_after_ns: int) -> None:
        """Wait until a message sent later than that has reached a host."""
        until(lambda: self._has(host, sent_after_ns), what=f"a later message at {host}")

    def further(self, hosts: tuple[str, ...], messages: int = 30) -> None:
        """Wait until so many more have been sent, and the last of them has reached these hosts."""
        goal = len(self.sent_ns) + messages
        until(lambda: len(self.sent_ns) > goal, what="more messages")
        for host in hosts:
            self.copied(host, self.sent_ns[goal])

    def ended(self, hosts: tuple[str, ...]) -> int:
        """No more messages; the number of those sent, once the last has reached these hosts."""
        self._sending.set()
        self._threads[1].join()
        last = len(self.sent_ns) - 1
        until(lambda: all(last in self.came[host] for host in hosts), what="the last message everywhere")
        return last + 1

    def missing(self, host: str, first: int = 0) -> list[int]:
        """Messages that never came to a host."""
        return [number for number in range(first, len(self.sent_ns)) if number not in self.came[host]]

    def _has(self, host: str, sent_after_ns: int) -> bool:
        newest = max(self.came[host].copy(), default=-1)
        return newest >= 0 and self.sent_ns[newest] > sent_after_ns

    def _send(self) -> None:
        while not self._sending.wait(INTERVAL_S):
            now = time.monotonic_ns()
            self.sent_ns.append(now)
            self._network.publish(self._publisher, self._resource, MESSAGE.pack(self._name, len(self.sent_ns) - 1, now))

    def _receive(self) -> None:
        with selectors.DefaultSelector() as doors:
            for name, door in self._network.sockets.items():
                doors.register(door, selectors.EVENT_READ, name)
            while not self._receiving.is_set():
                for key, _ in doors.select(0.1):
                    payload = self._network.sockets[key.data].recv(2048)
                    if len(payload) == MESSAGE.size and MESSAGE.unpack(payload)[0] == self._name:
                        number = MESSAGE.unpack(payload)[1]
                        self.twice += number in self.came[key.data]
                        self.came[key.data][number] = time.monotonic_ns()


@pytest.fixture
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    # Of one test, and the first: only one network of this name can be up.
    with stage(tmp_path_factory.mktemp("ring"), "ring") as made:
        yield made


def test_a_cut_cable_in_a_ring_costs_a_gap_and_no_more(ring: Stage) -> None:
    hosts = ("h2", "h3", "h4", "h5")
    for mode in MODES:
        resource = ring.create(mode, subscribers=hosts)
        with Load(ring, resource) as load:
            load.further(hosts, 100)
            before = len(load.sent_ns)
            ring.lab.cut(1)
            until(lambda: len(ring.ask("GET", "/api/v1/topology")["links"]) == len(ring.topology.wires) - 1, what="it")
            load.further(hosts, 200)
            sent = load.ended(hosts)
        for host in hosts:
            lost = load.missing(host)
            # Nothing before the cut but what was on its way, one gap, and everything after it.
            assert all(number > before - 30 for number in lost), (mode, host, lost, before)
            assert not lost or lost[-1] - lost[0] < (sent - before) / 2, (mode, host, lost, before, sent)
        assert load.twice == 0, mode
        ring.lab.cut(1, restore=True)
        until(lambda: _is_whole(ring), what="the cable back")


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("paper"), "paper") as made:
        yield made
        assert made.errors() == 0


@pytest.mark.parametrize("mode", MODES)
def test_subscribe_and_unsubscribe_are_in_effect_when_they_are_answered(paper: Stage, mode: str) -> None:
    # h7 and h8 are at the same switch: when h8 has its copy, h7's was made too, or was not.
    resource = paper.create(mode, subscribers=("h8", "h3"))
    trials = []
    with Load(paper, resource) as load:
        load.further(("h8",))
        for _ in range(CYCLES):
            asked = time.monotonic_ns()
            paper.subscribe(resource, "h7")
            answered = time.monotonic_ns()
            load.copied("h8", answered)
            left = time.monotonic_ns()
            paper.unsubscribe(resource, "h7")
            gone = time.monotonic_ns()
            load.copied("h8", gone)
            trials.append(Trial(asked, answered, left, gone))
        sent = load.ended(("h8", "h3"))
    found = judge(trials, load.sent_ns, load.came["h7"], load.came["h8"])
    assert (found.trials, found.subscribed, found.unsubscribed) == (CYCLES, CYCLES, CYCLES)
    # Whoever stayed got everything, whatever its neighbours did.
    assert (sent - len(load.came["h8"]), sent - len(load.came["h3"]), load.twice) == (0, 0, 0)


@pytest.mark.parametrize("mode", MODES)
def test_a_host_that_joins_gets_everything_from_the_answer_on(paper: Stage, mode: str) -> None:
    resource = paper.create(mode, subscribers=("h2", "h8"))
    with Load(paper, resource) as load:
        load.further(("h8",))
        paper.subscribe(resource, "h5")
        answered = time.monotonic_ns()
        load.further(("h2", "h5", "h8"), 100)
        load.ended(("h2", "h5", "h8"))
    first = next(number for number, sent_ns in enumerate(load.sent_ns) if sent_ns > answered)
    assert load.missing("h5", first) == []
    assert load.missing("h2") == load.missing("h8") == []
    assert {name for name, came in load.came.items() if came} == {"h2", "h5", "h8"}


@pytest.mark.parametrize("mode", ["group", "tree"])
def test_deliveries_go_on_without_a_controller_and_when_it_is_back(paper: Stage, mode: str) -> None:
    hosts = ("h2", "h3", "h4", "h5", "h6", "h7", "h8")
    resource = paper.create(mode, subscribers=hosts)
    with Load(paper, resource) as load:
        load.further(hosts)
        paper.kill_controller()
        load.further(hosts, 100)
        paper.start_controller()
        until(lambda: _is_whole(paper), what="all switches at the new controller")
        load.further(hosts, 100)
        load.ended(hosts)
    assert {host: load.missing(host) for host in hosts} == {host: [] for host in hosts}
    assert load.twice == 0


def _is_whole(network: Stage) -> bool:
    told = network.ask("GET", "/api/v1/topology")
    switches = [one for one in told["switches"] if one["connected"]]
    return len(switches) == len(network.topology.switches) and len(told["links"]) == len(network.topology.wires)
