"""Ctrl-C and SIGTERM during long work: both end it alike, with everything cleaned up and one message. Used by verbs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from battlebrokers.errors import Interrupted


@contextmanager
def interruptible(consequence: str, hint: str) -> Iterator[None]:
    """Whoever ends the work inside is told what that means for its results."""
    # Only the main thread hears signals; elsewhere somebody else listens.
    listening = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _interrupt) if listening else None
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted: {consequence}", hint=hint) from None
    finally:
        if listening:
            signal.signal(signal.SIGTERM, before)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
