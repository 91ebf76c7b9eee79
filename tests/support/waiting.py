"""Waiting for something to become true, with a deadline instead of a guess."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def until(condition: Callable[[], Found], seconds: float = 60, what: str = "it") -> Found:
    """Ask again and again; returns the first answer that is true, fails when there is none in time."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited for {what} in vain"
        time.sleep(0.02)
    return found


async def eventually(condition: Callable[[], object], seconds: float = 30, what: str = "it") -> None:
    """As `until`, in an event loop that goes on meanwhile."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited for {what} in vain"
        await asyncio.sleep(0.005)
