"""The door to the analysis for everybody else: starts the analyst process and talks to it. Imports no Spark.

Called by the commands, tests and benchmarks. One analyst serves many runs, one after the other.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from battlebrokers import errors
from battlebrokers.errors import BattleError, PipelineError
from battlebrokers.scratch import Scratch

Progress = Callable[[str, int, int], None]
"""Told the step's name, how many are done, and how many there are."""

_FAREWELL_S = 10.0
_LOG_LINES = 15


@dataclass(frozen=True, slots=True)
class Analysis:
    """What an analysis took."""

    seconds: float
    steps: dict[str, float] = field(default_factory=dict)
    """Seconds per table."""
    defects: int = 0
    """Recorded files that could not be read; `measures/defects.json` names them."""


class Analyst:
    """A running analyst process; `start` one, use it as a context or `close` it."""

    def __init__(self, process: subprocess.Popen[str], scratch: Scratch) -> None:
        self._process = process
        self._scratch = scratch
        self._news: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._ready = False
        self._owed = 0
        """Orders whose end was not heard yet."""
        threading.Thread(target=self._listen, args=(process.stdout,), name="analyst", daemon=True).start()

    @classmethod
    def start(cls, master: str = "local[*]", expected_events: int = 0, idle: bool = True) -> Analyst:
        """Start one and return at once; it makes itself ready meanwhile, with idle priority unless told otherwise."""
        scratch = Scratch("bb-analyst-")
        command = [sys.executable, "-m", "battlebrokers.pipeline.analyst", "--master", master]
        command += ["--expected-events", str(expected_events), *(["--idle"] if idle else [])]
        with (scratch.path / "analyst.log").open("wb") as log:
            # A session of its own: Ctrl-C in the terminal is for us, we tell the analyst.
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, encoding="utf-8",
                start_new_session=True, pass_fds=(scratch.lock_fd,),
            )  # fmt: skip
        return cls(process, scratch)

    @property
    def log(self) -> Path:
        """Where the analyst and Spark complain; gone after `close`."""
        return self._scratch.path / "analyst.log"

    @property
    def pid(self) -> int:
        """The analyst's process id."""
        return self._process.pid

    def wait_until_ready(self, timeout_s: float | None = None) -> None:
        """Wait until Spark is started and warm; not needed before `analyze`."""
        while not self._ready:
            self._next(timeout_s)

    def analyze(self, run: str | Path, on_progress: Progress = lambda *_: None, out: str | None = None) -> Analysis:
        """Compute all tables of a run; waits, and raises what went wrong."""
        news = self._order(on_progress, do="analyze", run=str(run), out=out)
        return Analysis(news["seconds"], news["steps"], news["defects"])

    def decode(
        self,
        files: Sequence[str],
        out: str,
        names: Mapping[str, str],
        on_progress: Progress = lambda *_: None,
        pairing: Mapping[str, Any] | None = None,
        tls_keys: Path | None = None,
    ) -> dict[str, Any]:
        """Compute the tables of captures alone; returns their summary.

        `names` says which service has which address, `pairing` which messages answer which (see `PairingFacts`),
        `tls_keys` is a key log.
        """
        order = {"files": list(files), "out": out, "names": dict(names), "pairing": dict(pairing) if pairing else None}
        order["tls_keys"] = str(tls_keys) if tls_keys else None
        news = self._order(on_progress, do="decode", **order)
        summary: dict[str, Any] = news["summary"]
        return summary

    def rest(self) -> None:
        """Nothing to do for a while: go back to idle priority."""
        self._say(do="quiet")

    def close(self) -> None:
        """Let it go; it ends its JVM and then itself."""
        with contextlib.suppress(PipelineError):
            self._say(do="exit")
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(_FAREWELL_S)
        except subprocess.TimeoutExpired:
            if not self._is_archiving():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        self._scratch.close()

    def __enter__(self) -> Analyst:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _order(self, on_progress: Progress, **order: Any) -> dict[str, Any]:
        """Have something done and wait for it."""
        while self._owed:
            # Whoever asked before did not stay for the answer; it is none for who asks now.
            with contextlib.suppress(BattleError):
                self._next(None)
        self._say(**order)
        self._owed += 1
        while True:
            news = self._next(None)
            match news.get("event"):
                case "progress":
                    on_progress(news["step"], news["done"], news["of"])
                case "done":
                    return news

    def _say(self, **order: Any) -> None:
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        except (OSError, ValueError):
            # It may have said why before it went.
            while True:
                self._next(5.0)

    def _listen(self, lines: IO[str]) -> None:
        for line in lines:
            with contextlib.suppress(ValueError):
                self._news.put(json.loads(line))
        self._news.put(None)

    def _next(self, timeout_s: float | None) -> dict[str, Any]:
        """The next news; raises if it is bad, or if there will be none."""
        try:
            news = self._news.get(timeout=timeout_s)
        except queue.Empty:
            raise PipelineError("the analyst does not answer", hint=f"Its log: {self.log}") from None
        if news is None:
            self._owed = 0
            self._news.put(None)
            raise PipelineError(f"the analyst ended unexpectedly{self._last_words()}", hint=self._how_it_ended())
        if news.get("event") in ("done", "failed"):
            self._owed = max(0, self._owed - 1)
        if news.get("event") == "failed":
            kind = getattr(errors, str(news.get("kind")), PipelineError)
            known = isinstance(kind, type) and issubclass(kind, BattleError)
            raise (kind if known else PipelineError)(str(news.get("message")), hint=str(news.get("hint", "")))
        self._ready = self._ready or news.get("event") == "ready"
        return news

    def _last_words(self) -> str:
        """The last line of its log, which dies with it; all the last ones for who debugs."""
        with contextlib.suppress(OSError):
            lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
            if os.environ.get("BB_DEBUG"):
                return "\n".join(["", *lines[-_LOG_LINES:]])
            return f"; its last words: {lines[-1].strip()[:300]}" if lines else ""
        return ""

    def _how_it_ended(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self._process.wait(1) == -signal.SIGKILL:
                return "The kernel kills like that when memory runs out; `dmesg` says so."
        return "BB_DEBUG=1 prints more of its log."

    def _is_archiving(self) -> bool:
        """Whether it is only writing Spark's class archive, which it does alone, once per machine, at idle priority."""
        with contextlib.suppress(OSError):
            return "writing the class archive" in self.log.read_text(errors="replace")
        return False
