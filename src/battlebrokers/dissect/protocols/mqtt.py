"""MQTT 3.1, 3.1.1 and 5: plain packets many at once, others in one tight loop. Opened through the registry.

Pairs are keyed by initiator and packet id, for both sides count their own. Reason codes, and properties that identify
or explain, are details of a message. Without the CONNECT the version is learned from what only one version can mean.
"""

from __future__ import annotations

from battlebrokers.dissect.mqtt_packets import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    LARGE_CONTROL_BYTES,
    NAMES,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    chain,
    filters_in,
    length_at,
    opens,
    possible,
    search,
    topic_text,
)
from battlebrokers.dissect.mqtt_plain import tell_plain
from battlebrokers.dissect.mqtt_properties import NO_PROPERTIES, Properties, properties_at, properties_of, with_reasons
from battlebrokers.dissect.registry import dissector
from battlebrokers.dissect.runs import Spoken
from battlebrokers.dissect.talk import CLIENT, WHOLE_MESSAGE_BYTES, Dissection, Talk
from battlebrokers.tables.message_header import HEADER_BYTES

_LARGE_FRONT_BYTES = 192 * 1024
"""Topic and properties of a large PUBLISH are waited for up to here."""

_PLAIN_PUBACK = PUBACK << 4
_RELEASE, _FILTERS, _FAREWELL = 1 << 16, 2 << 16, 3 << 16
"""Added to the packet id in keys: exchanges of PUBREL, SUBSCRIBE and UNSUBSCRIBE. Those of PUBLISH have the bare id."""
_SERVER_KEY = 1 << 20
_MQTT_5 = 5
_FAILURE = 0x80


