"""Randomness by position: the n-th roll of a seed, the same in any order, process and block size.

Used by paces, payloads and topics, so that a plan can be cut into pieces anywhere. No state, no global generator.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import numpy.typing as npt

_MASK = 0xFFFF_FFFF_FFFF_FFFF
_STEP = 0x9E37_79B9_7F4A_7C15
_FIRST = 0xBF58_476D_1CE4_E5B9
_SECOND = 0x94D0_49BB_1331_11EB
_UNIT = 2.0**-53

TOPIC, SIZE, CONTENT, PACE, PHASE = range(5)
"""The purposes a node rolls dice for; see `branch`."""

_S27, _S30, _S31, _S11, _S32 = (np.uint64(n) for n in (27, 30, 31, 11, 32))
_STEP64, _FIRST64, _SECOND64 = np.uint64(_STEP), np.uint64(_FIRST), np.uint64(_SECOND)


def seed_of(*parts: object) -> int:
    """A 63-bit seed from any parts, the same on every machine and Python."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") >> 1


def branch(seed: int, number: int) -> int:
    """Another seed for another purpose of the same node, so that its topics, sizes and gaps are independent."""
    return roll(seed ^ 0x5851_F42D_4C95_7F2D, number) >> 1


def roll(seed: int, position: int) -> int:
    """64 random bits (SplitMix64 at that position)."""
    z = (seed + (position + 1) * _STEP) & _MASK
    z = ((z ^ (z >> 30)) * _FIRST) & _MASK
    z = ((z ^ (z >> 27)) * _SECOND) & _MASK
    return z ^ (z >> 31)


def rolls(seed: int, first: int, count: int) -> npt.NDArray[np.uint64]:
    """`roll` for positions first … first + count - 1."""
    z = np.arange(first + 1, first + count + 1, dtype=np.uint64)
    z *= _STEP64
    z += np.uint64(seed & _MASK)
    return _mixed(z)


def below(seed: int, position: int, limit: int) -> int:
    """A whole number in 0 … limit - 1 (limit up to 2**32)."""
    return ((roll(seed, position) >> 32) * limit) >> 32


def belows(seed: int, first: int, count: int, limit: int) -> npt.NDArray[np.int64]:
    """`below` for positions first … first + count - 1."""
    scaled = (rolls(seed, first, count) >> _S32) * np.uint64(limit)
    return (scaled >> _S32).astype(np.int64)


def belows_at(
    seeds: npt.NDArray[np.int64], positions: npt.NDArray[np.int64], limits: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """`below` for many seeds, each with a position and a limit of its own."""
    z = (positions + 1).astype(np.uint64) * _STEP64 + seeds.astype(np.uint64)
    scaled = (_mixed(z) >> _S32) * limits.astype(np.uint64)
    return (scaled >> _S32).astype(np.int64)


def _mixed(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    z ^= z >> _S30
    z *= _FIRST64
    z ^= z >> _S27
    z *= _SECOND64
    z ^= z >> _S31
    return z


def unit(seed: int, position: int) -> float:
    """A number in [0, 1)."""
    return (roll(seed, position) >> 11) * _UNIT


def units(seed: int, first: int, count: int) -> npt.NDArray[np.float64]:
    """`unit` for positions first … first + count - 1."""
    return (rolls(seed, first, count) >> _S11).astype(np.float64) * _UNIT
