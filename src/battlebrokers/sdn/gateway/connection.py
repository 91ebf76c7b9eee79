"""One TCP connection of an MQTT client: frames in, frames out, both bounded; keep-alive; nothing about topics.

Made by the gateway's server. A packet that has to wait (for the controller) stops reading: what a client may send
meanwhile stays in its own machine.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from typing import Any, Final, Protocol

from battlebrokers.protocols.mqtt.decode import decode
from battlebrokers.protocols.mqtt.encode import encode
from battlebrokers.protocols.mqtt.framing import split_frames
from battlebrokers.protocols.mqtt.malformed import MalformedPacket
from battlebrokers.protocols.mqtt.packets import V311, Packet
from battlebrokers.sdn.gateway.settings import Limits

_LOG = logging.getLogger(__name__)
_ROOM_FOR_ANSWERS: Final = 64 << 10
_FAREWELL_S: Final = 5.0
_GRACE: Final = 1.5
"""Keep-alives that may pass in silence."""


class Talker(Protocol):
    """Who understands what a client says."""

    def hear(self, packet: Packet) -> Coroutine[Any, Any, None] | None:
        """One packet; what is returned must be over before the next one."""
        ...

    def complain(self, fault: MalformedPacket, frame: bytes) -> None:
        """Bytes that are no MQTT; the connection is to end."""
        ...

    def silent(self) -> None:
        """Nothing came for too long."""
        ...

    def lost(self) -> None:
        """The connection is gone."""
        ...


class Connection(asyncio.Protocol):
    """Frames of one client."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._clogged = False
        """Whether answers pile up: then nothing more is read."""
        self._heard_s = time.monotonic()
        self._alarm: asyncio.TimerHandle | None = None
        self._silence_s = limits.connect_s
        self.talker: Talker | None = None
        self.version = V311
        self.peer = "?"

    # what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client called."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        # Deliveries stop at the backlog's limit; only answers, to a client that never reads them, come this far.
        transport.set_write_buffer_limits(high=self._limits.backlog_bytes + _ROOM_FOR_ANSWERS)
        address = transport.get_extra_info("peername")
        self.peer = f"{address[0]}:{address[1]}" if address else "?"
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self._heard_s = time.monotonic()
        self._buffer += data
        if self._task is None:
            self._advance()

    def pause_writing(self) -> None:
        """Answers pile up."""
        self._clogged = True
        self._regulate()

    def resume_writing(self) -> None:
        """They no longer do."""
        self._clogged = False
        self._regulate()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """It is over, whoever ended it."""
        self._buffer.clear()
        if self._alarm is not None:
            self._alarm.cancel()
        if self.talker is not None:
            self.talker.lost()

    # what the talker calls

    @property
    def open(self) -> bool:
        """Whether anything may still be said."""
        return self._transport is not None and not self._transport.is_closing()

    def say(self, packet: Packet) -> None:
        """Answer."""
        if self.open and self._transport is not None:
            self._transport.write(encode(packet, self.version))

    def deliver(self, frame: bytes) -> bool:
        """Hand a message over, unless the client has not yet read too many before."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        if transport.get_write_buffer_size() + len(frame) > self._limits.backlog_bytes:
            return False
        transport.write(frame)
        return True

    def keep_alive(self, seconds: int) -> None:
        """How often the client promised to say something; 0: never."""
        self._silence_s = seconds * _GRACE
        self._watch()

    def close(self) -> None:
        """End it; what was said before still goes out, if the client takes it."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            self._buffer.clear()
            transport.close()
            asyncio.get_running_loop().call_later(_FAREWELL_S, transport.abort)

    def abandon(self) -> None:
        """End it and whatever it waits for."""
        self.close()
        if self._task is not None:
            self._task.cancel()

    # within

    def _advance(self) -> None:
        while self.open and self.talker is not None:
            split = split_frames(self._buffer, 0, self._limits.packet_bytes, self.version)
            done, version = 0, self.version
            waiting = None
            for start, body, end in split.frames:
                frame = bytes(self._buffer[start:end])
                done = end
                try:
                    waiting = self.talker.hear(decode(frame[0], frame[body - start :], self.version))
                except MalformedPacket as fault:
                    self.talker.complain(fault, frame)
                    self.close()
                if waiting is not None or not self.open or version != self.version:
                    break
            del self._buffer[:done]
            if waiting is not None:
                self._task = asyncio.get_running_loop().create_task(self._wait(waiting))
                self._regulate()
                return
            if version != self.version:
                # What follows a greeting is read by its rules.
                continue
            if split.fault is not None and self.open:
                self.talker.complain(split.fault, bytes(self._buffer[:16]))
                self.close()
            return

    async def _wait(self, waiting: Coroutine[Any, Any, None]) -> None:
        try:
            await waiting
        except Exception:  # noqa: BLE001 - whatever it is, the other clients go on
            _LOG.exception("the connection of %s ends because of our own mistake", self.peer)
            self.close()
        finally:
            self._task = None
        self._heard_s = time.monotonic()
        self._advance()
        self._regulate()

    def _regulate(self) -> None:
        if self.open and self._transport is not None:
            if self._clogged or self._task is not None:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _watch(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if not self._silence_s or not self.open:
            return
        if self._task is not None:
            # It is us who do not listen.
            self._heard_s = time.monotonic()
        left_s = self._heard_s + self._silence_s - time.monotonic()
        if left_s <= 0:
            if self.talker is not None:
                self.talker.silent()
            self.close()
            return
        self._alarm = asyncio.get_running_loop().call_later(left_s, self._watch)
