"""What arrives is compared with the topic its device published it on; only what differs is recorded with its topic."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from battlebrokers.clock import Anchor
from battlebrokers.devices.expected_topics import DeviceTopics, ExpectedTopics
from battlebrokers.devices.header import device_word
from battlebrokers.devices.stopwatch import Stopwatch
from battlebrokers.protocols.mqtt.encode import encode
from battlebrokers.protocols.mqtt.packets import Publish
from battlebrokers.record.recorder import Recorder
from battlebrokers.scenario.topics import TopicChooser, dice_seed
from battlebrokers.tables import DELIVERIES
from battlebrokers.tables.message_header import HEADER
from support.links import Bench

SEED = 991
IN_TURN = tuple(f"turn/{n}" for n in range(3))
THROWN = tuple(f"dice/{'x' * n}" for n in range(5))
PLANNED = [
    DeviceTopics(0, ("one",)),
    DeviceTopics(1, ("städte/7",)),
    DeviceTopics(2, IN_TURN),
    DeviceTopics(3, THROWN, dice_seed("random", SEED)),
    DeviceTopics(5, ("one",)),
]


def topic_of(device: int, seq: int) -> str:
    """As devices choose."""
    if device == 3:
        return THROWN[int(np.atleast_1d(TopicChooser(THROWN, "random", SEED).choose(seq, 1))[0])]
    return {0: "one", 1: "städte/7", 2: IN_TURN[seq % 3], 5: "one"}[device]


class Owner:
    number = 4

    def heard(self, count: int) -> None:
        """Nothing to do."""


def frame(device: int, seq: int, topic: str, size: int = 40, version: int = 4) -> bytes:
    return encode(Publish(topic, HEADER.pack(device_word(device), seq, 1000) + bytes(size - HEADER.size)), version)


def rows_of(folder: Path, feed: Callable[[Bench], None], *, keeps_topics: bool = True) -> list[dict[str, Any]]:
    """What is recorded of the chunks a link is fed with."""
    recorder = Recorder(folder, "w")
    watch = Stopwatch(Anchor.take(), recorder)
    watch.expect(ExpectedTopics(PLANNED))
    with Bench() as bench:
        link = bench.link
        link.listener, link.owner, link.basket = watch, Owner(), watch.basket
        if not keeps_topics:
            type(link).keeps_topics = False
        try:
            feed(bench)
        finally:
            type(link).keeps_topics = True
    recorder.finish(watch.now_ns())
    rows = pq.read_table(folder / DELIVERIES.folder).to_pylist()
    return sorted(rows, key=lambda row: row["received_ns"])


MESSAGES = [(device, seq) for seq in range(30) for device in (0, 1, 2, 3, 5)]
WAYS: dict[str, Callable[[Bench, list[bytes]], None]] = {
    "one chunk": lambda bench, frames: bench.receive(b"".join(frames)),
    "one by one": lambda bench, frames: bench.receive(*frames),
    "few at a time": lambda bench, frames: bench.receive(
        *(b"".join(frames[at : at + 5]) for at in range(0, len(frames), 5))
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sizes", [(40,), (40, 60, 300)])
def test_a_message_on_its_topic_is_recorded_without_it(tmp_path: Path, way: str, sizes: tuple[int, ...]):
    frames = [frame(d, s, topic_of(d, s), sizes[s % len(sizes)]) for d, s in MESSAGES]
    rows = rows_of(tmp_path, lambda bench: WAYS[way](bench, frames))
    assert [(row["device"], row["seq"]) for row in rows] == MESSAGES
    assert {row["topic"] for row in rows} == {None}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sizes", [(40,), (40, 60, 300)])
@pytest.mark.parametrize("other", ["elsewhere", "onf", "on", "onex", "städte/8", "one/"])
def test_a_message_on_another_topic_is_recorded_with_it(tmp_path: Path, way: str, sizes: tuple[int, ...], other: str):
    astray = {(0, 3), (1, 4), (2, 4), (3, 7), (5, 29)}
    frames = [frame(d, s, other if (d, s) in astray else topic_of(d, s), sizes[s % len(sizes)]) for d, s in MESSAGES]
    rows = rows_of(tmp_path, lambda bench: WAYS[way](bench, frames))
    assert [(row["device"], row["seq"]) for row in rows] == MESSAGES
    assert {(row["device"], row["seq"]): row["topic"] for row in rows if row["topic"]} == dict.fromkeys(astray, other)


@pytest.mark.parametrize("way", WAYS)
def test_two_devices_whose_topics_are_swapped_are_told_apart(tmp_path: Path, way: str):
    frames = [frame(0, s, "städte/7") for s in range(20)] + [frame(1, s, "one") for s in range(20)]
    rows = rows_of(tmp_path, lambda bench: WAYS[way](bench, frames))
    assert [row["topic"] for row in rows] == ["städte/7"] * 20 + ["one"] * 20


@pytest.mark.parametrize("way", WAYS)
def test_many_alike_from_one_device_are_told_from_those_of_another_on_its_topic(tmp_path: Path, way: str):
    frames = [frame(0, s, "one") for s in range(40)] + [frame(2, s, "one") for s in range(40)]
    rows = rows_of(tmp_path, lambda bench: WAYS[way](bench, frames * 4))
    assert [row["topic"] for row in rows] == ([None] * 40 + ["one"] * 40) * 4


def test_messages_that_found_the_basket_are_compared_too(tmp_path: Path):
    baskets = []

    def feed(bench: Bench) -> None:
        for seq in range(600):
            bench.receive(frame(0, seq, "one" if seq < 300 else "two"))
        baskets.append(bench.link.basket.received)

    rows = rows_of(tmp_path, feed)
    assert baskets[0] > 500
    assert [row["topic"] for row in rows] == [None] * 300 + ["two"] * 300


def test_a_device_of_another_run_has_no_topic_to_compare_with(tmp_path: Path):
    frames = [frame(d, 1, "any") for d in (4, 6, 70_000, 0xFFFFFF)] * 10
    for way, feed in WAYS.items():
        rows = rows_of(tmp_path / way, lambda bench, feed=feed: feed(bench, frames))
        assert {row["topic"] for row in rows} == {None}


def test_a_link_that_renames_topics_is_not_compared(tmp_path: Path):
    frames = [frame(d, s, "renamed") for d, s in MESSAGES]
    for way, feed in WAYS.items():
        rows = rows_of(tmp_path / way, lambda bench, feed=feed: feed(bench, frames), keeps_topics=False)
        assert {row["topic"] for row in rows} == {None}


def test_topics_too_long_or_too_many_for_a_matrix_are_compared_one_by_one(tmp_path: Path):
    long = "l" * 3000
    expected = ExpectedTopics([DeviceTopics(0, (long,)), DeviceTopics(1, ("short",))])
    devices, seqs = np.array([0, 1, 1, 0]), np.zeros(4, np.int64)
    topics = [long.encode(), b"short", b"other", b"x" * 3000]
    sizes = np.array([len(topic) for topic in topics])
    assert expected.others(devices, seqs, None, sizes, lambda: topics).tolist() == [2, 3]


def test_nothing_planned_means_nothing_compared():
    expected = ExpectedTopics([])
    assert not expected.is_other(0, 0, b"t")
    assert expected.others_than(np.array([0, 9]), np.array([0, 0]), b"t").tolist() == []
