"""Changes while a switch is away or refuses its orders: said, kept, and carried out when it is back."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from battlebrokers.errors import InputError
from battlebrokers.sdn import absences, controller
from battlebrokers.sdn.absences import NotYetInEffectError
from battlebrokers.sdn.controller import Controller
from battlebrokers.sdn.core.resources import Mode
from battlebrokers.sdn.observer import Observer
from battlebrokers.sdn.openflow import channel as channels
from battlebrokers.sdn.store import Store
from support.datagrams import arp_frame, udp_frame
from support.hostile_switch import ERROR, HostileSwitch, calling, packet_in, said
from support.waiting import eventually

A, B = ("00:00:00:00:01:01", "10.0.0.1"), ("00:00:00:00:01:02", "10.0.0.2")
FLOW_MOD, GROUP_MOD = 14, 15


@asynccontextmanager
async def serving(state: Path | None = None, **limits: int) -> AsyncIterator[tuple[Controller, int]]:
    serving = Controller(Store(state), **limits)
    address = await serving.start(port=0)
    try:
        yield serving, address
    finally:
        await serving.stop()


async def there(serving: Controller, *switches: HostileSwitch) -> None:
    """All of them called; A is at the first, B at the last."""
    await eventually(lambda: {one.switch for one in switches} <= set(serving.channels))
    for (mac, ipv4), switch, port in ((A, switches[0], 1), (B, switches[-1], 2)):
        switch.say(packet_in(port, arp_frame(mac, ipv4, ipv4)))
        await eventually(lambda mac=mac: mac in serving.state.network.hosts)  # type: ignore[misc]


async def subscribe(serving: Controller, address: str, who: tuple[str, str]) -> None:
    await serving.change(lambda directory: directory.subscribed(address, *who))


async def unsubscribe(serving: Controller, address: str, who: tuple[str, str]) -> None:
    await serving.change(lambda directory: directory.unsubscribed(address, who[0]))


@pytest.mark.parametrize("mode", [Mode.GROUP, Mode.TREE])
async def test_an_unsubscribe_is_not_answered_as_done_while_a_switch_goes_on_as_before(mode: Mode) -> None:
    async with serving() as (made, address):
        first, second = HostileSwitch(1), HostileSwitch(2)
        async with calling(address, first):
            async with calling(address, second):
                await there(made, first, second)
                resource = (await made.create(mode)).address
                await subscribe(made, resource, B)
            await eventually(lambda: 2 not in made.channels)
            with pytest.raises(NotYetInEffectError, match=r"switch 2 \(away\)"):
                await unsubscribe(made, resource, B)
            assert made.state.directory[resource].subscribers == {}
            assert made.pending(resource) == [2]
            # What it never knew of is no matter of its.
            other = (await made.create(mode)).address
            await subscribe(made, other, A)
            assert made.pending(other) == []
            async with calling(address, HostileSwitch(2)):
                await eventually(lambda: 2 in made.channels)
                assert made.pending(resource) == []
                await subscribe(made, resource, A)


@pytest.mark.parametrize("mode", [Mode.REACTIVE, Mode.DIRECT])
async def test_where_switches_ask_one_that_is_away_delivers_nothing_by_itself(mode: Mode) -> None:
    async with serving() as (made, address):
        first, second = HostileSwitch(1), HostileSwitch(2)
        async with calling(address, first):
            async with calling(address, second):
                await there(made, first, second)
                resource = (await made.create(mode)).address
                await subscribe(made, resource, B)
            await eventually(lambda: 2 not in made.channels)
            await unsubscribe(made, resource, B)


async def test_a_switch_that_does_not_come_back_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as (made, address):
        async with calling(address, first := HostileSwitch(1)):
            await there(made, first)
            resource = (await made.create()).address
            await subscribe(made, resource, B)
            with pytest.raises(InputError, match="connected"):
                made.forget_switch(1)
        await eventually(lambda: not made.channels)
        with pytest.raises(NotYetInEffectError):
            await unsubscribe(made, resource, B)
        made.forget_switch(1)
        assert made.state.network.hosts == {}
        await subscribe(made, resource, B)
        async with calling(address, HostileSwitch(1)):
            await eventually(lambda: 1 in made.channels)
        await eventually(lambda: not made.channels)
        monkeypatch.setattr(absences, "GONE_AFTER_S", 0.0)
        await unsubscribe(made, resource, B)


async def test_a_switch_that_was_away_over_a_restart_is_named_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path / "state.json") as (made, address), calling(address, first := HostileSwitch(1)):
        await there(made, first)
        resource = (await made.create()).address
        await subscribe(made, resource, B)
    monkeypatch.setattr(controller, "_GRACE_S", 0.05)
    async with serving(tmp_path / "state.json") as (made, _):
        with pytest.raises(NotYetInEffectError, match=r"switch 1 \(away\)"):
            await unsubscribe(made, resource, B)


class Refusing(HostileSwitch):
    """Turns down every change of its tables as long as it is full."""

    def __init__(self, switch: int) -> None:
        super().__init__(switch, instead=self._refused)
        self.is_full = False
        self.told = 0

    def _refused(self, kind: int, xid: int, _body: bytes) -> bytes | None:
        self.told += kind in (FLOW_MOD, GROUP_MOD)
        full = self.is_full and kind in (FLOW_MOD, GROUP_MOD)
        return said(ERROR, struct.pack("!HH", 5, 1), xid) if full else None


async def test_orders_a_switch_refuses_are_said_and_told_again_until_it_takes_them() -> None:
    async with serving() as (made, address):
        switch = Refusing(1)
        async with calling(address, switch):
            await there(made, switch)
            resource = (await made.create()).address
            switch.is_full = True
            with pytest.raises(NotYetInEffectError, match=r"switch 1 \(it refused an order: type 5, code 1\)"):
                await subscribe(made, resource, B)
            assert made.pending(resource) == [1]
            channel, before = made.channels[1], switch.told
            await eventually(lambda: switch.told > before)
            assert made.pending(resource) == [1]
            switch.is_full = False
            await eventually(lambda: not made.pending(resource))
            # Nobody hung up meanwhile.
            assert made.channels[1] is channel
            await unsubscribe(made, resource, B)


async def test_a_switch_that_refuses_for_ever_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    sleep = asyncio.sleep

    async def slept(seconds: float) -> None:
        if seconds >= controller._MEND_S:
            waits.append(seconds)
        await sleep(min(seconds, 0.01))

    async with serving() as (made, address):
        switch = Refusing(1)
        async with calling(address, switch):
            await there(made, switch)
            switch.is_full = True
            with monkeypatch.context() as quick:
                quick.setattr(controller.asyncio, "sleep", slept)
                with pytest.raises(NotYetInEffectError):
                    await made.create()
                await eventually(lambda: controller._MEND_AT_MOST_S in waits)
    doubling = [wait for wait in waits if wait < controller._BEACON_S or wait > channels.PROBE_S]
    assert sorted(set(doubling))[:3] == [0.1, 0.2, 0.4]


async def test_a_frame_that_could_not_be_sent_says_nothing_of_the_tables() -> None:
    async with serving() as (made, address):
        switch = HostileSwitch(1)
        async with calling(address, switch):
            await there(made, switch)
            switch.say(said(ERROR, struct.pack("!HH", 2, 4), 0))
            await eventually(lambda: made.channels[1].counts.errors == 1)
            assert not made.channels[1].refused
            await made.create()


async def test_copies_count_as_delivered_only_when_they_were_sent() -> None:
    async with serving() as (made, address):
        first, second = HostileSwitch(1), HostileSwitch(2)
        observer = Observer(made)
        async with calling(address, first, second):
            await there(made, first, second)
            resource = (await made.create(Mode.DIRECT)).address
            await subscribe(made, resource, B)
            message = packet_in(1, udp_frame(*A, resource, b"reading"))
            first.say(message)
            await eventually(lambda: observer.sums().delivered[resource] == 1)
            made.channels[2].pause_writing()
            for _ in range(3):
                first.say(message)
            await eventually(lambda: observer.sums().lost[resource] == 3)
            assert observer.sums().delivered[resource] == 1
            # Beacons are kept from it as well.
            assert observer.sums().dropped["switch too slow"] >= 3
            made.channels[2].resume_writing()
            first.say(message)
            await eventually(lambda: observer.sums().delivered[resource] == 2)


@pytest.mark.parametrize("mode", [Mode.REACTIVE, Mode.DIRECT])
async def test_where_a_switch_has_no_meters_the_controller_itself_limits_a_resource(mode: Mode) -> None:
    async with serving(reactive_per_s=1) as (made, address):
        first = HostileSwitch(1)
        observer = Observer(made)
        async with calling(address, first):
            await there(made, first)
            flooded, other = [(await made.create(mode)).address for _ in range(2)]
            for resource in (flooded, other):
                await subscribe(made, resource, B)
            for _ in range(50):
                first.say(packet_in(1, udp_frame(*A, flooded, b"flood")))
            first.say(packet_in(1, udp_frame(*A, other, b"reading")))
            await eventually(lambda: observer.sums().delivered[other] == 1)
            sums = observer.sums()
            assert sums.delivered[flooded] + sums.lost[flooded] == 50
            assert sums.lost[flooded] > 40
            assert sums.dropped["over the limit"] == sums.lost[flooded]
