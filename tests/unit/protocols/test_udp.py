"""Datagrams over the loopback interface: addresses, bursts, refusals, nobody there."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.errors import LinkError
from battlebrokers.protocols.base import Endpoint, Failure, Held, LinkOptions, Outgoing, Subscription
from battlebrokers.protocols.registry import make_link
from battlebrokers.protocols.script import Listening, Notification, Say, Script
from battlebrokers.protocols.udp.plain import UdpLink, address_in
from support.examples import examples
from support.links import Ear, until


@pytest.fixture
def peer() -> Iterator[socket.socket]:
    """A plain socket on the other side."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind(("127.0.0.1", 0))
        made.settimeout(60)
        yield made


@pytest.fixture
def make() -> Iterator[Callable[..., tuple[UdpLink, Ear]]]:
    made: list[UdpLink] = []

    def maker(port: int, host: str = "127.0.0.1", **options: object) -> tuple[UdpLink, Ear]:
        ear = Ear()
        link = make_link("udp", Endpoint("udp", host, port, ""), LinkOptions("u", **options), ear)  # type: ignore[arg-type]
        assert isinstance(link, UdpLink)
        made.append(link)
        return link, ear

    yield maker
    for link in made:
        link.abort()


def port_of(peer: socket.socket) -> int:
    return int(peer.getsockname()[1])


def closed_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        (":9", ("", 9)),
        (":0", ("", 0)),
        ("127.0.0.1:65536", None),
        ("300.0.0.1:80", None),
        ("a/b", None),
        ("localhost:80", None),
        ("127.0.0.1", None),
        ("", None),
    ],
)
def test_topics_that_look_like_addresses_are_addresses(text: str, address: tuple[str, int] | None):
    assert address_in(text) == address


@examples(200)
@given(st.text(max_size=30))
def test_any_text_is_an_address_or_none(text: str):
    found = address_in(text)
    assert found is None or 0 <= found[1] <= 65_535


async def test_other_topics_go_to_the_endpoint_and_addresses_to_themselves(make, peer: socket.socket):
    elsewhere = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    elsewhere.bind(("127.0.0.1", 0))
    elsewhere.settimeout(60)
    with elsewhere:
        link, ear = make(port_of(peer), host="localhost")
        await link.open()
        assert link.publish(Outgoing(b"a/b", [b"one", b""], 0, False, 0)) == 3
        assert link.publish(Outgoing(b"127.0.0.1:%d" % port_of(elsewhere), [b"two"], 0, False, 2)) == 3
        assert (peer.recv(100), peer.recv(100), elsewhere.recv(100)) == (b"one", b"", b"two")
    assert not ear.refused
    assert not ear.acked


async def test_a_burst_arrives_in_bulk(make):
    client, ear = make(9)
    await client.open()
    assert (await client.subscribe([Subscription("127.0.0.1:0")]))[0].qos == 0
    (topic,) = client.addresses
    device, _ = make(9)
    await device.open()
    rows = np.random.default_rng(1).integers(0, 256, (150, 40), np.uint8)
    assert device.publish(Outgoing(topic.encode(), rows, 0, False, 0)) == rows.size
    await until(lambda: len(ear.messages) == 150)
    assert ear.payloads == [row.tobytes() for row in rows]
    assert {(message.topic.decode(), message.wire_size) for message in ear.messages} == {(topic, 40)}
    assert max(ear.bulks) > 8


async def test_the_largest_datagram_goes_and_the_next_larger_is_refused(make, peer: socket.socket):
    link, ear = make(port_of(peer))
    await link.open()
    sizes = [65_507, 65_508, 3]
    written = link.publish(Outgoing(b"t", [b"x" * size for size in sizes], 0, False, 10))
    assert written == 65_510
    assert not ear.refused, "told after publish returned"
    assert [len(peer.recv(70_000)) for _ in range(2)] == [65_507, 3]
    await until(lambda: ear.refused)
    assert ear.refused == [(11, errno.EMSGSIZE)]
    assert link.capabilities.largest_payload_bytes == 65_507
    assert link.held is Held.NO


async def test_nobody_there_is_told_as_failed_and_the_link_lives_on(make, peer: socket.socket):
    link, ear = make(closed_port())
    await link.open()
    for token in range(3):
        link.publish(Outgoing(b"t", [b"x"], 0, False, token))
        await until(lambda token=token: ear.refused and ear.refused[-1][0] == token)
    assert ear.refused == [(token, Failure.CLOSED) for token in range(3)]
    assert not ear.closings
    link.publish(Outgoing(b"127.0.0.1:%d" % port_of(peer), [b"still here"], 0, False, 4))
    assert peer.recv(100) == b"still here"


async def test_an_address_in_use_and_foreign_filters_are_refused(make, peer: socket.socket):
    link, _ = make(9)
    await link.open()
    wanted = [Subscription(f"127.0.0.1:{port_of(peer)}"), Subscription("a/#"), Subscription(":0", 0, share="g")]
    granted = await link.subscribe(wanted)
    assert [answer.qos for answer in granted] == [-1, -1, -1]
    assert granted[0].reason == errno.EADDRINUSE
    assert link.addresses == []


async def test_a_name_nobody_knows_is_said_in_words(make):
    link, _ = make(9, host="no-such-host.invalid")
    with pytest.raises(LinkError, match="cannot be resolved"):
        await link.open()
    assert link.held is Held.OFFLINE


async def test_an_address_given_back_can_be_bound_again(make):
    link, ear = make(9)
    await link.open()
    await link.subscribe([Subscription("127.0.0.1:0")])
    (topic,) = link.addresses
    await link.unsubscribe([Subscription("127.0.0.1:0")])
    assert (await link.subscribe([Subscription(topic)]))[0].qos == 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"hello", address_in(topic))
    await until(lambda: ear.messages)
    assert ear.messages[0].topic.decode() == topic


async def test_a_dialect_wraps_subscribes_and_unwraps_on_its_own_socket(make, peer: socket.socket):
    script = Script(
        protocol="udp",
        login=[Say("send", json={"hello": "${name}"})],
        publish=Say("send", json={"t": "${resource}", "d": "${payload}", "n": "${id|number}"}),
        listening=Listening(steps=[Say("send", json={"sub": "${topic}"})], undo=[Say("send", text="stop ${topic}")]),
        notification=Notification(payload="$.d", encoding="base64", when={"$.d": None}),
        logout=[Say("send", text="bye")],
    )
    link, ear = make(port_of(peer), script=script, known={"name": "n1"})
    await link.open()
    said, address = peer.recvfrom(100)
    assert said == b'{"hello":"n1"}'
    await link.subscribe([Subscription("a/b")])
    assert peer.recv(100) == b'{"sub":"a/b"}'
    written = link.publish(Outgoing(b"a/b", [b"\xff\x00"], 0, False, 0))
    said = peer.recv(100)
    assert said == b'{"t":"a-b","d":"/wA=","n":3}'
    assert (link.structured, link.structure_bytes, written) == (True, len(said), len(said))
    for answer in (b'{"d":"/wA="}', b"\xff{", b'{"ok":true}', b'{"d":"?"}'):
        peer.sendto(answer, address)
    await until(lambda: len(ear.faults) == 2)
    assert [(message.topic, message.payload) for message in ear.messages] == [(b"a/b", b"\xff\x00")]
    await link.unsubscribe([Subscription("a/b")])
    await link.close()
    assert [peer.recv(100), peer.recv(100)] == [b"stop a/b", b"bye"]
