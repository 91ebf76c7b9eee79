"""Captures made ready for reading in parallel: checked, and unpacked if they are packed. Called on the driver.

Packed files cannot be read from the middle, so each is unpacked once, in a stream, beside the tables made from it,
wherever they lie.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from battlebrokers.dissect.capture_format import STATISTICS, Drops, Layout, drops_of, layout_of
from battlebrokers.dissect.clues import block_clues
from battlebrokers.errors import InputError
from battlebrokers.pipeline.sources.files import RandomFile, local_path, open_new
from battlebrokers.pipeline.sources.packed import Packing, packing_of, unpack
from battlebrokers.pipeline.store import Store

UNPACKED = "decoded/captures"
"""Where unpacked captures lie in a store."""

Defect = dict[str, Any]
"""`file`, `reason` and `count`."""

_HINT = "Captures are pcap or pcapng files, plain or packed with gzip or zstd; dumpcap and tcpdump write them."
_TAIL_BYTES = 64 << 10


def unpacked(files: Sequence[str], target: Store) -> tuple[list[str], list[Defect]]:
    """The plain files to read instead of these, in the same order, and what is wrong with them."""
    plain: list[str] = []
    defects: list[Defect] = []
    for number, file in enumerate(files):
        front = _front(file)
        packing = packing_of(front)
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
    return "" if packing_of(front) or layout_of(front) else "it is no capture"


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


def _unpack(file: str, packing: Packing, number: int, target: Store, defects: list[Defect]) -> str:
    name = Path(file).name.removesuffix(".gz").removesuffix(".zst")
    ready = target.locate(f"{UNPACKED}/{number:03}-{name}")
    with open_new(ready) as plain:
        wrong = unpack(file, packing, plain)
        empty = plain.tell() == 0
    if empty:
        raise InputError(f"{file} holds nothing that can be unpacked", hint=_HINT)
    defects += [{"file": file, "reason": reason, "count": count} for reason, count in wrong.items()]
    return local_path(ready) or ready


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
