"""The layout of the 16-byte header that rides in payloads: what devices write and captures are searched for.

Big endian: one byte version (0xB1), 24 bits device, 32 bits sequence, 64 bits planned run time in nanoseconds.
"""

from __future__ import annotations

import struct

HEADER = struct.Struct(">IIQ")
HEADER_BYTES = HEADER.size
VERSION = 0xB1
MAX_DEVICE = 0xFFFFFF
SEQ_MASK = 0xFFFFFFFF
