"""Payloads: what a device says in its n-th message, the same for the same seed in any order.

Called by devices for one message or a block. Content is kept once per fleet; the first 16 bytes of a stamped
payload are left zero for the header, which the stopwatch fills in. Reads a file once; never touches the network.
"""

from __future__ import annotations

import base64
import binascii
import codecs
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from battlebrokers.errors import InputError, QuantityError
from battlebrokers.scenario import dice
from battlebrokers.scenario.nodes import PayloadPlan, SizePlan
from battlebrokers.scenario.sizes import HEADER_BYTES, draw_size, mean_size
from battlebrokers.scenario.templates import Template, compile_template

Matrix = npt.NDArray[np.uint8]
Block = Matrix | list[bytearray]

_EMPTY_HEADER = bytes(HEADER_BYTES)
_LARGEST_BUFFER = 1 << 20
_SLACK = 4096
_ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "base64": base64.b64encode,
    "binhex": binascii.hexlify,
}


def check_encoding(name: str) -> str:
    """Its canonical name; raises QuantityError unless it is none, base64, binhex or a charset Python knows."""
    if name in _ENCODERS:
        return name
    try:
        "".encode(name)
        return codecs.lookup(name).name
    except (LookupError, ValueError, UnicodeError):
        hint = "valid: none, base64, binhex, or a charset such as utf-8, utf-16 or latin-1"
        raise QuantityError(f"{name!r} is not an encoding", hint=hint) from None


def is_charset(encoding: str) -> bool:
    """Whether it turns text into bytes (as opposed to bytes into text)."""
    return encoding not in _ENCODERS


def _encode_text(text: str, encoding: str) -> bytes:
    if is_charset(encoding):
        return text.encode(encoding, "replace")
    return _ENCODERS[encoding](text.encode("utf-8", "replace"))


@dataclass(frozen=True, slots=True)
class _Content:
    """What a fleet's payloads are cut from: whole bodies to choose from, a buffer to cut from, or a function."""

    stamped: bool
    rows: tuple[bytes, ...] = ()
    matrix: Matrix | None = None
    buffer: bytes = b""
    slack: int = 0
    """How far into the buffer a message may begin (0: always at its start)."""
    size: SizePlan | None = None
    encoding: str = "none"
    template: Template | None = None
    value: Callable[[int, int], str] | None = None


class PayloadSource:
    """The payloads of one device. `stamped`: room for the header is kept; `fixed_bytes`: the one size, or None."""

    __slots__ = ("_content", "_seed", "_shift", "_size_seed", "_variables", "fixed_bytes", "stamped", "wants_time")

    def __init__(self, plan: PayloadPlan, seed: int) -> None:
        content = _content(replace(plan, variables=()) if plan.variables else plan)
        self._content = content
        self._variables = dict(plan.variables) if plan.variables else _NO_VARIABLES
        self._seed = dice.branch(seed, dice.CONTENT)
        self._size_seed = dice.branch(seed, dice.SIZE) if content.size else 0
        self._shift = self._seed % len(content.rows) if content.rows else 0
        self.stamped = content.stamped
        self.fixed_bytes = len(content.rows[0]) if content.rows else None
        self.wants_time = content.template is not None and content.template.wants_time

    def one(self, seq: int, planned_ns: int = 0) -> bytes | bytearray:
        """The payload of one message: a fresh bytearray if stamped, possibly shared bytes if not."""
        rows = self._content.rows
        if rows:
            row = rows[(seq + self._shift) % len(rows)]
            return bytearray(row) if self.stamped else row
        return self._speak(seq, planned_ns)

    def block(self, first_seq: int, count: int, planned_ns: npt.NDArray[np.int64] | None = None) -> Block:
        """The payloads of messages first_seq …: a fresh matrix if they have one size, else a list.

        `planned_ns` (run time, one a message) is only needed if `wants_time`.
        """
        content = self._content
        if content.matrix is not None:
            pool = len(content.rows)
            if count == 1:
                row = (first_seq + self._shift) % pool
                return content.matrix[row : row + 1].copy()
            chosen = np.arange(first_seq + self._shift, first_seq + self._shift + count) % pool
            return content.matrix[chosen]
        times = planned_ns.tolist() if planned_ns is not None else [0] * count
        return [self._speak(first_seq + place, times[place]) for place in range(count)]

    def _speak(self, seq: int, planned_ns: int) -> bytearray:
        """A payload that is made for this message alone."""
        content = self._content
        payload = bytearray(HEADER_BYTES if content.stamped else 0)
        if content.size is not None:
            wanted = draw_size(content.size, self._size_seed, seq) - len(payload)
            begin = dice.below(self._seed, seq, content.slack) if content.slack else 0
            payload += _ENCODERS[content.encoding](_cut(content.buffer, begin, max(wanted, 0)))
        elif content.template is not None:
            text = content.template.render(self._seed, seq, planned_ns, self._variables)
            payload += _encode_text(text, content.encoding)
        elif content.value is not None:
            payload += _encode_text(content.value(self._seed, seq), content.encoding)
        return payload


