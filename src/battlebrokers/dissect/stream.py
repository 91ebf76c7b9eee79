"""One conversation from its packets to messages and exchanges: assembles, recognises, feeds, resolves times.

Driven by the pipeline, a window of packets at a time; memory is bounded by the window and what a message may hold back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from battlebrokers.dissect.assembly import Assembly, Pieces
from battlebrokers.dissect.registry import Dissector, Transport, dissectors, recognised
from battlebrokers.dissect.segments import ACK, SYN, Segments
from battlebrokers.dissect.talk import CLIENT, SERVER, WHOLE_MESSAGE_BYTES, Answered, Dissection, Found, Talk

Reader = Callable[[int, int], bytes]
"""Reads (place, size) from the capture."""

_UNREAD_BYTES = 2 * WHOLE_MESSAGE_BYTES
"""What a dissector leaves unread beyond this it does not understand."""
_REST_NS = 200_000_000
"""After so long a silence whoever asks is answered next."""


@dataclass(slots=True)
class Told:
    """One message with its times; the row behind an exchange."""

    found: Found
    first_ns: int
    last_ns: int


@dataclass(slots=True)
class Exchange:
    """One request and its answer, or its absence."""

    request_number: int
    request: Told
    response_number: int
    response: Told | None
    response_bytes: int
    answered_ns: int
    rule: str
    certain: bool


class Stream:
    """Push windows, then take `messages` and `exchanges` away; the last window ends it."""

    def __init__(
        self, transport: Transport, client_port: int, server_port: int, read: Reader, hints: object = None
    ) -> None:
        self.protocol: str | None = None
        self.recognised_by: str | None = None
        self.messages: list[tuple[int, Told]] = []
        self.exchanges: list[Exchange] = []
        self.undecoded_bytes = 0
        self._transport: Transport = transport
        self._ports = (server_port, client_port)
        self._read = read
        self._hints = hints
        self._talk: Talk | None = None
        self._dissection: Dissection | None = None
        self._sides = (_Side(), _Side())
        self._told: dict[int, Told] = {}
        self._last_ns = 0

    @property
    def malformed(self) -> int:
        """Messages that broke the rules so far."""
        return self._talk.malformed if self._talk else 0

    @property
    def gap_bytes(self) -> int:
        """Bytes that were sent but not captured."""
        return sum(side.assembly.gap_bytes for side in self._sides)

    @property
    def delivered_bytes(self) -> tuple[int, int]:
        """Payload of client and server that was assembled."""
        client, server = (side.assembly.next - side.assembly.gap_bytes for side in self._sides)
        return client, server

    def push(self, window: Segments, *, last: bool) -> None:
        """The next packets; with `last` there are no more."""
        if len(window):
            if self._talk is not None and int(window.time_ns[0]) - self._last_ns >= _REST_NS:
                self._rest()
            self._last_ns = int(window.time_ns[-1])
        if self._transport == "udp":
            self._datagrams(window)
        else:
            self._segments(window, last=last)
        if last and self._talk is not None:
            self._finish(self._talk)
        self._settle(last=last)

    def _finish(self, talk: Talk) -> None:
        """Show what is left once more: what lasts until the end is whole now."""
        talk.ended = True
        talk.need = [0, 0]
        if self._transport == "tcp":
            for sender in (CLIENT, SERVER):
                self._advance(sender)
        for side in self._sides:
            self.undecoded_bytes += len(side.unread)

    def _rest(self) -> None:
        if self._talk is not None and not any(side.unread for side in self._sides):
            self._talk.rested()

    def _segments(self, window: Segments, *, last: bool) -> None:
        for sender in (CLIENT, SERVER):
            self._sides[sender].assemble(window, sender, last=last)
        if self._dissection is None:
            self._recognise()
        # The client first: a request must be known before its answer is.
        for sender in (CLIENT, SERVER, CLIENT):
            self._advance(sender)

    def _recognise(self) -> None:
        fronts = [side.front(self._read) for side in self._sides]
        if not any(fronts):
            return
        found = recognised(self._transport, *self._ports, *fronts)
        if found is not None:
            dissector, self.recognised_by = found
            self._open(dissector)

    def _open(self, dissector: Dissector) -> None:
        if self._talk is None:
            self._talk = Talk(dissector.name, hints=self._hints)
        self._talk.protocol = self.protocol = dissector.name
        self._talk.next = None
        self._talk.need = [0, 0]
        self._dissection = dissector.open(self._talk)

    def _advance(self, sender: int) -> None:
        """Feed a side everything that is there, run by run between gaps."""
        side = self._sides[sender]
        if self._dissection is None or self._talk is None:
            self.undecoded_bytes += side.drop()
            return
        if side.unread and not side.pending:
            self._feed(sender)
        for run in side.runs(self._read):
            if isinstance(run, int):
                self._gap(sender, run)
            else:
                self._append(sender, *run)
                self._feed(sender)

    def _gap(self, sender: int, missing: int) -> None:
        talk, dissection, side = self._talk, self._dissection, self._sides[sender]
        if talk is None or dissection is None:
            return
        skipped = min(talk.skipping[sender], missing)
        talk.skipping[sender] -= skipped
        if skipped == missing:
            side.at += missing
            return
        self.undecoded_bytes += len(side.unread)
        side.at += len(side.unread) + missing
        side.unread = b""
        side.lost = True
        talk.need[sender] = talk.skipping[sender] = 0
        dissection.gap(sender, missing)
        talk.doubt()

    def _append(self, sender: int, data: bytes, starts: npt.NDArray[np.int64]) -> None:
        """More bytes of a side; `starts` are the places in it where packets begin."""
        talk, side = self._talk, self._sides[sender]
        assert talk is not None
        skipped = min(talk.skipping[sender], len(data))
        if skipped:
            talk.skipping[sender] -= skipped
            side.at += skipped
            data = data[skipped:]
        if side.lost and data:
            used = self._resync(sender, data, starts - skipped)
            self.undecoded_bytes += used
            side.at += used
            data = data[used:]
        side.unread = side.unread + data if side.unread else data

    def _resync(self, sender: int, data: bytes, starts: npt.NDArray[np.int64]) -> int:
        assert self._dissection is not None
        for start in starts[starts >= 0].tolist():
            found = self._dissection.resync(sender, data[start : start + 4096])
            if found >= 0:
                self._sides[sender].lost = False
                return int(start + found)
        return len(data)

    def _feed(self, sender: int) -> None:
        talk, side = self._talk, self._sides[sender]
        assert talk is not None
        while self._dissection is not None and side.unread and len(side.unread) >= talk.need[sender]:
            size = len(side.unread)
            used = max(0, min(self._dissection.feed(sender, side.unread, side.at), size))
            skipped = min(talk.skipping[sender], size - used)
            talk.skipping[sender] -= skipped
            side.at += used + skipped
            side.unread = side.unread[used + skipped :]
            if talk.next is not None:
                self._switch(talk.next)
                # What the client held back until the answer was there comes before what the server said after it.
                if sender == SERVER and self._dissection is not None:
                    self._feed(CLIENT)
                continue
            if not used + skipped or not skipped:
                break
        if len(side.unread) > _UNREAD_BYTES and len(side.unread) >= talk.need[sender]:
            talk.broken(len(side.unread))
            side.at += len(side.unread)
            side.unread = b""
            side.lost = True

    def _switch(self, protocol: str) -> None:
        following = dissectors().get(protocol)
        if not protocol:
            client, server = (side.unread[:512] for side in self._sides)
            found = recognised(self._transport, *self._ports, client, server)
            following = found[0] if found is not None and found[1] == "content" else None
        if following is None:
            self._dissection = None
            self.protocol = protocol
            return
        self.recognised_by = "upgrade"
        self._open(following)

    def _datagrams(self, window: Segments) -> None:
        if not len(window):
            return
        contents = [
            self._read(place, size) for place, size in zip(window.place.tolist(), window.captured.tolist(), strict=True)
        ]
        senders = window.sender.tolist()
        if self._dissection is None:
            fronts = [next((c for c, s in zip(contents, senders, strict=True) if s == side), b"") for side in (0, 1)]
            found = recognised(self._transport, *self._ports, *fronts)
            if found is not None:
                dissector, self.recognised_by = found
                self._open(dissector)
        for content, sender, time_ns, whole in zip(
            contents, senders, window.time_ns.tolist(), window.size.tolist(), strict=True
        ):
            side = self._sides[sender]
            at = side.at
            side.note(at + whole, time_ns)
            side.at = side.assembly.next = at + whole
            if self._dissection is None or self._talk is None:
                self.undecoded_bytes += len(content)
                continue
            used = self._dissection.feed(sender, content, at)
            if used < len(content):
                self._talk.broken(len(content) - max(0, used))

    def _settle(self, *, last: bool) -> None:
        """Give the new messages their times, and make exchanges of what was answered."""
        talk = self._talk
        if talk is None:
            return
        self.undecoded_bytes += talk.undecoded_bytes
        talk.undecoded_bytes = 0
        number = talk.taken
        for told in self._timed(talk.found):
            self.messages.append((number, told))
            self._told[number] = told
            number += 1
        talk.taken, talk.found = number, []
        talk.reconcile(lambda request, response: self._told[request].first_ns <= self._told[response].last_ns)
        if last:
            talk.end()
        for answered in talk.answered:
            self._exchange(answered)
        talk.answered = []
        waiting = {number for ask in talk.open_asks() for number in (ask.number, ask.first)}
        self._told = {number: self._told[number] for number in waiting if number in self._told}
        for side in self._sides:
            side.forget()

    def _timed(self, found: list[Found]) -> list[Told]:
        if not found:
            return []
        sender = np.array([row.sender for row in found])
        start = np.array([row.start for row in found], dtype=np.int64)
        end = np.array([row.end for row in found], dtype=np.int64)
        first_ns, last_ns = np.zeros(len(found), dtype=np.int64), np.zeros(len(found), dtype=np.int64)
        for side in (CLIENT, SERVER):
            mine = sender == side
            first_ns[mine] = self._sides[side].times(start[mine])
            last_ns[mine] = self._sides[side].times(np.maximum(start[mine], end[mine] - 1))
        return [Told(*row) for row in zip(found, first_ns.tolist(), last_ns.tolist(), strict=True)]

    def _exchange(self, answered: Answered) -> None:
        ask = answered.ask
        request = self._told.get(ask.number)
        if request is None:
            return
        response = self._told.get(answered.response)
        first = self._told.get(ask.first, response)
        self.exchanges.append(
            Exchange(
                ask.number, request, answered.response, response,
                ask.part_bytes + (response.found.end - response.found.start if response is not None else 0),
                first.first_ns if first is not None and response is not None else 0,
                "hint" if ask.hinted else "order" if ask.ordered else "id", ask.certain,
            )
        )  # fmt: skip


class _Side:
    """What one side said: assembled, not yet read, and when each byte of it was there."""

    def __init__(self) -> None:
        self.assembly = Assembly()
        self.unread = b""
        self.at = 0
        """Offset at which `unread` begins."""
        self.lost = False
        """After a gap: nobody knows yet where a message begins."""
        self.pending: list[Pieces] = []
        self._ends: list[npt.NDArray[np.int64]] = []
        self._times: list[npt.NDArray[np.int64]] = []
        self._acked: int | None = None

    def assemble(self, window: Segments, sender: int, *, last: bool) -> None:
        """Take this side's segments out of the window."""
        mine = window.sender == sender
        opening = np.flatnonzero(mine & ((window.flags & SYN) != 0))
        if len(opening) and self.assembly.base is None:
            self.assembly.begin(int(window.seq[opening[0]]) + 1)
        theirs = np.flatnonzero(~mine & ((window.flags & ACK) != 0))
        if len(theirs):
            acks = window.ack[theirs]
            # The latest is the highest unless the network reordered it, and then nothing is decided by it.
            self._acked = int(acks[-1])
        speaks = mine & (window.captured > 0) | mine & (window.size > 0)
        seq = window.seq[speaks] + ((window.flags[speaks] & SYN) != 0)
        pieces = self.assembly.push(
            seq, window.captured[speaks], window.place[speaks], window.time_ns[speaks], self._acked, last=last
        )
        if len(pieces):
            self.pending.append(pieces)
            self._ends.append(pieces.offset + pieces.size)
            self._times.append(pieces.time_ns)

    def front(self, read: Reader) -> bytes:
        """The first bytes there are, for recognising the protocol."""
        parts: list[bytes] = []
        size = 0
        for pieces in self.pending:
            for piece_size, place in zip(pieces.size.tolist(), pieces.place.tolist(), strict=True):
                if place < 0 or size >= 512:
                    return b"".join(parts)
                parts.append(read(place, min(piece_size, 512)))
                size += piece_size
        return b"".join(parts)

    def drop(self) -> int:
        """Nobody will read it: forget it; returns how many bytes were there."""
        dropped = len(self.unread)
        for pieces in self.pending:
            dropped += int(pieces.size[pieces.place >= 0].sum())
            self.at = int(pieces.offset[-1] + pieces.size[-1])
        self.pending, self.unread = [], b""
        return dropped

    def runs(self, read: Reader) -> list[int | tuple[bytes, npt.NDArray[np.int64]]]:
        """What is pending as contiguous bytes (with the places where packets begin in them) and gaps between them."""
        runs: list[int | tuple[bytes, npt.NDArray[np.int64]]] = []
        for pieces in self.pending:
            gaps = np.flatnonzero(pieces.place < 0).tolist()
            start = 0
            for gap in [*gaps, len(pieces)]:
                if gap > start:
                    places, sizes = pieces.place[start:gap].tolist(), pieces.size[start:gap].tolist()
                    data = b"".join([read(place, size) for place, size in zip(places, sizes, strict=True)])
                    runs.append((data, pieces.offset[start:gap] - pieces.offset[start]))
                if gap < len(pieces):
                    runs.append(int(pieces.size[gap]))
                start = gap + 1
        self.pending = []
        return runs

    def note(self, end: int, time_ns: int) -> None:
        """Bytes up to `end` were there at that time."""
        self._ends.append(np.array([end], dtype=np.int64))
        self._times.append(np.array([time_ns], dtype=np.int64))

    def times(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """When the bytes at these offsets were there."""
        if not self._ends or not len(offsets):
            return np.zeros(len(offsets), dtype=np.int64)
        if len(self._ends) > 1:
            self._ends, self._times = [np.concatenate(self._ends)], [np.concatenate(self._times)]
        places = np.searchsorted(self._ends[0], offsets, side="right")
        # The end of a message of which the rest is still to come is not known yet: the last byte there is stands in.
        return self._times[0][np.minimum(places, len(self._times[0]) - 1)]

    def forget(self) -> None:
        """Times of bytes that have been read are not asked for any more."""
        if not self._ends:
            return
        ends = np.concatenate(self._ends)
        keep = int(np.searchsorted(ends, self.at, side="right"))
        self._ends, self._times = [ends[keep:]], [np.concatenate(self._times)[keep:]]
