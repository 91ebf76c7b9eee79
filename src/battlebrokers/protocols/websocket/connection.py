"""One WebSocket on the wire: the upgrade, messages in, the write buffer's limits, and the end of it all.

Created by the link for each `open` and thrown away with the socket. It knows frames, nothing of what they say.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, cast

from battlebrokers.errors import LinkError
from battlebrokers.protocols.base import Failure
from battlebrokers.protocols.frames import Messages, close_frame
from battlebrokers.protocols.upgrade import Handshake, WebSocketFault

if TYPE_CHECKING:
    from battlebrokers.protocols.websocket.link import WebSocketLink

WRITE_HIGH_BYTES = 256 * 1024
"""Above so many unsent bytes the link is held; TCP has its own buffers behind it."""
WRITE_LOW_BYTES = 64 * 1024
MOST_UNSENT_BYTES = 8 * 1024 * 1024
"""What answers to a server that never reads may pile up."""

_CODE_WORDS = {
    1000: "normal", 1001: "going away", 1002: "protocol error", 1003: "unsupported data", 1005: "none given",
    1007: "invalid text", 1008: "against its policy", 1009: "too big", 1011: "its own error", 1012: "restarting",
    1013: "try again later",
}  # fmt: skip


class Connection(asyncio.Protocol):
    """The protocol of one connection."""

    __slots__ = ("gone", "handshake", "link", "messages", "paused", "request", "transport", "upgraded")

    transport: asyncio.Transport

    def __init__(
        self, link: WebSocketLink, request: bytes, handshake: Handshake, upgraded: asyncio.Future[None]
    ) -> None:
        self.link = link
        self.request = request
        self.handshake: Handshake | None = handshake
        self.upgraded = upgraded
        """Done when the server has answered the request; carries the LinkError if it did not agree."""
        self.messages = Messages(link.options.largest_bytes)
        self.paused = False
        """The server does not read as fast as we write."""
        self.gone = False
        """Nothing that happens here concerns the link any more."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected: ask for the upgrade."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(WRITE_HIGH_BYTES, WRITE_LOW_BYTES)
        self.transport.write(self.request)
        self.request = b""

    def data_received(self, data: bytes) -> None:
        """Bytes came in: everything in them arrived now."""
        if self.gone:
            return
        link = self.link
        at_ns = link.listener.now_ns()
        messages = self.messages
        try:
            if self.handshake is not None:
                rest = self.handshake.feed(data)
                if rest is None:
                    return
                data = rest
                self._agreed(at_ns)
        except WebSocketFault as fault:
            self._broken(fault)
            return
        fault_after = None
        for body, is_text, wire_bytes in messages.feed(data):
            if is_text and not body.isascii() and not _is_utf8(body):
                fault_after = WebSocketFault("a text is not valid UTF-8", 1007)
                break
            link.hear(body, at_ns, wire_bytes)
            if self.gone:
                return
        link.settle(at_ns)
        fault_after = fault_after or messages.fault
        if fault_after is not None and not self.gone:
            self._broken(fault_after)
            return
        replies = messages.replies()
        if replies and not self.gone:
            self.write(replies)
        if messages.closed is not None and not self.gone:
            code = messages.closed
            words = f"{code} ({_CODE_WORDS[code]})" if code in _CODE_WORDS else str(code)
            self.end(f"the server closed the WebSocket with code {words}", code)

    def _agreed(self, at_ns: int) -> None:
        self.handshake = None
        self.link.connection = self
        self.link.heard_ns = at_ns
        if not self.upgraded.done():
            self.upgraded.set_result(None)

    def _broken(self, fault: WebSocketFault) -> None:
        """A refused upgrade is an answer; everything else is nonsense, told as such and to the server."""
        if fault.status:
            # A status that agrees, in an answer that does not, is no refusal.
            self.end(str(fault), fault.status if fault.status != 101 else Failure.MALFORMED)
            return
        self.link.listener.malformed(self.link, str(fault))
        if not self.gone:
            if self.handshake is None:
                self.transport.write(close_frame(fault.close_code))
            self.end(f"closed after bytes that are no WebSocket: {fault}", Failure.MALFORMED)

    def write(self, data: bytes) -> None:
        """Write what must go out now, whatever is waiting already; a server that reads nothing is left."""
        self.transport.write(data)
        if self.paused and self.transport.get_write_buffer_size() > MOST_UNSENT_BYTES:
            self.end("the server does not read what it is sent", Failure.CLOSED)

    def pause_writing(self) -> None:
        """Our write buffer is full."""
        self.paused = True

    def resume_writing(self) -> None:
        """Our write buffer has drained."""
        self.paused = False
        if not self.gone:
            self.link.drained()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        if self.gone:
            return
        if isinstance(exc, ssl.SSLError):
            self.end(f"TLS broke: {exc.reason or exc}", Failure.TLS)
        elif self.messages.halfway:
            self.end("the connection ended in the middle of a message", Failure.TRUNCATED)
        elif self.handshake is not None:
            self.end("it closed the connection instead of upgrading it", Failure.CLOSED)
        else:
            self.end(f"the connection broke: {exc}" if exc else "the server closed the connection", Failure.CLOSED)

    def end(self, detail: str, reason: int) -> None:
        """Drop the socket and tell the link, once."""
        self.gone = True
        # Last words still go out, unless others wait before them that nobody reads.
        if self.paused:
            self.transport.abort()
        else:
            self.transport.close()
        if not self.upgraded.done():
            self.upgraded.set_exception(LinkError(detail, code=reason))
        else:
            self.link.lost(self, detail, reason)

    def goodbye(self) -> None:
        """Write our close frame; who called waits for the server's."""
        self.gone = True
        self.transport.write(close_frame())

    def goodbye_answered(self, data: bytes) -> bool:
        """Whether the server's close frame came, or what can never become one."""
        messages = self.messages
        messages.feed(data)
        return messages.closed is not None or messages.fault is not None

    def drop(self) -> None:
        """Close without a word."""
        self.gone = True
        self.transport.abort()


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
