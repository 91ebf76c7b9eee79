"""What is tried with a crew to find out whether a behaviour of the table of capabilities holds.

Used by `trial`, and through it by `bb brokers test` and by the contract matrix: both try the same.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable

from battlebrokers.contenders.capability_table import LARGE_BYTES
from battlebrokers.errors import BattleError
from battlebrokers.protocols.base import Subscription
from battlebrokers.run.crew import EVERYTHING, FIRST, TOPICS, Crew

QUIET_S = 0.4
"""How long nothing must happen before we believe that nothing will."""
_MARK_BYTES = 8

Try = Callable[[Crew], Awaitable[None]]


class BrokenPromiseError(BattleError):
    """What a contender's file says does not hold."""


class NotHeardError(BrokenPromiseError):
    """Somebody did not hear what was said; all else that can be wrong is no matter of luck."""


async def exchange(crew: Crew, payload: bytes, device: int = 0, clients: tuple[str, ...] = (EVERYTHING,)) -> None:
    """One message, heard by those clients, and answered if it can be."""
    token = crew.publish(device, payload)
    if not await crew.until(lambda: all(crew.has(client, payload) for client in clients)):
        ended = token in crew.ear.ended
        raise NotHeardError((crew.not_acked(token) if ended else "") or crew.why)
    if crew.qos in crew.devices[device].capabilities.acknowledges:
        await crew.until(lambda: token in crew.ear.ended)
        if wrong := crew.not_acked(token):
            raise BrokenPromiseError(wrong)


def _marked(*texts: bytes) -> list[bytes]:
    """Payloads nobody has sent before: some contenders tell a new client the last message of an earlier crew."""
    mark = os.urandom(_MARK_BYTES)
    return [mark + text for text in texts]


def _told(crew: Crew, said: list[bytes]) -> list[tuple[object, bytes]]:
    """Who heard what of these, in order."""
    mark = said[0][:_MARK_BYTES]
    return [(owner, payload) for owner, payload in crew.ear.heard if payload[:_MARK_BYTES] == mark]


async def _heard(crew: Crew) -> None:
    await exchange(crew, _marked(b'{"temperature": 21.5}')[0])


async def _exactly_once(crew: Crew) -> None:
    said = _marked(b"", b"a" * 300, b"\x00\xff\r\n", b'"}')
    for payload in said:
        # One after the other: an observer over CoAP may be told the latest only.
        await exchange(crew, payload, clients=(EVERYTHING, FIRST))
    await asyncio.sleep(QUIET_S)
    for client in (EVERYTHING, FIRST):
        came = [payload for owner, payload in _told(crew, said) if owner == client]
        if came != said:
            raise BrokenPromiseError(f"of {len(said)} messages {len(came)} came, or not in order")


async def _topics(crew: Crew) -> None:
    one, two = said = _marked(b"one", b"two")
    await exchange(crew, one, 0, (EVERYTHING, FIRST))
    await exchange(crew, two, 1)
    await asyncio.sleep(QUIET_S)
    if (FIRST, two) in _told(crew, said):
        raise BrokenPromiseError("told to a client of another topic")
    if Counter(_told(crew, said)) != Counter([(EVERYTHING, one), (FIRST, one), (EVERYTHING, two)]):
        raise BrokenPromiseError("told more than once")


async def _wildcards(crew: Crew) -> None:
    # The client of everything asks for one filter only; see Linking.subscriptions.
    if not crew.clients[0].capabilities.wildcards:
        raise BrokenPromiseError("our link knows no wildcards")
    one, two = _marked(b"one", b"two")
    await exchange(crew, one, 0)
    await exchange(crew, two, 1)


async def _retain(crew: Crew) -> None:
    (payload,) = _marked(b"kept")
    crew.publish(0, payload, retain=True)
    if not await crew.until(lambda: crew.has(FIRST, payload)):
        raise NotHeardError(crew.why)
    times = Counter(crew.ear.heard)[FIRST, payload]
    await crew.clients[1].subscribe([Subscription(TOPICS[0], 0)])
    if not await crew.until(lambda: Counter(crew.ear.heard)[FIRST, payload] > times):
        raise BrokenPromiseError("it was not kept")
    crew.publish(0, b"", retain=True)
    if not await crew.until(lambda: crew.has(FIRST, b"")):
        raise NotHeardError(crew.why)


TRIED: dict[str, Try] = {
    "publish": _heard,
    "subscribe": _heard,
    "exactly once": _exactly_once,
    "one byte": lambda crew: exchange(crew, b"\x00"),
    "binary": lambda crew: exchange(crew, _marked(bytes(range(256)))[0]),
    "64 KiB": lambda crew: exchange(crew, os.urandom(LARGE_BYTES)),
    "topics": _topics,
    "wildcards": _wildcards,
    "retain": _retain,
}
"""Behaviour → what is tried; each QoS and each bridge is tried with a plain publish."""
