"""A connection with WebSocket framing below MQTT: upgrade first, then binary frames both ways.

Created by `transport` for `ws` and `wss`. It unwraps and wraps; everything MQTT is its base class.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from battlebrokers.protocols.base import Endpoint, Failure
from battlebrokers.protocols.frames import Unwrapper, close_frame, wrap
from battlebrokers.protocols.mqtt.connection import Connection
from battlebrokers.protocols.mqtt.malformed import MalformedPacket
from battlebrokers.protocols.upgrade import Handshake, WebSocketFault, handshake_request, new_key
from battlebrokers.protocols.wheel import Wheel

if TYPE_CHECKING:
    from battlebrokers.protocols.mqtt.link import MqttLink

PROTOCOL_ERROR = 1002
LARGEST_FRAME_BYTES = 64 * 1024
"""Servers limit the size of a WebSocket message, often to 1 MiB; MQTT packets may span several [MQTT-6.0.0-2]."""


class WebSocketConnection(Connection):
    """The protocol of one WebSocket connection."""

    __slots__ = ("close_code", "handshake", "request", "unwrapper", "upgraded")

    def __init__(
        self,
        link: MqttLink,
        wheel: Wheel,
        welcome: asyncio.Future[None],
        endpoint: Endpoint,
        upgraded: asyncio.Future[None],
    ) -> None:
        super().__init__(link, wheel, welcome)
        key = new_key()
        secure = endpoint.transport == "wss"
        self.request = handshake_request(endpoint.host, endpoint.port, endpoint.path, key, secure=secure)
        self.handshake: Handshake | None = Handshake(key)
        self.upgraded = upgraded
        """Done when the server has answered the request, whatever it said."""
        self.unwrapper = Unwrapper()
        self.close_code = PROTOCOL_ERROR
        """What a broker that sends nonsense is told."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected: ask for the upgrade."""
        super().connection_made(transport)
        self.write = self._write_wrapped
        self.transport.write(self.request)
        self.request = b""

    def data_received(self, data: bytes) -> None:
        """Bytes came in: unwrap them, answer pings, and pass the MQTT bytes on."""
        if self.gone:
            return
        at_ns = self.link.listener.now_ns()
        self.heard_tick = self.wheel.tick
        try:
            content = self._unwrapped(data)
            if content:
                self.receive(content, at_ns)
        except WebSocketFault as fault:
            self._broken(fault)
            return
        except MalformedPacket as fault:
            self.fail(fault)
            return
        replies = self.unwrapper.replies()
        if replies and not self.gone:
            self.transport.write(replies)
        if self.unwrapper.closed is not None and not self.gone:
            words = f"the broker closed the WebSocket with code {self.unwrapper.closed}"
            self.end(words, Failure.CLOSED, last_words=True)

    def _unwrapped(self, data: bytes) -> bytes:
        if self.handshake is not None:
            rest = self.handshake.feed(data)
            if rest is None:
                return b""
            self.handshake = None
            if not self.upgraded.done():
                self.upgraded.set_result(None)
            data = rest
        return self.unwrapper.feed(data)

    def _broken(self, fault: WebSocketFault) -> None:
        """A refused upgrade is an answer, not nonsense; everything else is."""
        if fault.status:
            # A status that agrees, in an answer that does not, is no refusal.
            reason = fault.status if fault.status != 101 else Failure.MALFORMED
            self.end(f"the WebSocket upgrade was refused: {fault}", reason)
        else:
            self.close_code = fault.close_code
            self.fail(MalformedPacket(str(fault)))

    def end(self, detail: str, reason: int, *, last_words: bool = False) -> None:
        """Drop the socket, with a close frame behind last words; somebody may still wait for the upgrade."""
        if last_words and self.handshake is None and self.unwrapper.closed is None:
            self.transport.write(close_frame(self.close_code))
        super().end(detail, reason, last_words=last_words)
        if not self.upgraded.done():
            self.upgraded.set_result(None)

    def goodbye(self, last: bytes) -> None:
        """Write the last MQTT packet and the close frame behind it."""
        self.transport.write(wrap(last) + close_frame())

    def _write_wrapped(self, data: bytes) -> int:
        if len(data) <= LARGEST_FRAME_BYTES:
            wrapped = wrap(data)
        else:
            pieces = range(0, len(data), LARGEST_FRAME_BYTES)
            wrapped = b"".join([wrap(data[at : at + LARGEST_FRAME_BYTES]) for at in pieces])
        self.transport.write(wrapped)
        return len(wrapped)
