"""Which interface leads to an address, which addresses an interface or a host has: asked from `ip -json` and by name.

Used where a wire has to be found for a service we did not start. When `ip` is missing, every interface is meant.
"""

from __future__ import annotations

import ipaddress
import json
import shutil
import socket
from collections.abc import Sequence
from typing import Any

from battlebrokers.errors import EnvironmentNotReady
from battlebrokers.record.containers import Ask, ask
from battlebrokers.record.wire import EVERYWHERE, LOOPBACK


def interface_towards(address: str, ask: Ask = ask) -> str:
    """The interface packets to that address leave by; `any` when nobody can tell."""
    if _is_loopback(address):
        return LOOPBACK
    if shutil.which("ip") is None:
        return EVERYWHERE
    try:
        return parse_route(ask(["ip", "-json", "route", "get", address]))
    except EnvironmentNotReady:
        return EVERYWHERE


def way_towards(addresses: Sequence[str], ask: Ask = ask) -> str:
    """The interface that leads to all of them; `any` when they lead different ways: nobody knows which will be used."""
    interfaces = {interface_towards(address, ask) for address in addresses}
    return interfaces.pop() if len(interfaces) == 1 else EVERYWHERE


def resolved(host: str) -> tuple[str, ...]:
    """The addresses of a host, of an address itself; none if its name is not known."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return tuple(dict.fromkeys(str(each[4][0]) for each in found))


def parse_route(told: str) -> str:
    """The interface in what `ip -json route get` printed."""
    for route in _rows(told):
        if isinstance(device := route.get("dev"), str):
            return device
    return EVERYWHERE


def addresses_of(interface: str, namespace_path: str = "", ask: Ask = ask) -> tuple[str, ...]:
    """The addresses an interface has, `any` for all of them; none when nobody can tell."""
    if shutil.which("ip") is None:
        return ()
    enter = ["nsenter", f"--net={namespace_path}", "--"] if namespace_path else []
    which = [] if interface == EVERYWHERE else ["dev", interface]
    try:
        return parse_addresses(ask([*enter, "ip", "-json", "address", "show", *which]))
    except EnvironmentNotReady:
        return ()


def parse_addresses(told: str) -> tuple[str, ...]:
    """The addresses in what `ip -json address` printed, without those of one link only."""
    each = (info for link in _rows(told) for info in link.get("addr_info") or [] if isinstance(info, dict))
    return tuple(str(info["local"]) for info in each if info.get("local") and info.get("scope") != "link")


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _rows(told: str) -> list[dict[str, Any]]:
    try:
        rows = json.loads(told)
    except ValueError:
        return []
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
