"""The methods of AMQP 0-9-1: their names, which asks and which answers, and where their short strings stand.

Called by the AMQP dissector. Pure data, and the one function that reads short strings.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Method:
    """One method, and how to read what we want from its arguments."""

    name: str
    asks: bool = False
    answers: tuple[int, int] | None = None
    """The method it answers."""
    skip: int = 0
    """Bytes before its short strings."""
    strings: int = 0
    """How many short strings there are."""
    named: int = -1
    """Which of them it is about."""
    no_wait: int = 0
    """The bit in the octet behind the strings that says: do not answer."""


def _ask(name: str, skip: int = 0, strings: int = 0, named: int = -1, no_wait: int = 0) -> Method:
    return Method(name, asks=True, skip=skip, strings=strings, named=named, no_wait=no_wait)


METHODS: dict[tuple[int, int], Method] = {
    (10, 10): _ask("Connection.Start"), (10, 20): _ask("Connection.Secure"), (10, 30): _ask("Connection.Tune"),
    (10, 40): _ask("Connection.Open", strings=1, named=0),
    (10, 50): _ask("Connection.Close", skip=2, strings=1, named=0),
    (10, 60): Method("Connection.Blocked", strings=1, named=0), (10, 61): Method("Connection.Unblocked"),
    (10, 70): _ask("Connection.UpdateSecret"),
    (20, 10): _ask("Channel.Open"), (20, 20): _ask("Channel.Flow"),
    (20, 40): _ask("Channel.Close", skip=2, strings=1, named=0),
    (30, 10): _ask("Access.Request", strings=1, named=0),
    (40, 10): _ask("Exchange.Declare", 2, 2, 0, 0x10), (40, 20): _ask("Exchange.Delete", 2, 1, 0, 0x02),
    (40, 30): _ask("Exchange.Bind", 2, 3, 0, 0x01), (40, 40): _ask("Exchange.Unbind", 2, 3, 0, 0x01),
    (50, 10): _ask("Queue.Declare", 2, 1, 0, 0x10), (50, 20): _ask("Queue.Bind", 2, 3, 0, 0x01),
    (50, 30): _ask("Queue.Purge", 2, 1, 0, 0x01), (50, 40): _ask("Queue.Delete", 2, 1, 0, 0x04),
    (50, 50): _ask("Queue.Unbind", 2, 3, 0),
    (60, 10): _ask("Basic.Qos"), (60, 20): _ask("Basic.Consume", 2, 2, 0, 0x08),
    (60, 30): _ask("Basic.Cancel", 0, 1, 0, 0x01), (60, 70): _ask("Basic.Get", 2, 1, 0),
    (60, 40): Method("Basic.Publish"), (60, 50): Method("Basic.Return"), (60, 60): Method("Basic.Deliver"),
    (60, 71): Method("Basic.GetOk", answers=(60, 70)), (60, 72): Method("Basic.GetEmpty", answers=(60, 70)),
    (60, 80): Method("Basic.Ack"), (60, 90): Method("Basic.Reject"), (60, 120): Method("Basic.Nack"),
    (60, 100): Method("Basic.RecoverAsync"), (60, 110): _ask("Basic.Recover"),
    (85, 10): _ask("Confirm.Select", no_wait=0x01),
    (90, 10): _ask("Tx.Select"), (90, 20): _ask("Tx.Commit"), (90, 30): _ask("Tx.Rollback"),
}  # fmt: skip
for (_class, _number), _asked in [*METHODS.items()]:
    if _asked.asks and _asked.name != "Basic.Get":
        # Exchange.UnbindOk alone is not the next number.
        _ok = 51 if (_class, _number) == (40, 40) else _number + 1
        _named = _asked.name == "Queue.Declare"
        METHODS[_class, _ok] = Method(
            f"{_asked.name}Ok", answers=(_class, _number), strings=int(_named), named=0 if _named else -1
        )


def short_strings(arguments: bytes, start: int, count: int) -> tuple[list[bytes], int]:
    """Up to `count` strings with one byte of length, and where they end."""
    strings: list[bytes] = []
    here = start
    for _ in range(count):
        if here >= len(arguments):
            break
        end = here + 1 + arguments[here]
        strings.append(arguments[here + 1 : end])
        here = end
    return strings, here
