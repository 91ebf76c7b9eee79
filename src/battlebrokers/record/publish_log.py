"""The publish log: rows of `publishes`, filled at send, completed by acknowledgements while still in memory.

Called by the stopwatch on the hot path. A row whose chunk was already written is completed by a row of `acks`.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from battlebrokers.clock import SECOND_NS
from battlebrokers.record.chunks import Chunk, ChunkPool, Template

Numbers = npt.NDArray[Any]

ROW = struct.Struct("<qqqqiiiiiihhBBBB")
DTYPE = np.dtype(
    [
        ("planned_ns", "<i8"),
        ("sent_ns", "<i8"),
        ("acked_ns", "<i8"),
        ("seq", "<i8"),
        ("device", "<i4"),
        ("topic", "<i4"),
        ("payload_bytes", "<i4"),
        ("structure_bytes", "<i4"),
        ("url_bytes", "<i4"),
        ("wire_bytes", "<i4"),
        ("reason", "<i2"),
        ("retries", "<i2"),
        ("qos", "u1"),
        ("flags", "u1"),
        ("held", "u1"),
        ("outcome", "u1"),
    ]
)
assert DTYPE.itemsize == ROW.size
_SIZE = ROW.size
_SHARED = struct.Struct("<iiiiiihhBBBB")
_OWN = struct.Struct(f"<qqqq{_SHARED.size}s")
"""A row as its own numbers and what it shares with others, packed before."""
assert _OWN.size == _SIZE
_ACKED_AT = struct.Struct("<q")
_ACKED_OFFSET = 16
_REASON = struct.Struct("<h")
_REASON_OFFSET = 56
_OUTCOME_OFFSET = 63

NONE = -1
FLAG_RETAIN = 1
FLAG_STAMPED = 2
OUTCOME_UNACKED, OUTCOME_SENT, OUTCOME_ACKED, OUTCOME_REFUSED, OUTCOME_UNSENT, OUTCOME_FAILED = range(6)
OUTCOMES = ("unacked", "sent", "acked", "refused", "unsent", "failed")
HELD = ("no", "window", "socket", "offline", "away")

_CAPACITY = 32_768
_CHUNKS = 48
_AGE_NS = SECOND_NS
_SETTLE_NS = SECOND_NS
_REMEMBERED = 8
"""Chunks: some seconds. The network says that nobody was there within a round trip, but maybe after the writing."""


def shared_part(
    device: int, topic: int, payload_bytes: int, structure_bytes: int, url_bytes: int, wire_bytes: int, qos: int,
    flags: int, outcome: int,
) -> bytes:  # fmt: skip
    """What rows of messages that are alike share, for `PublishLog.add_alike`; of messages that were never held."""
    return _SHARED.pack(
        device, topic, payload_bytes, structure_bytes, url_bytes, wire_bytes, NONE, 0, qos, flags, 0, outcome
    )


class PublishLog:
    """Hands out tokens (row numbers), completes rows, and passes full or old chunks on to the writer."""

    def __init__(self, write: Callable[[Chunk], None], late: Callable[[int, int, int | None, str, int], None]) -> None:
        self._write = write
        self._late = late
        self._pool = ChunkPool(DTYPE, _CAPACITY, _CHUNKS)
        self._settling: list[Chunk] = []
        self._written_unacked: dict[int, tuple[int, int]] = {}
        self._written: deque[tuple[int, Numbers, Numbers, Numbers]] = deque(maxlen=_REMEMBERED)
        """The latest written chunks with messages nobody answers: first token; outcome, device and number of each."""
        self._template = Template(_SIZE)
        self.next_token = 0
        """The token of the row that is added next."""
        self._current = self._pool.take() or Chunk(DTYPE, _CAPACITY)
        self.overflow = 0

    @property
    def give_back(self) -> Callable[[Chunk], None]:
        """Where the writer returns chunks."""
        return self._pool.give_back

    @property
    def crowded(self) -> bool:
        """Whether more than half of the memory waits to be written."""
        return self._pool.crowded

    def add(
        self, now_ns: int, device: int, topic: int, seq: int, planned_ns: int, sent_ns: int, payload_bytes: int,
        url_bytes: int, qos: int, flags: int, held: int, outcome: int, wire_bytes: int = 0, structure_bytes: int = NONE,
    ) -> int:  # fmt: skip
        """Record one message; returns its token, which belongs to nobody when the log overflowed.

        The structure is the payload itself unless its size is told.
        """
        token = self.next_token
        chunk = self._current
        used = chunk.used
        if used == chunk.capacity:
            if not self._turn_over(now_ns):
                self.overflow += 1
                self.next_token = token + 1
                return token
            chunk = self._current
            used = 0
        elif not used:
            chunk.opened_ns = now_ns
        ROW.pack_into(
            chunk.buffer, used * _SIZE, planned_ns, sent_ns, NONE, seq, device, topic, payload_bytes,
            payload_bytes if structure_bytes < 0 else structure_bytes, url_bytes, wire_bytes, NONE, 0, qos, flags, held,
            outcome,
        )  # fmt: skip
        chunk.used = used + 1
        if not outcome:
            chunk.unacked += 1
        self.next_token = token + 1
        return token

    def add_alike(self, seq: int, planned_ns: int, sent_ns: int, shared: bytes, outcome: int) -> None:
        """Record one message that was just sent, as `add` does, when what it shares with others is packed already."""
        chunk = self._current
        used = chunk.used
        if used == chunk.capacity:
            if not self._turn_over(sent_ns):
                self.overflow += 1
                self.next_token += 1
                return
            chunk = self._current
            used = 0
        elif not used:
            chunk.opened_ns = sent_ns
        _OWN.pack_into(chunk.buffer, used * _SIZE, planned_ns, sent_ns, NONE, seq, shared)
        chunk.used = used + 1
        if not outcome:
            chunk.unacked += 1
        self.next_token += 1

    def add_many(
        self, now_ns: int, device: int, topic: int, first_seq: int, planned_ns: npt.NDArray[np.int64], sent_ns: int,
        payload_bytes: int, url_bytes: int, qos: int, flags: int, held: npt.NDArray[np.uint8] | int, outcome: int,
        wire_bytes: int = 0, structure_bytes: int = NONE,
    ) -> int:  # fmt: skip
        """Record several messages of one device and topic with one size; returns the first token, tokens follow on."""
        count = len(planned_ns)
        first = self.next_token
        template = self._template
        ROW.pack_into(
            template.buffer, 0, 0, sent_ns, NONE, 0, device, topic, payload_bytes,
            payload_bytes if structure_bytes < 0 else structure_bytes, url_bytes, wire_bytes, NONE, 0, qos, flags,
            held if isinstance(held, int) else 0, outcome,
        )  # fmt: skip
        done = 0
        while done < count:
            chunk = self._current
            if chunk.used == chunk.capacity:
                if not self._turn_over(now_ns):
                    # Tokens stay consecutive; those of rows that found no place belong to nobody.
                    self.overflow += count - done
                    self.next_token += count - done
                    break
                chunk = self._current
            elif not chunk.used:
                chunk.opened_ns = now_ns
            start = chunk.used
            take = min(count - done, chunk.capacity - start)
            end = start + take
            columns = chunk.columns
            chunk.whole[start:end] = template.whole
            columns["planned_ns"][start:end] = planned_ns[done : done + take]
            columns["seq"][start:end] = np.arange(first_seq + done, first_seq + done + take)
            if not isinstance(held, int):
                columns["held"][start:end] = held[done : done + take]
            chunk.used = end
            if not outcome:
                chunk.unacked += take
            self.next_token += take
            done += take
        return first

    def complete(self, tokens: Sequence[int], at_ns: int, outcome: int, reason: int) -> None:
        """Mark messages as acknowledged, refused or failed; reasons are the broker's, or below -1 our own."""
        current = self._current
        for token in tokens:
            chunk = current if token >= current.base else self._find(token)
            if chunk is None:
                known = self._written_unacked.pop(token, None) or self._written_sent(token)
                if known is not None:
                    self._late(*known, at_ns, OUTCOMES[outcome], reason)
                continue
            index = token - chunk.base
            if not 0 <= index < chunk.used:
                continue
            offset = index * _SIZE
            buffer = chunk.buffer
            if buffer[offset + _OUTCOME_OFFSET] == OUTCOME_UNACKED:
                chunk.unacked -= 1
            _ACKED_AT.pack_into(buffer, offset + _ACKED_OFFSET, at_ns)
            buffer[offset + _OUTCOME_OFFSET] = outcome
            if reason > 0 or reason < NONE:
                _REASON.pack_into(buffer, offset + _REASON_OFFSET, reason)

    def resent(self, tokens: Sequence[int]) -> None:
        """Count one more try for each of these messages."""
        for token in tokens:
            chunk = self._current if token >= self._current.base else self._find(token)
            if chunk is not None and 0 <= token - chunk.base < chunk.used:
                chunk.rows["retries"][token - chunk.base] += 1
            elif token in self._written_unacked:
                self._late(*self._written_unacked[token], None, "resent", NONE)

    def turn(self, now_ns: int) -> None:
        """Housekeeping, a few times a second: close an old chunk, pass settled ones to the writer."""
        if self._current.used and now_ns - self._current.opened_ns >= _AGE_NS:
            self._turn_over(now_ns)
        while self._settling and (
            not self._settling[0].unacked or now_ns - self._settling[0].opened_ns >= _AGE_NS + _SETTLE_NS
        ):
            self._pass_on(self._settling.pop(0))

    def finish(self, now_ns: int) -> None:
        """Pass everything on to the writer."""
        if self._current.used:
            self._settling.append(self._current)
            self._current = Chunk(DTYPE, _CAPACITY)
            self._current.reset(self.next_token, now_ns)
        while self._settling:
            self._pass_on(self._settling.pop(0))

    def _find(self, token: int) -> Chunk | None:
        for chunk in reversed(self._settling):
            if token >= chunk.base:
                return chunk
        return None

    def _turn_over(self, now_ns: int) -> bool:
        fresh = self._pool.take()
        if fresh is None and self._settling:
            self._pass_on(self._settling.pop(0))
            fresh = self._pool.take()
        if fresh is None:
            return False
        if self._current.used:
            self._settling.append(self._current)
        else:
            self._pool.give_back(self._current)
        fresh.reset(self.next_token, now_ns)
        self._current = fresh
        return True

    def _written_sent(self, token: int) -> tuple[int, int] | None:
        """Device and number of a message that was written as sent; once."""
        for base, outcomes, devices, seqs in self._written:
            place = token - base
            if 0 <= place < len(outcomes) and outcomes[place] == OUTCOME_SENT:
                outcomes[place] = OUTCOME_FAILED
                return int(devices[place]), int(seqs[place])
        return None

    def _pass_on(self, chunk: Chunk) -> None:
        rows = chunk.rows[: chunk.used]
        if chunk.unacked < chunk.used:
            # The loop waits meanwhile: column by column it is four times faster than row by row.
            outcomes = rows["outcome"].copy()
            if (outcomes == OUTCOME_SENT).any():
                self._written.append((chunk.base, outcomes, rows["device"].copy(), rows["seq"].copy()))
        if chunk.unacked:
            for index in np.flatnonzero(rows["outcome"] == OUTCOME_UNACKED).tolist():
                row = rows[index]
                self._written_unacked[chunk.base + index] = (int(row["device"]), int(row["seq"]))
        self._write(chunk)
