"""Damaged, hostile and random bytes: every registered dissector survives them, in time and memory that do not run away.

`FUZZ_ROUNDS` makes it longer: so many mutated conversations and beginnings per dissector. A failure names its round.
`FUZZ_RECORD` names a folder for what was tried.
"""

from __future__ import annotations

import gc
import json
import os
import random
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from battlebrokers.dissect.hints import Hints
from battlebrokers.dissect.registry import dissectors
from battlebrokers.dissect.talk import PROTOCOL, WHOLE_MESSAGE_BYTES, WIDTH, Found, Talk
from support.sealed import ALERT, APPLICATION, CLIENT_HELLO, HANDSHAKE, SECRETS, SERVER_HELLO, Sealer
from support.tally import Tally
from support.utterances import UTTERANCES

ROUNDS = int(os.environ.get("FUZZ_ROUNDS", "150"))
NAMES = sorted(dissectors())
UNREAD_BYTES = 2 * WHOLE_MESSAGE_BYTES
LARGEST = 1 << 62
pytestmark = pytest.mark.timeout(max(300, ROUNDS // 20))


@pytest.fixture(scope="module")
def tally() -> Iterator[Tally]:
    made = Tally("dissectors")
    yield made
    made.record()


class Conversation:
    """Drives a dissector by the contract, without the product's driver: an exception is not caught by anybody."""

    def __init__(self, name: str, hints: Hints | None = None) -> None:
        self.talk = Talk(name, hints=hints)
        self.udp = dissectors()[name].transport == "udp"
        self.dissection = dissectors()[name].open(self.talk)
        self.unread = [b"", b""]
        self.at = [0, 0]
        self.lost = [False, False]
        self.messages = 0
        self.protocols: Counter[str] = Counter()
        """Messages by the protocol they were told in."""
        self.rules: Counter[str] = Counter()
        """Answered requests: how many were paired by a hint, and how many not."""

    def say(self, sender: int, data: bytes) -> None:
        talk = self.talk
        if self.udp:
            self._shown(sender, data)
            return
        skipped = min(talk.skipping[sender], len(data))
        talk.skipping[sender] -= skipped
        self.at[sender] += skipped
        data = data[skipped:]
        if self.lost[sender]:
            found = self.dissection.resync(sender, data[:4096])
            assert -1 <= found <= len(data)
            self.lost[sender] = found < 0
            used = len(data) if found < 0 else found
            self.at[sender] += used
            data = data[used:]
        self.unread[sender] += data
        for side in (sender, 1 - sender):
            self.read(side)

    def read(self, sender: int) -> None:
        talk = self.talk
        while self.unread[sender] and len(self.unread[sender]) >= min(talk.need[sender], UNREAD_BYTES):
            data = self.unread[sender]
            used = self._shown(sender, data)
            skipped = min(talk.skipping[sender], len(data) - used)
            talk.skipping[sender] -= skipped
            self.at[sender] += used + skipped
            self.unread[sender] = data[used + skipped :]
            if talk.next is not None:
                following = dissectors().get(talk.next)
                talk.next, talk.need = None, [0, 0]
                if following is None:
                    return
                self.dissection = following.open(talk)
            elif not skipped:
                break
        if len(self.unread[sender]) > UNREAD_BYTES:
            self.gap(sender, 0)

    def gap(self, sender: int, missing: int) -> None:
        talk = self.talk
        skipped = min(talk.skipping[sender], missing)
        talk.skipping[sender] -= skipped
        if missing and skipped == missing:
            self.at[sender] += missing
            return
        self.at[sender] += len(self.unread[sender]) + missing
        self.unread[sender] = b""
        self.lost[sender] = True
        talk.need[sender] = talk.skipping[sender] = 0
        self.dissection.gap(sender, missing)
        talk.doubt()

    def settle(self) -> None:
        """As the driver does after each window."""
        talk = self.talk
        _, fields = talk.take()
        for place in range(0, len(fields), WIDTH):
            row = Found(*fields[place : place + WIDTH])
            assert 0 <= row.start <= row.end < LARGEST
            assert row.kind or row.protocol == "redis"
            assert 0 <= row.payload_bytes < LARGEST
            assert len(row.kind) <= 256
            assert len(row.name) <= 65536 + 1024
        self.messages += len(fields) // WIDTH
        self.protocols.update(fields[PROTOCOL::WIDTH])
        self.rules.update("hint" if ask.hinted else "other" for ask, number in talk.answered if number >= 0)
        talk.answered = []

    def end(self) -> None:
        self.talk.ended = True
        self.talk.need = [0, 0]
        for sender in (0, 1):
            self.read(sender)
        self.settle()
        self.talk.end()

    def _shown(self, sender: int, data: bytes) -> int:
        used = self.dissection.feed(sender, data, self.at[sender])
        assert 0 <= used <= len(data)
        return used


def mutated(words: bytes, chance: random.Random) -> bytes:
    data = bytearray(words)
    for _ in range(chance.choice((0, 0, 1, 2, 8))):
        if not data:
            break
        place = chance.randrange(len(data))
        what = chance.randrange(5)
        if what == 0:
            data[place] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        elif what == 1:
            del data[place : place + chance.randrange(1, 9)]
        elif what == 2:
            data[place:place] = chance.randbytes(chance.randrange(1, 9))
        elif what == 3:
            data[place : place + 4] = chance.choice(
                (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"9999", b"\x00\x00\x00\x00")
            )
        else:
            data += data[place : place + 200]
    return bytes(data)


def said(name: str, chance: random.Random) -> list[tuple[int, bytes | int]]:
    """Pieces of a conversation that may be anything, and gaps."""
    sides = UTTERANCES.get(name, ([], []))
    pieces: list[tuple[int, bytes | int]] = []
    for _ in range(chance.randrange(1, 12)):
        sender = chance.randrange(2)
        words = chance.choice(sides[sender] or [b""])
        if not words or chance.random() < 0.1:
            words = chance.randbytes(chance.randrange(60))
        if chance.random() < 0.05:
            words = chance.choice(sides[1 - sender] or [words])
        data = mutated(words, chance)
        if chance.random() < 0.08:
            pieces.append((sender, chance.choice((1, 7, 1000))))
        while data:
            size = chance.choice((len(data), len(data), 1, 3, 20))
            pieces.append((sender, data[:size]))
            data = data[size:]
    return pieces


@pytest.mark.parametrize("name", NAMES)
def test_mutated_conversations_are_survived(name, tally):
    for round_ in range(ROUNDS):
        chance = random.Random(f"{name} {round_}")
        conversation = Conversation(name)
        with tally.input("conversation", name, round_):
            for sender, piece in said(name, chance):
                if isinstance(piece, int):
                    conversation.gap(sender, piece)
                else:
                    conversation.say(sender, piece)
            conversation.end()


INSIDE = [name for name in NAMES if dissectors()[name].transport == "tcp" and name in UTTERANCES and name != "tls"]


def sealed(chance: random.Random) -> Iterator[tuple[int, bytes | int]]:
    """A connection whose secrets are known: any words inside, sealed as they should be, or spoilt on the way."""
    yield from ((0, CLIENT_HELLO), (1, SERVER_HELLO))
    sides = (Sealer(0), Sealer(1))
    for sender, piece in said(chance.choice(INSIDE), chance):
        if isinstance(piece, int):
            for _ in range(chance.randrange(3)):
                sides[sender].seal(b"lost")
            yield sender, piece
            continue
        if chance.random() < 0.05:
            sides[sender].change_key()
        kind = chance.choice((APPLICATION,) * 12 + (HANDSHAKE, ALERT, 0, 255))
        record = sides[sender].seal(piece, kind, padding=chance.choice((0, 0, 0, 7)))
        yield sender, mutated(record, chance) if chance.random() < 0.1 else record


def test_connections_whose_secrets_are_known_are_survived(tally):
    found: Counter[str] = Counter()
    for round_ in range(ROUNDS):
        chance = random.Random(f"sealed {round_}")
        conversation = Conversation("tls", Hints(tls_secrets=SECRETS))
        with tally.input("opened conversation", "tls", round_):
            for sender, piece in sealed(chance):
                if isinstance(piece, int):
                    conversation.gap(sender, piece)
                else:
                    conversation.say(sender, piece)
            conversation.end()
        found += conversation.protocols
    assert len(set(found) - {"tls"}) >= 5  # they were opened, and what is inside was read


HINTED = Hints(
    type_path="header.kind", id_path="header.no", answers={"SAVE": "SAVED", "LIST": "LIST", "ASK": "TOLD"},
    unanswered=frozenset({"NOTE"}),
)  # fmt: skip
IN_ORDER = Hints(type_path="0", answers={"SAVE": "SAVED", "ASK": "TOLD"})


def worded(chance: random.Random) -> bytes:
    """A JSON message as the hints expect it, nearly so, or not at all."""
    odd = chance.random() < 0.2
    kinds = ("ODD", None, 7, ["SAVE"], {"SAVE": 1}) if odd else ("SAVE", "SAVED", "LIST", "ASK", "TOLD", "NOTE")
    number = chance.choice((1, 1, 1, 2, "2", None) if not odd else (None, True, 1.5, [1], {"no": 1}, 10**30))
    kind = chance.choice(kinds)
    document = {"header": {"kind": kind, "no": number}} if chance.random() < 0.5 else [kind, number]
    words = json.dumps(document if not odd else chance.choice((document, {"header": kind}, kind))).encode()
    return mutated(words, chance) if odd else words


def test_conversations_that_pair_by_hints_are_survived(tally):
    rules: Counter[str] = Counter()
    for round_ in range(ROUNDS):
        chance = random.Random(f"hinted {round_}")
        conversation = Conversation("websocket", chance.choice((HINTED, IN_ORDER)))
        with tally.input("hinted conversation", "websocket", round_):
            for _ in range(chance.randrange(1, 16)):
                sender, words = chance.randrange(2), worded(chance)
                # The client's mask is all zeros.
                size = bytes((min(len(words), 125) | (0 if sender else 0x80),)) + (b"" if sender else bytes(4))
                conversation.say(sender, b"\x81" + size + words[:125])
                if chance.random() < 0.05:
                    conversation.gap(sender, chance.choice((1, 7, 1000)))
            conversation.end()
        rules += conversation.rules
    assert rules["hint"] > ROUNDS / 100


HOSTILE = {
    "zeros": b"\x00", "ones": b"\xff", "open brackets": b"[", "asterisks": b"*1\r\n", "line breaks": b"\r\n",
    "empty frames": b"\x01\x00", "digits": b"9", "spaces": b" ", "letters": b"A", "words": b"GET ",
}  # fmt: skip


def long_streams(name: str, size: int) -> Iterator[bytes]:
    """Whatever somebody may send without end: one pattern, noise, true words again and again, true words and zeros."""
    yield from (pattern * (size // len(pattern)) for pattern in HOSTILE.values())
    yield random.Random(name).randbytes(size)
    for words in UTTERANCES.get(name, ()):
        whole = b"".join(words)
        yield from ((whole * (size // len(whole) + 1))[:size], whole + b"\x00" * size)


def hear(name: str, stream: bytes) -> None:
    """The stream from both sides, in pieces like packets."""
    conversation = Conversation(name)
    for sender in (0, 1):
        for number, start in enumerate(range(0, len(stream), 1400)):
            conversation.say(sender, stream[start : start + 1400])
            if number % 64 == 63:
                conversation.settle()
    conversation.end()


def resident_bytes(which: str) -> int:
    """`VmRSS`, what this process has in memory, or `VmHWM`, the most it had since the peak was forgotten."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(which)]
    return 1024 * int(line.split()[1])


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_long_streams_of_anything_cost_neither_memory_nor_much_time(name):
    """Longer than any dissector may wait for; counted in pages, as counting every object takes ten times as long."""
    streams = list(long_streams(name, 600_000))
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    before = resident_bytes("VmRSS")
    begin = time.process_time()
    for stream in streams:
        hear(name, stream)
    # Linear work takes seconds even on a slow machine; anything quadratic takes many minutes.
    assert time.process_time() - begin < 100
    assert resident_bytes("VmHWM") - before < 64 << 20


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_what_a_stream_makes_a_dissector_keep_is_a_small_multiple_of_it(name):
    for stream in long_streams(name, 20_000):
        tracemalloc.start()
        try:
            hear(name, stream)
            assert tracemalloc.get_traced_memory()[1] < 4 << 20
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("name", NAMES)
def test_recognising_anything_is_safe_and_says_how_sure_it_is(name, tally):
    chance = random.Random(name)
    known = [words for sides in UTTERANCES.values() for side in sides for words in side]
    for round_ in range(ROUNDS):
        client, server = (
            chance.choice((b"", chance.randbytes(chance.randrange(80)), mutated(chance.choice(known), chance)))[:512]
            for _ in range(2)
        )
        with tally.input("beginning", name, round_):
            assert 0.0 <= dissectors()[name].recognise(client, server) <= 1.0


def test_true_words_are_understood():
    for name, sides in UTTERANCES.items():
        conversation = Conversation(name)
        for sender in (0, 1):
            for words in sides[sender][:1]:
                conversation.say(sender, words)
        conversation.end()
        assert conversation.messages >= 2, name
        assert conversation.talk.malformed == 0, name
