"""`bb list`: the runs in the runs directory, newest first."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from battlebrokers.catalog.entries import Entry, find_runs, runs_directory
from battlebrokers.clock import SECOND_NS
from battlebrokers.output import PlainConsole, echo_json
from battlebrokers.report.terminal import unfolded

_REASONS, _REASON_LETTERS = 5, 400
_STYLES = {"PASS": "green", "FAIL": "red", "VOID": "yellow"}


def list_runs(
    runs: Annotated[Path | None, typer.Option(help="Directory of the runs; $BB_RUNS or ./runs if absent.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON list instead.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Show so many; 0 shows all.")] = 30,
) -> None:
    """List the runs, newest first; damaged, invalid and killed ones are listed as such."""
    directory = runs_directory(runs)
    entries = find_runs(directory)
    shown = entries[:limit] if limit else entries
    if json:
        echo_json(msgspec.json.format(msgspec.json.encode([_plain(entry) for entry in shown]), indent=2).decode())
        return
    console = PlainConsole()
    if not entries:
        console.print(f"no runs in {directory}", highlight=False, soft_wrap=True)
        return
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for column in ("run", "started", "verdict", "scenario", "contender", "battle", "state"):
        table.add_column(column, no_wrap=True)
    for entry in shown:
        table.add_row(*_row(entry))
    wide = unfolded(console)
    wide.print(table, highlight=False)
    if len(entries) > len(shown):
        wide.print(Text(f"… and {len(entries) - len(shown)} older ones (--limit 0 shows all)", "dim"))
    wrong = [entry for entry in shown if entry.damage]
    for entry in wrong[:_REASONS]:
        wide.print(Text(entry.damage[:_REASON_LETTERS], "dim"))
    if len(wrong) > _REASONS:
        wide.print(Text(f"… and {len(wrong) - _REASONS} more that cannot be read (--json tells why)", "dim"))


def _row(entry: Entry) -> list[str | Text]:
    if entry.damage:
        return [entry.run, "", Text(entry.state, "red"), Text(entry.folder.path.name, "dim"), "", "", ""]
    started = datetime.fromtimestamp(entry.started_ns / SECOND_NS).strftime("%Y-%m-%d %H:%M:%S")
    contender = f"{entry.contender} {entry.version}".strip()
    battle = f"{entry.battle} #{entry.block + 1}" if entry.battle else ""
    verdict = Text(entry.verdict or "–", _STYLES.get(entry.verdict, "dim"))
    return [Text(entry.run, "bold"), started, verdict, entry.scenario, contender, battle, _state(entry)]


def _state(entry: Entry) -> Text:
    if entry.state != "killed":
        return Text(entry.state)
    return Text("killed while its broker started" if entry.killed_while == "starting" else "killed", "red")


def _plain(entry: Entry) -> dict[str, Any]:
    return {
        "run": entry.run,
        "folder": str(entry.folder.path),
        "started_ns": entry.started_ns,
        "state": entry.state,
        "verdict": entry.verdict or None,
        "scenario": entry.scenario,
        "contender": {"name": entry.contender, "version": entry.version},
        "battle": {"id": entry.battle, "block": entry.block, "order": entry.order} if entry.battle else None,
        "tags": dict(entry.tags),
        "damage": entry.damage or None,
        "killed_while": entry.killed_while or None,
    }
