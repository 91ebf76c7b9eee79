"""A device: speaks when its schedule says so, whatever the broker does. Created by the engine, driven by the crowd.

It never waits: what cannot leave is owed, keeps its planned time, and is marked with the reason it was held.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from battlebrokers.devices.header import device_word, stamp_many
from battlebrokers.devices.node import Node
from battlebrokers.devices.stopwatch import Stopwatch
from battlebrokers.pacing.schedule import NEVER, Offsets, Schedule
from battlebrokers.protocols.base import Held, Link, Outgoing
from battlebrokers.record.publish_log import (
    FLAG_RETAIN,
    FLAG_STAMPED,
    NONE,
    OUTCOME_SENT,
    OUTCOME_UNACKED,
    OUTCOME_UNSENT,
    shared_part,
)
from battlebrokers.scenario.payloads import PayloadSource
from battlebrokers.scenario.plan import DevicePlan
from battlebrokers.scenario.topics import TopicChooser
from battlebrokers.tables.message_header import HEADER, SEQ_MASK

_BULK = 10
"""From so many messages on, one numpy matrix is cheaper than one bytes object each; measured."""
_BATCH_MESSAGES = 1024
_BATCH_BYTES = 1 << 20


class Device(Node):
    """One publisher; `rearm(device, due_ns)` tells the crowd when it wants to speak next (run time)."""

    __slots__ = (
        "_alike", "_batch", "_chooser", "_flags", "_held", "_log", "_outcome", "_qos", "_rearm", "_released_ns",
        "_retain", "_schedule", "_seq", "_shared", "_source", "_start_ns", "_topic_ids", "_topics", "_varied", "_word",
        "index",
    )  # fmt: skip

    role = "device"

    def __init__(
        self, plan: DevicePlan, link: Link, stopwatch: Stopwatch, schedule: Schedule, source: PayloadSource,
        rearm: Callable[[Device, int], None],
    ) -> None:  # fmt: skip
        super().__init__(plan.number, link, stopwatch, plan.connection, seed=plan.seed, away=plan.away)
        self.index = 0
        self._topics = tuple(topic.encode() for topic in plan.topics)
        self._topic_ids = tuple(stopwatch.recorder.topic_id(topic) for topic in plan.topics)
        self._chooser = TopicChooser(plan.topics, plan.topic_choice, plan.seed) if len(plan.topics) > 1 else None
        self._qos = plan.qos
        self._retain = plan.retain
        self._outcome = OUTCOME_UNACKED if plan.qos in link.capabilities.acknowledges else OUTCOME_SENT
        self._schedule = schedule
        self._source = source
        self._flags = (FLAG_RETAIN if plan.retain else 0) | (FLAG_STAMPED if source.stamped else 0)
        self._batch = max(1, min(_BATCH_MESSAGES, _BATCH_BYTES // max(1, source.fixed_bytes or 1)))
        # Messages that differ in topic or size leave one by one.
        self._varied = self._chooser is not None or source.fixed_bytes is None
        self._word = device_word(plan.number)
        self._log = stopwatch.recorder.publishes
        self._alike = (-1, -1, -1)
        """Topic, payload and wire bytes of the last single message; the rows of those alike share `_shared`."""
        self._shared = b""
        self._rearm = rearm
        self._seq = 0
        self._held = Held.NO
        self._released_ns = 0
        self._start_ns = 0

    def start(self, load_start_ns: int) -> int:
        """Fix the start of the load; returns when the first message is due (run time)."""
        self._start_ns = load_start_ns
        return self.next_due_ns()

    def next_due_ns(self) -> int:
        """When the next message is due in run time, or NEVER."""
        offset_ns = self._schedule.peek_ns
        return offset_ns if offset_ns == NEVER else self._start_ns + offset_ns

    def speak(self) -> int:
        """Send what is due, as far as the link takes it; returns when to be called again."""
        link = self.link
        now_ns = self.stopwatch.now_ns()
        room = link.room(self._qos) if self.connected else 0
        if room <= 0:
            self._held = self._held_by()
            return NEVER
        start_ns = self._start_ns
        schedule = self._schedule
        # In a large crowd a device seldom owes more than one.
        offset_ns = schedule.take_only(now_ns - start_ns)
        if offset_ns != NEVER:
            self._send_one(now_ns, start_ns + offset_ns)
        else:
            self._send_due(now_ns, schedule.take(now_ns - start_ns, min(room, self._batch)))
        due_ns = schedule.peek_ns
        if due_ns != NEVER:
            due_ns += start_ns
        if self._held and due_ns > self._released_ns:
            self._held = Held.NO
        return due_ns

    def writable(self) -> None:
        """The link takes messages again."""
        self._release()

    def owed(self, now_ns: int, limit: int) -> int:
        """Record up to `limit` due messages as never sent (at the end of the load); returns how many."""
        offsets = self._schedule.take(now_ns - self._start_ns, limit)
        count = len(offsets)
        if not count:
            return 0
        planned_ns = offsets + self._start_ns
        if not self.connected or self.link.room(self._qos) <= 0:
            held = np.full(count, self._held_by(), np.uint8)
        else:
            # Free again: what became due since then has nobody but us to blame.
            held = np.where(planned_ns <= self._released_ns, np.uint8(self._held), np.uint8(0))
        log, number, size = self._log, self.number, self._source.fixed_bytes or 0
        if self._chooser is None:
            log.add_many(
                now_ns, number, self._topic_ids[0], self._seq, planned_ns, NONE, size, len(self._topics[0]), self._qos,
                self._flags, held, OUTCOME_UNSENT,
            )  # fmt: skip
        else:
            places = np.broadcast_to(self._chooser.choose(self._seq, count), count)
            for seq, (place, due_ns, why) in enumerate(zip(places, planned_ns, held, strict=True), self._seq):
                log.add(
                    now_ns, number, self._topic_ids[place], seq, int(due_ns), NONE, size, len(self._topics[place]),
                    self._qos, self._flags, int(why), OUTCOME_UNSENT,
                )  # fmt: skip
        self._seq += count
        return count

    def _held_by(self) -> Held:
        """What keeps the next message from leaving, if anything does."""
        if self.connected:
            return self.link.held
        return Held.AWAY if self._absent else Held.OFFLINE

    async def _arrive(self, session_present: bool) -> None:  # noqa: ARG002
        self._release()

    def _release(self) -> None:
        self._released_ns = self.stopwatch.now_ns()
        if self._start_ns:
            self._rearm(self, self.next_due_ns())

    def _send_due(self, now_ns: int, offsets: Offsets) -> None:
        start_ns = self._start_ns
        if self._varied or len(offsets) == 1:
            for offset_ns in offsets.tolist():
                self._send_one(now_ns, start_ns + offset_ns)
        elif len(offsets) >= _BULK:
            self._send_bulk(now_ns, offsets + start_ns)
        elif len(offsets):
            self._send_few(now_ns, [start_ns + offset_ns for offset_ns in offsets.tolist()])

    def _send_one(self, now_ns: int, planned_ns: int) -> None:
        seq = self._seq
        source = self._source
        payload = source.one(seq, planned_ns)
        if source.stamped:
            HEADER.pack_into(payload, 0, self._word, seq & SEQ_MASK, planned_ns)
        place = 0
        if self._chooser is not None:
            chosen = self._chooser.choose(seq, 1)
            place = chosen if isinstance(chosen, int) else int(chosen[0])
        topic = self._topics[place]
        qos, log, link = self._qos, self._log, self.link
        # The row may follow the bytes: acknowledgements are told in a later turn of the loop.
        wire_bytes = link.publish_one(topic, bytes(payload), qos, self._retain, log.next_token)
        self._seq = seq + 1
        self.stopwatch.sent += 1
        payload_bytes = len(payload)
        held = self._held if planned_ns <= self._released_ns else 0
        if held or link.structured:
            structure_bytes, url_bytes = payload_bytes, len(topic)
            if link.structured:
                structure_bytes, url_bytes = link.structure_bytes, link.url_bytes
            log.add(
                now_ns, self.number, self._topic_ids[place], seq, planned_ns, now_ns, payload_bytes, url_bytes, qos,
                self._flags, held, self._outcome, wire_bytes, structure_bytes,
            )  # fmt: skip
            return
        alike = (place, payload_bytes, wire_bytes)
        if alike != self._alike:
            self._alike = alike
            self._shared = shared_part(
                self.number, self._topic_ids[place], payload_bytes, payload_bytes, len(topic), wire_bytes, qos,
                self._flags, self._outcome,
            )  # fmt: skip
        log.add_alike(seq, planned_ns, now_ns, self._shared, self._outcome)

    def _send_few(self, now_ns: int, planned: list[int]) -> None:
        """Several that share topic and size."""
        first_seq = seq = self._seq
        one, stamped, word = self._source.one, self._source.stamped, self._word
        payloads = []
        for planned_ns in planned:
            payload = one(seq, planned_ns)
            if stamped:
                HEADER.pack_into(payload, 0, word, seq & SEQ_MASK, planned_ns)
            payloads.append(bytes(payload))
            seq += 1
        topic = self._topics[0]
        number, topic_id, qos, flags, outcome = self.number, self._topic_ids[0], self._qos, self._flags, self._outcome
        log, link = self._log, self.link
        wire_bytes = link.publish(Outgoing(topic, payloads, qos, self._retain, log.next_token)) // len(planned)
        payload_bytes = len(payloads[0])
        structure_bytes, url_bytes = payload_bytes, len(topic)
        if link.structured:
            structure_bytes, url_bytes = link.structure_bytes, link.url_bytes
        shared = shared_part(
            number, topic_id, payload_bytes, structure_bytes, url_bytes, wire_bytes, qos, flags, outcome
        )
        for seq, planned_ns in enumerate(planned, first_seq):
            if self._held and planned_ns <= self._released_ns:
                log.add(
                    now_ns, number, topic_id, seq, planned_ns, now_ns, payload_bytes, url_bytes, qos, flags,
                    self._held, outcome, wire_bytes, structure_bytes,
                )  # fmt: skip
            else:
                log.add_alike(seq, planned_ns, now_ns, shared, outcome)
        self._seq = first_seq + len(planned)
        self.stopwatch.sent += len(planned)

    def _send_bulk(self, now_ns: int, planned_ns: npt.NDArray[np.int64]) -> None:
        count = len(planned_ns)
        seq = self._seq
        payloads = self._source.block(seq, count)
        assert isinstance(payloads, np.ndarray)
        if self._source.stamped:
            stamp_many(payloads, self._word, seq, planned_ns)
        held: npt.NDArray[np.uint8] | int = 0
        if self._held:
            held = np.where(planned_ns <= self._released_ns, np.uint8(self._held), np.uint8(0))
        log = self._log
        topic = self._topics[0]
        link = self.link
        wire_bytes = link.publish(Outgoing(topic, payloads, self._qos, self._retain, log.next_token))
        structure_bytes, url_bytes = payloads.shape[1], len(topic)
        if link.structured:
            structure_bytes, url_bytes = link.structure_bytes, link.url_bytes
        log.add_many(
            now_ns, self.number, self._topic_ids[0], seq, planned_ns, now_ns, payloads.shape[1], url_bytes, self._qos,
            self._flags, held, self._outcome, wire_bytes // count, structure_bytes,
        )  # fmt: skip
        self._seq = seq + count
        self.stopwatch.sent += count
