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
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import psutil

from battlebrokers import errors, leftovers
from battlebrokers.errors import AnalysisStopped, BattleError, PipelineError
from battlebrokers.leftovers import living_descendants
from battlebrokers.scratch import Scratch, sweep
from battlebrokers.silence import Silence

Progress = Callable[[str, int, int], None]
"""Told the step's name, how many are done, and how many there are."""

ANSWER_WITHIN_S = 30.0
"""Every two seconds it shows that it and its JVM answer; so long a silence is no pause to collect garbage."""
_FAREWELL_S = 10.0
_LOOK_S = 0.5
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

    def __init__(self, master: str, expected_events: int, idle: bool) -> None:
        self._command = [sys.executable, "-m", "battlebrokers.pipeline.analyst", "--master", master]
        self._command += ["--expected-events", str(expected_events), *(["--idle"] if idle else [])]
        self._local = master.startswith("local")
        self._held: list[psutil.Process] | None = None
        """The processes that were stopped by `pause`; none of them if Spark is to be started anew by `resume`."""
        self._silence = Silence(ANSWER_WITHIN_S)
        self._scratch = Scratch("bb-analyst-")
        self._forget = leftovers.register(leftovers.Order.FILES, lambda _within_s: sweep("bb-spark-"))
        try:
            self._begin()
        except BaseException:
            self._scratch.close()
            raise

    @classmethod
    def start(cls, master: str = "local[*]", expected_events: int = 0, idle: bool = True) -> Analyst:
        """Start one and return at once; it makes itself ready meanwhile, with idle priority unless told otherwise."""
        return cls(master, expected_events, idle)

    def _begin(self) -> None:
        self._news: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._up = False
        self._ready = threading.Event()
        self._owed = 0
        """Orders whose end was not heard yet."""
        with self.log.open("wb") as log:
            # A session of its own: Ctrl-C in the terminal is for us, we tell the analyst.
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, encoding="utf-8",
                start_new_session=True, pass_fds=(self._scratch.lock_fd,),
            )  # fmt: skip
        listening = (self._process.stdout, self._news, self._ready)
        threading.Thread(target=self._listen, args=listening, name="analyst", daemon=True).start()

    @property
    def log(self) -> Path:
        """Where the analyst and Spark complain; gone after `close`."""
        return self._scratch.path / "analyst.log"

    @property
    def pid(self) -> int:
        """The analyst's process id."""
        return self._process.pid

    @property
    def ready(self) -> bool:
        """Whether Spark is started and warm, or will never be."""
        return self._ready.is_set()

    def wait_until_ready(self, timeout_s: float | None = None) -> None:
        """Wait until Spark is started and warm, or failed; not needed before `analyze`."""
        if not self._ready.wait(timeout_s):
            raise PipelineError("the analyst does not get ready", hint=f"Its log: {self.log}")

    def pause(self) -> None:
        """Stop its processes, JVM included, so that they use no processor time at all until `resume`.

        One that cannot be stopped safely (too young, or on a cluster that would give it up) is ended, and started anew.
        """
        if self._held is not None or self._process.poll() is not None or (self.ready and not self._local):
            return
        if not self._up or not self._local:
            self._kill()
            self._held = []
            return
        self._held = []
        root = psutil.Process(self._process.pid)
        while fresh := [each for each in (root, *living_descendants(root.pid)) if each not in self._held]:
            for process in fresh:
                self._held.append(process)
                with contextlib.suppress(psutil.Error):
                    process.suspend()

    def resume(self) -> None:
        """Let it go on; may be called without a pause."""
        held, self._held = self._held, None
        if held is None:
            return
        if not held:
            self._begin()
        for process in reversed(held):
            with contextlib.suppress(psutil.Error):
                process.resume()
        self._silence.heard()

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
        try:
            self.resume()
            with contextlib.suppress(PipelineError):
                self._say(do="exit")
            with contextlib.suppress(OSError):
                if self._process.stdin is not None:
                    self._process.stdin.close()
            try:
                self._process.wait(_FAREWELL_S)
            except subprocess.TimeoutExpired:
                if not self._is_archiving():
                    self._kill()
        except BaseException:
            self._kill()
            raise
        finally:
            self._scratch.close()
            self._forget()

    def kill(self) -> None:
        """End it and its JVM at once, whatever they do."""
        self._kill()
        self._scratch.close()
        self._forget()

    def _kill(self) -> None:
        held = self._held or []
        with contextlib.suppress(psutil.Error):
            held = [*held, psutil.Process(self._process.pid), *living_descendants(self._process.pid)]
        for process in held:
            with contextlib.suppress(psutil.Error):
                process.kill()
        self._process.wait()
        # Its own temporary files; only those whose owners are dead are removed.
        psutil.wait_procs(held, timeout=1.0)
        sweep("bb-spark-")

    def __enter__(self) -> Analyst:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            # What went wrong is to be told now, and not when Spark has ended in its own time.
            self.kill()

    def _order(self, on_progress: Progress, **order: Any) -> dict[str, Any]:
        """Have something done and wait for it."""
        self.resume()
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

    def _listen(self, lines: IO[str], news: queue.Queue[dict[str, Any] | None], ready: threading.Event) -> None:
        for line in lines:
            with contextlib.suppress(ValueError):
                told = json.loads(line)
                match told.get("event"):
                    case "up":
                        self._up = True
                    case "ready":
                        ready.set()
                    case "beat":
                        self._silence.heard()
                    case _:
                        news.put(told)
        news.put(None)
        ready.set()

    def _next(self, timeout_s: float | None) -> dict[str, Any]:
        """The next news; raises if it is bad, or if there will be none, or if nobody shows a sign of life."""
        news = self._await_news(timeout_s)
        if news is None:
            self._owed = 0
            self._news.put(None)
            raise self._ended()
        if news.get("event") in ("done", "failed"):
            self._owed = max(0, self._owed - 1)
        if news.get("event") == "failed":
            kind = getattr(errors, str(news.get("kind")), PipelineError)
            known = isinstance(kind, type) and issubclass(kind, BattleError)
            raise (kind if known else PipelineError)(str(news.get("message")), hint=str(news.get("hint", "")))
        return news

    def _await_news(self, timeout_s: float | None) -> dict[str, Any] | None:
        until = None if timeout_s is None else time.monotonic() + timeout_s
        self._silence.heard()
        while True:
            with contextlib.suppress(queue.Empty):
                return self._news.get(timeout=_LOOK_S)
            if until is not None and time.monotonic() >= until:
                raise PipelineError("the analyst does not answer", hint=f"Its log: {self.log}")
            if self._silence.over():
                self._kill()
                raise AnalysisStopped(
                    f"the analysis process stopped answering: no sign of life for {ANSWER_WITHIN_S:.0f} s",
                    hint="It or its Java was stopped from outside (SIGSTOP), or this machine is out of memory.",
                )

    def _last_words(self) -> str:
        """The last line of its log, which dies with it; all the last ones for who debugs."""
        with contextlib.suppress(OSError):
            lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
            if os.environ.get("BB_DEBUG"):
                return "\n".join(["", *lines[-_LOG_LINES:]])
            return f"; its last words: {lines[-1].strip()[:300]}" if lines else ""
        return ""

    def _ended(self) -> PipelineError:
        message = f"the analyst ended unexpectedly{self._last_words()}"
        with contextlib.suppress(subprocess.TimeoutExpired):
            if (status := self._process.wait(1)) < 0:
                memory = "The kernel kills like that when memory runs out; `dmesg` says so."
                hint = memory if status == -signal.SIGKILL else "BB_DEBUG=1 prints more of its log."
                return AnalysisStopped(f"{message} (killed by signal {-status})", hint=hint)
        return PipelineError(message, hint="BB_DEBUG=1 prints more of its log.")

    def _is_archiving(self) -> bool:
        """Whether it is only writing Spark's class archive, which it does alone, once per machine, at idle priority."""
        with contextlib.suppress(OSError):
            return "writing the class archive" in self.log.read_text(errors="replace")
        return False
