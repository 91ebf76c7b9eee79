"""The MQTT gateway over real TCP, with a network and a controller in memory: packets, bounds, what it forgets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.errors import BattleError
from battlebrokers.protocols.mqtt.decode import decode
from battlebrokers.protocols.mqtt.encode import encode
from battlebrokers.protocols.mqtt.framing import split_frames
from battlebrokers.protocols.mqtt.packets import (
    V5,
    V311,
    ConnAck,
    Connect,
    Disconnect,
    FilterRequest,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
    WillMessage,
)
from battlebrokers.protocols.mqtt.properties import Properties
from battlebrokers.sdn.core.network import Port
from battlebrokers.sdn.gateway.feet import LabFeet, lost_at
from battlebrokers.sdn.gateway.gateway import Gateway
from battlebrokers.sdn.gateway.interest import Interest
from battlebrokers.sdn.gateway.registry import Listed
from battlebrokers.sdn.gateway.settings import Away, Limits, Settings
from battlebrokers.sdn.gateway.topics import Topics
from battlebrokers.sdn.lab.laboratory import Laboratory
from battlebrokers.sdn.lab.topology import LabHost
from support.examples import examples

HEARS = "00:00:00:00:00:02"
LIMITS = Limits(patience_s=0.5, connect_s=5)


class Memory:
    """A controller and a network in memory: feet and registry at once."""

    def __init__(self) -> None:
        self.publisher: LabHost | None = LabHost("h1", "00:00:00:00:00:01", "10.0.0.1", Port(1, 1))
        self.subscriber: LabHost | None = LabHost("h2", HEARS, "10.0.0.2", Port(1, 2))
        self.resources: dict[str, Listed] = {}
        self.away = False
        self.sent: list[tuple[str, bytes]] = []
        self.arrive: Callable[[bytes, str], None] = lambda _payload, _address: None

    async def listed(self) -> list[Listed]:
        await self._there()
        return list(self.resources.values())

    async def obtain(self, name: str) -> Listed:
        await self._there()
        return self.resources.get(name) or self.create(name)

    async def subscribe(self, address: str) -> bool:
        return await self._change(address, lambda who: who | {HEARS})

    async def unsubscribe(self, address: str) -> None:
        await self._change(address, lambda who: who - {HEARS})

    async def open(self, on_arrival: Callable[[bytes, str], None]) -> None:
        self.arrive = on_arrival

    def send(self, payload: bytes, address: str) -> Awaitable[None] | None:
        (found,) = (one for one in self.resources.values() if one.address == address)
        self.sent.append((found.name, payload))
        if HEARS in found.subscribers:
            asyncio.get_running_loop().call_soon(self.arrive, payload, address)
        return None

    def overrun(self) -> int:
        return 0

    def close(self) -> None:
        pass

    def create(self, name: str, from_resource: bool = True) -> Listed:
        made = Listed(name, f"1.1.1.{len(self.resources) + 1}", from_resource, frozenset())
        return self.resources.setdefault(name, made)

    async def _change(self, address: str, change: Callable[[frozenset[str]], frozenset[str]]) -> bool:
        await self._there()
        for name, one in self.resources.items():
            if one.address == address:
                self.resources[name] = replace(one, subscribers=change(one.subscribers))
                return True
        return False

    async def _there(self) -> None:
        await asyncio.sleep(0)
        if self.away:
            raise Away("nobody there")


class Caller:
    """A client that says packets and reads answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int) -> None:
        self.reader, self.writer, self.version = reader, writer, version
        self._buffer = b""

    def say(self, *packets: Packet) -> None:
        self.writer.write(b"".join(encode(one, self.version) for one in packets))

    async def answer(self) -> Packet | None:
        """The next packet, or None at the end."""
        while not (frames := split_frames(self._buffer).frames):
            more = await asyncio.wait_for(self.reader.read(65536), 60)
            if not more:
                return None
            self._buffer += more
        _, body, end = frames[0]
        found = decode(self._buffer[0], self._buffer[body:end], self.version)
        self._buffer = self._buffer[end:]
        return found

    async def subscribe(self, *filters: str) -> tuple[int, ...]:
        self.say(Subscribe(1, tuple(FilterRequest(one) for one in filters)))
        told = await self.answer()
        assert isinstance(told, SubAck)
        return told.reasons


