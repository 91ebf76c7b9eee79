"""One UDP socket on the event loop: datagrams out at once, datagrams in by the dozen, ICMP errors as calls.

Used by the links that speak over UDP. Knows no protocol; it neither repeats nor orders anything.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from functools import partial
from typing import Protocol

from battlebrokers.namespaces import in_namespace

LARGEST_BYTES = 65_507
"""What fits into one UDP datagram over IPv4."""
RECEIVE_BUFFER_BYTES = 1 << 20
"""Asked of the kernel, which may give less: bursts wait there."""
AT_ONCE = 256
"""Datagrams read before others on the loop have their turn."""


class Reader(Protocol):
    """Who is told."""

    def datagrams_came(self, source: Datagrams, datagrams: list[bytes]) -> None:
        """These came in, in this order."""

    def unreachable(self, source: Datagrams, error: OSError) -> None:
        """The network says that an earlier datagram reached nobody."""

    def drained(self, source: Datagrams) -> None:
        """What waited for the socket is out."""


async def resolve(host: str, port: int) -> tuple[int, tuple[str, int]]:
    """The address family and the address of a host; raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    family, _, _, _, address = found[0]
    return family, (str(address[0]), int(address[1]))


class Datagrams:
    """A non-blocking socket: connected to a peer, or bound to an address of our own."""

    __slots__ = ("_loop", "_reader", "_reading", "_socket", "waiting")

    def __init__(
        self,
        reader: Reader,
        family: int,
        *,
        peer: tuple[str, int] | None = None,
        own: tuple[str, int] | None = None,
        namespace: str = "",
    ) -> None:
        """Opens the socket, in another network namespace if it is named; raises OSError."""
        self._loop = asyncio.get_running_loop()
        self._reader = reader
        self._reading = False
        self.waiting: deque[bytes] = deque()
        """What the socket did not take yet."""
        if namespace:
            self._socket = in_namespace(namespace, partial(socket.socket, family, socket.SOCK_DGRAM))
        else:
            self._socket = socket.socket(family, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
            if own is not None:
                self._socket.bind(own)
            if peer is not None:
                self._socket.connect(peer)
        except BaseException:
            self._socket.close()
            raise
        self.resume()

    @property
    def address(self) -> tuple[str, int]:
        """Our own address."""
        name = self._socket.getsockname()
        return str(name[0]), int(name[1])

    def send(self, data: bytes) -> None:
        """Send to the peer, or as soon as the socket takes it; raises OSError only for what can never be sent."""
        if self.waiting:
            self.waiting.append(data)
            return
        try:
            self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            self.waiting.append(data)
            self._loop.add_writer(self._socket, self._flush)
        except ConnectionRefusedError as error:
            # The kernel tells of an earlier datagram and did not send this one.
            self._loop.call_soon(self._refused, error)
            self._again(data)

    def _again(self, data: bytes) -> None:
        try:
            self._socket.send(data)
        except OSError as error:
            self._loop.call_soon(self._refused, error)

    def _refused(self, error: OSError) -> None:
        if self._socket.fileno() >= 0:
            self._reader.unreachable(self, error)

    def _flush(self) -> None:
        waiting = self.waiting
        while waiting:
            try:
                self._socket.send(waiting[0])
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._refused(error)
                if not waiting:
                    return
            waiting.popleft()
        self._loop.remove_writer(self._socket)
        self._reader.drained(self)

    def _readable(self) -> None:
        came: list[bytes] = []
        receive = self._socket.recv
        failed: OSError | None = None
        try:
            for _ in range(AT_ONCE):
                came.append(receive(65_536))  # noqa: PERF401 - what came before the error counts
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            failed = error
        if (failed is not None or not came) and self._reading:
            # An ICMP error wakes the loop once; libuv then watches the socket no more unless told anew.
            self.pause()
            self.resume()
        if came:
            self._reader.datagrams_came(self, came)
        if failed is not None:
            self._refused(failed)

    def pause(self) -> None:
        """Read no more; what comes waits in the kernel while it has room."""
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._socket)

    def resume(self) -> None:
        """Read again."""
        if not self._reading and self._socket.fileno() >= 0:
            self._reading = True
            self._loop.add_reader(self._socket, self._readable)

    def close(self) -> None:
        """Close the socket; nothing is told from here on."""
        if self._socket.fileno() < 0:
            return
        self.pause()
        if self.waiting:
            self._loop.remove_writer(self._socket)
            self.waiting.clear()
        self._socket.close()
