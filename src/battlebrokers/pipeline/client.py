"""The near side of the analyst: start it early, hand it runs, close it. Imports no Spark.

Called by the command line and by tests. The far side is a process of its own that ends when this one does.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from types import TracebackType
from typing import IO, Any, Self

from battlebrokers.errors import BattleError, EnvironmentNotReady, ExitCode, PipelineError, RunFolderError
from battlebrokers.pipeline.jvm import find_java

OnProgress = Callable[[str, int, int], None]

_ERRORS: dict[int, type[BattleError]] = {
    ExitCode.INVALID_INPUT: RunFolderError,
    ExitCode.ENVIRONMENT: EnvironmentNotReady,
}
_GOODBYE_S = 180.0
_LAST_WORDS = 2000


class Analyst:
    """One Spark session in a process of its own, for as many runs as wanted; use as a context."""

    def __init__(self, process: subprocess.Popen[str], log: IO[bytes]) -> None:
        self._process = process
        self._log = log

    @classmethod
    def start(cls, master: str = "local[*]", *, expected_events: int = 0, idle: bool = True) -> Self:
        """Start it and return at once; with `idle` it uses only CPU time nobody else wants until it is given a run."""
        find_java()
        log = tempfile.TemporaryFile(prefix="bb-analyst-")  # noqa: SIM115 - closed with the process
        command = [sys.executable, "-m", "battlebrokers.pipeline.analyst", "--master", master]
        command += ["--expected-events", str(expected_events), *(["--idle"] if idle else [])]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )
        return cls(process, log)

    def analyze(self, run: str, on_progress: OnProgress = lambda *_: None, out: str | None = None) -> dict[str, Any]:
        """Compute every table of a run (into `out` if given); returns seconds in all and per step."""
        self._tell({"do": "analyze", "run": run, "out": out})
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            kind = event["event"]
            if kind == "progress":
                on_progress(event["step"], event["done"], event["of"])
            elif kind == "done":
                return dict(event)
            elif kind == "failed":
                raise _ERRORS.get(event["exit_code"], PipelineError)(event["message"], hint=event["hint"])
        raise PipelineError(f"the analyst ended before its work was done:\n{self._last_words()}", hint=_RESCUE)

    def rest(self) -> None:
        """Use only idle CPU time again until the next run."""
        self._tell({"do": "rest"})

    def close(self) -> None:
        """End the session; returns when its processes are gone."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_GOODBYE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _tell(self, order: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise PipelineError(f"the analyst is gone:\n{self._last_words()}", hint=_RESCUE) from None

    def _last_words(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")[-_LAST_WORDS:].strip()


_RESCUE = "What was recorded is untouched: `bb analyze` tries again."
