"""CoAP (RFC 7252, 7641): kinds are type and code (`CON GET`, `ACK 2.05`, `NON 2.05`, `ACK Empty`), names are Uri-Path.

A request is answered by the response with its token, piggybacked or separate (an empty ACK before it is no answer), or
by a reset; a confirmable response or notification by the ACK with its message id. Notifications after the first
response are a stream. The same datagram sent again is told, but asks nothing new.
"""

from __future__ import annotations

from typing import TypeVar

from battlebrokers.dissect.payload_marks import fingerprint_of
from battlebrokers.dissect.registry import dissector
from battlebrokers.dissect.talk import Dissection, Talk

_TYPES = ("CON", "NON", "ACK", "RST")
_CON, _NON, _ACK, _RST = range(4)
_METHODS = {1: "GET", 2: "POST", 3: "PUT", 4: "DELETE", 5: "FETCH", 6: "PATCH", 7: "iPATCH"}
_OBSERVE, _URI_PATH, _URI_QUERY = 6, 11, 15
_PAYLOAD_MARKER = 0xFF
_REMEMBERED = 8192
"""Message ids and tokens: more than a sender may use within EXCHANGE_LIFETIME at any usual rate."""

_Key = TypeVar("_Key", int, bytes)
_Value = TypeVar("_Value")
Options = list[tuple[int, bytes]]


class _Coap:
    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._seen: dict[tuple[int, int], int] = {}
        """Sender and message id → hash of the datagram."""
        self._tokens: dict[tuple[int, int], bytes] = {}
        """Asker and message id → token of the request."""
        self._paths: dict[tuple[int, bytes], str] = {}
        """Asker and token → what was asked for."""

    def feed(self, sender: int, data: bytes, at: int) -> int:
        read = _read(data)
        if read is None:
            return 0
        kind, code, identity, token, options, payload = read
        end = at + len(data)
        again = self._again(sender, identity, data)
        if not code:
            self._empty(sender, kind, identity, at, end)
        elif code < 32:
            self._request(sender, kind, code, identity, token, options, payload, (at, end), again=again)
        else:
            self._response(sender, kind, code, identity, token, options, payload, (at, end), again=again)
        return len(data)

    def gap(self, sender: int, missing_bytes: int) -> None:
        """Datagrams stand for themselves."""

    def resync(self, sender: int, data: bytes) -> int:
        return 0

    def _again(self, sender: int, identity: int, data: bytes) -> bool:
        key, content = (sender, identity), fingerprint_of(data)
        if self._seen.get(key) == content:
            return True
        _remember(self._seen, key, content)
        return False

    def _empty(self, sender: int, kind: int, identity: int, at: int, end: int) -> None:
        talk = self._talk
        number = talk.add(
            sender, at, end, f"{_TYPES[kind]} Empty", correlation=f"{identity:04x}", failed=kind == _RST
        )  # fmt: skip
        if kind == _CON:  # a ping: the reset is what is wanted
            talk.ask(("id", sender, identity), number)
        elif not talk.answer(("id", 1 - sender, identity), number) and kind == _RST:
            token = self._tokens.get((1 - sender, identity))
            if token is not None:
                talk.answer(("token", 1 - sender, token), number)

    def _request(
        self, sender: int, kind: int, code: int, identity: int, token: bytes, options: Options, payload: bytes,
        place: tuple[int, int], *, again: bool,
    ) -> None:  # fmt: skip
        path = "/" + "/".join(value.decode("utf-8", "replace") for number, value in options if number == _URI_PATH)
        query = "&".join(value.decode("utf-8", "replace") for number, value in options if number == _URI_QUERY)
        name = f"{path}?{query}" if query else path
        told = self._talk.add(
            sender, *place, f"{_TYPES[kind]} {_METHODS.get(code, f'0.{code:02d}')}", name, token.hex(), payload=payload
        )
        if not again:
            _remember(self._tokens, (sender, identity), token)
            _remember(self._paths, (sender, token), name)
            self._talk.ask(("token", sender, token), told)

    def _response(
        self, sender: int, kind: int, code: int, identity: int, token: bytes, options: Options, payload: bytes,
        place: tuple[int, int], *, again: bool,
    ) -> None:  # fmt: skip
        talk = self._talk
        told = talk.add(
            sender, *place, f"{_TYPES[kind]} {code >> 5}.{code & 31:02d}",
            self._paths.get((1 - sender, token), ""), token.hex(), failed=code >> 5 in (4, 5), payload=payload,
        )  # fmt: skip
        if again:
            return
        talk.answer(("token", 1 - sender, token), told)
        if kind == _CON:
            talk.ask(("id", sender, identity), told)


def _remember(known: dict[tuple[int, _Key], _Value], key: tuple[int, _Key], value: _Value) -> None:
    known.pop(key, None)
    if len(known) >= _REMEMBERED:
        del known[next(iter(known))]
    known[key] = value


def _read(data: bytes) -> tuple[int, int, int, bytes, Options, bytes] | None:
    """Type, code, message id, token, options, payload; None if it is not CoAP."""
    if len(data) < 4 or data[0] >> 6 != 1:
        return None
    kind, length, code = data[0] >> 4 & 3, data[0] & 15, data[1]
    identity = int.from_bytes(data[2:4], "big")
    here = 4 + length
    if length > 8 or here > len(data) or code >> 5 not in (0, 2, 4, 5) or (not code and len(data) > 4):
        return None
    token, number = data[4:here], 0
    options: Options = []
    while here < len(data):
        if data[here] == _PAYLOAD_MARKER:
            payload = data[here + 1 :]
            return (kind, code, identity, token, options, payload) if payload else None
        delta, size = data[here] >> 4, data[here] & 15
        here += 1
        delta, here = _extended(data, here, delta)
        size, here = _extended(data, here, size)
        if delta < 0 or size < 0 or here + size > len(data):
            return None
        number += delta
        options.append((number, data[here : here + size]))
        here += size
    return kind, code, identity, token, options, b""


def _extended(data: bytes, here: int, value: int) -> tuple[int, int]:
    """An option's delta or length with the bytes that follow; negative if they are not right."""
    if value < 13:
        return value, here
    if value == 13 and here < len(data):
        return data[here] + 13, here + 1
    if value == 14 and here + 1 < len(data):
        return int.from_bytes(data[here : here + 2], "big") + 269, here + 2
    return -1, here


def _recognise(client: bytes, server: bytes) -> float:
    fronts = [_read(front) for front in (client, server) if front]
    if not fronts or None in fronts:
        return 0.0
    asked = any(front is not None and 0 < front[1] < 8 and front[4] for front in fronts)
    return 0.6 if asked else 0.3


@dissector("coap", ports=(5683,), transport="udp", recognise=_recognise)
def coap(talk: Talk) -> Dissection:
    """Begin a conversation."""
    return _Coap(talk)
