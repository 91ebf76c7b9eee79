"""The message boundary: control messages over a stream socket, each a length and msgpack bytes.

Used between orchestrator, worker and engine processes of one machine. The far side closing ends the iteration.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import struct
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import psutil

from battlebrokers.errors import BattleError, EnvironmentNotReady
from battlebrokers.leftovers import living_descendants
from battlebrokers.run.messages import Control
from battlebrokers.silence import Silence

_LENGTH = struct.Struct(">I")
_MAX_BYTES = 1 << 30
_STOP_TIMEOUT_S = 120.0
_GONE_WITHIN_S = 2.0
_CLOSE_WITHIN_S = 2.0
_ENGINES_WITHIN_S = 10.0
_LOOK_S = 0.2
ANSWER_WITHIN_S = 20.0
"""A worker that gives no sign of life for so long hangs; it gives one every second."""
START_WITHIN_S = 30.0
"""Until the first one, while its program is loaded."""
ALIVE_EVERY_S = 1.0
_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)
_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Control] = msgspec.msgpack.Decoder(Control)


class Channel:
    """One end of a conversation."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ended = False

    @classmethod
    async def over(cls, sock: socket.socket) -> Channel:
        """A channel over a connected stream socket."""
        reader, writer = await asyncio.open_connection(sock=sock)
        return cls(reader, writer)

    def send(self, message: Control) -> None:
        """Queue a message; nothing is lost unless the far side is gone, or we said that nothing more comes."""
        if not self._ended and not self._writer.is_closing():
            raw = _ENCODER.encode(message)
            self._writer.write(_LENGTH.pack(len(raw)) + raw)

    async def messages(self) -> AsyncIterator[Control]:
        """Messages as they come, until the far side closes or talks nonsense."""
        while True:
            try:
                (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
                if length > _MAX_BYTES:
                    return
                yield _DECODER.decode(await self._reader.readexactly(length))
            except (asyncio.IncompleteReadError, ConnectionError, msgspec.MsgspecError):
                return

    def end_orders(self) -> None:
        """No more messages from this side; the far side may still send some."""
        self._ended = True
        with contextlib.suppress(OSError, RuntimeError):
            if not self._writer.is_closing() and self._writer.can_write_eof():
                self._writer.write_eof()

    async def close(self) -> None:
        """Flush and close; a far side that reads nothing any more does not hold this up."""
        with contextlib.suppress(ConnectionError, OSError, TimeoutError):
            async with asyncio.timeout(_CLOSE_WITHIN_S):
                await self._writer.drain()
                self._writer.close()
                await self._writer.wait_closed()
                return
        self._writer.transport.abort()


async def spawn(name: str, log: Path, *, engine: bool = False) -> tuple[asyncio.subprocess.Process, Channel]:
    """Start a worker (or one of its engines) as a process of its own and open a channel to it.

    It gets its own session, so that Ctrl-C reaches only us; when we vanish, its channel closes and it ends.
    """
    ours, theirs = socket.socketpair()
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "battlebrokers.run.worker", "--fd", str(theirs.fileno()), "--name", name]
    if engine:
        command.append("--engine")
    with log.open("ab") as sink:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL, stdout=sink, stderr=sink, pass_fds=[theirs.fileno()],
            start_new_session=True,
        )  # fmt: skip
    theirs.close()
    return process, await Channel.over(ours)


async def end(process: asyncio.subprocess.Process, silence: Silence, engines: Sequence[psutil.Process] = ()) -> None:
    """Give a worker time to complete its evidence as long as it shows signs of life, then kill it.

    Its engine processes notice that it is gone and complete their own evidence; they have some seconds for that.
    """
    waiting = asyncio.ensure_future(process.wait())
    until = time.monotonic() + _STOP_TIMEOUT_S
    while not waiting.done() and not silence.over() and time.monotonic() < until:
        await asyncio.wait([waiting], timeout=_LOOK_S)
    if not waiting.done():
        engines = living_descendants(process.pid)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await waiting
    await asyncio.to_thread(_end_engines, engines)


def _end_engines(engines: Sequence[psutil.Process]) -> None:
    _, left = psutil.wait_procs(engines, timeout=_ENGINES_WITHIN_S)
    for engine in left:
        with contextlib.suppress(psutil.Error):
            engine.kill()


async def why_it_left(process: asyncio.subprocess.Process, who: str, hint: str) -> BattleError:
    """What to tell of a process that closed its channel before its work was done."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _GONE_WITHIN_S)
    code = process.returncode
    if code is None or code >= 0:
        how = "closed its channel" if code is None else f"ended with status {code}"
        return BattleError(f"{who} {how} before its work was done", hint=hint)
    if code in (-signal.SIGKILL, -signal.SIGBUS):
        hint += " The kernel kills like that when memory runs out; `dmesg` says so."
    elif -code in _CRASHES:
        hint += " It crashed in native code; its log may hold more."
    return EnvironmentNotReady(
        f"{who} was killed by signal {-code} ({_signal_name(-code)}) before its work was done", hint=hint.strip()
    )


def stopped_answering(who: str, limit_s: float, hint: str) -> EnvironmentNotReady:
    """What to tell of a process that is there and gives no sign of life."""
    return EnvironmentNotReady(
        f"{who} stopped answering: no sign of life for {limit_s:.0f} s",
        hint=f"{hint} It was stopped from outside (SIGSTOP), or this machine is out of memory or overloaded; "
        "`bb doctor` tells.".strip(),
    )


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return "unknown"
