"""Which dissectors there are, and which one fits a stream: content first, port second.

A dissector is one file in `protocols/` (or a module of another package, named as an entry point of the group
`battlebrokers.dissectors`) with one function under `@dissector`; nothing else has to be edited.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Literal

from battlebrokers.dissect import protocols
from battlebrokers.dissect.talk import Dissection, Talk

Opener = Callable[[Talk], Dissection]
Recogniser = Callable[[bytes, bytes], float]
"""Told the first bytes (at most 512) of client and server, either may be empty; says from 0 to 1 how sure it is."""
Transport = Literal["tcp", "udp"]

_SURE = 0.5
"""From here on content decides; below it the port may."""


@dataclass(frozen=True, slots=True)
class Dissector:
    """One application protocol."""

    name: str
    open: Opener
    """Begins a conversation."""
    recognise: Recogniser
    ports: frozenset[int]
    transport: Transport


_KNOWN: dict[str, Dissector] = {}


def dissector(
    name: str, *, ports: Iterable[int] = (), transport: Transport = "tcp", recognise: Recogniser = lambda *_: 0.0
) -> Callable[[Opener], Opener]:
    """Register a function that opens a conversation in this protocol."""

    def register(opener: Opener) -> Opener:
        _KNOWN[name] = Dissector(name, opener, recognise, frozenset(ports), transport)
        return opener

    return register


@cache
def dissectors() -> dict[str, Dissector]:
    """All of them, by name."""
    for module in pkgutil.iter_modules(protocols.__path__, f"{protocols.__name__}."):
        importlib.import_module(module.name)
    for point in entry_points(group="battlebrokers.dissectors"):
        point.load()
    return _KNOWN


@cache
def known_ports() -> frozenset[int]:
    """Ports on which servers are expected."""
    return frozenset(port for known in dissectors().values() for port in known.ports)


def recognised(
    transport: Transport, server_port: int, client_port: int, from_client: bytes, from_server: bytes
) -> tuple[Dissector, str] | None:
    """The dissector for a conversation and how it was found (`content` or `port`); None if nobody knows it."""
    candidates = [known for known in dissectors().values() if known.transport == transport]
    rated = [(known.recognise(from_client[:512], from_server[:512]), known) for known in candidates]
    by_port = {known.name for known in candidates if server_port in known.ports or client_port in known.ports}
    sure = [(rating, known.name in by_port, known.name) for rating, known in rated if rating >= _SURE]
    if sure:
        return _KNOWN[max(sure)[2]], "content"
    likely = [(rating, known.name) for rating, known in rated if known.name in by_port]
    return (_KNOWN[max(likely)[1]], "port") if likely else None
