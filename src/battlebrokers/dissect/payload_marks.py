"""What a payload is known by on every wire: our header in it, an identifier, a hash of the whole. Called by talks."""

from __future__ import annotations

from xxhash import xxh3_64_intdigest

from battlebrokers.dissect.payload_ids import header_of, named
from battlebrokers.tables.message_header import HEADER, HEADER_BYTES, MAX_DEVICE, VERSION


def marks_of(payload: bytes, seen_ns: int) -> tuple[int | None, int | None, int | None]:
    """Device and number if our header is in it, as it is or as digits in something else; and its identity."""
    if not payload:
        return None, None, None
    if payload[0] == VERSION and len(payload) >= HEADER_BYTES:
        word, seq, _ = HEADER.unpack_from(payload)
        return word & MAX_DEVICE, seq, None
    identity, wrapped = named(payload, seen_ns)
    if wrapped and identity is not None:
        return *header_of(identity), identity
    return None, None, identity


def fingerprints_of(payloads: list[bytes]) -> list[int | None]:
    """Of many payloads, none of them too long to have one; an empty one has none."""
    if all(payloads):
        return list(map(xxh3_64_intdigest, payloads))
    return [xxh3_64_intdigest(one) if one else None for one in payloads]


def fingerprint_of(payload: bytes) -> int:
    """A 64-bit hash, the same everywhere; unsigned."""
    return xxh3_64_intdigest(payload)
