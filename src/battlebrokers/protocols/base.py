"""What every protocol offers a device: a link that speaks and tells, but never measures.

A link hands arrivals and acknowledgements to its listener (the stopwatch) in bulk, stamped with the
listener's own clock the moment the bytes came in. It computes no latency and keeps no statistics.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from battlebrokers.protocols.script import ANSWER_WITHIN_S, Known, Script
from battlebrokers.secrets import Secret

Bytes2D = npt.NDArray[np.uint8]


class Held(IntEnum):
    """Why a link takes no further message right now."""

    NO = 0
    WINDOW = 1
    SOCKET = 2
    OFFLINE = 3
    AWAY = 4
    """The plan keeps the device away: said by devices, never by links."""


class Completion(IntEnum):
    """How a publish ended; what "acked" means is the link's completion contract."""

    ACKED = 1
    REFUSED = 2
    """The broker answered, and said no; the reason is its own code (an HTTP status, an MQTT reason code)."""
    FAILED = 3
    """No proper answer came; the reason is a `Failure`."""


LARGEST_BYTES = 16 << 20
"""What is taken in where nobody knows what to expect."""


class Failure(IntEnum):
    """Why there was no proper answer; below zero, so that no broker's own code is ever mistaken for one."""

    TIMEOUT = -2
    CLOSED = -3
    """The connection was closed before any of the answer came."""
    TRUNCATED = -4
    """It was closed in the middle of the answer."""
    MALFORMED = -5
    """What came is no answer of the protocol."""
    UNEXPECTED = -6
    """A proper answer that does not say what the contender's file expects."""
    TLS = -7
    NOT_RESENT = -8
    """Sent on a connection that broke, and more than the broker allows on the next one: its fate is unknown."""
    OVERSIZED = -9
    """More bytes than anything the scenario can make; they are not kept."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a link can honour; a scenario that needs more is refused with the reason, never approximated."""

    protocol: str
    qos: frozenset[int]
    receive: bool = True
    retain: bool = False
    persistent_session: bool = False
    will: bool = False
    shared_subscription: bool = False
    wildcards: bool = True
    """Whether a subscription may name many topics; if not, it is given one for each."""
    acknowledges: frozenset[int] = frozenset({1, 2})
    """The QoS whose messages are answered: only these ever end as acked. Others may still be told as refused (before
    anything was sent) or failed (the network said that nobody is there)."""
    conflates: bool = False
    """Whether a listener may be told the latest of several messages only, as CoAP's observers are."""
    largest_payload_bytes: int | None = None
    """More than this cannot be sent in one message; None: no limit of the protocol's own."""
    transports: frozenset[str] = frozenset({"tcp"})
    completion: dict[int, str] = field(default_factory=dict)
    """QoS → what "published" means, in words."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Certificates for a TLS link; `certificate` and `key` make it mutual."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    check_hostname: bool = True


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a broker listens for one transport: `tcp`, `tls`, `ws`, `wss`, `udp`, or `memory` of this very process.

    `path` is that of the WebSocket, or the prefix of every HTTP path.
    """

    transport: str
    host: str
    port: int
    path: str = "/mqtt"

    @property
    def authority(self) -> str:
        """Host and port as URLs and Host headers write them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Will:
    """The message a broker publishes when a device vanishes."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    delay_s: int = 0


@dataclass(frozen=True, slots=True)
class Subscription:
    """One topic filter a client asks for; `share` names its shared group."""

    filter: str
    qos: int = 0
    share: str | None = None

    @property
    def wire_filter(self) -> str:
        """The filter as the broker sees it."""
        return f"$share/{self.share}/{self.filter}" if self.share else self.filter


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """How one device or client connects."""

    client_id: str
    version: str = "3.1.1"
    username: str | None = None
    password: Secret | None = None
    clean: bool = True
    session_expiry_s: int = 0
    keep_alive_s: int = 60
    inflight: int = 65_535
    receive_maximum: int = 65_535
    topic_alias: bool = False
    will: Will | None = None
    tls: TlsFiles | None = None
    source_address: str | None = None
    connect_timeout_s: float = 30.0
    largest_bytes: int = LARGEST_BYTES
    """The largest message, or answer, that may come in: longer ones are skipped and counted, or end the connection."""
    answer_timeout_s: float = ANSWER_WITHIN_S
    """How long an answer may take before its request counts as failed."""
    script: Script | None = None
    """The contender's dialect, where it has one; absent: the protocol's own plain publish and subscribe."""
    known: Known = field(default_factory=dict)
    """What this node's templates may use."""
    known_of_topics: dict[str, Known] = field(default_factory=dict)
    """What they may use besides, topic by topic."""
    requests_at: str = ""
    """The URL of the contender's HTTP endpoint, for dialects that subscribe over it and are told over another."""

    def __post_init__(self) -> None:
        # Who writes the password as a text means a secret all the same.
        if isinstance(self.password, str):
            object.__setattr__(self, "password", Secret(self.password))


