"""A talk: what a dissector is given to tell what it found in one conversation, and what it must offer in return.

Positions are byte offsets in the sender's stream (for UDP: in all its datagrams one behind the other); the driver turns
them into times. Pairing lives here once for all protocols: by id, or by order with doubt after a gap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from battlebrokers.dissect.payload_marks import fingerprint_of, marks_of
from battlebrokers.dissect.runs import Spoken

CLIENT, SERVER = 0, 1
"""Who sent something."""

WHOLE_MESSAGE_BYTES = 256 * 1024
"""Up to this size a dissector may wait for a whole message; of a larger one it takes the front and skips the rest."""
_OPEN_ASKS = 65_536
_EARLY_KEYS, _EARLY_ANSWERS = 256, 64
_FINGERPRINT_BYTES = 64 * 1024


class Dissection(Protocol):
    """One conversation in one protocol. Never raises on any bytes; what breaks the rules is told to the talk."""

    def feed(self, sender: int, data: bytes, at: int) -> int:
        """Read messages from the front of `data`, which begins at offset `at` of the sender's stream.

        Returns how many bytes were used. The rest is shown again with more behind it, also after the other side has
        spoken, so returning 0 is how to wait. A UDP datagram is shown once.
        """

    def gap(self, sender: int, missing_bytes: int) -> None:
        """Bytes are missing before what comes next: forget half-read state of that side."""

    def resync(self, sender: int, data: bytes) -> int:
        """Where in `data` (the front of a segment) reading can begin after a gap or in mid-capture; -1: not here."""


@runtime_checkable
class ManyAtOnce(Protocol):
    """What a dissection may offer besides, where its messages are short and many."""

    def feed_runs(self, spoken: Spoken) -> int:
        """Read whole runs of both sides, in their order, as long as that is quick; returns how many were read.

        What comes next, and everything where bytes wait or are missing, is shown by `feed`: both must tell the same.
        """


@dataclass(slots=True)
class Ask:
    """A request that waits for its answer."""

    number: int
    ordered: bool
    certain: bool
    first: int = -1
    """Number of the first answer that was not the last one."""
    part_bytes: int = 0
    """How long those were together: there may be millions."""
    hinted: bool = False
    """Whether the contender's spec says what its answer looks like."""

    def add_part(self, number: int, size_bytes: int) -> None:
        """An answer that is not the last one."""
        if self.first < 0:
            self.first = number
        self.part_bytes += size_bytes


class Found(NamedTuple):
    """One message as a dissector tells it.

    There are many: talks keep their fields one behind the other in a plain list, `WIDTH` of them per message.
    """

    sender: int
    start: int
    end: int
    protocol: str
    kind: str
    name: str
    correlation: str
    failed: bool
    payload_bytes: int
    device: int | None
    """None: no header of ours, as it is or as digits in something else."""
    seq: int | None
    fingerprint: int | None
    identity: int | None
    """The number of an identifier in the payload (see `payload_ids`)."""


class Detail(NamedTuple):
    """What few messages say besides."""

    reason: int | None
    """The reason or return code; None if there is none."""
    properties: str
    """Properties as a JSON object; empty if nothing of them is kept."""


Fields = list[Any]
WIDTH = len(Found._fields)
SENDER, START, END, PROTOCOL, KIND, NAME, CORRELATION, FAILED, PAYLOAD_BYTES, DEVICE, SEQ, FINGERPRINT, IDENTITY = (
    range(WIDTH)
)
"""Where the fields of a message stand."""

Answered = tuple[Ask, int]
"""A request and the number of its answer; -1 when none came."""


@dataclass(slots=True)
class _Early:
    """An answer nobody has asked for yet."""

    number: int
    sender: int
    start: int
    end: int
    final: bool


