"""Capturing: one capture program per service, up before the service's first packet and down after its last.

Used by the orchestrator and by `bb capture`. What cannot be captured is told with its fix and never stops a run.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import msgspec

from battlebrokers.contenders.process import KeptProcess
from battlebrokers.errors import BattleError
from battlebrokers.record.capture import located, raw_file, raw_files, tidied, written_bytes
from battlebrokers.record.capture_tool import (
    CaptureTool,
    Limits,
    NoCapture,
    command,
    complaint,
    counted,
    find_tool,
    is_up,
    right_fix,
)
from battlebrokers.record.containers import Container, ask, find_container
from battlebrokers.record.wire import Wire, safe_file_name
from battlebrokers.tables.manifest import CaptureFacts

_UP_WITHIN_S = 15.0
_STOP_WITHIN_S = 15.0
_QUIET_WITHIN_S = 10.0
_CONTAINER_WITHIN_S = 10.0
_POLL_S = 0.02


@dataclass
class _Tap:
    """One capture program on one wire."""

    tool: CaptureTool
    wire: Wire
    log: Path
    process: KeptProcess
    facts: CaptureFacts

    def said(self) -> str:
        try:
            return self.log.read_text(errors="replace")
        except OSError:
            return ""


class Capturing:
    """The captures of one run: of its contender, and of each of those beside it as it comes.

    `say` hears what a user must know: a service that cannot be captured, packets that were lost.
    """

    def __init__(
        self,
        folder: Path,
        logs: Path,
        limits: Limits,
        now_ns: Callable[[], int],
        say: Callable[[str], None],
        *,
        files_under: str = "",
    ) -> None:
        self._folder = folder
        self._logs = logs
        self._limits = limits
        self._now_ns = now_ns
        self._say = say
        self._files_under = files_under
        self._taps: list[_Tap] = []
        self._not_yet: list[Wire] = []
        self._latest: dict[str, str] = {}
        """Services announced last → what they are called here: two beside each other may have one name."""
        self._facts: dict[str, CaptureFacts] = {}
        self._lock = threading.Lock()

    @property
    def facts(self) -> list[CaptureFacts]:
        """What is known of each service's capture by now."""
        return list(self._facts.values())

    @property
    def running(self) -> bool:
        """Whether anything is captured right now."""
        return any(tap.process.poll() is None for tap in self._taps)

    def before_start(self, wires: Sequence[Wire]) -> None:
        """Capture these wires; returns when every capture is truly up, or its failure is told."""
        self._capture(wires, before_start=True)

    def while_running(self, wires: Sequence[Wire]) -> None:
        """The same for services that somebody else started, of which some packets are gone already."""
        self._capture(wires, before_start=False)

    def after_start(self) -> None:
        """Capture services whose container exists only now: hold it, capture, let it go on."""
        not_yet, self._not_yet = self._not_yet, []
        for wire in not_yet:
            try:
                container = _wait_for_container(wire.container)
            except BattleError as error:
                self._fail(wire, error.message, error.hint)
                continue
            with _held(container):
                self._tap([wire], before_start=False)

    def inside(self, wire: Wire) -> None:
        """Capture a service in the container it was started in, and no longer where it can be reached from outside.

        The container is held meanwhile; what it said before is missing. If that fails, all stays as it was.
        """
        wire = replace(wire, service=self._latest.get(wire.service, wire.service))
        outside = next((tap for tap in self._taps if tap.wire.service == wire.service), None)
        try:
            container = find_container(wire.container)
            if outside is None:
                with _held(container):
                    self._tap([wire], before_start=False)
                return
            if container.host_network or isinstance(find_tool(other_namespace=True), NoCapture):
                return
            with _held(container):
                located(wire)  # or nothing is given up
                self._drop([wire.service])
                self._tap([wire], before_start=False)
                if not self._facts[wire.service].files:
                    self._tap([outside.wire], before_start=outside.facts.before_start)
        except BattleError as error:
            if outside is None:
                self._fail(wire, error.message, error.hint)

    def called_off(self) -> None:
        """What was announced last did not start: keep nothing of it."""
        with self._lock:
            self._drop(list(self._latest.values()))

    def stop(self) -> list[CaptureFacts]:
        """Let every packet reach its file, end the programs, name the files. May be called twice."""
        with self._lock:
            taps, self._taps = self._taps, []
            _wait_until_written(taps, self._folder)
            for tap in taps:
                self._end(tap)
            return self.facts

    def discard(self) -> None:
        """End everything and keep nothing: the contender did not start."""
        with self._lock:
            self._drop([*self._facts, *(wire.service for wire in self._not_yet), *(t.wire.service for t in self._taps)])

    def _drop(self, services: Sequence[str]) -> None:
        dropped = [tap for tap in self._taps if tap.wire.service in services]
        self._taps = [tap for tap in self._taps if tap not in dropped]
        self._not_yet = [wire for wire in self._not_yet if wire.service not in services]
        for service in services:
            self._facts.pop(service, None)
        for tap in dropped:
            tap.process.stop()
            for path in raw_files(tap.tool, self._folder, tap.wire):
                path.unlink(missing_ok=True)

    def _capture(self, wires: Sequence[Wire], *, before_start: bool) -> None:
        taken = {*self._facts, *(wire.service for wire in self._not_yet)}
        self._latest = {wire.service: _unlike(wire.service, taken) for wire in wires}
        wires = [replace(wire, service=self._latest[wire.service]) for wire in wires]
        self._folder.mkdir(parents=True, exist_ok=True)
        self._logs.mkdir(parents=True, exist_ok=True)
        self._tap([wire for wire in wires if not self._comes_later(wire)], before_start=before_start)

    def _comes_later(self, wire: Wire) -> bool:
        if not wire.container:
            return False
        try:
            find_container(wire.container)
        except BattleError:
            self._not_yet.append(wire)
            return True
        return False

    def _tap(self, wires: Sequence[Wire], *, before_start: bool) -> None:
        begun = [tap for wire in wires if (tap := self._begin(wire, before_start=before_start)) is not None]
        self._taps += begun
        until = time.monotonic() + _UP_WITHIN_S
        for tap in begun:
            while not (up := is_up(tap.tool, tap.said())) and tap.process.poll() is None and time.monotonic() < until:
                time.sleep(_POLL_S)
            if up:
                # If we are killed, this is all that the manifest will ever know of the files.
                begun_files = [self._files_under + path.name for path in raw_files(tap.tool, self._folder, tap.wire)]
                self._facts[tap.wire.service] = msgspec.structs.replace(
                    tap.facts, started_ns=self._now_ns(), files=begun_files
                )
                continue
            tap.process.kill()
            self._taps.remove(tap)
            self._fail(tap.wire, complaint(tap.said()) or f"{tap.tool.name} does not come up", _fix(tap))

    def _begin(self, wire: Wire, *, before_start: bool) -> _Tap | None:
        tool = find_tool(other_namespace=bool(wire.namespace or wire.container))
        if isinstance(tool, NoCapture):
            self._fail(wire, tool.why, tool.fix)
            return None
        try:
            wire = located(wire)
            log = self._logs / f"capture-{safe_file_name(wire.service)}.log"
            log.unlink(missing_ok=True)
            words = command(tool, wire, raw_file(tool, self._folder, wire), self._limits)
            process = KeptProcess(
                words,
                env={**os.environ, "LC_ALL": "C"},
                cwd=self._folder,
                output=log,
                stop_signal=signal.SIGINT.value,
                stop_within_s=_STOP_WITHIN_S,
            )
        except BattleError as error:
            self._fail(wire, error.message, error.hint)
            return None
        facts = CaptureFacts(
            service=wire.service,
            interface=wire.interface,
            addresses=list(wire.addresses),
            namespace=wire.namespace,
            container=wire.container,
            filter=wire.filter,
            tool=tool.name,
            snap_bytes=self._limits.snap_bytes,
            before_start=before_start,
        )
        return _Tap(tool, wire, log, process, facts)

    def _end(self, tap: _Tap) -> None:
        early = tap.process.poll() is not None
        tap.process.stop()
        said = tap.said()
        names, replaced = tidied(tap.tool, self._folder, tap.wire, said)
        numbers = counted(tap.tool, said)
        facts = msgspec.structs.replace(
            self._facts[tap.wire.service],
            files=[f"{self._files_under}{name}" for name in names],
            stopped_ns=self._now_ns(),
            packets=numbers.packets,
            dropped=numbers.dropped,
            replaced_files=replaced,
            missing=f"{tap.tool.name} ended by itself: {complaint(said)}" if early else "",
        )
        self._facts[tap.wire.service] = facts
        if early:
            self._say(f"the capture of {tap.wire.service} is not complete: {facts.missing}")
        if facts.dropped:
            self._say(f"the capture of {tap.wire.service} lost {facts.dropped} packets: a smaller --snap costs less")
        if replaced:
            self._say(
                f"the capture of {tap.wire.service} was larger than its limit: its first {replaced} files are gone"
            )

    def _fail(self, wire: Wire, why: str, fix: str) -> None:
        told = f"{why}; fix: {fix}" if fix else why
        self._facts[wire.service] = CaptureFacts(
            service=wire.service,
            interface=wire.interface,
            addresses=list(wire.addresses),
            namespace=wire.namespace,
            container=wire.container,
            before_start=False,
            missing=told,
        )
        self._say(f"{wire.service} is not captured: {told}")


