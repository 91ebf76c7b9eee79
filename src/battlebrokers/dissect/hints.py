"""Hints: what a contender's spec says about pairing its own JSON messages, and secrets of TLS connections.

Given to talks, read by dissectors.

A path names a field of a JSON message, dots leading inwards and numbers into lists: `action`, `header.type`, `0`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Hints:
    """Everything is optional: without hints messages pair by the usual names of ids."""

    type_path: str = ""
    """Where the type of a message stands."""
    id_path: str = ""
    """Where the id stands that request and response share; without it types pair in order."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """Type of the response to each type of request."""
    unanswered: frozenset[str] = frozenset()
    """Types that ask for nothing."""
    tls_secrets: Mapping[bytes, Mapping[str, bytes]] = field(default_factory=dict)
    """From a key log (see `tls_secrets`): what opens the records of each connection."""


def at_path(document: object, path: str) -> object:
    """The value there; None if there is none."""
    for step in path.split("."):
        if isinstance(document, dict):
            document = document.get(step)
        elif isinstance(document, list) and step.isdecimal() and int(step) < len(document):
            document = document[int(step)]
        else:
            return None
    return document
