from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.devices.header import (
    device_word,
    headers_at,
    headers_every,
    ours_at,
    ours_every,
    stamp_many,
)
from battlebrokers.tables.message_header import HEADER, HEADER_BYTES, MAX_DEVICE, VERSION


def test_the_header_is_16_bytes_so_that_the_smallest_standard_payload_carries_it():
    assert HEADER_BYTES == 16


@given(
    device=st.integers(0, MAX_DEVICE),
    first_seq=st.integers(0, 2**33),
    planned=st.lists(st.integers(0, 2**62), min_size=1, max_size=20),
    extra=st.integers(0, 40),
)
def test_what_is_stamped_in_bulk_reads_back_in_bulk_and_one_by_one(device, first_seq, planned, extra):
    payloads = np.full((len(planned), 16 + extra), 0xEE, dtype=np.uint8)
    stamp_many(payloads, device_word(device), first_seq, np.array(planned, dtype=np.int64))
    data = payloads.tobytes()
    starts = np.arange(len(planned), dtype=np.int64) * (16 + extra)
    assert ours_every(data, 0, 16 + extra, len(planned))
    for headers in (headers_at(data, starts), headers_every(data, 0, 16 + extra, len(planned))):
        assert ours_at(headers)
        assert (headers["word"] & MAX_DEVICE).tolist() == [device] * len(planned)
        assert headers["seq"].tolist() == [(first_seq + place) % 2**32 for place in range(len(planned))]
        assert headers["planned_ns"].tolist() == planned
    word, seq, first_planned = HEADER.unpack_from(data)
    assert (word >> 24, word & MAX_DEVICE, seq, first_planned) == (VERSION, device, first_seq % 2**32, planned[0])
    assert (payloads[:, 16:] == 0xEE).all()


@pytest.mark.parametrize(
    "foreign", [b"\x00" * 16, b"\xb0" + b"\x00" * 15, b"\xb1" + b"\x00" * 7 + b"\x80" + b"\x00" * 7]
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_foreign_payload_among_ours_is_noticed(foreign, place):
    payloads = [b"\xb1" + b"\x00" * 15] * 3
    payloads[place] = foreign
    data = b"".join(b"head" + payload for payload in payloads)
    assert not ours_every(data, 4, 20, 3)
    assert not ours_at(headers_at(data, np.array([4, 24, 44])))
