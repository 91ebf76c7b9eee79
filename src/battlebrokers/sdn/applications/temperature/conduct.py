"""Runs the temperature application on a lab: a UDP socket in every host's namespace, one loop for all of them.

Called by `bb sdn demo temperature`. It creates no resource and no network: whoever calls has done that.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from battlebrokers.sdn.applications.temperature.application import (
    HOSTS,
    Application,
    Event,
    Send,
    Topic,
    copies_missing,
)
from battlebrokers.sdn.lab.laboratory import Laboratory

PORT: Final = 5005
_LAST_COPIES_S: Final = 2.0
_LARGEST: Final = 65536
_LOOK_S: Final = 0.1


@contextmanager
def sockets_of(laboratory: Laboratory) -> Iterator[dict[str, socket.socket]]:
    """Every host listens, also the one that should hear nothing."""
    with ExitStack() as stack:
        yield {host: stack.enter_context(laboratory.udp_socket(host, PORT)) for host in HOSTS}


def conduct(
    application: Application,
    sockets: Mapping[str, socket.socket],
    addresses: Mapping[Topic, str],
    *,
    interval_s: float,
    seconds: float,
    tell: Callable[[Event], None],
    on_time: Callable[[float], None],
) -> None:
    """Publish readings for so long, then wait a moment for the last copies; everything is told as it happens."""
    start_s = time.monotonic()
    told = 0
    sent = 0

    def publish(sends: Iterable[Send]) -> None:
        nonlocal told
        for send in sends:
            sockets[send.host].sendto(send.payload, (addresses[send.topic], PORT))
        for event in application.events[told:]:
            tell(event)
        told = len(application.events)

    with selectors.DefaultSelector() as selector:
        for host, one in sockets.items():
            one.setblocking(False)
            selector.register(one, selectors.EVENT_READ, host)
        while True:
            now_s = time.monotonic() - start_s
            on_time(min(now_s, seconds))
            due_s = sent * interval_s
            over = due_s >= seconds
            if not over and now_s >= due_s:
                publish(application.reading_due(now_s))
                sent += 1
                continue
            if over and (
                now_s > seconds + _LAST_COPIES_S or (now_s >= due_s and not copies_missing(application.events))
            ):
                return
            for key, _ in selector.select(_LOOK_S if over else min(_LOOK_S, due_s - now_s)):
                # Woken for a datagram with a wrong checksum, there is nothing to read.
                with suppress(BlockingIOError):
                    payload = sockets[key.data].recv(_LARGEST)
                    publish(application.heard(key.data, payload, time.monotonic() - start_s))
