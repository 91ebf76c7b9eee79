"""Ctrl-C, SIGTERM and SIGHUP during long work: all end it alike, with everything cleaned up and one message.

Used by verbs; the signals themselves are the business of `battlebrokers.signals`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from battlebrokers import signals
from battlebrokers.errors import Interrupted


@contextmanager
def interruptible(consequence: str, hint: str) -> Iterator[None]:
    """Whoever ends the work inside is told what that means for its results."""
    with signals.listening(), signals.keeping(f"{consequence}. {hint}"):
        try:
            yield
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted: {consequence}", hint=hint) from None
