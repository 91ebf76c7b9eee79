"""SIGINT (Ctrl-C), SIGTERM and SIGHUP, alike for every verb: the first ends gracefully, the second at once.

The second is handled by a thread of its own that reads the wakeup descriptor, so that it works whatever the main thread
waits for. Installed by the command line; used by verbs and servers. Never decides what a graceful end is.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from battlebrokers import leftovers
from battlebrokers.secrets import masked_text
from battlebrokers.visible import visible

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_INTERRUPTED = 130
_REMOVE_WITHIN_S = 1.7
_WRITE_WITHIN_S = 0.2
_SAME_S = 0.05
"""`timeout` and closing terminals send the same signal twice in a row; that is one request."""

_Result = TypeVar("_Result")


class _Listener:
    """What is known of signals in this process: there is one, as signals belong to the process."""

    def __init__(self) -> None:
        self.reactions: list[Callable[[], None]] = []
        self.kept: list[Callable[[], str]] = []
        self.first: tuple[int, float] | None = None
        self.handled = False
        self.told = ""
        self._before: dict[int, Any] = {}
        self._wakeup = -1
        self._pipe: tuple[socket.socket, socket.socket] | None = None

    @property
    def active(self) -> bool:
        return self._pipe is not None

    def start(self) -> None:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        self.first, self.handled = None, False
        self._wakeup = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        self._pipe = ours, theirs
        threading.Thread(target=self._read, args=(ours,), name="signals", daemon=True).start()
        for number in NUMBERS:
            # nohup: a closed terminal is meant to change nothing.
            if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue
            self._before[number] = signal.signal(number, self._handle)

    def stop(self) -> None:
        assert self._pipe is not None
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
        signal.set_wakeup_fd(self._wakeup)
        _, theirs = self._pipe
        self._pipe = None
        theirs.close()  # ends the thread, which closes the other end

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        """In the main thread: the graceful end. All further signals are the other thread's."""
        if self.handled:
            if sys.is_finalizing():
                os._exit(_INTERRUPTED)
            return
        self.handled = True
        self.told = _statement(self.kept)
        if not self.reactions:
            raise KeyboardInterrupt
        self.reactions[-1]()

    def _read(self, ours: socket.socket) -> None:
        with ours:
            while raw := ours.recv(64):
                for number in raw:
                    self._count(number)

    def _count(self, number: int) -> None:
        if number not in NUMBERS:
            return
        now = time.monotonic()
        if self.first is None:
            self.first = number, now
            return
        first, at = self.first
        if number == first and number != signal.SIGINT and now - at < _SAME_S:
            return
        self._end_at_once()

    def _end_at_once(self) -> None:
        try:
            removing = threading.Thread(target=leftovers.remove_all, args=(_REMOVE_WITHIN_S - 0.1,), daemon=True)
            removing.start()
            # Whoever does not read our output must not hold up the end.
            telling = threading.Thread(target=_tell_end, args=(_statement(self.kept) or self.told,), daemon=True)
            telling.start()
            removing.join(_REMOVE_WITHIN_S)
            telling.join(_WRITE_WITHIN_S)
        finally:
            os._exit(_INTERRUPTED)


_listener = _Listener()


def listen() -> None:
    """Handle the signals from now on, until this process ends; only the main thread can begin it."""
    if not _listener.active and threading.current_thread() is threading.main_thread():
        _listener.start()
        # All threads have ended then: a late signal must not change how the work ended.
        atexit.register(_ignore_all)


def _ignore_all() -> None:
    for number in NUMBERS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def listening() -> Iterator[None]:
    """Handle the signals meanwhile, where nobody does so yet."""
    if _listener.active or threading.current_thread() is not threading.main_thread():
        yield
        return
    _listener.start()
    try:
        yield
    finally:
        _listener.stop()


@contextmanager
def reacting(reaction: Callable[[], None]) -> Iterator[None]:
    """What the first signal does meanwhile, in the main thread, instead of raising KeyboardInterrupt."""
    with listening():
        _listener.reactions.append(reaction)
        try:
            yield
        finally:
            _listener.reactions.remove(reaction)


@contextmanager
def keeping(statement: str | Callable[[], str]) -> Iterator[None]:
    """What is kept of the work if it is interrupted meanwhile; told when the process ends at once."""
    tell = statement if callable(statement) else lambda: statement
    _listener.kept.append(tell)
    try:
        yield
    finally:
        if _listener.handled:
            _listener.told = _statement(_listener.kept) or _listener.told
        _listener.kept.remove(tell)


def kept() -> str:
    """What was kept when the work was left after the first signal; empty when nobody said so."""
    return _listener.told


def interrupted() -> bool:
    """Whether a signal came."""
    return _listener.first is not None


@contextmanager
def stopping() -> Iterator[asyncio.Event]:
    """An event of the running loop, set by the first signal: for servers, which signals end normally."""
    loop, event = asyncio.get_running_loop(), asyncio.Event()
    with reacting(lambda: _call_in(loop, event.set)):
        yield event


def run(coroutine: Coroutine[Any, Any, _Result]) -> _Result:
    """`asyncio.run`, but the first signal cancels the coroutine and KeyboardInterrupt is raised when it has ended."""

    async def cancelled_by_signal() -> _Result:
        task = asyncio.ensure_future(coroutine)
        loop = asyncio.get_running_loop()
        with reacting(lambda: _call_in(loop, task.cancel)):
            try:
                return await task
            except asyncio.CancelledError:
                raise KeyboardInterrupt from None

    return asyncio.run(cancelled_by_signal())


def _call_in(loop: asyncio.AbstractEventLoop, action: Callable[[], object]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended by itself just now
        loop.call_soon_threadsafe(action)


def _statement(kept_by: list[Callable[[], str]]) -> str:
    """The innermost statement there is."""
    for tell in reversed(kept_by):
        with contextlib.suppress(Exception):
            if words := tell():
                return words
    return ""


def _tell_end(kept_words: str) -> None:
    # A progress bar hides the cursor, and has no time to show it again.
    cursor = "\x1b[?25h" if os.isatty(2) else ""
    kept_words = visible(masked_text(kept_words)) or "nothing was measured"
    words = f"{cursor}\ninterrupted again, ended at once: {kept_words}\n"
    with contextlib.suppress(OSError):
        os.write(2, words.encode(errors="replace"))