class House:
    """A gateway that runs, and whoever calls it."""

    def __init__(self, gateway: Gateway, memory: Memory) -> None:
        self.gateway, self.memory = gateway, memory
        self.callers: list[Caller] = []

    async def call(self, version: int = V311) -> Caller:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.gateway.port)
        self.callers.append(Caller(reader, writer, version))
        return self.callers[-1]

    async def client(self, client_id: str = "", version: int = V311, **options: object) -> Caller:
        caller = await self.call(version)
        caller.say(Connect(client_id, version, **options))  # type: ignore[arg-type]
        told = await caller.answer()
        assert isinstance(told, ConnAck)
        assert (told.reason, told.session_present) == (0, False)
        return caller


@asynccontextmanager
async def house(limits: Limits = LIMITS, memory: Memory | None = None) -> AsyncIterator[House]:
    memory = memory or Memory()
    gateway = Gateway(Settings(port=0, look_s=0.02, limits=limits), memory, memory)
    await gateway.start()
    made = House(gateway, memory)
    try:
        yield made
    finally:
        for caller in made.callers:
            caller.writer.close()
        await gateway.stop()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - any condition, of any part
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("version", [V311, V5])
async def test_what_is_published_goes_out_once_and_comes_back_from_the_network(version: int) -> None:
    async with house() as there:
        ear, speaker = await there.client("ear", version), await there.client("speaker", version)
        assert await ear.subscribe("a/b") == (0,)
        speaker.say(Publish("a/b", b"1"), Publish("a/b", b"2", 1, packet_id=7), Publish("a/b", b"3", 2, packet_id=8))
        assert [await speaker.answer() for _ in range(2)] == [PubAck(7), PubRec(8)]
        assert [await ear.answer() for _ in range(3)] == [Publish("a/b", b"%d" % number) for number in (1, 2, 3)]
        # The same QoS 2 message again is answered, not sent; once released, its number is free.
        speaker.say(Publish("a/b", b"3", 2, dup=True, packet_id=8), PubRel(8), Publish("a/b", b"4", 2, packet_id=8))
        assert [await speaker.answer() for _ in range(3)] == [PubRec(8), PubComp(8), PubRec(8)]
        assert await ear.answer() == Publish("a/b", b"4")
        assert [payload for _, payload in there.memory.sent] == [b"1", b"2", b"3", b"4"]


async def test_the_first_message_of_a_new_topic_reaches_those_whose_filter_matches() -> None:
    async with house() as there:
        ear = await there.client()
        assert await ear.subscribe("new/#", "new/+", "+/1") == (0, 0, 0)
        speaker = await there.client()
        speaker.say(Publish("new/1", b"once"), Publish("other", b"no"), Publish("new", b"parent"))
        assert [await ear.answer() for _ in range(2)] == [Publish("new/1", b"once"), Publish("new", b"parent")]


async def test_topics_of_others_are_found_and_left_again() -> None:
    async with house() as there:
        ear = await there.client()
        await ear.subscribe("found/+")
        there.memory.create("found/later")
        there.memory.create("found/+")  # no topic at all
        there.memory.create("$found")
        await until(lambda: HEARS in there.memory.resources["found/later"].subscribers)
        there.memory.send(b"hello", there.memory.resources["found/later"].address)
        assert await ear.answer() == Publish("found/later", b"hello")
        ear.say(Unsubscribe(2, ("found/+",)))
        assert await ear.answer() == UnsubAck(2)
        await until(lambda: not there.memory.resources["found/later"].subscribers)
        assert not any(one.subscribers for one in there.memory.resources.values())


