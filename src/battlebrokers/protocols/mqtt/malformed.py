"""The one way our MQTT code says that bytes (or a packet to be written) are not valid MQTT.

Raised by decode, encode and framing; the link turns it into a close and a count. Nothing else is raised.
"""

from __future__ import annotations

MALFORMED = 0x81
PROTOCOL_ERROR = 0x82
UNSUPPORTED_VERSION = 0x84
CLIENT_ID_INVALID = 0x85
FILTER_INVALID = 0x8F
TOPIC_INVALID = 0x90
RECEIVE_MAXIMUM_EXCEEDED = 0x93
TOPIC_ALIAS_INVALID = 0x94
PACKET_TOO_LARGE = 0x95


class MalformedPacket(ValueError):  # noqa: N818 - reads as what it is
    """Bytes that are no valid MQTT; `reason` is the MQTT 5 reason code a DISCONNECT would carry."""

    def __init__(self, message: str, reason: int = MALFORMED) -> None:
        super().__init__(message)
        self.reason = reason
