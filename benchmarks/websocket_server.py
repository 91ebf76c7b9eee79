"""A small WebSocket server: answers every request by its id, and pushes the payload back like a notification.

A process of its own (`python -m benchmarks.websocket_server`); it prints its port and serves until its input ends.
"""

from __future__ import annotations

import asyncio
from typing import cast

from battlebrokers.protocols.upgrade import accept_for
from benchmarks.serving import serve

_HEAD_END = b"\r\n\r\n"
_KEY = b"sec-websocket-key: "
_UPGRADE = (
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {}\r\n\r\n"
)
_ID, _PAYLOAD = b'"requestId":"', b'"payload":"'
_CLOSE = 8


def _frame(body: bytes) -> bytes:
    size = len(body)
    head = bytes((0x81, size)) if size < 126 else bytes((0x81, 126, size >> 8, size & 0xFF))
    return head + body


def _answers(body: bytes) -> bytes:
    at = body.index(_ID) + len(_ID)
    number = body[at : body.index(b'"', at)]
    at = body.index(_PAYLOAD) + len(_PAYLOAD)
    payload = body[at : body.index(b'"', at)]
    return _frame(b'{"requestId":"%b","status":"success"}' % number) + _frame(
        b'{"action":"notify","topic":"bench/0","payload":"%b"}' % payload
    )


class Serving(asyncio.Protocol):
    """One connection."""

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._buffer = b""
        self._upgraded = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._buffer:
            data = self._buffer + data
            self._buffer = b""
        if not self._upgraded:
            end = data.find(_HEAD_END)
            if end < 0:
                self._buffer = data
                return
            at = data.lower().index(_KEY) + len(_KEY)
            key = data[at : data.index(b"\r", at)].decode()
            self._transport.write(_UPGRADE.format(accept_for(key)).encode())
            self._upgraded = True
            data = data[end + len(_HEAD_END) :]
        self._serve(data)

    def _serve(self, data: bytes) -> None:
        answers = []
        place, size = 0, len(data)
        while place + 8 <= size:
            length, begin = data[place + 1] & 0x7F, place + 2
            if length == 126:
                length, begin = int.from_bytes(data[begin : begin + 2], "big"), place + 4
            end = begin + 4 + length
            if end > size:
                break
            if data[place] & 0x0F == _CLOSE:
                self._transport.write(b"\x88\x02\x03\xe8")
                self._transport.close()
                return
            mask = (data[begin : begin + 4] * (length // 4 + 1))[:length]
            masked = int.from_bytes(data[begin + 4 : end], "big")
            answers.append(_answers((masked ^ int.from_bytes(mask, "big")).to_bytes(length, "big")))
            place = end
        self._buffer = data[place:]
        if answers:
            self._transport.write(b"".join(answers))


if __name__ == "__main__":
    serve(Serving)
