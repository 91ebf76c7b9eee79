"""Which cells the table of capabilities has, what the files say about each, and the page made of both and the record.

`bb brokers test` and the contract matrix (tests/contract/test_matrix.py) try the cells; the matrix writes the record,
and the docs print it. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from battlebrokers.contenders.offers import offers_of
from battlebrokers.contenders.spec import Contender

ROUTES: dict[str, tuple[str, str]] = {
    "mqtt": ("mqtt", "tcp"),
    "mqtt over ws": ("mqtt", "ws"),
    "http": ("http", "http"),
    "websocket": ("websocket", "websocket"),
    "coap": ("coap", "coap"),
    "amqp": ("amqp", "amqp"),
    "udp": ("udp", "udp"),
}
"""Every way in of the table: its protocol, and the key of its endpoint."""
WAYS_IN = ROUTES | {"mqtt over tls": ("mqtt", "tls"), "mqtt over wss": ("mqtt", "wss")}
"""Those that only a file of one's own has, too."""

BEHAVIOURS: dict[str, str] = {
    "publish": "A publish ends well: answered where the protocol answers, and heard by a client.",
    "subscribe": "A client that listens over this protocol hears it.",
    "exactly once": "Two clients get each of several messages exactly once, byte for byte and in order.",
    "one byte": "A payload of a single zero byte.",
    "binary": "A payload of all 256 bytes there are.",
    "64 KiB": "A payload of 65 536 bytes.",
    "topics": "Two devices on two topics; a client of one topic never hears the other.",
    "wildcards": "One subscription for many topics. Where it cannot, we subscribe to each topic by itself.",
    "QoS 0": "Asked for and delivered with QoS 0 (CoAP: not confirmable).",
    "QoS 1": "The same with QoS 1 (CoAP: confirmable; AMQP: publisher confirms).",
    "QoS 2": "The same with QoS 2.",
    "retain": "The last message of a topic is kept for those who subscribe later.",
}
"""What is tried over each way in, and what it means."""

QOS = {f"QoS {number}": number for number in range(3)}
_HAVE_QOS = {"mqtt": 2, "amqp": 1, "coap": 1, "udp": 0}
LARGE_BYTES = 65536
NOT_OFFERED = "it does not offer this protocol"


def bridge(hears: str) -> str:
    """The name of the behaviour that what is published here is heard there."""
    return f"heard over {hears}"


def cells_of(contender: Contender) -> list[tuple[str, str]]:
    """Route and behaviour of every cell that may be tried, those its file says it cannot included."""
    offers = offers_of(contender)
    offered = [
        name for name, (protocol, key) in WAYS_IN.items() if protocol in offers and key in offers[protocol].endpoints
    ]
    found = [(route, what) for route in offered for what in BEHAVIOURS if has_meaning(contender, route, what)]
    # One transport stands for all of MQTT's: the bridge is behind it.
    doors = list({WAYS_IN[route][0]: route for route in reversed(offered)}.values())[::-1]
    speaking = [route for route in doors if offers[WAYS_IN[route][0]].publishes]
    hearing = [route for route in doors if offers[WAYS_IN[route][0]].receives]
    return found + [(speaks, bridge(hears)) for speaks in speaking for hears in hearing if speaks != hears]


def has_meaning(contender: Contender, route: str, what: str) -> bool:
    """Whether there is such a thing over this route: HTTP has no QoS, a dialect over MQTT retains nothing itself."""
    protocol, _ = WAYS_IN[route]
    if what in QOS:
        return QOS[what] <= _HAVE_QOS.get(protocol, -1)
    offer = offers_of(contender).get(protocol)
    return what != "retain" or (protocol == "mqtt" and offer is not None and not offer.scripted)


