"""The link against a real Mosquitto: transports, credentials, limits, sessions and what survives a crash."""

from __future__ import annotations

import asyncio
import random
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from battlebrokers.errors import InputError, LinkError
from battlebrokers.protocols.base import Endpoint, Failure, Held, LinkOptions, Outgoing, Subscription, TlsFiles, Will
from battlebrokers.protocols.mqtt.link import MqttLink
from battlebrokers.protocols.tls import tls_context
from support.certificates import Authority
from support.links import Ear, mosquitto, until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(not shutil.which("mosquitto"), reason="mosquitto is not installed: apt install mosquitto"),
]


@dataclass(frozen=True)
class Certificates:
    """An authority, and what it signed."""

    ca: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path
    foreign_ca: Path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("mosquitto")
    # Mosquitto gives up its rights when started by root, and must still read its files.
    for path in (made, *made.parents[:3]):
        if path.owner() == made.owner() and path != Path(path.anchor):
            path.chmod(path.stat().st_mode | 0o755)
    return made


@pytest.fixture(scope="module")
def certificates(folder: Path) -> Certificates:
    authority = Authority(folder)
    signed = (*authority.sign("server", server=True), *authority.sign("client"))
    return Certificates(authority.path, *signed, Authority(folder, "foreign").path)


@pytest.fixture(scope="module")
def ports(folder: Path, certificates: Certificates) -> Iterator[dict[str, int]]:
    """One Mosquitto with a listener of each kind."""
    tls = (f"cafile {certificates.ca}", f"certfile {certificates.server}", f"keyfile {certificates.server_key}")
    listeners = (
        (),
        ("protocol websockets",),
        (*tls, "require_certificate true"),
        (*tls, "protocol websockets"),
        ("max_qos 1", "max_topic_alias 3"),
    )
    with mosquitto(folder, listeners=listeners) as numbers:
        yield dict(zip(("tcp", "ws", "tls", "wss", "limited"), numbers, strict=True))


Maker = Callable[..., tuple[MqttLink, Ear]]


@pytest.fixture
async def make(ports: dict[str, int]) -> AsyncIterator[Maker]:
    made: list[MqttLink] = []

    def maker(name: str, listener: str = "tcp", **options: object) -> tuple[MqttLink, Ear]:
        ear = Ear()
        transport = listener if listener in {"ws", "tls", "wss"} else "tcp"
        endpoint = Endpoint(transport, "127.0.0.1", int(str(options.pop("port", ports[listener]))), "/mqtt")
        link = MqttLink(endpoint, LinkOptions(name, **options), ear)  # type: ignore[arg-type]
        made.append(link)
        return link, ear

    yield maker
    for link in made:
        link.abort()


async def opened(made: tuple[MqttLink, Ear], *filters: str, qos: int = 2) -> tuple[MqttLink, Ear]:
    await made[0].open()
    if filters:
        await made[0].subscribe([Subscription(each, qos) for each in filters])
    return made


def one(topic: str, payload: bytes = b"x", qos: int = 1, token: int = 0, retain: bool = False) -> Outgoing:
    return Outgoing(topic.encode(), [payload], qos, retain, token)


# ── transports ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", ["3.1.1", "5"])
@pytest.mark.parametrize("listener", ["tcp", "ws", "tls", "wss"])
async def test_messages_pass_over_every_transport(make: Maker, certificates: Certificates, listener: str, version: str):
    tls = None
    if listener in {"tls", "wss"}:
        tls = TlsFiles(certificates.ca, certificates.client, certificates.client_key)
    link, ear = await opened(make(f"{listener}{version}", listener, version=version, tls=tls), f"{listener}/{version}")
    rows = np.arange(6000, dtype=np.uint8).reshape(300, 20)
    for qos in (0, 1, 2):
        link.publish(Outgoing(f"{listener}/{version}".encode(), rows, qos, False, qos * 1000))
    link.publish(one(f"{listener}/{version}", bytes(50_000), 1, 9000))
    await until(lambda: len(ear.messages) == 901 and len(ear.acked) == 601)
    assert [message.payload for message in ear.messages if message.qos == 2] == [row.tobytes() for row in rows]
    await link.close()
    assert not ear.closings


