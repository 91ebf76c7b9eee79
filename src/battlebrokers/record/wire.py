"""A wire: where one service's packets can be seen, and how to name that to a capture program. Pure.

Made from a contender's spec, from a broker's URL or from the command line; used by `capture_tool` and by the manifest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from battlebrokers.errors import UsageError
from battlebrokers.tables.endpoints import ANYWHERE, endpoint

LOOPBACK = "lo"
EVERYWHERE = "any"
_NAMED_NAMESPACES = "/run/netns"
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@:-]*")


@dataclass(frozen=True, slots=True)
class Wire:
    """Where to listen for one service; whatever is empty does not narrow it down."""

    service: str
    ports: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    """Addresses the service has on this wire."""
    interface: str = ""
    """Empty: loopback, `any` in another namespace, the veth of a container."""
    namespace: str = ""
    """A name under /run/netns, or the path of a network namespace such as /proc/PID/ns/net."""
    container: str = ""
    """The container it was found by."""
    narrow: bool = False
    """Whether only packets of `hosts` are wanted: other machines have the same ports."""
    wanted: str = ""
    """A capture filter of its own, where ports do not tell which packets are the service's."""

    @property
    def filter(self) -> str:
        """The capture filter (pcap-filter syntax); empty takes every packet."""
        if self.wanted:
            return self.wanted
        ports = " or ".join(f"port {port}" for port in self.ports)
        hosts = " or ".join(f"host {host}" for host in self.hosts) if self.narrow else ""
        return f"({hosts}) and ({ports})" if hosts and ports else hosts or ports

    @property
    def addresses(self) -> tuple[str, ...]:
        """Every `address:port` by which packets of this service are known; without ports the addresses alone."""
        if not self.ports:
            return tuple(endpoint(host) for host in self.hosts)
        return tuple(endpoint(host, port) for host in self.hosts or (ANYWHERE,) for port in self.ports)

    @property
    def namespace_path(self) -> str:
        """The file of its network namespace; empty is ours."""
        if not self.namespace or self.namespace.startswith("/"):
            return self.namespace
        return f"{_NAMED_NAMESPACES}/{self.namespace}"


def parse_service(text: str) -> tuple[str, tuple[int, ...]]:
    """`broker=1883,8883` or just `broker` as a name and its ports."""
    name, equals, listed = text.partition("=")
    numbers = listed.split(",") if equals else []
    hint = "for example --service broker=1883 --service redis=6379,6380"
    if not _SAFE_NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot be the name of a service and of its files", hint=hint)
    for number in numbers:
        if not (number.isascii() and number.isdigit() and 0 < int(number) < 65536):
            raise UsageError(f"{number!r} in --service {text} is not a port", hint=hint)
    return name, tuple(int(number) for number in numbers)


def safe_file_name(service: str) -> str:
    """A service's name as the beginning of a file's name."""
    return re.sub(r"[^A-Za-z0-9_.@-]+", "_", service).lstrip(".") or "service"