async def test_a_resource_that_is_deleted_comes_back_for_those_who_named_it() -> None:
    async with house() as there:
        ear, speaker = await there.client(), await there.client()
        await ear.subscribe("gone")
        old = there.memory.resources.pop("gone")
        there.memory.create("another")
        await until(lambda: "gone" in there.memory.resources and there.memory.resources["gone"].subscribers)
        assert there.memory.resources["gone"].address != old.address
        speaker.say(Publish("gone", b"back"))
        assert await ear.answer() == Publish("gone", b"back")


async def test_a_subscription_nobody_here_wants_is_ended_as_it_was_left_by_a_killed_gateway() -> None:
    memory = Memory()
    left = memory.create("left")
    await memory.subscribe(left.address)
    async with house(memory=memory):
        await until(lambda: not memory.resources["left"].subscribers)


async def test_while_the_controller_is_away_known_topics_go_on_and_new_ones_wait_and_are_refused_at_last() -> None:
    async with house() as there:
        ear, speaker = await there.client(version=V5), await there.client(version=V5)
        await ear.subscribe("known")
        there.memory.away = True
        speaker.say(Publish("known", b"goes on"), Publish("new", b"waits", 1, packet_id=3), PingReq())
        assert await ear.answer() == Publish("known", b"goes on")
        refused = await speaker.answer()
        assert isinstance(refused, PubAck)
        assert refused.reason == 0x83
        assert "does not answer" in (refused.properties.reason_string or "")
        assert await speaker.answer() == PingResp()
        assert await ear.subscribe("newer") == (0x83,)
        asking = asyncio.create_task(ear.subscribe("newest"))
        await asyncio.sleep(0)
        there.memory.away = False
        assert await asking == (0,)
        assert there.gateway.counters.not_forwarded == {"controller away": 1}


async def test_what_is_not_forwarded_is_never_acknowledged_in_either_version() -> None:
    async with house() as there:
        new, old, quiet = await there.client(version=V5), await there.client(), await there.client()
        large = Publish("large", b"x" * 1473, 2, packet_id=1)
        new.say(large)
        refused = await new.answer()
        assert isinstance(refused, PubRec)
        assert refused.reason == 0x83
        old.say(large, PingReq())
        assert await old.answer() is None
        quiet.say(Publish("large", b"x" * 1473), PingReq())
        assert await quiet.answer() == PingResp()
        new.say(Publish("$SYS/x", b"", 1, packet_id=2))
        refused = await new.answer()
        assert isinstance(refused, PubAck)
        assert refused.reason == 0x83
        assert there.memory.sent == []
        assert there.gateway.counters.not_forwarded == {"too large": 3, "topic refused": 1}


async def test_mqtt_5_is_told_what_the_network_cannot_do() -> None:
    async with house() as there:
        caller = await there.call(V5)
        caller.say(Connect("", V5, properties=Properties(session_expiry_s=100)))
        told = await caller.answer()
        assert isinstance(told, ConnAck)
        assert told.properties.session_expiry_s == 0
        assert told.properties.assigned_client_id
        assert told.properties.shared_subscription_available is False
        caller.say(
            Subscribe(9, (FilterRequest("$share/g/a"), FilterRequest("a", no_local=True), FilterRequest("a"))),
            Subscribe(10, (FilterRequest("a"),), Properties(subscription_identifiers=(5,))),
            Unsubscribe(11, ("a", "never")),
        )
        assert await caller.answer() == SubAck(9, (0x9E, 0x83, 0))
        assert await caller.answer() == SubAck(10, (0xA1,))
        assert await caller.answer() == UnsubAck(11, (0, 0x11))
        caller.say(Publish("a", b"", properties=Properties(topic_alias=1)))
        assert await caller.answer() == Disconnect(0x94)
        assert await caller.answer() is None
        secretive = await there.call(V5)
        secretive.say(Connect("", V5, properties=Properties(authentication_method="secret")))
        assert await secretive.answer() == ConnAck(reason=0x8C)


