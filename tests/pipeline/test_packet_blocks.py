"""Packets on their way to their conversations: whichever way they are cut up, they come out in one order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.synthetic_capture import write_capture

from battlebrokers.dissect.boundaries import parts
from battlebrokers.dissect.frames import frames_of
from battlebrokers.dissect.parts import chunks, walker
from battlebrokers.pipeline.sources.files import RandomFile
from battlebrokers.pipeline.stages import packet_blocks
from battlebrokers.pipeline.stages.packet_blocks import Block, block_of, by_conversation, packed, split, unpacked


@pytest.fixture(scope="module")
def packets(tmp_path_factory: pytest.TempPathFactory) -> Block:
    path: Path = tmp_path_factory.mktemp("blocks") / "made-up.pcap"
    count = write_capture(path, 1 << 20)
    with RandomFile(str(path)) as file:
        (part,) = parts(file.read, file.size) or []
        blocks = [
            block_of(frames_of(data, at, records, 0), 0)
            for data, at, records in chunks(file.read, part, walker(part.layout), 1 << 18)
        ]
    assert len(blocks) > 5
    whole: Block = np.concatenate(blocks)
    assert len(whole) == count
    return whole


def test_every_packet_goes_to_exactly_one_part_and_a_conversation_to_one(packets: Block) -> None:
    found = {number: unpacked(block) for number, block in split(packets, 5)}
    assert sum(map(len, found.values())) == len(packets)
    owners = {int(stream): number for number, block in found.items() for stream in np.unique(block["stream"])}
    assert len(owners) == len(np.unique(packets["stream"]))
    for number, block in found.items():
        assert {owners[stream] for stream in block["stream"].tolist()} == {number}


@pytest.mark.parametrize("most", [10**9, 5000, 700])
def test_packets_come_by_conversation_and_time_however_many_are_held(
    packets: Block, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packet_blocks, "_PIECE", 97)
    pieces = [packed(packets[start : start + 311]) for start in range(0, len(packets), 311)]
    np.random.default_rng(1).shuffle(pieces)
    steps = list(by_conversation(pieces, most))
    assert len(steps) > 1 or most == 10**9
    order = np.lexsort((packets["payload_at"], packets["captured_ns"], packets["stream"]))
    assert np.array_equal(np.concatenate(steps), packets[order])


def test_nothing_is_nothing() -> None:
    assert [len(step) for step in by_conversation([])] == [0]


def test_both_directions_of_a_conversation_agree_who_is_low(packets: Block) -> None:
    one = packets[packets["stream"] == packets["stream"][0]]
    low = {(row["source_port"].item(), row["low"].item()) for row in one}
    assert len(low) == 2
    assert {flag for _, flag in low} == {True, False}


def test_addresses_are_those_on_the_wire(packets: Block) -> None:
    mapped = b"\x00" * 10 + b"\xff\xff"
    assert {bytes(address)[:12] for address in packets["source"].tolist()} == {mapped}
    assert mapped + b"\x0a\x00\x00\x01" in {bytes(address) for address in packets["source"].tolist()}
