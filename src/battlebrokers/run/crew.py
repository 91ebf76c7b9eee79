"""The crew of a trial: two devices and two clients with real links, registered, connected and subscribed as in a run.

Used by `trial` and by the contract suite. Publishes only what it is told to, measures nothing and keeps no evidence.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from battlebrokers.contenders.lifecycle import RunningContender
from battlebrokers.devices.controller import Registered
from battlebrokers.errors import BattleError
from battlebrokers.protocols.base import Arrivals, Completion, EqualArrivals, Failure, Link, Outgoing, Subscription
from battlebrokers.protocols.script import Script
from battlebrokers.run.linking import Linking
from battlebrokers.run.messages import Prepare
from battlebrokers.run.registering import Registering
from battlebrokers.scenario.model import Scenario
from battlebrokers.scenario.plan import Plan, build_plan
from battlebrokers.scratch import Scratch

WITHIN_S = 15.0
TOPICS = ("bb-trial/one", "bb-trial/two")
"""The first device publishes on the first, the second on the second."""
EVERYTHING, FIRST = "everything", "first"
"""The two clients: one listens to both topics, one to the first."""


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
class Ear:
    """Remembers what links tell."""

    heard: list[tuple[object, bytes]] = field(default_factory=list)
    """Client and payload, in the order of arrival."""
    ended: dict[int, tuple[Completion, int]] = field(default_factory=dict)
    """By the token of a publish: how it ended, and with which reason."""
    trouble: list[str] = field(default_factory=list)
    """Closed connections, and what could not be read."""

    def now_ns(self) -> int:
        """Any clock will do."""
        return time.monotonic_ns()

    def acknowledged(self, link: Link, tokens: Sequence[int], at_ns: int, completion: Completion, reason: int) -> None:  # noqa: ARG002
        """Publishes have ended."""
        self.ended |= dict.fromkeys(tokens, (completion, reason))

    def resent(self, link: Link, tokens: Sequence[int]) -> None:
        """Nothing to remember."""

    def arrived(self, link: Link, at_ns: int, flags: int, topic: bytes, payload: bytes, wire_size: int) -> None:  # noqa: ARG002
        """A message came."""
        self.heard.append((link.owner, payload))

    def arrived_many(self, link: Link, at_ns: int, arrivals: Arrivals | EqualArrivals) -> None:  # noqa: ARG002
        """Messages came."""
        for start, size in zip(arrivals.payload_starts.tolist(), arrivals.payload_sizes.tolist(), strict=True):
            self.heard.append((link.owner, arrivals.data[start : start + size]))

    def writable(self, link: Link) -> None:
        """We ask for room ourselves."""

    def closed(self, link: Link, detail: str, reason: int) -> None:  # noqa: ARG002
        """Somebody else ended it."""
        self.trouble.append(f"the connection of {link.owner} was closed: {detail}")

    def malformed(self, link: Link, detail: str, kind: Failure = Failure.MALFORMED) -> None:  # noqa: ARG002
        """Nobody could read it."""
        self.trouble.append(f"{link.owner} was told something it cannot read: {detail}")


@dataclass
class Crew:
    """Two devices, one who listens to both and one who listens to the first."""

    ear: Ear
    devices: list[Link]
    clients: list[Link]
    qos: int
    tokens: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    listed: int | None = None
    """How many its contender listed when all was registered."""

    def publish(self, device: int, payload: bytes, *, retain: bool = False) -> int:
        """Let a device publish on its topic; returns by what its end is known."""
        token = next(self.tokens)
        self.devices[device].publish(Outgoing(TOPICS[device].encode(), [payload], self.qos, retain, token))
        return token

    async def until(self, condition: Callable[[], bool]) -> bool:
        """Wait for it, but not for ever; whether it holds."""
        until = time.monotonic() + WITHIN_S
        while not condition() and time.monotonic() < until:  # noqa: ASYNC110 - links tell in many ways
            await asyncio.sleep(0.005)
        return condition()

    def has(self, owner: str, payload: bytes) -> bool:
        """Whether that client heard this."""
        return (owner, payload) in self.ear.heard

    def not_acked(self, token: int) -> str:
        """How a publish ended, if not well."""
        how, reason = self.ear.ended.get(token, (None, 0))
        if how is None:
            return "no answer came"
        return "" if how is Completion.ACKED else f"{how.name.lower()}, {reason}"

    @property
    def why(self) -> str:
        """Why nothing came, as far as anybody knows."""
        return self.ear.trouble[-1] if self.ear.trouble else f"nothing came within {WITHIN_S:g} s"


@contextlib.asynccontextmanager
async def assembled(
    contender: RunningContender,
    speaks: Route,
    hears: Route,
    run_id: str,
    *,
    qos: int | None = None,
    script: Script | None = None,
) -> AsyncIterator[Crew]:
    """Everybody registered, connected and subscribed; all leave and are removed again.

    With `qos` clients ask for it and devices publish with it, else one is chosen that is answered. `script` is spoken
    in the place of the contender's own over its protocol.
    """
    plan = build_plan(_scenario(speaks, hears, qos), 1, run_id)
    ear = Ear()
    registering = Registering(contender, plan, ear.now_ns, lambda _done, _of: None)
    opened: list[Link] = []
    try:
        registered = await registering.register()
        linking = Linking(_order(contender, plan, registered, script), plan, ear)
        devices = [linking.link("device", node) for node in plan.devices()]
        clients = [linking.link("client", node) for node in plan.clients()]
        for link, owner in zip((*clients, *devices), (EVERYTHING, FIRST, "device 1", "device 2"), strict=True):
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
        qos = _answered_qos(contender, speaks, devices[0]) if qos is None else qos
        yield Crew(ear, devices, clients, qos, listed=registering.listed)
    finally:
        for link in reversed(opened):
            with contextlib.suppress(BattleError):
                await link.close()
        with Scratch("bb-crew-") as nowhere:
            await registering.remove(nowhere)


def _answered_qos(contender: RunningContender, speaks: Route, link: Link) -> int:
    """One that is answered, if there is one."""
    broker = contender.capabilities
    most = broker.qos if speaks.protocol == "mqtt" and broker is not None else 1
    asked = [qos for qos in sorted(link.capabilities.qos) if qos <= most]
    return next((qos for qos in asked if qos in link.capabilities.acknowledges), asked[0])


def _order(contender: RunningContender, plan: Plan, registered: Registered, script: Script | None) -> Prepare:
    username, password = contender.credentials
    scripts = dict(contender.scripts)
    if script is not None:
        scripts[script.protocol] = script
    return Prepare(
        run=plan.run_id,
        worker="trial",
        plan=b"",
        share=0,
        of=1,
        endpoints=contender.endpoints,
        evidence="",
        boot_id="",
        anchor_monotonic_ns=0,
        anchor_wall_ns=0,
        username=username,
        password=password.reveal() if password is not None else None,
        scripts=scripts,
        known_by_all=registered.by_all,
        known=registered.nodes,
        known_of_topics=registered.topics,
    )


def _scenario(speaks: Route, hears: Route, qos: int | None) -> Scenario:
    """Two devices and two clients that never get to say anything by themselves."""

    def way(route: Route) -> dict[str, str]:
        return {"protocol": route.protocol} | ({"transport": route.endpoint} if route.protocol == "mqtt" else {})

    talk = {"devices": 1, "payload": {"random_bytes": "32 B"}, "every": "1s", **way(speaks)}
    asked = way(hears) | ({} if qos is None else {"qos": qos})
    return Scenario.model_validate(
        {
            "name": "trial",
            "about": "Whether a contender does what its file says.",
            "fleets": {"one": {**talk, "topic": TOPICS[0]}, "two": {**talk, "topic": TOPICS[1]}},
            "clients": {
                EVERYTHING: {"count": 1, "subscribe": ["bb-trial/+"], **asked},
                FIRST: {"count": 1, "subscribe": [TOPICS[0]], **asked},
            },
            "phases": {"measure": "1s"},
        }
    )
