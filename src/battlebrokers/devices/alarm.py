"""An alarm clock for the event loop with microsecond resolution (the loop's own timers tick in milliseconds).

Uses Linux timerfd through libc; elsewhere falls back to the loop's timers and says so in `resolution_ns`.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from collections.abc import Callable

from battlebrokers.clock import MILLISECOND_NS, SECOND_NS

_CLOCK_MONOTONIC = 1
_TFD_NONBLOCK = os.O_NONBLOCK
_TFD_TIMER_ABSTIME = 1


class Alarm:
    """Calls `ring` once, at the time last set; setting it again replaces the earlier time."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        # struct itimerspec: seconds and nanoseconds of the interval (none), then of the time.
        self._spec = (ctypes.c_long * 4)()
        self._spec_place = ctypes.byref(self._spec)
        self._fd = -1
        try:
            libc = ctypes.CDLL(None)
            self._set_time = libc.timerfd_settime
            self._fd = libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK)
        except (OSError, AttributeError):
            self._fd = -1
        if self._fd >= 0:
            self._loop.add_reader(self._fd, self._rang)

    @property
    def resolution_ns(self) -> int:
        """How exactly it can ring."""
        return 1_000 if self._fd >= 0 else MILLISECOND_NS

    def set(self, monotonic_ns: int) -> None:
        """Ring at this monotonic time; a time that has passed rings at once."""
        if self._fd < 0:
            if self._handle is not None:
                self._handle.cancel()
            self._handle = self._loop.call_later(max(0.0, (monotonic_ns - time.monotonic_ns()) / SECOND_NS), self._ring)
            return
        # An absolute time of zero would disarm the timer instead of ringing at once.
        at_ns = max(monotonic_ns, 1)
        self._spec[2], self._spec[3] = divmod(at_ns, SECOND_NS)
        self._set_time(self._fd, _TFD_TIMER_ABSTIME, self._spec_place, None)

    def close(self) -> None:
        """Never ring again."""
        if self._handle is not None:
            self._handle.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _rang(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return
        self._ring()
