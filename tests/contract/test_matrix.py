"""Every shipped contender over every protocol: one suite, through the crew that `bb brokers test` sends.

What a file says it cannot do is skipped with that reason, and what cannot run here with what is missing.
`BB_RECORD=1` writes what was seen to seen.json, which docs/reference/capabilities.md is made of.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from battlebrokers.contenders.availability import Missing, availability
from battlebrokers.contenders.capability_table import (
    BEHAVIOURS,
    LARGE_BYTES,
    NOT_OFFERED,
    QOS,
    ROUTES,
    bridge,
    cannot,
    cells_of,
)
from battlebrokers.contenders.lifecycle import start_contender
from battlebrokers.contenders.offers import offers_of
from battlebrokers.contenders.reader import find_contender, load_contenders
from battlebrokers.contenders.spec import Contender
from battlebrokers.protocols.base import Subscription
from battlebrokers.run.crew import EVERYTHING, FIRST, TOPICS, Crew, Route
from battlebrokers.run.trial import QUIET_S, Trial
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
KNOWN_NOT_TO_WORK: dict[tuple[str, str, str], str] = {}
"""Contender, route and behaviour → why it fails where nobody can help it."""
Try = Callable[[Crew], Awaitable[None]]
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
            self._trial = Trial(running, offers_of(self.contender))
        return self._trial

    def route(self, name: str) -> Route:
        return Route(*ROUTES[name])

    def heard_over(self, route: str, what: str) -> Route:
        """Where clients listen: there, or where they can."""
        offers = offers_of(self.contender)
        if what.startswith(bridge("")):
            return self.route(what.removeprefix(bridge("")))
        if offers[ROUTES[route][0]].receives:
            return self.route(route)
        offer = next(offer for offer in offers.values() if offer.receives)
        return Route(offer.protocol, offer.endpoints[0])

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
            expected = [pytest.mark.xfail(strict=True, reason=known)] if known else []
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
        pytest.skip(f"the broker cannot: {reason}")
    if stage.not_run:
        pytest.skip(f"not run here: {stage.not_run}")
    known = KNOWN_NOT_TO_WORK.get((name, route, what))
    seen = stage.seen.setdefault(route, {})
    if known:
        seen[what] = known
    # A datagram may be lost on a busy machine, and nobody repeats it: that is not what this is about.
    tries_left = 3 if route == "udp" else 1
    while tries_left:
        tries_left -= 1
        async with stage.trial.crew(stage.route(route), stage.heard_over(route, what), qos=QOS.get(what)) as crew:
            try:
                await TRIED[what if what in TRIED else "publish"](crew)
                assert not crew.ear.trouble
                break
            except NotHeardError:
                if not tries_left:
                    raise
    seen[what] = "works"


class NotHeardError(AssertionError):
    """Somebody did not hear what was said; all else that can be wrong is no matter of luck."""


async def exchange(crew: Crew, payload: bytes, device: int = 0, clients: tuple[str, ...] = (EVERYTHING,)) -> None:
    """One message, answered if it can be, and heard by those clients."""
    token = crew.publish(device, payload)
    came = await crew.until(lambda: all(crew.has(client, payload) for client in clients))
    if not came:
        raise NotHeardError(crew.not_acked(token) or crew.why)
    if crew.qos in crew.devices[device].capabilities.acknowledges:
        assert await crew.until(lambda: token in crew.ear.ended), "no answer came"
        assert crew.not_acked(token) == ""


def marked(*texts: bytes) -> list[bytes]:
    """Payloads nobody has sent before: some contenders tell a new client the last message of an earlier crew."""
    mark = os.urandom(8)
    return [mark + text for text in texts]


def told(crew: Crew, said: list[bytes]) -> list[tuple[object, bytes]]:
    """Who heard what of this crew, in order."""
    return [(owner, payload) for owner, payload in crew.ear.heard if payload[:8] == said[0][:8]]


async def heard(crew: Crew) -> None:
    await exchange(crew, marked(b'{"temperature": 21.5}')[0])


async def exactly_once(crew: Crew) -> None:
    said = marked(b"", b"a" * 300, b"\x00\xff\r\n", b'"}')
    for payload in said:
        # One after the other: an observer over CoAP may be told the latest only.
        await exchange(crew, payload, clients=(EVERYTHING, FIRST))
    await asyncio.sleep(QUIET_S)
    for client in (EVERYTHING, FIRST):
        assert [payload for owner, payload in told(crew, said) if owner == client] == said


async def topics(crew: Crew) -> None:
    one, two = said = marked(b"one", b"two")
    await exchange(crew, one, 0, (EVERYTHING, FIRST))
    await exchange(crew, two, 1)
    await asyncio.sleep(QUIET_S)
    assert Counter(told(crew, said)) == Counter([(EVERYTHING, one), (FIRST, one), (EVERYTHING, two)])


async def wildcards(crew: Crew) -> None:
    # The client of everything asks for one filter only; see Linking.subscriptions.
    assert crew.clients[0].capabilities.wildcards
    one, two = marked(b"one", b"two")
    await exchange(crew, one, 0)
    await exchange(crew, two, 1)


async def retain(crew: Crew) -> None:
    (payload,) = marked(b"kept")
    crew.publish(0, payload, retain=True)
    assert await crew.until(lambda: crew.has(FIRST, payload)), crew.why
    times = Counter(crew.ear.heard)[FIRST, payload]
    await crew.clients[1].subscribe([Subscription(TOPICS[0], 0)])
    assert await crew.until(lambda: Counter(crew.ear.heard)[FIRST, payload] > times), "it was not kept"
    crew.publish(0, b"", retain=True)
    assert await crew.until(lambda: crew.has(FIRST, b"")), crew.why


TRIED: dict[str, Try] = {
    "publish": heard,
    "subscribe": heard,
    "exactly once": exactly_once,
    "one byte": lambda crew: exchange(crew, b"\x00"),
    "binary": lambda crew: exchange(crew, marked(bytes(range(256)))[0]),
    "64 KiB": lambda crew: exchange(crew, os.urandom(LARGE_BYTES)),
    "topics": topics,
    "wildcards": wildcards,
    "retain": retain,
}


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
