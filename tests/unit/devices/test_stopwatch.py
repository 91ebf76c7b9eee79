"""What links tell becomes rows: alike or not, ours or foreign, one by one or many at once."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest

from battlebrokers.clock import Anchor
from battlebrokers.devices.header import device_word
from battlebrokers.devices.stopwatch import Stopwatch
from battlebrokers.protocols.base import Arrivals, EqualArrivals
from battlebrokers.record.recorder import Recorder
from battlebrokers.tables import DELIVERIES
from battlebrokers.tables.message_header import HEADER


class Listener:
    number = 4

    def __init__(self) -> None:
        self.heard_in_all = 0

    def heard(self, count: int) -> None:
        self.heard_in_all += count


class Link:
    def __init__(self) -> None:
        self.owner = Listener()


def message(number: int, size: int) -> bytes:
    return HEADER.pack(device_word(9), number, 1000 + number) + bytes(size - HEADER.size)


def chunk(payloads: list[bytes], topic: bytes = b"t/0", flags: list[int] | None = None) -> Arrivals:
    """Frames as MQTT has them: two bytes of header, two of topic length, topic, payload."""
    head = 4 + len(topic)
    data = b"".join(bytes(4) + topic + payload for payload in payloads)
    sizes = np.array([len(payload) for payload in payloads])
    ends = np.cumsum(sizes + head)
    return Arrivals(
        data,
        np.array(flags or [0] * len(payloads), dtype=np.uint8),
        ends - sizes - len(topic),
        np.full(len(payloads), len(topic)),
        ends - sizes,
        sizes,
        sizes + head,
    )


def equal_chunk(payloads: list[bytes], flag: int) -> EqualArrivals:
    """The same for payloads of one size, in numbers."""
    data = chunk(payloads).data
    size = len(payloads[0])
    return EqualArrivals(data, len(payloads), flag, 4, 3, 7, size, 7 + size)


@pytest.mark.parametrize(
    "payloads",
    [
        [message(n, 64) for n in range(20)],
        [message(n, 16 + n % 5) for n in range(20)],
        [message(0, 64)],
        [*[message(n, 64) for n in range(10)], b"x" * 64, *[message(n, 64) for n in range(10, 15)]],
        [b"tiny"] * 12,
        [message(n, 30) if n % 2 else b"foreign" for n in range(12)],
        [b"\xb1" + b"\xff" * 40] * 9,
    ],
    ids=["alike", "sizes differ", "one", "a foreign one among ours", "too small", "mixed", "impossible times"],
)
def test_many_at_once_become_the_same_rows_as_one_by_one(tmp_path, payloads):
    told = {}
    ways = ["many", "single", "equal"] if len(set(map(len, payloads))) == 1 else ["many", "single"]
    for way in ways:
        recorder = Recorder(tmp_path / way, "w")
        watch = Stopwatch(Anchor.take(), recorder)
        link = Link()
        if way == "many":
            watch.arrived_many(link, 5000, chunk(payloads, flags=[2] * len(payloads)))
        elif way == "equal":
            watch.arrived_many(link, 5000, equal_chunk(payloads, 2))
        else:
            for payload in payloads:
                watch.arrived(link, 5000, 2, b"t/0", payload, len(payload) + 7)
        recorder.finish(6000)
        assert watch.received == link.owner.heard_in_all == len(payloads)
        assert watch.last_arrival_ns == 5000 + len(payloads) - 1
        told[way] = pq.read_table(tmp_path / way / DELIVERIES.folder).to_pylist()
    assert all(told[way] == told["single"] for way in ways)


def test_equal_arrivals_tell_the_same_arrays_when_asked():
    payloads = [message(n, 40) for n in range(9)]
    arrays, numbers = chunk(payloads, flags=[2] * 9), equal_chunk(payloads, 2)
    for name in ("flags", "topic_starts", "topic_sizes", "payload_starts", "payload_sizes", "wire_sizes"):
        assert getattr(numbers, name).tolist() == getattr(arrays, name).tolist()


def test_flags_that_differ_reach_their_rows(tmp_path):
    recorder = Recorder(tmp_path, "w")
    watch = Stopwatch(Anchor.take(), recorder)
    flags = [0b0000, 0b0010, 0b1101]
    watch.arrived_many(Link(), 5000, chunk([message(n, 64) for n in range(3)], flags=flags))
    recorder.finish(6000)
    rows = pq.read_table(tmp_path / DELIVERIES.folder).to_pylist()
    assert [(row["qos"], row["dup"], row["retained"]) for row in rows] == [
        (0, False, False), (1, False, False), (2, True, True),
    ]  # fmt: skip


def test_frames_of_equal_length_with_a_gap_between_them_are_read_where_they_are(tmp_path):
    recorder = Recorder(tmp_path, "w")
    watch = Stopwatch(Anchor.take(), recorder)
    arrivals = chunk([message(n, 64) for n in range(5)])
    keep = np.array([0, 1, 3, 4])
    for name in ("flags", "topic_starts", "topic_sizes", "payload_starts", "payload_sizes", "wire_sizes"):
        setattr(arrivals, name, getattr(arrivals, name)[keep])
    watch.arrived_many(Link(), 5000, arrivals)
    recorder.finish(6000)
    assert pq.read_table(tmp_path / DELIVERIES.folder)["seq"].to_pylist() == [0, 1, 3, 4]
