"""MQTT 3.1, 3.1.1 and 5: one tight loop over the bytes, since brokers talk little else. Opened through the registry.

Pairs are keyed by initiator and packet id, for both sides count their own. Properties are read as far as the payload
and the topic alias need it. Without the CONNECT the version is learned from packets that only one version can mean.
"""

from __future__ import annotations

from battlebrokers.dissect.registry import dissector
from battlebrokers.dissect.talk import CLIENT, WHOLE_MESSAGE_BYTES, Dissection, Talk
from battlebrokers.tables.message_header import HEADER_BYTES

_CONNECT, _CONNACK, _PUBLISH, _PUBACK, _PUBREC, _PUBREL, _PUBCOMP = range(1, 8)
_SUBSCRIBE, _SUBACK, _UNSUBSCRIBE, _UNSUBACK, _PINGREQ, _PINGRESP, _DISCONNECT, _AUTH = range(8, 16)
_NAMES = (
    "", "CONNECT", "CONNACK", "PUBLISH", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP", "SUBSCRIBE", "SUBACK", "UNSUBSCRIBE",
    "UNSUBACK", "PINGREQ", "PINGRESP", "DISCONNECT", "AUTH",
)  # fmt: skip
_FLAGS = {_PUBREL: 2, _SUBSCRIBE: 2, _UNSUBSCRIBE: 2}
_SHORTEST = (0, 10, 2, 2, 2, 2, 2, 2, 5, 3, 4, 2, 0, 0, 0, 0)
_LONGEST = {_PINGREQ: 0, _PINGRESP: 0}
_LARGE_CONTROL_BYTES = 1 << 20
"""Nobody's control packet is larger: the length is wrong."""
_LARGE_FRONT_BYTES = 192 * 1024
"""Topic and properties of a large PUBLISH are waited for up to here."""

_PLAIN_PUBACK = _PUBACK << 4
_MANY_TOPICS, _SHORT_TOPIC_BYTES = 16_384, 256
_TOPICS: dict[bytes, str] = {}
"""Topics as text; most are written again and again. So many are remembered, if they are no longer."""

_RELEASE, _FILTERS, _FAREWELL = 1 << 16, 2 << 16, 3 << 16
"""Added to the packet id in keys: exchanges of PUBREL, SUBSCRIBE and UNSUBSCRIBE. Those of PUBLISH have the bare id."""
_SERVER_KEY = 1 << 20
_MQTT_5 = 5
_ALIAS = 0x23
_FAILURE = 0x80

_FIXED_PROPERTIES = {
    0x01: 1, 0x02: 4, 0x11: 4, 0x13: 2, 0x17: 1, 0x18: 4, 0x19: 1, 0x21: 2, 0x22: 2, 0x23: 2, 0x24: 1, 0x25: 1,
    0x27: 4, 0x28: 1, 0x29: 1, 0x2A: 1,
}  # fmt: skip
_TEXT_PROPERTIES = frozenset({0x03, 0x08, 0x09, 0x12, 0x15, 0x16, 0x1A, 0x1C, 0x1F})
_SUBSCRIPTION_ID, _USER_PROPERTY = 0x0B, 0x26


def _recognise(from_client: bytes, from_server: bytes) -> float:
    for front in (from_client, from_server):
        if front[:1] == b"\x10" and (b"\x00\x04MQTT" in front[2:11] or b"\x00\x06MQIsdp" in front[2:13]):
            return 1.0
    # Captured from the middle: several packets one behind the other are no accident.
    packets = max(_chain(from_client, 0), _chain(from_server, 0))
    return 0.6 if packets >= 3 else 0.3 if packets == 2 else 0.0


@dissector("mqtt", ports=(1883,), recognise=_recognise)
def mqtt(talk: Talk) -> Dissection:
    """Begin a conversation in MQTT."""
    return _Mqtt(talk)


