"""A request somebody waits for: logging in, subscribing, polling, saying goodbye.

Used by links where no rate matters; messages themselves are published without anybody waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from battlebrokers.protocols.base import Failure
from battlebrokers.protocols.http.connection import Connection
from battlebrokers.protocols.http.head import Head


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    head: Head
    body: bytes
    at_ns: int
    wire_bytes: int


class NoAnswer(Exception):  # noqa: N818 - reads as the sentence it is
    """None came, or none that is HTTP."""

    def __init__(self, failure: Failure, detail: str) -> None:
        super().__init__(detail)
        self.failure = failure
        self.detail = detail


class Waiting:
    """An asker with a future."""

    __slots__ = ("future", "now_ns")

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.now_ns = now_ns
        self.future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def answered(self, connection: Connection, head: Head, body: bytes, at_ns: int) -> None:
        """It came."""
        if not self.future.done():
            self.future.set_result(Answer(head, body, at_ns, connection.wire_bytes))

    def failed(self, connection: Connection, failure: Failure, detail: str) -> None:  # noqa: ARG002
        """It did not."""
        if not self.future.done():
            self.future.set_exception(NoAnswer(failure, detail))


async def converse(connection: Connection, data: bytes, now_ns: Callable[[], int], patience_ticks: int) -> Answer:
    """Ask and wait; NoAnswer when there is none. Whoever stops waiting drops the connection."""
    waiting = Waiting(now_ns)
    connection.ask(data, waiting, patience_ticks)
    try:
        return await waiting.future
    except asyncio.CancelledError:
        connection.drop()
        raise
