"""One connection on the wire: the socket's events, writing, keep-alive and the end of it all.

Created by `transport` for each `open` of a link and thrown away with the socket; what must outlive it is in the
link's session. What comes in is its base class's work.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from battlebrokers.errors import LinkError
from battlebrokers.protocols.base import Failure
from battlebrokers.protocols.mqtt.encode import encode
from battlebrokers.protocols.mqtt.inbox import Inbox
from battlebrokers.protocols.mqtt.malformed import (
    CLIENT_ID_INVALID,
    PROTOCOL_ERROR,
    RECEIVE_MAXIMUM_EXCEEDED,
    UNSUPPORTED_VERSION,
    MalformedPacket,
)
from battlebrokers.protocols.mqtt.packets import V5, ConnAck, Disconnect
from battlebrokers.protocols.mqtt.receiving import PUBACK
from battlebrokers.protocols.mqtt.session import LAST_ID
from battlebrokers.protocols.shutdown import Shutdown
from battlebrokers.protocols.wheel import TICK_S, Wheel, patience

if TYPE_CHECKING:
    from battlebrokers.protocols.mqtt.link import MqttLink

WRITE_HIGH_BYTES = 256 * 1024
"""Above so many unsent bytes the link is held; TCP has its own buffers behind it."""
WRITE_LOW_BYTES = 64 * 1024

PING = b"\xc0\x00"
SHORTEST_GRACE_S = 10.0
"""How long an answer to PINGREQ may take, at least: a broker that is only busy is not dropped. With a longer keep-alive
it may take that long. The specification names no time."""


class Connection(Inbox):
    """The protocol of one TCP or TLS connection; `WebSocketConnection` adds a layer below."""

    __slots__ = (
        "doubted", "grace_ticks", "keep_ticks", "most_open", "open_before",
        "paused", "sent_tick", "slot", "transport", "write",
    )  # fmt: skip

    transport: asyncio.Transport
    write: Callable[[bytes], int | None]

    def __init__(self, link: MqttLink, wheel: Wheel, welcome: asyncio.Future[None]) -> None:
        super().__init__(link, wheel, welcome)
        self.paused = False
        """The broker does not read as fast as we write."""
        self.slot = self.keep_ticks = self.grace_ticks = 0
        self.sent_tick = wheel.tick
        allowed = link.options.receive_maximum
        self.most_open = allowed if link.version == V5 and allowed < LAST_ID else 0
        """How many messages above QoS 0 the broker may have open; 0: as many as there are packet ids."""
        self.open_before = len(link.session.incoming or ())
        """QoS 2 messages of an earlier connection: each connection counts anew."""
        self.doubted = False
        """The broker's silence was too long the last time we looked."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(WRITE_HIGH_BYTES, WRITE_LOW_BYTES)
        self.write = self.transport.write

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        if not self.gone:
            words = f"the connection broke: {exc}" if exc else "the broker closed the connection"
            self.end(words, Failure.TLS if isinstance(exc, ssl.SSLError) else Failure.CLOSED)

    def pause_writing(self) -> None:
        """Our write buffer is full."""
        self.paused = True

    def resume_writing(self) -> None:
        """Our write buffer has drained."""
        self.paused = False
        if not self.gone:
            self.link.drained()

    def send(self, data: bytes) -> None:
        """Write and note that we spoke."""
        self.sent_tick = self.wheel.tick
        self.write(data)

    def answer(self, frames: bytes) -> None:
        """Write acknowledgements that one chunk of messages wants, unless these were more than we allow at once.

        None of these messages was acknowledged when the broker sent the last of them [MQTT-3.3.4-9]; those of QoS 2
        count until they are released.
        """
        if self.most_open:
            self._count_open(frames)
        self.send(frames)

    def _count_open(self, frames: bytes) -> None:
        unreleased = len(self.link.session.incoming or ()) - self.open_before
        opened = frames[::4].count(PUBACK) + max(0, unreleased)
        if opened > self.most_open:
            words = f"the broker has {opened} messages open at once, we allow {self.most_open} (Receive Maximum)"
            raise MalformedPacket(words, RECEIVE_MAXIMUM_EXCEEDED)

    def welcomed(self, answer: ConnAck, at_ns: int) -> None:
        """CONNACK came: what it means is the link's business."""
        self.link.welcomed(self, answer, at_ns)

    def keep_alive(self, keep_alive_s: int) -> None:
        """Send at least that often from now on; 0 never."""
        # A little early, so that the PINGREQ is there before the broker's own clock says it is late.
        self.keep_ticks = max(1, int(keep_alive_s * 0.9 / TICK_S)) if keep_alive_s else 0
        self.grace_ticks = patience(max(SHORTEST_GRACE_S, keep_alive_s))
        if self.keep_ticks:
            self.wheel.enter(self, self.wheel.tick + self.keep_ticks)
            self.sent_tick = self.heard_tick = self.wheel.tick

    def reads_again(self) -> None:
        """Reading goes on: the time in which nothing could be received does not count as the broker's silence."""
        self.heard_tick = self.wheel.tick

    def beat(self) -> int:
        """Send PINGREQ when it is due, and look for the broker's silence. Called by the wheel; returns when to look
        again.

        The keep-alive counts from what we sent last [MQTT-3.1.2-20], whatever we read. That the broker is silent is
        judged only while we read: an answer that waits unread in the socket is no silence.
        """
        now, keep = self.wheel.tick, self.keep_ticks
        reading = not self.link.reading_paused
        # A publisher sends all the time and would never notice that nobody answers: it asks as well.
        unheard = reading and not self.ping_tick and now - self.heard_tick >= keep
        if unheard or now - self.sent_tick >= keep:
            self.ping_tick = self.ping_tick or now
            self.send(PING)
        following = self.sent_tick + keep
        if not reading:
            return following
        if not self.ping_tick:
            return min(following, self.heard_tick + keep)
        # Whatever else the broker sends shows that it is alive.
        late_tick = max(self.ping_tick, self.heard_tick) + self.grace_ticks
        if now < late_tick:
            self.doubted = False
            return min(following, late_tick)
        if not self.doubted:
            # When this very process was stalled, the answer may wait in the socket: read once more, then judge.
            self.doubted = True
            return now + 1
        silent_s = (now - self.heard_tick) * TICK_S
        self.end(f"no answer to PINGREQ, the broker has been silent for {silent_s:.1f} s", Failure.TIMEOUT)
        return 0

    def fail(self, fault: MalformedPacket) -> None:
        """The broker sent nonsense: tell it, then end."""
        link = self.link
        link.listener.malformed(link, str(fault))
        if self.gone:
            return
        if link.version == V5 and self.welcome is None:
            # Some mistakes have a reason that only an answer to CONNECT may name.
            reason = PROTOCOL_ERROR if fault.reason in (UNSUPPORTED_VERSION, CLIENT_ID_INVALID) else fault.reason
            self.send(encode(Disconnect(reason), V5))
        self.end(f"closed after malformed bytes: {fault}", Failure.MALFORMED, last_words=True)

    def end(self, detail: str, reason: int, *, last_words: bool = False) -> None:
        """Drop the socket and tell the link, once; `last_words` were just written and go out first."""
        self.leave()
        # Nobody reads last words when others wait before them already.
        if last_words and not self.paused and not self.transport.is_closing():
            Shutdown(self.transport, self.wheel.loop)
        else:
            self.transport.abort()
        if self.welcome is not None:
            if not self.welcome.done():
                self.welcome.set_exception(LinkError(detail, code=reason))
        else:
            self.link.lost(self, detail, reason)

    def goodbye(self, last: bytes) -> None:
        """Write the last packet; who called shuts the connection down."""
        self.write(last)

    def leave(self) -> None:
        """From here on nothing of this connection is told."""
        self.gone = True
        self.tail = self.alike = None
        self.wheel.leave(self)
