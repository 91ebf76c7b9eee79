"""Waiting for something to become true, with a deadline instead of a guess."""

from __future__ import annotations

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