async def test_a_broker_that_wants_a_certificate_refuses_who_has_none(make: Maker, certificates: Certificates):
    link, _ = make("no-certificate", "tls", tls=TlsFiles(certificates.ca), connect_timeout_s=5)
    with pytest.raises(LinkError):
        await link.open()


async def test_a_certificate_of_a_foreign_authority_is_not_trusted(make: Maker, certificates: Certificates):
    link, _ = make("foreign", "wss", tls=TlsFiles(certificates.foreign_ca))
    with pytest.raises(LinkError, match="not trusted") as caught:
        await link.open()
    assert "ca" in caught.value.hint


async def test_tls_to_a_plain_port_is_told_in_words(make: Maker, ports: dict[str, int], certificates: Certificates):
    link, _ = make("tls-to-tcp", "tls", port=ports["tcp"], tls=TlsFiles(certificates.ca), connect_timeout_s=5)
    with pytest.raises(LinkError, match=r"TLS handshake failed|dropped the connection|connection broke"):
        await link.open()


async def test_a_websocket_to_a_plain_port_is_told(make: Maker, ports: dict[str, int]):
    link, _ = make("ws-to-tcp", "ws", port=ports["tcp"], connect_timeout_s=5)
    with pytest.raises(LinkError):
        await link.open()


def test_tls_files_that_do_not_exist_are_an_input_error(tmp_path: Path):
    with pytest.raises(InputError, match="cannot be used"):
        tls_context(TlsFiles(tmp_path / "missing.pem"))


def test_one_context_serves_all_links_with_the_same_files(certificates: Certificates):
    assert tls_context(TlsFiles(certificates.ca)) is tls_context(TlsFiles(certificates.ca))


async def test_links_can_leave_from_several_addresses(make: Maker):
    for last in (2, 3):
        link, _ = await opened(make(f"from-{last}", source_address=f"127.0.0.{last}"))
        assert link.connection.transport.get_extra_info("sockname")[0] == f"127.0.0.{last}"
        await link.close()
    link, _ = make("from-nowhere", source_address="203.0.113.7")
    with pytest.raises(LinkError, match=r"source address 203\.0\.113\.7"):
        await link.open()


async def test_small_messages_leave_at_once(make: Maker):
    link, _ = await opened(make("prompt"))
    used = link.connection.transport.get_extra_info("socket")
    assert used.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.fixture(scope="module")
def passwords(folder: Path) -> Path:
    """A password file with one user."""
    made = folder / "passwords"
    subprocess.run(["mosquitto_passwd", "-b", "-c", str(made), "ann", "secret"], check=True, capture_output=True)
    made.chmod(0o644)
    return made


# ── credentials, limits, reasons ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("version", "code"), [("3.1.1", 5), ("5", 0x87)])
async def test_wrong_credentials_are_refused_in_words(
    make: Maker, folder: Path, passwords: Path, version: str, code: int
):
    with mosquitto(folder, "allow_anonymous false", f"password_file {passwords}") as (port,):
        link, ear = make("wrong", port=port, version=version, username="ann", password="guess")
        with pytest.raises(LinkError, match="not authorized") as caught:
            await link.open()
        assert caught.value.code == code
        assert "password" in caught.value.hint
        assert not ear.closings
        await opened(make("right", port=port, version=version, username="ann", password="secret"))


async def test_limits_of_the_broker_are_respected(make: Maker, folder: Path):
    with mosquitto(folder, "max_packet_size 1000", "retain_available false") as (port,):
        link, ear = await opened(make("limits", port=port, version="5"), "limits")
        assert link.limits.maximum_packet_bytes == 1000
        assert not link.limits.retain_available
        link.publish(one("limits", bytes(2000), token=1))
        link.publish(one("limits", b"kept", token=2, retain=True))
        link.publish(one("limits", b"fine", token=3))
        await until(lambda: ear.acked == [3] and ear.messages)
        assert ear.refused == [(1, 0x95), (2, 0x9A)]
        assert ear.payloads == [b"fine"]
        assert not ear.closings


