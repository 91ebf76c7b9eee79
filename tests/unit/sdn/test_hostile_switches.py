"""Whatever calls the controller's port and whatever it sends: the controller lives, serves others, and forgets it."""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from unittest import mock

import psutil
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from battlebrokers.sdn.absences import NotYetInEffectError
from battlebrokers.sdn.controller import Controller
from battlebrokers.sdn.core.resources import Mode
from battlebrokers.sdn.openflow import channel as channels
from battlebrokers.sdn.openflow import wire
from battlebrokers.sdn.openflow.lobby import Lobby
from battlebrokers.sdn.store import Store
from support.datagrams import arp_frame, udp_frame
from support.examples import examples
from support.hostile_switch import (
    BARRIER,
    ECHO_REQUEST,
    FEATURES,
    HELLO,
    MULTIPART,
    PACKET_OUT,
    HostileSwitch,
    calling,
    features,
    packet_in,
    part,
    port,
    said,
)
from support.waiting import eventually as until

A, B = ("00:00:00:00:01:01", "10.0.0.1"), ("00:00:00:00:01:02", "10.0.0.2")


class Scene:
    """A controller with one honest switch, whose two hosts must go on being served."""

    def __init__(self, controller: Controller, address: int, honest: HostileSwitch) -> None:
        self.controller, self.address, self.honest = controller, address, honest
        self.resource = ""
        self._numbers = itertools.count()

    async def begin(self) -> None:
        await until(lambda: self.honest.switch in self.controller.channels)
        for number, (mac, ipv4) in enumerate((A, B), 1):
            self.honest.say(packet_in(number, arp_frame(mac, ipv4, ipv4)))
        await until(lambda: len(self.controller.state.network.hosts) == 2)
        self.resource = (await self.controller.create(Mode.REACTIVE)).address
        await self.controller.change(lambda directory: directory.subscribed(self.resource, *B))

    async def still_serves(self) -> None:
        """A message through the controller, and a change that is in effect, if not at the other switch."""
        payload = b"message %d." % next(self._numbers)
        self.honest.say(packet_in(1, udp_frame(*A, self.resource, payload)))
        await until(lambda: any(payload in body for kind, body in self.honest.heard if kind == PACKET_OUT))
        late = ""
        try:
            await asyncio.wait_for(self.controller.create(), 60)
        except NotYetInEffectError as fault:
            late = fault.message
        assert "switch 1 " not in late

    @property
    def malformed(self) -> int:
        now = sum(one.counts.malformed for one in self.controller.channels.values())
        return self.controller.past.malformed + now


@asynccontextmanager
async def scene(**lobby: float) -> AsyncIterator[Scene]:
    controller = Controller(Store(None))
    if lobby:
        controller.lobby = Lobby(**lobby)  # type: ignore[arg-type]
    address = await controller.start(port=0)
    honest = HostileSwitch(1)
    try:
        async with calling(address, honest):
            made = Scene(controller, address, honest)
            await made.begin()
            yield made
            await made.still_serves()
    finally:
        await controller.stop()


WRONG = {
    "a length shorter than the header": said(ECHO_REQUEST, length=7),
    "no length": said(ECHO_REQUEST, length=0),
    "an old version": said(HELLO, version=1),
    "a version nobody knows": said(ECHO_REQUEST, version=77),
    "a type nobody knows": said(99, b"?"),
    "a short error": said(1, b"\0"),
    "an answer nobody asked for": features(3, 4711),
    "a short port status": said(12, b"\0\0\0\0"),
    "a packet-in without a packet": said(10, b"\0" * 4),
    "a packet-in whose match is longer than it": packet_in(1, b"", match_bytes=60000),
    "a packet-in whose match has no length": packet_in(1, b"", match_bytes=0),
    "a packet-in that ends in its match": said(10, struct.pack("!IHBBQHHII", 0, 0, 0, 0, 0, 1, 12, 0x80000004, 1)),
    "a removed rule without a match": said(11, bytes(40)),
    "a removed rule with a field longer than its match": said(11, bytes(40) + struct.pack("!HHI4x", 1, 12, 0x800000FF)),
}


