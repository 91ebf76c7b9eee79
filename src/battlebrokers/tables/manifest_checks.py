"""Bytes to a manifest that can be true: the one way for every reader, here and in the analyst.

A manifest comes from outside as soon as run folders are passed on. Its numbers size tables, charts and rows a second,
so what no run can have written is refused with every reason. Reads no file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

import msgspec

from battlebrokers.clock import SECOND_NS
from battlebrokers.errors import InvalidManifestError, RunFolderError
from battlebrokers.tables.manifest import Manifest, Phase

MOST_BYTES = 64 << 20
"""A larger file is no manifest: scenario and configuration in it are texts written by people."""
LONGEST_RUN_NS = 366 * 86_400 * SECOND_NS
EARLIEST_NS = 946_684_800 * SECOND_NS
LATEST_NS = 7_258_118_400 * SECOND_NS
"""The years 2000 and 2200."""
FORMAT = 1
_MARGIN_NS = 86_400 * SECOND_NS
"""Around a run: one that broke off may have ended after its planned end."""
_JITTER_NS = 60 * SECOND_NS
"""Borders are written down by several processes, and a run that breaks off ends before a border it had planned."""
_MOST_COUNTED = 10**15
_MOST_PROCESSES = 100_000
_MOST_LISTED = 100_000
_LARGEST_PID = (1 << 31) - 1
_LONGEST_TICK_NS = 60 * SECOND_NS
_MOST_BLOCKS = 1_000_000
_MOST_CORES = 1_000_000
_LARGEST_NUMBER = float(1 << 63)
_DEEPEST = 32
_SHOWN = 4
_SHOWN_LETTERS = 60


def decode_manifest(raw: bytes, place: str) -> Manifest:
    """The manifest in these bytes; an error that names the file and what is wrong if it is damaged or impossible."""
    if len(raw) > MOST_BYTES:
        raise InvalidManifestError(f"{place} is invalid: it has {len(raw)} bytes, a manifest has at most {MOST_BYTES}")
    try:
        manifest = msgspec.json.decode(raw, type=Manifest)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise RunFolderError(f"{place} is damaged: {str(error)[:300]}") from error
    if mistakes := list(mistakes_in(manifest)):
        more = f"; and {len(mistakes) - _SHOWN} more" if len(mistakes) > _SHOWN else ""
        raise InvalidManifestError(
            f"{place} is invalid: {'; '.join(mistakes[:_SHOWN])}{more}",
            hint="No run writes this. Bring back the manifest as it was written, or delete the folder.",
        )
    return manifest


def span_ns(manifest: Manifest) -> tuple[int, int]:
    """Between which moments everything of a run happened, with a margin on both sides."""
    starts = [manifest.started_ns, *(phase.start_ns for phase in manifest.phases)]
    ends = [phase.end_ns for phase in manifest.phases]
    if manifest.finished_ns is not None:
        ends.append(manifest.finished_ns)
    is_open = not ends or (manifest.finished_ns is None and not manifest.phases[-1].end_ns)
    end_ns = min(starts) + LONGEST_RUN_NS if is_open else max(ends)
    return min(starts) - _MARGIN_NS, end_ns + _MARGIN_NS


def mistakes_in(manifest: Manifest) -> Iterator[str]:
    """Everything in it that no run can have written, in words."""
    if manifest.format != FORMAT:
        yield f"format is {_shown(manifest.format)}, this version reads {FORMAT}"
    yield from _within("started_ns", manifest.started_ns, EARLIEST_NS, LATEST_NS)
    yield from _of_the_end(manifest)
    yield from _of_phases(manifest)
    yield from _of_workers(manifest)
    yield from _of_lists(manifest)
    yield from _within("seed", manifest.seed, -(1 << 64), 1 << 64)
    yield from _within("scenario.scale", manifest.scenario.scale, 0, _LARGEST_NUMBER)
    if manifest.battle is not None:
        yield from _within("battle.block", manifest.battle.block, 0, _MOST_BLOCKS)
        yield from _within("battle.order", manifest.battle.order, 0, _MOST_BLOCKS)
    if manifest.process is not None:
        yield from _within("process.pid", manifest.process.pid, 0, _LARGEST_PID)
    yield from _of_settings(manifest.settings)
    for key in ("cpu_cores", "cpu_cores_usable"):
        if key in manifest.host:
            yield from _number(f"host.{key}", manifest.host[key], 1, _MOST_CORES)
    for name, part in (("host", manifest.host), ("settings", manifest.settings)):
        yield from _of_values(name, part, 0)
    yield from _of_values("scenario.resolved", manifest.scenario.resolved, 0)


def _of_the_end(manifest: Manifest) -> Iterator[str]:
    if manifest.finished_ns is not None:
        began_ns = manifest.started_ns
        yield from _within("finished_ns", manifest.finished_ns, began_ns - _JITTER_NS, began_ns + LONGEST_RUN_NS)


def _of_phases(manifest: Manifest) -> Iterator[str]:
    phases = manifest.phases
    names = [phase.name for phase in phases]
    if len(phases) > 64 or len(set(names)) < len(names):
        yield f"phases: {len(phases)} of them, of which {len(set(names))} have names of their own"
        return
    began_ns = manifest.started_ns
    for number, phase in enumerate(phases):
        what = f"phases[{number}]"
        yield from _within(f"{what}.start_ns", phase.start_ns, began_ns - _JITTER_NS, began_ns + LONGEST_RUN_NS)
        if phase.end_ns or number < len(phases) - 1:  # 0 is the end of the phase a run is in, or was killed in
            earliest_ns = phase.start_ns - _JITTER_NS
            yield from _within(f"{what}.end_ns", phase.end_ns, earliest_ns, began_ns + LONGEST_RUN_NS)
    yield from _out_of_order(phases)


def _out_of_order(phases: list[Phase]) -> Iterator[str]:
    for number, (before, after) in enumerate(pairwise(phases)):
        if after.start_ns < max(before.start_ns, before.end_ns - _JITTER_NS):
            yield f"phases[{number + 1}] begins before phases[{number}] has ended"


def _of_workers(manifest: Manifest) -> Iterator[str]:
    if len(manifest.workers) > _MOST_PROCESSES:
        yield f"workers: {len(manifest.workers)} of them"
        return
    for number, worker in enumerate(manifest.workers):
        what = f"workers[{number}]"
        yield from _within(f"{what}.pid", worker.pid, 0, _LARGEST_PID)
        yield from _within(f"{what}.processes", worker.processes, 1, _MOST_PROCESSES)
        yield from _within(f"{what}.tick_ns", worker.tick_ns, 0, _LONGEST_TICK_NS)
        if len(worker.counters) > 1_000:
            yield f"{what}.counters: {len(worker.counters)} of them"
            continue
        for name, count in worker.counters.items():
            yield from _within(f"{what}.counters.{_shown(name)}", count, 0, _MOST_COUNTED)


def _of_lists(manifest: Manifest) -> Iterator[str]:
    for number, service in enumerate(manifest.contender.services[:_MOST_LISTED]):
        wrong = next((pid for pid in service.pids if not 0 <= pid <= _LARGEST_PID), None)
        if wrong is not None:
            yield f"contender.services[{number}].pids has {_shown(wrong)}"
    if len(manifest.captures) > _MOST_LISTED or sum(len(one.files) for one in manifest.captures) > _MOST_LISTED:
        yield f"captures: {len(manifest.captures)} of them"
        return
    for number, capture in enumerate(manifest.captures):
        what = f"captures[{number}]"
        for name in ("snap_bytes", "packets", "dropped", "replaced_files"):
            if (count := getattr(capture, name)) is not None:
                yield from _within(f"{what}.{name}", count, 0, _MOST_COUNTED)
        for name in ("started_ns", "stopped_ns"):
            if (moment_ns := getattr(capture, name)) is not None:
                began_ns = manifest.started_ns
                yield from _within(f"{what}.{name}", moment_ns, began_ns - LONGEST_RUN_NS, began_ns + LONGEST_RUN_NS)
        if away := next((file for file in capture.files if _leads_away(file)), None):
            yield f"{what}.files has {_shown(away)}, which is not in the run folder"


def _of_settings(settings: Mapping[str, Any]) -> Iterator[str]:
    limits = {"devices": 10**9, "clients": 10**9, "processes": _MOST_PROCESSES}
    limits |= dict.fromkeys(("drain_s", "quiet_s"), LONGEST_RUN_NS // SECOND_NS)
    for key, most in limits.items():
        if key in settings:
            yield from _number(f"settings.{key}", settings[key], 0, most)
    for key in ("lowered_qos", "protocols"):
        if not isinstance(settings.get(key, {}), dict):
            yield f"settings.{key} is {_shown(settings[key])}, not an object"


def _of_values(what: str, value: object, depth: int) -> Iterator[str]:
    """Numbers that no 64 bits hold, and nesting without end, in the parts whose keys are free."""
    if depth > _DEEPEST:
        yield f"{what} is nested deeper than {_DEEPEST} levels"
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _of_values(f"{what}.{_shown(key)}", inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _of_values(f"{what}[]", inner, depth + 1)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _within(what, value, -_LARGEST_NUMBER, _LARGEST_NUMBER)


def _number(what: str, value: object, least: float, most: float) -> Iterable[str]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return [f"{what} is {_shown(value)}, not a number"]
    return _within(what, value, least, most)


def _within(what: str, value: float, least: float, most: float) -> Iterable[str]:
    if least <= value <= most:  # not-a-number is not, whatever the borders
        return ()
    return [f"{what} is {_shown(value)}, which is not between {_shown(least)} and {_shown(most)}"]


def _leads_away(file: str) -> bool:
    path = PurePosixPath(file)
    return path.is_absolute() or ".." in path.parts or "\0" in file


def _shown(value: object) -> str:
    """A value as a message may carry it: short, and without characters that move a terminal's cursor."""
    if isinstance(value, int) and abs(value) >= 10**30:
        return f"a number of {value.bit_length()} bits"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    short = "".join(letter if letter.isprintable() else "?" for letter in text[:_SHOWN_LETTERS])
    return f"{short}…" if len(text) > _SHOWN_LETTERS else short
