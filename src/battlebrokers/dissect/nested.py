"""A protocol inside another one's messages (MQTT in WebSocket): the inner dissector sees one plain stream per side.

Used by dissectors that carry others. Positions are translated back, so that times and sizes are those on the wire.
"""

from __future__ import annotations

from bisect import bisect_right

from battlebrokers.dissect.registry import Dissector, dissectors
from battlebrokers.dissect.talk import Dissection, Found, Talk
from battlebrokers.dissect.unread import Unread

_KEPT_BYTES = 1 << 20
"""Unread inner bytes beyond this are given up: the inner dissector does not understand them."""
_SWITCHES = 8
"""So often the inner protocol may change."""


class _InnerTalk(Talk):
    """Tells the outer talk, in its positions."""

    def __init__(self, outer: Talk, protocol: str) -> None:
        super().__init__(protocol, hints=outer.hints)
        self._outer = outer
        self.places: tuple[list[int], list[int]] = ([], [])
        """Per side: inner offset at which each outer piece begins."""
        self.pieces: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
        """Per side: where each piece lies outside."""

    def add(
        self, sender: int, start: int, end: int, kind: str, name: str = "", correlation: str = "", *,
        failed: bool = False, payload: bytes = b"", payload_bytes: int = -1,
    ) -> int:  # fmt: skip
        """The same, told outside."""
        outer, own = self._outer, self._outer.protocol
        outer.protocol = self.protocol
        number = outer.add(
            sender, self._outside(sender, start)[0], self._outside(sender, max(start, end - 1))[1], kind, name,
            correlation, failed=failed, payload=payload, payload_bytes=payload_bytes,
        )  # fmt: skip
        outer.protocol = own
        return number

    def detail(self, number: int, reason: int | None, properties: str = "") -> None:
        """The same, told outside."""
        self._outer.detail(number, reason, properties)

    def message(self, number: int) -> Found | None:
        """The same, asked outside; its positions are those outside."""
        return self._outer.message(number)

    def extend(self, number: int, end: int, payload_bytes: int) -> None:
        """The same, told outside."""
        message = self._outer.message(number)
        if message is not None:
            self._outer.extend(number, self._outside(message.sender, end - 1)[1], payload_bytes)

    def fail(self, number: int) -> None:
        """The same, told outside."""
        self._outer.fail(number)

    def ask(self, key: object, number: int, *, ordered: bool = False, hinted: bool = False) -> None:
        """The same, told outside, under a key of our own."""
        self._outer.ask((self.protocol, key), number, ordered=ordered, hinted=hinted)

    def answer(self, key: object, number: int, *, final: bool = True, early: bool = False) -> bool:
        """The same, told outside."""
        return self._outer.answer((self.protocol, key), number, final=final, early=early)

    def waiting(self, key: object) -> int:
        """The same, asked outside."""
        return self._outer.waiting((self.protocol, key))

    def broken(self, undecoded_bytes: int = 0) -> None:
        """The same, told outside."""
        self._outer.broken(undecoded_bytes)

    def undecoded(self, count: int) -> None:
        """The same, told outside."""
        self._outer.undecoded(count)

    def _outside(self, sender: int, offset: int) -> tuple[int, int]:
        place = max(0, bisect_right(self.places[sender], offset) - 1)
        return self.pieces[sender][place]


class Nested:
    """The inner conversation."""

    def __init__(self, outer: Talk, dissector: Dissector) -> None:
        self._talk = _InnerTalk(outer, dissector.name)
        self._dissection: Dissection | None = dissector.open(self._talk)
        self._switches = 0
        self._unread = (Unread(), Unread())
        self._at = [0, 0]
        self._lost = [False, False]

    def feed(self, sender: int, payload: bytes, outer_start: int, outer_end: int) -> None:
        """The next piece of a side's inner stream, and where it lies outside."""
        talk = self._talk
        talk.places[sender].append(self._at[sender] + self._unread[sender].size)
        talk.pieces[sender].append((outer_start, outer_end))
        skipped = min(talk.skipping[sender], len(payload))
        if skipped:
            talk.skipping[sender] -= skipped
            self._at[sender] += skipped
            payload = payload[skipped:]
        if self._lost[sender] and self._dissection is not None:
            found = self._dissection.resync(sender, payload)
            self._lost[sender] = found < 0
            passed = len(payload) if found < 0 else min(found, len(payload))
            talk.undecoded(passed)
            self._at[sender] += passed
            payload = payload[passed:]
        self._unread[sender].append(payload)
        self._read(sender)
        # What the other side had to wait for may have been said now.
        if self._unread[1 - sender].size:
            self._read(1 - sender)

    def end(self) -> None:
        """Nothing more will come: what waited for the end is whole now."""
        self._talk.ended = True
        self._talk.need = [0, 0]
        for sender, unread in enumerate(self._unread):
            if unread.size:
                self._read(sender)

    def gap(self, sender: int, missing_bytes: int, *, lost: bool = False) -> None:
        """Inner bytes are missing; with `lost` the next piece may begin in the middle of a message."""
        self._lost[sender] = lost
        given_up = self._unread[sender].clear()
        self._talk.undecoded(given_up)
        self._at[sender] += given_up
        self._talk.skipping[sender] = self._talk.need[sender] = 0
        if self._dissection is not None:
            self._dissection.gap(sender, missing_bytes)

    def _read(self, sender: int) -> None:
        talk = self._talk
        unread = self._unread[sender]
        while unread.worth_showing(min(talk.need[sender], _KEPT_BYTES)):
            data = unread.all()
            if self._dissection is None:
                self._at[sender] += unread.clear()
                talk.undecoded(len(data))
                break
            used = max(0, min(self._dissection.feed(sender, data, self._at[sender]), len(data)))
            skipped = max(0, min(talk.skipping[sender], len(data) - used))
            talk.skipping[sender] -= skipped
            self._at[sender] += used + skipped
            unread.remove(used + skipped)
            if talk.next is not None:
                self._switch(talk.next)
            elif not skipped:
                break
        if unread.size > _KEPT_BYTES:
            given_up = unread.clear()
            talk.broken(given_up)
            self._at[sender] += given_up
        self._forget(sender)

    def _switch(self, protocol: str) -> None:
        """Another protocol is spoken inside from here on; one that nobody knows is counted."""
        talk, following = self._talk, dissectors().get(protocol)
        talk.next, talk.need = None, [0, 0]
        self._switches += 1
        if following is None or self._switches > _SWITCHES:
            self._dissection = None
            return
        talk.protocol = following.name
        self._dissection = following.open(talk)

    def _forget(self, sender: int) -> None:
        # Pieces that lie wholly before what is still unread are not asked for any more.
        talk = self._talk
        keep = max(0, bisect_right(talk.places[sender], self._at[sender]) - 1)
        if keep > 64:
            del talk.places[sender][:keep]
            del talk.pieces[sender][:keep]
