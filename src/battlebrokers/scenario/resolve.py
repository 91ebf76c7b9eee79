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
MQTT_ONLY: Final = (
    "version", "transport", "session", "session_expiry", "receive_maximum", "retain", "topic_alias", "will", "share",
)  # fmt: skip
"""What no other protocol here can honour; a test holds it against the links' capabilities."""
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


def may_encrypt(scenario: Scenario, group: Connection) -> bool:
    """Whether certificates concern a fleet: for MQTT its transport tells, for others the contender's address."""
    return effective(scenario, group, "protocol") != "mqtt" or effective(scenario, group, "transport") in ENCRYPTED


def settled(scenario: Scenario, publishing: str, listening: str) -> Scenario:
    """The scenario with every `protocol: auto` replaced by what devices publish over and clients listen on."""
    fleets = {name: _chosen(scenario, fleet, publishing) for name, fleet in scenario.fleets.items()}
    clients = {name: _chosen(scenario, group, listening) for name, group in scenario.clients.items()}
    return scenario.model_copy(update={"fleets": fleets, "clients": clients})


def _chosen(scenario: Scenario, group: _Group, protocol: str) -> _Group:
    if effective(scenario, group, "protocol") != "auto":
        return group
    return group.model_copy(update={"protocol": protocol})


def _filled(scenario: Scenario, group: _Group) -> _Group:
    missing = [key for key in type(group).model_fields if key in Defaults.model_fields and getattr(group, key) is None]
    values = {key: effective(scenario, group, key) for key in missing}
    if effective(scenario, group, "protocol") not in ("mqtt", "auto"):
        values = {key: value for key, value in values.items() if key not in MQTT_ONLY}
    elif effective(scenario, group, "version") != "5":
        values = {key: value for key, value in values.items() if key not in MQTT5_ONLY}
    if not may_encrypt(scenario, group):
        values.pop("tls", None)
    return group.model_copy(update=values)
