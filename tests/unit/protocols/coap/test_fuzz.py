"""Damaged datagrams: whatever a server sends, every request ends once and nothing is raised."""

from __future__ import annotations

import asyncio

from aiocoap import Message
from aiocoap.numbers.codes import Code
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.protocols.base import Failure
from battlebrokers.protocols.coap.message import CON, OBSERVE, URI_PATH
from battlebrokers.protocols.coap.message import Message as Ours
from battlebrokers.protocols.coap.talk import Talk
from battlebrokers.protocols.wheel import wheel_of
from support.examples import examples


class Line:
    """Stands for the socket: keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send(self, data: bytes) -> None:
        self.sent.append(data)

    def close(self) -> None:
        pass


def answers(request: bytes) -> list[bytes]:
    """What a server may say to a request, proper or not."""
    made = []
    for code, kind, options in [
        (Code.CHANGED, 2, {}),
        (Code.CONTENT, 2, {"observe": 1, "block2": (0, True, 0)}),
        (Code.CONTENT, 1, {"observe": 2, "etag": b"x", "block2": (3, True, 2)}),
        (Code.CONTINUE, 2, {"block1": (0, True, 0)}),
        (Code.NOT_FOUND, 0, {}),
        (Code.INTERNAL_SERVER_ERROR, 3, {}),
    ]:
        message = Message(code=code, payload=b"p" * 16, **options)
        message.mtype, message.mid, message.token = kind, int.from_bytes(request[2:4], "big"), request[4:8]
        made.append(message.encode())
    return made


@examples(120)
@given(st.data())
def test_every_request_ends_once_whatever_comes(data: st.DataObject):
    loop = asyncio.new_event_loop()
    try:
        ended: list[int] = []
        faults: list[str] = []
        line = Line()
        talk = Talk(wheel_of(loop), 5.0, lambda _token, _message: data.draw(st.booleans()), faults.append)
        talk.begin(line)  # type: ignore[arg-type]

        def finish(exchange: object, result: int, message: Ours | None) -> None:
            ended.append(exchange.label)  # type: ignore[attr-defined]
            if message is not None:
                talk.whole([(URI_PATH, b"a")], message, lambda _: None)

        for label, body in enumerate((b"x", b"y" * 3000, b"z" * 3000, b"")):
            talk.ask(CON, 3 if body else 1, [(URI_PATH, b"a"), (OBSERVE, b"")], body, finish, label=label)
        for _ in range(data.draw(st.integers(1, 8))):
            request = data.draw(st.sampled_from(line.sent))
            answer = bytearray(data.draw(st.sampled_from(answers(request))))
            for _ in range(data.draw(st.integers(0, 2))):
                answer[data.draw(st.integers(0, len(answer) - 1))] = data.draw(st.integers(0, 255))
            talk.came([bytes(answer[: data.draw(st.integers(0, len(answer)))] if data.draw(st.booleans()) else answer)])
        talk.fail(Failure.CLOSED)
        assert sorted(ended) == [0, 1, 2, 3]
        talk.stop()
    finally:
        loop.close()
