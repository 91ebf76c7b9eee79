"""The trial of a contender: whether it does what its file says, over every protocol it offers, with real links.

Called by `bb brokers test`. Registers and connects as a run does, but measures nothing and keeps no evidence.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from battlebrokers.contenders.broker_url import parse_broker_url
from battlebrokers.contenders.handshake import accepts
from battlebrokers.contenders.lifecycle import RunningContender
from battlebrokers.contenders.offers import Offer
from battlebrokers.errors import BattleError
from battlebrokers.protocols.base import Completion
from battlebrokers.protocols.registry import link_class
from battlebrokers.protocols.script import Script
from battlebrokers.run.crew import EVERYTHING, FIRST, Crew, Route, assembled

QUIET_S = 0.4
"""How long nothing must happen before we believe that nothing will."""
_LARGE_BYTES = 64 * 1024
_IMPOSSIBLE_STATUS = 599
_UNEXPECTED = "an unexpected answer is told as such"

PAYLOADS: dict[str, bytes] = {
    "a small payload": b'{"temperature": 21.5}',
    "a payload of one byte": b"x",
    "a payload of all bytes": bytes(range(256)),
    "a payload of 64 KiB": os.urandom(_LARGE_BYTES // 2) * 2,
}


_FIRST = next(iter(PAYLOADS))


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was tried; `holds` is None when it is not offered or could not be tried."""

    route: str
    what: str
    holds: bool | None
    detail: str = ""


