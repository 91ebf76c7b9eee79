"""Opening TLS records with the secrets of a key log (NSS format, as `SSLKEYLOGFILE` makes programs write it).

Used by the TLS dissector when somebody gave secrets. TLS 1.3 with all its usual ciphers, TLS 1.2 with AES-GCM and
ChaCha20; older ciphers stay closed. Knows records and keys, never what is inside.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESCCM, AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from battlebrokers.dissect.talk import CLIENT, SERVER

Secrets = Mapping[str, bytes]
"""The secrets of one connection by their label."""
SecretsByRandom = Mapping[bytes, Secrets]
"""The same of all connections, by the random number in the ClientHello."""

_TLS_1_3 = 0x0304
_LABELS = (
    ("CLIENT_EARLY_TRAFFIC_SECRET", "CLIENT_HANDSHAKE_TRAFFIC_SECRET", "CLIENT_TRAFFIC_SECRET_0"),
    ("SERVER_HANDSHAKE_TRAFFIC_SECRET", "SERVER_TRAFFIC_SECRET_0"),
)
"""The secrets of each side, in the order in which they are used."""
_MASTER = "CLIENT_RANDOM"
_LAST = frozenset({"CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0"})
"""From these on each further key is made from the one before."""
_LINE = re.compile(
    rb"^([A-Z0-9_]{1,40})[ \t]+([0-9A-Fa-f]{64})[ \t]+((?:[0-9A-Fa-f]{2}){16,64})[ \t\r]*$", re.MULTILINE
)
_IV_BYTES = 12
_SALT_BYTES = 4
_EXPLICIT_BYTES = 8
_TAG_BYTES = 16
_LEAST_RECORD_BYTES = 5 + _TAG_BYTES + 1
_MOST_MISSED = 4096
"""So many records may have been lost in a gap before a side's records stay closed."""


class _Cipher(Protocol):
    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes: ...


@dataclass(frozen=True, slots=True)
class _Suite:
    key_bytes: int
    hash: str
    cipher: Callable[[bytes], _Cipher]
    salted: bool = True
    """In TLS 1.2: whether a part of the nonce is in the record."""


_AES_128 = _Suite(16, "sha256", AESGCM)
_AES_256 = _Suite(32, "sha384", AESGCM)
_CHACHA = _Suite(32, "sha256", ChaCha20Poly1305, salted=False)
_CCM = _Suite(16, "sha256", AESCCM)
_CCM_8 = _Suite(16, "sha256", lambda key: AESCCM(key, tag_length=8))
_SUITES_1_3 = {0x1301: _AES_128, 0x1302: _AES_256, 0x1303: _CHACHA, 0x1304: _CCM, 0x1305: _CCM_8}
_SUITES_1_2 = (
    dict.fromkeys((0x009C, 0x009E, 0xC02B, 0xC02F), _AES_128)
    | dict.fromkeys((0x009D, 0x009F, 0xC02C, 0xC030), _AES_256)
    | dict.fromkeys((0xCCA8, 0xCCA9, 0xCCAA), _CHACHA)
)


def parse_key_log(text: bytes) -> dict[bytes, dict[str, bytes]]:
    """The secrets in a key log; lines of another form are passed over."""
    found: dict[bytes, dict[str, bytes]] = {}
    for label, random, secret in _LINE.findall(text):
        found.setdefault(bytes.fromhex(random.decode()), {})[label.decode()] = bytes.fromhex(secret.decode())
    return found


@dataclass(frozen=True, slots=True)
class Agreement:
    """What the two hellos agreed on."""

    version: int
    suite: int
    client_random: bytes
    server_random: bytes


@dataclass(frozen=True, slots=True)
class _Key:
    cipher: _Cipher
    iv: bytes
    open: Callable[[_Key, int, bytes, bytes], bytes]


