"""Fitness: whether a contender can honour a scenario. Refused with all the reasons, never approximated.

Called before anything is started. A broker given by URL is taken at its word: nobody has said what it can do, and its
URL decides the transport.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from battlebrokers.contenders.availability import Missing, availability
from battlebrokers.contenders.broker_url import is_url, parse_broker_url
from battlebrokers.contenders.reader import find_contender
from battlebrokers.contenders.spec import BrokerCapabilities
from battlebrokers.errors import EnvironmentNotReady, InputError
from battlebrokers.scenario.model import Clients, Fleet, Scenario


def refuse_what_cannot_be_honoured(scenario: Scenario, broker: str) -> None:
    """Raise when the broker is not here, or cannot do what the scenario asks."""
    if is_url(broker):
        parse_broker_url(broker)
        return
    contender = find_contender(broker)
    here = availability(contender)
    if isinstance(here, Missing):
        raise EnvironmentNotReady(f"{contender.name} cannot run here: {here.what} is missing", hint=here.hint)
    able = contender.able(here.version)
    reasons = [*_shortfalls(scenario, able), *_unoffered(scenario, set(contender.endpoints))]
    if reasons:
        raise InputError(
            f"{broker} cannot honour {scenario.name}: {'; '.join(reasons)}",
            hint="`bb brokers` shows what each contender can do; --set changes what a scenario asks.",
        )


def _shortfalls(scenario: Scenario, able: BrokerCapabilities) -> Iterator[str]:
    for name, group in _groups(scenario):
        version = _said(scenario, group, "version") or "3.1.1"
        if version not in able.mqtt:
            yield f"{name} speaks MQTT {version}, it speaks {_words(able.mqtt)}"
        qos = _said(scenario, group, "qos") or 0
        if qos > able.qos:
            yield f"{name} asks for QoS {qos}, it honours up to {able.qos}"
        if _said(scenario, group, "session") == "persistent" and not able.persistent_session:
            yield f"{name} wants persistent sessions"
        if _said(scenario, group, "retain") and not able.retain:
            yield f"{name} wants retained messages"
        if group.will is not None and not able.will:
            yield f"{name} wants wills"
        if isinstance(group, Clients) and group.share is not None and not able.shared:
            yield f"{name} wants a shared subscription"


def _unoffered(scenario: Scenario, offered: set[str]) -> Iterator[str]:
    for name, group in _groups(scenario):
        transport = _said(scenario, group, "transport") or "tcp"
        if transport not in offered:
            advice = " (give a TLS broker by its URL, mqtts://…)" if transport in ("tls", "wss") else ""
            yield f"{name} connects over {transport}, started here it offers {_words(offered)}{advice}"


def _groups(scenario: Scenario) -> Iterator[tuple[str, Fleet | Clients]]:
    for name, fleet in scenario.fleets.items():
        if fleet.devices:
            yield name, fleet
    for name, clients in scenario.clients.items():
        if clients.count:
            yield name, clients


def _said(scenario: Scenario, group: Fleet | Clients, key: str) -> Any:
    """What holds for a group: its own word, then the defaults', then the scenario's."""
    for holder in (group, scenario.defaults, scenario):
        value = getattr(holder, key, None)
        if value is not None:
            return value
    return None


def _words(names: Iterable[str]) -> str:
    return " and ".join(sorted(names))
