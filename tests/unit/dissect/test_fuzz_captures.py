"""Mutated capture files: whatever is in them, they are cut into parts and read as far as they can be.

`FUZZ_ROUNDS` makes it longer: a fifth of it is the number of mutated captures per format. A failure names its round.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from battlebrokers.dissect.boundaries import parts
from battlebrokers.dissect.frames import packets
from battlebrokers.dissect.parts import chunks, walker
from support import capture_writer as write
from support.tally import Tally

ROUNDS = max(60, int(os.environ.get("FUZZ_ROUNDS", "0")) // 5)
WHOLE = 1 << 20
pytestmark = pytest.mark.timeout(max(300, ROUNDS))


@pytest.fixture(scope="module")
def tally() -> Iterator[Tally]:
    made = Tally("captures")
    yield made
    made.record()


def frame(number: int, chance: random.Random) -> bytes:
    """A frame with any of the headers we know."""
    options = chance.choice((b"", b"\x02\x04\x05\xb4\x03\x03\x07\0"))
    segment = write.tcp(
        1000 + number, 80, flags=chance.choice((2, 16, 24)), payload=chance.randbytes(20), extra=options
    )
    datagram = write.udp(1000, 53, chance.randbytes(12))
    what = chance.randrange(6)
    if what == 0:
        return write.ethernet(write.ipv6(segment), kind=0x86DD, vlans=(0x88A8, 0x8100)[: chance.randrange(3)])
    if what == 1:
        return write.ethernet(write.ipv4(datagram, protocol=17, extra=b"\x01"))
    if what == 2:
        return write.cooked(write.ipv4(datagram, protocol=17))
    if what == 3:
        return bytes(chance.randrange(40))
    return write.ethernet(write.ipv4(segment))


def captured(kind: str, chance: random.Random) -> bytes:
    """A small capture, in any variety of its format."""
    frames = [
        write.Frame(1_700_000_000_000_000_000 + number, frame(number, chance)) for number in range(chance.randrange(8))
    ]
    order = chance.choice("<>")
    if kind == "pcap":
        return write.pcap(frames, order=order, nano=chance.random() < 0.5, link=chance.choice((1, 1, 0, 101, 113, 276)))
    more = chance.choice((b"", write.names(order), write.statistics(0, 3, 4, order), write.section(order)))
    return write.pcapng(frames, order=order, resolution=chance.choice((3, 6, 9, 0x8A))) + more


def mutated(content: bytes, chance: random.Random) -> bytes:
    data = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 8, 40))):
        place = chance.randrange(len(data) + 1)
        what = chance.randrange(5)
        if what == 0:
            data[place : place + 1] = chance.randbytes(1)
        elif what == 1:
            del data[place : place + chance.randrange(1, 40)]
        elif what == 2:
            data[place:place] = chance.randbytes(chance.randrange(1, 40))
        elif what == 3:
            data[place : place + 4] = chance.choice((b"\xff" * 4, b"\x7f\xff\xff\xff", b"\0\0\0\x10", bytes(4)))
        else:
            data += data[place : place + 200]
    return bytes(data[: chance.randrange(len(data) + 1)] if chance.random() < 0.1 else data)


@pytest.mark.parametrize("kind", ["pcap", "pcapng"])
def test_mutated_captures_are_read_as_far_as_they_can_be(kind: str, tally: Tally) -> None:
    for number in range(ROUNDS):
        chance = random.Random(f"{kind} {number}")
        content = mutated(captured(kind, chance), chance)
        with tally.input("capture", kind, number):
            check(content, chance.choice((200, WHOLE, WHOLE)), chance.choice((300, WHOLE, WHOLE)))
    assert sum(tally.inputs.values()) >= ROUNDS


def check(content: bytes, part_bytes: int, chunk_bytes: int) -> None:
    def read(at: int, size: int) -> bytes:
        return content[at : at + size]

    found = parts(read, len(content), part_bytes) or []
    assert [part.end for part in found[:-1]] == [part.start for part in found[1:]]
    for part in found:
        for data, at, records in chunks(read, part, walker(part.layout), chunk_bytes):
            rows = packets(data, at, records, 0)
            assert rows.num_rows == len(records) + len(records.damages)
            assert int(records.captured_bytes.sum()) <= len(content)
            assert ((records.frame_at >= 0) & (records.frame_at + records.captured_bytes <= len(content))).all()
