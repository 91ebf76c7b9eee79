"""What an MQTT client must remember across connections: packet ids in use, messages in flight, QoS 2 states.

Owned by a link, driven by its connection. Pure state: no socket, no clock, nothing created before it is needed.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import NamedTuple

import numpy as np

from battlebrokers.protocols.base import Bytes2D

LAST_ID = 65_535


class Request(NamedTuple):
    """A SUBSCRIBE or UNSUBSCRIBE that waits for its answer."""

    answer: Future[tuple[int, ...]]
    answered_by: str
    """The type of packet that answers it."""
    results: int
    """How many results that packet must carry."""


class Flight:
    """The messages of one batch that wait for their acknowledgement; each packet id in flight points here.

    Ids and tokens of a flight run in step, so one number turns an id into its token.
    """

    __slots__ = ("first_id", "payloads", "qos", "retain", "token_shift", "topic")

    def __init__(
        self, first_id: int, first_token: int, topic: bytes, qos: int, retain: bool, payloads: Bytes2D | Sequence[bytes]
    ) -> None:
        self.first_id = first_id
        self.token_shift = first_token - first_id
        self.topic = topic
        self.qos = qos
        self.retain = retain
        self.payloads = payloads

    def payload(self, packet_id: int) -> bytes:
        """What the message with this id says."""
        payload = self.payloads[packet_id - self.first_id]
        return payload.tobytes() if isinstance(payload, np.ndarray) else payload


class Session:
    """Packet ids and delivery states of one client; outlives its connections."""

    __slots__ = ("ignored", "incoming", "next_id", "released", "requests", "retired", "unacked")

    def __init__(self) -> None:
        self.next_id = 1
        self.unacked: dict[int, Flight] = _NONE_IN_FLIGHT
        """PUBLISH sent, PUBACK (QoS 1) or PUBREC (QoS 2) awaited; in order of sending."""
        self.released: dict[int, Flight] = _NONE_IN_FLIGHT
        """PUBREL sent, PUBCOMP awaited; in order of release."""
        self.incoming: set[int] | None = None
        """QoS 2 messages received and handed on, PUBREL awaited."""
        self.requests: dict[int, Request] | None = None
        """SUBSCRIBE and UNSUBSCRIBE awaiting their answer."""
        self.retired: set[int] | None = None
        """Ids of QoS 2 messages that were given up: a broker that keeps the session may still hold them, and would
        take another message under such an id for a repetition."""
        self.ignored = 0
        """Acknowledgements that named no message of ours."""

    @property
    def in_flight(self) -> int:
        """Messages whose completion contract is still open."""
        return len(self.unacked) + len(self.released)

    def free_ids(self) -> int:
        """How many packet ids are not in use."""
        return LAST_ID - sum(map(len, (self.unacked, self.released, self.requests or (), self.retired or ())))

    def take_ids(self, count: int) -> list[range]:
        """`count` unused ids, as runs; nearly always one run. The caller has checked `free_ids`."""
        first = self.next_id
        ids = range(first, first + count)
        if first + count <= LAST_ID + 1 and self._unused(ids):
            self.next_id = first + count if first + count <= LAST_ID else 1
            return [ids]
        return self._search_ids(count)

    def take_id(self) -> int:
        """One unused id."""
        taken = self.next_id
        used = taken in self.unacked or taken in self.released or (self.requests and taken in self.requests)
        if used or (self.retired and taken in self.retired):
            return self._search_ids(1)[0].start
        self.next_id = taken + 1 if taken < LAST_ID else 1
        return taken

    def launch(self, flight: Flight, ids: range) -> None:
        """Remember a batch that is being sent under these ids."""
        if self.unacked:
            self.unacked.update(dict.fromkeys(ids, flight))
        else:
            self.unacked = dict.fromkeys(ids, flight)

    def launch_one(self, flight: Flight) -> None:
        """Remember a single message that is being sent."""
        if self.unacked is _NONE_IN_FLIGHT:
            self.unacked = {flight.first_id: flight}
        else:
            self.unacked[flight.first_id] = flight

    def acknowledge(self, ids: Sequence[int]) -> list[int]:
        """PUBACK: the tokens that are done."""
        unacked = self.unacked
        flights = list(map(unacked.pop, ids, repeat(None)))
        flight = flights[0]
        # Acknowledgements of one batch mostly come together.
        if flight is not None and flight.qos == 1 and len(set(flights)) == 1:
            shift = flight.token_shift
            return [shift + packet_id for packet_id in ids]
        tokens = []
        for packet_id, flight in zip(ids, flights, strict=True):
            if flight is None or flight.qos != 1:
                self.mistaken(packet_id, flight)
            else:
                tokens.append(flight.token_shift + packet_id)
        return tokens

    def mistaken(self, packet_id: int, flight: Flight | None) -> None:
        """An acknowledgement named no message of ours, or one of another QoS, which stays."""
        self.ignored += 1
        if flight is not None:
            self.unacked[packet_id] = flight

    def receive(self, ids: Iterable[int]) -> None:
        """PUBREC: these move from unacknowledged to released; the caller answers each with PUBREL."""
        unacked = self.unacked
        if self.released is _NONE_IN_FLIGHT:
            self.released = {}
        released = self.released
        for packet_id in ids:
            flight = unacked.get(packet_id)
            if flight is not None and flight.qos == 2:
                released[packet_id] = flight
                del unacked[packet_id]
            elif packet_id not in released:
                self.ignored += 1

    def complete(self, ids: Iterable[int]) -> list[int]:
        """PUBCOMP: the tokens that are done."""
        find = self.released.pop
        tokens = []
        for packet_id in ids:
            flight = find(packet_id, None)
            if flight is None:
                self.ignored += 1
            else:
                tokens.append(flight.token_shift + packet_id)
        return tokens

    def refuse(self, packet_id: int, qos: int) -> list[int]:
        """PUBACK or PUBREC with a failure: the token that is done for, if the id is ours."""
        flight = self.unacked.get(packet_id)
        if flight is None or flight.qos != qos:
            self.ignored += 1
            return []
        del self.unacked[packet_id]
        return [flight.token_shift + packet_id]

    def give_up(self, packet_id: int) -> int:
        """An unacknowledged message cannot be sent again; its token."""
        flight = self.unacked.pop(packet_id)
        if flight.qos == 2:
            if self.retired is None:
                self.retired = set()
            self.retired.add(packet_id)
        return flight.token_shift + packet_id

    def admit(self, packet_id: int) -> bool:
        """A QoS 2 message came in: True the first time, False while its id is still held (a repetition)."""
        if self.incoming is None:
            self.incoming = set()
        if packet_id in self.incoming:
            return False
        self.incoming.add(packet_id)
        return True

    def admit_all(self, ids: list[int]) -> bool:
        """The same for many at once; False, and nothing done, when any of them is a repetition."""
        fresh = set(ids)
        if len(fresh) != len(ids) or (self.incoming and not self.incoming.isdisjoint(fresh)):
            return False
        if self.incoming is None:
            self.incoming = fresh
        else:
            self.incoming |= fresh
        return True

    def release(self, ids: Iterable[int]) -> None:
        """PUBREL: these incoming ids may be used again; the caller answers each with PUBCOMP."""
        if self.incoming:
            self.incoming.difference_update(ids)

    def forget(self) -> None:
        """The broker lost the session: every open message must be published anew, incoming ids mean nothing."""
        if self.released:
            # Released messages are older than unacknowledged ones, and the promise for both is still open.
            self.unacked = {**self.released, **self.unacked}
            self.released = {}
        self.incoming = self.retired = None

    def _unused(self, ids: range) -> bool:
        used = (self.unacked, self.released, self.requests)
        if self.retired and not self.retired.isdisjoint(ids):
            return False
        return all(not those or those.keys().isdisjoint(ids) for those in used)

    def _search_ids(self, count: int) -> list[range]:
        taken = self.unacked.keys() | self.released.keys() | (self.requests or {}).keys() | (self.retired or set())
        runs: list[range] = []
        candidate = self.next_id
        start = 0
        for _ in range(LAST_ID):
            free = candidate not in taken
            if free:
                start = start or candidate
                count -= 1
            if start and (not free or candidate == LAST_ID or not count):
                runs.append(range(start, candidate + free))
                start = 0
            candidate = candidate % LAST_ID + 1
            if not count:
                break
        self.next_id = candidate
        return runs


_NONE_IN_FLIGHT: dict[int, Flight] = {}
"""Shared by every session that never sent above QoS 0; replaced before anything is put in."""
