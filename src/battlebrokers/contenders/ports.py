"""Free ports that stay ours: bound and held while the broker uses them, so that nobody else is given them.

On Linux a port may be bound twice with SO_REUSEADDR as long as only one socket listens: we hold, the broker listens.
A held port is never handed out as somebody's outgoing port, and a restarted broker finds it free.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Sequence

_ATTEMPTS = 20
EVERY_ADDRESS = ""


class HeldPorts:
    """Named free ports on one address, held until `release`; none of them is taken for datagrams either."""

    def __init__(self, names: Sequence[str], host: str) -> None:
        self.numbers: dict[str, int] = {}
        self._sockets: list[socket.socket] = []
        try:
            for name in names:
                for attempts_left in range(_ATTEMPTS, 0, -1):
                    self.numbers[name] = number = self._held(host, 0)
                    if (_free_for_datagrams(host, number) and self._held_everywhere(number)) or attempts_left == 1:
                        break
        except OSError:
            self.release()
            raise
        if not sys.platform.startswith("linux"):
            self.release()  # elsewhere the second bind would fail: a short race is left, and starting again cures it

    def _held(self, host: str, number: int) -> int:
        held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._sockets.append(held)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((host, number))
        bound: tuple[str, int] = held.getsockname()
        return bound[1]

    def _held_everywhere(self, number: int) -> bool:
        """Some brokers listen on every address, or ask there whether the port is free: then nobody else may have it."""
        try:
            self._held(EVERY_ADDRESS, number)
        except OSError:
            return False
        return True

    def release(self) -> None:
        """Give them back; may be called twice."""
        while self._sockets:
            with contextlib.suppress(OSError):
                self._sockets.pop().close()


def _free_for_datagrams(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as tried:
        try:
            tried.bind((host, port))
        except OSError:
            return False
    return True
