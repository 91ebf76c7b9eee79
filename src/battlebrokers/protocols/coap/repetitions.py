"""Which messages of a peer came before, and how they were answered: UDP may deliver a datagram more than once.

Used by the talk of a link. A memory of fixed size: the oldest is forgotten first.
"""

from __future__ import annotations

REMEMBERED = 1024


class Repetitions:
    """Message ids of the peer with what came under them (RFC 7252 §4.5); an id used for another message is new."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, bool]] = {}

    def answer_given(self, message_id: int, datagram: bytes) -> bool | None:
        """Whether the first of these datagrams was wanted; None when this is the first."""
        content, wanted = self._known.get(message_id, (0, False))
        return wanted if message_id in self._known and content == hash(datagram) else None

    def remember(self, message_id: int, datagram: bytes, *, wanted: bool) -> None:
        """One more, with what was said to it."""
        known = self._known
        known.pop(message_id, None)
        if len(known) >= REMEMBERED:
            del known[next(iter(known))]
        known[message_id] = (hash(datagram), wanted)
