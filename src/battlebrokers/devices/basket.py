"""The basket: short messages of ours, kept as they came in and recorded together. Filled by links, emptied here.

With thousands of clients nearly every chunk is one message. Only what cannot wait is done for each of them: its time
is read. All the rest is done for hundreds at once. It never changes a time and never keeps what is not ours.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns
from typing import Any

import numpy as np
import numpy.typing as npt

from battlebrokers.devices.expected_topics import NOT_COMPARED, ExpectedTopics
from battlebrokers.devices.header import headers_at
from battlebrokers.protocols.base import Link
from battlebrokers.record.delivery_log import DTYPE, WHOLE_ROW, DeliveryLog, filled_row
from battlebrokers.tables.message_header import MAX_DEVICE

_MOST_KINDS = 65_536
"""Above so many, kinds no longer tell the topic; then each message is looked at."""
_LOOK, _SKIP = -3, -4
"""In place of a topic's number: compare each message, compare none."""
_FULL = 256
"""Messages: enough to be cheap, and emptying it takes less time than reading twenty of them."""
_SAMPLED_EVERY = 64
_STEPS = np.arange(2 * _FULL, dtype=np.int64)

Rows = npt.NDArray[Any]


class Basket:
    """Implements `protocols.base.Basket`; `sample` is told some response times for the live figures."""

    def __init__(
        self, deliveries: DeliveryLog, clock_shift_ns: int, sample: Callable[[int], None],
        topic_id: Callable[[bytes], int],
    ) -> None:  # fmt: skip
        self.expected: ExpectedTopics | None = None
        """What topics are compared with; nothing where nobody knows them."""
        self._topic_id = topic_id
        self._deliveries = deliveries
        self._shift_ns = clock_shift_ns
        self._sample = sample
        self._kinds: dict[tuple[int, ...], int] = {}
        self._templates: Rows = np.zeros(64, dtype=WHOLE_ROW)
        """One row a kind, with everything filled in that its messages share."""
        self._came_on = np.zeros(64, np.int64)
        """The topic of a kind's messages, as `ExpectedTopics` numbers them."""
        self._topic_at: list[tuple[int, int]] = []
        """Where that topic begins and ends in a frame of the kind."""
        # Lists, not arrays: to append a number to an array takes several times as long.
        self._arrived_ns: list[int] = []
        self._arrived_kinds: list[int] = []
        self._frames: list[bytes] = []
        self._last_ns = 0
        self._emptied = 0
        self.put = self._putter()
        deliveries.before_turn = self.empty

    def kind_of(self, link: Link, flags: int, payload_bytes: int, wire_bytes: int, topic_at: int, topic: bytes) -> int:
        """The number to put such messages in with."""
        owner: Any = link.owner
        row = (int(owner.number), flags, payload_bytes, wire_bytes)
        came_on = _LOOK
        if self.expected is None or not link.keeps_topics:
            came_on = _SKIP
        elif len(self._kinds) < _MOST_KINDS:
            came_on = self.expected.place_of(topic)
        shared = (*row, came_on, len(topic))
        kind = self._kinds.get(shared)
        if kind is None:
            kind = self._kinds[shared] = len(self._kinds)
            if kind == len(self._templates):
                self._templates = np.concatenate([self._templates, np.zeros_like(self._templates)])
                self._came_on = np.concatenate([self._came_on, np.zeros_like(self._came_on)])
            self._templates[kind : kind + 1] = filled_row(*row)
            self._came_on[kind] = came_on
            self._topic_at.append((topic_at, topic_at + len(topic)))
        return kind

    def put_few(self, kind: int, frames: bytes, count: int) -> None:
        """Several messages of one kind, one right behind the other, that came in one chunk now."""
        now_ns = monotonic_ns()
        self._arrived_ns += [now_ns] * count
        self._arrived_kinds += [kind] * count
        self._frames.append(frames)
        if len(self._arrived_ns) >= _FULL:
            self.empty()

    @property
    def received(self) -> int:
        """How many messages were ever put in."""
        return self._emptied + len(self._arrived_ns)

    @property
    def last_arrival_ns(self) -> int:
        """When the latest of them came (run time); 0 before the first."""
        waiting_ns = self._arrived_ns
        return max(self._last_ns, waiting_ns[-1] + self._shift_ns) if waiting_ns else self._last_ns

    def empty(self) -> None:
        """Record everything that is in it."""
        count = len(self._arrived_ns)
        if not count:
            return
        kinds = np.fromiter(self._arrived_kinds, np.int64, count)
        rows = self._templates[kinds].view(DTYPE)
        ends = np.cumsum(rows["wire_bytes"], dtype=np.int64)
        frames = b"".join(self._frames)
        headers = headers_at(frames, ends - rows["payload_bytes"])
        received_ns = self._in_order(np.fromiter(self._arrived_ns, np.int64, count) + self._shift_ns)
        # A time that we cannot have written counts as none; as a signed number it is negative.
        planned_ns = np.maximum(headers["planned_ns"].astype(np.int64), -1)
        rows["received_ns"] = received_ns
        rows["planned_ns"] = planned_ns
        rows["seq"] = headers["seq"]
        rows["device"] = headers["word"] & MAX_DEVICE
        if self.expected is not None:
            self._name_others(self.expected, rows, frames, kinds, ends)
        del self._arrived_ns[:], self._arrived_kinds[:], self._frames[:]
        self._emptied += count
        self._deliveries.add_rows(rows)
        for place in range(0, count, _SAMPLED_EVERY):
            if not rows["flags"][place] & 1:
                self._sample(int(received_ns[place]) - int(planned_ns[place]))

    def _name_others(
        self, expected: ExpectedTopics, rows: Rows, frames: bytes, kinds: Rows, ends: npt.NDArray[np.int64]
    ) -> None:  # fmt: skip
        """Record the topic of the messages that came on another one than theirs."""
        came_on, planned = self._came_on[kinds], expected.places(rows["device"], rows["seq"])
        # Nearly always nothing is left of this.
        doubtful = ((came_on != planned) & (planned != NOT_COMPARED)).nonzero()[0].tolist()
        for place in doubtful:
            row = rows[place]
            frame_at = int(ends[place]) - int(row["wire_bytes"])
            begin, end = self._topic_at[int(kinds[place])]
            topic = frames[frame_at + begin : frame_at + end]
            if came_on[place] != _SKIP and expected.is_other(int(row["device"]), int(row["seq"]), topic):
                rows["topic"][place] = self._topic_id(topic)

    def _in_order(self, at_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Messages of one chunk came at one instant; a nanosecond each keeps their order."""
        steps = _STEPS[: len(at_ns)]
        at_ns -= steps
        at_ns[0] = max(int(at_ns[0]), self._last_ns + 1)
        ordered: npt.NDArray[np.int64] = np.maximum.accumulate(at_ns) + steps
        self._last_ns = int(ordered[-1])
        return ordered

    def _putter(self) -> Callable[[int, bytes], None]:
        # The hottest function there is: a closure finds its names faster than a method does.
        arrived_ns, kinds, frames, empty = self._arrived_ns, self._arrived_kinds, self._frames, self.empty
        read_clock, full = monotonic_ns, _FULL

        def put(kind: int, frame: bytes) -> None:
            arrived_ns.append(read_clock())
            kinds.append(kind)
            frames.append(frame)
            if len(arrived_ns) >= full:
                empty()

        return put
