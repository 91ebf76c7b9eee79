"""Every shipped contender over every protocol: one suite, the cells `bb brokers test` goes through.

What a file says it cannot do is skipped with that reason, and what cannot run here with what is missing.
`BB_RECORD=1` writes what was seen to seen.json, which docs/reference/capabilities.md is made of.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from battlebrokers.contenders.availability import Missing, availability
from battlebrokers.contenders.capability_table import BEHAVIOURS, NOT_OFFERED, QOS, ROUTES, cannot, cells_of, left_out
from battlebrokers.contenders.lifecycle import start_contender
from battlebrokers.contenders.reader import find_contender, load_contenders
from battlebrokers.contenders.spec import Contender
from battlebrokers.run.exchanges import TRIED
from battlebrokers.run.trial import Trial
from support.middleware.described import described
from support.middleware.process import contract_server

RECORD = Path(__file__).parent / "seen.json"
SLOW = {"rabbitmq", "activemq", "acme-onem2m", "acme-onem2m-mqtt"}
CONTRACT_SERVERS = {
    "fiware-orion": "orion",
    "fiware-orion-memory": "orion",
    "meshblu": "meshblu",
    "devicehive": "devicehive",
    "om2m": "om2m",
}
KNOWN_NOT_TO_WORK: dict[tuple[str, str, str], str] = {
    ("devicehive", "http", "exactly once"): "a poll goes on from the last millisecond, and never hears what else that "
    "one brought; apart from each other by more, all messages come",
}
"""Contender, route and behaviour → why it fails where nobody can help it, at least now and then."""
ALL_OF_IT = "all of it"
"""Stands for every behaviour where a protocol is not offered."""


@dataclass
class Stage:
    """A contender that is started when the first behaviour needs it."""

    contender: Contender
    folder: Path
    stack: ExitStack
    seen: dict[str, dict[str, str]] = field(default_factory=dict)
    not_run: str = ""
    version: str = ""
    against: str = "itself"
    _trial: Trial | None = None

    def look(self) -> None:
        """Find out whether it can run here."""
        name = self.contender.name
        here = availability(self.contender)
        if isinstance(here, Missing):
            self.not_run = f"{here.what} is missing"
        elif self.contender.run.external and name not in CONTRACT_SERVERS:
            self.not_run = "somebody else has to run it, and there is no contract server of it"
        else:
            self.version = "" if self.contender.run.external else here.version
            self.against = "a contract server" if self.contender.run.external else "itself"

    @property
    def trial(self) -> Trial:
        if self._trial is None:
            name = self.contender.name
            if name in CONTRACT_SERVERS:
                ports = self.stack.enter_context(contract_server(CONTRACT_SERVERS[name]))
                name = str(described(name, ports, self.folder))
            # a space in the folder's name is normal, and breaks many a start script
            running = self.stack.enter_context(start_contender(name, "stock", self.folder / "its run"))
            self._trial = Trial(running, self.contender)
        return self._trial

    def facts(self) -> dict[str, Any]:
        if self.not_run:
            return {"not_run": self.not_run}
        return {"version": self.version, "against": self.against, "seen": self.seen}


def cells() -> Iterator[Any]:
    for contender in load_contenders():
        name = contender.name
        # One process tries all of a contender: it is started once.
        marks = [pytest.mark.broker, pytest.mark.xdist_group(f"matrix {name}")]
        marks += [pytest.mark.slow] if name in SLOW else []
        tried = cells_of(contender)
        offered = {route for route, _ in tried}
        for route, what in [*tried, *((route, ALL_OF_IT) for route in ROUTES if route not in offered)]:
            known = KNOWN_NOT_TO_WORK.get((name, route, what))
            expected = [pytest.mark.xfail(strict=False, reason=known)] if known else []
            yield pytest.param(
                name, route, what, marks=[*marks, *expected], id=f"{name}-{route}-{what}".replace(" ", "_")
            )


@dataclass
class Theatre:
    """One stage at a time: tests come contender by contender."""

    folders: pytest.TempPathFactory
    stage: Stage | None = None

    def play(self, name: str) -> Stage:
        if self.stage is None or self.stage.contender.name != name:
            self.close()
            self.stage = Stage(find_contender(name), self.folders.mktemp("matrix"), ExitStack())
            self.stage.look()
        return self.stage

    def close(self) -> None:
        if self.stage is None:
            return
        self.stage.stack.close()
        if os.environ.get("BB_RECORD"):
            record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
            record[self.stage.contender.name] = self.stage.facts()
            text = json.dumps(record, indent=1, sort_keys=True, ensure_ascii=False)
            RECORD.write_text(text + "\n", encoding="utf-8")
        self.stage = None


@pytest.fixture(scope="module")
def theatre(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Theatre]:
    theatre = Theatre(tmp_path_factory)
    yield theatre
    theatre.close()


@pytest.mark.parametrize(("name", "route", "what"), list(cells()))
async def test_it_does_what_its_file_says(theatre: Theatre, name: str, route: str, what: str) -> None:
    stage = theatre.play(name)
    reason = cannot(stage.contender, stage.version, route, what)
    if reason:
        unsaid = left_out(stage.contender, route, what)
        pytest.skip(f"not in our file: {unsaid}" if unsaid else f"the broker cannot: {reason}")
    if stage.not_run:
        pytest.skip(f"not run here: {stage.not_run}")
    known = KNOWN_NOT_TO_WORK.get((name, route, what))
    seen = stage.seen.setdefault(route, {})
    if known:
        seen[what] = known
    await stage.trial.hold(route, what)
    seen[what] = known or "works"


def test_the_record_knows_every_cell_that_the_files_offer(theatre: Theatre) -> None:
    theatre.close()
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    shipped = {contender.name: contender for contender in load_contenders()}
    assert sorted(record) == sorted(shipped), "record anew: BB_RECORD=1 pytest tests/contract/test_matrix.py"
    for name, known in record.items():
        if "not_run" in known:
            continue
        found = {(route, what): how for route, each in known["seen"].items() for what, how in each.items()}
        doubts = {cell: KNOWN_NOT_TO_WORK.get((name, *cell)) for cell, how in found.items() if how != "works"}
        assert doubts == {cell: found[cell] for cell in doubts}, name
        able = {cell for cell in cells_of(shipped[name]) if not cannot(shipped[name], known["version"], *cell)}
        assert set(found) == able, name


def test_every_behaviour_of_the_table_is_tried() -> None:
    assert set(TRIED) | set(QOS) == set(BEHAVIOURS)
    assert cannot(find_contender("mosquitto"), "2.0.11", "udp", ALL_OF_IT) == NOT_OFFERED
