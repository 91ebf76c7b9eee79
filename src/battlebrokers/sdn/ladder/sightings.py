"""Capture files → frames with the place each was seen at, and what switches and controller said to each other.

Reads files with the readers of captures; damage is counted and never stops it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from battlebrokers.dissect.capture_format import layout_of
from battlebrokers.dissect.frames import headers_of
from battlebrokers.dissect.parts import Part, chunks, walker
from battlebrokers.dissect.records import Records
from battlebrokers.sdn.ladder.conversation import Segment, Told, messages_of
from battlebrokers.sdn.ladder.facts import Facts, HostCable, OpenFlow, Place, WireEnd

_FRONT_BYTES = 64
_TCP = 6


@dataclass(frozen=True, slots=True)
class Sighting:
    """A frame that passed a place."""

    time_ns: int
    place: HostCable | WireEnd
    frame: bytes


@dataclass(slots=True)
class Unread:
    """What could not be used."""

    damages: int = 0
    """Stretches of files that are no records."""
    cut_frames: int = 0
    """Frames of which a part was not captured."""
    files: list[str] = field(default_factory=list)
    """Files that are missing or no captures."""
    nowhere: int = 0
    """Frames of interfaces whose place nobody told."""
    gap_bytes: int = 0
    """Bytes of OpenFlow that are not in the captures."""

    def __bool__(self) -> bool:
        return bool(self.damages or self.cut_frames or self.files or self.nowhere or self.gap_bytes)


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything the captures hold."""

    sightings: list[Sighting]
    told: list[Told]
    unread: Unread


def read_captures(folder: Path, facts: Facts) -> Seen:
    """All captures of a folder."""
    sightings: list[Sighting] = []
    segments: list[Segment] = []
    unread = Unread()
    for name, places in facts.files.items():
        try:
            with (folder / Path(name).name).open("rb") as file:
                understood = _read(file, places, facts.openflow_port, sightings, segments, unread)
        except OSError:
            understood = False
        if not understood:
            unread.files.append(name)
    told, gap_bytes = messages_of(segments)
    unread.gap_bytes = gap_bytes
    sightings.sort(key=lambda one: one.time_ns)
    return Seen(sightings, told, unread)


def _read(
    file: BinaryIO, places: list[Place], openflow_port: int, sightings: list[Sighting], segments: list[Segment],
    unread: Unread,
) -> bool:  # fmt: skip
    found = layout_of(file.read(_FRONT_BYTES))
    if found is None:
        return False
    layout, start = found
    end = file.seek(0, 2)

    def read(place: int, size: int) -> bytes:
        file.seek(place)
        return file.read(size)

    for data, at, records in chunks(read, Part(start, end, layout), walker(layout)):
        unread.damages += len(records.damages)
        listening = [number for number, place in enumerate(places) if isinstance(place, OpenFlow)]
        segments += _segments(data, at, records, listening, openflow_port)
        for row in range(len(records)):
            interface = int(records.interface[row])
            place = places[interface] if 0 <= interface < len(places) else None
            begin, size = int(records.frame_at[row]) - at, int(records.captured_bytes[row])
            unread.cut_frames += size < int(records.original_bytes[row])
            if place is None:
                unread.nowhere += 1
            elif not isinstance(place, OpenFlow):
                sightings.append(Sighting(int(records.time_ns[row]), place, data[begin : begin + size]))
    return True


def _segments(
    data: bytes, at: int, records: Records, listening: Iterable[int], openflow_port: int
) -> Iterable[Segment]:
    """The parts of TCP conversations with the controller."""
    headers = headers_of(data, at, records)
    for number in listening:
        for row in (records.interface == number).nonzero()[0]:
            ports = int(headers.source_port[row]), int(headers.destination_port[row])
            begin = int(headers.payload_at[row])
            end = min(int(headers.payload_end[row]), int(headers.captured_end[row]))
            if headers.protocol[row] == _TCP and openflow_port in ports and 0 <= begin < end:
                to_controller = ports[1] == openflow_port
                switch_port = ports[0] if to_controller else ports[1]
                yield Segment(
                    int(records.time_ns[row]), switch_port, to_controller, int(headers.seq[row]), data[begin:end]
                )
