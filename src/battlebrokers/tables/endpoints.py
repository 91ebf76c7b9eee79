"""Endpoints as keys: one spelling of an address, with or without a port, for all who name services by where they live.

Captures are named when they are made and looked up when they are decoded: both must spell alike. Pure; asks nobody.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache

ANYWHERE = "*"
"""In place of an address: the port alone is known."""


def endpoint(address: str, port: int | None = None) -> str:
    """`10.0.0.5:6379`, `[2001:db8::5]:6379`, `*:6379`; without a port `10.0.0.5` or `2001:db8::5`."""
    host = _spelled(address)
    if port is None:
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_endpoint(text: str) -> tuple[str, int | None]:
    """Address or host name, and port if there is one; ValueError if the port is none.

    An IPv6 address may stand in brackets, and must if a port follows.
    """
    if _parsed(text) is not None:
        return text, None
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        if not closed or _parsed(host) is None or (rest and not rest.startswith(":")):
            raise ValueError(f"{text!r} is not an address in brackets")
        colon, number = rest[:1], rest[1:]
    else:
        host, colon, number = text.rpartition(":")
    if not colon:
        return host or text, None
    if not (number.isascii() and number.isdigit() and 0 < int(number) < 65536):
        raise ValueError(f"{number!r} is not a port")
    if not host or (":" in host and not text.startswith("[")):
        raise ValueError(f"{host!r} is neither an address nor the name of a host")
    return host, int(number)


def respelled(text: str) -> str:
    """The same endpoint as everybody spells it; what is no endpoint stays as it is."""
    try:
        return endpoint(*split_endpoint(text))
    except ValueError:
        return text


@lru_cache(maxsize=65_536)
def _spelled(address: str) -> str:
    found = _parsed(address.removeprefix("[").removesuffix("]"))
    if found is None:
        return address.lower()
    # Captures tell IPv4 inside IPv6 as IPv4, and know no zones.
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found).partition("%")[0]


def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(address)
    except ValueError:
        return None
