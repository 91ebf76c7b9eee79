"""Where a gateway stands in the network: one host it publishes from, one it subscribes with. Opened by the gateway.

Two, because a host does not publish on a resource it is subscribed to; one is enough for one direction.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol

from battlebrokers.errors import EnvironmentNotReady, UsageError
from battlebrokers.sdn.core.addresses import VIRTUAL_MAC
from battlebrokers.sdn.gateway.settings import NotForwarded
from battlebrokers.sdn.lab.laboratory import Laboratory
from battlebrokers.sdn.lab.topology import LabHost

_AT_ONCE: Final = 128
"""Datagrams taken in before others get their turn."""
_LARGEST: Final = 65_536
_ROOM_BYTES: Final = 4 << 20
_FORCE_ROOM: Final = 33
"""SO_RCVBUFFORCE: beyond the limit of the system, for those who have the right."""
_MEMORY: Final = 55
"""SO_MEMINFO: nine numbers of 32 bits, the last one is how many datagrams found no room."""
_NEXT_HOP: Final = "169.254.0.254"
_RESOURCES: Final = "1.1.0.0/16"

OnArrival = Callable[[bytes, str], None]


def lost_at(door: socket.socket) -> int:
    """How many datagrams a socket had no room for."""
    told = door.getsockopt(socket.SOL_SOCKET, _MEMORY, struct.calcsize("9I"))
    return int(struct.unpack("9I", told)[-1])


class Feet(Protocol):
    """How a gateway sends to and hears from the network."""

    publisher: LabHost | None
    subscriber: LabHost | None

    async def open(self, on_arrival: OnArrival) -> None:
        """Begin; every datagram is told with the address it came from."""
        ...

    def send(self, payload: bytes, address: str) -> Awaitable[None] | None:
        """One datagram; None when it is out already."""
        ...

    def overrun(self) -> int:
        """How many datagrams came faster than we read them, and are lost."""
        ...

    def close(self) -> None:
        """End."""
        ...


class LabFeet:
    """Feet in hosts of a lab on this machine."""

    def __init__(self, laboratory: Laboratory, publish_as: str | None, subscribe_as: str | None, port: int) -> None:
        if not publish_as and not subscribe_as:
            raise UsageError("the gateway needs a host", hint="--publish-as h1 --subscribe-as h2, or one of them")
        if publish_as == subscribe_as:
            raise UsageError(
                f"{publish_as} cannot do both: a host does not publish on what it is subscribed to",
                hint="name two hosts, or only one of --publish-as and --subscribe-as",
            )
        self._laboratory = laboratory
        self._port = port
        self.publisher = laboratory.host(publish_as) if publish_as else None
        self.subscriber = laboratory.host(subscribe_as) if subscribe_as else None
        self._out: socket.socket | None = None
        self._in: socket.socket | None = None
        self._overrun = 0

    async def open(self, on_arrival: OnArrival) -> None:
        """Begin; every datagram is told with the address it came from."""
        if self.publisher is not None:
            await asyncio.to_thread(self._know_the_way, self.publisher.name)
            self._out = self._laboratory.udp_socket(self.publisher.name)
            self._out.setblocking(False)
        if self.subscriber is not None:
            try:
                self._in = self._laboratory.udp_socket(self.subscriber.name, self._port)
            except EnvironmentNotReady as fault:
                self.close()
                if isinstance(fault.__cause__, OSError) and fault.__cause__.errno == errno.EADDRINUSE:
                    raise EnvironmentNotReady(
                        f"somebody listens as {self.subscriber.name} on port {self._port} already",
                        hint="each gateway needs a subscribing host of its own",
                    ) from fault
                raise
            self._in.setblocking(False)
            with suppress(PermissionError):
                self._in.setsockopt(socket.SOL_SOCKET, _FORCE_ROOM, _ROOM_BYTES)
            asyncio.get_running_loop().add_reader(self._in.fileno(), self._take_in, self._in, on_arrival)

    def send(self, payload: bytes, address: str) -> Awaitable[None] | None:
        """One datagram; None when it is out already."""
        if self._out is None:
            raise NotForwarded("no publishing host", "this gateway has no host to publish from (--publish-as)")
        try:
            self._out.sendto(payload, (address, self._port))
        except BlockingIOError:
            return self._send_later(self._out, payload, address)
        except OSError as fault:
            raise NotForwarded("network unreachable", f"the network does not take it: {fault}") from fault
        return None

    def overrun(self) -> int:
        """How many datagrams came faster than we read them, and are lost."""
        if self._in is not None:
            self._overrun = lost_at(self._in)
        return self._overrun

    def close(self) -> None:
        """End."""
        self.overrun()
        if self._in is not None:
            asyncio.get_running_loop().remove_reader(self._in.fileno())
            self._in.close()
        if self._out is not None:
            self._out.close()
        self._in = self._out = None

    async def _send_later(self, out: socket.socket, payload: bytes, address: str) -> None:
        try:
            await asyncio.get_running_loop().sock_sendto(out, payload, (address, self._port))
        except OSError as fault:
            raise NotForwarded("network unreachable", f"the network does not take it: {fault}") from fault

    def _know_the_way(self, host: str) -> None:
        """All resources have one MAC address: with that known, the first message of a topic waits for no ARP.

        Else a burst on a new topic would overflow the host's queue, and thousands of topics its table of neighbours.
        """
        for words in (
            ["ip", "neigh", "replace", _NEXT_HOP, "lladdr", VIRTUAL_MAC, "dev", "eth0", "nud", "permanent"],
            ["ip", "route", "replace", _RESOURCES, "via", _NEXT_HOP, "dev", "eth0", "onlink"],
        ):
            if self._laboratory.exec(host, words):
                raise EnvironmentNotReady(f"cannot use the network of {host}", hint="is the lab up? bb sdn lab status")

    @staticmethod
    def _take_in(source: socket.socket, on_arrival: OnArrival) -> None:
        with suppress(OSError):
            for _ in range(_AT_ONCE):
                payload, (address, _port) = source.recvfrom(_LARGEST)
                on_arrival(payload, address)