class _Mqtt:
    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._version = 0
        """0: not known (yet)."""
        self._aliases: tuple[dict[int, str], dict[int, str]] = ({}, {})
        self._lost = [False, False]

    def gap(self, sender: int, missing_bytes: int) -> None:
        """Aliases may have been given a new meaning in what is missing."""
        self._aliases[sender].clear()
        self._lost[sender] = False

    def resync(self, sender: int, data: bytes) -> int:
        """Segments mostly begin with a packet."""
        return 0 if _opens(data) else _search(data, 0)

    def feed(self, sender: int, data: bytes, at: int) -> int:
        """Read packets; a PUBLISH is by far the most frequent and read in place."""
        talk = self._talk
        talk.need[sender] = 0
        size = len(data)
        pos = 0
        if self._lost[sender]:
            pos = _search(data, 0)
            if pos < 0:
                talk.undecoded(size)
                return size
            talk.undecoded(pos)
            self._lost[sender] = False
        side = sender * _SERVER_KEY
        is_5, topics = self._version == _MQTT_5, _TOPICS
        while pos + 2 <= size:
            first = data[pos]
            length = data[pos + 1]
            body = pos + 2
            if length > 127:
                if body < size and data[body] < 128:
                    length += (data[body] - 1) << 7
                    body += 1
                else:
                    length, body = _length(data, pos + 1)
                    if length < 0:
                        if body == 0:
                            break
                        pos = self._malformed(sender, data, pos)
                        continue
            end = body + length
            if length > WHOLE_MESSAGE_BYTES:
                return self._large(sender, data, at, pos, body, length)
            if end > size:
                if not _possible(data, pos, body, length):
                    pos = self._malformed(sender, data, pos)
                    continue
                talk.need[sender] = end - pos
                break
            if first == _PLAIN_PUBACK and length == 2:
                packet_id = data[body] << 8 | data[body + 1]
                number = talk.add(sender, at + pos, at + end, "PUBACK", "", str(packet_id))
                talk.answer(_SERVER_KEY - side + packet_id, number, early=True)
                pos = end
                continue
            if first >> 4 != _PUBLISH:
                kind = first >> 4
                if not _possible(data, pos, body, length) or not self._control(sender, kind, data, at, pos, body, end):
                    pos = self._malformed(sender, data, pos)
                    continue
                is_5 = self._version == _MQTT_5
                pos = end
                continue
            qos = first >> 1 & 3
            if length < 2 or qos == 3:
                pos = self._malformed(sender, data, pos)
                continue
            here = body + 2 + (data[body] << 8 | data[body + 1])
            words = data[body + 2 : here]
            topic = topics.get(words)
            if topic is None:
                topic = _topic(words)
            packet_id = 0
            if qos:
                here += 2
                if here <= end:
                    packet_id = data[here - 2] << 8 | data[here - 1]
            if is_5 and here < end:
                properties = data[here]
                here += 1
                if properties:
                    properties, here = _length(data, here - 1)
                    if properties < 0 or here + properties > end:
                        pos = self._malformed(sender, data, pos)
                        continue
                    topic = self._aliased(sender, topic, data, here, here + properties)
                    here += properties
            if here > end:
                pos = self._malformed(sender, data, pos)
                continue
            if qos:
                number = talk.add(sender, at + pos, at + end, "PUBLISH", topic, str(packet_id), payload=data[here:end])
                if not (first & 8 and talk.waiting(side + packet_id)):
                    talk.ask(side + packet_id, number)
            else:
                talk.add(sender, at + pos, at + end, "PUBLISH", topic, payload=data[here:end])
            pos = end
        return pos

    def _control(self, sender: int, kind: int, data: bytes, at: int, pos: int, body: int, end: int) -> bool:
        """Every packet but PUBLISH; False if it breaks the rules."""
        talk = self._talk
        if kind == _CONNECT:
            return self._connect(sender, data, at, pos, body, end)
        length = end - body
        start, stop, name = at + pos, at + end, _NAMES[kind]
        if kind >= _PINGREQ:
            reason = data[body] if length and kind in (_DISCONNECT, _AUTH) else 0
            number = talk.add(sender, start, stop, name, failed=reason >= _FAILURE)
            if kind == _PINGREQ:
                talk.ask("PING", number, ordered=True)
            elif kind == _PINGRESP:
                talk.answer("PING", number, early=True)
            elif kind == _AUTH:
                self._auth(sender, number)
            return True
        if kind == _CONNACK:
            if not self._version:
                self._version = 4 if length == 2 else _MQTT_5
            number = talk.add(sender, start, stop, name, failed=data[body + 1] != 0)
            talk.answer("CONNECT", number, early=True)
            if talk.waiting("AUTH"):
                talk.answer("AUTH", number)
            return True
        packet_id = data[body] << 8 | data[body + 1]
        own, other = sender * _SERVER_KEY + packet_id, (1 - sender) * _SERVER_KEY + packet_id
        if kind in (_SUBSCRIBE, _UNSUBSCRIBE):
            filters = self._filters(kind, data, body + 2, end)
            if filters is None:
                return False
            number = talk.add(sender, start, stop, name, filters, str(packet_id))
            talk.ask(own + (_FILTERS if kind == _SUBSCRIBE else _FAREWELL), number)
            return True
        if kind in (_SUBACK, _UNSUBACK):
            number = talk.add(sender, start, stop, name, "", str(packet_id), failed=self._refused(data, body + 2, end))
            talk.answer(other + (_FILTERS if kind == _SUBACK else _FAREWELL), number, early=True)
            return True
        if length > 2 and not self._version:
            self._version = _MQTT_5
        failed = length > 2 and data[body + 2] >= _FAILURE
        number = talk.add(sender, start, stop, name, "", str(packet_id), failed=failed)
        if kind == _PUBREL:
            if not talk.waiting(own + _RELEASE):
                talk.ask(own + _RELEASE, number)
        else:
            talk.answer(other + (_RELEASE if kind == _PUBCOMP else 0), number, early=True)
        return True

    def _connect(self, sender: int, data: bytes, at: int, pos: int, body: int, end: int) -> bool:
        here = body + 2 + (data[body] << 8 | data[body + 1])
        if here + 4 > end or data[body + 2 : here] not in (b"MQTT", b"MQIsdp"):
            return False
        # Bridges set the highest bit of the version.
        self._version = data[here] & 0x7F
        here += 4
        if self._version == _MQTT_5:
            properties, here = _length(data, here)
            if properties < 0:
                return False
            here += properties
        if here + 2 > end:
            return False
        stop = here + 2 + (data[here] << 8 | data[here + 1])
        if stop > end:
            return False
        client_id = data[here + 2 : stop].decode("utf-8", "replace")
        number = self._talk.add(sender, at + pos, at + end, "CONNECT", client_id)
        self._talk.ask("CONNECT", number, ordered=True)
        return True

    def _auth(self, sender: int, number: int) -> None:
        """Enhanced authentication: the server's AUTH answers the client's, or a CONNECT whose answer goes on."""
        if sender == CLIENT:
            self._talk.ask("AUTH", number, ordered=True)
        elif self._talk.waiting("AUTH"):
            self._talk.answer("AUTH", number)
        else:
            self._talk.answer("CONNECT", number, final=False)

    def _filters(self, kind: int, data: bytes, here: int, end: int) -> str | None:
        """The topic filters of a SUBSCRIBE or UNSUBSCRIBE; None if they are not there."""
        options = 1 if kind == _SUBSCRIBE else 0
        if self._version != _MQTT_5:
            found = _filters(data, here, end, options)
            if found is not None or self._version:
                return found
        properties, here = _length(data, here)
        if properties < 0:
            return None
        found = _filters(data, here + properties, end, options)
        if found is not None:
            self._version = _MQTT_5
        return found

    def _refused(self, data: bytes, here: int, end: int) -> bool:
        """Whether a SUBACK or UNSUBACK says no to any filter."""
        if self._version == _MQTT_5:
            properties, here = _length(data, here)
            here += max(0, properties)
        return any(reason >= _FAILURE for reason in data[here:end])

    def _aliased(self, sender: int, topic: str, data: bytes, here: int, end: int) -> str:
        """The topic, by its alias if it has none of its own."""
        alias = _topic_alias(data, here, end)
        if not alias:
            return topic
        aliases = self._aliases[sender]
        if topic:
            aliases[alias] = topic
        return topic or aliases.get(alias, "")

    def _large(self, sender: int, data: bytes, at: int, pos: int, body: int, length: int) -> int:
        """A packet too large to wait for: its front tells what it is, the rest is not shown."""
        talk, size, kind = self._talk, len(data), data[pos] >> 4
        if not _possible(data, pos, body, length) or (kind != _PUBLISH and length > _LARGE_CONTROL_BYTES):
            return self._malformed(sender, data, pos)
        end = body + length
        if kind != _PUBLISH:
            talk.add(sender, at + pos, at + end, _NAMES[kind])
            talk.skip(sender, length)
            return body
        qos = data[pos] >> 1 & 3
        here = body + 2 + (data[body] << 8 | data[body + 1]) if size >= body + 2 else end
        topic, packet_id = data[body + 2 : here].decode("utf-8", "replace"), 0
        if qos and here + 2 <= size:
            packet_id = data[here] << 8 | data[here + 1]
        here += 2 if qos else 0
        if self._version == _MQTT_5:
            properties, after = _length(data, here)
            if after == 1:
                return self._malformed(sender, data, pos)
            if after:
                topic = self._aliased(sender, topic, data, after, min(size, after + properties))
            here = after + properties if after else end
        if min(here, body + _LARGE_FRONT_BYTES) + HEADER_BYTES > size:
            talk.need[sender] = min(size + 64, end) - pos
            return pos
        number = talk.add(
            sender, at + pos, at + end, "PUBLISH", topic, str(packet_id) if qos else "",
            payload=data[here : here + HEADER_BYTES], payload_bytes=max(0, end - here),
        )  # fmt: skip
        if qos and not (data[pos] & 8 and talk.waiting(sender * _SERVER_KEY + packet_id)):
            talk.ask(sender * _SERVER_KEY + packet_id, number)
        talk.skip(sender, length)
        return body

    def _malformed(self, sender: int, data: bytes, pos: int) -> int:
        """Something that is no packet begins here: where the next one begins."""
        found = _search(data, pos + 1)
        if found < 0:
            self._lost[sender] = True
            found = len(data)
        self._talk.broken(found - pos)
        return found


