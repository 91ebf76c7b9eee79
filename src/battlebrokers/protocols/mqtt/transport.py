"""From an endpoint to a connected socket: TCP, TLS (also mutual) and WebSocket over either.

Called by the link when it opens. Every failure comes out as a LinkError that says in words what happened.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from battlebrokers.errors import InputError
from battlebrokers.protocols.base import Endpoint, LinkOptions, TlsFiles
from battlebrokers.protocols.mqtt.connection import Connection
from battlebrokers.protocols.mqtt.web_connection import WebSocketConnection
from battlebrokers.protocols.tls import tls_context, why_unreachable
from battlebrokers.protocols.upgrade import WebSocketFault
from battlebrokers.protocols.wheel import wheel_of

if TYPE_CHECKING:
    from battlebrokers.protocols.mqtt.link import MqttLink

TRANSPORTS = frozenset({"tcp", "tls", "ws", "wss"})


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
    except (OSError, WebSocketFault) as error:
        raise why_unreachable(error, name_of(endpoint), options.source_address) from error
    if upgraded is not None:
        try:
            await upgraded
        except asyncio.CancelledError:
            made.leave()
            made.transport.abort()
            raise
    return made
