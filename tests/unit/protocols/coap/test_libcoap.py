"""CoAP links beside libcoap's own client, at libcoap's server; many devices at once; a server that goes away."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator

import pytest

from battlebrokers.protocols.base import Endpoint, Failure, Held, Link, LinkOptions, Outgoing, Subscription
from battlebrokers.protocols.registry import make_link
from support.coap_server import coap_server
from support.links import Ear, until

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module", params=["confirmable", "non-confirmable"])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    """A server that notifies in one way or the other."""
    with coap_server(*(["-N"] if request.param == "non-confirmable" else [])) as made:
        yield made


@pytest.fixture
def make(port: int) -> Iterator[Callable[..., tuple[Link, Ear]]]:
    made: list[Link] = []

    def maker(**options: object) -> tuple[Link, Ear]:
        ear = Ear()
        link = make_link("coap", Endpoint("udp", "127.0.0.1", port, "/bb"), LinkOptions("c", **options), ear)  # type: ignore[arg-type]
        made.append(link)
        return link, ear

    yield maker
    for link in made:
        link.abort()


async def libcoap(port: int, *arguments: str, path: str) -> str:
    program = shutil.which("coap-client-notls")
    if program is None:
        pytest.skip("coap-client-notls is missing (apt-get install libcoap3-bin)")
    command = [program, "-B", "10", *arguments, f"coap://127.0.0.1:{port}/{path}"]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


async def test_libcoaps_client_reads_what_we_write_and_we_what_it_writes(make, port: int):
    topic = uuid.uuid4().hex[:8]
    link, sender = make()
    await link.open()
    link.publish(Outgoing(f"{topic}/ours".encode(), [b"from us"], 1, False, 0))
    await until(lambda: sender.acked)
    assert "from us" in await libcoap(port, "-m", "get", path=f"bb/{topic}/ours")
    client, ear = make()
    await client.open()
    await client.subscribe([Subscription(f"{topic}/theirs", 1)])
    await libcoap(port, "-m", "put", "-e", "from%20them", path=f"bb/{topic}/theirs")
    await until(lambda: ear.messages)
    assert ear.payloads == [b"from them"]


async def test_many_devices_speak_at_once_each_with_a_socket_of_its_own(make):
    topic = uuid.uuid4().hex[:8]
    devices = [make() for _ in range(400)]
    for start in range(0, len(devices), 50):
        await asyncio.gather(*(link.open() for link, _ in devices[start : start + 50]))
    for number in range(5):
        for at, (link, _) in enumerate(devices):
            link.publish(Outgoing(f"{topic}/{at % 20}".encode(), [b"%d" % number], 1, False, number))
        await until(lambda number=number: all(len(ear.acked) == number + 1 for _, ear in devices))
    assert not any(ear.refused or ear.closings or ear.faults for _, ear in devices)


async def test_a_client_of_many_topics_hears_each(make):
    topic = uuid.uuid4().hex[:8]
    names = [f"{topic}/{n}" for n in range(50)]
    client, ear = make()
    await client.open()
    granted = await client.subscribe([Subscription(name, 0) for name in names])
    assert {answer.qos for answer in granted} == {0}
    link, _ = make()
    await link.open()
    for token, name in enumerate(names):
        await until(lambda: link.room(1))
        link.publish(Outgoing(name.encode(), [name.encode()], 1, False, token))
    await until(lambda: len(ear.messages) >= len(names))
    assert sorted(ear.payloads) == sorted(name.encode() for name in names)
    assert all(message.topic == message.payload for message in ear.messages)


async def test_a_server_that_goes_away_is_noticed_and_found_again():
    ear = Ear()
    with coap_server() as port:
        link = make_link("coap", Endpoint("udp", "127.0.0.1", port, ""), LinkOptions("c"), ear)
        await link.open()
    link.publish(Outgoing(b"a", [b"x"], 1, False, 1))
    await until(lambda: ear.closings)
    assert ear.refused == [(1, Failure.CLOSED)]
    assert link.held is Held.OFFLINE
    assert ear.closings[0][1] == Failure.CLOSED
