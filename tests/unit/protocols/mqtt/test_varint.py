"""The variable byte integer at its borders."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.protocols.mqtt.malformed import MalformedPacket
from battlebrokers.protocols.mqtt.varint import decode_varint, encode_varint

BORDERS = [
    (0, "00"),
    (1, "01"),
    (127, "7f"),
    (128, "8001"),
    (16_383, "ff7f"),
    (16_384, "808001"),
    (2_097_151, "ffff7f"),
    (2_097_152, "80808001"),
    (268_435_455, "ffffff7f"),
]


@pytest.mark.parametrize(("value", "wire"), BORDERS)
def test_each_border_has_its_bytes_in_both_directions(value: int, wire: str) -> None:
    raw = bytes.fromhex(wire)
    assert encode_varint(value) == raw
    assert decode_varint(raw) == (value, len(raw))
    assert decode_varint(b"\xff" + raw + b"\xff", 1) == (value, 1 + len(raw))


@pytest.mark.parametrize("value", [268_435_456, -1, 1 << 60])
def test_what_does_not_fit_four_bytes_is_refused(value: int) -> None:
    with pytest.raises(MalformedPacket):
        encode_varint(value)


@pytest.mark.parametrize("wire", ["ffffffff", "80808080", "8080808001", "ffffffff7f"])
def test_a_fifth_byte_is_malformed(wire: str) -> None:
    with pytest.raises(MalformedPacket):
        decode_varint(bytes.fromhex(wire))


@pytest.mark.parametrize("wire", ["8000", "ff00", "808000", "80808000"])
def test_more_bytes_than_needed_are_malformed(wire: str) -> None:
    with pytest.raises(MalformedPacket):
        decode_varint(bytes.fromhex(wire))


@pytest.mark.parametrize("wire", ["", "80", "ff", "8080", "ffffff"])
def test_missing_bytes_are_not_an_error_yet(wire: str) -> None:
    assert decode_varint(bytes.fromhex(wire)) is None
    assert decode_varint(b"\x01" + bytes.fromhex(wire), 1) is None


@given(st.integers(0, 268_435_455), st.binary(max_size=3))
def test_every_value_comes_back(value: int, after: bytes) -> None:
    raw = encode_varint(value)
    assert decode_varint(memoryview(raw + after)) == (value, len(raw))
