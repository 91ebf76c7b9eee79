"""Which client wants which topics: exact names and filters with wildcards. Pure; asked for every arrival."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from battlebrokers.scenario.topics import filter_matches

Who = TypeVar("Who", bound=Hashable)


def has_wildcard(topic_filter: str) -> bool:
    """Whether a filter may match more than one topic."""
    return "+" in topic_filter or "#" in topic_filter


class Interest(Generic[Who]):
    """Filter → who subscribed with it; one who matches a topic several times is told once."""

    def __init__(self) -> None:
        self._exact: dict[str, dict[Who, None]] = {}
        self._wild: dict[str, dict[Who, None]] = {}
        self._filters: dict[Who, set[str]] = {}
        self._listeners: dict[str, tuple[Who, ...]] = {}

    def add(self, who: Who, topic_filter: str) -> bool:
        """Subscribe; tells whether that is new."""
        mine = self._filters.setdefault(who, set())
        if topic_filter in mine:
            return False
        mine.add(topic_filter)
        self._table(topic_filter).setdefault(topic_filter, {})[who] = None
        self._listeners.clear()
        return True

    def remove(self, who: Who, topic_filter: str) -> bool:
        """Unsubscribe; tells whether there was something to end."""
        mine = self._filters.get(who, set())
        if topic_filter not in mine:
            return False
        mine.remove(topic_filter)
        if not mine:
            del self._filters[who]
        table = self._table(topic_filter)
        del table[topic_filter][who]
        if not table[topic_filter]:
            del table[topic_filter]
        self._listeners.clear()
        return True

    def forget(self, who: Who) -> None:
        """Unsubscribe from everything."""
        for topic_filter in tuple(self._filters.get(who, ())):
            self.remove(who, topic_filter)

    def count(self, who: Who) -> int:
        """How many filters somebody has."""
        return len(self._filters.get(who, ()))

    def listeners(self, topic: str) -> tuple[Who, ...]:
        """Everybody who wants a topic, each once."""
        found = self._listeners.get(topic)
        if found is None:
            wanting = dict(self._exact.get(topic, {}))
            for topic_filter, who in self._wild.items():
                if filter_matches(topic_filter, topic):
                    wanting.update(who)
            found = self._listeners[topic] = tuple(wanting)
        return found

    def wants(self, topic: str) -> bool:
        """Whether anybody wants a topic; remembers nothing, as it is asked for every topic of the network."""
        return topic in self._exact or any(filter_matches(one, topic) for one in self._wild)

    def exact(self) -> tuple[str, ...]:
        """The topics that somebody named."""
        return tuple(self._exact)

    def _table(self, topic_filter: str) -> dict[str, dict[Who, None]]:
        return self._wild if has_wildcard(topic_filter) else self._exact
