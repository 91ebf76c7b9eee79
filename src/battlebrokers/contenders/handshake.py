"""The one MQTT handshake that tells a broker is up: raw bytes, no protocol engine, no measuring."""

from __future__ import annotations

import socket

from battlebrokers.errors import ContenderError

_CLIENT_ID = b"bb-ready"
_CONNECT = b"\x00\x04MQTT\x04\x02\x00\x0a" + len(_CLIENT_ID).to_bytes(2, "big") + _CLIENT_ID
CONNECT = bytes([0x10, len(_CONNECT)]) + _CONNECT
DISCONNECT = b"\xe0\x00"
ACCEPTED = b"\x20\x02\x00\x00"


def accepts(host: str, port: int, timeout_s: float) -> bool:
    """Whether something there accepts a TCP connection."""
    try:
        socket.create_connection((host, port), timeout_s).close()
    except OSError:
        return False
    return True


def greet(host: str, port: int, timeout_s: float) -> str:
    """Open and close one MQTT 3.1.1 session; the answer is empty when it went well, else what went wrong."""
    answer = b""
    try:
        with socket.create_connection((host, port), timeout_s) as link:
            link.sendall(CONNECT)
            while len(answer) < len(ACCEPTED):
                chunk = link.recv(len(ACCEPTED) - len(answer))
                if not chunk:
                    return "it closed the connection without a CONNACK"
                answer += chunk
            link.sendall(DISCONNECT)
    except OSError as error:
        return f"no MQTT answer: {error}"
    return "" if answer == ACCEPTED else f"it answered {answer.hex()} to a CONNECT"


def must_accept(host: str, port: int, what: str, timeout_s: float) -> None:
    """Raise a ContenderError unless something there accepts a TCP connection."""
    try:
        socket.create_connection((host, port), timeout_s).close()
    except OSError as error:
        raise ContenderError(
            f"{what} cannot be reached: {error.strerror or error}", hint="Is it running, and is the address right?"
        ) from error