def _topic(words: bytes) -> str:
    topic = words.decode("utf-8", "replace")
    if len(words) <= _SHORT_TOPIC_BYTES:
        if len(_TOPICS) >= _MANY_TOPICS:
            _TOPICS.clear()
        _TOPICS[words] = topic
    return topic


def _length(data: bytes, here: int) -> tuple[int, int]:
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


def _topic_alias(data: bytes, here: int, end: int) -> int:
    """The topic alias among these properties; 0 if there is none."""
    while here < end:
        identifier = data[here]
        here += 1
        if identifier == _ALIAS:
            return data[here] << 8 | data[here + 1] if here + 2 <= end else 0
        if identifier in _FIXED_PROPERTIES:
            here += _FIXED_PROPERTIES[identifier]
        elif identifier == _SUBSCRIPTION_ID:
            value, here = _length(data, here)
            if value < 0:
                return 0
        elif identifier in _TEXT_PROPERTIES or identifier == _USER_PROPERTY:
            for _ in range(2 if identifier == _USER_PROPERTY else 1):
                if here + 2 > end:
                    return 0
                here += 2 + (data[here] << 8 | data[here + 1])
        else:
            return 0
    return 0


def _filters(data: bytes, here: int, end: int, options: int) -> str | None:
    found: list[str] = []
    while here + 2 <= end:
        stop = here + 2 + (data[here] << 8 | data[here + 1])
        if stop + options > end or stop == here + 2:
            return None
        found.append(data[here + 2 : stop].decode("utf-8", "replace"))
        here = stop + options
    return ", ".join(found) if found and here == end else None


