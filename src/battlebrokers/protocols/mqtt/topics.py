"""What the specifications allow as a topic name and as a topic filter.

Called by encode and decode; raises MalformedPacket, returns nothing.
"""

from __future__ import annotations

from battlebrokers.protocols.mqtt.malformed import FILTER_INVALID, PROTOCOL_ERROR, MalformedPacket

_SHARE = "$share/"
_MOST_KNOWN = 65_536
known_topics: set[bytes] = set()
"""Topic names of received messages that were found valid: `learn_topic` fills it, the receiver looks into it first."""


def learn_topic(topic: bytes) -> None:
    """Check the topic name of a received PUBLISH in full, and remember it; MalformedPacket if it is none."""
    try:
        text = topic.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedPacket(f"a topic name is not valid UTF-8: {error.reason}") from None
    if "\0" in text:
        raise MalformedPacket("a topic name contains U+0000")
    check_topic(text)
    if len(known_topics) >= _MOST_KNOWN:
        known_topics.clear()
    known_topics.add(topic)


def plainly_valid(topics: bytes) -> bool:
    """Whether topic names in a row are valid at first sight: ASCII, no U+0000, no wildcard. If not, look at each."""
    return topics.isascii() and b"\0" not in topics and b"+" not in topics and b"#" not in topics


def check_topic(topic: str) -> None:
    """A topic name: at least one character, no wildcards."""
    if not topic:
        raise MalformedPacket("a topic name is empty")
    if "+" in topic or "#" in topic:
        raise MalformedPacket(f"the topic name {topic[:80]!r} contains a wildcard")


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