async def test_a_lower_maximum_qos_is_respected(make: Maker):
    link, ear = await opened(make("low", "limited", version="5"))
    link.publish(one("low", qos=2, token=1))
    link.publish(one("low", qos=1, token=2))
    await until(lambda: ear.acked and ear.refused)
    assert ear.refused == [(1, 0x9B)]


async def test_topic_aliases_save_bytes_and_lose_nothing(make: Maker):
    _, ear = await opened(make("alias-ear", version="5"), "alias/#")
    link, _ = await opened(make("alias", "limited", version="5", topic_alias=True))
    assert link.limits.topic_aliases == 3
    sizes = [link.publish(one(f"alias/{n % 4}", b"%d" % n, 1, n)) for n in range(12)]
    await until(lambda: len(ear.messages) == 12)
    assert [message.topic.decode() for message in ear.messages] == [f"alias/{n % 4}" for n in range(12)]
    assert sizes[4] < sizes[0]
    assert sizes[3] == sizes[7]


async def test_reasons_of_a_real_broker_are_handed_on(make: Maker):
    link, ear = await opened(make("alone", version="5"))
    link.publish(Outgoing(b"nobody/listens", [b"x"] * 30, 1, False, 0))
    link.publish(one("nobody/listens", qos=2, token=100))
    await until(lambda: len(ear.acked) == 31)
    assert 0x10 in ear.reasons
    assert not ear.refused


async def test_a_small_receive_maximum_slows_but_loses_nothing(make: Maker):
    _, ear = await opened(make("narrow", version="5", receive_maximum=1), "narrow", qos=2)
    link, _ = await opened(make("wide", version="5"))
    link.publish(Outgoing(b"narrow", [b"%d" % n for n in range(60)], 2, False, 0))
    await until(lambda: len(ear.messages) == 60)
    assert ear.payloads == [b"%d" % n for n in range(60)]


# ── lives and deaths ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_new_owner_of_a_name_is_told_to_the_old_one(make: Maker):
    _, ear = await opened(make("twin", version="5"))
    await opened(make("twin", version="5"))
    await until(lambda: ear.closings)
    # Mosquitto 2.0 does not always say why.
    assert ear.closings[0][1] in {0x8E, Failure.CLOSED}


async def test_a_delayed_will_is_not_spoken_when_the_device_returns(make: Maker):
    _, ear = await opened(make("mourner", version="5"), "will/#")
    prompt = {"clean": False, "session_expiry_s": 60, "version": "5"}
    returning, _ = await opened(make("returning", will=Will("will/returning", b"", 1, False, 2), **prompt))
    vanished, _ = await opened(make("vanished", will=Will("will/vanished", b"", 1, False, 1), **prompt))
    returning.abort()
    vanished.abort()
    await returning.open()
    await until(lambda: ear.messages)
    await asyncio.sleep(1.5)
    assert [message.topic for message in ear.messages] == [b"will/vanished"]


@pytest.mark.slow
async def test_an_idle_link_stays_connected(make: Maker):
    link, ear = await opened(make("idle", keep_alive_s=1))
    await asyncio.sleep(3.5)
    assert not ear.closings
    assert link.held is Held.NO


