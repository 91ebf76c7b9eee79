"""The runs in a directory, newest first. Reads manifests and verdicts only; a damaged run is listed as damaged."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import msgspec

from battlebrokers.errors import RunFolderError
from battlebrokers.tables.manifest import Manifest
from battlebrokers.tables.run_folder import RunFolder

RUNS_VARIABLE = "BB_RUNS"


class _Verdict(msgspec.Struct):
    """The one thing of a summary the list shows."""

    verdict: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One run as the list shows it; `damage` is empty unless its manifest cannot be read."""

    folder: RunFolder
    run: str
    started_ns: int = 0
    state: str = ""
    scenario: str = ""
    contender: str = ""
    version: str = ""
    verdict: str = ""
    battle: str = ""
    block: int = 0
    order: int = 0
    tags: tuple[tuple[str, str], ...] = ()
    damage: str = ""


def runs_directory(given: Path | None = None) -> Path:
    """Where runs are kept: the one given, else `$BB_RUNS`, else `./runs`."""
    return given or Path(os.environ.get(RUNS_VARIABLE) or "runs")


def find_runs(runs: Path) -> list[Entry]:
    """Every run in the directory, newest first; damaged ones last."""
    try:
        folders = [path for path in runs.iterdir() if path.is_dir() and (path / "manifest.json").exists()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunFolderError(f"{runs} cannot be read: {error.strerror}") from error
    entries = [read_entry(RunFolder(path)) for path in folders]
    return sorted(entries, key=lambda entry: (entry.started_ns, entry.folder.path.name), reverse=True)


def read_entry(folder: RunFolder) -> Entry:
    """One run's entry; never raises for a damaged run."""
    try:
        manifest = folder.read_manifest()
    except RunFolderError as error:
        return Entry(folder=folder, run=folder.run_id, damage=error.message)
    return _entry(folder, manifest)


def _entry(folder: RunFolder, manifest: Manifest) -> Entry:
    battle = manifest.battle
    return Entry(
        folder=folder,
        run=manifest.run,
        started_ns=manifest.started_ns,
        state=manifest.state,
        scenario=manifest.scenario.name,
        contender=manifest.contender.name,
        version=manifest.contender.version,
        verdict=_verdict(folder),
        battle=battle.id if battle else "",
        block=battle.block if battle else 0,
        order=battle.order if battle else 0,
        tags=tuple(sorted(manifest.tags.items())),
    )


def _verdict(folder: RunFolder) -> str:
    try:
        return msgspec.json.decode(folder.summary_path.read_bytes(), type=_Verdict).verdict
    except (OSError, msgspec.MsgspecError):
        return ""
