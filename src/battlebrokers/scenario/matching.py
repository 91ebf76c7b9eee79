"""All topics of a plan, and which of them a filter means. Pure.

Called where a broker knows no wildcards: its clients subscribe to every topic of the plan that their filters match.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from battlebrokers.scenario.nodes import FilterPlan
from battlebrokers.scenario.topics import filter_matches


class Matching:
    """The topics a run can ever publish to; the same filter is looked up once."""

    def __init__(self, topics: Iterable[str]) -> None:
        self.topics = tuple(dict.fromkeys(topics))
        self._known = frozenset(self.topics)
        self._found: dict[str, tuple[str, ...]] = {}

    def matched_by(self, topic_filter: str) -> tuple[str, ...]:
        """The topics a filter means, in the plan's order."""
        found = self._found.get(topic_filter)
        if found is None:
            if "+" in topic_filter or "#" in topic_filter:
                found = tuple(topic for topic in self.topics if filter_matches(topic_filter, topic))
            else:
                found = (topic_filter,) if topic_filter in self._known else ()
            self._found[topic_filter] = found
        return found

    def spelled_out(self, subscriptions: Sequence[FilterPlan]) -> dict[FilterPlan, str]:
        """One subscription for every topic these mean, with the filter it stands for; the highest QoS wins."""
        best: dict[tuple[str, str | None], tuple[int, str]] = {}
        for wanted in subscriptions:
            for topic in self.matched_by(wanted.filter):
                key = (topic, wanted.share)
                if key not in best or best[key][0] < wanted.qos:
                    best[key] = (wanted.qos, wanted.filter)
        return {FilterPlan(topic, qos, share): meant for (topic, share), (qos, meant) in best.items()}
