"""Messages that go into the basket become the rows they would have become one by one, however the bytes are cut."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.clock import Anchor
from battlebrokers.devices.expected_topics import DeviceTopics, ExpectedTopics
from battlebrokers.devices.header import device_word
from battlebrokers.devices.stopwatch import Stopwatch
from battlebrokers.protocols.mqtt.encode import encode
from battlebrokers.protocols.mqtt.packets import Publish
from battlebrokers.record import recorder as recording
from battlebrokers.record.recorder import Recorder
from battlebrokers.tables import DELIVERIES
from battlebrokers.tables.message_header import HEADER
from support.examples import examples
from support.links import Bench

VERSIONS = {"3.1.1": 4, "5": 5}


class Owner:
    number = 4

    def heard(self, count: int) -> None:
        """Nothing to do."""


def message(number: int, topic: str = "t/0", size: int = 64, planned_ns: int = 1000, version: str = "3.1.1") -> bytes:
    payload = HEADER.pack(device_word(9), number, planned_ns) + bytes(size - HEADER.size)
    return encode(Publish(topic, payload), VERSIONS[version])


def foreign(body: bytes, topic: str = "t/0") -> bytes:
    return encode(Publish(topic, body), 4)


class Run:
    """A connected link whose arrivals are recorded for real."""

    def __init__(self, folder: Path, *, basket: bool = True, version: str = "3.1.1") -> None:
        self.folder = folder
        self.recorder = Recorder(folder, "w")
        self.watch = Stopwatch(Anchor.take(), self.recorder)
        self.bench = Bench(version)
        self.bench.link.listener = self.watch
        self.bench.link.owner = Owner()
        self.bench.link.basket = self.watch.basket if basket else None

    def rows(self) -> list[dict[str, Any]]:
        """Everything recorded, in the order of arrival."""
        self.bench.link.abort()
        self.bench.loop.close()
        self.recorder.finish(self.watch.now_ns())
        rows = pq.read_table(self.folder / DELIVERIES.folder).to_pylist()
        return sorted(rows, key=lambda row: row["received_ns"])


def without_times(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "received_ns"} for row in rows]


def test_most_of_many_alike_go_into_the_basket_and_are_stamped_as_they_come(tmp_path):
    run = Run(tmp_path)
    began_ns = run.watch.now_ns()
    for number in range(600):
        run.bench.receive(message(number))
        assert run.watch.received == number + 1
    assert run.watch.basket.received >= 590
    assert began_ns < run.watch.last_arrival_ns <= run.watch.now_ns()
    middle_ns = run.watch.now_ns()
    run.bench.receive(message(600))
    rows = run.rows()
    assert [row["seq"] for row in rows] == list(range(601))
    times = [row["received_ns"] for row in rows]
    assert times == sorted(set(times))
    assert began_ns < times[0] < times[599] < middle_ns < times[600]


@pytest.mark.parametrize("version", VERSIONS)
@examples(40)
@given(data=st.data())
def test_the_rows_are_those_of_one_by_one(tmp_path_factory, version, data):
    frames: list[bytes] = []
    for _ in range(data.draw(st.integers(1, 6))):
        topic = data.draw(st.sampled_from(["t/0", "t/1", "t/longer"]))
        size = data.draw(st.sampled_from([16, 17, 64, 110]))
        planned_ns = data.draw(st.sampled_from([5, 2**63 + 1]))
        if data.draw(st.booleans()) and version == "3.1.1":
            frames.append(foreign(data.draw(st.sampled_from([b"", b"\xb1", b"\xb1short", b"x" * 64])), topic))
        frames += [
            message(len(frames) + n, topic, size, planned_ns, version) for n in range(data.draw(st.integers(1, 12)))
        ]
    stream = b"".join(frames)
    borders = [sum(map(len, frames[:n])) for n in range(len(frames))]
    anywhere = st.integers(0, len(stream))
    cuts = data.draw(st.lists(st.sampled_from(borders), max_size=40)) + data.draw(st.lists(anywhere, max_size=2))
    edges = sorted({0, *cuts, len(stream)})
    told = []
    for basket in (True, False):
        run = Run(tmp_path_factory.mktemp("run"), basket=basket, version=version)
        run.bench.receive(*(stream[begin:end] for begin, end in itertools.pairwise(edges)))
        assert run.watch.received == len(frames)
        told.append(without_times(run.rows()))
    assert told[0] == told[1]


def test_what_waits_in_the_basket_is_recorded_at_the_next_turn(tmp_path):
    run = Run(tmp_path)
    for number in range(5):
        run.bench.receive(message(number))
    before = run.recorder.deliveries._current.used
    run.recorder.turn(run.watch.now_ns())
    assert before < run.recorder.deliveries._current.used == 5
    assert len(run.rows()) == 5


def test_few_in_one_chunk_go_into_the_basket_together(tmp_path):
    run = Run(tmp_path)
    run.bench.receive(message(0), message(1), message(2), message(3) + message(4) + message(5))
    assert run.watch.basket.received == 4
    rows = run.rows()
    assert [row["seq"] for row in rows] == list(range(6))
    assert [row["received_ns"] - rows[3]["received_ns"] for row in rows[3:]] == [0, 1, 2]


def test_nothing_is_told_once_the_link_is_gone(tmp_path):
    run = Run(tmp_path)
    run.bench.receive(*(message(number) for number in range(5)))
    run.bench.link.abort()
    run.bench.receive(message(5))
    assert len(run.rows()) == 5


def test_live_figures_sample_what_went_through_the_basket(tmp_path):
    run = Run(tmp_path)
    for number in range(300):
        run.bench.receive(message(number, planned_ns=run.watch.now_ns() - 5_000_000))
    assert len(run.watch.live_response_ns) >= 4
    median_ms, _ = run.watch.take_live_ms()
    assert median_ms >= 5
    run.rows()


def test_wrong_topics_that_a_broker_makes_up_do_not_grow_without_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "_MOST_HEARD_TOPIC_BYTES", 2_000)
    run = Run(tmp_path)
    run.watch.expect(ExpectedTopics([DeviceTopics(9, ("t/0",))]))
    for number in range(300):
        run.bench.receive(message(number, f"made-up/{number // 3}"))
    assert run.watch.basket.received >= 90
    run.watch.basket.empty()
    assert len(run.recorder._topics) <= 12
    assert run.recorder.arrivals_beyond == 0
    rows = run.rows()
    assert len(rows) == 300
    assert all(row["topic"] for row in rows)
