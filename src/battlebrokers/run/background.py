"""Work of ours on this machine that is no part of a measurement and must not disturb it: the analysis process.

Implemented by the analyst's client; the orchestrator holds it while devices connect and the load lasts.
"""

from __future__ import annotations

from typing import Protocol


class Background(Protocol):
    """What the orchestrator does with it."""

    @property
    def ready(self) -> bool:
        """Whether it has nothing left to prepare."""

    def pause(self) -> None:
        """Use no processor time until `resume`."""

    def resume(self) -> None:
        """Go on; may be called without a pause."""


class NoBackground:
    """There is none."""

    ready = True

    def pause(self) -> None:
        """Nothing to pause."""

    def resume(self) -> None:
        """Nothing to resume."""
