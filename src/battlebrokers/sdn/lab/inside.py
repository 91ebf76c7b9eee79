"""Sockets that live in a host's namespace, made from outside: a socket stays where it was created.

Used by the lab, by traffic sources and by tests: one process can be all hosts of a network.
"""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from battlebrokers import namespaces
from battlebrokers.errors import EnvironmentNotReady
from battlebrokers.sdn.core.addresses import BROADCAST_MAC
from battlebrokers.sdn.core.frames import arp_question
from battlebrokers.sdn.lab.commands import INSIDE
from battlebrokers.sdn.lab.topology import LabHost

_ALL_TYPES: Final = 3
"""ETH_P_ALL: a packet socket sees every frame."""
_ETHTOOL: Final = 0x8946
_SET_CHECKSUMS: Final = 0x17
"""SIOCETHTOOL with ETHTOOL_STXCSUM, which is `ethtool -K eth0 tx off` without a process of its own."""

T = TypeVar("T")


def in_namespace(name: str, make: Callable[[], T]) -> T:
    """What `make` returns when called as a host; the calling thread stays where it is."""
    try:
        return namespaces.in_namespace(name, make)
    except PermissionError as fault:
        raise EnvironmentNotReady(f"the network of {name} is for root", hint="run it with sudo") from fault
    except OSError as fault:
        raise EnvironmentNotReady(
            f"cannot use the network of {name}: {fault}", hint="is the lab up? bb sdn lab status"
        ) from fault


def without_offloads(namespace: str) -> None:
    """No IPv6 in a host, and checksums by itself: one left to the hardware is wrong once a switch rewrites a packet."""

    def settle() -> None:
        without_ipv6("all")
        value = ctypes.create_string_buffer(struct.pack("II", _SET_CHECKSUMS, 0))
        asked = struct.pack("16sP16x", INSIDE.encode(), ctypes.addressof(value))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, _ETHTOOL, asked)

    in_namespace(namespace, settle)


def without_ipv6(interface: str) -> None:
    """Silence an interface of the namespace we are in; a system without IPv6 is silent already."""
    place = Path("/proc/sys/net/ipv6/conf") / interface / "disable_ipv6"
    if place.exists():
        place.write_text("1")


def udp_socket(namespace: str, host: LabHost, port: int = 0) -> socket.socket:
    """A UDP socket of a host, bound to its address."""

    def make() -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        made.bind((host.ipv4, port))
        return made

    return in_namespace(namespace, make)


def frame_socket(namespace: str) -> socket.socket:
    """A socket that sends and receives whole frames at a host's interface."""

    def make() -> socket.socket:
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_TYPES))
        made.bind((INSIDE, 0))
        return made

    return in_namespace(namespace, make)


def announce(namespace: str, host: LabHost) -> None:
    """The host says who it is: asks for its own address, as hosts do when they come up."""
    with frame_socket(namespace) as door:
        door.send(arp_question(host.mac, host.ipv4, host.ipv4, BROADCAST_MAC))
