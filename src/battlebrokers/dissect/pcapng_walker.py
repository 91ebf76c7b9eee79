"""Walks through the blocks of a pcapng file: sections, interfaces, statistics, packets. Opened by `parts.walker`."""

from __future__ import annotations

import struct
from bisect import bisect_left
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from battlebrokers.dissect.capture_format import (
    INTERFACE,
    LARGEST_BLOCK_BYTES,
    LARGEST_FRAME_BYTES,
    LARGEST_PACKET_BLOCK_BYTES,
    MICROSECONDS,
    MOST_INTERFACES,
    OLD_PACKET,
    PACKET,
    PACKET_BLOCKS,
    SECTION,
    SIMPLE_PACKET,
    SMALLEST_BLOCK_BYTES,
    STATISTICS,
    Interface,
    Layout,
    Order,
    drops_of,
    interface_of,
    section_order,
)
from battlebrokers.dissect.clues import block_clues
from battlebrokers.dissect.gather import Numbers, column, rows_at
from battlebrokers.dissect.records import Damage, Records, Stop, Walker

_SECOND_NS = 1_000_000_000
_FRONT_BYTES = 28
"""Of a packet block, up to its frame."""
_SIMPLE_FRONT_BYTES = 12
_CONTEXT_BLOCKS = frozenset((SECTION, INTERFACE, STATISTICS))


class _Mark(NamedTuple):
    """What holds for packets from here on, until the next mark."""

    first: int
    """Number of the first packet it holds for."""
    section: int
    """Where the section's interfaces begin among all known ones."""
    known: int
    """How many interfaces are known."""
    order: Order


