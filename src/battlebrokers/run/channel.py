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
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from battlebrokers.errors import BattleError
from battlebrokers.run.messages import Control

_LENGTH = struct.Struct(">I")
_MAX_BYTES = 1 << 30
_STOP_TIMEOUT_S = 60.0
_GONE_WITHIN_S = 2.0
_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Control] = msgspec.msgpack.Decoder(Control)


class Channel:
    """One end of a conversation."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, sock: socket.socket) -> Channel:
        """A channel over a connected stream socket."""
        reader, writer = await asyncio.open_connection(sock=sock)
        return cls(reader, writer)

    def send(self, message: Control) -> None:
        """Queue a message; nothing is lost unless the far side is gone."""
        if not self._writer.is_closing():
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

    async def close(self) -> None:
        """Flush and close."""
        try:
            await self._writer.drain()
            self._writer.close()
            await self._writer.wait_closed()
        except (ConnectionError, OSError):
            return


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


async def end(process: asyncio.subprocess.Process) -> None:
    """Give a worker time to complete its evidence, then insist."""
    try:
        await asyncio.wait_for(process.wait(), _STOP_TIMEOUT_S)
    except TimeoutError:
        process.kill()
        await process.wait()


async def why_it_left(process: asyncio.subprocess.Process, run: Path) -> BattleError:
    """What to tell of a worker that closed its channel before its work was done."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _GONE_WITHIN_S)
    code = process.returncode
    how = "fell silent"
    if code is not None:
        how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
    return BattleError(
        f"the worker process {how} before its work was done",
        hint=f"`bb analyze {run}` tells what was measured until then; recorded/logs there may tell more."
        + (" The kernel kills like that when memory runs out; `dmesg` says so." if code == -signal.SIGKILL else ""),
    )
