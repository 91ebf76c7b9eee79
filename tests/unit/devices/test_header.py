from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.devices.header import HEADER, HEADER_BYTES, MAX_DEVICE, VERSION, device_word, read_many, stamp_many


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
    devices, seqs, planned_ns, ours = read_many(data, starts)
    assert ours
    assert devices.tolist() == [device] * len(planned)
    assert seqs.tolist() == [(first_seq + place) % 2**32 for place in range(len(planned))]
    assert planned_ns.tolist() == planned
    word, seq, first_planned = HEADER.unpack_from(data)
    assert (word >> 24, word & MAX_DEVICE, seq, first_planned) == (VERSION, device, first_seq % 2**32, planned[0])
    assert (payloads[:, 16:] == 0xEE).all()


def test_a_foreign_payload_among_ours_is_noticed():
    data = b"\x00" * 16 + b"\xb1" + b"\x00" * 15
    assert not read_many(data, np.array([0, 16]))[3]
