"""Ethernet frames: reading what the broker must know of them, and making the few it sends. Pure.

Frames come from anybody: whatever is too short or does not add up is None, never an exception.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Final

from battlebrokers.sdn.core.addresses import VIRTUAL_MAC

ARP_TYPE: Final = 0x0806
IPV4_TYPE: Final = 0x0800
LLDP_TYPE: Final = 0x88CC
LLDP_MAC: Final = "01:80:c2:00:00:0e"

_ETHERNET = struct.Struct("!6s6sH")
_ARP = struct.Struct("!HHBBH6s4s6s4s")
_SIGNED = struct.Struct("!QIQ")
"""Switch, port, and when it was sent."""
_SIGNATURE_BYTES = 16
_OUI = b"\x00\xbb\xbb\x01"
"""An organisationally specific TLV of ours: who sent it, from where, when, and proof of that."""
_SMALLEST_FRAME = 60


@dataclass(frozen=True, slots=True)
class Arp:
    """A question who has an address, or the answer."""

    eth_src: str
    op: int
    sender_mac: str
    sender_ipv4: str
    target_ipv4: str


@dataclass(frozen=True, slots=True)
class Beacon:
    """A frame of ours that crossed a link: it says from where it was sent."""

    switch: int
    port: int
    sent_ms: int


def mac_bytes(mac: str) -> bytes:
    """`00:00:00:00:00:01` as six bytes."""
    return bytes.fromhex(mac.replace(":", ""))


def mac_text(raw: bytes) -> str:
    """Six bytes as `00:00:00:00:00:01`."""
    return raw.hex(":")


def frame_type(frame: bytes) -> int:
    """The EtherType, or 0 where there is none."""
    return int.from_bytes(frame[12:14], "big") if len(frame) >= _ETHERNET.size else 0


def resource_of(frame: bytes) -> str | None:
    """The IPv4 destination of a frame."""
    return str(IPv4Address(frame[30:34])) if len(frame) >= 34 and frame_type(frame) == IPV4_TYPE else None


def read_arp(frame: bytes) -> Arp | None:
    """ARP for IPv4 on Ethernet; None for anything else."""
    if len(frame) < _ETHERNET.size + _ARP.size or frame_type(frame) != ARP_TYPE:
        return None
    hardware, protocol, mac_size, ipv4_size, op, sha, spa, _, tpa = _ARP.unpack_from(frame, _ETHERNET.size)
    if (hardware, protocol, mac_size, ipv4_size) != (1, IPV4_TYPE, 6, 4):
        return None
    return Arp(mac_text(frame[6:12]), op, mac_text(sha), str(IPv4Address(spa)), str(IPv4Address(tpa)))


def arp_question(mac: str, ipv4: str, target: str, to: str) -> bytes:
    """Who has `target`? Asking for one's own address tells everybody who one is."""
    asked = _ARP.pack(
        1, IPV4_TYPE, 6, 4, 1, mac_bytes(mac), IPv4Address(ipv4).packed, bytes(6), IPv4Address(target).packed
    )
    return (_ETHERNET.pack(mac_bytes(to), mac_bytes(mac), ARP_TYPE) + asked).ljust(_SMALLEST_FRAME, b"\0")


def arp_answer(question: Arp) -> bytes:
    """The address asked for is the virtual MAC address's."""
    virtual, asker = mac_bytes(VIRTUAL_MAC), mac_bytes(question.sender_mac)
    answer = _ARP.pack(
        1, IPV4_TYPE, 6, 4, 2, virtual, IPv4Address(question.target_ipv4).packed,
        asker, IPv4Address(question.sender_ipv4).packed,
    )  # fmt: skip
    return (_ETHERNET.pack(asker, virtual, ARP_TYPE) + answer).ljust(_SMALLEST_FRAME, b"\0")


def udp_frame(mac: str, ipv4: str, to_mac: str, to_ipv4: str, port: int, payload: bytes) -> bytes:
    """A datagram without a UDP checksum, which IPv4 allows."""
    size = 28 + len(payload)
    addresses = IPv4Address(ipv4).packed + IPv4Address(to_ipv4).packed
    head = struct.pack("!BBHHHBBH", 0x45, 0, size, 0, 0x4000, 64, 17, 0) + addresses
    total = sum(struct.unpack("!10H", head))
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    head = head[:10] + struct.pack("!H", ~total & 0xFFFF) + head[12:]
    udp = struct.pack("!HHHH", port, port, 8 + len(payload), 0)
    return _ETHERNET.pack(mac_bytes(to_mac), mac_bytes(mac), IPV4_TYPE) + head + udp + payload


def beacon_frame(beacon: Beacon, secret: bytes) -> bytes:
    """LLDP as others understand it, with a signature that only we can make."""
    source = (beacon.switch & 0xFFFFFFFFFFFF).to_bytes(6, "big")
    said = _SIGNED.pack(beacon.switch, beacon.port, beacon.sent_ms)
    return b"".join(
        (
            _ETHERNET.pack(mac_bytes(LLDP_MAC), source, LLDP_TYPE),
            _tlv(1, b"\x07" + f"dpid:{beacon.switch:016x}".encode()),
            _tlv(2, b"\x07" + str(beacon.port).encode()),
            _tlv(3, struct.pack("!H", 120)),
            _tlv(127, _OUI + said + _signature(said, secret)),
            _tlv(0, b""),
        )
    )


def read_beacon(frame: bytes, secret: bytes) -> Beacon | None:
    """A beacon of ours; None when it is another LLDP frame or somebody else made it."""
    if frame_type(frame) != LLDP_TYPE:
        return None
    at = _ETHERNET.size
    while at + 2 <= len(frame):
        head = int.from_bytes(frame[at : at + 2], "big")
        kind, size = head >> 9, head & 0x1FF
        value = frame[at + 2 : at + 2 + size]
        if kind == 0:
            return None
        if kind == 127 and len(value) == len(_OUI) + _SIGNED.size + _SIGNATURE_BYTES and value.startswith(_OUI):
            said, signature = value[len(_OUI) : -_SIGNATURE_BYTES], value[-_SIGNATURE_BYTES:]
            if hmac.compare_digest(signature, _signature(said, secret)):
                return Beacon(*_SIGNED.unpack(said))
            return None
        at += 2 + size
    return None


def _tlv(kind: int, value: bytes) -> bytes:
    return struct.pack("!H", kind << 9 | len(value)) + value


def _signature(said: bytes, secret: bytes) -> bytes:
    return hmac.new(secret, said, hashlib.sha256).digest()[:_SIGNATURE_BYTES]
