"""The last retained message of each topic, as one gateway knows it. Pure: the time is given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from battlebrokers.scenario.topics import filter_matches
from battlebrokers.sdn.gateway.interest import has_wildcard


@dataclass(frozen=True, slots=True)
class Kept:
    """A message, and until when it is worth telling."""

    payload: bytes
    until_s: float = float("inf")


class Retained:
    """At most so many topics; the one that was set longest ago goes first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[str, Kept] = {}

    def set(self, topic: str, payload: bytes, until_s: float = float("inf")) -> None:
        """Keep a message instead of the one before; an empty one ends it."""
        self._kept.pop(topic, None)
        if payload:
            self._kept[topic] = Kept(payload, until_s)
            if len(self._kept) > self._most:
                del self._kept[next(iter(self._kept))]

    def matching(self, topic_filter: str, now_s: float) -> Iterator[tuple[str, bytes]]:
        """What a new subscriber is told first."""
        names = list(self._kept) if has_wildcard(topic_filter) else [topic_filter]
        for topic in names:
            kept = self._kept.get(topic)
            if kept is None or not filter_matches(topic_filter, topic):
                continue
            if kept.until_s <= now_s:
                del self._kept[topic]
            else:
                yield topic, kept.payload
