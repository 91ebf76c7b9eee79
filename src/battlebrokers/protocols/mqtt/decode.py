"""Bytes to packets, strict by the specifications of MQTT 3.1.1 and 5: the cold path.

Called with one complete frame. Raises MalformedPacket for anything invalid and never anything else.
"""

from __future__ import annotations

from battlebrokers.protocols.mqtt.malformed import MalformedPacket
from battlebrokers.protocols.mqtt.packets import Packet

__all__ = ["MalformedPacket", "decode"]


def decode(first_byte: int, body: bytes | memoryview, version: int) -> Packet:
    """The packet in one frame: its first byte and what follows the remaining length; a CONNECT names its own version."""
    raise NotImplementedError
