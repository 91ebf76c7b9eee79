"""Headers: what is known of the frames of a chunk so far, one column per field. Filled layer by layer."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt

from battlebrokers.dissect.gather import Numbers
from battlebrokers.dissect.records import Records

ABSENT = -1
"""Stands for a field a frame does not have; on the wire no field is negative."""
FAULTS = ("fragment", "truncated", "link", "ip", "tcp", "udp", "record")
FRAGMENT, TRUNCATED, BAD_LINK, BAD_IP, BAD_TCP, BAD_UDP, BAD_RECORD = range(len(FAULTS))
"""Places in `FAULTS`."""

Mask = npt.NDArray[np.bool_]
Halves = npt.NDArray[np.uint64]


class Headers:
    """Places are offsets in the chunk."""

    def __init__(self, data: bytes, at: int, records: Records) -> None:
        count = len(records)

        def absent() -> Numbers:
            return np.full(count, ABSENT, dtype=np.int64)

        self.data = np.frombuffer(data, dtype=np.uint8)
        self.start = records.frame_at - at
        self.captured_end = self.start + records.captured_bytes
        """Where the captured part ends."""
        self.wire_end = self.start + records.original_bytes
        """Where the frame would end had all of it been captured."""
        self.link_type = records.link_type
        self.fault = absent()
        self.version = absent()
        """4 or 6, absent if there is no IP."""
        self.network_at = np.zeros(count, dtype=np.int64)
        """Where the IP header begins."""
        self.addressed = np.zeros(count, dtype=np.bool_)
        """Whether the IP header could be read."""
        self.source_high: Halves = np.zeros(count, dtype=np.uint64)
        """The first half of an address, 0 in IPv4."""
        self.source_low: Halves = np.zeros(count, dtype=np.uint64)
        self.destination_high: Halves = np.zeros(count, dtype=np.uint64)
        self.destination_low: Halves = np.zeros(count, dtype=np.uint64)
        self.protocol = absent()
        self.payload_at = absent()
        self.payload_end = absent()
        """By the headers' account, captured or not."""
        self.source_port = absent()
        self.destination_port = absent()
        self.seq = absent()
        self.ack = absent()
        self.flags = absent()
        self.window = absent()
        self.window_shift = absent()
        self.mss = absent()

    def sound(self, column: Numbers, value: int) -> Numbers:
        """The numbers of the frames without a fault in which a column has this value."""
        return np.flatnonzero((column == value) & (self.fault == ABSENT))

    def blame(self, which: Numbers, wrong: Mask, fault: int) -> None:
        """Give those of these frames that are wrong a fault."""
        if wrong.any():
            self.fault[which[wrong]] = fault

    def holds(self, which: Numbers, at: Numbers, size: int | Numbers, fault: int) -> Mask:
        """Which of these frames have `size` captured bytes at `at`; the others get a fault.

        That is `truncated` if the bytes were on the wire but not captured.
        """
        end = at + size
        whole: Mask = end <= self.captured_end[which]
        if not whole.all():
            short = which[~whole]
            self.fault[short] = np.where(end[~whole] <= self.wire_end[short], TRUNCATED, fault)
        return whole


def unread_of(headers: Headers) -> Counter[str]:
    """How many frames have which fault that keeps them out of conversations; a cut frame is followed all the same."""
    kept_out = headers.fault[(headers.fault != ABSENT) & (headers.fault != TRUNCATED)]
    return Counter(FAULTS[place] for place in kept_out.tolist())
