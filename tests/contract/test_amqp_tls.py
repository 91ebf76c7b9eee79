"""AMQP over TLS, in a RabbitMQ that is started from the shipped file with a TLS port added."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from battlebrokers.contenders.availability import Missing, availability
from battlebrokers.contenders.broker_url import parse_broker_url
from battlebrokers.contenders.lifecycle import start_contender
from battlebrokers.contenders.reader import SPECS, find_contender
from battlebrokers.errors import LinkError
from battlebrokers.protocols.base import Endpoint, Held, Link, LinkOptions, Outgoing, Subscription, TlsFiles
from battlebrokers.protocols.registry import make_link
from support.certificates import Authority
from support.links import Ear, until

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.xdist_group("amqp tls")]

LISTENER = """
listeners.ssl.default = ${{host}}:${{port.amqps}}
ssl_options.cacertfile = {ca}
ssl_options.certfile = {certificate}
ssl_options.keyfile = {key}
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = true
"""


@dataclass(frozen=True)
class Secure:
    """A broker that wants to see certificates."""

    endpoint: Endpoint
    plain: Endpoint
    tls: TlsFiles


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    state = availability(find_contender("rabbitmq"))
    if isinstance(state, Missing):
        pytest.skip(f"rabbitmq cannot run here: {state.what} ({state.hint})")
    folder = tmp_path_factory.mktemp("secure")
    authority = Authority(folder)
    certificate, key = authority.sign("server", server=True)
    text = (SPECS / "rabbitmq.yaml").read_text(encoding="utf-8")
    for before, after in (
        ("mqtt, ws, amqp,", "mqtt, ws, amqp, amqps,"),
        ("amqp://${host}:${port.amqp}", "amqps://${host}:${port.amqps}"),
    ):
        assert text.count(before) == 1
        text = text.replace(before, after)
    (folder / "rabbitmq.yaml").write_text(text, encoding="utf-8")
    shutil.copytree(SPECS / "rabbitmq", folder / "rabbitmq")
    with (folder / "rabbitmq" / "rabbitmq.conf").open("a", encoding="utf-8") as settings:
        settings.write(LISTENER.format(ca=authority.path, certificate=certificate, key=key))
    own_certificate, own_key = authority.sign("device")
    with start_contender(str(folder / "rabbitmq.yaml"), "tuned", tmp_path_factory.mktemp("rabbitmq")) as running:
        url, plain = (parse_broker_url(running.endpoints[name]) for name in ("amqp", "tcp"))
        assert (url.protocol, url.transport) == ("amqp", "tls")
        yield Secure(
            Endpoint(url.transport, url.host, url.port, ""),
            Endpoint("tls", plain.host, plain.port, ""),
            TlsFiles(ca=authority.path, certificate=own_certificate, key=own_key),
        )


@pytest.fixture
def make(broker: Secure) -> Iterator[Callable[..., tuple[Link, Ear]]]:
    made: list[Link] = []

    def maker(tls: TlsFiles | None = None, endpoint: Endpoint | None = None) -> tuple[Link, Ear]:
        ear = Ear()
        options = LinkOptions(f"c-{uuid.uuid4().hex[:8]}", keep_alive_s=30, tls=tls or broker.tls)
        made.append(make_link("amqp", endpoint or broker.endpoint, options, ear))
        return made[-1], ear

    yield maker
    for link in made:
        link.abort()


async def test_what_is_said_over_tls_arrives_whole_and_is_confirmed(make: Callable[..., tuple[Link, Ear]]) -> None:
    topic = f"tls/{uuid.uuid4().hex[:8]}"
    client, ear = make()
    await client.open()
    assert [granted.qos for granted in await client.subscribe([Subscription(f"{topic}/#", 1)])] == [1]
    device, sender = make()
    await device.open()
    rows = np.random.default_rng(1).integers(0, 256, (200, 64), np.uint8)
    # Larger than a record of TLS and a frame of AMQP.
    large = np.random.default_rng(2).bytes(1 << 20)
    written = device.publish(Outgoing(f"{topic}/a".encode(), rows, 1, False, 0))
    written += device.publish(Outgoing(f"{topic}/b".encode(), [large], 1, False, 200))
    await until(lambda: len(ear.messages) == 201 and len(sender.acked) == 201)
    assert ear.payloads == [*(row.tobytes() for row in rows), large]
    assert sorted(sender.acked) == list(range(201))
    assert written > rows.size + len(large)
    for link in (client, device):
        await link.close()
        assert link.held is Held.OFFLINE
    assert not [*ear.closings, *sender.closings, *ear.faults, *sender.faults]


async def test_a_stranger_on_either_side_is_a_link_error_in_words(
    make: Callable[..., tuple[Link, Ear]], broker: Secure, tmp_path: Path
) -> None:
    others = Authority(tmp_path)
    link, _ = make(TlsFiles(ca=others.path))
    with pytest.raises(LinkError, match=r"amqps://.* its certificate is not trusted"):
        await link.open()
    # Without a certificate of its own the client is not wanted.
    link, _ = make(TlsFiles(ca=broker.tls.ca))
    with pytest.raises(LinkError):
        await link.open()
    assert link.held is Held.OFFLINE
    link, _ = make(endpoint=broker.plain)
    with pytest.raises(LinkError, match=r"TLS|dropped the connection"):
        await link.open()
    assert link.held is Held.OFFLINE
