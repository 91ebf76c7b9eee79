"""The controller: registers a run's topics, devices and clients with a middleware over HTTP, and removes them again.

Called by the orchestrator before the worker connects anybody and when all have left. It never publishes. Every call
is a row of `operations`.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import aiohttp
import yarl

from battlebrokers.contenders.broker_url import BrokerUrl
from battlebrokers.contenders.model import facts_of
from battlebrokers.devices.node import outcome_of
from battlebrokers.errors import ContenderError, InputError
from battlebrokers.protocols import phrase
from battlebrokers.protocols.base import Failure
from battlebrokers.protocols.script import Known, Say, Script
from battlebrokers.scenario.plan import ClientPlan, DevicePlan, Plan
from battlebrokers.secrets import masked_document, masked_text, remember_named
from battlebrokers.visible import visible

if TYPE_CHECKING:
    from battlebrokers.contenders.dialogue import Registration

CALLS_AT_ONCE = 16
_CALL_TIMEOUT_S = 30.0
_TOLD_BYTES = 200
_LISTENER = re.compile(r"\$\{listener\.([a-z][a-z0-9_]*)")

Row = tuple[Any, ...]
"""One row of `operations`."""


@dataclass(slots=True)
class Registered:
    """What the middleware told us; what links may use in their templates."""

    by_all: Known = field(default_factory=dict)
    nodes: dict[str, Known] = field(default_factory=dict)
    """By `device 7` or `client 0`."""
    topics: dict[str, Known] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Subject:
    """Somebody or something to register; `known` grows with what is kept."""

    role: str
    number: int
    known: dict[str, Any]
    kept: Known
    topic: str | None = None

    @property
    def name(self) -> str:
        """For people."""
        return self.topic if self.topic is not None else str(self.known.get("name", self.role))


class Controller:
    """Registers one run, and removes what it registered; `watch` hears how many of how many calls are done."""

    def __init__(
        self,
        registration: Registration,
        url: BrokerUrl,
        plan: Plan,
        known_by_all: Known,
        now_ns: Callable[[], int],
        watch: Callable[[int, int], None] = lambda _done, _of: None,
    ) -> None:
        self._steps = registration
        self._plan = plan
        self._base = f"{'https' if url.transport == 'tls' else 'http'}://{url.place}{url.path}"
        self._now_ns = now_ns
        self._watch = watch
        self._stopped = False
        self._done = self._of = 0
        self._made: dict[str, list[_Subject]] = {
            "controller": [], "resource": [], "attribute": [], "device": [], "client": [],
        }  # fmt: skip
        self._by_all: Known = dict(known_by_all)
        self.listed: int | None = None
        """How many the middleware listed when all was registered; None where nobody asks."""
        self.rows: list[Row] = []
        """Every call so far, for `operations`."""

    def stop(self) -> None:
        """Register nobody else; who is registered can still be removed."""
        self._stopped = True

    async def register(self) -> Registered:
        """Log in, register topics, devices and clients, ask for a list; ContenderError at the first that fails."""
        steps, plan = self._steps, self._plan
        counts = {
            "resource": len(self._resource_names()) if steps.resource else 0,
            "attribute": len(plan.matching.topics) if steps.attribute else 0,
            "device": plan.device_count if steps.device else 0,
            "client": plan.client_count if steps.client else 0,
        }
        self._done, self._of = 0, sum(counts.values()) + bool(steps.login)
        async with self._session() as session:
            if steps.login:
                login = _Subject("controller", 0, dict(self._by_all), {})
                self._made["controller"].append(login)
                await self._say_all(session, "login", steps.login, login)
                self._by_all |= {f"controller.{name}": value for name, value in login.kept.items()}
            everyone = (
                ("resource", steps.resource, self._resources()),
                ("attribute", steps.attribute, self._attributes()),
                ("device", steps.device, self._nodes("device", plan.devices())),
                ("client", steps.client, self._nodes("client", plan.clients())),
            )
            for role, says, subjects in everyone:
                if says:
                    await self._in_turns(self._make(session, says, subject, self._made[role]) for subject in subjects)
            if steps.listing is not None and not self._stopped:
                await self._say(session, "list", steps.listing, _Subject("controller", 0, dict(self._by_all), {}))
        return Registered(
            self._by_all,
            {node_key(each.role, each.number): each.kept for role in ("device", "client") for each in self._made[role]},
            self._kept_of_topics(),
        )

    async def remove(self) -> int:
        """Remove clients, devices, topics and what login made; failures are recorded, and counted in the answer."""
        steps = self._steps
        backwards = (
            ("client", steps.remove_client), ("device", steps.remove_device),
            ("attribute", steps.remove_attribute), ("resource", steps.remove_resource),
            ("controller", steps.remove_controller),
        )  # fmt: skip
        self._stopped = False
        self._done, self._of = 0, sum(len(self._made[role]) for role, says in backwards if says)
        failed: list[str] = []
        async with self._session() as session:
            for role, says in backwards:
                subjects, self._made[role] = self._made[role], []
                if role == "controller":
                    # What it kept has another name for everybody, itself included.
                    subjects = [replace(each, known=dict(self._by_all)) for each in subjects]
                if says:
                    await self._in_turns(self._unmake(session, says, subject, failed) for subject in subjects)
        return len(failed)

    def _session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CALLS_AT_ONCE),
            timeout=aiohttp.ClientTimeout(total=_CALL_TIMEOUT_S),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    def _resource_names(self) -> list[str]:
        """Topics; with a model the resources they belong to, each once."""
        topics = self._plan.matching.topics
        return list(dict.fromkeys(facts_of(topic)["resource"] for topic in topics) if self._steps.has_model else topics)

    def _resources(self) -> Iterator[_Subject]:
        for number, name in enumerate(self._resource_names()):
            facts: Known = {"resource": name} if self._steps.has_model else topic_facts(name)
            yield _Subject("resource", number, {**self._by_all, **facts}, {}, name)

    def _attributes(self) -> Iterator[_Subject]:
        kept = {each.name: each.kept for each in self._made["resource"]}
        for number, topic in enumerate(self._plan.matching.topics):
            facts = facts_of(topic)
            known = {**self._by_all, "topic": topic, **facts, **kept.get(facts["resource"], {})}
            yield _Subject("attribute", number, known, {}, topic)

    def _kept_of_topics(self) -> dict[str, Known]:
        """What is known of each topic from its resource and its attribute."""
        resources = {each.name: each.kept for each in self._made["resource"]}
        if not self._steps.has_model:
            return resources
        attributes = {each.name: each.kept for each in self._made["attribute"]}
        return {
            topic: {**resources.get(facts_of(topic)["resource"], {}), **attributes.get(topic, {})}
            for topic in self._plan.matching.topics
        }

    def _nodes(self, role: str, nodes: Iterable[DevicePlan | ClientPlan]) -> Iterator[_Subject]:
        for node in nodes:
            yield _Subject(role, node.number, {**self._by_all, **node_facts(role, node)}, {})

    async def _make(
        self, session: aiohttp.ClientSession, says: Sequence[Say], who: _Subject, made: list[_Subject]
    ) -> None:
        if self._stopped:
            return
        # Noted before it is done: what was half made must be removed as well.
        made.append(who)
        await self._say_all(session, "register", says, who)

    async def _unmake(
        self, session: aiohttp.ClientSession, says: Sequence[Say], who: _Subject, failed: list[str]
    ) -> None:
        try:
            await self._say_all(session, "remove", says, who)
        except ContenderError as error:
            failed.append(error.message)
        except InputError:
            # It was never made far enough to have what its removal needs.
            return

    async def _say_all(self, session: aiohttp.ClientSession, kind: str, says: Sequence[Say], who: _Subject) -> None:
        for say in says:
            await self._say(session, kind, say, who)
        self._done += 1
        self._watch(self._done, self._of)

    async def _say(self, session: aiohttp.ClientSession, kind: str, say: Say, who: _Subject) -> None:
        target, headers, body = rendered(say, who.known)
        started_ns = self._now_ns()
        what = f"{kind} of {who.role} {who.name}: {say.verb.upper()} {target}"
        status, reason, answer, detail = 0, 0, b"", ""
        try:
            url = yarl.URL(self._base + target, encoded=True)
            async with session.request(say.verb, url, headers=headers, data=body, allow_redirects=False) as response:
                status = response.status
                answer = await response.read()
                kept, detail = heard(say, status, {k.lower(): v for k, v in response.headers.items()}, answer)
                if kind == "list" and not detail:
                    detail = self._count(answer)
                remember_named(kept)
                who.kept.update(kept)
                who.known.update(kept)
                # A good status with the wrong words is no refusal.
                reason = Failure.UNEXPECTED if detail and 200 <= status < 300 else status
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            detail = f"no proper answer ({str(error) or type(error).__name__})"
            reason = _failure(error, begun=bool(status))
        outcome = "ok" if not detail else outcome_of(reason)
        told = f"{what}: {detail}" if detail else f"{self.listed} listed" if kind == "list" else ""
        self._record(kind, who, started_ns, outcome, reason, told)
        if detail:
            said = masked_document(visible(answer[:_TOLD_BYTES].decode("utf-8", "replace").strip()))
            raise ContenderError(
                masked_text(f"{what} failed: {detail}" + (f"; it said: {said}" if said else "")),
                hint="Its file says how it wants to be registered with; `register` is the part to look at.",
            )

    def _count(self, answer: bytes) -> str:
        """Count what was listed; what is wrong with the answer, if anything."""
        found = phrase.at_path(phrase.read_json(answer), self._steps.listed)
        if not isinstance(found, list):
            return f"no list at {self._steps.listed}"
        self.listed = len(found)
        return ""

    def _record(self, kind: str, who: _Subject, started_ns: int, outcome: str, reason: int, detail: str) -> None:
        self.rows.append(
            (
                "orchestrator", who.role, who.number, kind, started_ns, self._now_ns(), outcome, reason,
                masked_text(detail), who.topic, None, None, None, None, False, None, 1,
            )
        )  # fmt: skip

    async def _in_turns(self, actions: Iterable[Coroutine[Any, Any, None]]) -> None:
        """So many at once; the first failure ends it, when those under way have ended."""
        waiting = iter(actions)

        async def work() -> None:
            for action in waiting:
                try:
                    await action
                except BaseException:
                    self._stopped = True
                    raise

        results = await asyncio.gather(*(work() for _ in range(CALLS_AT_ONCE)), return_exceptions=True)
        for failure in results:
            if failure is not None:
                raise failure


def _failure(error: Exception, *, begun: bool) -> Failure:
    """Why there was no proper answer; `begun` is one whose head came."""
    match error:
        case TimeoutError():
            return Failure.TIMEOUT
        case aiohttp.ClientSSLError() | ssl.SSLError():
            return Failure.TLS
        case aiohttp.ClientPayloadError() | aiohttp.ClientConnectionError() if begun:
            return Failure.TRUNCATED
        case aiohttp.ClientConnectionError() | OSError():
            return Failure.CLOSED
    return Failure.MALFORMED


def node_key(role: str, number: int) -> str:
    """How what was registered for a node is found again."""
    return f"{role} {number}"


def topic_facts(topic: str) -> Known:
    """What is known of a topic."""
    return {"topic": topic, "resource": re.sub(r"[^A-Za-z0-9_-]", "-", topic)}


def node_facts(role: str, node: DevicePlan | ClientPlan) -> Known:
    """What is known of a node from its plan."""
    facts: Known = {
        "role": role,
        "name": node.name,
        "number": str(node.number),
        "fleet": node.fleet,
        "client_id": node.connection.client_id,
    }
    # Who names no user in the scenario is who the contender's file or URL says.
    if node.connection.username is not None:
        password = node.connection.password
        facts |= {"username": node.connection.username, "password": password.reveal() if password else ""}
    return facts


def rendered(say: Say, known: Mapping[str, Any]) -> tuple[str, dict[str, str], bytes | None]:
    """Path, headers and body of a request; InputError when a name is not known."""
    target = phrase.plain(say.target, url=True).bind(known).require().render({}).decode("latin-1")
    headers = {
        name: phrase.plain(value).bind(known).require().render({}).decode() for name, value in say.headers.items()
    }
    if say.json is not None:
        if not any(name.lower() == "content-type" for name in headers):
            headers["Content-Type"] = "application/json"
        return target, headers, phrase.structure(say.json).bind(known).require().render({})
    if say.text is not None:
        return target, headers, phrase.plain(say.text).bind(known).require().render({})
    return target, headers, None


def heard(say: Say, status: int, headers: Mapping[str, str], body: bytes) -> tuple[dict[str, str], str]:
    """What an answer lets us keep, and what is wrong with it (nothing: it is a success)."""
    if status not in say.statuses if say.statuses else not 200 <= status < 300:
        return {}, f"status {status}"
    document = phrase.read_json(body) if say.keep or say.success else phrase.MISSING
    if say.success and not phrase.fits(document, say.success):
        return {}, f"status {status}, but not {say.success}"
    kept = {}
    for name, where in say.keep.items():
        value = phrase.picked(where, document, headers, status)
        if value is None:
            return {}, f"status {status}, but no {where} to keep as {name}"
        kept[name] = value
    return kept, ""


def listeners_of_topics(plan: Plan, registered: Registered, scripts: Mapping[str, Script]) -> None:
    """Add to every topic the `listener.NAME` its publishers speak of: a value of each client that listens to it."""
    names = sorted({name for script in scripts.values() for name in _listener_names(script)})
    if not names:
        return
    for topic in plan.matching.topics:
        registered.topics.setdefault(topic, {}).update({f"listener.{name}": [] for name in names})
    for client in plan.clients():
        known = {**node_facts("client", client), **registered.nodes.get(node_key("client", client.number), {})}
        heard_topics = dict.fromkeys(t for each in client.subscriptions for t in plan.matching.matched_by(each.filter))
        for topic in heard_topics:
            for name in names:
                value = known.get(name)
                listeners = registered.topics[topic][f"listener.{name}"]
                if isinstance(value, str) and isinstance(listeners, list):
                    listeners.append(value)


def _listener_names(script: Script) -> Iterator[str]:
    for say in (script.publish, *script.login):
        if say is not None:
            texts = (say.target, say.text or "", *say.headers.values(), *_texts(say.json))
            yield from (name for text in texts for name in _LISTENER.findall(text))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
