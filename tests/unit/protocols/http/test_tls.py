"""HTTP over TLS: also mutual, and how it fails."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from battlebrokers.errors import LinkError
from battlebrokers.protocols.base import Endpoint, Failure, LinkOptions, Outgoing, TlsFiles
from battlebrokers.protocols.http.plain import PlainHttpLink
from support.certificates import Authority
from support.links import Ear, until
from support.web import Web

pytestmark = pytest.mark.usefixtures("quiet_loop")


def make(web: Web, ear: Ear | None = None, **options: object) -> PlainHttpLink:
    settings = LinkOptions("device-1", **options)  # type: ignore[arg-type]
    return PlainHttpLink(Endpoint("tls", "127.0.0.1", web.port, "/"), settings, ear or Ear())


def out(*payloads: bytes) -> Outgoing:
    return Outgoing(b"t", list(payloads), 0, retain=False, first_token=0)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def server_side(authority: Authority, *, mutual: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.sign("server", server=True))
    if mutual:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority.path)
    return context


async def test_tls_also_mutual(authority: Authority):
    async with Web().serving(server_side(authority, mutual=True)) as web:
        certificate, key = authority.sign("device")
        ear = Ear()
        link = make(web, ear, tls=TlsFiles(authority.path, certificate, key))
        await link.open()
        link.publish(out(b"x", b"y"))
        for asked in await web.many(2):
            asked.answer()
        await until(lambda: sorted(ear.acked) == [0, 1])
        await link.close()


async def test_a_certificate_nobody_trusts_is_told_in_words(authority: Authority):
    async with Web().serving(server_side(authority)) as web:
        with pytest.raises(LinkError, match="certificate is not trusted") as caught:
            await make(web).open()
        assert caught.value.code == Failure.TLS


async def test_tls_that_goes_wrong_for_a_later_connection_fails_its_request_as_tls(authority: Authority):
    ear = Ear()
    async with Web().serving(server_side(authority)) as secure, plain_words() as port:
        link = make(secure, ear, tls=TlsFiles(authority.path), inflight=2)
        await link.open()
        link.endpoint = Endpoint("tls", "127.0.0.1", port, "/")
        link.publish(out(b"on the connection there is", b"on a new one"))
        (await secure.asked()).answer()
        await until(lambda: ear.refused and ear.acked)
        assert (ear.acked, ear.refused) == ([0], [(1, Failure.TLS)])
        link.abort()


@contextlib.asynccontextmanager
async def plain_words() -> AsyncIterator[int]:
    """The port of a server that answers a TLS greeting in plain HTTP."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 This is plain\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
