"""Where one fault happens: a folder, a `bb` that is watched, and what is left of both afterwards.

Used by the groups. Everything that `bb` starts becomes a descendant of the process of this fault, whatever ends first.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import psutil
import pyarrow.parquet as pq

from battlebrokers.catalog.entries import find_runs
from battlebrokers.tables.run_folder import RunFolder
from chaos.fault import Seen

ROOT: Final = Path(__file__).resolve().parent.parent
BB: Final = Path(sys.executable).with_name("bb")
Helper = TypeVar("Helper")
_LOOK_S: Final = 0.02
_MEMORY_EVERY_S: Final = 0.2
_LEAVE_WITHIN_S: Final = 8.0
_SAID_BYTES: Final = 200_000
_IGNORED_FILES: Final = re.compile(r"^(hsperfdata_|\.java_pid)")
"""Where every JVM keeps its counters; it removes its own."""


class Place:
    """One fault's surroundings."""

    def __init__(self, folder: Path, within_s: float) -> None:
        self.folder = folder
        self.runs = folder / "runs"
        self.temporary = folder / "tmp"
        self.temporary.mkdir(parents=True, exist_ok=True)
        self.until_s = time.monotonic() + within_s
        self._said = folder / "said"
        self._began_s = self._fault_s = time.monotonic()
        self._peak_bytes = 0
        self._process: subprocess.Popen[bytes] | None = None

        self._stack = contextlib.ExitStack()

    # What is run

    def uses(self, helper: contextlib.AbstractContextManager[Helper]) -> Helper:
        """Something that is there until everything is removed."""
        return self._stack.enter_context(helper)

    def bb(self, *words: str, env: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[bytes]:
        """Start the real command."""
        return self.start([str(BB), *words], env, **options)

    def record(self, *words: str, env: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[bytes]:
        """Start the real command without its analysis."""
        return self.start([sys.executable, "-m", "chaos.recording", *words], env, **options)

    def start(
        self, command: Sequence[str], env: dict[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[bytes]:
        """Start and watch a command; what it prints is kept."""
        surroundings = {
            **os.environ, "NO_COLOR": "1", "COLUMNS": "200", "TMPDIR": str(self.temporary), "PYTHONPATH": str(ROOT),
            "BB_RUNS": str(self.runs), **(env or {}),
        }  # fmt: skip
        # Compiled files save a second of every start.
        surroundings.pop("PYTHONDONTWRITEBYTECODE", None)
        with self._said.open("ab") as sink:
            wanted: dict[str, Any] = {
                "stdin": subprocess.DEVNULL,
                "stdout": sink,
                "stderr": sink,
                "cwd": self.folder,
            } | options
            self._process = subprocess.Popen(list(command), env=surroundings, start_new_session=True, **wanted)
        self._fault_s = time.monotonic()
        threading.Thread(target=self._watch_memory, args=(self._process,), daemon=True).start()
        return self._process

    def write(self, name: str, content: str | bytes) -> Path:
        """A file in the folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content)
        return path

    def scenario(self, **phases: str) -> Path:
        """A small load over MQTT; phases may be given."""
        times = {"warm_up": "0s", "measure": "2s", "drain": "2s", "quiet": "300ms"} | phases
        listed = ", ".join(f"{name}: {value}" for name, value in times.items())
        return self.write("load.yaml", LOAD.format(phases=listed))

    # When the fault happens

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait for something within the fault's time, or until the command has ended."""
        while not (found := condition()):
            ended = self._process is not None and self._process.poll() is not None
            if ended and not condition():
                raise NeverHappenedError(f"it ended before {what}")
            if time.monotonic() > self.until_s - _LEAVE_WITHIN_S:
                raise NeverHappenedError(f"waited in vain for {what}")
            time.sleep(_LOOK_S)
        return found

    def in_phase(self, phase: str) -> None:
        """Wait for a phase: what `bb` says, and for the load also that something is recorded."""
        if phase == "report":
            self.until(lambda: list(self.runs.glob("*/summary.json")), "the end of the analysis")
            return
        words = PHASES[phase]
        self.until(lambda: any(word in self.said() for word in words), f"the phase {phase}")
        if phase in ("measure", "drain"):
            self.until(lambda: list(self.runs.glob("*/recorded/deliveries/*.parquet")), "recorded messages")

    def process(self, kind: str) -> psutil.Process:
        """A process of the run by its kind, once it is there."""
        if kind == "bb":
            assert self._process is not None
            return psutil.Process(self._process.pid)
        found: psutil.Process = self.until(lambda: self._find(kind), f"a process {kind}")
        return found

    def now(self) -> None:
        """The fault happens now: the time until the end is counted from here."""
        self._fault_s = time.monotonic()

    # What came of it

    def said(self) -> str:
        """All that was printed so far."""
        try:
            return self._said.read_bytes()[:_SAID_BYTES].decode("utf-8", "replace")
        except FileNotFoundError:
            return ""

    def seen(self, *complaints: str) -> Seen:
        """Wait for the end, and look at everything."""
        assert self._process is not None
        try:
            code: int | None = self._process.wait(max(0.1, self.until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            code = None
        ended_s = time.monotonic()
        left = left_processes(self._process.pid) if code is not None else ()
        end_all()
        unreadable, rows = self._recorded()
        return Seen(
            code, self.said(), ended_s - self._began_s, ended_s - self._fault_s, self._peak_bytes >> 20, left,
            self._files_left(), tuple(self._listed()), unreadable, rows, complaints,
        )  # fmt: skip

    def clear(self) -> None:
        """Remove everything."""
        end_all()
        self._stack.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _find(self, kind: str) -> psutil.Process | None:
        wanted = KINDS[kind]
        for one in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if wanted(one):
                    return one
        return None

    def _watch_memory(self, process: subprocess.Popen[bytes]) -> None:
        while process.poll() is None:
            with contextlib.suppress(psutil.Error):
                for one in (psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)):
                    with contextlib.suppress(psutil.Error):
                        if "python" in one.name() or one.name() == "bb":
                            self._peak_bytes = max(self._peak_bytes, one.memory_info().rss)
            time.sleep(_MEMORY_EVERY_S)

    def _files_left(self) -> tuple[str, ...]:
        return tuple(sorted(one.name for one in self.temporary.iterdir() if not _IGNORED_FILES.match(one.name)))

    def _listed(self) -> list[tuple[str, str]]:
        with contextlib.suppress(Exception):
            return [(entry.state, entry.damage) for entry in find_runs(self.runs)]
        return [("", f"{self.runs} cannot be listed")]

    def _recorded(self) -> tuple[tuple[str, ...], int]:
        """Whole Parquet files that cannot be read, and rows of messages in the others."""
        unreadable, rows = [], 0
        for path in sorted(self.runs.glob("*/recorded/**/*.parquet")):
            try:
                read = pq.ParquetFile(path).metadata.num_rows
            except Exception as fault:  # noqa: BLE001 - whatever is wrong with it
                unreadable.append(f"{path.relative_to(self.runs)}: {fault}"[:200])
                continue
            rows += read if path.parent.name in ("publishes", "deliveries") else 0
        return tuple(unreadable), rows

    @property
    def only_run(self) -> RunFolder:
        """The run of this place."""
        return RunFolder(next(path for path in self.runs.iterdir() if path.is_dir()))


class NeverHappenedError(Exception):
    """The moment of the fault did not come."""


def left_processes(of: int) -> tuple[str, ...]:
    """What is still there of its family after a moment; ours are the reaper of all of them."""
    until = time.monotonic() + _LEAVE_WITHIN_S
    while (found := _family(of)) and time.monotonic() < until:
        time.sleep(_LOOK_S)
    return tuple(found)


def end_all() -> None:
    """Kill every descendant; those that are not to be ended have ended themselves by now."""
    for one in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            one.send_signal(signal.SIGKILL)
    reap()


def reap() -> None:
    """Take note of the ends of those that were handed to us."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _family(but: int) -> list[str]:
    reap()
    found = []
    for one in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if one.pid != but and one.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(one.cmdline())[:120] or one.name())
    return found


def _words(*words: str) -> Callable[[psutil.Process], bool]:
    return lambda one: all(word in " ".join(one.cmdline()) for word in words)


def _keeper_of(name: str) -> Callable[[psutil.Process], bool]:
    return lambda one: (
        "contenders/keeper.py" in " ".join(one.cmdline()) and any(child.name() == name for child in one.children())
    )


def _engine(one: psutil.Process) -> bool:
    parent = one.parent()
    return parent is not None and "battlebrokers.run.worker" in " ".join(parent.cmdline())


KINDS: Final[dict[str, Callable[[psutil.Process], bool]]] = {
    "broker": lambda one: one.name() == "mosquitto",
    "broker keeper": _keeper_of("mosquitto"),
    "worker": lambda one: _words("battlebrokers.run.worker")(one) and not _engine(one),
    "engine": _engine,
    "capture": lambda one: one.name() == "dumpcap",
    "capture keeper": _keeper_of("dumpcap"),
    "analyst": _words("battlebrokers.pipeline.analyst"),
    "JVM": lambda one: one.name() == "java",
}
PHASES: Final = {
    "start": (": starting the broker",),
    "register": (": registering",),
    "connect": (": connecting",),
    "warm-up": (": warm-up:", ": warm up:"),
    "measure": (": measure:",),
    "drain": (": drain:",),
    "analysis": (": analysing",),
}
"""What `bb` says when a phase begins."""
LOAD: Final = """\
name: chaos
fleets:
  sensor: {{devices: 4, topic: "chaos/{{device}}", payload: {{random_bytes: 60}}, every: 25/s, qos: 1}}
clients:
  listener: {{count: 1, subscribe: ["chaos/#"], qos: 1}}
phases: {{{phases}}}
"""