@pytest.mark.parametrize("raw", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("is_joined", [False, True], ids=["before it joined", "after it joined"])
async def test_what_is_wrong_is_counted_and_survived(raw: bytes, is_joined: bool) -> None:
    async with scene() as made:
        other = HostileSwitch(2)
        async with calling(made.address, other):
            if is_joined:
                await until(lambda: 2 in made.controller.channels)
            other.say(raw)
            await until(lambda: made.malformed == 1 or (not is_joined and 2 in made.controller.channels))
            if not is_joined:
                other.say(raw)
            await until(lambda: made.malformed)


def group(kind: int, xid: int, body: bytes, wanted: int, inside: bytes) -> bytes | None:
    asked = struct.unpack_from("!H", body)[0] if kind == MULTIPART else None
    return part(wanted, inside, xid) if asked == wanted else None


LIES = {
    "a rule without a length": (wire.FLOWS, bytes(64)),
    "a rule longer than the message": (wire.FLOWS, struct.pack("!H", 5000) + bytes(62)),
    "an instruction without a length": (wire.FLOWS, struct.pack("!H46xHH4x", 64, 1, 4) + struct.pack("!HH4x", 4, 0)),
    "an action without a length": (
        wire.FLOWS, struct.pack("!H46xHH4x", 72, 1, 4) + struct.pack("!HH4xHH4x", 4, 16, 0, 0),
    ),
    "an output that is too short": (
        wire.FLOWS, struct.pack("!H46xHH4x", 72, 1, 4) + struct.pack("!HH4xHH4x", 4, 16, 0, 8),
    ),
    "an action without a length inside another": (
        wire.FLOWS, struct.pack("!H46xHH4x", 96, 1, 4)
        + struct.pack("!HH4xHHIH14xHH4x", 4, 40, 0xFFFF, 32, 0x2320, 35, 0xFFFF, 0),
    ),
    "a field longer than its match": (wire.FLOWS, struct.pack("!H46xHHI", 56, 1, 8, 0x800000FF)),
    "a group without a length": (wire.GROUPS, bytes(8)),
    "a bucket without a length": (wire.GROUPS, struct.pack("!HBxI", 24, 0, 1) + bytes(16)),
    "an action of a bucket without a length": (
        wire.GROUPS, struct.pack("!HBxI", 32, 0, 1) + struct.pack("!H14x", 24) + bytes(8),
    ),
    "a meter without a length": (wire.METERS, bytes(8)),
    "a band without a length": (wire.METERS, struct.pack("!HHI", 20, 0, 1) + bytes(12)),
    "half a port": (wire.PORTS, bytes(70)),
    "a short description": (wire.DESCRIPTION, b"Nicira"),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "inside"), LIES.values(), ids=LIES)
async def test_lies_inside_an_answer_do_not_keep_the_controller_busy(
    kind: int, inside: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "_ANSWER_S", 0.5)
    async with scene() as made:
        liar = HostileSwitch(2, instead=lambda asked, xid, body: group(asked, xid, body, kind, inside))
        async with calling(made.address, liar):
            await until(lambda: made.malformed)
            await made.still_serves()
            await until(liar.is_closed.is_set)
        assert 2 not in made.controller.channels


async def test_an_answer_of_another_kind_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "_ANSWER_S", 0.5)

    def confused(kind: int, xid: int, _body: bytes) -> bytes | None:
        return said(21, xid=xid) if kind == FEATURES else features(2, xid) if kind == MULTIPART else None

    async with scene() as made:
        other = HostileSwitch(2, instead=confused)
        async with calling(made.address, other):
            await until(other.is_closed.is_set)
        assert made.malformed == 1
        assert len(made.controller.lobby) == 0


