"""Which protocols there are, and how to make a link of one.

A protocol is a module `protocols/<name>.py` or `protocols/<name>/link.py` that defines `LINK`, a `Link` class made
from (endpoint, options, listener), and perhaps `SCRIPTED`, the one for links with a contender's dialect. Putting the
file there is all it takes; nothing is imported before it is asked for.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from functools import cache

from battlebrokers import protocols
from battlebrokers.errors import InputError
from battlebrokers.protocols.base import Capabilities, Endpoint, Link, LinkOptions, Listener

_NOT_PROTOCOLS = frozenset(
    {
        "backoff",
        "base",
        "datagrams",
        "frames",
        "hearing",
        "phrase",
        "registry",
        "script",
        "shutdown",
        "talk",
        "tls",
        "topic_rows",
        "upgrade",
        "wheel",
        "wrapping",
    }
)


def protocol_names() -> list[str]:
    """Every protocol this installation speaks."""
    found = (module.name for module in pkgutil.iter_modules(protocols.__path__))
    return sorted(name for name in found if name not in _NOT_PROTOCOLS)


@cache
def link_class(protocol: str, *, scripted: bool = False) -> type[Link]:
    """The class of a protocol's links; `scripted` are those that speak a contender's dialect."""
    names = protocol_names()
    if protocol not in names:
        near = difflib.get_close_matches(protocol, names, 1)
        hint = f"Did you mean {near[0]}?" if near else f"Known protocols: {', '.join(names)}."
        raise InputError(f"there is no protocol {protocol!r}", hint=hint)
    module = importlib.import_module(f"{protocols.__name__}.{protocol}")
    if not hasattr(module, "LINK"):
        module = importlib.import_module(f"{module.__name__}.link")
    found: type[Link] = getattr(module, "SCRIPTED", module.LINK) if scripted else module.LINK
    return found


def capabilities_of(protocol: str) -> Capabilities:
    """What links of a protocol can honour."""
    return link_class(protocol).capabilities


def make_link(protocol: str, endpoint: Endpoint, options: LinkOptions, listener: Listener) -> Link:
    """A link for one device or client, not opened yet."""
    maker = link_class(protocol, scripted=options.script is not None)
    if endpoint.transport not in maker.capabilities.transports:
        offered = ", ".join(sorted(maker.capabilities.transports))
        raise InputError(f"{protocol} does not run over {endpoint.transport!r}", hint=f"It runs over {offered}.")
    link: Link = maker(endpoint, options, listener)  # type: ignore[call-arg]
    return link