def _fix(tap: _Tap) -> str:
    said = tap.said().lower()
    if "permission" in said or "not permitted" in said:
        return right_fix(tap.tool)
    if "no such device" in said or "no such network interface" in said:
        return "`ip link` lists the interfaces there are"
    return f"its words are in {tap.log}"


def _wait_until_written(taps: Sequence[_Tap], folder: Path) -> None:
    """Wait until no file grows any more: the programs get packets from the kernel in batches, not at once."""
    if not taps:
        return
    settle_s = max(tap.tool.settle_s for tap in taps)
    now = time.monotonic()
    until, quiet_since, before = now + _QUIET_WITHIN_S, now, -1
    while now < until and now - quiet_since < settle_s and any(tap.process.poll() is None for tap in taps):
        size = sum(written_bytes(tap.tool, folder, tap.wire) for tap in taps)
        if size != before:
            before, quiet_since = size, now
        time.sleep(_POLL_S)
        now = time.monotonic()


def _wait_for_container(name: str) -> Container:
    until = time.monotonic() + _CONTAINER_WITHIN_S
    while True:
        try:
            return find_container(name)
        except BattleError:
            if time.monotonic() >= until:
                raise
        time.sleep(_POLL_S)


def _unlike(service: str, taken: Collection[str]) -> str:
    others = (f"{service}-{number}" for number in count(2))
    return service if service not in taken else next(other for other in others if other not in taken)


@contextmanager
def _held(container: Container) -> Iterator[None]:
    """The container stands still meanwhile, if its engine can do that."""
    held = _engine(container.engine, "pause", container.name)
    try:
        yield
    finally:
        if held:
            _engine(container.engine, "unpause", container.name)


def _engine(engine: str, verb: str, name: str) -> bool:
    try:
        ask([engine, verb, name])
    except BattleError:
        return False
    return True
