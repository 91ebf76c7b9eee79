"""A host of a real network that publishes all the time, and what became of every message of it."""

from __future__ import annotations

import selectors
import struct
import threading
import time

from benchmarks.sdn_changes import Trial, judge

from support.stage import Stage
from support.waiting import until

_INTERVAL_S = 0.003
_MESSAGE = struct.Struct("!QQQ")
"""Which load, which message of it, when it was sent."""


class Load:
    """A host that publishes all the time, on one resource after the other, and what everybody else got and when."""

    def __init__(self, network: Stage, *resources: str, publisher: str = "h1") -> None:
        self._network, self._resources, self._publisher = network, resources, publisher
        self._name = time.monotonic_ns()
        self._sending, self._receiving = threading.Event(), threading.Event()
        self.sent_ns: list[int] = []
        self.came: dict[str, dict[int, int]] = {name: {} for name in network.hosts}
        self.twice = 0
        self._threads = [threading.Thread(target=work) for work in (self._receive, self._send)]

    def __enter__(self) -> Load:
        # Else the first message would ask whose address that is.
        for resource in self._resources:
            self._network.publish(self._publisher, resource, b"hello")
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
        while not self._sending.wait(_INTERVAL_S):
            now = time.monotonic_ns()
            resource = self._resources[len(self.sent_ns) % len(self._resources)]
            self.sent_ns.append(now)
            self._network.publish(self._publisher, resource, _MESSAGE.pack(self._name, len(self.sent_ns) - 1, now))

    def _receive(self) -> None:
        with selectors.DefaultSelector() as doors:
            for name, door in self._network.sockets.items():
                doors.register(door, selectors.EVENT_READ, name)
            while not self._receiving.is_set():
                for key, _ in doors.select(0.1):
                    payload = self._network.sockets[key.data].recv(2048)
                    if len(payload) == _MESSAGE.size and _MESSAGE.unpack(payload)[0] == self._name:
                        number = _MESSAGE.unpack(payload)[1]
                        self.twice += number in self.came[key.data]
                        self.came[key.data][number] = time.monotonic_ns()


def changes_in_effect(network: Stage, mode: str, cycles: int, *, changing: str, beside: str, far: str) -> None:
    """One host joins and leaves again and again: answered when in effect, and nobody else notices.

    `beside` is not nearer to the publisher: when it has its copy, that of `changing` was made too, or was not.
    """
    resource = network.create(mode, subscribers=(beside, far))
    trials = []
    with Load(network, resource) as load:
        load.further((beside,))
        for _ in range(cycles):
            asked = time.monotonic_ns()
            network.subscribe(resource, changing)
            answered = time.monotonic_ns()
            load.copied(beside, answered)
            left = time.monotonic_ns()
            network.unsubscribe(resource, changing)
            gone = time.monotonic_ns()
            load.copied(beside, gone)
            trials.append(Trial(asked, answered, left, gone))
        sent = load.ended((beside, far))
    found = judge(trials, load.sent_ns, load.came[changing], load.came[beside])
    assert (found.trials, found.subscribed, found.unsubscribed) == (cycles, cycles, cycles)
    # Whoever stayed got everything, whatever its neighbours did.
    assert (sent - len(load.came[beside]), sent - len(load.came[far]), load.twice) == (0, 0, 0)