@dataclass(frozen=True, slots=True)
class Opened:
    """The broker's welcome."""

    session_present: bool
    reason: int
    received_ns: int
    session_expiry_s: int | None = None
    """How long the broker keeps the session, where it decides otherwise than asked."""


@dataclass(frozen=True, slots=True)
class Granted:
    """The broker's answer to one subscription; `qos` is -1 when refused."""

    subscription: Subscription
    qos: int
    reason: int


@dataclass(slots=True)
class Outgoing:
    """A batch for one topic, ready to go: payloads (header already inside) and the tokens acknowledgements will name.

    `payloads` is a matrix when all have one size, else a list. Tokens are `first_token`, `first_token + 1`, ….
    """

    topic: bytes
    payloads: Bytes2D | Sequence[bytes]
    qos: int
    retain: bool
    first_token: int

    @property
    def count(self) -> int:
        """How many messages."""
        return len(self.payloads)


@dataclass(slots=True)
class Arrivals:
    """Several messages found in one chunk of bytes; all arrays have one entry a message.

    `data[payload_starts[i] : payload_starts[i] + payload_sizes[i]]` is the i-th payload.
    """

    data: bytes
    flags: npt.NDArray[np.uint8]
    """Bit 0 retain, bits 1-2 QoS, bit 3 dup (as in MQTT's first byte)."""
    topic_starts: npt.NDArray[np.int64]
    topic_sizes: npt.NDArray[np.int64]
    payload_starts: npt.NDArray[np.int64]
    payload_sizes: npt.NDArray[np.int64]
    wire_sizes: npt.NDArray[np.int64]
    topic_rows: Bytes2D | None = None  # as `protocols.topic_rows` tells them, where they were gathered already

    def topics(self) -> Iterator[bytes]:
        """The topic of each."""
        spans = zip(self.topic_starts.tolist(), self.topic_sizes.tolist(), strict=True)
        return (self.data[start : start + size] for start, size in spans)


@dataclass(slots=True)
class EqualArrivals:
    """Several messages alike in flags and sizes, one right behind the other: a few numbers instead of arrays.

    The i-th payload starts at `payload_start + i * wire_size`. The arrays of `Arrivals` are made when asked for.
    """

    data: bytes
    count: int
    flag: int
    """The flags of each."""
    topic_start: int
    topic_size: int
    payload_start: int
    payload_size: int
    wire_size: int
    same_topic: bool = False  # known: all have the topic of the first

    def topics(self) -> Iterator[bytes]:
        """The topic of each."""
        starts = range(self.topic_start, self.topic_start + self.count * self.wire_size, self.wire_size)
        return (self.data[start : start + self.topic_size] for start in starts)

    @property
    def flags(self) -> npt.NDArray[np.uint8]:
        """As in `Arrivals`."""
        return np.full(self.count, self.flag, np.uint8)

    @property
    def topic_starts(self) -> npt.NDArray[np.int64]:
        """As in `Arrivals`."""
        return self.topic_start + self.wire_size * np.arange(self.count)

    @property
    def topic_sizes(self) -> npt.NDArray[np.int64]:
        """As in `Arrivals`."""
        return np.full(self.count, self.topic_size)

    @property
    def payload_starts(self) -> npt.NDArray[np.int64]:
        """As in `Arrivals`."""
        return self.payload_start + self.wire_size * np.arange(self.count)

    @property
    def payload_sizes(self) -> npt.NDArray[np.int64]:
        """As in `Arrivals`."""
        return np.full(self.count, self.payload_size)

    @property
    def wire_sizes(self) -> npt.NDArray[np.int64]:
        """As in `Arrivals`."""
        return np.full(self.count, self.wire_size)


