"""The trial of a contender: whether it does what its file says, over every protocol it offers, with real links.

Called by `bb brokers test`. Registers and connects as a run does, but measures nothing and keeps no evidence.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from battlebrokers.contenders.broker_url import parse_broker_url
from battlebrokers.contenders.handshake import accepts
from battlebrokers.contenders.lifecycle import RunningContender
from battlebrokers.contenders.offers import Offer
from battlebrokers.devices.controller import Registered
from battlebrokers.errors import BattleError
from battlebrokers.protocols.base import Arrivals, Completion, EqualArrivals, Link, Outgoing, Subscription
from battlebrokers.protocols.registry import link_class
from battlebrokers.protocols.script import Script
from battlebrokers.run.linking import Linking
from battlebrokers.run.messages import Prepare
from battlebrokers.run.registering import Registering
from battlebrokers.scenario.model import Scenario
from battlebrokers.scenario.plan import Plan, build_plan

WITHIN_S = 15.0
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


@dataclass(frozen=True, slots=True)
class Route:
    """A way in: a protocol, and for MQTT a transport."""

    protocol: str
    endpoint: str

    @property
    def name(self) -> str:
        """For people."""
        return self.protocol if self.endpoint in (self.protocol, "tcp") else f"{self.protocol} over {self.endpoint}"


@dataclass
class _Ear:
    """Remembers what links tell."""

    heard: list[tuple[object, bytes]] = field(default_factory=list)
    ended: dict[int, tuple[Completion, int]] = field(default_factory=dict)
    trouble: list[str] = field(default_factory=list)

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def acknowledged(self, link: Link, tokens: Sequence[int], at_ns: int, completion: Completion, reason: int) -> None:  # noqa: ARG002
        self.ended |= dict.fromkeys(tokens, (completion, reason))

    def resent(self, link: Link, tokens: Sequence[int]) -> None:
        """Nothing to remember."""

    def arrived(self, link: Link, at_ns: int, flags: int, topic: bytes, payload: bytes, wire_size: int) -> None:  # noqa: ARG002
        self.heard.append((link.owner, payload))

    def arrived_many(self, link: Link, at_ns: int, arrivals: Arrivals | EqualArrivals) -> None:  # noqa: ARG002
        for start, size in zip(arrivals.payload_starts.tolist(), arrivals.payload_sizes.tolist(), strict=True):
            self.heard.append((link.owner, arrivals.data[start : start + size]))

    def writable(self, link: Link) -> None:
        """We ask for room ourselves."""

    def closed(self, link: Link, detail: str, reason: int) -> None:  # noqa: ARG002
        self.trouble.append(f"the connection of {link.owner} was closed: {detail}")

    def malformed(self, link: Link, detail: str) -> None:
        self.trouble.append(f"{link.owner} was told something it cannot read: {detail}")


@dataclass
class _Crew:
    """Two devices, one who listens to both and one who listens to the first."""

    ear: _Ear
    devices: list[Link]
    clients: list[Link]
    qos: int
    tokens: Iterator[int] = field(default_factory=lambda: iter(range(1, 1 << 30)))

    def publish(self, device: int, topic: str, payload: bytes) -> int:
        token = next(self.tokens)
        self.devices[device].publish(Outgoing(topic.encode(), [payload], self.qos, False, token))
        return token

    async def until(self, condition: Callable[[], bool]) -> bool:
        until = time.monotonic() + WITHIN_S
        while not condition() and time.monotonic() < until:  # noqa: ASYNC110 - links tell in many ways
            await asyncio.sleep(0.005)
        return condition()

    def has(self, owner: str, payload: bytes) -> bool:
        return (owner, payload) in self.ear.heard

    def not_acked(self, token: int) -> str:
        """How a publish ended, if not well."""
        how, reason = self.ear.ended.get(token, (None, 0))
        if how is None:
            return "no answer came"
        return "" if how is Completion.ACKED else f"{how.name.lower()}, {reason}"

    @property
    def why(self) -> str:
        return self.ear.trouble[-1] if self.ear.trouble else f"nothing came within {WITHIN_S:g} s"


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
            async with self._crew(speaks, hears) as crew:
                self._note(name, "registering, connecting, subscribing", True)
                await self._try_payloads(name, crew, self._offers[speaks.protocol].largest_payload_bytes)
                if crew.ear.heard:
                    await self._try_apart(name, crew)
                    await self._try_wildcards(name, hears, crew)
        except BattleError as error:
            self._note(name, "registering, connecting, subscribing", False, error.message)
            return
        await self._try_wrong_answer(name, speaks, hears)

    async def _try_payloads(self, name: str, crew: _Crew, largest_bytes: int | None) -> None:
        able = crew.devices[0].capabilities
        limits = [limit for limit in (able.largest_payload_bytes, largest_bytes) if limit is not None]
        for what, payload in PAYLOADS.items():
            if limits and len(payload) > min(limits):
                self._note(name, what, None, f"at most {min(limits)} bytes are offered")
                continue
            if self.findings[-1].holds is False and what != _FIRST:
                self._note(name, what, None, "not tried, because the one before failed")
                continue
            token = crew.publish(0, _TOPICS[0], payload)
            came = await crew.until(lambda sent=payload: crew.has("everything", sent))  # type: ignore[misc]
            if what == _FIRST and crew.qos in able.acknowledges:
                await crew.until(lambda sent=token: sent in crew.ear.ended)  # type: ignore[misc]
                detail = crew.not_acked(token)
                self._note(name, "a publish is answered", not detail, detail)
            told = crew.not_acked(token) if token in crew.ear.ended else ""
            self._note(name, what, came, "" if came else told or crew.why)

    async def _try_apart(self, name: str, crew: _Crew) -> None:
        payload = b"for those who listen to the second topic"
        crew.publish(1, _TOPICS[1], payload)
        came = await crew.until(lambda: crew.has("everything", payload))
        await asyncio.sleep(QUIET_S)
        apart = not crew.has("first", payload)
        detail = "" if came and apart else "told to a client of another topic" if came else crew.why
        self._note(name, "topics are kept apart", came and apart, detail)

    async def _try_wildcards(self, name: str, hears: Route, crew: _Crew) -> None:
        script = self._contender.scripts.get(hears.protocol)
        able = crew.clients[0].capabilities.wildcards and (
            script is None or (script.listening is not None and script.listening.wildcards)
        )
        if not able:
            self._note(name, "wildcards", None, "not offered; each topic is subscribed to by itself")
            return
        # The client of everything asked for one filter, and both topics came to it.
        came = sum(owner == "everything" for owner, _ in crew.ear.heard) > 1
        self._note(name, "wildcards", came, "" if came else crew.why)

    async def _try_wrong_answer(self, name: str, speaks: Route, hears: Route) -> None:
        """With an answer it cannot give declared to be the right one, a publish must not count as done."""
        script = self._contender.scripts.get(speaks.protocol)
        if script is None or script.publish is None or speaks.protocol not in ("http", "coap"):
            return
        wrong = msgspec.structs.replace(script.publish, statuses=[_IMPOSSIBLE_STATUS])
        try:
            async with self._crew(speaks, hears, msgspec.structs.replace(script, publish=wrong)) as crew:
                token = crew.publish(0, _TOPICS[0], b"unexpected")
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
        try:
            async with self._crew(speaks, hears) as crew:
                payload = next(iter(PAYLOADS.values()))
                crew.publish(0, _TOPICS[0], payload)
                came = await crew.until(lambda: crew.has("everything", payload))
                self._note(name, "bridges", came, "" if came else crew.why)
        except BattleError as error:
            self._note(name, "bridges", False, error.message)

    @contextlib.asynccontextmanager
    async def _crew(self, speaks: Route, hears: Route, script: Script | None = None) -> AsyncIterator[_Crew]:
        """Everybody registered, connected and subscribed; all leave and are removed again."""
        self._rounds += 1
        plan = build_plan(_scenario(speaks, hears), 1, f"trial{self._rounds}")
        ear = _Ear()
        registering = Registering(self._contender, plan, ear.now_ns, lambda _done, _of: None)
        opened: list[Link] = []
        try:
            registered = await registering.register()
            linking = Linking(self._order(plan, registered, script), plan, ear)
            devices = [linking.link("device", node) for node in plan.devices()]
            clients = [linking.link("client", node) for node in plan.clients()]
            for link, owner in zip((*clients, *devices), ("everything", "first", "device 1", "device 2"), strict=True):
                link.owner = owner
            for link, client in zip(clients, plan.clients(), strict=True):
                await link.open()
                opened.append(link)
                wanted = [Subscription(f.filter, f.qos, f.share) for f in linking.subscriptions(client)]
                refused = [str(each.reason) for each in await link.subscribe(wanted) if each.qos < 0]
                if refused:
                    raise BattleError(f"a subscription was refused ({refused[0]})")
            for link in devices:
                await link.open()
                opened.append(link)
            yield _Crew(ear, devices, clients, self._qos(speaks, devices[0]))
        finally:
            for link in reversed(opened):
                with contextlib.suppress(BattleError):
                    await link.close()
            with tempfile.TemporaryDirectory() as nowhere:
                await registering.remove(Path(nowhere))

    def _qos(self, speaks: Route, link: Link) -> int:
        """One that is answered, if there is one."""
        broker = self._contender.capabilities
        most = broker.qos if speaks.protocol == "mqtt" and broker is not None else 1
        asked = [qos for qos in sorted(link.capabilities.qos) if qos <= most]
        return next((qos for qos in asked if qos in link.capabilities.acknowledges), asked[0])

    def _order(self, plan: Plan, registered: Registered, script: Script | None) -> Prepare:
        username, password = self._contender.credentials
        scripts = dict(self._contender.scripts)
        if script is not None:
            scripts[script.protocol] = script
        return Prepare(
            run=plan.run_id,
            worker="trial",
            plan=b"",
            share=0,
            of=1,
            endpoints=self._contender.endpoints,
            evidence="",
            boot_id="",
            anchor_monotonic_ns=0,
            anchor_wall_ns=0,
            username=username,
            password=password,
            scripts=scripts,
            known_by_all=registered.by_all,
            known=registered.nodes,
            known_of_topics=registered.topics,
        )

    def _note(self, route: str, what: str, holds: bool | None, detail: str = "") -> None:
        finding = Finding(route, what, holds, detail)
        self.findings.append(finding)
        self._tell(finding)


_TOPICS = ("bb-trial/one", "bb-trial/two")


def _scenario(speaks: Route, hears: Route) -> Scenario:
    """Two devices and two clients that never get to say anything by themselves."""

    def way(route: Route) -> dict[str, str]:
        return {"protocol": route.protocol} | ({"transport": route.endpoint} if route.protocol == "mqtt" else {})

    talk = {"devices": 1, "payload": {"random_bytes": "32 B"}, "every": "1s", **way(speaks)}
    return Scenario.model_validate(
        {
            "name": "trial",
            "about": "Whether a contender does what its file says.",
            "fleets": {"one": {**talk, "topic": _TOPICS[0]}, "two": {**talk, "topic": _TOPICS[1]}},
            "clients": {
                "everything": {"count": 1, "subscribe": ["bb-trial/+"], **way(hears)},
                "first": {"count": 1, "subscribe": [_TOPICS[0]], **way(hears)},
            },
            "phases": {"measure": "1s"},
        }
    )


def stopped(contender: RunningContender) -> Finding:
    """Whether it is gone: asked after it was told to stop. Nobody can ask for ports of datagrams."""
    left = contender.alive() and contender.process is not None
    urls = [parse_broker_url(url, key=key) for key, url in contender.endpoints.items()]
    still = [url.url for url in urls if url.transport != "udp" and accepts(url.host, url.port, 0.5)]
    detail = "it still runs" if left else f"something still listens at {still[0]}" if still else ""
    return Finding("", "it stops and leaves nothing behind", not detail, detail)
