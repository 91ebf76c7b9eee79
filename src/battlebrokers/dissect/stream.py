"""One conversation from its packets to messages and exchanges: assembles, recognises, feeds, resolves times.

Driven by the pipeline, a window of packets at a time; how the packets are cut into windows changes nothing. Memory is
bounded by the window and by what a message may hold back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from battlebrokers.dissect.many_runs import ManyRuns
from battlebrokers.dissect.registry import Dissector, Transport, dissectors, recognised
from battlebrokers.dissect.runs import Reader, runs
from battlebrokers.dissect.segments import Segments
from battlebrokers.dissect.side import Side
from battlebrokers.dissect.talk import CLIENT, SERVER, WHOLE_MESSAGE_BYTES, Dissection, Talk
from battlebrokers.dissect.transcript import Messages, Transcript

__all__ = ["Reader", "Stream"]

_UNREAD_BYTES = 2 * WHOLE_MESSAGE_BYTES
"""What a dissector leaves unread beyond this it does not understand."""
_FRONT_BYTES = 512
_ENOUGH_BYTES = 16 * 1024
_ENOUGH_DATAGRAMS = 16
"""When one side has said so much, its protocol must be told from it, whatever the other one said."""
_RESYNC_BYTES = 4096
_VAIN_SWITCHES = 8


class Stream:
    """Push windows, `take` what was told in them; the last window ends it."""

    def __init__(
        self, transport: Transport, client_port: int, server_port: int, read: Reader, hints: object = None
    ) -> None:
        self.protocol: str | None = None
        self.recognised_by: str | None = None
        self.undecoded_bytes = 0
        self._transport: Transport = transport
        self._ports = (server_port, client_port)
        self._read = read
        self._hints = hints
        self._talk: Talk | None = None
        self._seen_ns = 0
        self._dissection: Dissection | None = None
        self._many: ManyRuns | None = None
        self._sides = (Side(), Side())
        self._packets = 0
        self._last_ns = 0
        self._decided = False
        """Whether it is settled which protocol is spoken, or that nobody knows."""
        self._held: list[tuple[int, bytes, list[int]]] = []
        """Who said what until then, and the sizes of its packets."""
        self._heard = [0, 0]
        """How much of it each side said."""
        self._vain_switches = 0
        self._transcript = Transcript()

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
            self._seen_ns = int(window.time_ns[0])
            if self._talk is not None:
                self._talk.seen_ns = self._seen_ns
        if self._transport == "udp":
            self._hear_datagrams(window)
        else:
            self._hear_segments(window, last=last)
        if last:
            while not self._decided:  # an upgrade may leave it open again
                self._decide()
            if self._talk is not None:
                self._finish(self._talk)
        self._settle(last=last)

    def take(self) -> tuple[list[Messages], list[Any]]:
        """Messages and exchanges (see `transcript`) that were told since the last time."""
        told = self._transcript
        messages, exchanges, told.messages, told.exchanges = told.messages, told.exchanges, [], []
        return messages, exchanges

    def _hear_segments(self, window: Segments, *, last: bool) -> None:
        client, server = (
            side.assemble(window, sender, self._packets, last=last) for sender, side in enumerate(self._sides)
        )
        self._packets += len(window)
        said = runs(client, server, self._last_ns)
        parts: list[bytes] = []
        number = one_by_one_to = 0
        while number < len(said):
            many = self._many if number >= one_by_one_to else None
            if many is not None and many.can_follow(said, number):
                parts = parts or said.read(self._read)
                number, one_by_one_to = many.hear(said, number, parts)
                continue
            sender, start, end, size, gap, rested = said.run(number)
            number += 1
            if self._decided and self._dissection is None:
                if not gap:
                    self.undecoded_bytes += size
                continue
            if rested:
                self._rest()
            talk = self._talk
            if gap or (self._decided and talk is not None and talk.skipping[sender] >= size):
                self._miss(sender, size)
                continue
            parts = parts or said.read(self._read)
            data = parts[start] if end - start == 1 else b"".join(parts[start:end])
            if self._decided:
                self._hear(sender, data, said.sizes[start:end])
            else:
                self._hold(sender, data, said.sizes[start:end])
                if min(self._heard) >= _FRONT_BYTES or max(self._heard) >= _ENOUGH_BYTES:
                    self._decide()
        self._last_ns = max(client.time_ns[-1:].tolist() + server.time_ns[-1:].tolist(), default=self._last_ns)

    def _hear(self, sender: int, data: bytes, sizes: list[int]) -> None:
        """What a side said is read; `sizes` are those of the packets in it."""
        talk, dissection, side = self._talk, self._dissection, self._sides[sender]
        if talk is None or dissection is None:
            self.undecoded_bytes += len(data)
        elif side.unread.size or side.lost or talk.skipping[sender] or talk.need[sender] > len(data):
            self._append(sender, data, sizes)
            self._converse(sender)
        else:
            # Mostly nothing waits from before, and nothing is left.
            try:
                used = dissection.feed(sender, data, side.at)
            except Exception:  # noqa: BLE001 - as below
                used = self._failed(dissection, talk, sender, len(data))
            if used == len(data) and talk.next is None:
                side.at += used
                if self._sides[1 - sender].unread.size:
                    self._converse(1 - sender)
            else:
                side.unread.append(data)
                self._converse(sender, max(0, min(used, len(data))))

    def _hold(self, sender: int, data: bytes, sizes: list[int]) -> None:
        self._held.append((sender, data, sizes))
        self._heard[sender] += len(data)

    def _hear_datagrams(self, window: Segments) -> None:
        at = np.empty(len(window), dtype=np.int64)
        for sender, side in enumerate(self._sides):
            mine = np.flatnonzero(window.sender == sender)
            at[mine] = side.hear(window.size[mine], window.time_ns[mine])
        known = self._dissection is not None or not self._decided
        contents = self._read(window.place, window.captured) if known else None
        rows = zip(window.sender.tolist(), window.size.tolist(), at.tolist(), strict=True)
        for row, (sender, whole, start) in enumerate(rows):
            if contents is None:
                self.undecoded_bytes += int(window.captured[row])
            elif self._decided:
                self._read_datagram(sender, contents[row], start)
            else:
                self._hold(sender, contents[row], [whole])
                if len({who for who, _, _ in self._held}) == 2 or len(self._held) >= _ENOUGH_DATAGRAMS:
                    self._decide()

    def _read_datagram(self, sender: int, content: bytes, at: int) -> None:
        self._sides[sender].at = at
        if self._dissection is None or self._talk is None:
            self.undecoded_bytes += len(content)
            return
        used = self._shown(self._dissection, self._talk, sender, content, at)
        if used < len(content):
            self._talk.broken(len(content) - used)

    def _decide(self) -> None:
        """Which protocol it is, and read what was held until now."""
        held, self._held, self._heard, self._decided = self._held, [], [0, 0], True
        udp = self._transport == "udp"
        fronts = [
            b"".join([part for who, part, _ in held if who == side][: 1 if udp else None])[:_FRONT_BYTES]
            for side in (CLIENT, SERVER)
        ]
        found = recognised(self._transport, *self._ports, *fronts) if any(fronts) else None
        if self.recognised_by is not None and found is not None and found[1] == "port":
            found = None  # after an upgrade the port says nothing
        if found is None:
            self.undecoded_bytes += sum(len(part) for _, part, _ in held)
            return
        dissector, how = found
        self._open(dissector, "upgrade" if self.recognised_by is not None else how)
        self._replay(held, lost=how == "port" and not udp)

    def _replay(self, held: list[tuple[int, bytes, list[int]]], *, lost: bool) -> None:
        """Read what was held; with `lost` it began in the middle unless a SYN was seen."""
        if self._transport == "udp":
            at = [0, 0]
            for sender, content, sizes in held:
                self._read_datagram(sender, content, at[sender])
                at[sender] += sizes[0]
            return
        for side in self._sides:
            if lost and not side.opened and self._talk is not None:
                side.lost = True
                self._talk.doubt()
        for number, (sender, data, sizes) in enumerate(held):
            if not self._decided:
                for rest in held[number:]:
                    self._hold(*rest)
                return
            self._hear(sender, data, sizes)

    def _open(self, dissector: Dissector, how: str) -> None:
        if self._talk is None:
            self._talk = Talk(dissector.name, hints=self._hints)
            self._talk.before = self._was_there
            self._talk.seen_ns = self._seen_ns
        self._talk.protocol = self.protocol = dissector.name
        self.recognised_by = how
        self._talk.need = [0, 0]
        self._dissection = dissector.open(self._talk)
        self._many = ManyRuns(self._dissection, self._talk, self._sides)

    def _rest(self) -> None:
        talk = self._talk
        if talk is not None and talk.doubting and not any(side.unread.size for side in self._sides):
            talk.rested()

    def _miss(self, sender: int, missing: int) -> None:
        """Bytes are not in the capture, or not to be read."""
        if not self._decided:
            self._decide()
        talk, dissection, side = self._talk, self._dissection, self._sides[sender]
        if talk is None or dissection is None:
            return
        skipped = min(talk.skipping[sender], missing)
        talk.skipping[sender] -= skipped
        if skipped == missing:
            side.at += missing
        else:
            self._lose(talk, dissection, sender, missing)

    def _lose(self, talk: Talk, dissection: Dissection, sender: int, missing: int) -> None:
        """From here on nobody knows where a message of that side begins."""
        side = self._sides[sender]
        unread = side.unread.clear()
        self.undecoded_bytes += unread
        side.at += unread + missing
        side.lost = True
        talk.need[sender] = talk.skipping[sender] = 0
        dissection.gap(sender, missing)
        talk.doubt()

    def _append(self, sender: int, data: bytes, sizes: list[int]) -> None:
        """More bytes of a side; `sizes` are those of the packets in it."""
        talk, side = self._talk, self._sides[sender]
        assert talk is not None
        skipped = min(talk.skipping[sender], len(data))
        if skipped:
            talk.skipping[sender] -= skipped
            side.at += skipped
        used = skipped
        if side.lost:
            used = self._resync(sender, data, sizes, skipped)
            self.undecoded_bytes += used - skipped
            side.at += used - skipped
        side.unread.append(data[used:] if used else data)

    def _resync(self, sender: int, data: bytes, sizes: list[int], at_least: int) -> int:
        assert self._dissection is not None
        start = 0
        for size in sizes:
            if start >= at_least:
                found = self._dissection.resync(sender, data[start : start + min(size, _RESYNC_BYTES)])
                if 0 <= found <= len(data) - start:
                    self._sides[sender].lost = False
                    return start + found
            start += size
        return len(data)

    def _converse(self, sender: int, used: int = -1) -> None:
        """Let a side be read; what the other one had to wait for may have been said now, and so on.

        With `used` its bytes were shown already.
        """
        while self._feed(sender, used):
            sender, used = 1 - sender, -1
            if not self._sides[sender].unread.size:
                return

    def _feed(self, sender: int, used: int = -1) -> bool:
        """Show a side's bytes, unless so many of them were used already; whether any were."""
        talk, side = self._talk, self._sides[sender]
        assert talk is not None
        progress = False
        while self._dissection is not None and (
            used >= 0 or side.unread.worth_showing(min(talk.need[sender], _UNREAD_BYTES))
        ):
            data = side.unread.all()
            if used < 0:
                used = self._shown(self._dissection, talk, sender, data, side.at)
            skipped = 0
            if talk.skipping[sender]:
                skipped = min(talk.skipping[sender], len(data) - used)
                talk.skipping[sender] -= skipped
            side.at += used + skipped
            side.unread.remove(used + skipped)
            progress |= used + skipped > 0
            vain, used = used + skipped == 0, -1
            if talk.next is not None:
                protocol, talk.next = talk.next, None
                self._vain_switches = self._vain_switches + 1 if vain else 0
                self._switch(protocol)
                # What the client held back until the answer was there comes before what the server said after it.
                if sender == SERVER and self._decided and self._dissection is not None:
                    self._feed(CLIENT)
            elif not skipped:
                break
        if side.unread.size > _UNREAD_BYTES and self._dissection is not None:
            talk.malformed += 1
            self._lose(talk, self._dissection, sender, 0)
        return progress

    def _shown(self, dissection: Dissection, talk: Talk, sender: int, data: bytes, at: int) -> int:
        """How many bytes a dissector used."""
        try:
            used = dissection.feed(sender, data, at)
        except Exception:  # noqa: BLE001 - dissectors may be anybody's: one that fails costs its bytes, not the capture
            return self._failed(dissection, talk, sender, len(data))
        return max(0, min(used, len(data)))

    @staticmethod
    def _failed(dissection: Dissection, talk: Talk, sender: int, size: int) -> int:
        talk.broken(size)
        dissection.gap(sender, 0)
        return size

    def _switch(self, protocol: str) -> None:
        """Another protocol is spoken from here on."""
        following = dissectors().get(protocol)
        if following is not None and self._vain_switches < _VAIN_SWITCHES:
            self._open(following, "upgrade")
            return
        self._dissection = self._many = None
        unread = [(sender, side.unread.all()) for sender, side in enumerate(self._sides) if side.unread.size]
        for side in self._sides:
            side.unread.clear()
        if protocol or self._vain_switches >= _VAIN_SWITCHES:
            self.protocol = protocol or self.protocol
            self.undecoded_bytes += sum(len(data) for _, data in unread)
        else:
            self.protocol = None
            self._decided = False
            for sender, data in unread:
                self._hold(sender, data, [len(data)])

    def _finish(self, talk: Talk) -> None:
        """Show what is left once more: what lasts until the end is whole now."""
        talk.ended = True
        talk.need = [0, 0]
        for sender, side in enumerate(self._sides):
            if self._transport == "tcp" and self._dissection is not None:
                self._feed(sender)
            self.undecoded_bytes += side.unread.clear()

    def _settle(self, *, last: bool) -> None:
        """Give the new messages their times, and make exchanges of what was answered."""
        talk = self._talk
        if talk is None:
            return
        self.undecoded_bytes += talk.undecoded_bytes
        talk.undecoded_bytes = 0
        self._transcript.settle(talk, self._sides, last=last)
        for side in self._sides:
            side.forget()

    def _was_there(self, sender: int, offset: int, other: int, other_offset: int) -> bool:
        """Whether one byte was there when another one was."""
        return self._sides[sender].time(offset) <= self._sides[other].time(other_offset)
