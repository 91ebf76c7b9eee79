"""Progress bars on stderr: one for the run's phases, one for the analysis. Silent when not a terminal or not wanted."""

from __future__ import annotations

import time
from types import TracebackType

from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from battlebrokers.output import PlainConsole, echo
from battlebrokers.run.glimpse import Glimpse
from battlebrokers.secrets import masked_text
from battlebrokers.visible import visible

_PLAIN_EVERY_S = 10.0


class RunProgress:
    """Shows one run after another; use as a context manager."""

    def __init__(self, *, quiet: bool) -> None:
        self._console = PlainConsole(stderr=True)
        self._quiet = quiet
        self._live = not quiet and self._console.is_terminal
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.fields[label]}", style="bold", markup=False),
            BarColumn(bar_width=28),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self._live,
        )
        self._task: TaskID | None = None
        self._label = ""
        self._last: tuple[float, int, int] = (time.monotonic(), 0, 0)
        self._rates = (0.0, 0.0)
        self._phase = ""
        self._said_at = 0.0

    def __enter__(self) -> RunProgress:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def begin(self, label: str) -> None:
        """A new run, or a new analysis, starts."""
        if self._task is not None:
            self._bars.remove_task(self._task)
        self._label = visible(masked_text(label))
        self._phase = ""
        self._last = (time.monotonic(), 0, 0)
        self._rates = (0.0, 0.0)
        self._task = self._bars.add_task("starting", total=1.0, label=self._label)

    def pause(self) -> None:
        """Take the bars off the screen, so that results can be printed."""
        self._bars.stop()

    def resume(self) -> None:
        """Put them back."""
        self._bars.start()

    def say(self, words: str) -> None:
        """A line above the bars."""
        if not self._quiet:
            self._console.print(words, markup=False, soft_wrap=True)

    def warn(self, words: str) -> None:
        """A line above the bars that is told even to those who want no progress; it goes to stderr."""
        self._console.print(f"warning: {words}", markup=False, soft_wrap=True)

    def glimpse(self, seen: Glimpse) -> None:
        """A run's state, as the orchestrator sees it."""
        now = time.monotonic()
        then, sent, received = self._last
        progress = seen.progress
        if now - then >= 0.5:
            self._rates = ((progress.sent - sent) / (now - then), (progress.received - received) / (now - then))
            self._last = (now, progress.sent, progress.received)
        if seen.phase == "start":
            words = "starting the broker"
        elif seen.phase in ("register", "remove"):
            verb = "registering" if seen.phase == "register" else "cleaning up"
            words = f"{verb} [{progress.connected}/{seen.nodes}]"
        elif seen.phase == "connect":
            words = f"connecting [{progress.connected}/{seen.nodes}]"
        elif seen.phase == "analysis":
            words = f"waiting for the analysis process to finish starting (at most {seen.longest_s:.0f} s)"
        elif seen.phase == "drain":
            waited = f"waited {seen.share * seen.longest_s:.0f} s of at most {seen.longest_s:.0f} s"
            words = f"drain: {self._rates[1]:,.0f}/s still arrive, {waited}"
        else:
            words = f"{seen.phase.replace('_', '-')}: {self._rates[0]:,.0f}/s sent, {self._rates[1]:,.0f}/s delivered"
            if progress.live_p50_ms:
                words += f", p50 {progress.live_p50_ms:.1f} ms"
        self._show(seen.phase, words, seen.share)

    def step(self, name: str, done: int, of: int) -> None:
        """The analysis got so far."""
        self._show("analyse", f"analysing: {name}", done / max(1, of))

    def _show(self, phase: str, words: str, share: float) -> None:
        if self._live and self._task is not None:
            self._bars.update(self._task, description=words, completed=min(1.0, share))
            return
        # Not a terminal: one line a phase, and a sign of life now and then.
        now = time.monotonic()
        if not self._quiet and (phase != self._phase or now - self._said_at > _PLAIN_EVERY_S):
            self._phase = phase
            self._said_at = now
            echo(f"{self._label}: {words}", err=True)