async def test_retained_messages_are_kept_replaced_ended_and_expire() -> None:
    async with house(replace(LIMITS, retained=2)) as there:
        speaker = await there.client(version=V5)
        for number, (topic, payload, expiry_s) in enumerate(
            [("r/1", b"first", None), ("r/2", b"b", None), ("r/3", b"c", 0), ("r/4", b"d", None), ("r/2", b"", None)], 1
        ):
            speaker.say(
                Publish(topic, payload, 1, True, packet_id=number, properties=Properties(message_expiry_s=expiry_s))
            )
            assert await speaker.answer() == PubAck(number)
        ear = await there.client(version=V5)
        await ear.subscribe("r/#")
        assert await ear.answer() == Publish("r/4", b"d", retain=True)
        for handling, new in ((1, "r/#"), (2, "r/+")):
            ear.say(Subscribe(5, (FilterRequest(new, retain_handling=handling),)), PingReq())
            assert await ear.answer() == SubAck(5, (0,))
            assert await ear.answer() == PingResp()


async def test_a_will_speaks_for_a_client_that_vanishes_and_for_one_that_is_replaced() -> None:
    async with house() as there:
        ear = await there.client()
        await ear.subscribe("wills")

        def will(words: bytes) -> WillMessage:
            return WillMessage("wills", words)

        polite = await there.client("polite", will=will(b"polite"))
        polite.say(Disconnect())
        assert await polite.answer() is None
        asks_for_it = await there.client("asks", V5, will=will(b"asked for"))
        asks_for_it.say(Disconnect(4))
        assert await ear.answer() == Publish("wills", b"asked for")
        rude = await there.client("rude", will=will(b"rude"))
        rude.writer.transport.abort()
        assert await ear.answer() == Publish("wills", b"rude")
        replaced = await there.client("same", V5, will=will(b"replaced"))
        newer = await there.client("same", V5, will=will(b"of the newer one"))
        assert await replaced.answer() == Disconnect(0x8E)
        assert await ear.answer() == Publish("wills", b"replaced")
        newer.say(PingReq())
        assert await newer.answer() == PingResp()
        malformed = await there.client("bad", will=will(b"malformed"))
        malformed.writer.write(b"\x00\x00")
        assert await ear.answer() == Publish("wills", b"malformed")
        assert there.gateway.counters.wills == 4
        assert there.gateway.counters.taken_over == 1


async def test_a_client_that_is_silent_for_one_and_a_half_keep_alives_is_sent_away() -> None:
    async with house(replace(LIMITS, connect_s=0.1)) as there:
        mute = await there.call()
        assert await mute.answer() is None
        silent = await there.client("silent", V5, keep_alive_s=1)
        lively = await there.client("lively", keep_alive_s=0)
        assert await silent.answer() == Disconnect(0x8D)
        assert await silent.answer() is None
        lively.say(PingReq())
        assert await lively.answer() == PingResp()
        assert there.gateway.counters.silent == 2


async def test_a_slow_client_loses_messages_and_costs_no_memory_while_others_get_all() -> None:
    limits = replace(LIMITS, backlog_bytes=50_000)
    async with house(limits) as there:
        slow, quick, speaker = await there.client("slow"), await there.client("quick"), await there.client()
        for ear in (slow, quick):
            await ear.subscribe("flood")
        slow.writer.transport.pause_reading()
        got = 0
        connection = next(one for one in there.gateway._connections if one.talker.client_id == "slow")  # type: ignore[union-attr]
        while not there.gateway.counters.lost_to_slow:
            speaker.say(*(Publish("flood", b"x" * 1472) for _ in range(20)))
            for _ in range(20):
                assert await quick.answer() == Publish("flood", b"x" * 1472)
            got += 20
            assert connection._transport is not None
            assert connection._transport.get_write_buffer_size() <= limits.backlog_bytes
            assert got < 100_000
        counters = there.gateway.counters
        assert counters.delivered + counters.lost_to_slow == 2 * got
        slow.writer.transport.resume_reading()
        heard = 0
        while heard < counters.delivered - got:
            assert await slow.answer() == Publish("flood", b"x" * 1472)
            heard += 1


