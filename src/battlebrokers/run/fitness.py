"""Fitness: whether a contender can honour a scenario, and what it is spoken to in where a scenario leaves that open.

Called before anything is started. Refused with all the reasons, never approximated. A broker given by URL is taken at
its word: nobody has said what it can do, and its URL decides protocol and transport. Our links' own limits hold there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from battlebrokers.contenders.availability import Missing, availability
from battlebrokers.contenders.broker_url import LOOPBACK, is_url, parse_broker_url
from battlebrokers.contenders.offers import Offer, offers_of
from battlebrokers.contenders.reader import find_contender, split_host
from battlebrokers.contenders.spec import BrokerCapabilities, Contender
from battlebrokers.errors import EnvironmentNotReady, InputError
from battlebrokers.protocols.registry import link_class
from battlebrokers.scenario.expansion import payload_plan
from battlebrokers.scenario.model import Clients, Fleet, Scenario
from battlebrokers.scenario.payloads import largest_payload_bytes
from battlebrokers.scenario.resolve import BUILT_IN, effective, settled, spoken_in


def refuse_what_cannot_be_honoured(scenario: Scenario, broker: str, processes: int = 0) -> None:
    """Raise when the broker is not here, or cannot do what the scenario asks."""
    scenario = _with_protocols(scenario, broker)
    if is_url(broker):
        protocol = parse_broker_url(broker).protocol
        plainly = {protocol: Offer(protocol, (protocol,))}
        reasons = [*_strangers(scenario, protocol), *_beyond_links(scenario, plainly)]
        if protocol == LOOPBACK and processes > 1:
            reasons.append(f"{processes} engine processes have {processes} memories (--processes 1)")
    else:
        contender = find_contender(broker)
        offers = offers_of(contender)
        reasons = [*_unoffered(scenario, offers), *_unheard(scenario, offers), *_beyond_links(scenario, offers)]
        changes = bool(contender.capabilities.since)
        if not changes:
            reasons = [*_shortfalls(scenario, contender.able("unknown")), *reasons]
        # Looking for it may run a program that tells its version: not for what is refused anyway. Who runs elsewhere
        # need not be here, and tells nobody its version.
        here = availability(contender) if not (reasons or split_host(broker)[1]) else None
        if isinstance(here, Missing):
            raise EnvironmentNotReady(f"{contender.name} cannot run here: {here.what} is missing", hint=here.hint)
        if changes:
            able = contender.able(here.version if here is not None else "unknown")
            reasons = [*_shortfalls(scenario, able), *reasons]
    if reasons:
        raise InputError(
            f"{broker} cannot honour {scenario.name}: {'; '.join(reasons)}",
            hint="`bb brokers` shows what each contender can do; --set changes what a scenario asks.",
        )


def settled_for(scenario: Scenario, broker: str) -> Scenario:
    """The scenario as this broker gets it: its protocols, a QoS it honours, topics spread over its data model."""
    chosen = _with_protocols(scenario, broker)
    model = None if is_url(broker) else find_contender(broker).model
    return chosen if model is None else model.spread(chosen)


def _with_protocols(scenario: Scenario, broker: str) -> Scenario:
    """The scenario with `protocol: auto` replaced by what this broker speaks: HTTP first, then its file's order.

    Publishing and listening are chosen apart, because a broker that bridges protocols may offer them on different ones.
    QoS is at most what both offer: a scenario that leaves open what is spoken cannot know what QoS means there.
    """
    if is_url(broker) and parse_broker_url(broker).protocol == LOOPBACK:
        # What a scenario speaks is between it and a broker, and here there is none: all of it stays with us.
        return spoken_in(scenario, LOOPBACK)
    if not any(_said(scenario, group, "protocol") == "auto" for _, group in _groups(scenario)):
        return scenario
    if is_url(broker):
        protocol = parse_broker_url(broker).protocol
        return settled(scenario, protocol, protocol, max(link_class(protocol, scripted=False).capabilities.qos))
    contender = find_contender(broker)
    offers = sorted(offers_of(contender).values(), key=lambda offer: offer.protocol != "http")
    publishing = next((offer for offer in offers if offer.publishes), None)
    listening = next((offer for offer in offers if offer.receives), None)
    if publishing is None or listening is None:
        lack = "publish" if publishing is None else "subscribe"
        raise InputError(
            f"{broker} offers no protocol to {lack} over", hint="Its file says what it offers, in `speak`."
        )
    able = contender.able(_version(contender, broker))
    highest_qos = min(_highest_qos(offer, able) for offer in (publishing, listening))
    return settled(scenario, publishing.protocol, listening.protocol, highest_qos)


def _version(contender: Contender, broker: str) -> str:
    """Its version where QoS depends on it; asking for it may start a program."""
    if split_host(broker)[1] or all(change.qos is None for change in contender.capabilities.since.values()):
        return "unknown"
    here = availability(contender)
    return "unknown" if isinstance(here, Missing) else here.version


def _highest_qos(offer: Offer, able: BrokerCapabilities) -> int:
    highest = max(link_class(offer.protocol, scripted=offer.scripted).capabilities.qos)
    return min(highest, able.qos) if offer.protocol == "mqtt" else highest


def protocols_of(scenario: Scenario) -> dict[str, str]:
    """Fleet or group of clients → the protocol it speaks."""
    return {name: _protocol(scenario, group) for name, group in _groups(scenario)}


def lowered_qos(asked: Scenario, scenario: Scenario) -> dict[str, str]:
    """Fleet or group of clients → the QoS it has instead of the one it asked for."""
    wanted = {name: effective(asked, group, "qos") for name, group in _groups(asked)}
    given = {name: effective(scenario, group, "qos") for name, group in _groups(scenario)}
    return {name: f"{qos} instead of {wanted[name]}" for name, qos in given.items() if qos < wanted.get(name, 0)}


def _strangers(scenario: Scenario, protocol: str) -> Iterator[str]:
    for name, group in _groups(scenario):
        spoken = _protocol(scenario, group)
        if spoken != protocol:
            yield f"{name} speaks {spoken}, its URL says {protocol} (--set protocol={protocol} changes that)"


def _shortfalls(scenario: Scenario, able: BrokerCapabilities) -> Iterator[str]:
    """What the broker's MQTT lacks."""
    for name, group in _groups(scenario):
        if _protocol(scenario, group) != "mqtt":
            continue
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


