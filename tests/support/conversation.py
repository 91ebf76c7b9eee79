"""A conversation written by hand: who said what, turned into packets and driven through the product's stream."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from battlebrokers.dissect.segments import ACK, PSH, Segments
from battlebrokers.dissect.stream import Stream
from support.told import Exchange, Record, Told, reader

CLIENT, SERVER = 0, 1
STEP_NS = 1_000


@dataclass(frozen=True, slots=True)
class Lost:
    """So many bytes were sent and acknowledged but are not in the capture."""

    size: int


Turn = tuple[int, bytes | Lost]


@dataclass(slots=True)
class Heard:
    """What the stream made of it."""

    stream: Stream
    record: Record = field(default_factory=Record)

    @property
    def messages(self) -> list[Told]:
        return list(self.record.messages.values())

    @property
    def exchanges(self) -> list[Exchange]:
        return self.record.exchanges

    @property
    def kinds(self) -> list[str]:
        return [told.found.kind for told in self.messages]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Kinds of request and answer, in order of the requests; an empty answer is none."""
        rows = sorted(self.exchanges, key=lambda row: (row.request.last_ns, row.request_number))
        return [(row.request.found.kind, row.response.found.kind if row.response else "") for row in rows]


def segments(turns: list[Turn], cut: int | list[int] = 1400, transport: str = "tcp") -> tuple[Segments, bytes]:
    """Packets of these turns, each turn cut every `cut` bytes (or by sizes in turn), and the bytes they lie in."""
    rows: list[tuple[int, int, int, int, int]] = []
    content = bytearray()
    following = [1_000, 5_000_000]
    cuts = 0
    for sender, data in turns:
        if isinstance(data, Lost):
            following[sender] += data.size
            continue
        start = 0
        while start < len(data) or (transport == "udp" and not data):
            size = len(data) if transport == "udp" else cut if isinstance(cut, int) else cut[cuts % len(cut)]
            cuts += 1
            part = data[start : start + size]
            rows.append((sender, following[sender], following[1 - sender], len(part), len(content)))
            content += part
            following[sender] += len(part)
            start += len(part)
            if not part:
                break
    # Everything was received: what is missing is missing in the capture only.
    rows += [(side, following[side], following[1 - side], 0, len(content)) for side in (CLIENT, SERVER)]
    sender, seq, ack, size, place = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    zeros = np.zeros(len(rows), dtype=np.int64)
    times = np.arange(len(rows), dtype=np.int64) * STEP_NS
    udp = transport == "udp"
    packets = Segments(
        times, sender, zeros if udp else seq, zeros if udp else ack, zeros if udp else zeros + (ACK | PSH),
        zeros + 64_000, zeros - 1, zeros, size, size, place,
    )  # fmt: skip
    return (packets.part(0, len(rows) - 2) if udp else packets), bytes(content)


def heard(
    turns: list[Turn], port: int, *, transport: str = "tcp", cut: int | list[int] = 1400, window: int = 1 << 30,
    protocol: str | None = None, hints: object = None,
) -> Heard:  # fmt: skip
    """Drive it, `window` packets at a time; with `protocol` insist on what was recognised."""
    packets, content = segments(turns, cut, transport)
    stream = Stream(transport, 40_000, port, reader(content), hints)
    result = Heard(stream)
    for start in range(0, max(1, len(packets)), window):
        result.record.push(stream, packets.part(start, start + window), last=start + window >= len(packets))
    if protocol is not None:
        assert stream.protocol == protocol
    return result


def summary(said: Heard) -> list[tuple[object, ...]]:
    """Everything but times and the order of the two sides: what must not depend on segmentation."""
    rows = [
        (row.sender, row.start, row.end, row.kind, row.name, row.correlation, row.failed, row.payload_bytes,
         *(-1 if value is None else value for value in (row.fingerprint, row.device, row.seq, row.identity)),
         str(told.detail))
        for told in said.messages for row in (told.found,)
    ]  # fmt: skip
    pairs = [
        (row.request.found.sender, row.request.found.start, row.response.found.start if row.response else -1,
         row.response_bytes if row.response else 0, row.rule)
        for row in said.exchanges
    ]  # fmt: skip
    return [*sorted(rows), *sorted(pairs)]
