"""Which topic matches which filter, by MQTT's rules. Plain Python on the driver: names are few, messages many.

Called by the audience step. Exact filters cost one look-up a topic; wildcards walk a tree once a topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Level:
    """One level of the tree of wildcard filters."""

    below: dict[str, _Level] = field(default_factory=dict)
    ends_here: list[int] = field(default_factory=list)
    rest: list[int] = field(default_factory=list)
    """Filters that continue with `#` from here."""


class FilterTree:
    """All filters of a run, ready to be asked for one topic after the other."""

    def __init__(self, filters: Iterable[str]) -> None:
        self._exact: dict[str, list[int]] = {}
        self._root = _Level()
        for number, topic_filter in enumerate(filters):
            if "+" in topic_filter or "#" in topic_filter:
                self._plant(topic_filter, number)
            else:
                self._exact.setdefault(topic_filter, []).append(number)

    def _plant(self, topic_filter: str, number: int) -> None:
        level = self._root
        for word in topic_filter.split("/"):
            if word == "#":
                level.rest.append(number)
                return
            level = level.below.setdefault(word, _Level())
        level.ends_here.append(number)

    def matching(self, topic: str) -> list[int]:
        """The numbers of all filters that match a topic, in ascending order."""
        found = list(self._exact.get(topic, ()))
        if self._root.below or self._root.rest:
            words = topic.split("/")
            levels = [self._root]
            # A wildcard in the first place does not see topics of the broker itself ($SYS/…).
            hidden = topic.startswith("$")
            for depth, word in enumerate(words):
                shy = hidden and depth == 0
                deeper: list[_Level] = []
                for level in levels:
                    if not shy:
                        found.extend(level.rest)
                    deeper.extend(self._step(level, word, shy=shy))
                levels = deeper
                if not levels:
                    break
            for level in levels:
                found.extend(level.ends_here)
                found.extend(level.rest)  # `sport/#` matches `sport` too
        return sorted(found)

    @staticmethod
    def _step(level: _Level, word: str, *, shy: bool) -> Iterator[_Level]:
        if (exact := level.below.get(word)) is not None:
            yield exact
        if not shy and word != "+" and (any_word := level.below.get("+")) is not None:
            yield any_word


def match_topics(topics: Iterable[str], filters: Iterable[str]) -> list[tuple[int, int]]:
    """Pairs (topic's place, filter's place) of everything that matches."""
    tree = FilterTree(filters)
    return [(place, number) for place, topic in enumerate(topics) for number in tree.matching(topic)]
