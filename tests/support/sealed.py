"""TLS records sealed by hand: the same words always give the same bytes, so that a fuzzed round can be repeated."""

from __future__ import annotations

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from battlebrokers.dissect.tls_secrets import expand_label

CLIENT_RANDOM = b"r" * 32
_SECRETS = {"CLIENT_TRAFFIC_SECRET_0": b"c" * 32, "SERVER_TRAFFIC_SECRET_0": b"s" * 32}
SECRETS = {CLIENT_RANDOM: _SECRETS}
"""As a key log has them."""
APPLICATION, HANDSHAKE, ALERT = 23, 22, 21


def record(kind: int, content: bytes) -> bytes:
    return bytes((kind, 3, 3)) + len(content).to_bytes(2, "big") + content


CLIENT_HELLO = record(HANDSHAKE, bytes.fromhex("0100002b0303") + CLIENT_RANDOM + bytes.fromhex("000002130101000000"))
SERVER_HELLO = record(
    HANDSHAKE, bytes.fromhex("0200002e0303") + b"q" * 32 + bytes.fromhex("00 1301 00 0006 002b 0002 0304")
)
"""They agree on TLS 1.3 with AES-128-GCM."""


class Sealer:
    """One side after the handshake."""

    def __init__(self, sender: int) -> None:
        self._secret = list(_SECRETS.values())[sender]
        self._number = 0

    def seal(self, content: bytes, kind: int = APPLICATION, *, padding: int = 0) -> bytes:
        """The next record of this side."""
        inside = content + bytes((kind,)) + bytes(padding)
        key, iv = (expand_label("sha256", self._secret, label, size) for label, size in ((b"key", 16), (b"iv", 12)))
        nonce = (int.from_bytes(iv, "big") ^ self._number).to_bytes(12, "big")
        header = bytes((APPLICATION, 3, 3)) + (len(inside) + 16).to_bytes(2, "big")
        self._number += 1
        return header + AESGCM(key).encrypt(nonce, inside, header)

    def change_key(self) -> None:
        """From the next record on another one holds."""
        self._secret = expand_label("sha256", self._secret, b"traffic upd", len(self._secret))
        self._number = 0
