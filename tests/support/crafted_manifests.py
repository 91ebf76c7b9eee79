"""A program that shows every reader one crafted manifest after the other, with little memory and little time for each.

`python -m support.crafted_manifests RUN OTHER`: prints what became of each, one JSON line; ends at the first that
neither is told nor is refused.
"""

from __future__ import annotations

import copy
import json
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from battlebrokers.analysis.comparison import compare
from battlebrokers.analysis.conclusion import draw_conclusion
from battlebrokers.analysis.facts import read_facts
from battlebrokers.analysis.summary import summarize
from battlebrokers.catalog.entries import find_runs
from battlebrokers.cli.list_runs import list_runs
from battlebrokers.errors import BattleError, ExitCode
from battlebrokers.report import html
from battlebrokers.tables.manifest_checks import decode_manifest, span_ns
from battlebrokers.tables.run_folder import RunFolder

Reader = Callable[[RunFolder, RunFolder], None]
MEMORY_BYTES = 3 << 30
"""Address space, not resident: libraries and their threads alone reserve one to two."""
SECONDS = 30
HUGE = 10**18
VALUES: tuple[Any, ...] = (HUGE, -HUGE, 0, -1, 10**400, 1e308, float("nan"), "9" * 5000, {"a": HUGE})


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every number, text and null inside."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from places(inner, (*path, index))
    else:
        yield path


def replaced(manifest: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """A copy with another value at the end of that way."""
    made = copy.deepcopy(manifest)
    inner: Any = made
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return made


def crafted(manifest: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Every number replaced by every value, some texts too, and what needs several at once."""
    for path in places(manifest):
        inner: Any = manifest
        for step in path:
            inner = inner[step]
        if isinstance(inner, str) and path[0] not in ("state", "started_ns", "phases"):
            values: tuple[Any, ...] = ("\x1b[2J" * 20_000, 7)
        else:
            values = VALUES
        for value in values:
            yield f"{path} = {str(value)[:20]}", json.dumps(replaced(manifest, path, value)).encode()
    zero = replaced(manifest, ("started_ns",), 0)
    zero["phases"] = [{**phase, "start_ns": 0, "end_ns": HUGE} for phase in zero["phases"]]
    yield "all phases from zero", json.dumps(zero).encode()
    backwards = copy.deepcopy(manifest)
    backwards["phases"].reverse()
    yield "phases backwards", json.dumps(backwards).encode()
    for by_ns in (HUGE // 10, -HUGE // 10, 10**16):
        moved = copy.deepcopy(manifest)
        for phase in moved["phases"]:
            phase["start_ns"] += by_ns
            phase["end_ns"] += by_ns
        moved["started_ns"] += by_ns
        moved["finished_ns"] += by_ns
        yield f"all moved by {by_ns}", json.dumps(moved).encode()
    long = copy.deepcopy(manifest)
    for phase in long["phases"]:
        if phase["name"] == "measure":
            phase["end_ns"] = phase["start_ns"] + 300 * 86_400 * 10**9
    yield "a measure phase of 300 days", json.dumps(long).encode()
    yield "100 000 phases", json.dumps({**manifest, "phases": manifest["phases"] * 20_000}).encode()
    yield "100 000 workers", json.dumps({**manifest, "workers": manifest["workers"] * 100_001}).encode()
    away = [{"service": "broker", "files": ["../../etc/passwd"]}]
    yield "captures elsewhere", json.dumps({**manifest, "captures": away}).encode()
    yield "nested", b'{"host":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001
    yield "nothing", b""


def read_everywhere(folder: RunFolder, other: RunFolder) -> str:
    """Each reader has its turn; how it ended, in a word."""
    found = find_runs(folder.path.parent)
    assert len(found) == 2, "the list goes on"
    list_runs(folder.path.parent)
    list_runs(folder.path.parent, json=True)
    said = set()
    for read in (_report, _compare, _analyse):
        refusal = _refusal(read, folder, other)
        if refusal is not None:
            assert refusal.exit_code is ExitCode.INVALID_INPUT, refusal.message
            assert str(folder.path) in refusal.message, refusal.message
            assert len(refusal.message) < 2_000, refusal.message
        said.add("told" if refusal is None else "refused")
    listed_as_wrong = bool(next(one for one in found if one.folder.path.name == folder.path.name).damage)
    assert not (listed_as_wrong and "told" in said), "one reader refuses what another one takes"
    return "refused" if "refused" in said else "told"


def _refusal(read: Reader, folder: RunFolder, other: RunFolder) -> BattleError | None:
    try:
        read(folder, other)
    except BattleError as error:
        return error
    return None


def _report(folder: RunFolder, other: RunFolder) -> None:
    html.render_report([draw_conclusion(folder)], folder.path)
    _ = other


def _compare(folder: RunFolder, other: RunFolder) -> None:
    pairs = [(facts, summarize(facts)) for facts in (read_facts(other), read_facts(folder))]
    compare(*pairs, anyway=True)


def _analyse(folder: RunFolder, other: RunFolder) -> None:
    """What the analyst does before Spark."""
    manifest = decode_manifest(folder.manifest_path.read_bytes(), str(folder.manifest_path))
    low_ns, high_ns = span_ns(manifest)
    assert 0 < high_ns - low_ns < 400 * 86_400 * 10**9
    _ = other


def main(run: str, other: str) -> None:
    """Try them all."""
    folder = RunFolder(Path(run))
    whole = json.loads(folder.manifest_path.read_bytes())
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    html.page_environment = cache(html.page_environment)  # compiled once: half of the time
    told = sys.stdout
    sys.stdout = Path("/dev/null").open("w", encoding="utf-8")  # noqa: SIM115 - what `bb list` prints is not wanted
    for name, content in crafted(whole):
        folder.manifest_path.write_bytes(content)
        signal.alarm(SECONDS)
        answer = read_everywhere(folder, RunFolder(Path(other)))
        signal.alarm(0)
        print(json.dumps([name, answer]), file=told, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
