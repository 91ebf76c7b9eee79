"""The HTTP upgrade that turns a connection into a WebSocket (RFC 6455, section 4).

Called once a connection by links over WebSocket; `frames` takes over behind it. Pure: bytes in, bytes out, no sockets.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Mapping

MAX_HEADER_BYTES = 16_384

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_END = b"\r\n\r\n"
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")


class WebSocketFault(ValueError):  # noqa: N818 - reads as what it is
    """The server broke RFC 6455 or refused the upgrade; `close_code` goes into our close frame, `status` is HTTP's."""

    def __init__(self, message: str, close_code: int = 1002, status: int = 0) -> None:
        super().__init__(message)
        self.close_code = close_code
        self.status = status


def new_key() -> str:
    """A fresh Sec-WebSocket-Key."""
    return base64.b64encode(os.urandom(16)).decode("ascii")


def accept_for(key: str) -> str:
    """What a server that understood `key` answers."""
    return base64.b64encode(hashlib.sha1(key.encode("ascii") + _GUID, usedforsecurity=False).digest()).decode("ascii")


def handshake_request(
    host: str,
    port: int,
    path: str,
    key: str,
    *,
    secure: bool = False,
    subprotocol: str = "mqtt",
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """The HTTP upgrade request; no extension is offered. Raises WebSocketFault for what no request can carry."""
    name = f"[{host}]" if ":" in host else host
    authority = name if port == (443 if secure else 80) else f"{name}:{port}"
    target = path if path.startswith("/") else f"/{path}"
    if any(character <= " " or character > "~" for character in authority + target + key + subprotocol):
        raise WebSocketFault(f"{authority}{target} cannot be written into a request; percent-encode it")
    lines = [
        f"GET {target} HTTP/1.1",
        f"Host: {authority}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {key}",
        "Sec-WebSocket-Version: 13",
    ]
    if subprotocol:
        lines.append(f"Sec-WebSocket-Protocol: {subprotocol}")
    for header, value in (headers or {}).items():
        if not _HEADER_NAME.fullmatch(header) or not _HEADER_VALUE.fullmatch(value):
            raise WebSocketFault(f"the header {header[:60]!r} cannot be written into a request")
        lines.append(f"{header}: {value}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


class Handshake:
    """Reads the server's answer to `handshake_request`, however it is cut into chunks."""

    __slots__ = ("_buffer", "_key", "_max_header_bytes", "_subprotocol")

    def __init__(self, key: str, max_header_bytes: int = MAX_HEADER_BYTES, subprotocol: str = "mqtt") -> None:
        self._key = key
        self._subprotocol = subprotocol
        self._max_header_bytes = max_header_bytes
        self._buffer = b""

    def feed(self, data: bytes) -> bytes | None:
        """None while the answer is incomplete, then the bytes that follow it; raises WebSocketFault on a refusal."""
        # Only what may be header is kept, so a server that never ends its header costs no more than the limit.
        room = self._max_header_bytes + len(_END) - len(self._buffer)
        self._buffer += data[:room]
        end = self._buffer.find(_END)
        if not b"HTTP/1.1 ".startswith(self._buffer[:9]):
            raise WebSocketFault(f"the server does not speak HTTP/1.1: {self._buffer[:20]!r}")
        if end < 0 and len(self._buffer) > self._max_header_bytes:
            raise WebSocketFault(f"the server's header is longer than {self._max_header_bytes} bytes")
        if end < 0:
            return None
        rest = self._buffer[end + len(_END) :] + data[room:]
        _check_answer(self._buffer[:end].decode("latin-1"), self._key, self._subprotocol)
        self._buffer = b""
        return rest


def _check_answer(text: str, key: str, subprotocol: str) -> None:
    status_line, *lines = text.split("\r\n")
    status, _, words = status_line[9:].partition(" ")
    if len(status) != 3 or not (status.isascii() and status.isdigit()):
        raise WebSocketFault(f"{status_line[:60]!r} is no HTTP status line")
    if status != "101":
        raise WebSocketFault(f"the server refused the upgrade: {status} {words[:60]}".rstrip(), status=int(status))
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise WebSocketFault(f"{line[:60]!r} is no HTTP header")
        name, value = name.lower(), value.strip(" \t")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    if headers.get("upgrade", "").lower() != "websocket":
        raise WebSocketFault("the answer does not upgrade to websocket", status=101)
    if "upgrade" not in {token.strip().lower() for token in headers.get("connection", "").split(",")}:
        raise WebSocketFault("the answer's Connection header does not say Upgrade", status=101)
    if headers.get("sec-websocket-accept") != accept_for(key):
        raise WebSocketFault("Sec-WebSocket-Accept does not match our key", status=101)
    chosen = headers.get("sec-websocket-protocol", "")
    if chosen != subprotocol:
        wanted = f"did not choose the subprotocol {subprotocol}" if subprotocol else "chose a subprotocol unasked"
        raise WebSocketFault(f"the server {wanted}", status=101)
    if headers.get("sec-websocket-extensions"):
        raise WebSocketFault("the server chose an extension we did not offer", status=101)
