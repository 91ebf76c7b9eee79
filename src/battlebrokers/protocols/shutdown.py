"""The orderly end of a TCP connection: the write side is shut, the rest is read and thrown away, then it is closed.

Used by links when they disconnect. A socket that is closed with unread bytes is reset by the kernel, and the peer may
never see what was written last. It knows no protocol and reports nothing but how it ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from battlebrokers.errors import LinkError
from battlebrokers.protocols.base import Failure

IDLE_S = 2.0
"""A peer that neither sends nor reads for so long is not waited for."""
LONGEST_S = 10.0
MOST_BYTES = 256 * 1024 * 1024
"""What the peer may still send; a slow reader's socket buffers and the queue behind them."""
CLOSING_S = 1.0
"""What TLS may take to close after that."""


class Shutdown(asyncio.Protocol):
    """Takes over a transport after the last bytes were written; `done` is set to why it was cut, or to nothing."""

    __slots__ = (
        "_deadline_s", "_ends", "_loop", "_moved_s", "_progress", "_read_bytes", "_timer", "_transport", "_why", "done",
    )  # fmt: skip

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        ends: Callable[[bytes], bool] | None = None,
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._ends = ends
        """Whether these bytes complete the peer's own goodbye; without it the peer's end of the stream is."""
        self._read_bytes = 0
        self._why = ""
        self._moved_s = loop.time()
        self._deadline_s = self._moved_s + LONGEST_S
        self._progress = (0, transport.get_write_buffer_size())
        self._timer = loop.call_later(IDLE_S, self._look)
        self.done: asyncio.Future[str] = loop.create_future()
        transport.set_protocol(self)
        if not transport.is_closing():
            transport.resume_reading()
            # Where the protocol has a goodbye of its own, and inside TLS, the peer closes first.
            if ends is None and transport.can_write_eof():
                transport.write_eof()

    def data_received(self, data: bytes) -> None:
        """Nobody wants it any more; but it has to be read."""
        self._read_bytes += len(data)
        if self._read_bytes > MOST_BYTES:
            self._cut(f"the peer went on sending, {self._read_bytes} bytes")
        elif self._ends is not None and self._ends(data):
            self._close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """The socket is closed."""
        self._timer.cancel()
        if not self.done.done():
            self.done.set_result(self._why)

    def _look(self) -> None:
        """Go on waiting as long as bytes move, within limits."""
        unsent_bytes = self._transport.get_write_buffer_size()
        progress = (self._read_bytes, unsent_bytes)
        now_s = self._loop.time()
        if progress != self._progress:
            self._progress, self._moved_s = progress, now_s
        elif now_s - self._moved_s >= IDLE_S:
            if unsent_bytes:
                self._cut("the peer did not read it")
            else:
                self._close()
            return
        remaining_s = self._deadline_s - now_s
        if remaining_s > 0:
            self._timer = self._loop.call_later(min(IDLE_S, remaining_s), self._look)
        elif unsent_bytes:
            self._cut("the peer did not read it")
        else:
            self._cut(f"the peer went on sending for {LONGEST_S:g} s")

    def _close(self) -> None:
        self._timer.cancel()
        self._timer = self._loop.call_later(CLOSING_S, self._transport.abort)
        self._transport.close()

    def _cut(self, why: str) -> None:
        self._why = why
        self._timer.cancel()
        self._transport.abort()


async def shut_down(
    transport: asyncio.Transport, place: str, last: str, ends: Callable[[bytes], bool] | None = None
) -> None:
    """Close after `last` was written; raises LinkError when `place` may not have got it."""
    why = await Shutdown(transport, asyncio.get_running_loop(), ends).done
    if why:
        raise LinkError(f"{place} may not have got our {last}: {why}", code=Failure.TIMEOUT)
