"""Defaults made explicit: what a fleet does not say comes from `defaults`, then the scenario, then from here.

Called by the plan and the rules. A resolved scenario says everything itself and is valid YAML again.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from battlebrokers.scenario.model import Clients, Connection, Defaults, Fleet, Scenario

BUILT_IN: Final = Defaults.model_validate(
    {
        "protocol": "mqtt",
        "version": "3.1.1",
        "transport": "tcp",
        "session": "clean",
        "keep_alive": "60s",
        "inflight": 65_535,
        "receive_maximum": 65_535,
        "qos": 0,
        "staggered": True,
        "topic_choice": "round-robin",
        "retain": False,
        "topic_alias": False,
    }
)
"""What holds when nobody says anything."""

MQTT5_ONLY: Final = ("session_expiry", "receive_maximum", "topic_alias")
OF_MQTT: Final = (
    "version", "transport", "session", "session_expiry", "receive_maximum", "retain", "topic_alias", "will", "share",
)  # fmt: skip
"""What MQTT can honour, and other protocols only where `ALSO_OF` says so; a test holds both against our links."""
ALSO_OF: Final[dict[str, frozenset[str]]] = {"amqp": frozenset({"session", "share"}), "coap": frozenset({"retain"})}
ENCRYPTED: Final = ("tls", "wss")
_Group = TypeVar("_Group", Fleet, Clients)


def resolve(scenario: Scenario) -> Scenario:
    """The same scenario with every fleet saying everything, and no `defaults` left."""
    fleets = {name: _filled(scenario, fleet) for name, fleet in scenario.fleets.items()}
    clients = {name: _filled(scenario, group) for name, group in scenario.clients.items()}
    return scenario.model_copy(update={"fleets": fleets, "clients": clients, "defaults": None})


def effective(scenario: Scenario, group: Connection, key: str) -> Any:
    """One value as it will hold for a fleet."""
    for level in (group, scenario.defaults, scenario, BUILT_IN):
        value = getattr(level, key, None)
        if value is not None:
            return value
    return None


def strange_to(protocol: str) -> tuple[str, ...]:
    """The keys a protocol cannot honour; those of MQTT, where it is still open which one it will be."""
    return () if protocol == "mqtt" else tuple(key for key in OF_MQTT if key not in ALSO_OF.get(protocol, ()))


def may_encrypt(scenario: Scenario, group: Connection) -> bool:
    """Whether certificates concern a fleet: for MQTT its transport tells, for others the contender's address."""
    return effective(scenario, group, "protocol") != "mqtt" or effective(scenario, group, "transport") in ENCRYPTED


def settled(scenario: Scenario, publishing: str, listening: str, highest_qos: int = 2) -> Scenario:
    """The scenario with every `protocol: auto` replaced by what devices publish over and clients listen on.

    Who left the protocol open gets the QoS asked for, or the highest there is.
    """
    fleets = {name: _chosen(scenario, fleet, publishing, highest_qos) for name, fleet in scenario.fleets.items()}
    clients = {name: _chosen(scenario, group, listening, highest_qos) for name, group in scenario.clients.items()}
    return scenario.model_copy(update={"fleets": fleets, "clients": clients})


def spoken_in(scenario: Scenario, protocol: str) -> Scenario:
    """The scenario with every fleet speaking one protocol, whatever it says."""
    fleets = {name: fleet.model_copy(update={"protocol": protocol}) for name, fleet in scenario.fleets.items()}
    clients = {name: group.model_copy(update={"protocol": protocol}) for name, group in scenario.clients.items()}
    return scenario.model_copy(update={"fleets": fleets, "clients": clients})


def _chosen(scenario: Scenario, group: _Group, protocol: str, highest_qos: int) -> _Group:
    if effective(scenario, group, "protocol") != "auto":
        return group
    lower = {"qos": highest_qos} if effective(scenario, group, "qos") > highest_qos else {}
    return group.model_copy(update={"protocol": protocol, **lower})


def _filled(scenario: Scenario, group: _Group) -> _Group:
    missing = [key for key in type(group).model_fields if key in Defaults.model_fields and getattr(group, key) is None]
    values = {key: effective(scenario, group, key) for key in missing}
    protocol = effective(scenario, group, "protocol")
    if protocol not in ("mqtt", "auto"):
        values = {key: value for key, value in values.items() if key not in strange_to(protocol)}
    elif effective(scenario, group, "version") != "5":
        values = {key: value for key, value in values.items() if key not in MQTT5_ONLY}
    if not may_encrypt(scenario, group):
        values.pop("tls", None)
    return group.model_copy(update=values)