def _possible(data: bytes, pos: int, body: int, length: int) -> bool:
    """Whether the rules allow such a packet, by its first bytes."""
    kind, flags = data[pos] >> 4, data[pos] & 15
    if kind != _PUBLISH:
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
    if not _possible(data, pos, body, length):
        return False
    if kind == _PUBLISH:
        size = data[body] << 8 | data[body + 1] if len(data) >= body + 2 else 0
        return not any(byte in b"\x00#+" for byte in data[body + 2 : body + 2 + min(size, 64)])
    if kind == _CONNECT:
        return data[body : body + 6] in (b"\x00\x04MQTT", b"\x00\x06MQIs")
    # Reasons are followed by properties, and their length must be what is left.
    fixed = 2 if kind == _CONNACK else 3 if _PUBACK <= kind <= _PUBCOMP else 1 if kind >= _DISCONNECT else length
    if length <= fixed:
        return kind != _CONNACK or data[body : body + 1] <= b"\x01"
    return data[body + fixed : body + fixed + 1] in (b"", bytes((min(255, length - fixed - 1),)))


def _chain(data: bytes, pos: int, wanted: int = 3) -> int:
    """How many packets lie one behind the other from here; those that end exactly with the data count as `wanted`."""
    size, packets = len(data), 0
    while packets < wanted and pos + 2 <= size:
        length, body = _length(data, pos + 1)
        if length < 0 or not _plausible(data, pos, body, length):
            return 0
        pos = body + length
        if pos > size:
            return packets
        packets += 1
    return wanted if packets and pos == size else packets


def _opens(data: bytes) -> bool:
    """Whether a PUBLISH too long for what is there seems to begin here: its topic must be clean text."""
    if len(data) < 8 or data[0] >> 4 != _PUBLISH:
        return False
    length, body = _length(data, 1)
    if length <= len(data) - body or length > _LARGE_CONTROL_BYTES or not _plausible(data, 0, body, length):
        return False
    size = data[body] << 8 | data[body + 1]
    topic = data[body + 2 : body + 2 + size]
    try:
        return 0 < size == len(topic) and topic.decode("utf-8").isprintable()
    except UnicodeDecodeError:
        return False


def _search(data: bytes, start: int) -> int:
    """Where packets seem to begin; -1 if they do not."""
    size = len(data)
    for pos in range(start, size):
        # Most bytes are no first byte of anything.
        kind = data[pos] >> 4
        if kind and (kind == _PUBLISH or data[pos] & 15 == _FLAGS.get(kind, 0)) and _chain(data, pos) >= 2:
            return pos
    return -1
