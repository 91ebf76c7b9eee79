"""A CoAP server whose every datagram is the test's; requests are read by aiocoap, not by our own code."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from aiocoap import ACK, CON, NON, RST, Message
from aiocoap.numbers.codes import Code

WITHIN_S = 60.0
KINDS = {"con": CON, "non": NON, "ack": ACK, "rst": RST}


class CoapPeer(asyncio.DatagramProtocol):
    """Keeps what came, and sends what it is told."""

    def __init__(self) -> None:
        self.port = 0
        self._came: asyncio.Queue[Message] = asyncio.Queue()
        self._transport: asyncio.DatagramTransport | None = None
        self._address: tuple[str, int] | None = None
        self.deaf = 0
        """How many of the next datagrams are lost."""
        self.pings = True
        """Whether pings are answered."""
        self.last_bytes = 0
        """The size of the latest datagram."""

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        self._address = address
        self.last_bytes = len(data)
        if data[:2] == b"\x40\x00":
            if self.pings:
                self.send(b"\x70\x00" + data[2:4])
        elif self.deaf:
            self.deaf -= 1
        else:
            self._came.put_nowait(Message.decode(data))

    def send(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.sendto(data, self._address)

    async def request(self) -> Message:
        """What the link said next."""
        return await asyncio.wait_for(self._came.get(), WITHIN_S)

    async def silence(self, seconds: float = 0.3) -> None:
        with contextlib.suppress(TimeoutError):
            got = await asyncio.wait_for(self._came.get(), seconds)
            raise AssertionError(f"expected silence, got {got}")

    def answer(
        self,
        request: Message,
        code: Code,
        payload: bytes = b"",
        *,
        kind: str = "ack",
        mid: int | None = None,
        **options: object,
    ) -> bytes:
        """Send a response with the request's token; `ack` carries its message id too. Returns the datagram."""
        response = Message(code=code, payload=payload)
        response.mtype = KINDS[kind]
        response.mid = request.mid if mid is None else mid
        response.token = request.token
        for name, value in options.items():
            setattr(response.opt, name, value)
        data: bytes = response.encode()
        self.send(data)
        return data

    def acknowledge(self, request: Message) -> None:
        """Only say that it came."""
        self.send(b"\x60\x00" + request.mid.to_bytes(2, "big"))

    def reset(self, request: Message) -> None:
        self.send(b"\x70\x00" + request.mid.to_bytes(2, "big"))

    def vanish(self) -> None:
        """Close the socket; the kernel answers with ICMP from now on."""
        assert self._transport is not None
        self._transport.abort()


@contextlib.asynccontextmanager
async def coap_peer() -> AsyncIterator[CoapPeer]:
    transport, peer = await asyncio.get_running_loop().create_datagram_endpoint(CoapPeer, local_addr=("127.0.0.1", 0))
    peer.port = transport.get_extra_info("sockname")[1]
    yield peer
    transport.close()
