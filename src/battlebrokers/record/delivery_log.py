"""The delivery log: rows of `deliveries`, one per arrival. Called by the stopwatch on the hot path."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from battlebrokers.clock import SECOND_NS
from battlebrokers.record.chunks import Chunk, ChunkPool, Template

Numbers = npt.NDArray[Any]

ROW = struct.Struct("<qqqiiiiiBBxx")
DTYPE = np.dtype(
    [
        ("received_ns", "<i8"),
        ("planned_ns", "<i8"),
        ("seq", "<i8"),
        ("client", "<i4"),
        ("device", "<i4"),
        ("topic", "<i4"),
        ("payload_bytes", "<i4"),
        ("wire_bytes", "<i4"),
        ("qos", "u1"),
        ("flags", "u1"),
        ("pad", "<u2"),
    ]
)
assert DTYPE.itemsize == ROW.size
_SIZE = ROW.size
WHOLE_ROW = np.dtype(f"V{_SIZE}")
"""Rows without parts are copied several times faster."""

FLAG_RETAINED = 1
FLAG_DUP = 8

_CAPACITY = 32_768
_CHUNKS = 64
_AGE_NS = SECOND_NS
MOST_ROWS = 1 << 62
"""No limit."""
_STEPS = np.arange(_CAPACITY, dtype=np.int64)


def filled_row(client: int, mqtt_flags: int, payload_bytes: int, wire_bytes: int) -> Numbers:
    """A row whose message its header identifies, without times and without that header."""
    packed = ROW.pack(0, 0, 0, client, 0, -1, payload_bytes, wire_bytes, (mqtt_flags >> 1) & 3, mqtt_flags & 9)
    return np.frombuffer(packed, dtype=WHOLE_ROW)


class DeliveryLog:
    """Takes arrivals one by one or in bulk and passes full or old chunks on to the writer."""

    def __init__(self, write: Callable[[Chunk], None], most_rows: int = MOST_ROWS) -> None:
        self._write = write
        self._most_rows = most_rows
        self._rows = 0
        self.beyond = 0
        """Arrivals that came after so many rows: counted, not kept. Looked at chunk by chunk, not on the hot path."""
        self._pool = ChunkPool(DTYPE, _CAPACITY, _CHUNKS)
        self._current = self._pool.take() or Chunk(DTYPE, _CAPACITY)
        self._template = Template(_SIZE)
        self.overflow = 0
        self.before_turn: Callable[[], None] | None = None
        """Called before old chunks are passed on, to add what somebody still keeps."""

    @property
    def give_back(self) -> Callable[[Chunk], None]:
        """Where the writer returns chunks."""
        return self._pool.give_back

    def add(
        self, received_ns: int, client: int, device: int, seq: int, planned_ns: int, topic: int, payload_bytes: int,
        wire_bytes: int, mqtt_flags: int,
    ) -> None:  # fmt: skip
        """Record one arrival; `topic` is -1 when the header identifies the message and it came on its topic."""
        chunk = self._current
        used = chunk.used
        if used == chunk.capacity:
            if not self._turn_over():
                self.overflow += 1
                return
            chunk = self._current
            used = 0
        if not used:
            chunk.opened_ns = received_ns
        ROW.pack_into(
            chunk.buffer, used * _SIZE, received_ns, planned_ns, seq, client, device, topic, payload_bytes, wire_bytes,
            (mqtt_flags >> 1) & 3, mqtt_flags & 9,
        )  # fmt: skip
        chunk.used = used + 1

    def add_many(
        self, received_ns: int, client: int, device: Numbers, seq: Numbers, planned_ns: Numbers, topic: Numbers | int,
        payload_bytes: Numbers | int, wire_bytes: Numbers | int, mqtt_flags: Numbers | int,
    ) -> None:  # fmt: skip
        """Record many arrivals of one client at one instant; a plain number is that of all of them."""
        count = len(seq)
        flags = mqtt_flags if isinstance(mqtt_flags, int) else 0
        template = self._template
        ROW.pack_into(
            template.buffer, 0, received_ns, 0, 0, client, 0, topic if isinstance(topic, int) else -1,
            payload_bytes if isinstance(payload_bytes, int) else 0, wire_bytes if isinstance(wire_bytes, int) else 0,
            (flags >> 1) & 3, flags & 9,
        )  # fmt: skip
        done = 0
        while done < count:
            chunk = self._current
            if chunk.used == chunk.capacity:
                if not self._turn_over():
                    self.overflow += count - done
                    return
                chunk = self._current
            start = chunk.used
            if not start:
                chunk.opened_ns = received_ns
            take = min(count - done, chunk.capacity - start)
            end = start + take
            piece = slice(done, done + take)
            columns = chunk.columns
            chunk.whole[start:end] = template.whole
            # A nanosecond each keeps the order in which one instant's messages arrived.
            columns["received_ns"][start:end] = _STEPS[:take] + (received_ns + done)
            columns["planned_ns"][start:end] = planned_ns[piece]
            columns["seq"][start:end] = seq[piece]
            columns["device"][start:end] = device[piece]
            if not isinstance(topic, int):
                columns["topic"][start:end] = topic[piece]
            if not isinstance(payload_bytes, int):
                columns["payload_bytes"][start:end] = payload_bytes[piece]
            if not isinstance(wire_bytes, int):
                columns["wire_bytes"][start:end] = wire_bytes[piece]
            if not isinstance(mqtt_flags, int):
                columns["qos"][start:end] = (mqtt_flags[piece] >> 1) & 3
                columns["flags"][start:end] = mqtt_flags[piece] & 9
            chunk.used = end
            done += take

    def add_rows(self, rows: Numbers) -> None:
        """Record arrivals that are rows already."""
        whole = rows.view(WHOLE_ROW)
        done, count = 0, len(rows)
        while done < count:
            chunk = self._current
            if chunk.used == chunk.capacity:
                if not self._turn_over():
                    self.overflow += count - done
                    return
                chunk = self._current
            start = chunk.used
            if not start:
                chunk.opened_ns = int(rows["received_ns"][done])
            take = min(count - done, chunk.capacity - start)
            chunk.whole[start : start + take] = whole[done : done + take]
            chunk.used = start + take
            done += take

    def turn(self, now_ns: int) -> None:
        """Housekeeping, a few times a second: pass an old chunk on."""
        if self.before_turn is not None:
            self.before_turn()
        if self._current.used and now_ns - self._current.opened_ns >= _AGE_NS:
            self._turn_over()

    def finish(self) -> None:
        """Pass everything on to the writer."""
        if self.before_turn is not None:
            self.before_turn()
        if self._current.used:
            self._pass_on(self._current)
            self._current = Chunk(DTYPE, _CAPACITY)

    def _turn_over(self) -> bool:
        if self._rows >= self._most_rows:
            self.beyond += self._current.used
            self._current.reset(0, 0)
            return True
        fresh = self._pool.take()
        if fresh is None:
            return False
        fresh.reset(0, 0)
        self._pass_on(self._current)
        self._current = fresh
        return True

    def _pass_on(self, chunk: Chunk) -> None:
        if self._rows >= self._most_rows:
            self.beyond += chunk.used
            return
        self._rows += chunk.used
        self._write(chunk)
