"""Conversations from packets to messages and exchanges, with a toy protocol of lines: `Q n` is answered by `A n`."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.dissect import registry
from battlebrokers.dissect.segments import ACK, SYN, Segments
from battlebrokers.dissect.stream import Stream
from battlebrokers.dissect.talk import CLIENT, SERVER, WHOLE_MESSAGE_BYTES, Talk
from battlebrokers.dissect.transcript import EXCHANGE_FIELDS
from support.examples import examples
from support.told import Exchange, Record, Told, reader

PORT = 7101
MS = 1_000_000


class Lines:
    """`Q n` wants `A n`: by order, or by id where it is written `q n` and `a n`. `H size` has a body; `UP` upgrades."""

    def __init__(self, talk: Talk) -> None:
        self.talk = talk

    def feed(self, sender: int, data: bytes, at: int) -> int:
        talk = self.talk
        used = 0
        talk.need[sender] = 0
        while (end := data.find(b"\n", used)) >= 0:
            kind, _, name = data[used:end].decode("latin-1").partition(" ")
            start, end = used, end + 1
            if kind == "H" and name.isdigit():
                number = talk.add(sender, at + start, at + end + int(name), "H", payload_bytes=int(name))
                talk.skip(sender, int(name))
                return end
            if kind == "N" and name.isdigit():
                if len(data) < end + int(name):
                    talk.need[sender] = end - start + int(name)
                    return used
                end += int(name)
            if kind not in ("Q", "A", "q", "a", "N", "UP", "P"):
                talk.broken(end - start)
                used = end
                continue
            number = talk.add(sender, at + start, at + end, kind, name, failed=name == "bad")
            if kind == "Q":
                talk.ask(sender, number, ordered=True)
            elif kind == "A":
                talk.answer(1 - sender, number)
            elif kind == "P":
                talk.answer(1 - sender, number, final=False)
            elif kind == "q":
                talk.ask((sender, name), number)
            elif kind == "a":
                talk.answer((1 - sender, name), number)
            used = end
            if kind == "UP":
                talk.become(name)
                break
        return used

    def gap(self, sender: int, missing_bytes: int) -> None:
        self.gaps = (sender, missing_bytes)

    def resync(self, sender: int, data: bytes) -> int:
        if data[:2] in (b"Q ", b"A ", b"q ", b"a "):
            return 0
        found = data.find(b"\n")
        return found + 1 if found >= 0 else -1


class Loud(Lines):
    """The same, told in capitals after an upgrade."""

    def feed(self, sender: int, data: bytes, at: int) -> int:
        end = data.find(b"\n") + 1
        if end:
            self.talk.add(sender, at, at + end, "LOUD", data[: end - 1].decode("latin-1"))
        return end


@dataclass
class Hostile:
    """Does and returns what a script says."""

    talk: Talk
    seen: int = 0

    def feed(self, sender: int, data: bytes, at: int) -> int:
        self.seen += 1
        return HOSTILE[0](self.talk, sender, data, at)

    def gap(self, sender: int, missing_bytes: int) -> None:
        pass

    def resync(self, sender: int, data: bytes) -> int:
        return 10**9


HOSTILE = [lambda talk, sender, data, at: 0]


@pytest.fixture(autouse=True, scope="module")
def protocols():
    registry.dissectors()
    tell = lambda client, server: float(client[:2] in (b"Q ", b"q ", b"H ", b"N ", b"UP") or server[:2] == b"Q ")  # noqa: E731
    registry.dissector("lines", ports=[PORT], recognise=tell)(Lines)
    registry.dissector("lines-udp", ports=[PORT], transport="udp", recognise=tell)(Lines)
    registry.dissector("loud", recognise=lambda client, server: float(client.startswith(b"!!")))(Loud)
    registry.dissector("hostile", ports=[PORT + 1])(Hostile)
    yield
    for name in ("lines", "lines-udp", "loud", "hostile"):
        del registry._KNOWN[name]


@dataclass
class Wire:
    """Packets written one after the other, and where their payload lies."""

    rows: list[tuple[int, ...]] = field(default_factory=list)
    content: bytearray = field(default_factory=bytearray)
    next: list[int] = field(default_factory=lambda: [1000, (1 << 32) - 20])
    now_ns: int = 0

    def syn(self) -> Wire:
        for sender, flags in ((CLIENT, SYN), (SERVER, SYN | ACK)):
            self._row(sender, self.next[sender], b"", flags)
            self.next[sender] += 1
        return self

    def say(self, sender: int, data: bytes, *, wait_ms: int = 1, cut: int = 1 << 20) -> Wire:
        self.now_ns += (wait_ms - 1) * MS
        for start in range(0, len(data), cut):
            part = data[start : start + cut]
            self._row(sender, self.next[sender], part, ACK)
            self.next[sender] += len(part)
        return self

    def lose(self, sender: int, size: int) -> Wire:
        """Bytes that the other side acknowledges but the capture does not have."""
        self.next[sender] += size
        return self

    def acknowledge(self, sender: int) -> Wire:
        self._row(sender, self.next[sender], b"", ACK)
        return self

    def raw(self, sender: int, seq: int, data: bytes, *, ack: int | None = None, time_ms: int | None = None) -> Wire:
        """A packet anywhere, acknowledging `ack`."""
        if time_ms is not None:
            self.now_ns = time_ms * MS - MS
        self._row(sender, seq, data, ACK, ack=ack)
        return self

    def _row(self, sender: int, seq: int, data: bytes, flags: int, ack: int | None = None) -> None:
        self.now_ns += MS
        ack = self.next[1 - sender] if ack is None else ack
        full = 1 << 32
        self.rows.append(
            (self.now_ns, sender, seq % full, ack % full, flags, 64_000, -1, 0, len(data), len(data), len(self.content))
        )
        self.content += data

    def segments(self) -> Segments:
        columns = zip(*self.rows, strict=True) if self.rows else [()] * 11
        return Segments(*(np.array(column, dtype=np.int64) for column in columns))

    def heard(self, window: int = 1 << 30, *, port: int = PORT, transport="tcp") -> Heard:
        packets = self.segments()
        content = bytes(self.content)
        stream = Stream(transport, 50_000, port, reader(content))
        result = Heard(stream)
        for start in range(0, max(1, len(packets)), window):
            result.record.push(stream, packets.part(start, start + window), last=start + window >= len(packets))
        return result


@dataclass
class Heard:
    stream: Stream
    record: Record = field(default_factory=Record)

    @property
    def messages(self) -> dict[int, Told]:
        return self.record.messages

    @property
    def exchanges(self) -> list[Exchange]:
        return self.record.exchanges

    @property
    def kinds(self) -> list[str]:
        return [f"{told.found.kind} {told.found.name}".strip() for _, told in sorted(self.messages.items())]

    @property
    def pairs(self) -> list[tuple[str, str | None, bool]]:
        rows = sorted(self.exchanges, key=lambda row: row.request_number)
        return [
            (row.request.found.name, row.response.found.name if row.response else None, row.certain) for row in rows
        ]

    def everything(self) -> list[object]:
        stream = self.stream
        messages = [(number, repr(told)) for number, told in sorted(self.messages.items())]
        return [
            messages, sorted(map(repr, self.exchanges)), stream.protocol, stream.recognised_by, stream.undecoded_bytes,
            stream.malformed, stream.gap_bytes, stream.delivered_bytes,
        ]  # fmt: skip


def test_requests_and_answers_are_paired_by_order():
    said = Wire().syn().say(CLIENT, b"Q 1\nQ 2\n").say(SERVER, b"A 1\nA 2\n").heard()
    assert said.pairs == [("1", "1", True), ("2", "2", True)]
    assert {row.rule for row in said.exchanges} == {"order"}
    assert said.stream.recognised_by == "content"


def test_requests_and_answers_are_paired_by_id_whatever_their_order():
    said = Wire().syn().say(CLIENT, b"q 1\nq 2\n").say(SERVER, b"a 2\na 1\n").heard()
    assert said.pairs == [("1", "1", True), ("2", "2", True)]
    assert {row.rule for row in said.exchanges} == {"id"}


def test_the_server_may_ask_too():
    said = Wire().syn().say(SERVER, b"Q 1\n").say(CLIENT, b"A 1\n").heard()
    assert said.pairs == [("1", "1", True)]


def test_an_answer_without_request_is_no_answer_to_the_next_one():
    said = Wire().syn().say(SERVER, b"A 0\n").say(CLIENT, b"Q 1\n").say(SERVER, b"A 1\n").heard()
    assert said.pairs == [("1", "1", True)]


def test_a_request_is_unanswered_when_the_conversation_ends():
    said = Wire().syn().say(CLIENT, b"Q 1\nQ 2\n").say(SERVER, b"A 1\n").heard()
    assert said.pairs == [("1", "1", True), ("2", None, True)]


def test_parts_of_an_answer_count_as_one():
    said = Wire().syn().say(CLIENT, b"Q 1\n").say(SERVER, b"P 1\n").say(SERVER, b"P 2\n").say(SERVER, b"A 1\n").heard(1)
    (exchange,) = said.exchanges
    assert exchange.response_bytes == 12
    assert (exchange.answered_ns, exchange.response.last_ns) == (4 * MS, 6 * MS)


def test_times_are_those_of_the_first_and_of_the_last_byte():
    said = Wire().syn().say(CLIENT, b"Q 1").say(CLIENT, b"1\nQ").say(CLIENT, b" 12\n").say(SERVER, b"A 11\n").heard()
    first, second = said.messages[0], said.messages[1]
    assert (first.first_ns, first.last_ns) == (3 * MS, 4 * MS)
    assert (second.first_ns, second.last_ns) == (4 * MS, 5 * MS)
    assert said.exchanges[0].answered_ns == 6 * MS


def test_a_message_is_there_when_what_was_lost_came_again():
    wire = Wire().syn()
    start = wire.next[CLIENT]
    wire.raw(CLIENT, start, b"Q 1").raw(CLIENT, start + 5, b"\nQ 13\n").raw(CLIENT, start + 3, b"12", time_ms=300)
    wire.next[CLIENT] = start + 11
    said = wire.say(SERVER, b"A 112\n").heard()
    assert said.kinds[:2] == ["Q 112", "Q 13"]
    assert (said.messages[0].first_ns, said.messages[0].last_ns) == (3 * MS, 300 * MS)
    assert (said.messages[1].first_ns, said.messages[1].last_ns) == (300 * MS, 300 * MS)


def test_after_a_gap_pairs_by_order_are_doubted_until_the_conversation_rests():
    wire = Wire().syn().say(CLIENT, b"Q 1\n").say(SERVER, b"A 1\n").say(CLIENT, b"Q 2\n")
    wire.lose(SERVER, 4).acknowledge(CLIENT).say(CLIENT, b"Q 3\n").say(SERVER, b"A 3\n")
    wire.say(CLIENT, b"Q 4\n", wait_ms=500).say(SERVER, b"A 4\n")
    said = wire.heard()
    assert said.pairs == [("1", "1", True), ("2", "3", False), ("3", None, False), ("4", "4", True)]
    assert said.stream.gap_bytes == 4


def test_after_a_gap_pairs_by_id_are_certain():
    wire = Wire().syn().say(CLIENT, b"q 1\nq 2\n").lose(SERVER, 4).acknowledge(CLIENT).say(SERVER, b"a 2\n")
    assert wire.heard().pairs == [("1", None, True), ("2", "2", True)]


def test_after_a_gap_reading_goes_on_where_a_message_begins():
    wire = Wire().syn().say(CLIENT, b"Q 1\nQ 2").lose(CLIENT, 7).say(CLIENT, b"est\nQ 4\n").acknowledge(SERVER)
    said = wire.heard()
    assert said.kinds == ["Q 1", "Q 4"]
    assert said.stream.undecoded_bytes == 3 + 4
    assert said.stream.malformed == 0


def test_a_conversation_joined_in_its_middle_is_read_from_where_a_message_begins():
    said = Wire().say(CLIENT, b"est\nQ 4\n").say(SERVER, b"A 4\n").heard()
    assert said.stream.recognised_by == "port"
    assert said.kinds == ["Q 4", "A 4"]
    assert said.stream.undecoded_bytes == 4


@pytest.mark.parametrize("cut", [1400, 60_000])
@pytest.mark.parametrize("window", [1, 7, 1 << 30])
def test_the_body_of_a_large_message_is_passed_over(cut, window):
    size = 3 * WHOLE_MESSAGE_BYTES
    wire = Wire().syn().say(CLIENT, b"H %d\n" % size + b"\n" * size, cut=cut).say(CLIENT, b"Q 1\n")
    said = wire.heard(window)
    assert said.kinds == ["H", "Q 1"]
    assert said.messages[0].last_ns == said.messages[1].first_ns - MS
    assert said.stream.undecoded_bytes == 0


def test_a_gap_in_what_is_passed_over_does_not_matter():
    wire = Wire().syn().say(CLIENT, b"H 100\n" + b"x" * 40).lose(CLIENT, 20).say(CLIENT, b"y" * 40 + b"Q 1\n")
    said = wire.acknowledge(SERVER).say(SERVER, b"A 1\n").heard()
    assert said.kinds == ["H", "Q 1", "A 1"]
    assert said.pairs == [("1", "1", True)]


def test_nothing_is_shown_before_there_is_as_much_as_is_needed(monkeypatch):
    shown: list[int] = []
    feed = Lines.feed
    monkeypatch.setattr(Lines, "feed", lambda self, who, data, at: shown.append(len(data)) or feed(self, who, data, at))
    wire = Wire().syn().say(CLIENT, b"N 100000\n" + b"x" * 100_000 + b"Q 1\n", cut=1000)
    assert wire.heard(1).kinds == ["N 100000", "Q 1"]
    assert len([size for size in shown if size < 100_009]) < 25


@pytest.mark.parametrize("window", [1, 1 << 30])
def test_after_an_upgrade_another_protocol_is_spoken(window):
    wire = Wire().syn().say(CLIENT, b"UP loud\nQ 1\n").say(SERVER, b"A 1\n").say(CLIENT, b"Q 2\n")
    said = wire.heard(window)
    assert said.kinds == ["UP loud", "LOUD Q 1", "LOUD A 1", "LOUD Q 2"]
    assert (said.stream.protocol, said.stream.recognised_by) == ("loud", "upgrade")


@pytest.mark.parametrize("window", [1, 1 << 30])
def test_after_an_upgrade_to_something_unnamed_content_tells(window):
    wire = Wire().syn().say(CLIENT, b"UP \n").say(SERVER, b"A 0\n").say(CLIENT, b"!! 1\n").say(SERVER, b"yes\n")
    said = wire.heard(window)
    assert said.stream.protocol == "loud"
    assert said.kinds[-1] == "LOUD yes"


def test_an_upgrade_to_something_unknown_is_counted():
    said = Wire().syn().say(CLIENT, b"UP morse\n... ---\n").say(SERVER, b"...\n").heard()
    assert said.stream.protocol == "morse"
    assert said.stream.undecoded_bytes == 12


def test_what_nobody_knows_is_counted():
    said = Wire().syn().say(CLIENT, b"?" * 900).say(SERVER, b"!" * 900).heard(1, port=PORT + 9)
    assert said.stream.protocol is None
    assert said.stream.undecoded_bytes == 1800


def test_half_a_message_at_the_end_is_counted():
    assert Wire().syn().say(CLIENT, b"Q 1\nQ 2").heard().stream.undecoded_bytes == 3


def test_an_empty_conversation_is_survived():
    assert Wire().heard().stream.protocol is None
    assert Wire().syn().heard().messages == {}


@pytest.mark.parametrize("window", [1, 2, 1 << 30])
def test_datagrams_are_shown_one_by_one(window):
    wire = (
        Wire()
        .say(CLIENT, b"q 1\n")
        .say(SERVER, b"a 1\n")
        .say(CLIENT, b"q 2\nq 3")
        .say(SERVER, b"")
        .say(SERVER, b"a 2\n")
    )
    said = wire.heard(window, transport="udp")
    assert said.stream.protocol == "lines-udp"
    assert said.pairs == [("1", "1", True), ("2", "2", True)]
    assert said.messages[2].first_ns == 3 * MS
    assert (said.stream.malformed, said.stream.undecoded_bytes) == (1, 3)


@pytest.mark.parametrize(
    "does",
    [
        lambda talk, sender, data, at: -5,
        lambda talk, sender, data, at: 10**12,
        lambda talk, sender, data, at: talk.become("hostile") or 0,
        lambda talk, sender, data, at: talk.become("") or 0,
        lambda talk, sender, data, at: talk.skip(sender, -7) or 0,
        lambda talk, sender, data, at: talk.skip(sender, 1 << 60) or 0,
        lambda talk, sender, data, at: talk.need.__setitem__(sender, 1 << 60) or 0,
        lambda talk, sender, data, at: talk.ask("k", 10**9) or talk.answer("k", -3) or 1,
        lambda talk, sender, data, at: talk.add(sender, -9, 1 << 50, "K") and talk.add(sender, 9, 3, "K") and len(data),
        lambda talk, sender, data, at: talk.answer("k", talk.add(sender, at, at, "K"), early=True) or 1,
        lambda talk, sender, data, at: {}["nothing"],
    ],
)
@pytest.mark.parametrize("window", [1, 1 << 30])
def test_dissectors_that_talk_nonsense_are_survived(does, window):
    HOSTILE[0] = does
    wire = Wire().syn()
    for n in range(20):
        wire.say(n % 2, b"?" * 700)
    wire.lose(CLIENT, 50).say(CLIENT, b"?" * 300).acknowledge(SERVER)
    said = wire.heard(window, port=PORT + 1)
    assert said.stream.gap_bytes == 50


def test_what_is_never_read_is_given_up():
    HOSTILE[0] = lambda talk, sender, data, at: talk.need.__setitem__(sender, 1 << 40) or 0
    wire = Wire().syn().say(CLIENT, b"?" * (4 * WHOLE_MESSAGE_BYTES), cut=1400)
    said = wire.heard(10, port=PORT + 1)
    assert said.stream.malformed >= 1
    assert said.stream.undecoded_bytes == 4 * WHOLE_MESSAGE_BYTES


@pytest.mark.slow
def test_memory_does_not_grow_with_the_conversation():
    wire = Wire().syn()
    for n in range(200):
        wire.say(CLIENT, b"Q %d\n" % n).say(SERVER, b"A %d\n" % n)
    packets, content = wire.segments(), bytes(wire.content)
    once = packets.part(2, len(packets))
    spans = [sum(once.size[once.sender == sender].tolist()) for sender in (CLIENT, SERVER)]
    stream = Stream("tcp", 50_000, PORT, reader(content))
    stream.push(packets, last=False)

    def repeat(times: int) -> None:
        nonlocal once
        for _ in range(times):
            grown = np.where(once.sender == 0, spans[0], spans[1])
            other = np.where(once.sender == 0, spans[1], spans[0])
            once = Segments(
                once.time_ns + 400 * MS, once.sender, (once.seq + grown) % (1 << 32), (once.ack + other) % (1 << 32),
                once.flags, once.window, once.shift, once.mss, once.size, once.captured, once.place,
            )  # fmt: skip
            stream.push(once, last=False)
            _, exchanges = stream.take()
            assert len(exchanges) // len(EXCHANGE_FIELDS) >= 199

    repeat(200)
    tracemalloc.start()
    repeat(20)
    before, _ = tracemalloc.get_traced_memory()
    repeat(200)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 200_000


turn = st.tuples(
    st.sampled_from((CLIENT, SERVER)),
    st.sampled_from((b"Q %d\n", b"A %d\n", b"q %d\n", b"a %d\n", b"P %d\n", b"? %d\n")),
)


@examples(150)
@given(
    turns=st.lists(turn, min_size=1, max_size=40), opened=st.booleans(), window=st.integers(1, 40),
    waits=st.lists(st.sampled_from((1, 1, 1, 1, 300)), min_size=1), cut=st.integers(1, 9),
    lost=st.sets(st.integers(1, 60), max_size=3), shuffles=st.lists(st.integers(0, 3), min_size=1),
)  # fmt: skip
def test_any_windows_of_the_same_packets_tell_the_same(turns, opened, window, waits, cut, lost, shuffles):
    wire = Wire().syn() if opened else Wire()
    for n, (sender, words) in enumerate(turns):
        wire.say(sender, words % (n // 3), wait_ms=waits[n % len(waits)], cut=cut)
    wire.acknowledge(CLIENT).acknowledge(SERVER)
    # Some packets are missing in the capture, some are late; but where a side is joined in its middle nobody can know
    # that what came first was not its first, and what was acknowledged before it is seen is given up at once.
    rows = [row for n, row in enumerate(wire.rows) if n not in lost or n < 2]
    turns_taken = list(accumulate(int(row[1] != before[1]) for before, row in pairwise([rows[0], *rows])))
    late = [n + shuffles[n % len(shuffles)] * (opened and n > 3) for n in range(len(rows))]
    order = sorted(range(len(rows)), key=lambda n: (turns_taken[n], late[n]))
    times = [row[0] for row in rows]
    wire.rows = [(time_ns, *rows[n][1:]) for time_ns, n in zip(times, order, strict=True)]
    assert wire.heard(window).everything() == wire.heard().everything()


@examples(100)
@given(turns=st.lists(turn, min_size=1, max_size=30), cuts=st.lists(st.integers(1, 12), min_size=1, max_size=6))
def test_any_segmentation_of_the_same_bytes_tells_the_same(turns, cuts):
    def told(cut_of) -> list[object]:
        wire = Wire().syn()
        for n, (sender, words) in enumerate(turns):
            wire.say(sender, words % (n // 3), cut=cut_of(n))
        said = wire.heard()
        return [said.kinds, said.pairs, said.stream.malformed, said.stream.undecoded_bytes]

    assert told(lambda n: cuts[n % len(cuts)]) == told(lambda n: 1 << 20)
