"""Addresses as people write them, checked and in one spelling. Used wherever an address enters the broker.

A resource is a virtual IPv4 address; all resources share one virtual MAC address.
"""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv4Address
from typing import Final

from battlebrokers.errors import InputError

VIRTUAL_MAC: Final = "00:00:00:00:00:fe"
"""Who owns a resource's address, as far as ARP is concerned."""
FIRST_RESOURCE: Final = IPv4Address("1.1.1.1")
LAST_RESOURCE: Final = IPv4Address("1.1.255.254")
BROADCAST_MAC: Final = "ff:ff:ff:ff:ff:ff"

_MAC = re.compile(r"(?:[0-9a-f]{2}[:-]){5}[0-9a-f]{2}")


def mac(text: object) -> str:
    """A unicast MAC address in lower case with colons."""
    spelled = text.strip().lower() if isinstance(text, str) else ""
    if not _MAC.fullmatch(spelled):
        raise InputError(f"'{text}' is no MAC address", hint="write it as 00:00:00:00:00:01")
    spelled = spelled.replace("-", ":")
    if int(spelled[:2], 16) & 1:
        raise InputError(f"'{spelled}' addresses a group", hint="a subscriber is one host: give its own address")
    if spelled in (VIRTUAL_MAC, "00:00:00:00:00:00"):
        raise InputError(f"'{spelled}' belongs to no host", hint="give the address of the subscriber's interface")
    return spelled


def ipv4(text: object) -> str:
    """An IPv4 address in its usual spelling."""
    try:
        return str(IPv4Address(text.strip() if isinstance(text, str) else ""))
    except AddressValueError:
        raise InputError(f"'{text}' is no IPv4 address", hint="write it as 10.0.0.1") from None


def host_ipv4(text: object) -> str:
    """The IPv4 address of a host: neither a resource's nor one that nobody can have."""
    spelled = ipv4(text)
    address = IPv4Address(spelled)
    if is_resource(spelled):
        raise InputError(f"'{spelled}' is in the range of resources", hint="give the address of the host itself")
    if (
        address.is_multicast
        or address.is_unspecified
        or address.is_loopback
        or address == IPv4Address("255.255.255.255")
    ):
        raise InputError(f"'{spelled}' is not the address of one host", hint="give the address of the host itself")
    return spelled


def is_resource(address: str) -> bool:
    """Whether an address lies in the range that resources are taken from."""
    return FIRST_RESOURCE <= IPv4Address(address) <= LAST_RESOURCE


def following(last: str | None) -> str:
    """The next address to hand out: in order, never one ending in 0 or 255, no address twice."""
    if last is None:
        return str(FIRST_RESOURCE)
    address = IPv4Address(last) + 1
    while int(address) & 0xFF in (0, 0xFF):
        address += 1
    if address > LAST_RESOURCE:
        raise InputError("all resource addresses are used up", hint="restart the broker with a new state file")
    return str(address)
