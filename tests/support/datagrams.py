"""Frames as hosts send them: UDP and ARP, built by hand, with correct checksums."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address

from battlebrokers.sdn.core.addresses import BROADCAST_MAC, VIRTUAL_MAC
from battlebrokers.sdn.core.frames import ARP_TYPE, IPV4_TYPE, mac_bytes


def checksum(data: bytes) -> int:
    """The Internet's, as it is put into a header."""
    padded = data + b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def udp_frame(
    mac: str, ipv4: str, to: str, payload: bytes, *, to_mac: str = VIRTUAL_MAC, ports: tuple[int, int] = (4000, 5005),
    flags: int = 0x4000, protocol: int = 17,
) -> bytes:  # fmt: skip
    """A datagram from a host to an address."""
    source, target = IPv4Address(ipv4).packed, IPv4Address(to).packed
    udp = struct.pack("!HHHH", *ports, 8 + len(payload), 0) + payload
    sum_of = checksum(source + target + struct.pack("!BBH", 0, 17, len(udp)) + udp) or 0xFFFF
    udp = udp[:6] + struct.pack("!H", sum_of) + udp[8:]
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp), 7, flags, 64, protocol, 0) + source + target
    head = head[:10] + struct.pack("!H", checksum(head)) + head[12:]
    return mac_bytes(to_mac) + mac_bytes(mac) + struct.pack("!H", IPV4_TYPE) + head + udp


def arp_frame(
    mac: str, ipv4: str, target: str, *, op: int = 1, eth_src: str | None = None, to: str = BROADCAST_MAC
) -> bytes:
    """Who has `target`? A gratuitous one asks for the sender's own address."""
    body = struct.pack("!HHBBH", 1, IPV4_TYPE, 6, 4, op)
    body += mac_bytes(mac) + IPv4Address(ipv4).packed + bytes(6) + IPv4Address(target).packed
    return mac_bytes(to) + mac_bytes(eth_src or mac) + struct.pack("!H", ARP_TYPE) + body


def is_sound(frame: bytes) -> bool:
    """Whether the checksums of an IPv4/UDP frame are right."""
    head = frame[14:34]
    udp = frame[34:]
    if checksum(head) != 0:
        return False
    return checksum(head[12:20] + struct.pack("!BBH", 0, 17, len(udp)) + udp) == 0