def cannot(contender: Contender, version: str, route: str, what: str) -> str:
    """Why the contender cannot do it, as its file says; empty when it should."""
    protocol, key = WAYS_IN[route]
    offer = offers_of(contender).get(protocol)
    if offer is None or key not in offer.endpoints:
        return NOT_OFFERED
    able = contender.able(version)
    if not offer.publishes and what != "subscribe":
        return "it takes no messages over this protocol"
    if not offer.receives and what in ("subscribe", "wildcards"):
        return "it tells no clients over this protocol; they listen over another"
    if what == "wildcards" and not offer.wildcards:
        return "each topic is subscribed to by itself"
    hears = offers_of(contender).get(WAYS_IN.get(what.removeprefix(bridge("")), ("", ""))[0])
    if hears is not None and protocol in hears.deaf_to:
        return hears.deaf_to[protocol]
    if what == "64 KiB" and (offer.largest_payload_bytes or LARGE_BYTES) < LARGE_BYTES:
        return f"it takes at most {offer.largest_payload_bytes} bytes over this protocol"
    if protocol == "mqtt" and QOS.get(what, 0) > able.qos:
        return f"it honours QoS {able.qos} at most"
    return "it retains nothing" if what == "retain" and not able.retain else ""


_ELSEWHERE_ACME = "the MQTT binding has a file of its own, acme-onem2m-mqtt"
_WITHOUT_MQTT = "HTTP and CoAP have a file of their own, acme-onem2m"
_BY_GATEWAY = "MQTT goes through the gateway, which has a file of its own, sdn-mqtt"
LEFT_OUT: dict[str, dict[str, str]] = {
    "acme-onem2m": {
        "mqtt": _ELSEWHERE_ACME,
        "mqtt over ws": _ELSEWHERE_ACME,
        "websocket": "ACME has a WebSocket binding, which was seen to work",
        "coap: subscribe": "whether ACME notifies over CoAP was never tried",
    },
    "acme-onem2m-mqtt": {
        "http": _WITHOUT_MQTT,
        "coap": _WITHOUT_MQTT,
        "websocket": "ACME has a WebSocket binding, which was seen to work",
        "mqtt over ws": "the Mosquitto beside it could listen there",
    },
    "devicehive": {"mqtt over ws": "its MQTT broker is documented to listen over WebSocket too, on port 3000"},
    "emqx": {"http": "it can be published to by its REST API", "coap": "it has a CoAP gateway"},
    "fiware-orion": {"mqtt": "Orion can notify over MQTT; we listen over HTTP"},
    "fiware-orion-memory": {"mqtt": "Orion can notify over MQTT; we listen over HTTP"},
    "nanomq": {"http": "it can be published to by its REST API"},
    "om2m": {
        "coap": "OM2M has a CoAP binding",
        "mqtt: subscribe": "OM2M can notify over MQTT; we listen over HTTP",
    },
    "rabbitmq": {"http": "it can be published to by its management API, which is meant for trying things out"},
    "sdn": {"mqtt": _BY_GATEWAY},
    "sdn-group": {"mqtt": _BY_GATEWAY},
    "sdn-direct": {"mqtt": _BY_GATEWAY},
    "sdn-reactive": {"mqtt": _BY_GATEWAY},
    "sdn-mqtt": {"udp": "datagrams have files of their own, sdn, sdn-group, sdn-direct and sdn-reactive"},
}
"""Contender → route, or route and behaviour → what the product has, or may have, that our file does not say."""


def left_out(contender: Contender, route: str, what: str) -> str:
    """What the product has there that our file does not say; empty when it is not that which is missing."""
    known = LEFT_OUT.get(contender.name, {})
    protocol, key = WAYS_IN[route]
    offer = offers_of(contender).get(protocol)
    if offer is None or key not in offer.endpoints:
        return known.get(route, "")
    return known.get(f"{route}: {what}", "")


Record = Mapping[str, Mapping[str, Any]]
"""Contender → `not_run` (why), or `version`, `against` and `seen`: route → behaviour → `works` or why it does not."""


@dataclass
class _Reasons:
    """The reasons told below the tables, numbered in the order they are met."""

    numbers: dict[str, int] = field(default_factory=dict)

    def cell(self, state: str, reason: str) -> str:
        number = self.numbers.setdefault(reason, len(self.numbers) + 1)
        return f"{state} ({number})"


