"""The client's side of RFC 6455 that MQTT over WebSocket needs: handshake, masking, unwrapping.

Called by the link between the transport and the framing. Pure: bytes in, bytes out, no sockets.
"""

from __future__ import annotations

from battlebrokers.protocols.mqtt.malformed import MalformedPacket


class WebSocketFault(MalformedPacket):
    """The server broke RFC 6455 or refused the upgrade; `close_code` goes into our close frame, `status` is HTTP's."""

    def __init__(self, message: str, close_code: int = 1002, status: int = 0) -> None:
        super().__init__(message)
        self.close_code = close_code
        self.status = status


def new_key() -> str:
    """A fresh Sec-WebSocket-Key."""
    raise NotImplementedError


def handshake_request(host: str, port: int, path: str, key: str, *, secure: bool = False) -> bytes:
    """The HTTP upgrade request with the subprotocol `mqtt`."""
    raise NotImplementedError


class Handshake:
    """Reads the server's answer to `handshake_request`, however it is cut into chunks."""

    def __init__(self, key: str, max_header_bytes: int = 16_384) -> None:
        raise NotImplementedError

    def feed(self, data: bytes) -> bytes | None:
        """None while the answer is incomplete, then the bytes that follow it; raises WebSocketFault on a refusal."""
        raise NotImplementedError


def wrap(data: bytes, mask: bytes | None = None) -> bytes:
    """One masked binary frame around `data`; `mask` (4 bytes) is random unless given."""
    raise NotImplementedError


def close_frame(code: int = 1000, mask: bytes | None = None) -> bytes:
    """A masked close frame."""
    raise NotImplementedError


class Unwrapper:
    """Takes WebSocket frames apart: `feed` returns the data, `replies` what must be sent back."""

    closed: int | None
    """The close code once the server said goodbye (1005 when it gave none)."""

    def __init__(self, max_frame_bytes: int = 268_435_460) -> None:
        raise NotImplementedError

    def feed(self, data: bytes) -> bytes:
        """The payload bytes of the data frames in `data`; raises WebSocketFault when the server breaks the rules."""
        raise NotImplementedError

    def replies(self) -> bytes:
        """Frames owed to the server since the last call: pongs and the answer to a close. Usually empty."""
        raise NotImplementedError
