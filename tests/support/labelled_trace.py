"""A made-up system whose every message is known, to judge how well messages are followed: device → broker → redis →
web → client. Services wrap payloads, many messages are under way at once, contents repeat, some are lost.

Rows go in, pairs of rows come out: which code makes the pairs does not matter here.
"""

from __future__ import annotations

import base64
import json
import random
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import combinations
from typing import Any

from battlebrokers.dissect.payload_ids import header_of, named
from battlebrokers.tables.message_header import HEADER, MAX_DEVICE, VERSION

US, MS = 1_000, 1_000_000
NOW_NS = 1_790_000_000 * 1_000_000_000
STREAMS: dict[int, tuple[str | None, str]] = {
    1: (None, "broker"), 2: ("broker", "redis"), 3: ("web", "redis"), 4: (None, "web"),
}  # fmt: skip
"""Who opened each connection, and to whom."""
LEGS = ((1, "client", "mqtt"), (2, "client", "redis"), (3, "server", "redis"), (4, "server", "websocket"))
"""The way of a message: connection, sender, protocol."""

Pair = frozenset[tuple[int, int]]
"""Two messages, as (stream, number)."""


@dataclass(frozen=True)
class Said:
    """One message on one wire; `told` says which it is, and nobody who follows messages may look there."""

    told: int
    family: str
    stream: int
    sender: str
    protocol: str
    first_ns: int
    payload: bytes

    def row(self, number: int) -> dict[str, Any]:
        """As a dissector tells it."""
        payload = self.payload
        ours = len(payload) >= HEADER.size and payload[0] == VERSION
        identity, wrapped = (None, False) if ours else named(payload, self.first_ns)
        device, seq = None, None
        if ours:
            word, seq, _ = HEADER.unpack_from(payload)
            device = word & MAX_DEVICE
        elif wrapped:
            device, seq = header_of(identity)
        return {
            "stream": self.stream, "epoch": 0, "number": number, "protocol": self.protocol, "kind": "PUBLISH",
            "sender": self.sender, "name": "town", "correlation": "", "failed": False, "bytes": len(payload) + 9,
            "payload_bytes": len(payload), "first_ns": self.first_ns, "last_ns": self.first_ns + 10 * US,
            "device": device, "seq": seq, "fingerprint": _hash(payload), "identity": identity,
        }  # fmt: skip


@dataclass(frozen=True)
class Trace:
    """All that was said, and how it belongs together."""

    rows: list[dict[str, Any]]
    payloads: dict[tuple[int, int], bytes]
    family: dict[tuple[int, int], str]
    pairs: dict[str, set[Pair]]
    """Per family of messages: which rows are the same message."""
    connections: dict[int, tuple[str | None, str]]
    """Who opened each connection, and to whom."""

    @property
    def true_pairs(self) -> set[Pair]:
        return set().union(*self.pairs.values())


@dataclass(frozen=True)
class Judgement:
    """How many of the pairs found are true, and how many of the true ones were found."""

    precision: float
    recall: float


def judge(found: Iterable[Pair], true: set[Pair], among: set[Pair] | None = None) -> Judgement:
    """Precision against all that is true, recall against what could be found by this means."""
    pairs = set(found)
    wanted = true if among is None else among
    precision = len(pairs & true) / len(pairs) if pairs else 1.0
    return Judgement(precision, len(pairs & wanted) / len(wanted) if wanted else 1.0)


def pairs_of(groups: Iterable[Iterable[tuple[int, int]]]) -> set[Pair]:
    """Every two of each group."""
    return {frozenset(two) for group in groups for two in combinations(sorted(set(group)), 2)}


def same_payload(trace: Trace) -> set[Pair]:
    """True pairs whose payloads are equal and said once on each wire: all a fingerprint can know."""
    said: dict[bytes, list[tuple[int, int]]] = defaultdict(list)
    for key, payload in trace.payloads.items():
        said[payload].append(key)
    once = [keys for keys in said.values() if len({stream for stream, _ in keys}) == len(keys)]
    return pairs_of(once) & trace.true_pairs


