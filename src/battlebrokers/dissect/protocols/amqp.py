"""AMQP 0-9-1: frames to methods, contents collected to one message under their method's name.

Synchronous methods pair by order within their channel, confirms and acknowledgements by delivery tag. Opened by the
registry. After bytes of a publisher are lost its channel's confirms are not paired any more: tags are counts.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from struct import Struct

from battlebrokers.dissect.amqp_methods import METHODS, short_strings
from battlebrokers.dissect.registry import dissector
from battlebrokers.dissect.talk import CLIENT, SERVER, WHOLE_MESSAGE_BYTES, Dissection, Talk

_FRAME = Struct(">BHI")
_METHOD = Struct(">HH")
_CONTENT = Struct(">HHQ")
_TAG = Struct(">QB")
_END = 0xCE
_LARGEST_BODY_BYTES = 1 << 50
"""A header may claim any size: what tables cannot hold nobody sends."""
_METHOD_FRAME, _HEADER_FRAME, _BODY_FRAME, _HEARTBEAT = 1, 2, 3, 8
_FRAME_TYPES = frozenset((_METHOD_FRAME, _HEADER_FRAME, _BODY_FRAME, _HEARTBEAT))
_MAX_METHOD_BYTES = 1 << 20
_CHANNELS = 65_536


_PUBLISH, _RETURN, _DELIVER, _GET, _GET_OK = (60, 40), (60, 50), (60, 60), (60, 70), (60, 71)
_CONSUME, _CONSUME_OK, _CANCEL, _CONFIRM = (60, 20), (60, 21), (60, 30), (85, 10)
_ACK, _REJECT, _NACK = (60, 80), (60, 90), (60, 120)
_OPENS = ((20, 10), (20, 11))
"""Per side: what begins a new use of a channel."""
_CLOSES = {(10, 50), (20, 40)}


class _Tags:
    """Delivery tags of one direction of one channel that wait for their acknowledgement."""

    def __init__(self, asker: int, channel: int, use: int) -> None:
        self._key = (asker, channel, use)
        self._open: dict[int, None] = {}
        self._last = 0
        self._early: dict[int, int] = {}
        self._early_up_to: deque[tuple[int, int]] = deque(maxlen=_CHANNELS)

    def ask(self, talk: Talk, tag: int, number: int) -> None:
        """Message `number` has this tag; its acknowledgement may have come before all of its content."""
        key = (*self._key, tag)
        talk.ask(key, number)
        self._last = max(self._last, tag)
        while self._early_up_to and self._early_up_to[0][0] < tag:
            self._early_up_to.popleft()
        answer = self._early.pop(tag, -1)
        if answer < 0 and self._early_up_to:
            answer = self._early_up_to[0][1]
        if answer >= talk.taken:
            talk.answer(key, answer)
            return
        self._open[tag] = None
        if len(self._open) > _CHANNELS:
            del self._open[next(iter(self._open))]

    def answer(self, talk: Talk, tag: int, number: int, *, multiple: bool) -> None:
        """Message `number` acknowledges this tag, or all up to it (0: all that were read before it)."""
        if multiple:
            for old in [*self._open]:
                if tag and old > tag:
                    break
                del self._open[old]
                talk.answer((*self._key, old), number)
            if tag > self._last:
                self._early_up_to.append((tag, number))
        elif tag in self._open:
            del self._open[tag]
            talk.answer((*self._key, tag), number)
        elif tag > self._last:
            if len(self._early) >= _CHANNELS:
                self._early.clear()
            self._early[tag] = number


@dataclass(slots=True)
class _Content:
    """A method with content whose frames are still coming."""

    method: tuple[int, int]
    start: int
    end: int
    name: str
    tag: int = 0
    acknowledged: bool = False
    size: int = -1
    seen: int = 0
    parts: list[bytes] = field(default_factory=list)


class _Channel:
    """One use of a channel number, both directions."""

    def __init__(self, number: int, use: int) -> None:
        self.number = number
        self.confirms = False
        self.published = 0
        self.acknowledges = False
        """Whether the client has acknowledged anything: what tells of consumers whose beginning was not seen."""
        self.tags = (_Tags(CLIENT, number, use), _Tags(SERVER, number, use))
        self.consumes: deque[bool] = deque(maxlen=1024)
        self.gets: deque[bool] = deque(maxlen=4096)
        self.consumers: dict[bytes, bool] = {}
        """Consumer tag → whether its deliveries are acknowledged."""
        self.content: list[_Content | None] = [None, None]


class _Amqp:
    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._channels: dict[tuple[int, int], _Channel] = {}
        self._uses: tuple[dict[int, int], dict[int, int]] = ({}, {})
        """Per side: how often a channel was opened. They differ while the answer is on its way."""
        self._lost = [False, False]

    def feed(self, sender: int, data: bytes, at: int) -> int:
        talk, size, here = self._talk, len(data), 0
        talk.need[sender] = 0
        if self._lost[sender]:
            here = self._search(data, 0)
            talk.undecoded_bytes += here
            self._lost[sender] = here >= size
        while size - here >= 8:
            kind, channel, length = _FRAME.unpack_from(data, here)
            end = here + 8 + length
            if kind == 0x41 and data[here : here + 4] == b"AMQP":
                version = ".".join(map(str, data[here + 5 : here + 8]))
                talk.add(sender, at + here, at + here + 8, "ProtocolHeader", version, failed=sender == SERVER)
                here += 8
                if version != "0.9.1":
                    talk.become("amqp1")
                    return here
                continue
            plausible = kind in _FRAME_TYPES and (kind == _BODY_FRAME or length <= _MAX_METHOD_BYTES)
            if plausible and length > WHOLE_MESSAGE_BYTES:
                if kind == _BODY_FRAME:
                    self._body(sender, channel, b"", length, at + end)
                talk.skip(sender, length + 1)
                return here + 7
            if plausible and end > size:
                talk.need[sender] = end - here
                break
            if not plausible or data[end - 1] != _END:
                # With luck only its last byte is wrong.
                found = end if plausible and _certain_frame(data, end) else self._search(data, here + 1)
                talk.broken(found - here)
                here = found
                self._lost[sender] = here >= size
                continue
            if kind == _METHOD_FRAME:
                self._method(sender, channel, data, here, end, at)
            elif kind == _BODY_FRAME:
                self._body(sender, channel, data[here + 7 : end - 1], length, at + end)
            elif kind == _HEADER_FRAME:
                self._header(sender, channel, data, here, end, at)
            else:
                talk.add(sender, at + here, at + end, "Heartbeat")
            here = end
        return here

    def gap(self, sender: int, missing_bytes: int) -> None:
        for channel in self._channels.values():
            self._finish(sender, channel)
            if sender == CLIENT:
                channel.confirms = False
        self._uses[SERVER].update(self._uses[CLIENT])
        self._lost[sender] = False

    def resync(self, sender: int, data: bytes) -> int:
        found = self._search(data, 0)
        return found if found < len(data) else -1

    def _search(self, data: bytes, start: int) -> int:
        """Where the next frame begins that is one beyond doubt; the end if there is none."""
        here = start
        while here < len(data):
            if _certain_frame(data, here):
                return here
            # A frame begins behind the end of another one.
            found = data.find(_END, here)
            here = found + 1 if found >= 0 else len(data)
        return len(data)

    def _channel(self, sender: int, number: int) -> _Channel:
        key = number, self._uses[sender].get(number, 0)
        channel = self._channels.get(key)
        if channel is None:
            if len(self._channels) > 2 * _CHANNELS:
                self._channels.clear()
            channel = self._channels[key] = _Channel(*key)
        return channel

    def _reopen(self, sender: int, number: int) -> None:
        """That side opens a channel: what it says from now on belongs to a new use of it."""
        use = self._uses[sender].get(number, 0) + 1
        self._uses[sender][number] = use
        if sender == SERVER:
            self._channels.pop((number, use - 1), None)

    def _method(self, sender: int, number: int, data: bytes, start: int, end: int, at: int) -> None:
        talk = self._talk
        if end - start < 12:
            talk.broken(end - start)
            return
        key: tuple[int, int] = _METHOD.unpack_from(data, start + 7)
        method = METHODS.get(key)
        if method is None:
            talk.add(sender, at + start, at + end, f"Method.{key[0]}.{key[1]}")
            return
        if key == _OPENS[sender]:
            self._reopen(sender, number)
        channel = self._channel(sender, number)
        arguments = data[start + 11 : end - 1]
        if key in (_PUBLISH, _DELIVER, _GET_OK, _RETURN):
            self._finish(sender, channel)
            channel.content[sender] = self._begin(channel, key, arguments, at + start, at + end)
            return
        if key in (_ACK, _NACK, _REJECT):
            self._acknowledge(sender, channel, key, arguments, number, at + start, at + end)
            return
        strings, rest = short_strings(arguments, method.skip, method.strings)
        name = _text(strings[method.named]) if 0 <= method.named < len(strings) else ""
        failed = key in _CLOSES and arguments[:2] >= b"\x01\x2c"  # from reply code 300 on
        told = talk.add(sender, at + start, at + end, method.name, name, str(number), failed=failed)
        if method.asks:
            flags = arguments[rest] if rest < len(arguments) else 0
            if key in _CLOSES and len(arguments) >= rest + 4:
                # An error closes the channel instead of answering the method it names.
                cause: tuple[int, int] = _METHOD.unpack_from(arguments, rest)
                talk.answer((1 - sender, number, cause), told)
            if not flags & method.no_wait:
                talk.ask((sender, number, key), told, ordered=True)
            self._remember(channel, key, flags, strings)
        elif method.answers is not None:
            talk.answer((1 - sender, number, method.answers), told, early=sender == CLIENT)
            if key == _CONSUME_OK and channel.consumes:
                tag, _ = short_strings(arguments, 0, 1)
                channel.consumers[tag[0] if tag else b""] = channel.consumes.popleft()
            elif method.answers == _GET and channel.gets:  # GetEmpty
                channel.gets.popleft()

    def _remember(self, channel: _Channel, key: tuple[int, int], flags: int, strings: list[bytes]) -> None:
        """What a request means for later messages."""
        if key == _CONFIRM:
            channel.confirms, channel.published = True, 0
        elif key == _GET:
            channel.gets.append(not flags & 1)
        elif key == _CONSUME and len(strings) == 2:
            if len(channel.consumers) > 4096:
                channel.consumers.clear()
            if strings[1]:
                channel.consumers[strings[1]] = not flags & 2
            if not flags & 8:
                channel.consumes.append(not flags & 2)

    def _begin(self, channel: _Channel, key: tuple[int, int], arguments: bytes, start: int, end: int) -> _Content:
        if key == _PUBLISH:
            strings, _ = short_strings(arguments, 2, 2)
            channel.published += 1
            return _Content(key, start, end, _path(strings), channel.published, channel.confirms)
        if key == _RETURN:
            strings, _ = short_strings(arguments, 2, 3)
            return _Content(key, start, end, _path(strings[1:]))
        consumer: list[bytes] = []
        skip = 0
        if key == _DELIVER:
            consumer, skip = short_strings(arguments, 0, 1)
        tag = int.from_bytes(arguments[skip : skip + 8], "big")
        strings, _ = short_strings(arguments, skip + 9, 2)
        if key == _DELIVER:
            acknowledged = channel.consumers.get(consumer[0] if consumer else b"", channel.acknowledges)
        else:
            acknowledged = channel.gets.popleft() if channel.gets else channel.acknowledges
        return _Content(key, start, end, _path(strings), tag, acknowledged)

    def _acknowledge(
        self, sender: int, channel: _Channel, key: tuple[int, int], arguments: bytes, number: int, start: int, end: int
    ) -> None:
        if len(arguments) < _TAG.size:
            self._talk.broken(end - start)
            return
        tag, flags = _TAG.unpack_from(arguments)
        told = self._talk.add(
            sender, start, end, METHODS[key].name, correlation=f"{number}:{tag}", failed=key != _ACK
        )  # fmt: skip
        if sender == CLIENT:
            channel.acknowledges = True
        channel.tags[1 - sender].answer(self._talk, tag, told, multiple=key != _REJECT and bool(flags & 1))

    def _header(self, sender: int, number: int, data: bytes, start: int, end: int, at: int) -> None:
        channel = self._channel(sender, number)
        content = channel.content[sender]
        if content is None or content.size >= 0 or end - start < 8 + _CONTENT.size:
            self._talk.undecoded_bytes += end - start
            return
        content.size = min(_CONTENT.unpack_from(data, start + 7)[2], _LARGEST_BODY_BYTES)
        content.end = at + end
        if content.size == 0:
            self._finish(sender, channel)

    def _body(self, sender: int, number: int, body: bytes, length: int, end: int) -> None:
        channel = self._channel(sender, number)
        content = channel.content[sender]
        if content is None or content.size < 0:
            # Its beginning was lost.
            self._talk.undecoded_bytes += length + 8
            return
        content.seen += length
        content.end = end
        if content.size <= WHOLE_MESSAGE_BYTES and content.seen <= content.size:
            content.parts.append(body)
        if content.seen >= content.size:
            self._finish(sender, channel)

    def _finish(self, sender: int, channel: _Channel) -> None:
        """Tell the content as far as it came."""
        content, channel.content[sender] = channel.content[sender], None
        if content is None:
            return
        talk, key = self._talk, content.method
        tags = channel.tags[sender]
        number = channel.number
        told = talk.add(
            sender, content.start, content.end, METHODS[key].name, content.name,
            f"{number}:{content.tag}" if content.acknowledged else str(number), failed=key == _RETURN,
            payload=b"".join(content.parts), payload_bytes=max(0, content.size),
        )  # fmt: skip
        if content.acknowledged:
            tags.ask(talk, content.tag, told)
        if key == _GET_OK:
            talk.answer((1 - sender, number, _GET), told)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _path(strings: list[bytes]) -> str:
    return "/".join(map(_text, strings))


def _certain_frame(data: bytes, here: int) -> bool:
    """Whether a frame begins here, told by more than its first byte."""
    if data[here : here + 4] == b"AMQP":
        return True
    if len(data) - here < 12:
        return data[here : here + 8] == b"\x08\0\0\0\0\0\0\xce"
    kind, channel, length = _FRAME.unpack_from(data, here)
    end = here + 8 + length
    if end <= len(data) and data[end - 1] != _END:
        return False
    if kind == _METHOD_FRAME:
        return length <= _MAX_METHOD_BYTES and _METHOD.unpack_from(data, here + 7) in METHODS
    if kind == _HEADER_FRAME:
        return 14 <= length <= _MAX_METHOD_BYTES and data[here + 7 : here + 11] == b"\0\x3c\0\0"
    if kind == _BODY_FRAME:
        return end <= len(data) and (end == len(data) or data[end] in _FRAME_TYPES)
    return kind == _HEARTBEAT and not channel and not length


def _recognise(client: bytes, server: bytes) -> float:
    if client[:4] == b"AMQP":
        return 1.0
    for front in (client, server):
        if len(front) >= 12 and front[0] == _METHOD_FRAME and _certain_frame(front, 0):
            length = _FRAME.unpack_from(front)[2]
            return 0.9 if 8 + length <= len(front) else 0.6
    return 0.3 if any(front and _certain_frame(front, 0) for front in (client, server)) else 0.0


@dissector("amqp", ports=(5672,), recognise=_recognise)
def amqp(talk: Talk) -> Dissection:
    """Begin a conversation."""
    return _Amqp(talk)
