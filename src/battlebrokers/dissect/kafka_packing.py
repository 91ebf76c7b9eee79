"""Opens the packed part of Kafka's record batches: gzip, snappy, lz4 and zstd, never beyond a limit.

Called by `kafka_records`. Pure; what is damaged, unknown or would be too large stays closed.
"""

from __future__ import annotations

import zlib
from struct import Struct

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
"""The low bits of a batch's attributes."""
LARGEST_OPENED_BYTES = 16 << 20
"""A few bytes can be packed to stand for gigabytes; no batch of a broker with ordinary limits comes near this."""

_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEAD_BYTES = 16
_BLOCK = Struct(">i")


def opened(codec: int, packed: bytes) -> bytes | None:
    """What was packed; None when it cannot be had."""
    try:
        if codec == GZIP:
            found = _gzip(packed)
        elif codec == SNAPPY:
            found = _snappy(packed)
        else:
            found = _streamed("lz4" if codec == LZ4 else "zstd", packed)
    except (OSError, ValueError, zlib.error):
        return None
    return found if found is not None and len(found) <= LARGEST_OPENED_BYTES else None


def _gzip(packed: bytes) -> bytes | None:
    unzip = zlib.decompressobj(wbits=31)
    found = unzip.decompress(packed, LARGEST_OPENED_BYTES + 1)
    return found if unzip.eof else None


def _streamed(name: str, packed: bytes) -> bytes:
    import pyarrow as pa  # whoever meets no packed batch does not pay for loading it

    with pa.CompressedInputStream(pa.BufferReader(packed), name) as stream:
        return bytes(stream.read(LARGEST_OPENED_BYTES + 1))


def _snappy(packed: bytes) -> bytes | None:
    """Blocks behind each other in the way of the Java library, or one block by itself."""
    if not packed.startswith(_XERIAL):
        return _snappy_block(packed, LARGEST_OPENED_BYTES)
    blocks, size, here = [], 0, _XERIAL_HEAD_BYTES
    while here + _BLOCK.size <= len(packed):
        end = here + _BLOCK.size + _BLOCK.unpack_from(packed, here)[0]
        if not here + _BLOCK.size < end <= len(packed):
            return None
        block = _snappy_block(packed[here + _BLOCK.size : end], LARGEST_OPENED_BYTES - size)
        if block is None:
            return None
        blocks.append(block)
        size += len(block)
        here = end
    return b"".join(blocks)


def _snappy_block(packed: bytes, most: int) -> bytes | None:
    import pyarrow as pa

    size = 0
    for place, byte in enumerate(packed[:5]):  # it begins with how long it will be, seven bits a byte
        size |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return bytes(pa.decompress(packed, size, codec="snappy", asbytes=True)) if size <= most else None
    return None