async def test_a_client_that_never_reads_answers_is_no_longer_read() -> None:
    limits = replace(LIMITS, backlog_bytes=10_000)
    async with house(limits) as there:
        # Small buffers of the system, so that ours fill soon.
        door = socket.socket()
        door.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        door.connect(("127.0.0.1", there.gateway.port))
        reader, writer = await asyncio.open_connection(sock=door)
        writer.write(encode(Connect("deaf"), V311))
        await reader.read(4)
        writer.transport.pause_reading()
        connection = next(iter(there.gateway._connections))
        assert connection._transport is not None
        connection._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        pings = encode(PingReq(), V311) * 10_000
        while not connection._clogged:
            writer.write(pings)
            await asyncio.sleep(0.001)
        assert not connection._transport.is_reading()
        assert connection._transport.get_write_buffer_size() < 600_000
        writer.transport.abort()


async def test_there_is_a_most_of_everything() -> None:
    limits = replace(LIMITS, clients=2, filters=2, topics=3, unreleased=2)
    async with house(limits) as there:
        first, second = await there.client("first"), await there.client("second", V5)
        assert await first.subscribe("1", "2", "3") == (0, 0, 0x80)
        for version, code in ((V311, 3), (V5, 0x97)):
            late = await there.call(version)
            late.say(Connect("late", version))
            assert await late.answer() == ConnAck(reason=code)
            assert await late.answer() is None
        second.say(*(Publish(f"{number}", b"", 1, packet_id=number) for number in range(1, 6)))
        told = [await second.answer() for _ in range(5)]
        assert [one.reason for one in told if isinstance(one, PubAck)] == [0, 0, 0, 0x83, 0x83]
        assert await second.subscribe("x" * 1025) == (0x83,)
        second.say(*(Publish("1", b"", 2, packet_id=number) for number in (1, 2, 3)))
        assert [await second.answer() for _ in range(4)] == [PubRec(1), PubRec(2), Disconnect(0x93), None]
        first.writer.write(b"\x30\xff\xff\xff\x7f")
        while (heard := await first.answer()) is not None:
            assert isinstance(heard, Publish)


async def test_a_topic_there_is_no_room_for_does_not_keep_others_from_being_left() -> None:
    memory, interest = Memory(), Interest[str]()
    left = memory.create("left")
    await memory.subscribe(left.address)
    interest.add("somebody", "one too many")
    await Topics(memory, interest, HEARS, None, replace(LIMITS, topics=0)).look()
    assert not memory.resources["left"].subscribers
    assert "one too many" not in memory.resources


async def test_other_versions_and_wrong_identifiers_are_refused_in_their_own_words() -> None:
    async with house() as there:
        for said, told in (
            (b"\x10\x0f\0\6MQIsdp\3\2\0\x1e\0\1q", b"\x20\x02\0\x01"),
            (b"\x10\x0d\0\4MQTT\3\2\0\x1e\0\1q", b"\x20\x02\0\x01"),
            (b"\x10\x0d\0\4MQTT\6\2\0\x1e\0\1q", b"\x20\x03\0\x84\0"),
            (b"\x10\x0c\0\4MQTT\4\0\0\x1e\0\0", b"\x20\x02\0\x02"),
            (b"\x10\x0d\0\4MQTZ\4\2\0\x1e\0\1q", b""),
        ):
            caller = await there.call()
            caller.writer.write(said)
            assert await caller.reader.read() == told
        assert there.gateway.counters.refused == 4
        assert there.gateway.counters.malformed == 1