def _unoffered(scenario: Scenario, offers: Mapping[str, Offer]) -> Iterator[str]:
    for name, group in _groups(scenario):
        protocol = _protocol(scenario, group)
        offer = offers.get(protocol)
        if offer is None:
            yield f"{name} speaks {protocol}, it offers {_words(offers) or 'nothing'}"
            continue
        transport = _said(scenario, group, "transport") or "tcp"
        if protocol == "mqtt" and transport not in offer.endpoints:
            advice = " (give a TLS broker by its URL, mqtts://…)" if transport in ("tls", "wss") else ""
            yield f"{name} connects over {transport}, started here it offers {_words(offer.endpoints)}{advice}"
        if isinstance(group, Fleet) and not offer.publishes:
            yield f"{name} publishes over {protocol}, its file says nothing of that"
        if isinstance(group, Clients) and group.subscribe and not offer.receives:
            yield f"{name} subscribes over {protocol}, its file says nothing of that"


def _unheard(scenario: Scenario, offers: Mapping[str, Offer]) -> Iterator[str]:
    """Who publishes over one protocol what others await over another, where the broker does not bridge these."""
    for listening, clients in scenario.clients.items():
        offer = offers.get(_protocol(scenario, clients))
        for speaking, fleet in scenario.fleets.items() if offer is not None and clients.count else ():
            why = offer.deaf_to.get(_protocol(scenario, fleet)) if offer is not None and fleet.devices else None
            if why and any(_may_match(each, topic) for each in clients.subscribe for topic in fleet.topic):
                yield f"{listening} would not hear {speaking}: {why}"


def _may_match(topic_filter: str, topic: str) -> bool:
    """Whether a filter can match a topic, both as the scenario writes them: a variable may be anything."""
    wanted, levels = topic_filter.split("/"), topic.split("/")
    if wanted[-1] == "#":
        wanted.pop()
        levels = levels[: len(wanted)]
    pairs = zip(wanted, levels, strict=False)
    return len(wanted) == len(levels) and all(a in ("+", b) or "{" in a + b for a, b in pairs)


def _beyond_links(scenario: Scenario, offers: Mapping[str, Offer]) -> Iterator[str]:
    """What our own links of a protocol cannot do."""
    for name, group in _groups(scenario):
        protocol = _protocol(scenario, group)
        if protocol not in offers:
            continue
        able = link_class(protocol, scripted=offers[protocol].scripted).capabilities
        transport = _said(scenario, group, "transport") or "tcp"
        if protocol == LOOPBACK and transport != "tcp":
            yield f"{name} connects over {transport}, and in memory there is none"
        qos = _said(scenario, group, "qos") or 0
        if qos not in able.qos:
            yield f"{name} asks for QoS {qos}, {protocol} knows {_words(map(str, able.qos))}"
        dialect = " in its dialect" if offers[protocol].scripted else ""
        for wanted, honoured, what in (
            (_said(scenario, group, "retain"), able.retain, "retained messages"),
            (_said(scenario, group, "session") == "persistent", able.persistent_session, "persistent sessions"),
            (group.will is not None, able.will, "wills"),
            (isinstance(group, Clients) and group.share is not None, able.shared_subscription, "shared subscriptions"),
        ):
            if wanted and not honoured:
                yield f"{name} wants {what}, and there are none over {protocol}{dialect}"
        limits = (able.largest_payload_bytes, offers[protocol].largest_payload_bytes)
        limit = min((each for each in limits if each is not None), default=None)
        payload = _said(scenario, group, "payload") if isinstance(group, Fleet) else None
        if limit is not None and payload is not None:
            largest = largest_payload_bytes(payload_plan(payload))
            if largest is not None and largest > limit:
                whose = protocol if limit == able.largest_payload_bytes else f"over {protocol} it"
                yield f"{name} sends up to {largest} bytes, {whose} takes {limit} in one message"
        if isinstance(group, Clients) and group.subscribe and not able.receive:
            yield f"{name} subscribes, and nothing can be received over {protocol}"


def _protocol(scenario: Scenario, group: Fleet | Clients) -> str:
    return str(_said(scenario, group, "protocol") or BUILT_IN.protocol)


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
