"""The 16-byte header that rides in every payload: who sent it, which one it is, when it was planned.

Big endian: one byte version (0xB1), 24 bits device, 32 bits sequence, 64 bits planned run time in nanoseconds.
Written by devices, read by the stopwatch.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

HEADER = struct.Struct(">IIQ")
HEADER_BYTES = HEADER.size
VERSION = 0xB1
MAX_DEVICE = 0xFFFFFF
SEQ_MASK = 0xFFFFFFFF
_DTYPE = np.dtype([("word", ">u4"), ("seq", ">u4"), ("planned_ns", ">u8")])


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


def read_many(
    data: bytes, starts: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.int64], bool]:
    """Devices, sequence numbers and planned times at these offsets, and whether every one carries our version."""
    raw = np.frombuffer(data, dtype=np.uint8)
    gathered = raw[starts[:, None] + np.arange(HEADER_BYTES)]
    headers = gathered.view(_DTYPE)[:, 0]
    words = headers["word"].astype(np.int64)
    return (
        (words & MAX_DEVICE).astype(np.int32),
        headers["seq"].astype(np.int64),
        headers["planned_ns"].astype(np.int64),
        bool(((words >> 24) == VERSION).all()),
    )
