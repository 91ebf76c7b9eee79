"""A part of a capture that can be read alone, and how: chunk after chunk, within a bounded memory.

Used by the Spark data source and by the search for boundaries; whoever calls brings a function that reads the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from battlebrokers.dissect.capture_format import Layout
from battlebrokers.dissect.pcap_walker import PcapWalker
from battlebrokers.dissect.pcapng_walker import PcapngWalker
from battlebrokers.dissect.records import Records, Walker

Reader = Callable[[int, int], bytes]
"""Reads (place, size) from the file; fewer bytes where it ends."""
CHUNK_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes [start, end) of a file, beginning with a record."""

    start: int
    end: int
    layout: Layout
    """What holds at its start."""


def walker(layout: Layout) -> Walker:
    """The walker for a kind of file."""
    return PcapWalker(layout) if layout.kind == "pcap" else PcapngWalker(layout)


def chunks(
    read: Reader, part: Part, walker: Walker, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[tuple[bytes, int, Records]]:
    """Each chunk of a part with its place in the file and its records."""
    at, rest = part.start, b""
    while True:
        behind = at + len(rest)
        fresh = read(behind, max(0, min(chunk_bytes, part.end - behind)))
        data = rest + fresh
        # A file that shrinks while it is read ends where it ends.
        last = not fresh or behind + len(fresh) >= part.end
        records, done = walker.walk(data, at, last=last)
        if len(records) or records.damages:
            yield data, at, records
        if last:
            return
        at, rest = at + done, data[done:]
