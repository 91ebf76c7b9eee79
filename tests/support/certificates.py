"""Certificates for tests with TLS: an authority, and what it signs, in files that every broker can read."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# What an authority's key is for; strict readers refuse one that does not say so.
_SIGNS = x509.KeyUsage(
    digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
    data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
)  # fmt: skip


class Authority:
    """Signs certificates for a day; `path` is its own."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = _called(name)
        builder = self._begun(self._subject, self._key, is_authority=True).add_extension(_SIGNS, critical=True)
        self.path, _ = self._written(name, builder, self._key)

    def sign(self, name: str, *, server: bool = False) -> tuple[Path, Path]:
        """A certificate and its key: a client's, or one of a server at 127.0.0.1."""
        key = ec.generate_private_key(ec.SECP256R1())
        purpose = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            self._begun(_called(name), key, is_authority=False)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(signer, critical=False)
        )
        if server:
            here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
            builder = builder.add_extension(here, critical=False)
        return self._written(name, builder, key)

    def _begun(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_authority: bool
    ) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )

    def _written(
        self, name: str, builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey
    ) -> tuple[Path, Path]:
        pem = serialization.Encoding.PEM
        paths = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        paths[0].write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(pem))
        paths[1].write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
        for path in paths:
            path.chmod(0o644)
        return paths


def _called(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
