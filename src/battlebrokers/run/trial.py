"""The trial of a contender: whether it does what its file says, over every protocol it offers, with real links.

Called by `bb brokers test` and by the contract matrix: both go through the cells of the table of capabilities.
Registers and connects as a run does, but measures nothing and keeps no evidence.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from battlebrokers.contenders.broker_url import parse_broker_url
from battlebrokers.contenders.capability_table import QOS, WAYS_IN, bridge, cannot, cells_of
from battlebrokers.contenders.handshake import accepts
from battlebrokers.contenders.lifecycle import RunningContender
from battlebrokers.contenders.offers import offers_of
from battlebrokers.contenders.spec import Contender
from battlebrokers.errors import BattleError
from battlebrokers.protocols.base import Completion
from battlebrokers.protocols.registry import link_class
from battlebrokers.protocols.script import Script
from battlebrokers.run.crew import Crew, Route, assembled
from battlebrokers.run.exchanges import TRIED, BrokenPromiseError, NotHeardError

_IMPOSSIBLE_STATUS = 599
_UNEXPECTED = "an unexpected answer is told as such"
_LISTS = "it lists what was registered"
_FIRST = ("publish", "subscribe")
"""Without these nothing else of a route can hold."""
_DATAGRAM_TRIES = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was tried; `holds` is None when it is not offered or could not be tried."""

    route: str
    what: str
    holds: bool | None
    detail: str = ""

    @property
    def is_bridge(self) -> bool:
        """Whether it is about publishers on one protocol and clients on another, which no file promises."""
        return self.what.startswith(bridge(""))


class Trial:
    """Tries one running contender; `tell` hears each finding at once."""

    def __init__(
        self, running: RunningContender, contender: Contender, tell: Callable[[Finding], None] = lambda _: None
    ) -> None:
        self._running = running
        self._contender = contender
        self._offers = offers_of(contender)
        self._tell = tell
        self._rounds = 0
        self._listed: int | None = None
        self.findings: list[Finding] = []

    async def run(self) -> list[Finding]:
        """Every cell of the table, route by route, then publishers on one protocol and clients on another."""
        version = "" if self._contender.run.external else self._running.version
        missing = self._missing_links()
        nobody = "" if any(offer.receives for offer in self._offers.values()) else "it tells nobody, so nobody can say"
        told: set[str] = set()
        broken: set[str] = set()
        for route, what in cells_of(self._contender):
            lacking = {way: missing[way] for way in (route, what.removeprefix(bridge(""))) if way in missing}
            reason = cannot(self._contender, version, route, what) or nobody
            if lacking:
                for way in lacking.keys() - told:
                    self._note(way, "connecting", None, lacking[way])
                    told.add(way)
            elif reason:
                self._note(route, what, None, reason)
            elif route in broken:
                self._note(route, what, None, "not tried, because a plain message failed")
            elif not await self._holds(route, what) and what in _FIRST:
                broken.add(route)
            if self._listed is not None and not any(finding.what == _LISTS for finding in self.findings):
                self._note("", _LISTS, True, f"{self._listed} listed")
            if what == "publish" and not lacking and not reason and route not in broken:
                await self._try_wrong_answer(route)
        return self.findings

    async def hold(self, route: str, what: str) -> None:
        """Try one cell; raises BrokenPromiseError when it does not hold, BattleError when it cannot even begin."""
        # A datagram may be lost on a busy machine, and nobody repeats it: that is not what this is about.
        tries_left = _DATAGRAM_TRIES if route == "udp" else 1
        while tries_left:
            tries_left -= 1
            async with self.crew(self._speaks(route), self._hears(route, what), qos=QOS.get(what)) as crew:
                self._listed = crew.listed
                try:
                    await TRIED[what if what in TRIED else "publish"](crew)
                except NotHeardError:
                    if not tries_left:
                        raise
                    continue
                if crew.ear.trouble:
                    raise BrokenPromiseError(crew.ear.trouble[-1])
                return

    def crew(
        self, speaks: Route, hears: Route, *, qos: int | None = None, script: Script | None = None
    ) -> contextlib.AbstractAsyncContextManager[Crew]:
        """A crew of its own for one try; see `assembled`."""
        self._rounds += 1
        return assembled(self._running, speaks, hears, f"trial{self._rounds}", qos=qos, script=script)

    def _missing_links(self) -> dict[str, str]:
        """Route → why we cannot speak its protocol here."""
        found = {}
        for route in dict.fromkeys(route for route, _ in cells_of(self._contender)):
            protocol, _ = WAYS_IN[route]
            try:
                able = link_class(protocol, scripted=self._offers[protocol].scripted).capabilities
            except BattleError as error:
                found[route] = error.message
                continue
            if not able.transports:
                found[route] = "we have no link for it"
        return found

    def _speaks(self, route: str) -> Route:
        """Where devices publish: there, or where they can."""
        if self._offers[WAYS_IN[route][0]].publishes:
            return Route(*WAYS_IN[route])
        offer = next((offer for offer in self._offers.values() if offer.publishes), None)
        if offer is None:
            raise BrokenPromiseError("nobody can publish to it")
        return Route(offer.protocol, offer.endpoints[0])

    def _hears(self, route: str, what: str) -> Route:
        """Where clients listen: there, or where they can."""
        if what.startswith(bridge("")):
            return Route(*WAYS_IN[what.removeprefix(bridge(""))])
        if self._offers[WAYS_IN[route][0]].receives:
            return Route(*WAYS_IN[route])
        offer = next(offer for offer in self._offers.values() if offer.receives)
        return Route(offer.protocol, offer.endpoints[0])

    async def _holds(self, route: str, what: str) -> bool:
        try:
            await self.hold(route, what)
        except BattleError as error:
            self._note(route, what, False, error.message)
            return False
        self._note(route, what, True)
        return True

    async def _try_wrong_answer(self, route: str) -> None:
        """With an answer it cannot give declared to be the right one, a publish must not count as done."""
        protocol, _ = WAYS_IN[route]
        script = self._running.scripts.get(protocol)
        if script is None or script.publish is None or protocol not in ("http", "coap"):
            return
        wrong = msgspec.structs.replace(script.publish, statuses=[_IMPOSSIBLE_STATUS])
        unfit = msgspec.structs.replace(script, publish=wrong)
        try:
            async with self.crew(self._speaks(route), self._hears(route, "publish"), script=unfit) as crew:
                token = crew.publish(0, b"unexpected")
                answered = await crew.until(lambda: token in crew.ear.ended)
                how, _ = crew.ear.ended.get(token, (None, 0))
                held = answered and how is not Completion.ACKED
                self._note(route, _UNEXPECTED, held, "" if held else "it counted as published")
        except BattleError as error:
            self._note(route, _UNEXPECTED, False, error.message)

    def _note(self, route: str, what: str, holds: bool | None, detail: str = "") -> None:
        finding = Finding(route, what, holds, detail)
        self.findings.append(finding)
        self._tell(finding)


def stopped(contender: RunningContender) -> Finding:
    """Whether it is gone: asked after it was told to stop. Nobody can ask for ports of datagrams."""
    left = contender.alive() and contender.process is not None
    urls = [parse_broker_url(url, key=key) for key, url in contender.endpoints.items()]
    still = [url.shown for url in urls if url.transport != "udp" and accepts(url.host, url.port, 0.5)]
    detail = "it still runs" if left else f"something still listens at {still[0]}" if still else ""
    return Finding("", "it stops and leaves nothing behind", not detail, detail)
