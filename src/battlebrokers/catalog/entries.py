"""The runs in a directory, newest first. Reads manifests and verdicts only; a damaged run is listed as damaged."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from battlebrokers.errors import InvalidManifestError, RunFolderError
from battlebrokers.processes import ProcessIdentity, is_gone
from battlebrokers.tables.manifest import Manifest
from battlebrokers.tables.manifest_checks import MOST_BYTES
from battlebrokers.tables.run_folder import RunFolder, read_small_file

RUNS_VARIABLE = "BB_RUNS"


class _Verdict(msgspec.Struct):
    """The one thing of a summary the list shows."""

    verdict: Literal["PASS", "FAIL", "VOID", ""] = ""


class _Battle(msgspec.Struct):
    id: str = ""


class _Membership(msgspec.Struct):
    """What is wanted of an invalid manifest: a battle must not lose a run without a word."""

    battle: _Battle | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One run as the list shows it; `damage` is empty unless its manifest cannot be read, or cannot be true."""

    folder: RunFolder
    run: str
    started_ns: int = 0
    state: str = ""
    """As in the manifest, or `killed`, `damaged` or `invalid`."""
    killed_while: str = ""
    """Of a killed run: `starting` while its broker was, else `running`."""
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
        state = "invalid" if isinstance(error, InvalidManifestError) else "damaged"
        battle = _battle(folder) if state == "invalid" else ""
        return Entry(folder=folder, run=folder.run_id, state=state, damage=error.message, battle=battle)
    return _entry(folder, manifest)


def _battle(folder: RunFolder) -> str:
    try:
        found = msgspec.json.decode(read_small_file(folder.manifest_path, MOST_BYTES), type=_Membership)
    except (OSError, msgspec.MsgspecError, RecursionError):
        return ""
    return found.battle.id if found.battle is not None else ""


def _entry(folder: RunFolder, manifest: Manifest) -> Entry:
    battle = manifest.battle
    killed = was_killed(manifest)
    return Entry(
        folder=folder,
        run=manifest.run,
        started_ns=manifest.started_ns,
        state="killed" if killed else manifest.state,
        killed_while=_last_known(manifest) if killed or manifest.state == "killed" else "",
        scenario=manifest.scenario.name,
        contender=manifest.contender.name,
        version=manifest.contender.version,
        verdict=_verdict(folder),
        battle=battle.id if battle else "",
        block=battle.block if battle else 0,
        order=battle.order if battle else 0,
        tags=tuple(sorted(manifest.tags.items())),
    )


def was_killed(manifest: Manifest) -> bool:
    """Whether it never came to an end and its process is gone, as far as this machine can know."""
    return manifest.state in ("starting", "running") and any(is_gone(one) for one in _conductors(manifest))


def is_under_way(manifest: Manifest) -> bool:
    """Whether it never came to an end, and its process is alive here, or on another machine for all we know."""
    return manifest.state in ("starting", "running") and bool(_conductors(manifest)) and not was_killed(manifest)


def settled(folder: RunFolder) -> Manifest:
    """The manifest; that of a killed run says so from now on, for readers elsewhere that cannot know."""
    manifest = folder.read_manifest()
    if was_killed(manifest):
        manifest.state_detail = f"it was still {manifest.state}"
        manifest.state = "killed"
        with contextlib.suppress(OSError):  # no room for it: whoever writes the tables will say so
            folder.write_manifest(manifest)
    return manifest


def _conductors(manifest: Manifest) -> list[ProcessIdentity]:
    """Who conducts it; of older versions only the workers are known, which end with it."""
    if manifest.process is not None:
        return [manifest.process]
    return [ProcessIdentity(worker.pid, worker.boot_id, worker.host) for worker in manifest.workers]


def _last_known(manifest: Manifest) -> str:
    return "running" if manifest.contender.endpoints else "starting"


def _verdict(folder: RunFolder) -> str:
    try:
        return msgspec.json.decode(read_small_file(folder.summary_path, MOST_BYTES), type=_Verdict).verdict
    except (OSError, msgspec.MsgspecError, RecursionError):
        return ""