@pytest.mark.parametrize("version", ["3.1.1", "5"])
@pytest.mark.parametrize("qos", [1, 2])
async def test_what_was_in_flight_when_the_sender_crashed_is_sent_again(make: Maker, qos: int, version: str):
    topic = f"crash/{version}/{qos}"
    _, ear = await opened(make(f"witness-{version}-{qos}", version=version), topic)
    kept = {"clean": False, "session_expiry_s": 60, "version": version}
    link, sender = await opened(make(f"crashing-{version}-{qos}", **kept))
    draw = random.Random(qos)
    total = 400
    for begin in range(0, total, 40):
        link.publish(Outgoing(topic.encode(), [b"%d" % n for n in range(begin, begin + 40)], qos, False, begin))
        # The crash falls anywhere between PUBLISH and the last acknowledgement.
        for _ in range(draw.randrange(6)):
            await asyncio.sleep(0)
        await asyncio.sleep(draw.choice([0, 0, 0.0005, 0.002]))
        link.abort()
        assert (await link.open()).session_present
    await until(lambda: len(set(sender.acked)) == total)
    await until(lambda: len(set(ear.payloads)) == total)
    assert sorted(sender.acked) == list(range(total))
    assert link.unacknowledged == 0
    assert sender.again
    if qos == 2:
        assert sorted(map(int, ear.payloads)) == list(range(total))


@pytest.mark.parametrize("version", ["3.1.1", "5"])
async def test_a_crashing_receiver_of_qos_2_hears_every_message_once(make: Maker, version: str):
    topic = f"hear/{version}"
    kept = {"clean": False, "session_expiry_s": 60, "version": version}
    link, ear = await opened(make(f"hearing-{version}", **kept), topic)
    sending, sender = await opened(make(f"speaking-{version}"))
    draw = random.Random(3)
    total = 450
    for begin in range(0, total, 30):
        sending.publish(Outgoing(topic.encode(), [b"%d" % n for n in range(begin, begin + 30)], 2, False, begin))
        for _ in range(draw.randrange(8)):
            await asyncio.sleep(0)
        await asyncio.sleep(draw.choice([0, 0.001, 0.003]))
        link.abort()
        assert (await link.open()).session_present
        # Mosquitto 2.0 forgets that it sent PUBREL, and repeats the message, when the next crash comes before it has
        # heard PUBCOMP for a repeated PUBREL: let each crash heal, and have its answers heard, before the next.
        await until(lambda sent=begin + 30: len(ear.messages) >= sent and not link.session.incoming)
        for _ in range(2):
            await link.subscribe([Subscription(topic, 2)])
    await until(lambda: len(sender.acked) == total)
    assert sorted(map(int, ear.payloads)) == list(range(total))


async def test_without_a_session_open_messages_are_published_anew(make: Maker, folder: Path):
    with mosquitto(folder) as (port,):
        _, ear = await opened(make("new-ear", port=port), "anew", qos=2)
        link, sender = await opened(make("new-link", port=port))
        link.publish(Outgoing(b"anew", [b"%d" % n for n in range(100)], 2, False, 0))
        link.abort()
        assert not (await link.open()).session_present
        await until(lambda: len(sender.acked) == 100 and len(set(ear.payloads)) == 100)
        assert sender.again


async def test_a_killed_broker_is_told_as_a_closed_link(make: Maker, folder: Path):
    with mosquitto(folder) as (port,):
        link, ear = await opened(make("orphan", port=port))
    await until(lambda: ear.closings)
    assert link.held is Held.OFFLINE
    with pytest.raises(LinkError, match="nobody listens there"):
        await link.open()


async def test_thousands_of_messages_both_ways_on_many_links(make: Maker):
    pairs = 20
    ears = [await opened(make(f"many-ear-{n}"), f"many/{n}", qos=1) for n in range(pairs)]
    links = [await opened(make(f"many-{n}")) for n in range(pairs)]
    rows = np.arange(50 * 32, dtype=np.uint8).reshape(50, 32)
    for turn in range(10):
        for n, (link, _) in enumerate(links):
            link.publish(Outgoing(f"many/{n}".encode(), rows, 1, False, turn * 50))
        await asyncio.sleep(0.002)
    await until(lambda: all(len(ear.messages) == 500 for _, ear in ears))
    await until(lambda: all(len(ear.acked) == 500 for _, ear in links))
    assert all(not link.session.ignored for link, _ in links + ears)
