"""Stage: parts of capture files → the table of packets, and blocks of packets for their conversations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from battlebrokers.dissect.boundaries import parts
from battlebrokers.dissect.frames import frames_of, rows_of
from battlebrokers.dissect.headers import unread_of
from battlebrokers.dissect.parts import Part, chunks, walker
from battlebrokers.pipeline.sources.files import RandomFile
from battlebrokers.pipeline.stages.packet_blocks import block_of, split
from battlebrokers.pipeline.stages.table_files import TableFile
from battlebrokers.tables import PACKETS


@dataclass(frozen=True, slots=True)
class FilePart:
    """A part of one of the files."""

    file: int
    part: Part


@dataclass(frozen=True, slots=True)
class Read:
    """What was found in a part besides packets."""

    file: int
    packets: int
    damages: int
    damaged_bytes: int
    faults: Counter[str]
    """Packets that belong to no conversation because a header of theirs could not be read, by `fault`."""


Moved = tuple[int, bytes | Read]
"""What goes on to which task of the next stage."""


def file_parts(files: Sequence[str], part_bytes: int) -> list[FilePart]:
    """How the files are cut; called on the driver."""
    found: list[FilePart] = []
    for number, path in enumerate(files):
        with RandomFile(path) as file:
            found += [FilePart(number, part) for part in parts(file.read, file.size, part_bytes) or []]
    return found


@dataclass(frozen=True, slots=True)
class PacketStage:
    """The task that reads one part."""

    files: Sequence[str]
    wires: Sequence[int]
    folder: str
    """Where the table of packets lies."""
    conversations: int
    """Tasks of the next stage."""

    def __call__(self, task: int, planned: Iterable[FilePart]) -> Iterator[Moved]:
        """Read, write, hand on."""
        with TableFile(self.folder, PACKETS, task) as table:
            for one in planned:
                yield from self._read(one, table)

    def _read(self, one: FilePart, table: TableFile) -> Iterator[Moved]:
        number, wire = one.file, self.wires[one.file]
        packets = damages = damaged_bytes = 0
        faults: Counter[str] = Counter()
        with RandomFile(self.files[number]) as file:
            for data, at, records in chunks(file.read, one.part, walker(one.part.layout)):
                frames = frames_of(data, at, records, wire)
                table.write(rows_of(frames, number))
                yield from split(block_of(frames, number), self.conversations)
                faults += unread_of(frames.headers)
                packets += len(records)
                damages += len(records.damages)
                damaged_bytes += sum(damage.size_bytes for damage in records.damages)
        yield 0, Read(number, packets, damages, damaged_bytes, faults)