class Listener(Protocol):
    """Who is told; implemented once, by the stopwatch. Calls come from the event loop and must not block."""

    def now_ns(self) -> int:
        """The clock to stamp arrivals with."""

    def acknowledged(self, link: Link, tokens: Sequence[int], at_ns: int, completion: Completion, reason: int) -> None:
        """The completion contract of these messages is met, or the broker refused them."""

    def resent(self, link: Link, tokens: Sequence[int]) -> None:
        """These unacknowledged messages were sent again after a reconnect."""

    def arrived(self, link: Link, at_ns: int, flags: int, topic: bytes, payload: bytes, wire_size: int) -> None:
        """One message came in (the path for few messages in a chunk)."""

    def arrived_many(self, link: Link, at_ns: int, arrivals: Arrivals | EqualArrivals) -> None:
        """Many messages came in at once (the path for bulk)."""

    def writable(self, link: Link) -> None:
        """The link takes messages again after `Held.WINDOW` or `Held.SOCKET`."""

    def closed(self, link: Link, detail: str, reason: int) -> None:
        """The connection ended without our asking."""

    def malformed(self, link: Link, detail: str, kind: Failure = Failure.MALFORMED) -> None:
        """Bytes came in that are no valid protocol message, or (`UNEXPECTED`) a message no dialect can read."""


class Basket(Protocol):
    """Where a link may put short messages that carry our header, instead of telling its listener of each.

    They are stamped as they are put in and told later, together. A kind is what such messages share.
    """

    put: Callable[[int, bytes], None]
    """Kind and frame of one message that came in now; the payload is the frame's end."""

    def put_few(self, kind: int, frames: bytes, count: int) -> None:
        """Several of one kind that came in now, one right behind the other."""

    def kind_of(self, link: Link, flags: int, payload_bytes: int, wire_bytes: int, topic_at: int, topic: bytes) -> int:
        """The number of a kind; all its frames have this topic, at that place."""


class Link(abc.ABC):
    """One connection of one device or client. Opened, closed and opened again with its session state kept.

    Arrivals a session still owes may be told before `open` returns. Refusals are told after `publish` returned.
    """

    # Slots, because a process holds 15 000 of them; subclasses declare theirs and call `super().__init__()`.
    __slots__ = ("basket", "owner", "structure_bytes", "url_bytes")

    capabilities: Capabilities
    keeps_topics: bool = False
    """Whether what arrives carries the very topic it was published on, so that the two may be compared."""
    structured: bool = False
    """Whether a message is wrapped: then `structure_bytes` and `url_bytes` tell the sizes of one of the last batch."""
    owner: object
    """Set by the device layer to find its device or client; links never look at it."""
    basket: Basket | None
    """Set by the device layer before `open`, where arrivals may be told later; a link need not use it."""

    def __init__(self) -> None:
        self.owner = None
        self.basket = None
        self.structure_bytes = self.url_bytes = 0

    @abc.abstractmethod
    async def open(self) -> Opened:
        """Connect and log in; resends what the session still owes. Raises LinkError."""

    @abc.abstractmethod
    async def subscribe(self, subscriptions: Sequence[Subscription]) -> list[Granted]:
        """Ask for topics in one request; one answer each. Raises LinkError on timeout or a lost connection."""

    @abc.abstractmethod
    async def unsubscribe(self, subscriptions: Sequence[Subscription]) -> None:
        """Stop them again."""

    @property
    @abc.abstractmethod
    def held(self) -> Held:
        """Whether, and why, a message handed over now would have to wait."""

    @abc.abstractmethod
    def room(self, qos: int) -> int:
        """How many messages of that QoS `publish` takes now; 0 when held."""

    @abc.abstractmethod
    def publish(self, outgoing: Outgoing) -> int:
        """Hand over a batch of at most `room` messages; returns the bytes written to the transport. Never waits."""

    def publish_one(self, topic: bytes, payload: bytes, qos: int, retain: bool, token: int) -> int:
        """The same for a single message."""
        return self.publish(Outgoing(topic, (payload,), qos, retain, token))

    @property
    @abc.abstractmethod
    def unacknowledged(self) -> int:
        """Messages whose completion contract is still open."""

    @property
    def stray_acknowledgements(self) -> int:
        """Acknowledgements of the peer that named nothing of ours, since the link was made."""
        return 0

    @abc.abstractmethod
    def pause_reading(self) -> None:
        """Stop taking bytes from the broker (a slow reader)."""

    @abc.abstractmethod
    def resume_reading(self) -> None:
        """Take bytes again."""

    @abc.abstractmethod
    async def close(self) -> None:
        """Say goodbye properly and close. Raises LinkError when the peer may not have got the goodbye."""

    @abc.abstractmethod
    def abort(self) -> None:
        """Drop the connection without a word, as a crash would."""