class Talk:
    """One conversation's messages and exchanges so far; the driver takes them away now and then."""

    def __init__(self, protocol: str, *, hints: object = None) -> None:
        self.protocol = protocol
        self.hints = hints
        """What the contender's spec says about pairing, for dissectors that need to be told."""
        self.answered: list[Answered] = []
        self.kept: dict[int, Fields] = {}
        """Messages that were taken but may still be made longer."""
        self.details: dict[int, Detail] = {}
        """By number, of messages that have some; the driver takes them away with their messages."""
        self.seen_ns = 0
        """About when what is shown now was captured; the driver knows."""
        self.malformed = 0
        self.undecoded_bytes = 0
        self.need = [0, 0]
        """Per sender: do not show data again before there is so much of it; 0 when it does not matter."""
        self.skipping = [0, 0]
        """Per sender: bytes of the message told last that are not to be shown."""
        self.next: str | None = None
        """The protocol spoken from here on, after an upgrade; empty: content tells."""
        self.notes: dict[str, str] = {}
        """What one protocol leaves to the next one after an upgrade: what they agreed on."""
        self.ended = False
        """Nothing more will come: what is shown now is all there is."""
        self.before: Callable[[int, int, int, int], bool] = lambda *_: False
        """Whether that sender's byte was there when this sender's was; the driver knows."""
        self._fields: Fields = []
        self._count = 0
        self.taken = 0
        """Messages the driver has taken already: the number of the first one in `_fields`."""
        self._open: dict[Hashable, Ask | deque[Ask]] = {}
        """Who waits; mostly one under each key."""
        self._asks = 0
        self._doubts = False
        self._early: dict[Hashable, deque[_Early]] = {}
        self._latest_early: list[_Early | None] = [None, None]
        """Of each sender: it may still be made longer."""

    def add(
        self, sender: int, start: int, end: int, kind: str, name: str = "", correlation: str = "", *,
        failed: bool = False, payload: bytes = b"", payload_bytes: int = -1,
    ) -> int:  # fmt: skip
        """Tell a message that lies at [start, end); returns its number.

        `payload` is the user's part as far as it is visible, `payload_bytes` its full size if that is not the same.
        """
        device = seq = fingerprint = identity = None
        if payload:
            size = len(payload)
            device, seq, identity = marks_of(payload, self.seen_ns)
            if payload_bytes < 0:
                payload_bytes = size
            if payload_bytes == size <= _FINGERPRINT_BYTES:
                fingerprint = fingerprint_of(payload)
        elif payload_bytes < 0:
            payload_bytes = 0
        self._fields += (
            sender, start, end, self.protocol, kind, name, correlation, failed, payload_bytes, device, seq, fingerprint,
            identity,
        )  # fmt: skip
        number = self._count
        self._count = number + 1
        return number

    def detail(self, number: int, reason: int | None, properties: str = "") -> None:
        """A message says this besides."""
        self.details[number] = Detail(reason, properties)

    def add_all(self, columns: Sequence[list[Any]]) -> int:
        """Tell many messages at once, field by field in the order of `Found`; returns the number of the first."""
        fields: Fields = [None] * (WIDTH * len(columns[0]))
        for place, column in enumerate(columns):
            fields[place::WIDTH] = column
        self._fields += fields
        first = self._count
        self._count = first + len(columns[0])
        return first

    def extend(self, number: int, end: int, payload_bytes: int) -> None:
        """A message of unknown length goes on; when its side has told others since, nobody may listen any more."""
        fields, place = self._place(number)
        if fields is None:
            return
        fields[place + END] = end
        fields[place + PAYLOAD_BYTES] += payload_bytes
        for early in self._latest_early:
            if early is not None and early.number == number:
                early.end = end

    def fail(self, number: int) -> None:
        """A message that was told turns out to report a failure."""
        fields, place = self._place(number)
        if fields is not None:
            fields[place + FAILED] = True

    def take(self) -> tuple[int, Fields]:
        """The messages told since the last time, and the number of the first."""
        first, fields = self.taken, self._fields
        self.taken, self._fields = self._count, []
        return first, fields

    def message(self, number: int) -> Found | None:
        """A message that was not taken yet, or is kept."""
        fields, place = self._place(number)
        return Found(*fields[place : place + WIDTH]) if fields is not None else None

    def ask(self, key: Hashable, number: int, *, ordered: bool = False, hinted: bool = False) -> None:
        """Message `number` wants an answer under `key`; `ordered` when only their order tells which is whose."""
        ask = Ask(number, ordered, not (ordered and self._doubts), -1, 0, hinted)
        first = self._open.get(key)
        if first is None:
            self._open[key] = ask
        elif isinstance(first, Ask):
            self._open[key] = deque((first, ask))
        else:
            first.append(ask)
        self._asks += 1
        if self._asks > _OPEN_ASKS:
            self._drop_oldest()
        if self._early and key in self._early:
            self._meet(key, number)

    def answer(self, key: Hashable, number: int, *, final: bool = True, early: bool = False) -> bool:
        """Message `number` answers the oldest request under `key`; False if there is none.

        With `final=False` more parts of the answer will follow. With `early` the answer is kept for a request that had
        begun when it came but was not whole yet, as when a server answers before it has heard everything.
        """
        first = self._open.get(key)
        if first is None:
            if early:
                self._keep_early(key, number, final=final)
            return False
        if not final:
            fields, place = self._place(number)
            size = fields[place + END] - fields[place + START] if fields is not None else 0
            (first if isinstance(first, Ask) else first[0]).add_part(number, size)
            return True
        self.answered.append((self._pop(key, first), number))
        return True

    def _pop(self, key: Hashable, first: Ask | deque[Ask]) -> Ask:
        """The oldest request under a key waits no longer."""
        self._asks -= 1
        if isinstance(first, Ask):
            del self._open[key]
            return first
        ask = first.popleft()
        if not first:
            del self._open[key]
        return ask

    def _meet(self, key: Hashable, number: int) -> None:
        """Answers that were read before their request was whole find it now, or never."""
        fields, place = self._place(number)
        early = self._early[key]
        while early and (first := self._open.get(key)) is not None:
            answer = early.popleft()
            if fields is None or not self.before(
                fields[place + SENDER], fields[place + START], answer.sender, max(answer.start, answer.end - 1)
            ):
                continue  # it came before anybody asked
            if answer.final:
                self.answer(key, answer.number)
            else:
                (first if isinstance(first, Ask) else first[0]).add_part(answer.number, answer.end - answer.start)
        if not early:
            del self._early[key]

    def waiting(self, key: Hashable) -> int:
        """How many requests wait under `key`."""
        return len(_queue(self._open.get(key)))

    def open_asks(self) -> Iterator[Ask]:
        """Every request that waits."""
        for queue in self._open.values():
            yield from _queue(queue)

    def skip(self, sender: int, count: int) -> None:
        """The next `count` bytes of that side belong to the message told last (its `end` counts them already)."""
        self.skipping[sender] = max(0, count)

    def front(self, sender: int, length: int, available: int, front_bytes: int) -> int:
        """How much to read of a message of this length: all, or the front if it is too large; 0: not there yet."""
        wanted = min(length, front_bytes) if length > WHOLE_MESSAGE_BYTES else length
        if wanted > available:
            self.need[sender] = wanted
            return 0
        return wanted

    def broken(self, undecoded_bytes: int = 0) -> None:
        """Count a message that breaks the rules, and bytes that could not be read."""
        self.malformed += 1
        self.undecoded_bytes += undecoded_bytes

    def undecoded(self, count: int) -> None:
        """Count bytes that nobody can read, though no rule is broken."""
        self.undecoded_bytes += count

    def become(self, protocol: str) -> None:
        """From the next byte of both sides on another protocol is spoken; an empty name: see what it is."""
        self.next = protocol

    def doubt(self) -> None:
        """Bytes are missing: until the conversation has rested, order alone proves nothing."""
        if self._doubts:
            return
        self._doubts = True
        for ask in self.open_asks():
            if ask.ordered:
                ask.certain = False

    @property
    def doubting(self) -> bool:
        """Whether pairs by order are uncertain at the moment."""
        return self._doubts

    def rested(self) -> None:
        """Nobody spoke for a while: whoever asks from now on is answered next."""
        if not self._doubts:
            return
        self._doubts = False
        # Whoever asked by order and waits still lost its answer with the missing bytes, or has lost its place.
        for key in [key for key, queue in self._open.items() if next(iter(_queue(queue))).ordered]:
            queue = _queue(self._open.pop(key))
            self._asks -= len(queue)
            self.answered.extend((ask, -1) for ask in queue)

    def end(self) -> None:
        """No more bytes: whoever waits still was not answered."""
        self.answered.extend((ask, -1) for ask in self.open_asks())
        self._open.clear()
        self._asks = 0

    def _place(self, number: int) -> tuple[Fields | None, int]:
        """Where the fields of a message stand that was told since the driver last took some, or is kept."""
        place = (number - self.taken) * WIDTH
        if 0 <= place < len(self._fields):
            return self._fields, place
        return self.kept.get(number), 0

    def _keep_early(self, key: Hashable, number: int, *, final: bool) -> None:
        fields, place = self._place(number)
        if fields is None:
            return
        if len(self._early) > _EARLY_KEYS:
            del self._early[next(iter(self._early))]
        sender, start, end = fields[place : place + 3]
        answer = self._latest_early[sender] = _Early(number, sender, start, end, final)
        self._early.setdefault(key, deque(maxlen=_EARLY_ANSWERS)).append(answer)

    def _drop_oldest(self) -> None:
        key, first = next(iter(self._open.items()))
        self.answered.append((self._pop(key, first), -1))


def _queue(waiting: Ask | deque[Ask] | None) -> Collection[Ask]:
    return () if waiting is None else (waiting,) if isinstance(waiting, Ask) else waiting