class Trial:
    """Tries one running contender; `tell` hears each finding at once."""

    def __init__(
        self, contender: RunningContender, offers: dict[str, Offer], tell: Callable[[Finding], None] = lambda _: None
    ) -> None:
        self._contender = contender
        self._offers = offers
        self._tell = tell
        self._rounds = 0
        self.findings: list[Finding] = []

    async def run(self) -> list[Finding]:
        """All of it, protocol by protocol, then publishers on one protocol and subscribers on another."""
        routes = [Route(offer.protocol, key) for offer in self._offers.values() for key in offer.endpoints]
        usable = [route for route in routes if self._link_is_there(route)]
        ears = [route for route in usable if self._offers[route.protocol].receives]
        for route in usable:
            offer = self._offers[route.protocol]
            if not offer.publishes:
                self._note(route.name, "publishing", None, "not offered")
            if not offer.receives:
                self._note(route.name, "subscribing", None, "not offered")
            heard_over = route if offer.receives else next(iter(ears), None)
            if offer.publishes and heard_over is not None:
                await self._try_all(route, heard_over)
        for speaks in usable:
            for hears in ears:
                bridged = speaks.protocol != hears.protocol
                if bridged and self._offers[speaks.protocol].publishes and self._offers[speaks.protocol].receives:
                    await self._try_bridge(speaks, hears)
        return self.findings

    def _link_is_there(self, route: Route) -> bool:
        scripted = self._offers[route.protocol].scripted
        try:
            able = link_class(route.protocol, scripted=scripted).capabilities
        except BattleError as error:
            self._note(route.name, "connecting", None, error.message)
            return False
        return bool(able.transports)

    async def _try_all(self, speaks: Route, hears: Route) -> None:
        name = speaks.name if speaks == hears else f"{speaks.name} → {hears.name}"
        try:
            async with self.crew(speaks, hears) as crew:
                self._note(name, "registering, connecting, subscribing", True)
                await self._try_payloads(name, crew, self._offers[speaks.protocol].largest_payload_bytes)
                if crew.ear.heard:
                    await self._try_apart(name, crew)
                    await self._try_wildcards(name, hears, crew)
        except BattleError as error:
            self._note(name, "registering, connecting, subscribing", False, error.message)
            return
        await self._try_wrong_answer(name, speaks, hears)

    async def _try_payloads(self, name: str, crew: Crew, largest_bytes: int | None) -> None:
        able = crew.devices[0].capabilities
        limits = [limit for limit in (able.largest_payload_bytes, largest_bytes) if limit is not None]
        for what, payload in PAYLOADS.items():
            if limits and len(payload) > min(limits):
                self._note(name, what, None, f"at most {min(limits)} bytes are offered")
                continue
            if self.findings[-1].holds is False and what != _FIRST:
                self._note(name, what, None, "not tried, because the one before failed")
                continue
            token = crew.publish(0, payload)
            came = await crew.until(lambda sent=payload: crew.has(EVERYTHING, sent))  # type: ignore[misc]
            if what == _FIRST and crew.qos in able.acknowledges:
                await crew.until(lambda sent=token: sent in crew.ear.ended)  # type: ignore[misc]
                detail = crew.not_acked(token)
                self._note(name, "a publish is answered", not detail, detail)
            told = crew.not_acked(token) if token in crew.ear.ended else ""
            self._note(name, what, came, "" if came else told or crew.why)

    async def _try_apart(self, name: str, crew: Crew) -> None:
        payload = b"for those who listen to the second topic"
        crew.publish(1, payload)
        came = await crew.until(lambda: crew.has(EVERYTHING, payload))
        await asyncio.sleep(QUIET_S)
        apart = not crew.has(FIRST, payload)
        detail = "" if came and apart else "told to a client of another topic" if came else crew.why
        self._note(name, "topics are kept apart", came and apart, detail)

    async def _try_wildcards(self, name: str, hears: Route, crew: Crew) -> None:
        script = self._contender.scripts.get(hears.protocol)
        able = crew.clients[0].capabilities.wildcards and (
            script is None or (script.listening is not None and script.listening.wildcards)
        )
        if not able:
            self._note(name, "wildcards", None, "not offered; each topic is subscribed to by itself")
            return
        # The client of everything asked for one filter, and both topics came to it.
        came = sum(owner == EVERYTHING for owner, _ in crew.ear.heard) > 1
        self._note(name, "wildcards", came, "" if came else crew.why)

    async def _try_wrong_answer(self, name: str, speaks: Route, hears: Route) -> None:
        """With an answer it cannot give declared to be the right one, a publish must not count as done."""
        script = self._contender.scripts.get(speaks.protocol)
        if script is None or script.publish is None or speaks.protocol not in ("http", "coap"):
            return
        wrong = msgspec.structs.replace(script.publish, statuses=[_IMPOSSIBLE_STATUS])
        try:
            async with self.crew(speaks, hears, script=msgspec.structs.replace(script, publish=wrong)) as crew:
                token = crew.publish(0, b"unexpected")
                answered = await crew.until(lambda: token in crew.ear.ended)
                how, _ = crew.ear.ended.get(token, (None, 0))
                held = answered and how is not Completion.ACKED
                self._note(
                    name, "an unexpected answer is told as such", held, "" if held else "it counted as published"
                )
        except BattleError as error:
            self._note(name, "an unexpected answer is told as such", False, error.message)

    async def _try_bridge(self, speaks: Route, hears: Route) -> None:
        name = f"{speaks.name} → {hears.name}"
        if speaks.protocol in self._offers[hears.protocol].deaf_to:
            self._note(name, "bridges", None, self._offers[hears.protocol].deaf_to[speaks.protocol])
            return
        try:
            async with self.crew(speaks, hears) as crew:
                payload = next(iter(PAYLOADS.values()))
                crew.publish(0, payload)
                came = await crew.until(lambda: crew.has(EVERYTHING, payload))
                self._note(name, "bridges", came, "" if came else crew.why)
        except BattleError as error:
            self._note(name, "bridges", False, error.message)

    def crew(
        self, speaks: Route, hears: Route, *, qos: int | None = None, script: Script | None = None
    ) -> contextlib.AbstractAsyncContextManager[Crew]:
        """A crew of its own for one try; see `assembled`."""
        self._rounds += 1
        return assembled(self._contender, speaks, hears, f"trial{self._rounds}", qos=qos, script=script)

    def _note(self, route: str, what: str, holds: bool | None, detail: str = "") -> None:
        finding = Finding(route, what, holds, detail)
        self.findings.append(finding)
        self._tell(finding)


def stopped(contender: RunningContender) -> Finding:
    """Whether it is gone: asked after it was told to stop. Nobody can ask for ports of datagrams."""
    left = contender.alive() and contender.process is not None
    urls = [parse_broker_url(url, key=key) for key, url in contender.endpoints.items()]
    still = [url.url for url in urls if url.transport != "udp" and accepts(url.host, url.port, 0.5)]
    detail = "it still runs" if left else f"something still listens at {still[0]}" if still else ""
    return Finding("", "it stops and leaves nothing behind", not detail, detail)
