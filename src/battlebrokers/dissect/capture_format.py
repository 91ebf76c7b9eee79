"""What capture files look like: the headers of pcap, the blocks and options of pcapng.

Used by the record walker and the search for boundaries. Reads bytes it is given, never a file; wrong bytes give None.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["pcap", "pcapng"]
Order = Literal["<", ">"]
"""Little or big endian, as `struct` writes it."""

FILE_HEADER_BYTES = 24
RECORD_HEADER_BYTES = 16
LARGEST_FRAME_BYTES = 262_144
"""What libpcap and Wireshark call the longest possible frame; a record that claims more is broken."""

SECTION, INTERFACE, OLD_PACKET, SIMPLE_PACKET, NAMES, STATISTICS, PACKET = 0x0A0D0D0A, 1, 2, 3, 4, 5, 6
PACKET_BLOCKS = frozenset((OLD_PACKET, SIMPLE_PACKET, PACKET))
SMALLEST_BLOCK_BYTES = 12
LARGEST_BLOCK_BYTES = 16 << 20
LARGEST_PACKET_BLOCK_BYTES = 1 << 20
"""A frame and its options."""
MOST_INTERFACES = 1 << 16
"""Of one section; more are not remembered."""

MICROSECONDS, NANOSECONDS = 6, 9
_MAGIC: dict[bytes, tuple[Order, int]] = {
    b"\xd4\xc3\xb2\xa1": ("<", MICROSECONDS),
    b"\xa1\xb2\xc3\xd4": (">", MICROSECONDS),
    b"\x4d\x3c\xb2\xa1": ("<", NANOSECONDS),
    b"\xa1\xb2\x3c\x4d": (">", NANOSECONDS),
}
_SECTION_MAGIC = b"\n\r\r\n"
_BYTE_ORDER: dict[bytes, Order] = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}
_RESOLUTION_OPTION, _OFFSET_OPTION = 9, 14
_INTERFACE_DROPS_OPTION, _SYSTEM_DROPS_OPTION = 5, 7


class Interface(NamedTuple):
    """Where packets were captured, and how its times are to be read."""

    link_type: int
    snap_bytes: int
    """Longest captured part of a frame; 0 for no limit."""
    resolution: int = MICROSECONDS
    """As in `if_tsresol`: a negative power of ten, with the highest bit set of two."""
    offset_s: int = 0


class Drops(NamedTuple):
    """Packets that were not captured, as the capturing program counted them; None when it did not."""

    interface: int
    by_interface: int | None
    by_system: int | None


@dataclass(frozen=True, slots=True)
class Layout:
    """All one has to know to read on from a record boundary."""

    kind: Kind
    order: Order
    interfaces: tuple[Interface, ...] = ()
    """Those of the section at hand; a pcap file has exactly one."""
    first_interface: int = 0
    """How many there were in the sections before."""


def layout_of(front: bytes) -> tuple[Layout, int] | None:
    """The layout at the beginning of a file and where its first record or block lies; None if it is no capture."""
    if front[:4] in _MAGIC:
        if len(front) < FILE_HEADER_BYTES:
            return None
        order, resolution = _MAGIC[front[:4]]
        snap_bytes, link = struct.unpack_from(f"{order}II", front, 16)
        # The upper half says how long a checksum follows each frame.
        return Layout("pcap", order, (Interface(link & 0xFFFF, snap_bytes, resolution),)), FILE_HEADER_BYTES
    if front[:4] == _SECTION_MAGIC and (found := section_order(front, 0)) is not None:
        return Layout("pcapng", found), 0
    return None


def section_order(data: bytes | memoryview, at: int) -> Order | None:
    """The byte order of the section whose header block begins at `at`."""
    return _BYTE_ORDER.get(bytes(data[at + 8 : at + 12]))


def interface_of(block: bytes, order: Order) -> Interface | None:
    """What an interface description block says."""
    if len(block) < 20:
        return None
    link_type, _, snap_bytes = struct.unpack_from(f"{order}HHI", block, 8)
    resolution, offset_s = MICROSECONDS, 0
    for code, value in _options(block, 16, order):
        if code == _RESOLUTION_OPTION and value:
            resolution = value[0]
        elif code == _OFFSET_OPTION and len(value) == 8:
            (offset_s,) = struct.unpack(f"{order}q", value)
    return Interface(link_type, snap_bytes, resolution, offset_s)


def drops_of(block: bytes, order: Order) -> Drops | None:
    """What an interface statistics block says about lost packets."""
    if len(block) < 24:
        return None
    (interface,) = struct.unpack_from(f"{order}I", block, 8)
    counts: dict[int, int] = {}
    for code, value in _options(block, 20, order):
        if len(value) == 8:
            (counts[code],) = struct.unpack(f"{order}Q", value)
    return Drops(interface, counts.get(_INTERFACE_DROPS_OPTION), counts.get(_SYSTEM_DROPS_OPTION))


def _options(block: bytes, at: int, order: Order) -> Iterator[tuple[int, bytes]]:
    """Code and value of each option; ends at the first that makes no sense."""
    end = len(block) - 4
    while at + 4 <= end:
        code, size = struct.unpack_from(f"{order}HH", block, at)
        at += 4
        if code == 0 or at + size > end:
            return
        yield code, block[at : at + size]
        at += (size + 3) & ~3
