"""Link layers: where in a frame the IP header begins. Called by `frames`; carrying something else is no fault."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from battlebrokers.dissect.gather import Numbers, numbers_at
from battlebrokers.dissect.headers import BAD_LINK, Headers

_IPV4, _IPV6 = 0x0800, 0x86DD
_TAGS = (0x8100, 0x88A8, 0x9100, 0x9200)
_MOST_TAGS = 4
_FAMILIES = {2: 4, 10: 6, 24: 6, 28: 6, 30: 6}
"""Address families of the systems that write loopback headers → IP version."""


def decode_link(headers: Headers) -> None:
    """Find IP in all frames of known link types."""
    for link_type in np.unique(headers.link_type).tolist():
        which = np.flatnonzero(headers.link_type == link_type)
        decode = _LINK_TYPES.get(link_type)
        if decode is None:
            headers.fault[which] = BAD_LINK
        else:
            decode(headers, which)


def _typed(header_bytes: int, type_at: int) -> Callable[[Headers, Numbers], None]:
    """A header of fixed length with an ethertype in it."""

    def decode(headers: Headers, which: Numbers) -> None:
        which = which[headers.holds(which, headers.start[which], header_bytes, BAD_LINK)]
        kind = numbers_at(headers.data, headers.start[which] + type_at, ">u2")
        _behind_tags(headers, which, kind, headers.start[which] + header_bytes)

    return decode


def _behind_tags(headers: Headers, which: Numbers, kind: Numbers, at: Numbers) -> None:
    """Pass over VLAN tags."""
    for _ in range(_MOST_TAGS):
        tagged = np.flatnonzero(np.isin(kind, _TAGS))
        if not len(tagged):
            break
        whole = headers.holds(which[tagged], at[tagged], 4, BAD_LINK)
        kind[tagged] = np.where(whole, numbers_at(headers.data, at[tagged] + 2, ">u2"), 0)
        at[tagged] += 4
    headers.blame(which, np.isin(kind, _TAGS), BAD_LINK)
    headers.network_at[which] = at
    for ethertype, version in ((_IPV4, 4), (_IPV6, 6)):
        headers.version[which[kind == ethertype]] = version


def _bare(headers: Headers, which: Numbers) -> None:
    """IP without anything before it; its first half byte says which."""
    which = which[headers.holds(which, headers.start[which], 1, BAD_LINK)]
    version = numbers_at(headers.data, headers.start[which], "u1") >> 4
    headers.network_at[which] = headers.start[which]
    headers.version[which] = version
    headers.blame(which, (version != 4) & (version != 6), BAD_LINK)


def _only(version: int) -> Callable[[Headers, Numbers], None]:
    def decode(headers: Headers, which: Numbers) -> None:
        headers.network_at[which] = headers.start[which]
        headers.version[which] = version

    return decode


def _loopback(headers: Headers, which: Numbers) -> None:
    """An address family, in the byte order of whoever captured."""
    which = which[headers.holds(which, headers.start[which], 4, BAD_LINK)]
    family = numbers_at(headers.data, headers.start[which], ">u4")
    turned = numbers_at(headers.data, headers.start[which], "<u4")
    family = np.where(family > 0xFFFF, turned, family)
    headers.network_at[which] = headers.start[which] + 4
    for known, version in _FAMILIES.items():
        headers.version[which[family == known]] = version


_LINK_TYPES: dict[int, Callable[[Headers, Numbers], None]] = {
    0: _loopback,
    1: _typed(14, 12),
    12: _bare,
    14: _bare,
    101: _bare,
    108: _loopback,
    113: _typed(16, 14),
    228: _only(4),
    229: _only(6),
    276: _typed(20, 0),
}