async def test_one_direction_needs_one_host() -> None:
    memory = Memory()
    memory.publisher = None
    async with house(memory=memory) as there:
        only_hears = await there.client(version=V5)
        assert await only_hears.subscribe("a") == (0,)
        only_hears.say(Publish("a", b"", 1, packet_id=1))
        refused = await only_hears.answer()
        assert isinstance(refused, PubAck)
        assert refused.reason == 0x83
    memory = Memory()
    memory.subscriber = None
    async with house(memory=memory) as there:
        only_speaks = await there.client()
        assert await only_speaks.subscribe("a") == (0x80,)
        only_speaks.say(Publish("a", b"1", 1, packet_id=1))
        assert await only_speaks.answer() == PubAck(1)
        assert memory.sent == [("a", b"1")]


@pytest.mark.parametrize(
    ("publish_as", "subscribe_as", "words"),
    [(None, None, "needs a host"), ("h1", "h1", "cannot do both"), ("h1", None, "no lab is up")],
)
def test_wrong_hosts_are_explained(
    tmp_path: Path, publish_as: str | None, subscribe_as: str | None, words: str
) -> None:
    with pytest.raises(BattleError, match=words) as told:
        LabFeet(Laboratory(tmp_path), publish_as, subscribe_as, 5005)
    assert told.value.hint


def test_datagrams_that_find_no_room_are_counted() -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ear,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mouth,
    ):
        ear.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        ear.bind(("127.0.0.1", 0))
        ear.setblocking(False)
        assert lost_at(ear) == 0
        for _ in range(50):
            mouth.sendto(b"x" * 1000, ear.getsockname())
        came = 0
        with suppress(BlockingIOError):
            while ear.recv(2000):
                came += 1
        assert 0 < came < 50
        assert lost_at(ear) == 50 - came


async def test_bytes_that_come_one_by_one_are_understood() -> None:
    async with house() as there:
        caller = await there.call()
        said = encode(Connect("slowly"), V311) + encode(Publish("t", b"x" * 200, 1, packet_id=1), V311)
        caller.writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in said:
            caller.writer.write(bytes([byte]))
            await caller.writer.drain()
        assert await caller.answer() == ConnAck()
        assert await caller.answer() == PubAck(1)


_WELCOME = [b"", encode(Connect("q"), V311), encode(Connect("q", V5), V5)]
_SOUND = [
    encode(Publish("a", b"b", 1, packet_id=1), V311), encode(Subscribe(1, (FilterRequest("#"),)), V311),
    encode(PubRel(1), V311), encode(Publish("a", b"b", 2, packet_id=1), V5), encode(Disconnect(0x04), V5),
]  # fmt: skip


@st.composite
def hostile(draw: st.DrawFn) -> bytes:
    """A greeting or none, then packets with bytes changed, cut or put in, then anything."""
    said = bytearray(draw(st.sampled_from(_WELCOME)))
    kept = len(said) if draw(st.booleans()) else 0
    for one in draw(st.lists(st.sampled_from(_SOUND), max_size=5)):
        said += one
    for _ in range(draw(st.integers(0, 4))):
        if len(said) > kept:
            place = draw(st.integers(kept, len(said) - 1))
            said[place : place + draw(st.integers(0, 2))] = draw(st.binary(max_size=3))
    return bytes(said) + draw(st.binary(max_size=60))


@given(st.lists(hostile(), min_size=1, max_size=12))
@examples(60)
def test_hostile_bytes_harm_nobody_else(said: list[bytes]) -> None:
    faults: list[dict[str, object]] = []

    async def attack() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: faults.append(context))
        async with house() as there:
            bystander = await there.client("bystander")
            await bystander.subscribe("calm")
            for one in said:
                rude = await there.call()
                rude.writer.write(one)
                rude.writer.write_eof()
                try:
                    while await asyncio.wait_for(rude.reader.read(65536), 60):
                        pass
                except ConnectionError:
                    pass
            bystander.say(Publish("calm", b"still", 1, packet_id=1))
            answers = [await bystander.answer(), await bystander.answer()]
            assert PubAck(1) in answers
            assert Publish("calm", b"still") in answers
            assert list(there.gateway._guests) == ["bystander"]

    asyncio.run(attack())
    assert not faults
