"""Packets of MQTT: what kinds there are, what the rules allow, and where they begin among bytes from the middle.

Called by the MQTT dissector. Pure functions over bytes; who said what to whom is the dissector's.
"""

from __future__ import annotations

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = range(1, 8)
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT, AUTH = range(8, 16)
NAMES = (
    "", "CONNECT", "CONNACK", "PUBLISH", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP", "SUBSCRIBE", "SUBACK", "UNSUBSCRIBE",
    "UNSUBACK", "PINGREQ", "PINGRESP", "DISCONNECT", "AUTH",
)  # fmt: skip
_FLAGS = {PUBREL: 2, SUBSCRIBE: 2, UNSUBSCRIBE: 2}
_SHORTEST = (0, 10, 2, 2, 2, 2, 2, 2, 5, 3, 4, 2, 0, 0, 0, 0)
_LONGEST = {PINGREQ: 0, PINGRESP: 0}
LARGE_CONTROL_BYTES = 1 << 20
"""Nobody's control packet is larger: the length is wrong."""

_MANY_TOPICS, _SHORT_TOPIC_BYTES = 16_384, 256
_TOPICS: dict[bytes, str] = {}
"""Topics as text; most are written again and again. So many are remembered, if they are no longer."""


def topic_text(words: bytes) -> str:
    """A topic, as text."""
    topic = _TOPICS.get(words)
    if topic is None:
        topic = words.decode("utf-8", "replace")
        if len(words) <= _SHORT_TOPIC_BYTES:
            if len(_TOPICS) >= _MANY_TOPICS:
                _TOPICS.clear()
            _TOPICS[words] = topic
    return topic


def topic_texts(topics: list[bytes]) -> list[str]:
    """Many of them."""
    known = list(map(_TOPICS.get, topics))
    return [topic_text(words) if text is None else text for words, text in zip(topics, known, strict=True)]


def length_at(data: bytes, here: int) -> tuple[int, int]:
    """A variable byte integer and where it ends; (-1, 0) if there is more to come, (-1, 1) if it is none."""
    value = 0
    for place in range(4):
        if here + place >= len(data):
            return -1, 0
        byte = data[here + place]
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value, here + place + 1
    return -1, 1


def filters_in(data: bytes, here: int, end: int, options: int) -> str | None:
    """The topic filters that fill this place, each with so many bytes of options behind it; None if they do not."""
    found: list[str] = []
    while here + 2 <= end:
        stop = here + 2 + (data[here] << 8 | data[here + 1])
        if stop + options > end or stop == here + 2:
            return None
        found.append(data[here + 2 : stop].decode("utf-8", "replace"))
        here = stop + options
    return ", ".join(found) if found and here == end else None


def possible(data: bytes, pos: int, body: int, length: int) -> bool:
    """Whether the rules allow such a packet, by its first bytes."""
    kind, flags = data[pos] >> 4, data[pos] & 15
    if kind != PUBLISH:
        shortest, longest = _SHORTEST[kind], _LONGEST.get(kind, length)
        return kind > 0 and flags == _FLAGS.get(kind, 0) and shortest <= length <= longest
    if length < 2 or flags & 6 == 6:
        return False
    if len(data) < body + 2:
        return True
    return (data[body] << 8 | data[body + 1]) + (4 if flags & 6 else 2) <= length


def _plausible(data: bytes, pos: int, body: int, length: int) -> bool:
    """Whether a packet of an orderly client or server looks like this: stricter, for finding the way back."""
    kind = data[pos] >> 4
    if not possible(data, pos, body, length):
        return False
    if kind == PUBLISH:
        size = data[body] << 8 | data[body + 1] if len(data) >= body + 2 else 0
        return not any(byte in b"\x00#+" for byte in data[body + 2 : body + 2 + min(size, 64)])
    if kind == CONNECT:
        return data[body : body + 6] in (b"\x00\x04MQTT", b"\x00\x06MQIs")
    # Reasons are followed by properties, and their length must be what is left.
    fixed = 2 if kind == CONNACK else 3 if PUBACK <= kind <= PUBCOMP else 1 if kind >= DISCONNECT else length
    if length <= fixed:
        return kind != CONNACK or data[body : body + 1] <= b"\x01"
    return data[body + fixed : body + fixed + 1] in (b"", bytes((min(255, length - fixed - 1),)))


def chain(data: bytes, pos: int, wanted: int = 3) -> int:
    """How many packets lie one behind the other from here; those that end exactly with the data count as `wanted`."""
    size, packets = len(data), 0
    while packets < wanted and pos + 2 <= size:
        length, body = length_at(data, pos + 1)
        if length < 0 or not _plausible(data, pos, body, length):
            return 0
        pos = body + length
        if pos > size:
            return packets
        packets += 1
    return wanted if packets and pos == size else packets


def opens(data: bytes) -> bool:
    """Whether a PUBLISH too long for what is there seems to begin here: its topic must be clean text."""
    if len(data) < 8 or data[0] >> 4 != PUBLISH:
        return False
    length, body = length_at(data, 1)
    if length <= len(data) - body or length > LARGE_CONTROL_BYTES or not _plausible(data, 0, body, length):
        return False
    size = data[body] << 8 | data[body + 1]
    topic = data[body + 2 : body + 2 + size]
    try:
        return 0 < size == len(topic) and topic.decode("utf-8").isprintable()
    except UnicodeDecodeError:
        return False


def search(data: bytes, start: int) -> int:
    """Where packets seem to begin; -1 if they do not."""
    size = len(data)
    for pos in range(start, size):
        # Most bytes are no first byte of anything.
        kind = data[pos] >> 4
        if kind and (kind == PUBLISH or data[pos] & 15 == _FLAGS.get(kind, 0)) and chain(data, pos) >= 2:
            return pos
    return -1
