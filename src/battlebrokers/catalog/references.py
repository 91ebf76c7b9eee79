"""From what a user types to a run: a folder, an id or the start of one, LAST, LAST~2, or a battle's id."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from battlebrokers.catalog.entries import Entry, find_runs
from battlebrokers.errors import RunFolderError
from battlebrokers.tables.run_folder import RunFolder

_LAST = re.compile(r"LAST(?:~(\d{1,9}))?", re.IGNORECASE)


def resolve_run(reference: str, runs: Path) -> RunFolder:
    """The one run a reference means; an error that lists the candidates if it is none or several."""
    folder = _as_folder(reference)
    if folder is not None:
        return folder
    found = _by_name(reference, find_runs(runs))
    if len(found) == 1:
        return found[0].folder
    if found:
        lines = "".join(f"\n  {entry.run}  {entry.folder.path.name}" for entry in found[:8])
        more = f"\n  … and {len(found) - 8} more" if len(found) > 8 else ""
        raise RunFolderError(f"{reference!r} could be {len(found)} runs:{lines}{more}", hint="Type more of the id.")
    raise RunFolderError(f"no run {reference!r} in {runs}", hint="`bb list` shows the runs here; LAST is the newest.")


def resolve_runs(references: Sequence[str], runs: Path) -> list[RunFolder]:
    """The runs that several references mean, each once; a battle's id stands for all of its runs, in their order."""
    entries = find_runs(runs)
    folders: list[RunFolder] = []
    for reference in references:
        battle = [entry for entry in entries if entry.battle and entry.battle == reference]
        battle.sort(key=lambda entry: (entry.block, entry.order))
        folders += [entry.folder for entry in battle] or [resolve_run(reference, runs)]
    return list({folder.path.resolve(): folder for folder in folders}.values())


def _as_folder(reference: str) -> RunFolder | None:
    path = Path(reference)
    if path.name == "manifest.json":
        path = path.parent
    if (path / "manifest.json").exists():
        return RunFolder(path)
    if path.is_dir() and ("/" in reference or reference in (".", "..")):
        raise RunFolderError(
            f"{reference} is not a run folder: it has no manifest.json", hint="`bb list` shows the runs here."
        )
    return None


def _by_name(reference: str, entries: list[Entry]) -> list[Entry]:
    last = _LAST.fullmatch(reference)
    if last:
        back = int(last[1] or 0)
        return [entry for entry in entries if not entry.damage][back : back + 1]
    exact = [entry for entry in entries if reference in (entry.run, entry.folder.path.name)]
    return exact or [entry for entry in entries if reference and entry.run.startswith(reference)]
