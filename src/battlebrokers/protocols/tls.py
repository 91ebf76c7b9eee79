"""What every link over TCP needs to connect: TLS settings from files, and words for what went wrong.

Called by the protocols when they open connections. Knows no protocol and opens nothing itself.
"""

from __future__ import annotations

import socket
import ssl
from functools import lru_cache

from battlebrokers.errors import InputError, LinkError
from battlebrokers.protocols.base import Failure, TlsFiles


@lru_cache(maxsize=64)
def tls_context(files: TlsFiles) -> ssl.SSLContext:
    """The TLS settings for these files; made once, shared by all links that use them."""
    try:
        context = ssl.create_default_context(cafile=files.ca)
        if not files.check_hostname:
            context.check_hostname = False
        if files.certificate is not None:
            context.load_cert_chain(files.certificate, files.key)
    except (OSError, ssl.SSLError) as error:
        names = ", ".join(str(name) for name in (files.ca, files.certificate, files.key) if name)
        raise InputError(
            f"the TLS files cannot be used ({names}): {error}",
            hint="They must be readable PEM files that fit together.",
        ) from error
    return context


def why_unreachable(error: Exception, place: str, source_address: str | None = None) -> LinkError:
    """What kept a connection to `place` from being made, in words."""
    hint, code = "", -1
    match error:
        case ConnectionRefusedError():
            words, hint = "nobody listens there", "Is the broker running, and is the port right?"
            code = Failure.CLOSED
        case ssl.SSLCertVerificationError():
            words = f"its certificate is not trusted: {error.verify_message}"
            hint = "Give its authority with `ca`, or say `check_hostname: false` when only the name differs."
            code = Failure.TLS
        case ssl.SSLError():
            words = f"the TLS handshake failed: {error.reason or error}"
            hint = "Is that port a TLS port, and does the broker want a client certificate?"
            code = Failure.TLS
        case socket.gaierror():
            words, hint = f"the name cannot be resolved: {error.strerror}", "Check the host name."
        case ConnectionResetError() | ConnectionAbortedError():
            words, code = "it dropped the connection while it was being made", Failure.CLOSED
        case TimeoutError():
            words, code = "it does not answer", Failure.TIMEOUT
        case OSError() if source_address and error.errno in {99, 98}:
            words = f"source address {source_address} cannot be used: {error.strerror}"
            hint = "Use addresses of this machine; each gives about 28 000 connections."
        case OSError() if error.errno == 24:
            words, hint = "no more open files are allowed", "Raise the limit (`ulimit -n`) or use more processes."
        case _:
            words = str(error) or type(error).__name__
    return LinkError(f"cannot connect to {place}: {words}", hint=hint, code=code)
