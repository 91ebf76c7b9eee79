"""What a gateway is told when it starts, what bounds it, and how it says no. Values only; used by all its parts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

LARGEST_PAYLOAD_BYTES: Final = 1472
"""One datagram in one packet of 1500: the network refuses fragments."""
LONGEST_NAME: Final = 1024
"""Of a resource, in characters; the controller takes no more."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one gateway and one client may use at most, so that nobody can make it grow."""

    clients: int = 10_000
    packet_bytes: int = 256 << 10
    """The largest MQTT packet taken in; a larger one ends its connection."""
    backlog_bytes: int = 256 << 10
    """Unsent bytes of one client; beyond, deliveries to it are lost and counted."""
    filters: int = 1000
    """Topic filters of one client."""
    unreleased: int = 1024
    """QoS 2 messages of one client that wait for their PUBREL."""
    topics: int = 4000
    """Resources this gateway creates."""
    retained: int = 10_000
    connect_s: float = 10.0
    """How long a connection may say nothing before its CONNECT."""
    patience_s: float = 10.0
    """How long a message for a new topic, or a subscription, waits for a controller that is away."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Where to listen, whom to ask and how to create resources."""

    url: str = "http://127.0.0.1:8080"
    host: str = "127.0.0.1"
    port: int = 1883
    """0 is any free one."""
    mode: str = "tree"
    look_s: float = 1.0
    """How often the controller is asked for resources somebody else created."""
    limits: Limits = field(default_factory=Limits)
    token: str | None = field(default=None, repr=False)
    """For the controller's REST."""


class NotForwarded(Exception):  # noqa: N818 - reads as what it is
    """A message or subscription that the network does not get; `kind` is what it is counted under."""

    def __init__(self, kind: str, words: str) -> None:
        super().__init__(words)
        self.kind = kind
        self.words = words


class Away(Exception):  # noqa: N818 - reads as what it is
    """The controller does not answer now; it may later."""
