"""Plain MQTT packets, many at once: PUBLISH and its four acknowledgements as columns instead of one by one.

Called by the MQTT dissector with what both sides said. A packet that is not plain (long, with properties, broken, cut
in two) ends the reading before the run it is in; the dissector reads that one byte by byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from battlebrokers.dissect.gather import Numbers, Octets, column, rows_at
from battlebrokers.dissect.mqtt_packets import NAMES, PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, topic_texts
from battlebrokers.dissect.payload_marks import fingerprints_of, marks_of
from battlebrokers.dissect.runs import Spoken
from battlebrokers.dissect.talk import Talk
from battlebrokers.tables.message_header import HEADER_BYTES, MAX_DEVICE, VERSION

_PADDING = bytes(HEADER_BYTES)
"""So that a look behind the last packet finds something."""
_IS_ACK = np.zeros(256, dtype=np.bool_)
_IS_ACK[[PUBACK << 4, PUBREC << 4, PUBREL << 4 | 2, PUBCOMP << 4]] = True
_KINDS = np.array(NAMES, dtype=object)


@dataclass(frozen=True, slots=True)
class Paired:
    """The packets with an id, in the order in which they were there."""

    number: list[int]
    first: list[int]
    """Their first byte: kind and flags."""
    sender: list[int]
    packet_id: list[int]

    def columns(self) -> tuple[list[int], list[int], list[int], list[int]]:
        """All of it, in this order."""
        return self.number, self.first, self.sender, self.packet_id


def tell_plain(talk: Talk, spoken: Spoken, *, is_5: bool) -> tuple[int, Paired]:
    """Tell the talk all messages of the first runs that hold nothing else: how many runs, and what waits or answers."""
    content = b"".join((*spoken.parts, _PADDING))
    data: Octets = np.frombuffer(content, dtype=np.uint8)
    piece_end = np.cumsum(spoken.size)
    start, body, end, broken = _packets(content, data, piece_end - spoken.size, piece_end)
    first = data[start].astype(np.int64)
    qos = first >> 1 & 3
    is_publish = (first >> 4 == PUBLISH) & (qos < 3) & (end - body >= 2)
    word = data[body].astype(np.int64) << 8 | data[body + 1]
    payload = body + 2 + word + 2 * (qos > 0)
    if is_5:
        has_properties = payload < end
        is_publish &= ~has_properties | (data[np.minimum(payload, len(data) - 1)] == 0)
        payload += has_properties
    is_publish &= payload <= end
    plain = is_publish | (_IS_ACK[first] & (end - body == 2))
    ends = [broken, *start[np.flatnonzero(~plain)[:1]].tolist()]
    runs = _whole_runs(spoken, piece_end, min(ends))
    if not runs:
        return 0, Paired([], [], [], [])
    stop = int(piece_end[spoken.run_end[runs - 1] - 1])
    count = int(np.searchsorted(start, stop))
    found = _Found(spoken, content, data, start[:count], body[:count], end[:count], payload[:count], is_publish[:count])
    return runs, found.tell(talk, first[:count], word[:count], qos[:count])


def _packets(content: bytes, data: Octets, starts: Numbers, ends: Numbers) -> tuple[Numbers, Numbers, Numbers, int]:
    """Where packets, their bodies and their ends are, if each piece holds whole ones; and where that is not so."""
    length, long = data[starts + 1].astype(np.int64), data[starts + 1] > 127
    if long.any():
        more = data[starts + 2]
        length = np.where(long, (length & 127) | more.astype(np.int64) << 7, length)
        whole = ~long | (more < 128)
    else:
        whole = np.ones(len(starts), dtype=np.bool_)
    bodies = starts + 2 + long
    whole &= bodies + length == ends
    if whole.all():
        return starts, bodies, ends, len(content)
    several: list[tuple[int, int, int]] = []
    broken = len(content)
    for place, stop in zip(starts[~whole].tolist(), ends[~whole].tolist(), strict=True):
        here = place
        while here < stop:
            size, body = content[here + 1], here + 2
            if size > 127:
                size += (content[body] - 1) << 7
                body += 1
                if content[body - 1] > 127:
                    break
            if body + size > stop:
                break
            several.append((here, body, body + size))
            here = body + size
        if here < stop:
            broken = place
            break
    extra = np.array(several, dtype=np.int64).reshape(-1, 3).T
    packets = np.concatenate((np.stack((starts[whole], bodies[whole], ends[whole])), extra), axis=1)
    start, body, end = packets[:, np.argsort(packets[0], kind="stable")]
    return start, body, end, broken


def _whole_runs(spoken: Spoken, piece_end: Numbers, broken: int) -> int:
    """How many runs end before a place."""
    last = piece_end[spoken.run_end - 1]
    return int(np.searchsorted(last, broken, side="right"))


@dataclass(frozen=True, slots=True)
class _Found:
    """Packets that are all plain."""

    spoken: Spoken
    content: bytes
    data: Octets
    start: Numbers
    body: Numbers
    end: Numbers
    payload: Numbers
    is_publish: Any

    def tell(self, talk: Talk, first: Numbers, word: Numbers, qos: Numbers) -> Paired:
        """Everything that is known of them, field by field."""
        count = len(self.start)
        sender, offset = self.spoken.offsets(self.start)
        published = np.flatnonzero(self.is_publish)
        content = self.content
        topics, sizes = self.body[published] + 2, word[published]
        topic_ends = (topics + sizes).tolist()
        names = topic_texts([content[start:end] for start, end in zip(topics.tolist(), topic_ends, strict=True)])
        begins, ends = self.payload[published], self.end[published]
        payloads = [content[start:end] for start, end in zip(begins.tolist(), ends.tolist(), strict=True)]
        fingerprints = fingerprints_of(payloads)
        device, seq, identity = self._marks(talk, begins, ends, payloads)
        has_id = np.flatnonzero(~self.is_publish | (qos > 0))
        place = np.where(self.is_publish, self.body + 2 + word, self.body)[has_id]
        packet_id = (self.data[place].astype(np.int64) << 8 | self.data[place + 1]).tolist()
        payload_bytes = np.zeros(count, dtype=np.int64)
        payload_bytes[published] = ends - begins
        everywhere = len(published) == count
        number = talk.add_all(
            (
                sender.tolist(), offset.tolist(), (offset + self.end - self.start).tolist(), [talk.protocol] * count,
                _KINDS[first >> 4].tolist(), names if everywhere else _spread(count, "", published, names),
                _spread(count, "", has_id, list(map(str, packet_id))), [False] * count, payload_bytes.tolist(),
                *(
                    values if everywhere else _spread(count, None, published, values)
                    for values in (device, seq, fingerprints, identity)
                ),
            )
        )  # fmt: skip
        return Paired((has_id + number).tolist(), first[has_id].tolist(), sender[has_id].tolist(), packet_id)

    def _marks(
        self, talk: Talk, begins: Numbers, ends: Numbers, payloads: list[bytes]
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Device, number and identity of each payload."""
        ours = (ends - begins >= HEADER_BYTES) & (self.data[begins] == VERSION)
        rows = rows_at(self.data, begins, HEADER_BYTES)
        device = (column(rows, 0, ">u4") & MAX_DEVICE).tolist()
        seq = column(rows, 4, ">u4").tolist()
        identity: list[Any] = [None] * len(payloads)
        for row in np.flatnonzero(~ours).tolist():
            device[row], seq[row], identity[row] = marks_of(payloads[row], talk.seen_ns)
        return device, seq, identity


def _spread(count: int, otherwise: object, rows: Numbers, values: list[Any]) -> list[Any]:
    """A column that has these values in these rows."""
    if not len(rows):
        return [otherwise] * count
    spread = np.full(count, otherwise, dtype=object)
    spread[rows] = values
    return spread.tolist()
