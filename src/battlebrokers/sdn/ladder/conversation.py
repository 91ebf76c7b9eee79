"""OpenFlow 1.3 as it was captured: TCP segments → whole messages with their times, and what the two that carry a
packet say. Pure; whatever does not add up is left out, never an exception.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Final

import numpy as np

from battlebrokers.dissect.assembly import Assembly
from battlebrokers.sdn.core.frames import LLDP_TYPE, frame_type, mac_text
from battlebrokers.sdn.openflow.wire import FEATURES_REPLY, HEADER, PACKET_IN, PACKET_OUT, VERSION, read_packet_in

_LAST_TYPE: Final = 29
_NO_BUFFER: Final = 0xFFFFFFFF
_LARGEST_BYTES: Final = 1 << 16
_PACKET_OUT = struct.Struct("!8xIIH6x")
_OUTPUT, _SET_FIELD = 0, 25
_ADDRESSES: Final = {0x80000606: "eth_dst", 0x80000806: "eth_src", 0x80001604: "ipv4_src", 0x80001804: "ipv4_dst"}
_CHAIN: Final = 3
"""So many messages in a row are no accident."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Some bytes of a conversation, named by the switch's port."""

    time_ns: int
    switch_port: int
    to_controller: bool
    seq: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Told:
    """One message, and when its last byte was there."""

    time_ns: int
    switch_port: int
    to_controller: bool
    raw: bytes

    @property
    def kind(self) -> int:
        """Its type."""
        return self.raw[1]


@dataclass(frozen=True, slots=True)
class PacketIn:
    """A switch asks what to do with a frame."""

    in_port: int
    frame: bytes
    buffer: int | None


@dataclass(frozen=True, slots=True)
class PacketOut:
    """The controller says what to do with a frame."""

    outputs: tuple[int, ...]
    rewritten: tuple[tuple[str, str], ...]
    """Field and new value, in order."""
    frame: bytes


def messages_of(segments: Iterable[Segment]) -> tuple[list[Told], int]:
    """All messages in the order of their times, and how many bytes were said but not captured."""
    sides: defaultdict[tuple[int, bool], list[Segment]] = defaultdict(list)
    for segment in segments:
        sides[segment.switch_port, segment.to_controller].append(segment)
    told: list[Told] = []
    gap_bytes = 0
    for (switch_port, to_controller), said in sides.items():
        assembly = Assembly()
        told += (Told(time_ns, switch_port, to_controller, raw) for time_ns, raw in _framed(_assembled(assembly, said)))
        gap_bytes += assembly.gap_bytes
    told.sort(key=lambda one: one.time_ns)
    return told, gap_bytes


def packet_in(raw: bytes) -> PacketIn | None:
    """What a PACKET_IN carries."""
    found = read_packet_in(raw) if raw[1] == PACKET_IN else None
    if found is None:
        return None
    (buffer,) = struct.unpack_from("!I", raw, 8)
    return PacketIn(*found, None if buffer == _NO_BUFFER else buffer)


def packet_out(raw: bytes) -> PacketOut | None:
    """What a PACKET_OUT carries."""
    if raw[1] != PACKET_OUT or len(raw) < _PACKET_OUT.size:
        return None
    _, _, actions_bytes = _PACKET_OUT.unpack_from(raw)
    end = _PACKET_OUT.size + actions_bytes
    if end > len(raw):
        return None
    outputs: list[int] = []
    rewritten: list[tuple[str, str]] = []
    at = _PACKET_OUT.size
    while at + 8 <= end:
        kind, size = struct.unpack_from("!HH", raw, at)
        if size < 8 or at + size > end:
            return None
        (word,) = struct.unpack_from("!I", raw, at + 4)
        if kind == _OUTPUT:
            outputs.append(word)
        elif kind == _SET_FIELD and word in _ADDRESSES and size >= 8 + (word & 0xFF):
            value = raw[at + 8 : at + 8 + (word & 0xFF)]
            rewritten.append((_ADDRESSES[word], mac_text(value) if len(value) == 6 else str(IPv4Address(value))))
        at += size
    return PacketOut(tuple(outputs), tuple(rewritten), raw[end:])


def switches_of(told: Iterable[Told]) -> dict[int, int]:
    """Port of a conversation → number of its switch: by its introduction, or by the beacons the controller sends."""
    found: dict[int, int] = {}
    for one in told:
        if one.kind == FEATURES_REPLY and one.to_controller and len(one.raw) >= 16:
            (found[one.switch_port],) = struct.unpack_from("!Q", one.raw, 8)
        elif one.kind == PACKET_OUT and not one.to_controller:
            sent = packet_out(one.raw)
            number = _beaconing(sent.frame) if sent else None
            if number is not None:
                found[one.switch_port] = number
    return found


def _beaconing(frame: bytes) -> int | None:
    """The switch an LLDP frame says it was sent from; nobody but the controller sends them this way."""
    words = frame[17:38]
    if frame_type(frame) != LLDP_TYPE or not words.startswith(b"dpid:"):
        return None
    try:
        return int(words[5:], 16)
    except ValueError:
        return None


def _assembled(assembly: Assembly, said: list[Segment]) -> Iterator[tuple[int, bytes | None]]:
    """Bytes in sequence with the time each piece was there; None for a hole."""
    sizes = [len(segment.payload) for segment in said]
    places = np.cumsum([0, *sizes[:-1]], dtype=np.int64)
    buffer = b"".join(segment.payload for segment in said)
    nothing = np.empty(0, dtype=np.int64)
    pieces = assembly.push(
        np.array([segment.seq for segment in said], dtype=np.int64), np.array(sizes, dtype=np.int64), places,
        np.array([segment.time_ns for segment in said], dtype=np.int64), np.arange(len(said), dtype=np.int64),
        nothing, nothing, last=True,
    )  # fmt: skip
    for number in range(len(pieces)):
        place, size = int(pieces.place[number]), int(pieces.size[number])
        yield int(pieces.time_ns[number]), None if place < 0 else buffer[place : place + size]


def _framed(pieces: Iterable[tuple[int, bytes | None]]) -> Iterator[tuple[int, bytes]]:
    """Whole messages; a capture that begins or goes on in the middle of one is entered at the next."""
    rest, lost = b"", True
    for time_ns, data in pieces:
        if data is None:
            rest, lost = b"", True
            continue
        rest += data
        while True:
            if lost:
                here = next((at for at in range(len(rest) - HEADER.size + 1) if _chained(rest, at)), None)
                if here is None:
                    rest = rest[-_LARGEST_BYTES:]
                    break
                rest, lost = rest[here:], False
            if len(rest) < HEADER.size:
                break
            if not _plausible(rest, 0):
                lost, rest = True, rest[1:]
                continue
            (length,) = struct.unpack_from("!H", rest, 2)
            if len(rest) < length:
                break
            yield time_ns, rest[:length]
            rest = rest[length:]


def _plausible(data: bytes, at: int) -> bool:
    version, kind, length, _ = HEADER.unpack_from(data, at)
    return bool(version == VERSION and kind <= _LAST_TYPE and length >= HEADER.size)


def _chained(data: bytes, start: int) -> bool:
    """Whether messages follow each other from here: some, or up to where the data ends."""
    at = start
    for count in range(_CHAIN):
        if at + HEADER.size > len(data):
            # One that is longer than what is here of it is believed at the front only.
            return count > 0 and (at <= len(data) or count > 1 or start == 0)
        if not _plausible(data, at):
            return False
        at += int.from_bytes(data[at + 2 : at + 4], "big")
    return True
