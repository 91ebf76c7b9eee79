"""Which processes of this machine listen at the address of a URL, so that a broker given by its URL can be sampled.

Called by `lifecycle` once, before the load. Looks at our own network namespace through psutil, and at those of others
through /proc; whatever may not be seen from here is told as a reason, never raised.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from battlebrokers.contenders.broker_url import BrokerUrl
from battlebrokers.contenders.neighbours import FORWARDERS, Neighbours, is_here
from battlebrokers.contenders.services import Service
from battlebrokers.record.route import resolved

_RELAYS = {"ssh", "sshd", "kubectl", "socat"}
"""Listen for somebody elsewhere; what they use is not what the broker uses."""
_PROC = Path("/proc")
_WILDCARDS = {"0.0.0.0", "::"}  # noqa: S104 - compared with, never listened on
_LISTEN, _UNCONNECTED = "0A", "07"
"""States in /proc/net/tcp and udp."""


@dataclass(frozen=True, slots=True)
class Listening:
    """Who listens there: the processes, or why they are not known; neither: the broker is on another machine."""

    name: str = ""
    pids: tuple[int, ...] = ()
    reason: str = ""

    def neighbours(self, url: BrokerUrl) -> Neighbours | None:
        """The service they make, to be sampled; None where they are not known."""
        if not self.pids:
            return None
        ports = {self.name: [url.port]} if is_here(url.host) else {}
        return Neighbours({self.name: Service()}, ports, _roots={self.name: list(self.pids)})


def find_listening(url: BrokerUrl) -> Listening:
    """The processes that listen where the URL leads, if that is this machine."""
    if url.transport == "memory":
        return Listening()
    if is_here(url.host):
        return _told(_in_our_namespace(url), url)
    addresses = set(resolved(url.host))
    found = _in_other_namespaces(addresses, url.port, datagrams=url.transport == "udp")
    return _told(found, url) if found else Listening()


def _told(pids: list[int | None], url: BrokerUrl) -> Listening:
    known = [pid for pid in pids if pid is not None]
    others = [pid for pid in known if pid != os.getpid()]
    for pid in others:
        if _name(pid) in FORWARDERS:
            behind = _forwarded_to(pid, url)
            return Listening(_name(behind[0]), behind) if behind else Listening(reason=_container_words(pid))
    if relay := next((_name(pid) for pid in others if _name(pid) in _RELAYS), ""):
        return Listening(reason=f"{relay} listens there and hands on to somewhere else")
    if others:
        return Listening(_name(others[0]), tuple(others))
    if known:
        return Listening(reason="it is this very process that listens there")
    if pids:
        return Listening(reason="the process that listens there belongs to another user and root alone may see it")
    return Listening(reason="no process of this machine was seen to listen there")


def _in_our_namespace(url: BrokerUrl) -> list[int | None]:
    """Those at exactly this address; where nobody is, those at all addresses. None: a process we may not see."""
    datagrams = url.transport == "udp"
    try:
        sockets = psutil.net_connections(kind="udp" if datagrams else "tcp")
    except (psutil.Error, OSError):
        return [None]
    addresses = {_plain(address) for address in resolved(url.host)}
    state = psutil.CONN_NONE if datagrams else psutil.CONN_LISTEN
    here = [
        (_plain(each.laddr[0]), each.pid)
        for each in sockets
        if each.status == state and each.laddr and not each.raddr and each.laddr[1] == url.port
    ]
    exact = [pid for address, pid in here if address in addresses]
    return list(dict.fromkeys(exact or [pid for address, pid in here if address in _WILDCARDS]))


def _in_other_namespaces(addresses: set[str], port: int, *, datagrams: bool) -> list[int | None]:
    """The same in networks of containers and labs of this machine, as far as /proc shows them; empty if in none."""
    for members in _namespaces():
        if not _has_address(members[0], addresses):
            continue
        inodes = _inodes(members[0], addresses, port, datagrams=datagrams)
        if inodes:
            found: list[int | None] = [pid for pid in members if inodes & _sockets(pid)]
            return found or [None]
    return []


def _namespaces() -> Iterator[list[int]]:
    """The processes of every network namespace but our own."""
    ours = _link(_PROC / "self/ns/net")
    members: dict[str, list[int]] = {}
    for pid in psutil.pids():
        name = _link(_PROC / str(pid) / "ns/net")
        if name and name != ours:
            members.setdefault(name, []).append(pid)
    yield from members.values()


def _has_address(pid: int, addresses: set[str]) -> bool:
    """Whether its network has one of these addresses."""
    local: set[str] = set()
    last = ""
    for line in _lines(_PROC / str(pid) / "net/fib_trie"):
        if "|--" in line:
            last = line.split()[-1]
        elif "/32 host LOCAL" in line:
            local.add(last)
    for line in _lines(_PROC / str(pid) / "net/if_inet6"):
        local.add(str(ipaddress.IPv6Address(bytes.fromhex(line.split()[0]))))
    # A namespace of its own has its own loopback: 127.0.0.1 there is not the one the URL means.
    return bool({one for one in local if not ipaddress.ip_address(one).is_loopback} & addresses)


def _inodes(pid: int, addresses: set[str], port: int, *, datagrams: bool) -> set[str]:
    """The sockets of its network that wait at this port of one of these addresses, or of all."""
    kind, state = ("udp", _UNCONNECTED) if datagrams else ("tcp", _LISTEN)
    found = set()
    for name in (kind, f"{kind}6"):
        for line in _lines(_PROC / str(pid) / "net" / name)[1:]:
            fields = line.split()
            if len(fields) < 10 or fields[3] != state:
                continue
            address, _, number = fields[1].partition(":")
            if int(number, 16) == port and _address(address) in {*addresses, *_WILDCARDS}:
                found.add(fields[9])
    return found


def _address(text: str) -> str:
    """An address of /proc/net: words of 32 bits in the machine's order."""
    words = [bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, len(text), 8)]
    packed = b"".join(words)
    return _plain(socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed))


def _sockets(pid: int) -> set[str]:
    found = set()
    try:
        for entry in (_PROC / str(pid) / "fd").iterdir():
            target = _link(entry)
            if target.startswith("socket:["):
                found.add(target[8:-1])
    except OSError:
        pass
    return found


def _forwarded_to(pid: int, url: BrokerUrl) -> tuple[int, ...]:
    """The processes in the container that a forwarder of Docker's hands connections to."""
    try:
        words = psutil.Process(pid).cmdline()
    except psutil.Error:
        return ()
    told = dict(zip(words[1::2], words[2::2], strict=False))
    address, port = told.get("-container-ip", ""), told.get("-container-port", "")
    if not address or not port.isdecimal():
        return ()
    found = _in_other_namespaces({address}, int(port), datagrams=url.transport == "udp")
    return tuple(one for one in found if one is not None)


def _container_words(pid: int) -> str:
    return f"{_name(pid)} listens there for a container whose processes were not found"


def _plain(address: str) -> str:
    """IPv4 as such, also where an IPv6 socket carries it."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)


def _name(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return "broker"


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
