"""Callers that have not introduced themselves yet: few, and not for long. Used by channels; kept by the controller.

Anybody who reaches the port may call; whoever says nothing must not keep switches out.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

SEATS: Final = 256
GREETING_S: Final = 20.0


class Caller(Protocol):
    """Somebody who can be sent away."""

    def close(self) -> None:
        """Hang up."""


class Lobby:
    """The one who waited longest goes when it is full: a switch needs a moment only."""

    def __init__(self, seats: int = SEATS, greeting_s: float = GREETING_S) -> None:
        self._seats = seats
        self._greeting_s = greeting_s
        self._callers: dict[Caller, asyncio.TimerHandle] = {}
        self.sent_away = 0

    def __len__(self) -> int:
        return len(self._callers)

    def enter(self, caller: Caller) -> None:
        """Somebody called."""
        if len(self._callers) >= self._seats:
            self._send_away(next(iter(self._callers)))
        timer = asyncio.get_running_loop().call_later(self._greeting_s, self._send_away, caller)
        self._callers[caller] = timer

    def leave(self, caller: Caller) -> None:
        """It introduced itself, or is gone."""
        timer = self._callers.pop(caller, None)
        if timer is not None:
            timer.cancel()

    def _send_away(self, caller: Caller) -> None:
        self.leave(caller)
        self.sent_away += 1
        caller.close()
