"""The stopwatch: the one place that stamps and records what links tell, for all protocols alike.

Links call it from the event loop; it fills the recorder's logs and a few live counters, and never waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from battlebrokers.clock import Anchor
from battlebrokers.devices.basket import Basket
from battlebrokers.devices.expected_topics import ExpectedTopics
from battlebrokers.devices.header import Headers, headers_at, headers_every, ours_at, ours_every
from battlebrokers.protocols.base import Arrivals, Completion, EqualArrivals, Failure, Link
from battlebrokers.protocols.topic_rows import rows_every
from battlebrokers.record.publish_log import OUTCOME_ACKED, OUTCOME_FAILED, OUTCOME_REFUSED
from battlebrokers.record.recorder import Recorder
from battlebrokers.tables.message_header import HEADER, HEADER_BYTES, MAX_DEVICE, VERSION

Numbers = npt.NDArray[Any]

_ONE_OF_MANY_TOPICS = "(one of more topics than are recorded)"
_LIVE_SAMPLES = 512
_OUTCOMES = {
    Completion.ACKED: OUTCOME_ACKED,
    Completion.REFUSED: OUTCOME_REFUSED,
    Completion.FAILED: OUTCOME_FAILED,
}


class Owner(Protocol):
    """The device or client behind a link."""

    number: int

    def writable(self) -> None:
        """Its link takes messages again."""

    def dropped(self, detail: str, reason: int) -> None:
        """Its connection broke."""

    def heard(self, count: int) -> None:
        """Messages arrived for it."""


class Stopwatch:
    """Implements `protocols.base.Listener` once for everything in this process."""

    def __init__(self, anchor: Anchor, recorder: Recorder) -> None:
        self.now_ns: Callable[[], int] = anchor.reader()
        self.recorder = recorder
        self.sent = 0
        self.acked = 0
        self.refused = 0
        self.failed = 0
        self.wrong_arrivals: Counter[Failure] = Counter()
        self.live_response_ns: list[int] = []
        self._publishes = recorder.publishes
        self._deliveries = recorder.deliveries
        self._received = 0
        self._last_arrival_ns = 0
        self.basket = Basket(recorder.deliveries, anchor.shift_ns, self._sample, self._topic_id)
        self._expected: ExpectedTopics | None = None
        self._only: list[bytes | None] = []

    def expect(self, topics: ExpectedTopics) -> None:
        """From here on what arrives is compared with these; only messages on another topic are recorded with it."""
        self._expected = self.basket.expected = topics
        self._only = topics.only

    @property
    def received(self) -> int:
        """How many messages arrived."""
        return self._received + self.basket.received

    @property
    def last_arrival_ns(self) -> int:
        """When the latest arrived; 0 before the first."""
        return max(self._last_arrival_ns, self.basket.last_arrival_ns)

    def acknowledged(self, link: Link, tokens: Sequence[int], at_ns: int, completion: Completion, reason: int) -> None:  # noqa: ARG002
        """Complete the rows of these messages."""
        self._publishes.complete(tokens, at_ns, _OUTCOMES[completion], reason)
        if completion is Completion.ACKED:
            self.acked += len(tokens)
        elif completion is Completion.REFUSED:
            self.refused += len(tokens)
        else:
            self.failed += len(tokens)

    def resent(self, link: Link, tokens: Sequence[int]) -> None:  # noqa: ARG002
        """Count a retry for these messages."""
        self._publishes.resent(tokens)

    def arrived(self, link: Link, at_ns: int, flags: int, topic: bytes, payload: bytes, wire_size: int) -> None:
        """Record one arrival."""
        owner: Any = link.owner  # `cast` is a call, and this is the hottest path there is
        # Messages of one chunk arrive at one instant; a nanosecond each keeps their order.
        if at_ns <= self._last_arrival_ns:
            at_ns = self._last_arrival_ns + 1
        size = len(payload)
        if size >= HEADER_BYTES and payload[0] == VERSION:
            word, seq, planned_ns = HEADER.unpack_from(payload)
            if planned_ns >> 63:
                planned_ns = -1
            device, only, topic_id = word & MAX_DEVICE, self._only, -1
            # Nearly always one look decides.
            if (device >= len(only) or only[device] != topic) and self._is_other(link, device, seq, topic):
                topic_id = self._topic_id(topic)
            self._deliveries.add(at_ns, owner.number, device, seq, planned_ns, topic_id, size, wire_size, flags)
            if not self._received & 63 and not flags & 1:
                self._sample(at_ns - planned_ns)
        else:
            named_id = self.recorder.heard_topic_id(bytes(topic).decode("utf-8", "replace"))
            if named_id is None:
                self.recorder.leave_out()
            else:
                self._deliveries.add(at_ns, owner.number, -1, -1, -1, named_id, size, wire_size, flags)
        self._received += 1
        self._last_arrival_ns = at_ns
        owner.heard(1)

    def arrived_many(self, link: Link, at_ns: int, arrivals: Arrivals | EqualArrivals) -> None:
        """Record many arrivals of one chunk."""
        data = arrivals.data
        if isinstance(arrivals, EqualArrivals):
            start, step, size, count = arrivals.payload_start, arrivals.wire_size, arrivals.payload_size, arrivals.count
            if size >= HEADER_BYTES and ours_every(data, start, step, count):
                self._heard_many(
                    link, at_ns, headers_every(data, start, step, count), size, step, arrivals.flag, arrivals
                )
                return
        elif int(arrivals.payload_sizes.min()) >= HEADER_BYTES:
            headers = headers_at(data, arrivals.payload_starts)
            if ours_at(headers):
                sizes, wires = arrivals.payload_sizes, arrivals.wire_sizes
                self._heard_many(link, at_ns, headers, sizes, wires, arrivals.flags, arrivals)
                return
        for flags, topic, start, size, wire in zip(
            arrivals.flags.tolist(), arrivals.topics(), arrivals.payload_starts.tolist(),
            arrivals.payload_sizes.tolist(), arrivals.wire_sizes.tolist(), strict=True,
        ):  # fmt: skip
            self.arrived(link, at_ns, flags, topic, data[start : start + size], wire)

    def _heard_many(
        self, link: Link, at_ns: int, headers: Headers, sizes: Numbers | int, wires: Numbers | int,
        flags: Numbers | int, arrivals: Arrivals | EqualArrivals,
    ) -> None:  # fmt: skip
        owner = cast("Owner", link.owner)
        count = len(headers)
        at_ns = max(at_ns, self._last_arrival_ns + 1)
        planned_ns = headers["planned_ns"]
        devices, seqs, topics = headers["word"] & MAX_DEVICE, headers["seq"], cast("Numbers | int", -1)
        if self._expected is not None and link.keeps_topics:
            topics = self._others(self._expected, devices, seqs, arrivals)
        self._deliveries.add_many(at_ns, owner.number, devices, seqs, planned_ns, topics, sizes, wires, flags)
        self._received += count
        self._last_arrival_ns = at_ns + count - 1
        self._sample(at_ns - int(planned_ns[count >> 1]))
        owner.heard(count)

    def _others(
        self, expected: ExpectedTopics, devices: Numbers, seqs: Numbers, arrivals: Arrivals | EqualArrivals
    ) -> Numbers | int:
        """The topics of the messages that came on another one than theirs, as numbers; -1 for all others."""
        data = arrivals.data
        if isinstance(arrivals, EqualArrivals):
            start, size, step = arrivals.topic_start, arrivals.topic_size, arrivals.wire_size
            if arrivals.same_topic:
                others = expected.others_than(devices, seqs, data[start : start + size])
            else:
                rows = rows_every(data, start, step, arrivals.count, size)
                others = expected.others(devices, seqs, rows, np.full(arrivals.count, size), arrivals.topics)
        else:
            others = expected.others(devices, seqs, arrivals.topic_rows, arrivals.topic_sizes, arrivals.topics)
        if not len(others):
            return -1
        topics = np.full(len(devices), -1, np.int32)
        wanted = set(others.tolist())
        for place, topic in enumerate(arrivals.topics()):
            if place in wanted:
                topics[place] = self._topic_id(topic)
        return topics

    def _is_other(self, link: Link, device: int, seq: int, topic: bytes) -> bool:
        return self._expected is not None and link.keeps_topics and self._expected.is_other(device, seq, topic)

    def _topic_id(self, topic: bytes) -> int:
        """The id of a wrong topic; one for all of them once a broker has made up too many."""
        topic_id = self.recorder.heard_topic_id(bytes(topic).decode("utf-8", "replace"))
        return self.recorder.topic_id(_ONE_OF_MANY_TOPICS) if topic_id is None else topic_id

    def writable(self, link: Link) -> None:
        """Tell the device that it may go on."""
        cast("Owner", link.owner).writable()

    def closed(self, link: Link, detail: str, reason: int) -> None:
        """Tell the device or client that its connection broke."""
        cast("Owner", link.owner).dropped(detail, reason)

    def malformed(self, link: Link, detail: str, kind: Failure = Failure.MALFORMED) -> None:  # noqa: ARG002
        """Count what came in and is no message, by kind."""
        self.wrong_arrivals[kind] += 1

    def take_live_ms(self) -> tuple[float, float]:
        """Median and 99th percentile of a sample of recent response times, in milliseconds; for progress only."""
        samples, self.live_response_ns = sorted(self.live_response_ns), []
        if not samples:
            return 0.0, 0.0
        # Not numpy's percentile: its first call takes a tenth of a second, in the middle of the load.
        return samples[len(samples) // 2] / 1e6, samples[len(samples) * 99 // 100] / 1e6

    def _sample(self, response_ns: int) -> None:
        if len(self.live_response_ns) < _LIVE_SAMPLES:
            self.live_response_ns.append(response_ns)
