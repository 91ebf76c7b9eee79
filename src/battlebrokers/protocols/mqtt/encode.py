"""Packets to bytes, for MQTT 3.1.1 and 5: the cold path, and the truth the link's bulk builders are tested against.

Refuses (MalformedPacket) what the specification forbids, so that a wrong packet is our error, not the broker's.
"""

from __future__ import annotations

from battlebrokers.protocols.mqtt.packets import Packet


def encode(packet: Packet, version: int) -> bytes:
    """The whole frame of `packet`; a Connect carries its own version, which wins."""
    raise NotImplementedError