class PcapngWalker(Walker):
    """Sections may differ in byte order and each has its own interfaces."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self._begin(b"")

    def _begin(self, data: bytes) -> None:
        self._data = data
        self._heads: list[int] = []
        self._known: list[Interface] = list(self.layout.interfaces)
        self._section = 0
        self._order: Order = self.layout.order
        self._marks = [_Mark(0, 0, len(self._known), self._order)]
        self._clues: tuple[Order, list[int], list[int]] | None = None

    def _steps(self, place: int, *, last: bool) -> tuple[int, Stop]:
        data, size, note, most = self._data, len(self._data), self._heads.append, LARGEST_PACKET_BLOCK_BYTES
        front = struct.Struct(f"{self._order}II").unpack_from
        back = struct.Struct(f"{self._order}I").unpack_from
        while place + SMALLEST_BLOCK_BYTES <= size:
            kind, length = front(data, place)
            end = place + length
            # Nearly all blocks are packets: what is right about them is tested first.
            if kind == PACKET and 32 <= length <= most and not length & 3 and end <= size:
                if back(data, end - 4)[0] != length:
                    return place, Stop.BROKEN
                note(place)
                place = end
                continue
            if kind == SECTION:
                order = section_order(data, place)
                if order is None:
                    return place, Stop.BROKEN
                front = struct.Struct(f"{order}II").unpack_from
                back = struct.Struct(f"{order}I").unpack_from
                _, length = front(data, place)
            limit = most if kind in PACKET_BLOCKS else LARGEST_BLOCK_BYTES
            if not SMALLEST_BLOCK_BYTES <= length <= limit or length & 3:
                return place, Stop.BROKEN
            end = place + length
            if end > size:
                return place, Stop.CUT if last else Stop.DONE
            if back(data, end - 4)[0] != length:
                return place, Stop.BROKEN
            if kind in PACKET_BLOCKS:
                note(place)
            elif kind in _CONTEXT_BLOCKS:
                self._context(kind, place, end)
            place = end
        return place, Stop.DONE

    def _context(self, kind: int, place: int, end: int) -> None:
        """A block that says how to read others."""
        block = self._data[place:end]
        if kind == STATISTICS:
            drops = drops_of(block, self._order)
            if drops is not None and self._section + drops.interface < len(self._known):
                number = self.layout.first_interface + self._section + drops.interface
                self.drops[number] = drops._replace(interface=number)
            return
        if kind == SECTION:
            self._section = len(self._known)
            self._order = section_order(block, 0) or self._order
        elif len(self._known) - self._section < MOST_INTERFACES:
            self._known.append(interface_of(block, self._order) or Interface(-1, 0))
        self._marks.append(_Mark(len(self._heads), self._section, len(self._known), self._order))

    def _search_from(self, place: int, stop: Stop) -> int:
        del stop
        return place + 4

    def _search(self, place: int, *, last: bool) -> tuple[int, bool]:
        if self._clues is None or self._clues[0] != self._order:
            certain, possible = block_clues(np.frombuffer(self._data, dtype=np.uint8), self._order)
            self._clues = (self._order, certain.tolist(), possible.tolist())
        _, certain_places, possible_places = self._clues
        size = len(self._data)
        certain_at = bisect_left(certain_places, place)
        found = certain_places[certain_at] if certain_at < len(certain_places) else size
        possible_at = bisect_left(possible_places, place)
        if not last and possible_at < len(possible_places) and possible_places[possible_at] < found:
            return possible_places[possible_at], False
        if found < size:
            return found, True
        return max(place, size - SMALLEST_BLOCK_BYTES + 1), False

    def _columns(self, at: int) -> Records:
        octets = np.frombuffer(self._data, dtype=np.uint8)
        heads = np.array(self._heads, dtype=np.int64)
        marks = np.repeat(
            np.arange(len(self._marks)),
            np.diff([mark.first for mark in self._marks], append=len(heads)),
        )
        section = np.array([mark.section for mark in self._marks], dtype=np.int64)[marks]
        known = np.array([mark.known for mark in self._marks], dtype=np.int64)[marks]
        little = np.array([mark.order == "<" for mark in self._marks], dtype=np.bool_)[marks]
        fronts = _Fronts(rows_at(octets, heads, _FRONT_BYTES), little)
        interface = section + fronts.interface
        described = interface < known
        about = _About(self._known)
        number = np.where(described, interface, len(self._known))
        first = np.where(fronts.kind == SIMPLE_PACKET, _SIMPLE_FRONT_BYTES, _FRONT_BYTES)
        room = fronts.length - first - 4
        captured = np.where(
            fronts.kind == SIMPLE_PACKET,
            np.minimum(np.minimum(fronts.original, about.snap_bytes[number]), room),
            fronts.captured,
        )
        sound = (captured <= room) & (room >= 0) & (captured <= LARGEST_FRAME_BYTES)
        for place, length in zip(heads[~sound].tolist(), fronts.length[~sound].tolist(), strict=True):
            self._damages.append(Damage(at + place, length))
        records = Records(
            at=at + heads,
            frame_at=at + heads + first,
            captured_bytes=captured,
            original_bytes=np.maximum(captured, fronts.original),
            time_ns=np.where(fronts.kind == SIMPLE_PACKET, 0, about.time_ns(fronts.ticks, number)),
            interface=np.minimum(self.layout.first_interface + interface, 0x7FFF_FFFF),
            link_type=about.link_type[number],
        )
        self.layout = replace(
            self.layout,
            order=self._order,
            interfaces=tuple(self._known[self._section :]),
            first_interface=self.layout.first_interface + self._section,
        )
        return records if sound.all() else records.where(sound)


class _Fronts:
    """The fixed fields of packet blocks, each in the byte order of its section."""

    def __init__(self, rows: npt.NDArray[np.uint8], little: npt.NDArray[np.bool_]) -> None:
        self._rows, self._little = rows, little
        self.kind = self._field(0)
        self.length = self._field(4)
        simple = self.kind == SIMPLE_PACKET
        identity = self._field(8)
        old = self.kind == OLD_PACKET
        if old.any():
            identity = np.where(old, self._field(8, "u2"), identity)
        self.original = np.where(simple, identity, self._field(24))
        self.interface = np.where(simple, 0, identity)
        self.captured = self._field(20)
        high, low = self._field(12).astype(np.uint64), self._field(16).astype(np.uint64)
        self.ticks = high << np.uint64(32) | low

    def _field(self, start: int, kind: str = "u4") -> Numbers:
        if self._little.all():
            return column(self._rows, start, f"<{kind}")
        return np.where(self._little, column(self._rows, start, f"<{kind}"), column(self._rows, start, f">{kind}"))


class _About:
    """What is known of the interfaces, as columns; the last row stands for those nobody described."""

    def __init__(self, interfaces: list[Interface]) -> None:
        self._all = [*interfaces, Interface(-1, 0, MICROSECONDS)]
        self.link_type = np.array([one.link_type for one in self._all], dtype=np.int64)
        self.snap_bytes = np.array([one.snap_bytes or LARGEST_FRAME_BYTES for one in self._all], dtype=np.int64)

    def time_ns(self, ticks: npt.NDArray[np.uint64], interface: Numbers) -> Numbers:
        """Nanoseconds since the epoch; what is no time at all wraps around."""
        scales = [(one.resolution, one.offset_s) for one in self._all]
        kinds = {scale: number for number, scale in enumerate(dict.fromkeys(scales))}
        kind = np.array([kinds[scale] for scale in scales], dtype=np.int64)[interface]
        result = np.zeros(len(ticks), dtype=np.uint64)
        for (resolution, offset_s), number in kinds.items():
            these = kind == number if len(kinds) > 1 else slice(None)
            offset_ns = np.uint64(offset_s * _SECOND_NS % (1 << 64))
            result[these] = _nanoseconds(ticks[these], resolution) + offset_ns
        return result.view(np.int64)


def _nanoseconds(ticks: npt.NDArray[np.uint64], resolution: int) -> npt.NDArray[np.uint64]:
    power = resolution & 0x7F
    if resolution & 0x80:
        if power > 63:
            return np.zeros_like(ticks)
        seconds, fraction = ticks >> np.uint64(power), ticks & np.uint64((1 << power) - 1)
        # Ten digits of a fraction of a second fit 33 bits; more would overflow when multiplied.
        dropped = max(0, power - 33)
        part = (fraction >> np.uint64(dropped)) * np.uint64(_SECOND_NS) >> np.uint64(power - dropped)
        return seconds * np.uint64(_SECOND_NS) + part
    if power <= 9:
        return ticks * np.uint64(10 ** (9 - power))
    return ticks // np.uint64(10 ** min(power - 9, 19))
