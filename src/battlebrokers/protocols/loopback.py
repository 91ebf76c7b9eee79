"""A broker made of nothing: messages go from link to link through memory, in the next turn of the loop.

The floor of our own overhead, and a stand-in where no socket is wanted. Links with one host and port share a hub.
It keeps no sessions, retained messages or wills, and says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import numpy as np

from battlebrokers.errors import LinkError
from battlebrokers.protocols.base import (
    Arrivals,
    Capabilities,
    Completion,
    Endpoint,
    Granted,
    Held,
    Link,
    LinkOptions,
    Listener,
    Opened,
    Outgoing,
    Subscription,
)

ROOM = 65_535
SESSION_TAKEN_OVER = 0x8E

_Place = tuple[str, int]


def filter_matches(filter_levels: Sequence[bytes], topic_levels: Sequence[bytes]) -> bool:
    """Whether a topic falls under a filter with `+` and `#`."""
    for at, level in enumerate(filter_levels):
        if level == b"#":
            return not (at == 0 and topic_levels[0].startswith(b"$"))
        if at >= len(topic_levels):
            return False
        if level == b"+":
            if at == 0 and topic_levels[0].startswith(b"$"):
                return False
        elif level != topic_levels[at]:
            return False
    return len(filter_levels) == len(topic_levels)


class Hub:
    """Who is connected at one place, and who listens to what."""

    def __init__(self) -> None:
        self.links: dict[str, LoopbackLink] = {}
        self._routes: dict[bytes, list[tuple[LoopbackLink, int]]] = {}

    def changed(self) -> None:
        """Somebody came, went or changed subscriptions."""
        self._routes.clear()

    def listeners_of(self, topic: bytes) -> list[tuple[LoopbackLink, int]]:
        """The links that want a topic, with the QoS they asked for."""
        found = self._routes.get(topic)
        if found is None:
            levels = topic.split(b"/")
            found = self._routes[topic] = []
            for link in self.links.values():
                granted = [qos for parts, qos in link.filters.values() if filter_matches(parts, levels)]
                if granted:
                    found.append((link, max(granted)))
        return found


_hubs: dict[_Place, Hub] = {}


class LoopbackLink(Link):
    """One client of a hub."""

    __slots__ = ("_hub", "_kept", "_open_tokens", "_place", "_reading", "filters", "listener", "options")

    capabilities = Capabilities(
        protocol="loopback",
        qos=frozenset({0, 1, 2}),
        transports=frozenset({"memory"}),
        completion=dict.fromkeys((0, 1, 2), "handed to every listener in memory"),
    )

    def __init__(self, endpoint: Endpoint, options: LinkOptions, listener: Listener) -> None:
        super().__init__()
        self.options = options
        self.listener = listener
        self.filters: dict[str, tuple[list[bytes], int]] = {}
        self._place: _Place = (endpoint.host, endpoint.port)
        self._hub: Hub | None = None
        self._open_tokens = 0
        self._reading = True
        self._kept: list[Arrivals] = []

    async def open(self) -> Opened:
        """Join the hub; an older link with the same client id has to go."""
        if self._hub is not None:
            raise LinkError(f"{self.options.client_id} is already connected")
        hub = _hubs.setdefault(self._place, Hub())
        older = hub.links.get(self.options.client_id)
        if older is not None:
            older.abort()
            older.listener.closed(older, "session taken over", SESSION_TAKEN_OVER)
        hub.links[self.options.client_id] = self
        # The older link may have been the last one, and taken the hub with it.
        _hubs[self._place] = self._hub = hub
        return Opened(session_present=False, reason=0, received_ns=self.listener.now_ns())

    async def subscribe(self, subscriptions: Sequence[Subscription]) -> list[Granted]:
        """Ask for topics; shared groups are refused."""
        hub = self._joined()
        answers = []
        for wanted in subscriptions:
            if wanted.share:
                answers.append(Granted(wanted, -1, 0x9E))
                continue
            self.filters[wanted.filter] = (wanted.filter.encode().split(b"/"), wanted.qos)
            answers.append(Granted(wanted, wanted.qos, wanted.qos))
        hub.changed()
        return answers

    async def unsubscribe(self, subscriptions: Sequence[Subscription]) -> None:
        """Stop them again."""
        for wanted in subscriptions:
            self.filters.pop(wanted.filter, None)
        self._joined().changed()

    @property
    def held(self) -> Held:
        """A hub takes everything while it is there."""
        return Held.OFFLINE if self._hub is None else Held.NO

    def room(self, qos: int) -> int:  # noqa: ARG002
        """As much as is asked for."""
        return 0 if self._hub is None else ROOM

    def publish(self, outgoing: Outgoing) -> int:
        """Hand a batch to everybody who listens, in the next turn of the loop."""
        hub = self._joined()
        payloads = outgoing.payloads
        count = len(payloads)
        if not count:
            return 0
        if isinstance(payloads, np.ndarray):
            data = outgoing.topic + payloads.tobytes()
            sizes = np.full(count, payloads.shape[1])
        else:
            data = outgoing.topic + b"".join(payloads)
            sizes = np.fromiter(map(len, payloads), np.int64, count)
        call_soon = asyncio.get_running_loop().call_soon
        topic_bytes = len(outgoing.topic)
        starts = np.cumsum(sizes) - sizes + topic_bytes
        zeros = np.zeros(count, np.int64)
        for link, granted in hub.listeners_of(outgoing.topic):
            flags = np.full(count, min(granted, outgoing.qos) << 1, np.uint8)
            arrivals = Arrivals(data, flags, zeros, zeros + topic_bytes, starts, sizes, sizes + topic_bytes)
            call_soon(link.deliver, arrivals)
        if outgoing.qos:
            self._open_tokens += count
            call_soon(partial(self._acknowledge, range(outgoing.first_token, outgoing.first_token + count)))
        return len(data) + topic_bytes * (count - 1)

    def deliver(self, arrivals: Arrivals) -> None:
        """Messages for this link came in."""
        if self._hub is None:
            return
        if not self._reading:
            self._kept.append(arrivals)
            return
        self.listener.arrived_many(self, self.listener.now_ns(), arrivals)

    def _acknowledge(self, tokens: range) -> None:
        self._open_tokens -= len(tokens)
        self.listener.acknowledged(self, tokens, self.listener.now_ns(), Completion.ACKED, 0)

    @property
    def unacknowledged(self) -> int:
        """Messages that are handed over in the next turn of the loop."""
        return self._open_tokens

    def pause_reading(self) -> None:
        """Stop taking messages; they wait."""
        self._reading = False

    def resume_reading(self) -> None:
        """Take messages again, the waiting ones first."""
        self._reading = True
        kept, self._kept = self._kept, []
        for arrivals in kept:
            self.deliver(arrivals)

    async def close(self) -> None:
        """Leave the hub."""
        self.abort()

    def abort(self) -> None:
        """Leave the hub; subscriptions are forgotten, as there are no sessions."""
        hub, self._hub = self._hub, None
        self.filters.clear()
        self._kept.clear()
        if hub is None:
            return
        if hub.links.get(self.options.client_id) is self:
            del hub.links[self.options.client_id]
        hub.changed()
        if not hub.links:
            _hubs.pop(self._place, None)

    def _joined(self) -> Hub:
        if self._hub is None:
            raise LinkError("the link is not open")
        return self._hub


LINK = LoopbackLink
