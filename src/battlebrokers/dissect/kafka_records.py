"""The fields and record batches inside Kafka's Produce and Fetch: a cursor over one message, and what it finds.

Called by the Kafka dissector. Pure; whatever the bytes, it ends: past the end there are zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct

INTEGERS = {1: Struct(">b"), 2: Struct(">h"), 4: Struct(">i"), 8: Struct(">q")}
_BATCH = Struct(">qiibIhiqqqhii")
_MAX_RECORDS = 100_000
_COMPRESSION, _CONTROL = 0x07, 0x20


@dataclass(slots=True)
class Record:
    """One record: where it lies, and its value."""

    topic: str
    start: int
    end: int
    value: bytes
    size: int


class Cursor:
    """Reads one message's fields; past the end there are zeros."""

    def __init__(self, data: bytes, here: int, end: int, *, flexible: bool) -> None:
        self.data, self.here, self.end, self.flexible = data, here, end, flexible

    @property
    def over(self) -> bool:
        """Whether more was asked for than there is."""
        return self.here > self.end

    def number(self, size: int) -> int:
        """A signed number of 1, 2, 4 or 8 bytes."""
        self.here += size
        return 0 if self.here > self.end else int(INTEGERS[size].unpack_from(self.data, self.here - size)[0])

    def varint(self) -> int:
        """An unsigned number, seven bits a byte."""
        value = shift = 0
        while self.here < self.end and shift < 70:
            byte = self.data[self.here]
            self.here += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        self.here = self.end + 1
        return 0

    def signed(self) -> int:
        """A number with its sign in the last bit."""
        value = self.varint()
        return value >> 1 ^ -(value & 1)

    def skip(self, size: int) -> None:
        """Leave out so many bytes; none if they are negative, as what is not there counts itself."""
        self.here += max(0, size)

    def count(self) -> int:
        """How many elements an array has; -1 for none at all."""
        return self.varint() - 1 if self.flexible else self.number(4)

    def string(self) -> str:
        """A name."""
        size = self.varint() - 1 if self.flexible else self.number(2)
        start = self.here
        self.here += max(0, size)
        return "" if self.over else self.data[start : self.here].decode("utf-8", "replace")

    def topic(self, *, by_id: bool) -> str:
        """A topic's name, or its id."""
        if not by_id:
            return self.string()
        self.here += 16
        return self.data[self.here - 16 : self.here].hex()

    def tags(self) -> None:
        """Skip the tagged fields."""
        if not self.flexible:
            return
        for _ in range(self.varint()):
            self.varint()
            self.skip(self.varint())
            if self.over:
                break


def produced(body: Cursor, version: int) -> tuple[str, int, list[Record]]:
    """First topic, wanted acknowledgements, records."""
    if version >= 3:
        body.string()  # transaction
    acks = body.number(2)
    body.number(4)
    acks = 1 if body.over else acks
    topics: list[str] = []
    records: list[Record] = []
    for topic in _partitions(body, version, topics):
        _batches(body, topic, records)
    return "".join(topics), acks, records


def _partitions(body: Cursor, version: int, first: list[str]) -> Iterator[str]:
    """The topic of each partition, where its content begins; `first` is given the first topic, partitions or not."""
    for place in range(body.count()):
        topic = body.topic(by_id=version >= 13)
        if place == 0:
            first.append(topic)
        for _ in range(body.count()):
            body.number(4)
            yield topic
            body.tags()
            if body.over:
                return
        body.tags()
        if body.over:
            return


def fetched_topic(body: Cursor, version: int) -> str:
    """The first topic a Fetch asks for; empty if it names none."""
    body.here += (4 if version < 15 else 0) + 8 + (4 if version >= 3 else 0)
    body.here += (1 if version >= 4 else 0) + (8 if version >= 7 else 0)
    return body.topic(by_id=version >= 13) if body.count() > 0 else ""


def fetched(body: Cursor, version: int) -> tuple[bool, str, list[Record]]:
    """Whether it failed, first topic, records."""
    if version >= 1:
        body.number(4)
    failed = version >= 7 and body.number(2) != 0
    if version >= 7:
        body.number(4)
    topics: list[str] = []
    records: list[Record] = []
    for topic in _partitions(body, version, topics):
        failed = body.number(2) != 0 or failed
        body.here += 8 + (8 if version >= 4 else 0) + (8 if version >= 5 else 0)
        if version >= 4:
            for _ in range(body.count()):
                body.here += 16
                body.tags()
                if body.over:
                    break
        if version >= 11:
            body.number(4)
        _batches(body, topic, records)
    return failed, "".join(topics), records


def produce_failed(body: Cursor, version: int) -> bool:
    """Whether the first partition of a Produce was refused."""
    if body.count() > 0:
        body.topic(by_id=version >= 13)
        if body.count() > 0:
            body.number(4)
            return body.number(2) != 0
    return False


def _batches(body: Cursor, topic: str, records: list[Record]) -> None:
    """The record batches of one partition, as far as they are shown."""
    size = body.count()
    end = body.here + max(0, size)
    while body.here + _BATCH.size <= min(end, body.end):
        _, length, _, magic, _, attributes, *_, count = _BATCH.unpack_from(body.data, body.here)
        if length < 0:
            break
        batch_end = body.here + 12 + length
        if magic == 2 and not attributes & (_COMPRESSION | _CONTROL):
            inside = Cursor(body.data, body.here + _BATCH.size, min(batch_end, body.end), flexible=True)
            _records(inside, topic, count, records)
        body.here = batch_end
    body.here = end


def _records(inside: Cursor, topic: str, count: int, records: list[Record]) -> None:
    for _ in range(min(count, _MAX_RECORDS - len(records))):
        start = inside.here
        end = inside.signed() + inside.here
        if inside.over or end <= inside.here:
            break
        inside.number(1)
        inside.varint()
        inside.varint()
        inside.skip(inside.signed())  # the key
        size = max(0, inside.signed())
        value = inside.data[inside.here : min(inside.here + size, inside.end)]
        if inside.over or inside.here + size > end:
            break
        records.append(Record(topic, start, end, value, size))
        inside.here = end
