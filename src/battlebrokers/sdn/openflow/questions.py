"""What a switch was asked and has not answered yet. Used by the channel.

An answer counts when it was asked for, is of the kind asked for, adds up and has an end; everything else is refused.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from os_ken.ofproto import ofproto_v1_3 as of

from battlebrokers.sdn.openflow import wire
from battlebrokers.sdn.openflow.codec import read_message
from battlebrokers.sdn.openflow.lengths import adds_up

ANSWERS: Final = frozenset({wire.FEATURES_REPLY, wire.MULTIPART_REPLY, wire.BARRIER_REPLY})
_MOST_BYTES: Final = 32 << 20
"""Of one answer, in all its pieces: some 300 000 rules."""
_REPLY_TO: Final = {
    of.OFPT_FEATURES_REQUEST: wire.FEATURES_REPLY,
    of.OFPT_MULTIPART_REQUEST: wire.MULTIPART_REPLY,
    of.OFPT_BARRIER_REQUEST: wire.BARRIER_REPLY,
}

Then = Callable[[list[Any]], None]


@dataclass(slots=True)
class _Open:
    kind: int
    part: int | None
    answer: asyncio.Future[list[Any]]
    then: Then | None
    pieces: list[Any] = field(default_factory=list)
    got_bytes: int = 0


class Questions:
    """By their transaction."""

    def __init__(self) -> None:
        self._open: dict[int, _Open] = {}

    def __len__(self) -> int:
        return len(self._open)

    def asked(self, question: Any, then: Then | None = None) -> asyncio.Future[list[Any]]:
        """The answer to come. `then` is told it at once, before anything that came after it is looked at."""
        part = question.type if question.msg_type == of.OFPT_MULTIPART_REQUEST else None
        answer: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._open[question.xid] = _Open(_REPLY_TO[question.msg_type], part, answer, then)
        return answer

    def forget(self, xid: int) -> None:
        """Nobody waits for it any longer."""
        self._open.pop(xid, None)

    def answered(self, raw: bytes) -> None:
        """An answer came, or a piece of one; `ValueError` when it is none."""
        _, kind, length, xid = wire.HEADER.unpack_from(raw)
        asked = self._open.get(xid)
        # What nobody asked for is not even read: reading is what costs.
        if asked is None:
            raise ValueError(f"an answer of type {kind} to no question")
        if kind != asked.kind or (asked.part is not None and raw[8:10] != struct.pack("!H", asked.part)):
            raise ValueError(f"an answer of type {kind} to another question")
        if not adds_up(raw):
            raise ValueError(f"an answer of type {kind} whose lengths do not add up")
        asked.got_bytes += length
        if asked.got_bytes > _MOST_BYTES:
            self.refused(xid, "its answer has no end")
            raise ValueError("an answer without an end")
        read = read_message(raw)
        if asked.part is None:
            asked.pieces.append(read)
        else:
            asked.pieces.extend(read.body if isinstance(read.body, list) else [read.body])
            if read.flags & of.OFPMPF_REPLY_MORE:
                return
        del self._open[xid]
        if asked.then is not None:
            asked.then(asked.pieces)
        if not asked.answer.done():
            asked.answer.set_result(asked.pieces)

    def refused(self, xid: int, reason: str) -> bool:
        """A question was turned down; False when there was none."""
        asked = self._open.pop(xid, None)
        if asked is None:
            return False
        if not asked.answer.done():
            asked.answer.set_exception(ConnectionError(reason))
            asked.answer.exception()
        return True

    def end(self, reason: str) -> None:
        """Nothing is answered any more."""
        for xid in list(self._open):
            self.refused(xid, reason)
