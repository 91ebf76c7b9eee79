"""MQTT over WebSocket as chapter 6 of the specifications asks: binary frames, a stream, the subprotocol."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import itertools

import pytest

from battlebrokers.errors import LinkError
from battlebrokers.protocols.base import Endpoint, Failure, LinkOptions
from battlebrokers.protocols.mqtt.encode import encode
from battlebrokers.protocols.mqtt.link import MqttLink
from battlebrokers.protocols.mqtt.packets import ConnAck, Publish
from support.links import Ear, until
from support.websocket_server import WebServer, frame

LEVELS = {"3.1.1": 4, "5": 5}


@pytest.mark.parametrize("version", LEVELS)
async def test_over_websocket_packets_travel_in_binary_frames_that_need_not_fit_them(version: str):
    async with WebServer("mqtt").serving() as serving:
        ear = Ear()
        link = MqttLink(
            Endpoint("ws", "127.0.0.1", serving.port), LinkOptions("c", version=version, keep_alive_s=0), ear
        )
        opening = asyncio.ensure_future(link.open())
        peer = await serving.accept()
        hello = await peer.frame()
        assert hello.opcode == 2
        assert bytes(hello.data)[:1] == b"\x10"
        stream = encode(ConnAck(), LEVELS[version]) + b"".join(
            encode(Publish("t", bytes([n]) * 9), LEVELS[version]) for n in range(5)
        )
        cuts = [0, 3, 4, 11, 40, len(stream)]
        for begin, end in itertools.pairwise(cuts):
            peer.send(frame(stream[begin:end], 2))
        await opening
        await until(lambda: len(ear.messages) == 5)
        link.abort()


async def test_a_text_frame_ends_the_websocket_connection():
    async with WebServer("mqtt").serving() as serving:
        ear = Ear()
        link = MqttLink(Endpoint("ws", "127.0.0.1", serving.port), LinkOptions("c", keep_alive_s=0), ear)
        opening = asyncio.ensure_future(link.open())
        peer = await serving.accept()
        await peer.frame()
        peer.send(frame(encode(ConnAck(), 4), 2))
        await opening
        peer.send(frame(encode(Publish("t", b"x"), 4), 1))
        await peer.ended()
        await until(lambda: ear.closings)
        assert ear.messages == []
        assert ear.fault_kinds == [Failure.MALFORMED]


@pytest.mark.parametrize("chosen", ["chat", "", "MQTT"])
async def test_a_server_that_does_not_choose_mqtt_as_subprotocol_is_left(chosen: str):
    asked: list[str] = []

    async def upgrade(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode()
        asked.append(request)
        key = next(
            line.split(": ")[1] for line in request.split("\r\n") if line.lower().startswith("sec-websocket-key")
        )
        proof = base64.b64encode(hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()).decode()
        choice = f"Sec-WebSocket-Protocol: {chosen}\r\n" if chosen else ""
        writer.write(
            f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {proof}\r\n{choice}\r\n".encode()
        )
        asked.append((await reader.read()).hex())
        writer.close()

    server = await asyncio.start_server(upgrade, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        link = MqttLink(Endpoint("ws", "127.0.0.1", port), LinkOptions("c", keep_alive_s=0), Ear())
        with pytest.raises(LinkError):
            await link.open()
        await until(lambda: len(asked) == 2)
        assert "Sec-WebSocket-Protocol: mqtt" in asked[0]
        assert asked[1] == "", "no MQTT is spoken"