def labelled_trace(each: int = 60, seed: int = 1, *, one_shot: bool = False) -> Trace:
    """`each` messages of every family, a few milliseconds apart, so that about thirty are under way at once.

    With `one_shot` every message has a connection of its own on every leg, as without keep-alive.
    """
    chance = random.Random(seed)
    order = [(family, number) for family in FAMILIES for number in range(each)]
    chance.shuffle(order)
    said: list[Said] = []
    for told, (family, number) in enumerate(order):
        at_ns = NOW_NS + told * 2 * MS + chance.randrange(MS)
        reached = len(LEGS) if chance.random() > 0.1 else chance.randrange(1, len(LEGS))
        for leg, payload in enumerate(FAMILIES[family](number, chance)[:reached]):
            stream, sender, protocol = LEGS[leg]
            said.append(Said(told, family, stream, sender, protocol, at_ns, payload))
            if family == "header" and leg == 0 and number % 10 == 0:
                said.append(Said(told, family, stream, sender, protocol, at_ns + MS, payload))  # sent again
            at_ns += chance.randrange(5 * MS, 30 * MS)
    in_order = sorted(said, key=lambda one: (one.first_ns, one.stream))
    if one_shot:
        in_order = [replace(one, stream=one.stream + 10 * place) for place, one in enumerate(in_order, 1)]
    return _numbered(in_order)


def _hash(payload: bytes) -> int:
    return int.from_bytes(blake2b(payload, digest_size=8).digest(), "little", signed=True)


def _numbered(said: list[Said]) -> Trace:
    rows, payloads, families = [], {}, {}
    numbers: dict[int, int] = defaultdict(int)
    groups: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for one in said:
        key = (one.stream, numbers[one.stream])
        numbers[one.stream] += 1
        rows.append(one.row(key[1]))
        payloads[key], families[key] = one.payload, one.family
        groups[one.family, one.told].append(key)
    pairs = {
        family: pairs_of(keys for (whose, _), keys in groups.items() if whose == family) for family in set(FAMILIES)
    }
    return Trace(rows, payloads, families, pairs, {one.stream: STREAMS[one.stream % 10] for one in said})


def _header(number: int, chance: random.Random) -> list[bytes]:
    """Ours: passed on as it is, then as base64 in JSON."""
    payload = HEADER.pack(VERSION << 24 | number % 7, number, NOW_NS + number * MS) + chance.randbytes(40)
    shown = json.dumps({"id": chance.randrange(100), "data": base64.b64encode(payload).decode()}).encode()
    return [payload, payload, payload, shown]


def _identified(number: int, chance: random.Random) -> list[bytes]:
    """JSON with an id: fields added, JSON around it, then as a string in other JSON."""
    reading = {"messageId": str(uuid.UUID(int=chance.getrandbits(128), version=4)), "value": number % 5}
    queued = {"topic": "town", "at": chance.random(), "message": reading | {"room": "a"}}
    pushed = {"seq": chance.randrange(1000), "event": json.dumps(queued)}
    return [json.dumps(one).encode() for one in (reading, queued, queued, pushed)]


def _encoded(number: int, chance: random.Random) -> list[bytes]:
    """JSON with a numeric id, as base64 from the second leg on."""
    reading = json.dumps({"id": 10**9 + number, "value": 20 + number % 3}).encode()
    wrapped = json.dumps({"body": base64.b64encode(reading).decode(), "n": number % 4}).encode()
    return [
        reading,
        wrapped,
        wrapped,
        json.dumps({"id": f"envelope-{chance.random()}", "body": base64.b64encode(reading).decode()}).encode(),
    ]


def _plain(number: int, _: random.Random) -> list[bytes]:
    """Text without an id, never changed, never repeated."""
    return [b"reading %06d of the harbour's gauge" % number] * 4


def _repeated(number: int, _: random.Random) -> list[bytes]:
    """What is said again and again: nobody can tell which is which."""
    return [(b"the door is open", b"the door is shut")[number % 2]] * 4


def _owned(number: int, _: random.Random) -> list[bytes]:
    """The id is the device's, not the message's, and counters look alike on all devices."""
    reading = json.dumps({"id": f"sensor-{number % 4:06}", "count": number, "seq": {"id": number % 9}}).encode()
    wrapped = json.dumps({"queue": 3, "payload": json.loads(reading)}).encode()
    return [reading, wrapped, wrapped, wrapped + b"\n"]


FAMILIES: dict[str, Callable[[int, random.Random], list[bytes]]] = {
    "header": _header, "identified": _identified, "encoded": _encoded, "plain": _plain, "repeated": _repeated,
    "owned": _owned,
}  # fmt: skip
