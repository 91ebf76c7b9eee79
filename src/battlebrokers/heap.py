"""What the analysis needs of this machine, by how many events there are: known before Spark starts. Pure.

Used where Spark is started, and by the preflight that tells before a load whether it will find all that.
"""

from __future__ import annotations

_GIB = 1 << 30
_MIB = 1 << 20
QUICK_EVENTS = 1_000_000
"""Up to here a JVM that compiles quickly beats one that compiles well."""
FEW_EVENTS = 200_000
"""Up to here generating and compiling code takes longer than doing without."""

JAVA_FILES = 400
"""Open files of Spark's Java: each of its nearly 300 libraries is one."""
_BESIDE_HEAP_BYTES = 3 * _GIB
"""Address space of a JVM beside its heap: classes, compiled code, stacks; measured 2.8 GiB with the smallest heap."""
_LEAST_SCRATCH_BYTES = 64 * _MIB
_SCRATCH_BYTES_PER_EVENT = 32


def heap_bytes(events: int, memory_bytes: int) -> int:
    """The JVM's heap; 0 events means that nobody knows how many there are."""
    most = min(memory_bytes // 2, 6 * _GIB)
    if 0 < events <= FEW_EVENTS:
        return min(most, _GIB // 2)
    # A heap that may grow does, whatever the work needs; captures of any size pass through it in blocks.
    return min(most, _GIB) if 0 < events <= QUICK_EVENTS else most


def address_space_bytes(events: int, memory_bytes: int) -> int:
    """What `ulimit -v` must allow."""
    return heap_bytes(events, memory_bytes) + _BESIDE_HEAP_BYTES


def scratch_bytes(events: int) -> int:
    """What its temporary folder must have room for."""
    return max(_LEAST_SCRATCH_BYTES, events * _SCRATCH_BYTES_PER_EVENT)
