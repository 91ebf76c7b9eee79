"""What the specifications allow as a topic name and as a topic filter.

Called by encode and decode; raises MalformedPacket, returns nothing.
"""

from __future__ import annotations

from battlebrokers.protocols.mqtt.malformed import FILTER_INVALID, PROTOCOL_ERROR, TOPIC_INVALID, MalformedPacket

_SHARE = "$share/"


def check_topic(topic: str) -> None:
    """A topic name: at least one character, no wildcards."""
    if not topic:
        raise MalformedPacket("a topic name is empty", TOPIC_INVALID)
    if "+" in topic or "#" in topic:
        raise MalformedPacket(f"the topic name {topic[:80]!r} contains a wildcard", TOPIC_INVALID)


def check_filter(topic_filter: str, version: int, *, no_local: bool = False) -> None:
    """A topic filter: wildcards fill whole levels, `#` is last; MQTT 5 also knows `$share/name/filter`."""
    rest = topic_filter
    if version == 5 and topic_filter.startswith(_SHARE):
        name, slash, rest = topic_filter[len(_SHARE) :].partition("/")
        if not name or not slash or "+" in name or "#" in name:
            raise MalformedPacket(f"{topic_filter[:80]!r} is not $share/name/filter", FILTER_INVALID)
        if no_local:
            raise MalformedPacket("a shared subscription cannot ask for no local", PROTOCOL_ERROR)
    if not rest:
        raise MalformedPacket("a topic filter is empty", FILTER_INVALID)
    if "+" not in rest and "#" not in rest:
        return
    levels = rest.split("/")
    if any(len(level) > 1 and ("+" in level or "#" in level) for level in levels) or "#" in levels[:-1]:
        raise MalformedPacket(f"the topic filter {topic_filter[:80]!r} has a misplaced wildcard", FILTER_INVALID)
