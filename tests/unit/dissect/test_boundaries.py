"""Large captures are cut exactly between two records, whatever their packets carry."""

from __future__ import annotations

import random
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.dissect.boundaries import parts
from battlebrokers.dissect.frames import packets
from battlebrokers.dissect.parts import chunks, walker
from support import capture_writer as write
from support.capture_writer import Frame
from support.examples import examples

NOW_NS = 1_700_000_000_000_000_000
WRITERS = {
    "pcap": write.pcap,
    "big endian nanosecond pcap": lambda frames: write.pcap(frames, order=">", nano=True),
    "pcapng": write.pcapng,
    "big endian pcapng": lambda frames: write.pcapng(frames, order=">"),
}


def noise(source: random.Random, size: int) -> bytes:
    return source.randbytes(size)


def zeros(source: random.Random, size: int) -> bytes:
    return bytes(size)


def a_capture(source: random.Random, size: int) -> bytes:
    kind = source.choice([write.pcap, write.pcapng])
    inner = [Frame(NOW_NS + n * 1000, source.randbytes(source.randint(0, 60))) for n in range(size // 40)]
    start = source.randint(0, 100)
    return kind(inner)[start : start + size] or b"x"


@lru_cache(8)
def frames_of(payload, *, count: int, largest: int, seed: int = 1) -> list[Frame]:
    """Never changed by anybody: the same ones are written in every format."""
    source = random.Random(seed)
    return [Frame(NOW_NS + n * 50_000, payload(source, source.randint(1, largest))) for n in range(count)]


def starts(content: bytes, part_bytes: int) -> tuple[list[int], list[int], list]:
    """Where all records begin; where the parts begin; the parts."""

    def read(place: int, size: int) -> bytes:
        return content[place : place + size]

    found = parts(read, len(content), part_bytes)
    (whole,) = parts(read, len(content), 1 << 40)
    records = [row for _, _, rows in chunks(read, whole, walker(whole.layout)) for row in rows.at.tolist()]
    return records, [part.start for part in found], found


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("payload", [noise, zeros, a_capture])
@pytest.mark.parametrize(
    ("count", "largest"), [(9000, 300), (900, 3000), pytest.param(60, 60_000, marks=pytest.mark.slow)]
)
def test_parts_begin_with_a_record_and_together_are_the_file(kind, payload, count, largest):
    content = WRITERS[kind](frames_of(payload, count=count, largest=largest))
    records, cuts, found = starts(content, 150_000)
    assert len(cuts) >= len(content) // 400_000
    assert set(cuts[1:]) <= set(records)
    assert [part.end for part in found] == [*cuts[1:], len(content)]
    rows = []
    for part in found:
        for _, _, read in chunks(lambda at, size: content[at : at + size], part, walker(part.layout)):
            assert not read.damages
            assert (read.link_type == 1).all()
            rows += read.at.tolist()
    assert rows == records


def test_interfaces_described_in_the_middle_are_known_in_later_parts():
    frames = frames_of(noise, count=2000, largest=300)
    packets = [write.packet(frame) for frame in frames]
    late = [write.packet(Frame(NOW_NS, b"late", interface=1)) for _ in range(9000)]
    last = [write.packet(Frame(NOW_NS, b"last"), order=">") for _ in range(9000)]
    content = (
        write.section() + write.interface(1) + b"".join(packets) + write.interface(113) + b"".join(late)
        + write.section(">") + write.interface(101, order=">") + b"".join(last)
    )  # fmt: skip
    _, cuts, found = starts(content, 100_000)
    assert len(cuts) > 4
    links, numbers = [], []
    for part in found:
        for _, _, read in chunks(lambda at, size: content[at : at + size], part, walker(part.layout)):
            links.append(read.link_type)
            numbers.append(read.interface)
    assert np.concatenate(links).tolist() == [1] * 2000 + [113] * 9000 + [101] * 9000
    assert np.concatenate(numbers).tolist() == [0] * 2000 + [1] * 9000 + [2] * 9000


def test_clocks_that_jump_do_not_lead_to_wrong_cuts():
    frames = [Frame(5, b"before the clock was set"), *frames_of(a_capture, count=2000, largest=1000)]
    records, cuts, _ = starts(write.pcap(frames), 100_000)
    assert len(cuts) > 4
    assert set(cuts[1:]) <= set(records)


def test_a_small_file_is_one_part_and_what_is_no_capture_has_none():
    content = write.pcap(frames_of(noise, count=3, largest=10))
    assert len(parts(lambda at, size: content[at : at + size], len(content))) == 1
    for nothing in (b"", b"hello", b"\xd4\xc3\xb2\xa1", b"\n\r\r\n" + bytes(40), bytes(100)):
        assert parts(lambda at, size, nothing=nothing: nothing[at : at + size], len(nothing)) is None


def test_damaged_files_are_cut_where_they_can_be():
    content = bytearray(write.pcap(frames_of(noise, count=9000, largest=300)))
    content[400_000:460_000] = bytes(60_000)
    _, _, found = starts(bytes(content), 150_000)
    rows = damages = 0
    for part in found:
        for _, _, read in chunks(lambda at, size: bytes(content[at : at + size]), part, walker(part.layout)):
            rows += len(read)
            damages += len(read.damages)
    assert rows > 8300
    assert 1 <= damages <= 3


@examples(60)
@given(st.integers(0, 1 << 30), st.sampled_from(sorted(WRITERS)), st.sampled_from([1, 50, 1000]))
def test_mutated_files_are_cut_and_read_without_complaint(seed, kind, flips):
    source = random.Random(seed)
    content = bytearray(WRITERS[kind](frames_of(noise, count=400, largest=1500, seed=seed)))
    for _ in range(flips):
        content[source.randrange(40, len(content))] = source.choice([0, 1, 6, 255, source.randrange(256)])
    if source.random() < 0.5:
        hole = source.randrange(40, len(content))
        content[hole : hole + source.randrange(20_000)] = bytes(source.randrange(20_000))
    final = bytes(content)

    def read(at: int, size: int) -> bytes:
        return final[at : at + size]

    found = parts(read, len(final), 60_000)
    assert found is not None
    assert [part.end for part in found] == [*(part.start for part in found[1:]), len(final)]
    told = [packets(*chunk, 0) for part in found for chunk in chunks(read, part, walker(part.layout), 50_000)]
    places = [place for batch in told for place in batch.column("at").to_pylist()]
    assert places == sorted(places)
    assert len(places) > 400 // flips - 200
