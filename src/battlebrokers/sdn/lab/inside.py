"""Sockets that live in a host's namespace, made from outside: a socket stays where it was created.

Used by the lab, by traffic sources and by tests: one process can be all hosts of a network.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final, TypeVar

from battlebrokers import namespaces
from battlebrokers.errors import EnvironmentNotReady
from battlebrokers.sdn.core.addresses import BROADCAST_MAC
from battlebrokers.sdn.core.frames import arp_question
from battlebrokers.sdn.lab.topology import LabHost

_ALL_TYPES: Final = 3
"""ETH_P_ALL: a packet socket sees every frame."""

T = TypeVar("T")


def in_namespace(name: str, make: Callable[[], T]) -> T:
    """What `make` returns when called as a host; the calling thread stays where it is."""
    try:
        return namespaces.in_namespace(name, make)
    except OSError as fault:
        raise EnvironmentNotReady(
            f"cannot use the network of {name}: {fault}", hint="is the lab up? bb sdn lab status"
        ) from fault


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
        made.bind(("eth0", 0))
        return made

    return in_namespace(namespace, make)


def announce(namespace: str, host: LabHost) -> None:
    """The host says who it is: asks for its own address, as hosts do when they come up."""
    with frame_socket(namespace) as door:
        door.send(arp_question(host.mac, host.ipv4, host.ipv4, BROADCAST_MAC))