def _recognise(from_client: bytes, from_server: bytes) -> float:
    for front in (from_client, from_server):
        if front[:1] == b"\x10" and (b"\x00\x04MQTT" in front[2:11] or b"\x00\x06MQIsdp" in front[2:13]):
            return 1.0
    # Captured from the middle: several packets one behind the other are no accident.
    packets = max(chain(from_client, 0), chain(from_server, 0))
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
        return 0 if opens(data) else search(data, 0)

    def feed_runs(self, spoken: Spoken) -> int:
        """Read runs of nothing but plain packets, many at once."""
        if any(self._lost):
            return 0
        runs, paired = tell_plain(self._talk, spoken, is_5=self._version == _MQTT_5)
        talk = self._talk
        for number, first, sender, packet_id in zip(*paired.columns(), strict=True):
            own = sender * _SERVER_KEY + packet_id
            if first >> 4 == PUBLISH:
                if not (first & 8 and talk.waiting(own)):
                    talk.ask(own, number)
            else:
                self._acknowledged(sender, first >> 4, packet_id, number)
        return runs

    def feed(self, sender: int, data: bytes, at: int) -> int:
        """Read packets; a PUBLISH is by far the most frequent and read in place."""
        talk = self._talk
        talk.need[sender] = 0
        size = len(data)
        pos = 0
        if self._lost[sender]:
            pos = search(data, 0)
            if pos < 0:
                talk.undecoded(size)
                return size
            talk.undecoded(pos)
            self._lost[sender] = False
        side = sender * _SERVER_KEY
        is_5 = self._version == _MQTT_5
        while pos + 2 <= size:
            first = data[pos]
            length = data[pos + 1]
            body = pos + 2
            if length > 127:
                if body < size and data[body] < 128:
                    length += (data[body] - 1) << 7
                    body += 1
                else:
                    length, body = length_at(data, pos + 1)
                    if length < 0:
                        if body == 0:
                            break
                        pos = self._malformed(sender, data, pos)
                        continue
            end = body + length
            if length > WHOLE_MESSAGE_BYTES:
                return self._large(sender, data, at, pos, body, length)
            if end > size:
                if not possible(data, pos, body, length):
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
            if first >> 4 != PUBLISH:
                kind = first >> 4
                if not possible(data, pos, body, length) or not self._control(sender, kind, data, at, pos, body, end):
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
            topic = topic_text(data[body + 2 : here])
            packet_id, kept = 0, ""
            if qos:
                here += 2
                if here <= end:
                    packet_id = data[here - 2] << 8 | data[here - 1]
            if is_5 and here < end:
                properties = data[here]
                here += 1
                if properties:
                    properties, here = length_at(data, here - 1)
                    if properties < 0 or here + properties > end:
                        pos = self._malformed(sender, data, pos)
                        continue
                    alias, kept = properties_of(data[here : here + properties])
                    topic = self._aliased(sender, topic, alias) if alias else topic
                    here += properties
            if here > end:
                pos = self._malformed(sender, data, pos)
                continue
            if qos:
                number = talk.add(sender, at + pos, at + end, "PUBLISH", topic, str(packet_id), payload=data[here:end])
                if not (first & 8 and talk.waiting(side + packet_id)):
                    talk.ask(side + packet_id, number)
            else:
                number = talk.add(sender, at + pos, at + end, "PUBLISH", topic, payload=data[here:end])
            if kept:
                talk.detail(number, None, kept)
            pos = end
        return pos

    def _control(self, sender: int, kind: int, data: bytes, at: int, pos: int, body: int, end: int) -> bool:
        """Every packet but PUBLISH; False if it breaks the rules."""
        talk = self._talk
        if kind == CONNECT:
            return self._connect(sender, data, at, pos, body, end)
        length = end - body
        start, stop, name = at + pos, at + end, NAMES[kind]
        if kind >= PINGREQ:
            reason = data[body] if length and kind in (DISCONNECT, AUTH) else None
            number = talk.add(sender, start, stop, name, failed=reason is not None and reason >= _FAILURE)
            if reason is not None:
                talk.detail(number, reason, properties_at(data, body + 1, end)[0].text)
            if kind == PINGREQ:
                talk.ask("PING", number, ordered=True)
            elif kind == PINGRESP:
                talk.answer("PING", number, early=True)
            elif kind == AUTH:
                self._auth(sender, number)
            return True
        if kind == CONNACK:
            if not self._version:
                self._version = 4 if length == 2 else _MQTT_5
            number = talk.add(sender, start, stop, name, failed=data[body + 1] != 0)
            is_5 = self._version == _MQTT_5
            talk.detail(number, data[body + 1], properties_at(data, body + 2, end)[0].text if is_5 else "")
            talk.answer("CONNECT", number, early=True)
            if talk.waiting("AUTH"):
                talk.answer("AUTH", number)
            return True
        packet_id = data[body] << 8 | data[body + 1]
        own, other = sender * _SERVER_KEY + packet_id, (1 - sender) * _SERVER_KEY + packet_id
        if kind in (SUBSCRIBE, UNSUBSCRIBE):
            filters = self._filters(kind, data, body + 2, end)
            if filters is None:
                return False
            number = talk.add(sender, start, stop, name, filters, str(packet_id))
            if self._version == _MQTT_5 and (kept := properties_at(data, body + 2, end)[0].text):
                talk.detail(number, None, kept)
            talk.ask(own + (_FILTERS if kind == SUBSCRIBE else _FAREWELL), number)
            return True
        if kind in (SUBACK, UNSUBACK):
            properties, reasons = self._reasons(data, body + 2, end)
            worst = max(reasons, default=None)
            failed = worst is not None and worst >= _FAILURE
            number = talk.add(sender, start, stop, name, "", str(packet_id), failed=failed)
            if worst is not None or properties.text:
                talk.detail(number, worst, with_reasons(properties, reasons))
            talk.answer(other + (_FILTERS if kind == SUBACK else _FAREWELL), number, early=True)
            return True
        if length > 2 and not self._version:
            self._version = _MQTT_5
        failed = length > 2 and data[body + 2] >= _FAILURE
        number = talk.add(sender, start, stop, name, "", str(packet_id), failed=failed)
        if length > 2:
            talk.detail(number, data[body + 2], properties_at(data, body + 3, end)[0].text)
        self._acknowledged(sender, kind, packet_id, number)
        return True

    def _acknowledged(self, sender: int, kind: int, packet_id: int, number: int) -> None:
        """PUBACK, PUBREC and PUBCOMP answer; PUBREL asks once more."""
        if kind != PUBREL:
            key = (1 - sender) * _SERVER_KEY + packet_id + (_RELEASE if kind == PUBCOMP else 0)
            self._talk.answer(key, number, early=True)
            return
        key = sender * _SERVER_KEY + packet_id + _RELEASE
        if not self._talk.waiting(key):
            self._talk.ask(key, number)

    def _connect(self, sender: int, data: bytes, at: int, pos: int, body: int, end: int) -> bool:
        here = body + 2 + (data[body] << 8 | data[body + 1])
        if here + 4 > end or data[body + 2 : here] not in (b"MQTT", b"MQIsdp"):
            return False
        # Bridges set the highest bit of the version.
        self._version = data[here] & 0x7F
        here += 4
        kept = ""
        if self._version == _MQTT_5:
            found, here = properties_at(data, here, end)
            if here < 0:
                return False
            kept = found.text
        if here + 2 > end:
            return False
        stop = here + 2 + (data[here] << 8 | data[here + 1])
        if stop > end:
            return False
        client_id = data[here + 2 : stop].decode("utf-8", "replace")
        number = self._talk.add(sender, at + pos, at + end, "CONNECT", client_id)
        if kept:
            self._talk.detail(number, None, kept)
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
        options = 1 if kind == SUBSCRIBE else 0
        if self._version != _MQTT_5:
            found = filters_in(data, here, end, options)
            if found is not None or self._version:
                return found
        properties, here = length_at(data, here)
        if properties < 0:
            return None
        found = filters_in(data, here + properties, end, options)
        if found is not None:
            self._version = _MQTT_5
        return found

    def _reasons(self, data: bytes, here: int, end: int) -> tuple[Properties, bytes]:
        """The properties of a SUBACK or UNSUBACK, and its code for each filter."""
        properties = NO_PROPERTIES
        if self._version == _MQTT_5:
            properties, here = properties_at(data, here, end)
        return properties, data[here:end] if here >= 0 else b""

    def _aliased(self, sender: int, topic: str, alias: int) -> str:
        """The topic, by its alias if it has none of its own."""
        aliases = self._aliases[sender]
        if topic:
            aliases[alias] = topic
        return topic or aliases.get(alias, "")

    def _large(self, sender: int, data: bytes, at: int, pos: int, body: int, length: int) -> int:
        """A packet too large to wait for: its front tells what it is, the rest is not shown."""
        talk, size, kind = self._talk, len(data), data[pos] >> 4
        if not possible(data, pos, body, length) or (kind != PUBLISH and length > LARGE_CONTROL_BYTES):
            return self._malformed(sender, data, pos)
        end = body + length
        if kind != PUBLISH:
            talk.add(sender, at + pos, at + end, NAMES[kind])
            talk.skip(sender, length)
            return body
        qos = data[pos] >> 1 & 3
        here = body + 2 + (data[body] << 8 | data[body + 1]) if size >= body + 2 else end
        topic, packet_id, kept = data[body + 2 : here].decode("utf-8", "replace"), 0, ""
        if qos and here + 2 <= size:
            packet_id = data[here] << 8 | data[here + 1]
        here += 2 if qos else 0
        if self._version == _MQTT_5:
            properties, after = length_at(data, here)
            if after == 1:
                return self._malformed(sender, data, pos)
            if after:
                alias, kept = properties_of(data[after : after + properties])
                topic = self._aliased(sender, topic, alias) if alias else topic
            here = after + properties if after else end
        if min(here, body + _LARGE_FRONT_BYTES) + HEADER_BYTES > size:
            talk.need[sender] = min(size + 64, end) - pos
            return pos
        number = talk.add(
            sender, at + pos, at + end, "PUBLISH", topic, str(packet_id) if qos else "",
            payload=data[here : here + HEADER_BYTES], payload_bytes=max(0, end - here),
        )  # fmt: skip
        if kept:
            talk.detail(number, None, kept)
        if qos and not (data[pos] & 8 and talk.waiting(sender * _SERVER_KEY + packet_id)):
            talk.ask(sender * _SERVER_KEY + packet_id, number)
        talk.skip(sender, length)
        return body

    def _malformed(self, sender: int, data: bytes, pos: int) -> int:
        """Something that is no packet begins here: where the next one begins."""
        found = search(data, pos + 1)
        if found < 0:
            self._lost[sender] = True
            found = len(data)
        self._talk.broken(found - pos)
        return found
