"""A transcript: what was found in one conversation, with its times, as columns. Used by the stream driver.

Messages come from the talk window by window; those that may still change wait for the next one. Exchanges follow when
both their ends are certain. Only messages somebody may still ask for are remembered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from battlebrokers.dissect.segments import Numbers
from battlebrokers.dissect.side import Side
from battlebrokers.dissect.talk import (
    END,
    FAILED,
    KIND,
    NAME,
    PROTOCOL,
    SENDER,
    START,
    WIDTH,
    Answered,
    Detail,
    Fields,
    Talk,
)

_UNFINISHED = 4096
EXCHANGE_FIELDS = (
    "protocol", "kind", "name", "sender", "request", "response", "answer", "outcome", "rule", "certain", "asked_ns",
    "answered_ns", "ended_ns", "request_bytes", "response_bytes",
)  # fmt: skip
"""What is told of an exchange, in this order; `request` and `response` are numbers of messages."""


@dataclass(frozen=True, slots=True)
class Messages:
    """Some messages: numbers as columns, and all fields of all of them one behind the other (see `Found`)."""

    fields: Fields
    number: Numbers
    sender: Numbers
    size: Numbers
    first_ns: Numbers
    last_ns: Numbers
    details: dict[int, Detail]
    """By place among these messages, of those that have some."""

    def __len__(self) -> int:
        return len(self.number)


@dataclass(slots=True)
class _Kept:
    """One message that outlives its window."""

    fields: Fields
    first_ns: int
    last_ns: int
    timed_to: int = -1
    """Up to which offset its time is known; -1: not yet."""


@dataclass(slots=True)
class _Window:
    """The messages of one window while they are looked at."""

    first: int
    fields: Fields
    sender: Numbers
    start: Numbers
    end: Numbers
    first_ns: Numbers
    last_ns: Numbers

    def kept(self, number: int) -> _Kept:
        """One of them, to outlive it."""
        row = number - self.first
        fields = self.fields[row * WIDTH : (row + 1) * WIDTH]
        return _Kept(fields, int(self.first_ns[row]), int(self.last_ns[row]))

    def told(self, rows: Numbers, details: dict[int, Detail]) -> Messages:
        """All of them but these, which are few; their details are taken out of those of the talk."""
        size = self.end - self.start
        number = np.arange(self.first, self.first + len(size))
        if not len(rows):
            return Messages(
                self.fields, number, self.sender, size, self.first_ns, self.last_ns, _taken(details, number)
            )
        fields, at = [], 0
        for row in rows.tolist():
            fields += self.fields[at * WIDTH : row * WIDTH]
            at = row + 1
        fields += self.fields[at * WIDTH :]
        columns = (number, self.sender, size, self.first_ns, self.last_ns)
        number, sender, size, first_ns, last_ns = (np.delete(column, rows) for column in columns)
        return Messages(fields, number, sender, size, first_ns, last_ns, _taken(details, number))


@dataclass(slots=True)
class Transcript:
    """Settle after each window, then take `messages` and `exchanges` away."""

    messages: list[Messages] = field(default_factory=list)
    exchanges: list[Any] = field(default_factory=list)
    """All fields of all exchanges, one behind the other."""
    _remembered: dict[int, _Kept] = field(default_factory=dict)
    """Messages by number that somebody may still ask for."""
    _unfinished: dict[int, _Kept] = field(default_factory=dict)
    """Those of which the end may still be to come."""
    _waiting: list[Answered] = field(default_factory=list)
    """Answers of which a part is still to come."""

    def settle(self, talk: Talk, sides: tuple[Side, Side], *, last: bool) -> None:
        """Give the new messages their times, and make exchanges of what was answered."""
        window = _timed(talk, sides)
        self._tell(window, sides, talk.details, last=last)
        talk.kept = {number: kept.fields for number, kept in self._unfinished.items()}
        if last:
            talk.end()
        answers, self._waiting = self._waiting + talk.answered, []
        talk.answered = []
        if unfinished := self._unfinished:
            self._waiting = [one for one in answers if one[0].number in unfinished or one[1] in unfinished]
            if self._waiting:
                answers = [one for one in answers if not (one[0].number in unfinished or one[1] in unfinished)]
        if answers:
            self._pair(answers, window)
        if not last:
            self._remember(talk, window)

    def _tell(self, window: _Window, sides: tuple[Side, Side], details: dict[int, Detail], *, last: bool) -> None:
        """Messages are told, but those that go on, or may be made longer, wait for their end."""
        older = self._unfinished
        for kept in older.values():
            start, end = kept.fields[START], kept.fields[END]
            if end != kept.timed_to:
                kept.last_ns = sides[kept.fields[SENDER]].time(max(start, end - 1))
        open_rows: Numbers = _NONE
        still: dict[int, _Kept] = {}
        if not last:
            delivered = [side.assembly.next for side in sides]
            going_on = window.end > np.where(window.sender == 0, *delivered)
            for who in (0, 1):
                own = [number for number, kept in older.items() if kept.fields[SENDER] == who]
                still |= {number: older[number] for number in own if older[number].fields[END] > delivered[who]}
                latest = np.flatnonzero(window.sender == who)[-1:]
                if len(latest):
                    going_on[latest] = True
                else:
                    still |= {number: older[number] for number in own[-1:]}
            open_rows = np.flatnonzero(going_on)
            if len(open_rows) + len(still) > _UNFINISHED:
                open_rows, still = _NONE, {}
        if ended := {number: kept for number, kept in older.items() if number not in still}:
            self.messages.append(_messages(ended, details))
        if len(window.fields) > WIDTH * len(open_rows):
            self.messages.append(window.told(open_rows, details))
        self._unfinished = still | {number: window.kept(number) for number in (open_rows + window.first).tolist()}
        for kept in self._unfinished.values():
            end = kept.fields[END]
            kept.timed_to = end if end <= sides[kept.fields[SENDER]].assembly.next else -1

    def _pair(self, answers: list[Answered], window: _Window) -> None:
        fields, first, remembered = window.fields, window.first, self._remembered
        first_ns, last_ns = window.first_ns.tolist(), window.last_ns.tolist()
        count = len(last_ns)
        for ask, number in answers:
            request = ask.number
            row = request - first
            if 0 <= row < count:
                asked, at, asked_ns = fields, row * WIDTH, last_ns[row]
            elif request in remembered:
                kept = remembered[request]
                asked, at, asked_ns = kept.fields, 0, kept.last_ns
            else:
                continue
            response = number
            row = number - first
            if 0 <= row < count:
                answer, here, began_ns, ended_ns = fields, row * WIDTH, first_ns[row], last_ns[row]
            elif number in remembered:
                kept = remembered[number]
                answer, here, began_ns, ended_ns = kept.fields, 0, kept.first_ns, kept.last_ns
            else:
                response = -1
            rule = "hint" if ask.hinted else "order" if ask.ordered else "id"
            size = asked[at + END] - asked[at + START]
            protocol, kind, name = asked[at + PROTOCOL : at + NAME + 1]
            if response < 0:
                self.exchanges += (
                    protocol, kind, name, asked[at + SENDER], request, None, "", "unanswered", rule, ask.certain,
                    asked_ns, None, None, size, None,
                )  # fmt: skip
                continue
            if ask.first >= 0:
                row = ask.first - first
                if 0 <= row < count:
                    began_ns = first_ns[row]
                elif ask.first in remembered:
                    began_ns = remembered[ask.first].first_ns
            self.exchanges += (
                protocol, kind, name, asked[at + SENDER], request, response, answer[here + KIND],
                "failed" if answer[here + FAILED] else "answered", rule, ask.certain, asked_ns, began_ns, ended_ns,
                size, ask.part_bytes + answer[here + END] - answer[here + START],
            )  # fmt: skip

    def _remember(self, talk: Talk, window: _Window) -> None:
        """What open requests and waiting answers refer to."""
        wanted = {number for ask in talk.open_asks() for number in (ask.number, ask.first) if number >= 0}
        for ask, response in self._waiting:
            wanted.update(number for number in (ask.number, ask.first, response) if number >= 0)
        older, unfinished, self._remembered = self._remembered, self._unfinished, {}
        for number in wanted:
            kept = unfinished.get(number) or older.get(number)
            if kept is None and 0 <= number - window.first < len(window.sender):
                kept = window.kept(number)
            if kept is not None:
                self._remembered[number] = kept


_NONE: Numbers = np.empty(0, dtype=np.int64)


def _timed(talk: Talk, sides: tuple[Side, Side]) -> _Window:
    """What was told since the last window, and when it was there."""
    first, fields = talk.take()
    sender, start, end = (np.array(fields[place::WIDTH], dtype=np.int64) for place in (SENDER, START, END))
    last_byte = np.maximum(start, end - 1)
    first_ns, last_ns = (sides[0].times(offsets) for offsets in (start, last_byte))
    of_server = np.flatnonzero(sender)
    if len(of_server):
        first_ns[of_server] = sides[1].times(start[of_server])
        last_ns[of_server] = sides[1].times(last_byte[of_server])
    return _Window(first, fields, sender, start, end, first_ns, last_ns)


def _taken(details: dict[int, Detail], number: Numbers) -> dict[int, Detail]:
    """The details of these messages (their numbers rise), by place; they are taken out."""
    if not details or not len(number):
        return {}
    wanted = np.fromiter(details, dtype=np.int64, count=len(details))
    place = np.minimum(np.searchsorted(number, wanted), len(number) - 1)
    there = number[place] == wanted
    return {where: details.pop(one) for where, one in zip(place[there].tolist(), wanted[there].tolist(), strict=True)}


def _messages(kept: dict[int, _Kept], details: dict[int, Detail]) -> Messages:
    rows = [
        (number, one.fields[SENDER], one.fields[END] - one.fields[START], one.first_ns, one.last_ns)
        for number, one in kept.items()
    ]
    number, sender, size, first_ns, last_ns = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    found = {place: details.pop(one) for place, one in enumerate(kept) if one in details}
    return Messages(
        [value for one in kept.values() for value in one.fields], number, sender, size, first_ns, last_ns, found
    )