_NO_VARIABLES: dict[str, str] = {}


def _cut(buffer: bytes, begin: int, size: int) -> bytes:
    """So many bytes of the buffer from there on, starting over when it ends."""
    piece = buffer[begin : begin + size]
    if len(piece) == size or not buffer:
        return piece
    return piece + (buffer * ((size - len(piece)) // len(buffer) + 1))[: size - len(piece)]


@lru_cache(maxsize=512)
def _content(plan: PayloadPlan) -> _Content:
    """Build a fleet's content once; devices of one process share it."""
    size = plan.size
    if plan.kind == "template":
        return _Content(plan.stamp, encoding=plan.encoding, template=compile_template(plan.text))
    if plan.kind == "value":
        return _Content(plan.stamp, encoding=plan.encoding, value=_value(plan.low, plan.high, plan.decimals))
    stamped = plan.stamp and (size is None or size.low >= HEADER_BYTES)
    head = _EMPTY_HEADER if stamped else b""
    if plan.kind == "random_bytes":
        assert size is not None
        noise = np.random.default_rng(dice.seed_of(plan))
        if size.kind != "fixed":
            buffer = noise.bytes(min(size.high, _LARGEST_BUFFER) + _SLACK)
            return _Content(stamped, buffer=buffer, slack=_SLACK, size=size, encoding=plan.encoding)
        bodies = [noise.bytes(size.low - len(head)) for _ in range(_pool_size(size.low))]
        return _pooled(stamped, [head + _ENCODERS[plan.encoding](body) for body in bodies])
    body = _file(plan) if plan.kind == "file" else _encode_text(plan.text, plan.encoding)
    if size is None:
        return _pooled(stamped, [head + body])
    if size.kind == "fixed":
        return _pooled(stamped, [head + _cut(body, 0, size.low - len(head))])
    return _Content(stamped, buffer=body, size=size)


def _pooled(stamped: bool, rows: list[bytes]) -> _Content:
    matrix = np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(len(rows), len(rows[0]))
    return _Content(stamped, rows=tuple(rows), matrix=matrix)


def _pool_size(size_bytes: int) -> int:
    """How many different random bodies a fleet keeps: enough to differ, little memory."""
    if size_bytes == 0:
        return 1
    return 8 if size_bytes <= 4096 else 4 if size_bytes <= 65_536 else 2


def _value(low: float, high: float, decimals: int) -> Callable[[int, int], str]:
    steps = round((high - low) * 10**decimals) + 1

    def value(seed: int, seq: int) -> str:
        return f"{low + dice.roll(seed, seq) * steps // 2**64 / 10**decimals:.{decimals}f}"

    return value


def _file(plan: PayloadPlan) -> bytes:
    assert plan.path is not None
    try:
        content = plan.path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the payload file {plan.path}: {error.strerror}") from error
    if is_charset(plan.encoding):
        return content.decode("utf-8", "replace").encode(plan.encoding, "replace")
    return _ENCODERS[plan.encoding](content)


def mean_payload_bytes(plan: PayloadPlan) -> float:
    """The payload size to expect on average, header included."""
    source = PayloadSource(plan, 0)
    if source.fixed_bytes is not None:
        return float(source.fixed_bytes)
    if plan.size is not None and plan.encoding == "none":
        return mean_size(plan.size)
    return sum(len(source.one(seq)) for seq in range(32)) / 32


def largest_payload_bytes(plan: PayloadPlan) -> int | None:
    """The largest payload there can be, header included; None when the content decides."""
    source = PayloadSource(plan, 0)
    if source.fixed_bytes is not None:
        return source.fixed_bytes
    if plan.size is not None and plan.encoding == "none":
        return max(plan.size.high, *plan.size.choices, plan.size.low)
    return None
