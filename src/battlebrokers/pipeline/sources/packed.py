"""Unpacks gzip and zstd in a stream, damaged or not. Called on the driver and in Spark's Python workers.

Unpackers give nothing of a call that fails. So a step that fails is done again in the smallest pieces there are, and
all that lies before the damage is kept.
"""

from __future__ import annotations

import zlib
from typing import IO, Any, Literal

import pyarrow as pa

from battlebrokers.pipeline.sources.files import open_stream

Packing = Literal["gzip", "zstd"]

_MAGIC: dict[bytes, Packing] = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_PACKED_BYTES = 16 << 10
"""Packed bytes of a step."""
_PLAIN_BYTES = 64 << 10
"""Unpacked at a time, however well it was packed."""
_SIP_BYTES = 128
_GZIP = 16 + zlib.MAX_WBITS
_WRONG_SUM = "incorrect data check"
_WRONG_LENGTH = "incorrect length check"
_LENGTH_BYTES = 4
"""What follows the checksum of a gzip member."""


def packing_of(front: bytes) -> Packing | None:
    """How a file with this front is packed; None if it is not."""
    return next((name for magic, name in _MAGIC.items() if front.startswith(magic)), None)


def unpack(file: str, packing: Packing, plain: IO[bytes]) -> dict[str, int]:
    """Write all that can be unpacked; returns what is wrong with it, and how often."""
    whole, wrong_sums = _unpack_gzip(file, plain) if packing == "gzip" else _unpack_zstd(file, plain)
    found = {f"wrong checksum of {packing} data: what was unpacked may be damaged": wrong_sums}
    found |= {f"cut off or damaged {packing} data: the rest is missing": int(not whole)}
    return {reason: count for reason, count in found.items() if count}


def _unpack_gzip(file: str, plain: IO[bytes]) -> tuple[bool, int]:
    """All members one after the other: whether it came to the end, and how many of them have a wrong checksum.

    Those are kept, and what is behind them, too.
    """
    member, began, wrong_sums, piece = zlib.decompressobj(_GZIP), False, 0, b""
    with open_stream(file) as packed:
        while piece := piece or bytes(packed.read(_PACKED_BYTES)):
            # Some programs fill the last block of a file up.
            piece = piece if began else piece.lstrip(b"\0")
            if not piece:
                continue
            before = member.copy()
            try:
                plain.write(member.decompress(piece, _PLAIN_BYTES))
            except zlib.error:
                used, why = _byte_by_byte(before, piece, plain)
                if _WRONG_SUM not in why and _WRONG_LENGTH not in why:
                    return False, wrong_sums
                wrong_sums += 1
                piece = piece[used:]
                if _WRONG_SUM in why:
                    piece = (piece + bytes(packed.read(_LENGTH_BYTES)))[_LENGTH_BYTES:]
                member, began = zlib.decompressobj(_GZIP), False
                continue
            began = not member.eof
            piece = member.unconsumed_tail if began else member.unused_data
            if not began:
                member = zlib.decompressobj(_GZIP)
    if began:
        _byte_by_byte(member, b"", plain)  # it may hold back what had no room
    return not began, wrong_sums


def _byte_by_byte(member: Any, piece: bytes, plain: IO[bytes]) -> tuple[int, str]:
    """Unpack up to the very byte that cannot be; how many packed ones were used by then, and what is wrong."""
    for used in range(max(1, len(piece))):
        rest = piece[used : used + 1]
        try:
            while (found := member.decompress(rest, 1)) or member.unconsumed_tail:
                plain.write(found)
                rest = member.unconsumed_tail
        except zlib.error as error:
            return used + 1, str(error)
    return len(piece), ""


def _unpack_zstd(file: str, plain: IO[bytes]) -> tuple[bool, int]:
    """All frames one after the other; whether it came to the end."""
    written = 0
    with open_stream(file) as packed:
        stream = pa.CompressedInputStream(packed, "zstd")
        try:
            while piece := stream.read(_PLAIN_BYTES):
                plain.write(piece)
                written += len(piece)
        except (OSError, pa.ArrowException):
            pass
        else:
            return True, 0
    _sip_zstd(file, written, plain)
    return False, 0


def _sip_zstd(file: str, known: int, plain: IO[bytes]) -> None:
    """Once more from the front, in so small pieces that nothing before the damage is lost."""
    with open_stream(file) as packed:
        stream = pa.CompressedInputStream(pa.PythonFile(_Sips(packed), "r"), "zstd")
        try:
            while known:
                known -= len(stream.read(min(known, _PLAIN_BYTES)))
            while piece := stream.read(1):
                plain.write(piece)
        except (OSError, pa.ArrowException):
            return


class _Sips:
    """A file that gives little at a time, whatever is asked for."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        return bytes(self._file.read(_SIP_BYTES if size < 0 else min(size, _SIP_BYTES)))

    def close(self) -> None:
        self.closed = True
