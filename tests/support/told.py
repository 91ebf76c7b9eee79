"""What a stream told, as objects: messages by number, exchanges with both their messages."""

from __future__ import annotations

from dataclasses import dataclass, field

from battlebrokers.dissect.segments import Numbers, Segments
from battlebrokers.dissect.stream import Reader, Stream
from battlebrokers.dissect.talk import WIDTH, Detail, Found
from battlebrokers.dissect.transcript import EXCHANGE_FIELDS


@dataclass(slots=True)
class Told:
    """One message with its times."""

    found: Found
    first_ns: int
    last_ns: int
    detail: Detail | None = None


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


@dataclass(slots=True)
class Record:
    """Everything a stream told so far."""

    messages: dict[int, Told] = field(default_factory=dict)
    exchanges: list[Exchange] = field(default_factory=list)

    def push(self, stream: Stream, window: Segments, *, last: bool) -> None:
        """Drive the stream and write down what it tells."""
        stream.push(window, last=last)
        messages, exchanges = stream.take()
        for some in messages:
            columns = (some.number, some.sender, some.size, some.first_ns, some.last_ns)
            rows = zip(*(column.tolist() for column in columns), strict=True)
            for place, (number, sender, size, first_ns, last_ns) in enumerate(rows):
                found = Found(*some.fields[place * WIDTH : (place + 1) * WIDTH])
                assert (found.sender, found.end - found.start) == (sender, size)
                assert number not in self.messages
                self.messages[number] = Told(found, first_ns, last_ns, some.details.get(place))
        width = len(EXCHANGE_FIELDS)
        for start in range(0, len(exchanges), width):
            self._exchange(dict(zip(EXCHANGE_FIELDS, exchanges[start : start + width], strict=True)))

    def _exchange(self, row: dict[str, object]) -> None:
        """An exchange repeats what its messages say."""
        request, number = self.messages[row["request"]], row["response"]
        response = self.messages[number] if number is not None else None
        found = request.found
        assert (row["protocol"], row["kind"], row["name"], row["sender"]) == (
            found.protocol, found.kind, found.name, found.sender,
        )  # fmt: skip
        assert (row["asked_ns"], row["request_bytes"]) == (request.last_ns, found.end - found.start)
        outcome = "unanswered" if response is None else "failed" if response.found.failed else "answered"
        assert (row["outcome"], row["answer"]) == (outcome, response.found.kind if response else "")
        assert row["ended_ns"] == (response.last_ns if response else None)
        self.exchanges.append(
            Exchange(
                row["request"], request, -1 if number is None else number, response, row["response_bytes"] or 0,
                row["answered_ns"] or 0, row["rule"], row["certain"],
            )
        )  # fmt: skip


def reader(content: bytes) -> Reader:
    """Reads a capture that is one string."""

    def read(places: Numbers, sizes: Numbers) -> list[bytes]:
        return [content[place : place + size] for place, size in zip(places.tolist(), sizes.tolist(), strict=True)]

    return read
