"""Ports for servers that tests start: nobody else is given one before the server takes it.

The kernel never chooses from these for a connection or for whoever binds port 0, and test processes that run side by
side choose from different ones.
"""

from __future__ import annotations

import itertools
import os
import random
import socket

_FIRST, _EACH, _PROCESSES = 21_000, 500, 8
_seat = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _PROCESSES
_begin = random.SystemRandom().randrange(_EACH)
_next = itertools.count()


def free_port() -> int:
    """A port of the loopback interface on which nobody listens, neither for connections nor for datagrams."""
    for number in itertools.islice(_next, _EACH):
        port = _FIRST + _seat * _EACH + (_begin + number) % _EACH
        if all(_is_free(port, kind) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)):
            return port
    raise AssertionError("no port is free")


def _is_free(port: int, kind: socket.SocketKind) -> bool:
    with socket.socket(socket.AF_INET, kind) as probe:
        if kind is socket.SOCK_STREAM:
            # As servers do it: connections that have ended do not keep a port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
