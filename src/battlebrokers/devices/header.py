"""The 16-byte header that rides in every payload: who sent it, which one it is, when it was planned.

Its layout is in `tables.message_header`; here it is written by devices and read by the stopwatch, many at a time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from battlebrokers.tables.message_header import HEADER_BYTES, MAX_DEVICE, SEQ_MASK, VERSION

_TIME_AT = 8
_NO_TIME = 0x80
"""A first byte of the time from which on it would be negative."""
_DTYPE = np.dtype([("word", ">u4"), ("seq", ">u4"), ("planned_ns", ">u8")])
_WHOLE = np.dtype(f"V{HEADER_BYTES}")

Headers = npt.NDArray[np.void]
"""Structured rows: `word` (version and device), `seq`, `planned_ns`."""


def device_word(device: int) -> int:
    """Version and device number as the header's first 32 bits."""
    return VERSION << 24 | device & MAX_DEVICE


def stamp_many(payloads: npt.NDArray[np.uint8], word: int, first_seq: int, planned_ns: npt.NDArray[np.int64]) -> None:
    """Write headers into the first 16 bytes of each row of a payload matrix."""
    count = len(payloads)
    headers = np.empty(count, dtype=_DTYPE)
    headers["word"] = word
    headers["seq"] = np.arange(first_seq, first_seq + count, dtype=np.int64) & SEQ_MASK
    headers["planned_ns"] = planned_ns
    payloads[:, :HEADER_BYTES] = headers.view(np.uint8).reshape(count, HEADER_BYTES)


def headers_at(data: bytes, starts: npt.NDArray[np.int64]) -> Headers:
    """The headers at these offsets, wherever they are."""
    # Seen as overlapping items, one beginning at every byte, each header is copied in one piece.
    anywhere = np.ndarray((len(data) - HEADER_BYTES + 1,), _WHOLE, data, 0, (1,))
    gathered: Headers = anywhere[starts].view(_DTYPE)
    return gathered


def headers_every(data: bytes, start: int, step: int, count: int) -> Headers:
    """The headers at `start`, `start + step`, …: a view, nothing is copied."""
    return np.ndarray((count,), _DTYPE, data, start, (step,))


def ours_at(headers: Headers) -> bool:
    """Whether every header carries our version and a time we could have written."""
    ours = (headers["word"] >> 24 == VERSION) & (headers["planned_ns"] >> 63 == 0)
    return int(np.count_nonzero(ours)) == len(headers)


def ours_every(data: bytes, start: int, step: int, count: int) -> bool:
    """The same for `headers_every`, from the two bytes that tell; several times faster than asking the headers."""
    last = start + step * (count - 1)
    versions = data[start : last + 1 : step]
    times = data[start + _TIME_AT : last + _TIME_AT + 1 : step]
    return versions.count(VERSION) == count and max(times) < _NO_TIME
