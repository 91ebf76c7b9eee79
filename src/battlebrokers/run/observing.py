"""What others saw: resources that a Prometheus server or sysstat's files tell, gathered when a run is over.

Called by the orchestrator. What cannot be had is told and never stops a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from battlebrokers.contenders.spec import Service
from battlebrokers.errors import BattleError
from battlebrokers.record.exporters import queries_of
from battlebrokers.record.prometheus import Queries, observe
from battlebrokers.record.sar import read_sar
from battlebrokers.record.segments import write_rows
from battlebrokers.tables import RESOURCES


@dataclass(frozen=True, slots=True)
class Accounts:
    """Who is asked about resources besides ourselves."""

    prometheus: str = ""
    queries: Queries = field(default_factory=dict)
    """Service → column → query, besides those of the contender's file."""
    sar: tuple[Path, ...] = ()


def write_observed(
    accounts: Accounts,
    services: Mapping[str, Service],
    folder: Path,
    between_ns: tuple[int, int],
    say: Callable[[str], None],
) -> None:
    """Ask everybody and write rows of `resources` beside our own."""
    try:
        _write(accounts, services, folder, between_ns, say)
    except OSError as error:
        say(f"what others tell of resources cannot be written: {error.strerror}")


def _write(
    accounts: Accounts,
    services: Mapping[str, Service],
    folder: Path,
    between_ns: tuple[int, int],
    say: Callable[[str], None],
) -> None:
    if accounts.prometheus:
        queries = all_queries(accounts.queries, services)
        if not queries:
            say("Prometheus is not asked: neither the contender's file nor --metric says what to ask for")
        write_rows(folder, RESOURCES, "prometheus", observe(accounts.prometheus, queries, *between_ns, say))
    for number, file in enumerate(accounts.sar, start=1):
        try:
            rows = read_sar(file, *between_ns)
        except BattleError as error:
            say(f"{error.message}{f'; fix: {error.hint}' if error.hint else ''}")
            continue
        if not rows:
            say(f"{file} has no samples between start and end of the run")
        write_rows(folder, RESOURCES, f"sar-{number}", rows)


def all_queries(own: Queries, services: Mapping[str, Service]) -> dict[str, dict[str, str]]:
    """Queries by the name their rows will have: that of the service, marked as told by Prometheus."""
    found = {
        name: queries_of(service.metrics.exporter, service.metrics.labels, service.metrics.queries)
        for name, service in services.items()
        if service.metrics is not None
    }
    for name, queries in own.items():
        found[name] = {**found.get(name, {}), **queries}
    return {f"{name}@prometheus": queries for name, queries in found.items()}