def capabilities_reference(contenders: Sequence[Contender], record: Record) -> str:
    """The page."""
    reasons = _Reasons()
    parts = [_INTRODUCTION, _overview(contenders, record, reasons)]
    parts += [_of_route(contenders, record, route, reasons) for route in ROUTES]
    parts.append(_bridges(contenders, record, reasons))
    meanings = "\n".join(f"| {name} | {meaning} |" for name, meaning in BEHAVIOURS.items())
    parts.append(f"## What was tried\n\n| | meaning |\n|---|---|\n{meanings}")
    numbered = "\n".join(f"| ({number}) | {_capital(reason)}. |" for reason, number in reasons.numbers.items())
    parts.append(f"## Why not\n\n| | reason |\n|---|---|\n{numbered}")
    return "\n\n".join(parts)


_INTRODUCTION = """# Capabilities

What works on whom. One suite (`tests/contract/test_matrix.py`) tries every contender over every protocol, with the
links of a run; this page is made of the contender files and of what that suite saw.

- **works**: tried and seen, with the version named. The suite fails when it does not hold any more. Where a contract
  server is named, that was tried, made from the vendor's documentation; never the vendor's server.
- **the broker cannot**: its file says so, or it has no such way in.
- **not in our file**: the product has it, or may have it; the file we ship does not say how.
- **does not work**: tried, and seen to fail for a reason we know.
- **not run here**: nobody could try it where the record was made; the file offers it.
- **–**: the protocol has no such thing.

A number in brackets leads to the [reason](#why-not). `bb brokers test NAME` tries a contender on your machine."""


def _overview(contenders: Sequence[Contender], record: Record, reasons: _Reasons) -> str:
    rows = []
    for contender in contenders:
        cells = [_cell(contender, record, route, "publish", reasons) for route in ROUTES]
        rows.append([contender.name, _tried(record.get(contender.name, {})), *cells])
    return "## Protocols\n\n" + _table(["contender", "tried", *ROUTES], rows)


def _of_route(contenders: Sequence[Contender], record: Record, route: str, reasons: _Reasons) -> str:
    protocol, key = ROUTES[route]
    rows = []
    for contender in contenders:
        offer = offers_of(contender).get(protocol)
        if offer is not None and key in offer.endpoints:
            rows.append([contender.name, *(_cell(contender, record, route, what, reasons) for what in BEHAVIOURS)])
    about = _table(["contender", *BEHAVIOURS], rows) if rows else "No shipped contender offers it."
    return f"## {route}\n\n{about}"


def _bridges(contenders: Sequence[Contender], record: Record, reasons: _Reasons) -> str:
    rows = [
        [contender.name, route, what.removeprefix(bridge("")), _cell(contender, record, route, what, reasons)]
        for contender in contenders
        for route, what in cells_of(contender)
        if what.startswith(bridge(""))
    ]
    return "## Publishers on one protocol, clients on another\n\n" + _table(["contender", "from", "to", ""], rows)


def _cell(contender: Contender, record: Record, route: str, what: str, reasons: _Reasons) -> str:
    known = record.get(contender.name, {})
    reason = cannot(contender, known.get("version", ""), route, what)
    if unsaid := left_out(contender, route, what):
        return reasons.cell("not in our file", unsaid)
    if reason == NOT_OFFERED:
        return "the broker cannot"
    if not has_meaning(contender, route, what):
        return "–"
    if reason:
        return reasons.cell("the broker cannot", reason)
    if "not_run" in known:
        return reasons.cell("not run here", known["not_run"])
    seen = known.get("seen", {}).get(route, {}).get(what)
    if seen is None:
        return reasons.cell("not run here", "the record does not have it yet")
    return "works" if seen == "works" else reasons.cell("does not work", seen)


def _tried(known: Mapping[str, Any]) -> str:
    if "seen" not in known:
        return "–"
    return f"{known['version']}" if known["against"] == "itself" else known["against"]


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".")
