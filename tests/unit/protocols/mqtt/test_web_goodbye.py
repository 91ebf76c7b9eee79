"""MQTT over WebSocket: what is said last still goes out before the socket is closed."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from websockets.frames import Close, Frame, Opcode

from battlebrokers.protocols.base import Endpoint, Held, LinkOptions, TlsFiles
from battlebrokers.protocols.mqtt.encode import encode
from battlebrokers.protocols.mqtt.link import MqttLink
from battlebrokers.protocols.mqtt.packets import V5, ConnAck, Disconnect
from support.certificates import Authority
from support.links import Ear, until
from support.websocket_server import WebPeer, WebServer, frame

BINARY, CLOSE = 2, 8
DISCONNECT = encode(Disconnect(), V5)[:1]


@dataclass(frozen=True)
class Place:
    """Who is on the other side, and which authority it has its certificate from, if any."""

    web: WebServer
    authority: Path | None


@pytest.fixture(params=["ws", "wss"])
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    authority, context = None, None
    if request.param == "wss":
        signer = Authority(tmp_path)
        authority = signer.path
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*signer.sign("server", server=True))
    async with WebServer("mqtt", context).serving() as serving:
        yield Place(serving, authority)


async def joined(server: Place, ear: Ear) -> tuple[MqttLink, WebPeer]:
    endpoint = Endpoint("wss" if server.authority else "ws", "127.0.0.1", server.web.port)
    tls = TlsFiles(ca=server.authority) if server.authority else None
    link = MqttLink(endpoint, LinkOptions("device-1", version="5", keep_alive_s=0, tls=tls), ear)
    opening = asyncio.ensure_future(link.open())
    peer = await server.web.accept()
    await peer.frame()
    peer.send(frame(encode(ConnAck(), V5), BINARY))
    await opening
    return link, peer


def code_of(last: Frame) -> int:
    assert last.opcode is Opcode.CLOSE
    return int(Close.parse(bytes(last.data)).code)


async def test_who_sends_no_websocket_is_told_with_a_close_frame(server: Place) -> None:
    ear = Ear()
    link, peer = await joined(server, ear)
    peer.send(b"\xf2\x00")
    said, last = await peer.ended()
    assert said.data[:1] == DISCONNECT
    assert code_of(last) == 1002
    await until(lambda: ear.closings)
    assert len(ear.faults) == 1
    assert link.held is Held.OFFLINE


async def test_who_closes_the_websocket_is_answered(server: Place) -> None:
    ear = Ear()
    link, peer = await joined(server, ear)
    peer.send(frame((1001).to_bytes(2, "big"), CLOSE))
    (last,) = await peer.ended()
    assert code_of(last) == 1001
    await until(lambda: ear.closings)
    assert "1001" in ear.closings[0][0]
    assert ear.faults == []
    assert link.held is Held.OFFLINE


async def test_who_sends_no_mqtt_is_told_in_mqtt_and_with_a_close_frame(server: Place) -> None:
    ear = Ear()
    link, peer = await joined(server, ear)
    peer.send(frame(b"\xf1\x00", BINARY))
    said, last = await peer.ended()
    assert said.data[:1] == DISCONNECT
    assert code_of(last) == 1002
    await until(lambda: ear.closings)
    assert link.held is Held.OFFLINE
