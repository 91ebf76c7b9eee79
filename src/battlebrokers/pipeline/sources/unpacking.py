"""Captures made ready for reading in parallel: checked, and unpacked if they are packed. Called on the driver.

Packed files cannot be read from the middle, so each is unpacked once, in a stream, beside the tables made from it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from battlebrokers.dissect.capture_format import STATISTICS, Drops, Layout, drops_of, layout_of
from battlebrokers.dissect.clues import block_clues
from battlebrokers.errors import InputError
from battlebrokers.pipeline.sources.files import RandomFile, local_path, open_stream
from battlebrokers.pipeline.store import LocalStore, Store

UNPACKED = "decoded/captures"
"""Where unpacked captures lie in a store."""

Defect = dict[str, Any]
"""`file`, `reason` and `count`."""

_HINT = "Captures are pcap or pcapng files, plain or packed with gzip or zstd; dumpcap and tcpdump write them."
_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_STEP_BYTES = 4 << 10
"""Unpacked at a time: what is lost when the next bytes turn out to be damaged."""
_PACKED_BYTES = 256 << 10
_GZIP = 16 + zlib.MAX_WBITS
_TAIL_BYTES = 64 << 10


def unpacked(files: Sequence[str], target: Store) -> tuple[list[str], list[Defect]]:
    """The plain files to read instead of these, in the same order, and what is wrong with them."""
    plain: list[str] = []
    defects: list[Defect] = []
    for number, file in enumerate(files):
        front = _front(file)
        packing = next((name for magic, name in _PACKED.items() if front.startswith(magic)), None)
        ready = file if packing is None else _unpack(file, packing, number, target, defects)
        path = local_path(ready)
        plain.append(ready if path is None else str(Path(path).absolute()))
        found = layout_of(front if packing is None else _front(ready))
        if found is None:
            raise InputError(f"{file} is no capture", hint=_HINT)
        defects += _drops(file, ready, found[0])
    return plain, defects


def why_unreadable(file: str) -> str:
    """What keeps a file from being read as a capture, said of `it`; empty if nothing does."""
    try:
        front = _front(file)
    except InputError as error:
        return f"it {error.message.removeprefix(f'{file} ')}"
    return "" if front.startswith(tuple(_PACKED)) or layout_of(front) else "it is no capture"


def _front(file: str) -> bytes:
    try:
        with RandomFile(file) as capture:
            front = capture.read(0, 64)
    except (OSError, pa.ArrowException, ValueError) as error:
        missing = isinstance(error, FileNotFoundError)
        reason = "does not exist" if missing else f"cannot be read: {getattr(error, 'strerror', None) or error}"
        raise InputError(f"{file} {reason}", hint=_HINT if not missing else "Check the path.") from error
    if not front:
        raise InputError(f"{file} is empty", hint="Was the capture stopped before its first packet?")
    return front


def _unpack(file: str, packing: str, number: int, target: Store, defects: list[Defect]) -> str:
    if not isinstance(target, LocalStore):
        raise InputError(
            f"{file} is packed with {packing}, and there is no local folder to unpack it into",
            hint="Unpack it first, or write the tables to a local folder.",
        )
    folder = target.path / UNPACKED
    folder.mkdir(parents=True, exist_ok=True)
    name = Path(file).name
    path = folder / f"{number:03}-{name.removesuffix('.gz').removesuffix('.zst')}"
    with open_stream(file) as packed, path.open("wb") as plain:
        whole = _COPY[packing](packed, plain)
    if not whole:
        defects.append({"file": file, "reason": f"cut off or damaged {packing} data: the rest is missing", "count": 1})
    if path.stat().st_size == 0:
        raise InputError(f"{file} holds nothing that can be unpacked", hint=_HINT)
    return str(path)


def _copy_gzip(packed: Any, plain: IO[bytes]) -> bool:
    """Unpack all members one after the other; False when it ended early."""
    member, piece = zlib.decompressobj(_GZIP), b""
    began = False
    while True:
        piece = piece or bytes(packed.read(_PACKED_BYTES))
        if not piece:
            return not began
        # Some programs fill the last block of a file up.
        piece = piece if began else piece.lstrip(b"\0")
        if not piece:
            continue
        try:
            plain.write(member.decompress(piece))
        except zlib.error:
            return False
        began = not member.eof
        piece = member.unused_data
        if member.eof:
            member = zlib.decompressobj(_GZIP)


def _copy_zstd(packed: Any, plain: IO[bytes]) -> bool:
    """Unpack all frames one after the other; False when it ended early."""
    stream = pa.CompressedInputStream(packed, "zstd")
    while True:
        try:
            piece = stream.read(_STEP_BYTES)
        except (OSError, pa.ArrowException):
            return False
        if not piece:
            return True
        plain.write(piece)


def _drops(file: str, ready: str, layout: Layout) -> list[Defect]:
    """What the capturing program itself says it missed: it writes that at the end of a pcapng file."""
    if layout.kind != "pcapng":
        return []
    with RandomFile(ready) as capture:
        tail = capture.read(max(0, capture.size - _TAIL_BYTES), _TAIL_BYTES)
    last: dict[int, Drops] = {}
    for start, end in _last_blocks(tail, layout):
        (kind,) = struct.unpack_from(f"{layout.order}I", tail, start)
        if kind == STATISTICS and (drops := drops_of(tail[start:end], layout.order)) is not None:
            last[drops.interface] = drops
    counts = {
        "dropped by the interface while capturing": sum(drops.by_interface or 0 for drops in last.values()),
        "dropped by the system while capturing": sum(drops.by_system or 0 for drops in last.values()),
    }
    return [{"file": file, "reason": f"packets {how}", "count": count} for how, count in counts.items() if count]


def _last_blocks(tail: bytes, layout: Layout) -> list[tuple[int, int]]:
    """Where the blocks lie that lead up to the end of the file, one right behind the other."""
    clues, _ = block_clues(np.frombuffer(tail, dtype=np.uint8), layout.order)
    by_end: dict[int, int] = {}
    for start in clues.tolist():
        (length,) = struct.unpack_from(f"{layout.order}I", tail, start + 4)
        by_end.setdefault(start + length, start)
    found = []
    end = len(tail)
    while end in by_end:
        found.append((by_end[end], end))
        end = by_end[end]
    return found[::-1]


_COPY = {"gzip": _copy_gzip, "zstd": _copy_zstd}
