"""What a switch sees in a frame, and how it rewrites one, as Open vSwitch does both. Pure; for the fake switch."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address

from battlebrokers.sdn.core.frames import ARP_TYPE, IPV4_TYPE, mac_bytes, mac_text, read_arp
from battlebrokers.sdn.core.instructions import Match

_ETHERNET_BYTES = 14
_SMALLEST_IPV4 = 20
_UDP = 17
_TCP = 6
_CHECKSUM_AT = {_UDP: 6, _TCP: 16}
_SMALLEST_L4 = {_UDP: 8, _TCP: 20}
_EMPTY = "0.0.0.0"  # noqa: S104 (what a switch reads where there is no address)


def fields_of(in_port: int, frame: bytes) -> Match:
    """All a rule can ask for; what a damaged frame does not have is zero, as in a switch."""
    eth_dst, eth_src = mac_text(frame[:6]), mac_text(frame[6:12])
    eth_type = int.from_bytes(frame[12:14], "big")
    if eth_type == ARP_TYPE:
        arp = read_arp(frame)
        if arp is None:
            nobody = mac_text(bytes(6))
            return Match(in_port, eth_src, eth_dst, eth_type, arp_op=0, arp_spa=_EMPTY, arp_tpa=_EMPTY, arp_sha=nobody)
        op = arp.op if arp.op <= 0xFF else 0
        return Match(
            in_port, eth_src, eth_dst, eth_type,
            arp_op=op, arp_spa=arp.sender_ipv4, arp_tpa=arp.target_ipv4, arp_sha=arp.sender_mac,
        )  # fmt: skip
    if eth_type != IPV4_TYPE:
        return Match(in_port, eth_src, eth_dst, eth_type)
    if not _is_ipv4(frame):
        return Match(in_port, eth_src, eth_dst, eth_type, 0, _EMPTY, _EMPTY, fragment=False)
    (flags,) = struct.unpack_from("!H", frame, 20)
    return Match(
        in_port, eth_src, eth_dst, eth_type, frame[23],
        str(IPv4Address(frame[26:30])), str(IPv4Address(frame[30:34])), fragment=bool(flags & 0x3FFF),
    )  # fmt: skip


def rewritten(frame: bytes, what: str, to: str) -> bytes:
    """With one address changed, and the checksums that cover it."""
    if what == "eth_dst":
        return mac_bytes(to) + frame[6:]
    if what == "eth_src":
        return frame[:6] + mac_bytes(to) + frame[12:]
    if not _is_ipv4(frame):
        return frame
    at = {"ipv4_src": 26, "ipv4_dst": 30}[what]
    changed = bytearray(frame)
    old, new = frame[at : at + 4], IPv4Address(to).packed
    changed[at : at + 4] = new
    _renew(changed, 24, old, new)
    transport = _ETHERNET_BYTES + (frame[14] & 0x0F) * 4
    (total,) = struct.unpack_from("!H", frame, 16)
    protocol = frame[23]
    if protocol in _CHECKSUM_AT and _ETHERNET_BYTES + total - transport >= _SMALLEST_L4[protocol]:
        place = transport + _CHECKSUM_AT[protocol]
        # A UDP checksum of zero means that there is none, and must not come about by chance.
        if protocol == _TCP or changed[place : place + 2] != b"\0\0":
            _renew(changed, place, old, new)
            if protocol == _UDP and changed[place : place + 2] == b"\0\0":
                changed[place : place + 2] = b"\xff\xff"
    return bytes(changed)


def _is_ipv4(frame: bytes) -> bool:
    size = len(frame) - _ETHERNET_BYTES
    if size < _SMALLEST_IPV4:
        return False
    head = (frame[14] & 0x0F) * 4
    (total,) = struct.unpack_from("!H", frame, 16)
    return bool(_SMALLEST_IPV4 <= head <= total <= size)


def _renew(frame: bytearray, place: int, old: bytes, new: bytes) -> None:
    """The checksum at `place`, without reading what it covers again (RFC 1624)."""
    (checksum,) = struct.unpack_from("!H", frame, place)
    total = ~checksum & 0xFFFF
    for before, after in zip(struct.unpack("!HH", old), struct.unpack("!HH", new), strict=True):
        total += (~before & 0xFFFF) + after
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    struct.pack_into("!H", frame, place, ~total & 0xFFFF)