async def test_answers_without_an_end_are_cut_off() -> None:
    rule = struct.pack("!H46xHH4x", 56, 1, 4)

    def endless(kind: int, xid: int, body: bytes) -> bytes | None:
        if kind == MULTIPART and struct.unpack_from("!H", body)[0] == wire.FLOWS:
            return part(wire.FLOWS, rule * 20, xid, more=True) * 3
        return None

    async with scene(seats=10, greeting_s=1.0) as made:
        other = HostileSwitch(2, instead=endless)
        before = psutil.Process().memory_info().rss
        async with calling(made.address, other):
            await until(lambda: MULTIPART in [kind for kind, _ in other.heard])
            while not other.is_closed.is_set():
                other.say(features(2, 1) * 100)
                await asyncio.sleep(0.01)
            await made.still_serves()
        assert psutil.Process().memory_info().rss - before < 100 << 20


async def test_a_switch_that_never_answers_barriers_does_not_hold_up_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "_OBEY_S", 0.5)
    async with scene() as made:
        other = HostileSwitch(2, instead=lambda kind, _xid, _body: b"" if kind == BARRIER else None)
        async with calling(made.address, other):
            await until(lambda: 2 in made.controller.channels)
            # It is told something too, so its answer is awaited for as long as a switch may take, but only once.
            with pytest.raises(NotYetInEffectError, match=r"resource 1\.1\.1\.2: .* switch 2 \(away\)"):
                await asyncio.wait_for(made.controller.create(), 60)
            await until(other.is_closed.is_set)
            assert 2 not in made.controller.channels
            await asyncio.wait_for(made.controller.create(), 60)


@pytest.mark.slow
async def test_floods_of_questions_cost_no_more_than_their_allowance() -> None:
    async with scene() as made:
        other = HostileSwitch(2)
        async with calling(made.address, other):
            await until(lambda: 2 in made.controller.channels)
            for number in range(20_000):
                mac, ipv4 = f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}", f"10.9.{number >> 8}.{number & 255}"
                other.say(packet_in(number + 3, arp_frame(mac, ipv4, made.resource)))
                if number % 500 == 0:
                    await other.writer.drain()
                    await made.still_serves()
            await until(lambda: made.controller.channels[2].counts.packet_ins == 20_000)
            assert made.controller.refused_questions > 0
        # Hosts at ports that do not exist are not believed; at the two that do, one host each.
        assert len(made.controller.state.network.hosts) <= 4


@pytest.mark.slow
async def test_floods_of_messages_to_nobody_leave_nothing_behind() -> None:
    async with scene() as made:
        other = HostileSwitch(2)
        async with calling(made.address, other):
            await until(lambda: 2 in made.controller.channels)
            for number in range(30_000):
                target = f"1.1.{number >> 8 & 255}.{number & 255}"
                other.say(packet_in(number % 7, udp_frame(*A, target, b"x")))
                if number % 500 == 0:
                    await other.writer.drain()
                    await made.still_serves()
            await until(lambda: made.controller.channels[2].counts.packet_ins == 30_000)
            assert len(made.controller.copying.plans) <= 10_000


async def test_floods_of_port_changes_are_looked_at_now_and_then() -> None:
    async with scene() as made:
        other = HostileSwitch(2)
        async with calling(made.address, other):
            await until(lambda: 2 in made.controller.channels)
            for number in range(10_000):
                other.say(said(12, struct.pack("!B7x", 2) + port(number, down=number % 2 == 0)))
                if number % 500 == 0:
                    await other.writer.drain()
            await made.still_serves()
            await until(lambda: made.malformed >= 1000 or other.is_closed.is_set())
        await until(lambda: 2 not in made.controller.state.network.ports)


