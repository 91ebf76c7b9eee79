"""A talk: what a dissector is given to tell what it found in one conversation, and what it must offer in return.

Positions are byte offsets in the sender's stream (for UDP: in all its datagrams one behind the other); the driver turns
them into times. Pairing lives here once for all protocols: by id, or by order with doubt after a gap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

from battlebrokers.tables.message_header import HEADER, HEADER_BYTES, MAX_DEVICE, VERSION

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


@dataclass(slots=True)
class Found:
    """One message as a dissector tells it."""

    sender: int
    start: int
    end: int
    protocol: str
    kind: str
    name: str
    correlation: str
    failed: bool
    payload_bytes: int
    device: int
    """-1: no header of ours."""
    seq: int
    fingerprint: int | None


@dataclass(slots=True)
class Answered:
    """A request and its answer, as message numbers; `response` is -1 when none came."""

    ask: Ask
    response: int


class Talk:
    """One conversation's messages and exchanges so far; the driver takes them away now and then."""

    def __init__(self, protocol: str, *, hints: object = None) -> None:
        self.protocol = protocol
        self.hints = hints
        """What the contender's spec says about pairing, for dissectors that need to be told."""
        self.found: list[Found] = []
        self.answered: list[Answered] = []
        self.taken = 0
        """Messages the driver has taken already: the number of the first one in `found`."""
        self.kept: dict[int, Found] = {}
        """Messages that were taken but may still be made longer."""
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
        self._open: dict[Hashable, deque[Ask]] = {}
        self._asks = 0
        self._doubts = False
        self._early: dict[Hashable, deque[tuple[int, Found, bool]]] = {}
        """Answers nobody has asked for yet: number, message, whether it is the last one."""
        self.before: Callable[[Found, Found], bool] = lambda _request, _answer: False
        """Whether the first message had begun when the second one was there; the driver knows."""

    def add(
        self, sender: int, start: int, end: int, kind: str, name: str = "", correlation: str = "", *,
        failed: bool = False, payload: bytes = b"", payload_bytes: int = -1,
    ) -> int:  # fmt: skip
        """Tell a message that lies at [start, end); returns its number.

        `payload` is the user's part as far as it is visible, `payload_bytes` its full size if that is not the same.
        """
        device, seq, fingerprint = -1, -1, None
        size = len(payload)
        if size:
            if size >= HEADER_BYTES and payload[0] == VERSION:
                word, seq, _ = HEADER.unpack_from(payload)
                device = word & MAX_DEVICE
            if size <= _FINGERPRINT_BYTES and (payload_bytes < 0 or payload_bytes == size):
                fingerprint = fingerprint_of(payload)
        self.found.append(
            Found(
                sender, start, end, self.protocol, kind, name, correlation, failed,
                payload_bytes if payload_bytes >= 0 else size, device, seq, fingerprint,
            )
        )  # fmt: skip
        return self.taken + len(self.found) - 1

    def extend(self, number: int, end: int, payload_bytes: int) -> None:
        """A message of unknown length goes on; when its side has told others since, nobody may listen any more."""
        found = self._message(number)
        if found is not None:
            found.end = end
            found.payload_bytes += payload_bytes

    def ask(self, key: Hashable, number: int, *, ordered: bool = False, hinted: bool = False) -> None:
        """Message `number` wants an answer under `key`; `ordered` when only their order tells which is whose."""
        queue = self._open.get(key)
        if queue is None:
            queue = self._open[key] = deque()
        certain = not (ordered and self._doubts)
        queue.append(Ask(number, ordered, certain, hinted=hinted))
        self._asks += 1
        if self._asks > _OPEN_ASKS:
            self._drop_oldest()
        if self._early and key in self._early:
            self._meet(key, queue)

    def answer(self, key: Hashable, number: int, *, final: bool = True, early: bool = False) -> bool:
        """Message `number` answers the oldest request under `key`; False if there is none.

        With `final=False` more parts of the answer will follow. With `early` the answer is kept for a request that had
        begun when it came but was not whole yet, as when a server answers before it has heard everything.
        """
        queue = self._open.get(key)
        if not queue:
            message = self._message(number) if early else None
            if message is not None:
                self._keep_early(key, number, message, final=final)
            return False
        if not final:
            queue[0].add_part(number, self._size(number))
            return True
        ask = queue.popleft()
        if not queue:
            del self._open[key]
        self._asks -= 1
        self.answered.append(Answered(ask, number))
        return True

    def _meet(self, key: Hashable, queue: deque[Ask]) -> None:
        """Answers that were read before their request was whole find it now, or never."""
        request = self._message(queue[-1].number)
        early = self._early[key]
        while early and queue:
            number, answer, final = early.popleft()
            if request is None or not self.before(request, answer):
                continue  # it came before anybody asked
            if final:
                self.answer(key, number)
            else:
                queue[0].add_part(number, answer.end - answer.start)
        if not early:
            del self._early[key]

    def waiting(self, key: Hashable) -> int:
        """How many requests wait under `key`."""
        return len(self._open.get(key, ()))

    def open_asks(self) -> Iterator[Ask]:
        """Every request that waits."""
        for queue in self._open.values():
            yield from queue

    def skip(self, sender: int, count: int) -> None:
        """The next `count` bytes of that side belong to the message told last (its `end` counts them already)."""
        self.skipping[sender] = max(0, count)

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
        for queue in self._open.values():
            for ask in queue:
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
        for key in [key for key, queue in self._open.items() if queue[0].ordered]:
            queue = self._open.pop(key)
            self._asks -= len(queue)
            self.answered.extend(Answered(ask, -1) for ask in queue)

    def end(self) -> None:
        """No more bytes: whoever waits still was not answered."""
        for queue in self._open.values():
            self.answered.extend(Answered(ask, -1) for ask in queue)
        self._open.clear()
        self._asks = 0

    def _message(self, number: int) -> Found | None:
        """A message told since the driver last took some."""
        place = number - self.taken
        return self.found[place] if 0 <= place < len(self.found) else self.kept.get(number)

    def _size(self, number: int) -> int:
        message = self._message(number)
        return message.end - message.start if message is not None else 0

    def _keep_early(self, key: Hashable, number: int, message: Found, *, final: bool) -> None:
        if len(self._early) > _EARLY_KEYS:
            del self._early[next(iter(self._early))]
        self._early.setdefault(key, deque(maxlen=_EARLY_ANSWERS)).append((number, message, final))

    def _drop_oldest(self) -> None:
        key = next(iter(self._open))
        queue = self._open[key]
        self.answered.append(Answered(queue.popleft(), -1))
        if not queue:
            del self._open[key]
        self._asks -= 1


def fingerprint_of(payload: bytes) -> int:
    """A stable 64-bit hash, signed as tables want it."""
    return int.from_bytes(blake2b(payload, digest_size=8).digest(), "little", signed=True)
