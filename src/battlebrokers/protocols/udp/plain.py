"""Plain datagrams: a publish is one datagram to the broker or to the address the topic names; nobody answers.

Made by the registry. A client binds the address its filter names and takes every datagram that comes there. What the
network reports as undeliverable is told as failed.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import re
import socket
from collections.abc import Sequence
from functools import partial

import numpy as np

from battlebrokers.errors import LinkError
from battlebrokers.protocols.base import (
    Arrivals,
    Capabilities,
    Completion,
    Endpoint,
    Failure,
    Granted,
    Held,
    Link,
    LinkOptions,
    Listener,
    Opened,
    Outgoing,
    Subscription,
)
from battlebrokers.protocols.datagrams import LARGEST_BYTES, Datagrams, resolve
from battlebrokers.protocols.tls import why_unreachable

ROOM = 1024
"""Datagrams taken at once: more would only overflow the receiver's buffer."""
FEW = 8
_ADDRESS = re.compile(r"(?:(\d{1,3}(?:\.\d{1,3}){3})|)?:(\d{1,5})")
WILDCARDS_NOT_SUPPORTED = 0xA2
SHARES_NOT_SUPPORTED = 0x9E


def address_in(text: str) -> tuple[str, int] | None:
    """The address in `a.b.c.d:port` or `:port` (every address of ours); None when the text is no address."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found[2]) > 65_535:
        return None
    try:
        return str(ipaddress.IPv4Address(found[1])) if found[1] else "", int(found[2])
    except ValueError:
        return None


class UdpLink(Link):
    """One device or client that sends and takes datagrams."""

    __slots__ = (
        "_bound", "_broker", "_last_token", "_namespace", "_paused", "_peers", "_topics", "endpoint", "listener",
        "options",
    )  # fmt: skip

    capabilities = Capabilities(
        protocol="udp",
        qos=frozenset({0}),
        wildcards=False,
        acknowledges=frozenset(),
        largest_payload_bytes=LARGEST_BYTES,
        transports=frozenset({"udp"}),
        completion={0: "handed to the socket; nobody answers"},
    )

    def __init__(self, endpoint: Endpoint, options: LinkOptions, listener: Listener) -> None:
        super().__init__()
        self.endpoint = endpoint
        self.options = options
        self.listener = listener
        self._broker: Datagrams | None = None
        self._peers: dict[bytes, Datagrams] = {}
        """Topic → the socket connected to the address it names."""
        self._bound: dict[str, tuple[Datagrams | None, bytes]] = {}
        """Filter → the socket bound to its address, and the topic of what arrives there."""
        self._namespace = ""
        """The network the sockets live in; empty: ours."""
        self._topics: dict[Datagrams, bytes] = {}
        """Socket → the topic of what arrives there."""
        self._last_token: dict[Datagrams, int] = {}
        self._paused = False

    async def open(self) -> Opened:
        """Open a socket; nothing is said yet, so an absent broker is noticed with the first datagram."""
        if self._broker is not None:
            raise LinkError(f"{self.options.client_id} is already open")
        place = f"udp://{self.endpoint.host}:{self.endpoint.port}"
        try:
            family, peer = await resolve(self.endpoint.host, self.endpoint.port)
            self._broker = self._made(family, peer=peer)
        except OSError as error:
            raise self._why_not(error, place) from error
        return Opened(session_present=False, reason=0, received_ns=self.listener.now_ns())

    def _why_not(self, error: OSError, place: str) -> LinkError:
        return why_unreachable(error, place, self.options.source_address)

    def _made(
        self, family: int = socket.AF_INET, *, peer: tuple[str, int] | None = None, own: tuple[str, int] | None = None
    ) -> Datagrams:
        source = self.options.source_address
        if own is None and source:
            own = (source, 0)
        made = Datagrams(self, family, peer=peer, own=own, namespace=self._namespace)
        if self._paused:
            made.pause()
        return made

    def _opened(self) -> Datagrams:
        if self._broker is None:
            raise LinkError("the link is not open")
        return self._broker

    # ── subscriptions ────────────────────────────────────────────────────────────────────────────────────────────

    async def subscribe(self, subscriptions: Sequence[Subscription]) -> list[Granted]:
        """Bind the address each filter names; shared groups and other filters are refused."""
        self._opened()
        return [
            Granted(wanted, -1, SHARES_NOT_SUPPORTED) if wanted.share else self._bind(wanted, wanted.filter)
            for wanted in subscriptions
        ]

    def _bind(self, wanted: Subscription, place: str, topic: bytes = b"") -> Granted:
        address = address_in(place)
        if address is None:
            return Granted(wanted, -1, WILDCARDS_NOT_SUPPORTED)
        if wanted.filter not in self._bound:
            try:
                made = self._made(own=address)
            except OSError as error:
                return Granted(wanted, -1, error.errno or -1)
            host, port = made.address
            topic = topic or (wanted.filter if address[1] else f"{host}:{port}").encode()
            self._bound[wanted.filter] = (made, topic)
            self._topics[made] = topic
        return Granted(wanted, 0, 0)

    async def unsubscribe(self, subscriptions: Sequence[Subscription]) -> None:
        """Give the addresses back."""
        self._opened()
        for wanted in subscriptions:
            self._unbind(wanted.filter)

    def _unbind(self, topic: str) -> None:
        bound, _ = self._bound.pop(topic, (None, b""))
        if bound is not None:
            self._topics.pop(bound, None)
            bound.close()

    @property
    def addresses(self) -> list[str]:
        """Where this link takes datagrams, as topics."""
        return [topic.decode() for _, topic in self._bound.values()]

    # ── publishing ───────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def held(self) -> Held:
        """Held while the kernel's send buffer is full."""
        if self._broker is None:
            return Held.OFFLINE
        return Held.SOCKET if self._waiting() else Held.NO

    def room(self, qos: int) -> int:  # noqa: ARG002
        """As many as one batch may have."""
        return 0 if self._broker is None or self._waiting() else ROOM

    def _waiting(self) -> bool:
        return any(peer.waiting for peer in (self._broker, *self._peers.values()) if peer is not None)

    def publish(self, outgoing: Outgoing) -> int:
        """Send each message as one datagram; what is too large for one is refused."""
        peer = self._peer_of(outgoing.topic)
        payloads = outgoing.payloads
        if not len(payloads):
            return 0
        datagrams = (
            [row.tobytes() for row in payloads]
            if isinstance(payloads, np.ndarray)
            else [bytes(each) for each in payloads]
        )
        if self.structured:
            datagrams = self._wrapped(outgoing.topic, datagrams)
        written = 0
        token = outgoing.first_token
        for token, data in enumerate(datagrams, outgoing.first_token):
            try:
                if len(data) > LARGEST_BYTES:
                    raise OSError(errno.EMSGSIZE, "larger than a datagram")  # noqa: TRY301 - as the kernel would
                peer.send(data)
                written += len(data)
            except OSError as error:
                reason = error.errno or errno.EIO
                self._later(Completion.REFUSED if reason == errno.EMSGSIZE else Completion.FAILED, token, reason)
        self._last_token[peer] = token
        return written

    def _later(self, completion: Completion, token: int, reason: int) -> None:
        if completion is Completion.FAILED:
            reason = Failure.CLOSED
        tell = self.listener.acknowledged
        now = self.listener.now_ns()
        asyncio.get_running_loop().call_soon(partial(tell, self, (token,), now, completion, reason))

    def _peer_of(self, topic: bytes) -> Datagrams:
        broker = self._opened()
        peer = self._peers.get(topic)
        if peer is None:
            name = self._goes_to(topic.decode("utf-8", "replace"))
            address = address_in(name)
            if address is None or not address[0] or not address[1]:
                return broker
            try:
                peer = self._peers[topic] = self._made(peer=address)
            except OSError as error:
                raise why_unreachable(error, f"udp://{name}") from error
        return peer

    def _goes_to(self, topic: str) -> str:
        """The address of a topic's datagrams; what is none means the broker."""
        return topic

    def _wrapped(self, topic: bytes, payloads: list[bytes]) -> list[bytes]:  # noqa: ARG002 - for dialects
        return payloads

    @property
    def unacknowledged(self) -> int:
        """Nobody acknowledges datagrams."""
        return 0

    # ── what the sockets tell ────────────────────────────────────────────────────────────────────────────────────

    def datagrams_came(self, source: Datagrams, datagrams: list[bytes]) -> None:
        """Datagrams at a bound address are arrivals; whatever else comes is not."""
        topic = self._topics.get(source)
        if topic is not None:
            self._tell(self.listener.now_ns(), topic, datagrams)

    def _tell(self, at_ns: int, topic: bytes, datagrams: list[bytes]) -> None:
        if len(datagrams) < FEW:
            for data in datagrams:
                self.listener.arrived(self, at_ns, 0, topic, data, len(data))
            return
        count = len(datagrams)
        sizes = np.fromiter(map(len, datagrams), np.int64, count)
        zeros = np.zeros(count, np.int64)
        starts = np.cumsum(sizes) - sizes + len(topic)
        data = topic + b"".join(datagrams)
        flags = np.zeros(count, np.uint8)
        self.listener.arrived_many(self, at_ns, Arrivals(data, flags, zeros, zeros + len(topic), starts, sizes, sizes))

    def unreachable(self, source: Datagrams, error: OSError) -> None:  # noqa: ARG002
        """ICMP says that nobody is there; it does not say for which datagram, so the latest one is told as failed."""
        token = self._last_token.pop(source, None)
        if token is not None:
            now = self.listener.now_ns()
            self.listener.acknowledged(self, (token,), now, Completion.FAILED, Failure.CLOSED)

    def drained(self, source: Datagrams) -> None:  # noqa: ARG002
        """The socket takes datagrams again."""
        if self._broker is not None and not self._waiting():
            self.listener.writable(self)

    def _sockets(self) -> list[Datagrams]:
        every = [self._broker, *self._peers.values(), *(bound for bound, _ in self._bound.values())]
        return [each for each in every if each is not None]

    def pause_reading(self) -> None:
        """Read no more; the kernel drops what its buffer cannot hold."""
        self._paused = True
        for each in self._sockets():
            each.pause()

    def resume_reading(self) -> None:
        """Read again."""
        self._paused = False
        for each in self._sockets():
            each.resume()

    async def close(self) -> None:
        """Close the sockets; there is nobody to say goodbye to."""
        self.abort()

    def abort(self) -> None:
        """Close the sockets."""
        sockets = self._sockets()
        self._broker = None
        self._peers.clear()
        self._bound.clear()
        self._topics.clear()
        self._last_token.clear()
        for each in sockets:
            each.close()