async def test_a_switch_that_does_not_read_is_not_sent_ever_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "_CLOGGED_BYTES", 1 << 20)
    monkeypatch.setattr(channels, "_OBEY_S", 0.5)
    async with scene() as made:
        other = HostileSwitch(2)
        async with calling(made.address, other):
            await until(lambda: 2 in made.controller.channels)
            other._reading.cancel()
            channel = made.controller.channels[2]
            frame = udp_frame(*A, made.resource, b"x" * 1400)
            head = wire.packet_out_head(b"", len(frame), 1)
            for _ in range(20_000):
                channel.send_frame((head, b""), frame)
                channel.flush()
                await asyncio.sleep(0)
            assert channel.counts.unsent > 0
            assert channel._transport is not None
            assert channel._transport.get_write_buffer_size() < 2 << 20
            await made.still_serves()


async def test_two_switches_with_one_number_do_not_both_stay() -> None:
    async with scene() as made:
        first, second = HostileSwitch(2), HostileSwitch(2, ports=(1, 2, 3))
        async with calling(made.address, first):
            await until(lambda: 2 in made.controller.channels)
            async with calling(made.address, second):
                await until(first.is_closed.is_set)
                assert made.controller.state.network.ports[2] == frozenset({1, 2, 3})
                await made.still_serves()
                assert not second.is_closed.is_set()
        await until(lambda: 2 not in made.controller.channels)
        assert 2 not in made.controller.state.network.ports


async def test_a_thousand_who_say_nothing_keep_nobody_out() -> None:
    async with scene(seats=64, greeting_s=60) as made:
        silent: list[asyncio.StreamWriter] = []
        try:
            for _ in range(1000):
                with suppress(OSError):
                    silent.append((await asyncio.open_connection("127.0.0.1", made.address))[1])
            assert len(made.controller.lobby) <= 64
            late = HostileSwitch(7)
            async with calling(made.address, late):
                await until(lambda: 7 in made.controller.channels)
                await made.still_serves()
        finally:
            for one in silent:
                one.close()
        await until(lambda: len(made.controller.lobby) == 0)


async def test_who_introduces_itself_byte_by_byte_is_sent_away_in_time() -> None:
    async with scene(seats=10, greeting_s=0.5) as made:
        _, writer = await asyncio.open_connection("127.0.0.1", made.address)
        try:
            for byte in said(HELLO) + said(ECHO_REQUEST, bytes(60_000)):
                writer.write(bytes([byte]))
                await asyncio.sleep(0.02)
                if made.controller.lobby.sent_away:
                    break
            assert made.controller.lobby.sent_away == 1
        finally:
            writer.close()


@given(st.lists(st.binary(max_size=200) | st.builds(said, st.integers(0, 40), st.binary(max_size=120)), max_size=20))
@examples(25, suppress_health_check=list(HealthCheck))
def test_any_bytes_at_all_are_survived(pieces: list[bytes]) -> None:
    async def play() -> None:
        async with scene() as made:
            other = HostileSwitch(2)
            async with calling(made.address, other):
                await until(lambda: 2 in made.controller.channels)
                for piece in pieces:
                    other.say(piece)
                await made.still_serves()

    with mock.patch.object(channels, "_OBEY_S", 0.2):
        asyncio.run(play())


@given(st.data())
@examples(25, suppress_health_check=list(HealthCheck))
def test_any_frame_in_a_packet_in_is_survived(data: st.DataObject) -> None:
    frames = []
    for _ in range(data.draw(st.integers(1, 30))):
        whole = data.draw(st.sampled_from([udp_frame(*A, "1.1.1.1", b"reading"), arp_frame(*A, "1.1.1.1")]))
        broken = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
        for place in data.draw(st.lists(st.integers(0, max(0, len(broken) - 1)), max_size=4)) if broken else []:
            broken[place] ^= data.draw(st.integers(1, 255))
        frames.append((data.draw(st.integers(0, 4)), bytes(broken)))

    async def play() -> None:
        async with scene() as made:
            for number, frame in frames:
                made.honest.say(packet_in(number, frame))
            await made.still_serves()
            assert set(made.controller.state.network.hosts) == {A[0], B[0]}
            assert made.malformed == 0

    asyncio.run(play())