class Opener:
    """Opens the records of one side, one after the other."""

    def __init__(self, keys: Iterator[_Key]) -> None:
        self._keys = keys
        self._key = next(keys, None)
        self._next = next(keys, None)
        self._number = 0
        """That of the next record under this key."""
        self._missed = 0
        """How many records at most may have been lost before the next one."""

    def gap(self, missing_bytes: int) -> None:
        """Records are missing: the next one may have one of many numbers."""
        self._missed = min(_MOST_MISSED, self._missed + missing_bytes // _LEAST_RECORD_BYTES + 2)

    def open(self, header: bytes, sealed: bytes) -> bytes | None:
        """What is in a record; None if this side's keys do not fit.

        Keys change silently: when the present one does not fit, the record may be the first of the next one.
        """
        for number in range(self._number, self._number + self._missed + 1):
            content = _opened(self._key, number, header, sealed)
            if content is not None:
                self._number, self._missed = number + 1, 0
                return content
        for number in range(self._missed + 1):
            content = _opened(self._next, number, header, sealed)
            if content is not None:
                self._key, self._next = self._next, next(self._keys, None)
                self._number, self._missed = number + 1, 0
                return content
        if self._missed:
            self._key = self._next = None  # nobody searches again and again
        return None


def openers(agreed: Agreement, secrets: Secrets) -> tuple[Opener, Opener] | None:
    """Who opens the records of client and server; None if the secrets or the cipher do not allow it."""
    if agreed.version == _TLS_1_3:
        suite = _SUITES_1_3.get(agreed.suite)
        if suite is None:
            return None
        return Opener(_keys_1_3(suite, secrets, CLIENT)), Opener(_keys_1_3(suite, secrets, SERVER))
    suite = _SUITES_1_2.get(agreed.suite)
    if suite is None or _MASTER not in secrets:
        return None
    return _openers_1_2(suite, secrets[_MASTER], agreed)


def _opened(key: _Key | None, number: int, header: bytes, sealed: bytes) -> bytes | None:
    if key is None:
        return None
    try:
        return key.open(key, number, header, sealed)
    except (InvalidTag, ValueError):
        return None


def _keys_1_3(suite: _Suite, secrets: Secrets, sender: int) -> Iterator[_Key]:
    for label in _LABELS[sender]:
        secret = secrets.get(label)
        while secret is not None:
            key = expand_label(suite.hash, secret, b"key", suite.key_bytes)
            iv = expand_label(suite.hash, secret, b"iv", _IV_BYTES)
            yield _Key(suite.cipher(key), iv, _open_1_3)
            secret = expand_label(suite.hash, secret, b"traffic upd", len(secret)) if label in _LAST else None


def expand_label(hash_name: str, secret: bytes, label: bytes, size: int) -> bytes:
    """HKDF-Expand-Label of TLS 1.3 without a context (RFC 8446, 7.1)."""
    label = b"tls13 " + label
    info = size.to_bytes(2, "big") + bytes((len(label),)) + label + b"\x00"
    algorithm = hashes.SHA384() if hash_name == "sha384" else hashes.SHA256()
    return HKDFExpand(algorithm, size, info).derive(secret)


def _openers_1_2(suite: _Suite, master: bytes, agreed: Agreement) -> tuple[Opener, Opener]:
    key_bytes, iv_bytes = suite.key_bytes, _SALT_BYTES if suite.salted else _IV_BYTES
    seed = b"key expansion" + agreed.server_random + agreed.client_random
    block = _pseudo_random(suite.hash, master, seed, 2 * (key_bytes + iv_bytes))

    def opener(sender: int) -> Opener:
        start = 2 * key_bytes + sender * iv_bytes
        iv, key = block[start : start + iv_bytes], block[sender * key_bytes : (sender + 1) * key_bytes]
        return Opener(iter((_Key(suite.cipher(key), iv, _open_1_2),)))

    return opener(CLIENT), opener(SERVER)


def _pseudo_random(hash_name: str, secret: bytes, seed: bytes, size: int) -> bytes:
    """The pseudo-random function of TLS 1.2 (RFC 5246, 5)."""
    made, link = b"", seed
    while len(made) < size:
        link = hmac.digest(secret, link, hash_name)
        made += hmac.digest(secret, link + seed, hash_name)
    return made[:size]


def _nonce(iv: bytes, number: int) -> bytes:
    return (int.from_bytes(iv, "big") ^ number).to_bytes(_IV_BYTES, "big")


def _open_1_3(key: _Key, number: int, header: bytes, sealed: bytes) -> bytes:
    return key.cipher.decrypt(_nonce(key.iv, number), sealed, header)


def _open_1_2(key: _Key, number: int, header: bytes, sealed: bytes) -> bytes:
    if len(key.iv) == _SALT_BYTES:
        nonce, sealed = key.iv + sealed[:_EXPLICIT_BYTES], sealed[_EXPLICIT_BYTES:]
    else:
        nonce = _nonce(key.iv, number)
    size = max(0, len(sealed) - _TAG_BYTES)
    return key.cipher.decrypt(nonce, sealed, number.to_bytes(8, "big") + header[:3] + size.to_bytes(2, "big"))
