"""From an endpoint to a connected socket: TCP, TLS (also mutual) and WebSocket over either.

Called by the link when it opens. Every failure comes out as a LinkError that says in words what happened.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from functools import lru_cache
from typing import TYPE_CHECKING

from battlebrokers.errors import InputError, LinkError
from battlebrokers.protocols.base import Endpoint, LinkOptions, TlsFiles
from battlebrokers.protocols.mqtt.connection import Connection
from battlebrokers.protocols.mqtt.keepalive import wheel_of
from battlebrokers.protocols.mqtt.malformed import MalformedPacket
from battlebrokers.protocols.mqtt.web_connection import WebSocketConnection

if TYPE_CHECKING:
    from battlebrokers.protocols.mqtt.link import MqttLink

TRANSPORTS = frozenset({"tcp", "tls", "ws", "wss"})


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


def name_of(endpoint: Endpoint) -> str:
    """The endpoint as a URL, for messages."""
    scheme = {"tcp": "mqtt", "tls": "mqtts"}.get(endpoint.transport, endpoint.transport)
    path = endpoint.path if endpoint.transport in {"ws", "wss"} else ""
    return f"{scheme}://{endpoint.host}:{endpoint.port}{path}"


async def connect(link: MqttLink, endpoint: Endpoint, options: LinkOptions) -> Connection:
    """A connection ready for CONNECT; the caller limits the time."""
    if endpoint.transport not in TRANSPORTS:
        raise InputError(f"MQTT does not run over {endpoint.transport!r}", hint="Use tcp, tls, ws or wss.")
    loop = asyncio.get_running_loop()
    wheel = wheel_of(loop)
    welcome: asyncio.Future[None] = loop.create_future()
    secure = endpoint.transport in {"tls", "wss"}
    context = tls_context(options.tls or TlsFiles()) if secure else None
    upgraded: asyncio.Future[None] | None = None
    made: Connection
    try:
        if endpoint.transport in {"ws", "wss"}:
            upgraded = loop.create_future()
            made = WebSocketConnection(link, wheel, welcome, endpoint, upgraded)
        else:
            made = Connection(link, wheel, welcome)
        await loop.create_connection(
            lambda: made,
            endpoint.host,
            endpoint.port,
            ssl=context,
            server_hostname=endpoint.host if secure else None,
            ssl_handshake_timeout=options.connect_timeout_s if secure else None,
            local_addr=(options.source_address, 0) if options.source_address else None,
        )
    except (OSError, MalformedPacket) as error:
        raise _in_words(error, endpoint, options) from error
    if upgraded is not None:
        try:
            await upgraded
        except asyncio.CancelledError:
            made.leave()
            made.transport.abort()
            raise
    return made


def _in_words(error: Exception, endpoint: Endpoint, options: LinkOptions) -> LinkError:
    place = name_of(endpoint)
    hint = ""
    match error:
        case ConnectionRefusedError():
            words, hint = "nobody listens there", "Is the broker running, and is the port right?"
        case ssl.SSLCertVerificationError():
            words = f"its certificate is not trusted: {error.verify_message}"
            hint = "Give its authority with `ca`, or say `check_hostname: false` when only the name differs."
        case ssl.SSLError():
            words = f"the TLS handshake failed: {error.reason or error}"
            hint = "Is that port a TLS port, and does the broker want a client certificate?"
        case socket.gaierror():
            words, hint = f"the name cannot be resolved: {error.strerror}", "Check the host name."
        case ConnectionResetError() | ConnectionAbortedError():
            words = "it dropped the connection while it was being made"
        case OSError() if options.source_address and error.errno in {99, 98}:
            words = f"source address {options.source_address} cannot be used: {error.strerror}"
            hint = "Use addresses of this machine; each gives about 28 000 connections."
        case OSError() if error.errno == 24:
            words, hint = "no more open files are allowed", "Raise the limit (`ulimit -n`) or use more processes."
        case _:
            words = str(error) or type(error).__name__
    return LinkError(f"cannot connect to {place}: {words}", hint=hint)
