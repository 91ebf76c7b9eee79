"""The fields and record batches inside Kafka's Produce and Fetch: a cursor over bytes, a walk from record to record.

Called by the Kafka dissector. Whatever the bytes, it ends: past the end there are zeros. A walk holds at most one
packed batch; of everything else it waits for no more than a dissector may.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from battlebrokers.dissect.kafka_packing import ZSTD, opened
from battlebrokers.dissect.talk import WHOLE_MESSAGE_BYTES

INTEGERS = {1: Struct(">b"), 2: Struct(">h"), 4: Struct(">i"), 8: Struct(">q")}
_BATCH = Struct(">qiibIhiqqqhii")
_MAGIC = Struct(">8xi4xb")
"""The size and the version of a batch, which stand in the same place in all of them."""
_LARGEST_PACKED_BYTES = 4 << 20
"""Four times what brokers take unless told otherwise."""
_FREE_RECORDS = 256
"""A packed batch may hold so many records, and one more for each of its bytes: what is told costs memory."""
_COMPRESSION, _CONTROL = 0x07, 0x20


Tell = Callable[[str, int, int, bytes, int], None]
Step = Callable[["Cursor"], bool]


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


def fetched_topic(body: Cursor, version: int) -> str:
    """The first topic a Fetch asks for; empty if it names none."""
    body.here += (4 if version < 15 else 0) + 8 + (4 if version >= 3 else 0)
    body.here += (1 if version >= 4 else 0) + (8 if version >= 7 else 0)
    return body.topic(by_id=version >= 13) if body.count() > 0 else ""


def produce_failed(body: Cursor, version: int) -> bool:
    """Whether the first partition of a Produce was refused."""
    if body.count() > 0:
        body.topic(by_id=version >= 13)
        if body.count() > 0:
            body.number(4)
            return body.number(2) != 0
    return False


class Walk:
    """Goes through one Produce or answer to Fetch, a piece at a time, and tells each record when it is there.

    `tell` is given topic, first and last offset in the sender's stream, the value as far as it is shown, its full size.
    """

    def __init__(self, version: int, *, fetch: bool, flexible: bool, tell: Tell) -> None:
        self.name = ""
        """The first topic."""
        self.acks = 1
        """How many acknowledgements a Produce wants."""
        self.failed = False
        self.payload_bytes = 0
        """Of the records told so far."""
        self.undecoded_bytes = 0
        """Of batches that cannot be read."""
        self.need = 0
        """Not worth going on before there are so many bytes; 0 when it does not matter."""
        self._version, self._fetch, self._flexible, self._tell = version, fetch, flexible, tell
        self._step: Step | None = self._head
        self._at = 0
        self._first = True
        self._topics = self._partitions = 0
        self._topic = ""
        self._records_end = self._batch_end = self._skip_to = 0
        self._then: Step = self._batch
        self._left = self._codec = 0
        self._packed = bytearray()

    @property
    def done(self) -> bool:
        """Whether nothing more can be found."""
        return self._step is None

    def begin(self, data: bytes, here: int, shown: int, at: int) -> int:
        """Read up to the first partition's records; returns where that is. `at`: the offset of `data` in its stream."""
        return self._read(data, here, shown, at, self._batch)

    def read(self, data: bytes, here: int, shown: int, at: int, *, last: bool) -> int:
        """Go on with data[here:shown], and return where it stopped; with `last` that is all there is."""
        here = self._read(data, here, shown, at, None)
        if self._step is not None and (last or shown - here >= WHOLE_MESSAGE_BYTES):
            self.undecoded_bytes += max(0, min(self._records_end, at + shown) - (at + here)) + self.give_up()
        return here

    def give_up(self) -> int:
        """What comes next is not to be understood; returns how many bytes were held for nothing."""
        held, self._step, self._packed = len(self._packed), None, bytearray()
        return held

    def _read(self, data: bytes, here: int, shown: int, at: int, until: Step | None) -> int:
        body = Cursor(data, here, shown, flexible=self._flexible)
        self._at, self.need = at, 0
        while self._step is not None and self._step != until:
            start = body.here
            if not self._step(body):
                if body.over:
                    body.here = start
                break
        return body.here

    # Each step reads one thing and names the next; False: it has to wait for more bytes.

    def _head(self, body: Cursor) -> bool:
        version, acks, failed = self._version, 1, False
        if self._fetch:
            if version >= 1:
                body.number(4)
            failed = version >= 7 and body.number(2) != 0
            if version >= 7:
                body.number(4)
        else:
            if version >= 3:
                body.string()  # transaction
            acks = body.number(2)
            body.number(4)
        topics = body.count()
        if body.over:
            return False
        self.acks, self.failed, self._topics, self._step = acks, failed, topics, self._next_topic
        return True

    def _next_topic(self, body: Cursor) -> bool:
        if self._topics <= 0:
            self._step = None
            return True
        topic, partitions = body.topic(by_id=self._version >= 13), body.count()
        if body.over:
            return False
        if self._first:
            self.name, self._first = topic, False
        self._topic, self._partitions, self._step = topic, partitions, self._partition
        self._topics -= 1
        return True

    def _partition(self, body: Cursor) -> bool:
        if self._partitions <= 0:
            body.tags()
            self._step = self._step if body.over else self._next_topic
            return not body.over
        body.number(4)
        failed = False
        if self._fetch:
            version = self._version
            failed = body.number(2) != 0
            body.here += 8 + (8 if version >= 4 else 0) + (8 if version >= 5 else 0)
            if version >= 4:
                for _ in range(body.count()):
                    body.here += 16
                    body.tags()
                    if body.over:
                        break
            if version >= 11:
                body.number(4)
        size = body.count()
        if body.over:
            return False
        self.failed = failed or self.failed
        self._records_end = self._at + body.here + max(0, size)
        self._partitions -= 1
        self._step = self._batch
        return True

    def _after_records(self, body: Cursor) -> bool:
        body.tags()
        if body.over:
            return False
        self._step = self._partition
        return True

    def _batch(self, body: Cursor) -> bool:
        start = self._at + body.here
        left = self._records_end - start
        if left <= 0:
            self._step = self._after_records
            return True
        if left >= _MAGIC.size:
            if body.end - body.here < min(left, _BATCH.size):
                return False
            length, magic = _MAGIC.unpack_from(body.data, body.here)
            self._batch_end = start + 12 + length
            if 5 <= length <= left - 12 and magic < 2:
                return self._leave(start, self._batch_end)
            if _BATCH.size - 12 <= length <= left - 12:
                return self._open_batch(body, start)
        # A broker cuts off what does not fit into its answer; its client throws that away and asks again.
        return self._leave(start, self._records_end, counted=not self._fetch)

    def _open_batch(self, body: Cursor, start: int) -> bool:
        _, length, _, magic, _, attributes, *_, count = _BATCH.unpack_from(body.data, body.here)
        self._codec, self._left = attributes & _COMPRESSION, count
        if magic != 2 or self._codec > ZSTD or (self._codec and length > _LARGEST_PACKED_BYTES):
            return self._leave(start, self._batch_end)
        if attributes & _CONTROL:
            return self._leave(start, self._batch_end, counted=False)
        body.here += _BATCH.size
        self._step = self._packed_records if self._codec else self._records
        return True

    def _leave(self, start: int, end: int, then: Step | None = None, *, counted: bool = True) -> bool:
        """Everything up to there is not read."""
        self.undecoded_bytes += end - start if counted else 0
        self._skip_to, self._then, self._step = end, then or self._batch, self._skip
        return True

    def _skip(self, body: Cursor) -> bool:
        body.here = min(self._skip_to - self._at, body.end)
        if self._at + body.here < self._skip_to:
            self.need = 1
            return False
        self._step = self._then
        return True

    def _records(self, body: Cursor) -> bool:
        """Those of a batch as it is; one that is larger than we wait for is told by its front."""
        at, batch_end = self._at, self._batch_end - self._at
        inside = Cursor(body.data, body.here, min(batch_end, body.end), flexible=True)
        while self._left > 0:
            start = inside.here
            end = inside.signed() + inside.here
            waits = inside.over or min(end, batch_end, start + WHOLE_MESSAGE_BYTES) > inside.end
            if waits and inside.end < batch_end:
                body.here = start
                self.need = 0 if inside.over else min(end - start, WHOLE_MESSAGE_BYTES)
                return False
            record = _record(inside, end) if inside.here < end <= batch_end and not inside.over else None
            if record is None:
                return self._leave(at + start, self._batch_end)
            self._found(at + start, at + end, *record)
            self._left -= 1
            if end > inside.end:
                return self._leave(at + start, at + end, self._records, counted=False)
            inside.here = end
        body.here = inside.here
        return self._leave(at + inside.here, self._batch_end)

    def _packed_records(self, body: Cursor) -> bool:
        """Those of a packed batch: held until it is whole, and then shared out over its bytes on the wire."""
        end = min(self._batch_end - self._at, body.end)
        self._packed += body.data[body.here : end]
        body.here = end
        if self._at + end < self._batch_end:
            self.need = 1
            return False
        packed, self._packed = bytes(self._packed), bytearray()
        first, self._step = self._batch_end - len(packed), self._batch
        found = opened(self._codec, packed)
        if found is None:
            self.undecoded_bytes += _BATCH.size + len(packed)
            return True
        inside = Cursor(found, 0, len(found), flexible=True)
        size = max(1, len(found))
        for _ in range(min(self._left, _FREE_RECORDS + len(packed))):
            start = inside.here
            stop = inside.signed() + inside.here
            record = _record(inside, stop) if inside.here < stop <= inside.end and not inside.over else None
            if record is None:
                inside.here = start
                break
            self._found(first + start * len(packed) // size, first + stop * len(packed) // size, *record)
            inside.here = stop
        self.undecoded_bytes += len(packed) - inside.here * len(packed) // size
        return True

    def _found(self, start: int, end: int, value: bytes, size: int) -> None:
        self.payload_bytes += size
        self._tell(self._topic, start, end, value, size)


def _record(inside: Cursor, end: int) -> tuple[bytes, int] | None:
    """The value of the record that ends there, as far as it is shown, and its size; None if it is none."""
    inside.number(1)
    inside.varint()
    inside.varint()
    inside.skip(inside.signed())  # the key
    size = max(0, inside.signed())
    if inside.over or inside.here + size > end:
        return None
    return inside.data[inside.here : min(inside.here + size, inside.end)], size
