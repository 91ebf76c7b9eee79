"""Which protocols a contender speaks and what can be done over each, as its file says. Pure.

Asked by `run.fitness`, which adds what our links can honour, and by `bb brokers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from battlebrokers.contenders.dialect import SAY_NOTHING_BY_THEMSELVES
from battlebrokers.contenders.spec import MQTT_TRANSPORTS, Contender


@dataclass(frozen=True, slots=True)
class Offer:
    """What a contender offers over one protocol."""

    protocol: str
    endpoints: tuple[str, ...]
    """Keys of its endpoints: for MQTT transports, else the protocol itself."""
    scripted: bool = False
    """Whether it is spoken to in a dialect of its own."""
    publishes: bool = True
    receives: bool = True
    wildcards: bool = True
    """Whether a subscription may name many topics at once."""
    largest_payload_bytes: int | None = None
    """What is larger it does not take; None: it has not said."""
    deaf_to: Mapping[str, str] = field(default_factory=dict)
    """Protocol → why what is published over it is not told to clients here."""


def offers_of(contender: Contender) -> dict[str, Offer]:
    """Protocol → what is offered there, for every protocol that has an endpoint."""
    found: dict[str, Offer] = {}
    by_protocol: dict[str, list[str]] = {}
    for key in contender.endpoints:
        by_protocol.setdefault(protocol_of(key), []).append(key)
    spoken = contender.speak.spoken if contender.speak is not None else {}
    for protocol, keys in by_protocol.items():
        speech = spoken.get(protocol)
        if speech is None or speech.is_plain:
            if protocol not in SAY_NOTHING_BY_THEMSELVES:
                largest = speech.largest_payload_bytes if speech is not None else None
                found[protocol] = Offer(protocol, tuple(keys), largest_payload_bytes=largest)
            continue
        found[protocol] = Offer(
            protocol,
            tuple(keys),
            scripted=True,
            publishes=speech.publish is not None,
            receives=speech.subscribe is not None,
            wildcards=speech.subscribe is not None and speech.subscribe.wildcards,
            largest_payload_bytes=speech.largest_payload_bytes,
            deaf_to=dict(speech.subscribe.deaf_to.items()) if speech.subscribe is not None else {},
        )
    return found


def protocol_of(endpoint_key: str) -> str:
    """The protocol an endpoint is for."""
    return "mqtt" if endpoint_key in MQTT_TRANSPORTS else endpoint_key
