"""MQTT topics and filters: what is valid, what matches, and which topic a device uses next.

Called by the scenario model, the estimates and the devices. Pure; topics here are plain strings, already rendered.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from battlebrokers.errors import QuantityError
from battlebrokers.scenario import dice

_LONGEST_BYTES = 65_535


def _check_text(text: str, what: str) -> None:
    if not text:
        raise QuantityError(f"a {what} cannot be empty")
    if "\0" in text:
        raise QuantityError(f"a {what} cannot contain the character NUL")
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise QuantityError(f"a {what} must be valid Unicode text") from None
    if size > _LONGEST_BYTES:
        raise QuantityError(f"a {what} can have at most {_LONGEST_BYTES} bytes, this one has {size}")


def check_topic(topic: str) -> None:
    """Raise QuantityError unless a device may publish to it."""
    _check_text(topic, "topic")
    if "+" in topic or "#" in topic:
        raise QuantityError(
            f"{topic!r} contains a wildcard", hint="devices publish to exact topics; wildcards are for `subscribe`"
        )
    if topic.startswith("$"):
        raise QuantityError(f"{topic!r} starts with $", hint="such topics belong to the broker")


def check_filter(topic_filter: str) -> None:
    """Raise QuantityError unless a client may subscribe to it."""
    _check_text(topic_filter, "filter")
    if topic_filter.startswith("$share/"):
        raise QuantityError(
            f"{topic_filter!r} names a shared group", hint="write the filter alone and `share: GROUP` beside it"
        )
    levels = topic_filter.split("/")
    for place, level in enumerate(levels):
        if "#" in level and (level != "#" or place != len(levels) - 1):
            raise QuantityError(f"{topic_filter!r} is not a valid filter", hint="# must be the whole last level")
        if "+" in level and level != "+":
            raise QuantityError(f"{topic_filter!r} is not a valid filter", hint="+ must be a whole level")


def check_share(group: str) -> None:
    """Raise QuantityError unless it can name a shared group."""
    _check_text(group, "shared group")
    if any(character in group for character in "/+#"):
        raise QuantityError(f"{group!r} cannot name a shared group", hint="no /, + or #")


def filter_matches(topic_filter: str, topic: str) -> bool:
    """Whether a message on that topic goes to a subscription with that filter ($-topics need it spelled out)."""
    if topic_filter == topic:
        return True
    if topic[:1] == "$" and topic_filter[:1] in ("+", "#"):
        return False
    wanted = topic_filter.split("/")
    levels = topic.split("/")
    for place, level in enumerate(wanted):
        if level == "#":
            return True
        if place == len(levels) or (level not in ("+", levels[place])):
            return False
    return len(wanted) == len(levels)


def dice_seed(choice: str, seed: int) -> int:
    """The seed of the dice that choose a device's topics; -1 where they are taken in turn."""
    return dice.branch(seed, dice.TOPIC) if choice == "random" else -1


class TopicChooser:
    """Which of a device's topics its n-th message goes to: `random` or `round-robin`."""

    __slots__ = ("_count", "_seed", "topics")

    def __init__(self, topics: Sequence[str], choice: str, seed: int) -> None:
        self.topics = topics
        self._count = len(topics)
        self._seed = dice_seed(choice, seed)

    def choose(self, first_seq: int, count: int) -> int | npt.NDArray[np.int64]:
        """Indexes into `topics` for these messages; just 0 if there is only one topic."""
        if self._count == 1:
            return 0
        if self._seed >= 0:
            return dice.belows(self._seed, first_seq, count, self._count)
        return np.arange(first_seq, first_seq + count, dtype=np.int64) % self._count
