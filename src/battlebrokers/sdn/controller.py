"""The controller: switches on one side, REST on the other, the core's decisions in between.

Started by `bb sdn controller`. It decides nothing itself: it listens, tells, waits until a change is in effect, and
keeps the broker's memory.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, Protocol

from battlebrokers.errors import EnvironmentNotReady, InputError
from battlebrokers.sdn.absences import Absences, NotYetInEffectError, delivers, not_yet
from battlebrokers.sdn.allowance import Allowance
from battlebrokers.sdn.copying import Copying
from battlebrokers.sdn.core import broker
from battlebrokers.sdn.core.addresses import VIRTUAL_MAC
from battlebrokers.sdn.core.frames import udp_frame
from battlebrokers.sdn.core.instructions import THROUGH_TABLES, Match, Order, Output, Send, Tables
from battlebrokers.sdn.core.network import Port
from battlebrokers.sdn.core.resources import Directory, Mode, Resource, Source
from battlebrokers.sdn.core.rules import QUESTIONS, REACTIVE_PER_S
from battlebrokers.sdn.openflow.channel import Channel
from battlebrokers.sdn.openflow.introduction import Counts, Introduction
from battlebrokers.sdn.openflow.lobby import Lobby
from battlebrokers.sdn.refused_port import cannot_listen
from battlebrokers.sdn.settling import in_effect, rounds_to_go
from battlebrokers.sdn.store import Store, remembered

_LOG = logging.getLogger(__name__)
OPENFLOW_PORT: Final = 6653
_BEACON_S: Final = 1.0
_QUICK_BEACONS: Final = 5
"""The first rounds come quickly: links are found within a second."""
_GRACE_S: Final = 10.0
"""After a restart: how long the switches of before may take to call again before the network is taken as it is now."""
_SEEK_S: Final = 0.5
"""How long a host may take to answer that is subscribed before anybody has seen it."""
_MEND_S: Final = 0.1
_MEND_AT_MOST_S: Final = 60.0
"""A switch that refused an order is read and told again after so long: first soon, then less and less often."""
_MOST_SWITCHES: Final = 1000
_IPV4: Final = b"\x08\x00"


class Watcher(Protocol):
    """Who counts what switches counted; a rule or group that goes takes its counters along."""

    def before_orders(self, channel: Channel, directory: Directory, known: Tables, orders: list[Order]) -> None:
        """A switch is about to be told this."""

    def rule_removed(self, switch: int, key: tuple[int, int, Match], packets: int) -> None:
        """A rule is gone."""

    def switch_joined(self, switch: int, tables: Tables) -> None:
        """A switch came, or came back, and this is what it still knows."""


class Controller:
    """All switches that called, and the broker's state."""

    def __init__(self, store: Store, reactive_per_s: int = REACTIVE_PER_S) -> None:
        self._store = store
        memory = store.load()
        network = memory.network
        self.state = broker.State(
            memory.secret, memory.directory, network,
            link_seen_ms=dict.fromkeys(network.links, _now_ms()), awaited=frozenset(network.ports),
            reactive_per_s=reactive_per_s,
        )  # fmt: skip
        self.channels: dict[int, Channel] = {}
        self.introductions: dict[int, Introduction] = {}
        self.copying = Copying()
        self.absences = Absences()
        self.refused_questions = 0
        self.watcher: Watcher | None = None
        """Whoever counts."""
        self.lobby = Lobby()
        self.past = Counts()
        """Of all channels that are gone."""
        self._complete = asyncio.Event()
        """No switch of before is awaited any longer."""
        self._allowances: dict[int, Allowance] = {}
        self._mending: set[Channel] = set()
        self._changing = asyncio.Lock()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._beaconing = asyncio.Event()
        self._seen = asyncio.Event()
        """A host or link was."""

    async def start(self, host: str = "127.0.0.1", port: int = OPENFLOW_PORT) -> int:
        """Listen for switches; returns the port."""
        try:
            self._server = await asyncio.get_running_loop().create_server(lambda: Channel(self, self.lobby), host, port)
        except OSError as fault:
            raise cannot_listen("switches", f"{host}:{port}", fault, "--openflow-port") from fault
        self._spawn(self._beacon_for_ever())
        self._spawn(self._end_of_grace())
        # What cannot be kept is said now, not when the first subscription is refused.
        self._remember()
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Hang up on everybody; the switches go on as they were told."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            self._server.close()
        for channel in list(self.channels.values()):
            channel.is_joined = False
            channel.close()

    async def change(self, change: Callable[[Directory], Directory]) -> None:
        """Change resources or subscriptions; returns once that is in effect in every switch.

        Where a switch is away that goes on as before, or does not do as told, that is said (`NotYetInEffectError`); the
        change is kept, and the switch told when it is back.
        """
        await self._complete.wait()
        async with self._changing:
            sought_before, before = set(broker.unseen(self.state)), self.state.directory
            directory = change(before)
            # Kept first: what cannot be kept is refused, not half done.
            self._store.save(remembered(self.state.secret, directory, self.state.network))
            late = await in_effect(self._adopt(broker.directory_changed(self.state, directory)))
            for _ in range(rounds_to_go(before, directory, self.state.network)):
                late |= await in_effect(self.channels.values())
        if fresh := set(broker.unseen(self.state)) - sought_before:
            late |= await self._seek(fresh)
        if late := self.absences.missed(directory.differing(before)) | late:
            raise not_yet(late)

    async def create(self, mode: Mode = Mode.TREE, source: Source = Source.PUBLISHER, name: str = "") -> Resource:
        """A new resource at the next free address; publishing on it works from now on."""
        made: list[Resource] = []

        def created(directory: Directory) -> Directory:
            directory, resource = directory.created(mode, source, name)
            made.append(resource)
            return directory

        try:
            await self.change(created)
        except NotYetInEffectError as fault:
            raise NotYetInEffectError(f"resource {made[0].address}: {fault.message}", hint=fault.hint) from fault
        return made[0]

    def publish(self, address: str, payload: bytes, port: int) -> int:
        """Send a message of our own through the tables of the first switch there is; returns its number."""
        resource = self.state.directory[address]
        if not self.channels:
            raise EnvironmentNotReady("no switch is connected", hint="bb sdn lab up paper")
        switch = min(self.channels)
        frame = udp_frame(VIRTUAL_MAC, resource.address, VIRTUAL_MAC, resource.address, port, payload)
        self.channels[switch].tell([Send((Output(THROUGH_TABLES),), frame)])
        return switch

    async def forget_host(self, mac: str) -> None:
        """Take a host as gone; it is seen anew when it speaks again."""
        async with self._changing:
            touched = self._adopt(broker.host_forgotten(self.state, mac))
            self._remember()
            if late := await in_effect(touched):
                raise not_yet(late)

    def forget_switch(self, switch: int) -> None:
        """Take a switch that is away as gone for good: nobody waits for it, and its hosts are seen anew elsewhere."""
        if switch in self.channels:
            raise InputError(f"switch {switch} is connected", hint="only one that is away can be forgotten")
        self.absences.ended(switch)
        self.introductions.pop(switch, None)
        self._adopt(broker.switch_forgotten(self.state, switch))
        self._remember()

    def pending(self, address: str) -> list[int]:
        """Switches that do not follow the last changes of a resource yet."""
        refusing = {channel.switch for channel in self._mending}
        return sorted(refusing.union(self.absences.behind(address)))

    def joined(self, channel: Channel, introduction: Introduction) -> None:
        """A switch introduced itself."""
        switch = introduction.switch
        if switch not in self.introductions and len(self.introductions) >= _MOST_SWITCHES:
            gone = [other for other in self.introductions if other not in self.channels]
            if not gone:
                _LOG.warning("switch %s is one too many", switch)
                channel.close()
                return
            del self.introductions[gone[0]]
        old = self.introductions.get(switch, introduction).serial
        if old not in ("", introduction.serial):
            # Of a network that is no more: they will not call again.
            for other in [one for one, said in self.introductions.items() if said.serial == old]:
                if other not in self.channels:
                    del self.introductions[other]
                    self.absences.ended(other)
        before = self.channels.get(switch)
        self.channels[switch] = channel
        self.introductions[switch] = introduction
        self._allowances[switch] = Allowance(QUESTIONS.packets_per_s, QUESTIONS.burst_packets)
        self.absences.ended(switch)
        if before is not None and before is not channel:
            before.is_joined = False
            before.close()
        self._spawn(channel.watch())
        self.copying.changed()
        if self.watcher is not None:
            self.watcher.switch_joined(switch, introduction.tables)
        decision = broker.switch_joined(
            self.state, switch, introduction.ports, introduction.tables, introduction.skills, introduction.serial
        )
        self._adopt(decision, {switch: introduction.tables})
        if not self.state.awaited:
            self._complete.set()
        self._remember()
        self._beaconing.set()

    def left(self, channel: Channel) -> None:
        """A switch is gone."""
        if self.channels.get(channel.switch) is channel:
            del self.channels[channel.switch]
            self.absences.left(channel.switch, delivers(self.state.known.get(channel.switch, Tables())))
            self.copying.changed()
            self._adopt(broker.switch_left(self.state, channel.switch))

    def hung_up(self, channel: Channel) -> None:
        """A connection ended."""
        self.past.packet_ins += channel.counts.packet_ins
        self.past.packet_outs += channel.counts.packet_outs
        self.past.errors += channel.counts.errors
        self.past.malformed += channel.counts.malformed
        self.past.unsent += channel.counts.unsent

    def order_refused(self, channel: Channel) -> None:
        """A switch does not know what it was told: its tables are read, and it is told again."""
        if self.channels.get(channel.switch) is channel and channel not in self._mending:
            self._mending.add(channel)
            self._spawn(self._mend(channel))

    def rule_removed(self, channel: Channel, key: tuple[int, int, Match], packets: int) -> None:
        """A rule is gone, and with it its counter."""
        if self.watcher is not None and self.channels.get(channel.switch) is channel:
            self.watcher.rule_removed(channel.switch, key, packets)

    def ports_changed(self, channel: Channel, up: frozenset[int]) -> None:
        """Ports came or went."""
        if self.channels.get(channel.switch) is channel:
            self._adopt(broker.ports_changed(self.state, channel.switch, up))
            self._remember()
            self._beaconing.set()

    def packet_came(self, channel: Channel, in_port: int, frame: bytes) -> None:
        """A switch asks what to do with a frame."""
        if frame[12:14] == _IPV4:
            self.copying.copy(self.state, self.channels, channel.switch, in_port, frame)
            return
        if not self._allowances[channel.switch].take():
            self.refused_questions += 1
            return
        before = self.state
        decision = broker.packet_came(before, Port(channel.switch, in_port), frame, _now_ms())
        self._adopt(decision)
        if self.state.network is not before.network:
            self._seen.set()
            self._remember()

    def caught_up(self) -> None:
        """All that came together was told."""
        self.copying.caught_up()

    def _adopt(self, decision: broker.Decision, read: dict[int, Tables] | None = None) -> list[Channel]:
        """Make a decision ours and tell the switches; returns those that were told something.

        `read` is what switches that just came said of themselves.
        """
        before = self.state
        known = before.known | (read or {})
        self.state, orders = decision
        if self.state.network is not before.network or self.state.directory is not before.directory:
            self.copying.changed()
        told = []
        for switch, listed in orders.items():
            channel = self.channels.get(switch)
            if channel is not None:
                if self.watcher is not None:
                    self.watcher.before_orders(channel, before.directory, known.get(switch, Tables()), listed)
                channel.tell(listed)
                told.append(channel)
        return told

    async def _mend(self, channel: Channel) -> None:
        wait_s = _MEND_S
        try:
            while channel.refused and self.channels.get(channel.switch) is channel:
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, _MEND_AT_MOST_S)
                with suppress(ConnectionError, TimeoutError, ValueError):
                    async with self._changing:
                        await self._tell_anew(channel)
        finally:
            self._mending.discard(channel)

    async def _tell_anew(self, channel: Channel) -> None:
        tables = await channel.read_tables()
        if self.channels.get(channel.switch) is channel:
            channel.refused = ""
            if self.watcher is not None:
                self.watcher.switch_joined(channel.switch, tables)
            self._adopt(broker.tables_read(self.state, channel.switch, tables), {channel.switch: tables})
            await channel.barrier()

    def _search(self) -> bool:
        """Ask for subscribers nobody has seen; False when there is nobody to ask."""
        orders = broker.searches(self.state, _now_ms())
        for switch, listed in orders.items():
            if (channel := self.channels.get(switch)) is not None:
                channel.tell(listed)
        return bool(orders)

    async def _seek(self, sought: set[str]) -> dict[int, str]:
        """Subscribed and never seen: those that are there answer at once, and get every message from then on."""
        if not self._search():
            return {}
        with suppress(TimeoutError):
            async with asyncio.timeout(_SEEK_S):
                while sought & set(broker.unseen(self.state)):
                    self._seen.clear()
                    await self._seen.wait()
        return await in_effect(self.channels.values())

    async def _beacon_for_ever(self) -> None:
        quick = 0
        while True:
            for switch, orders in broker.beacons(self.state, _now_ms()).items():
                channel = self.channels.get(switch)
                if channel is not None:
                    channel.tell(orders)
            self._adopt(broker.links_aged(self.state, _now_ms()))
            self.copying.time_passed()
            if not quick:
                self._search()
            wait_s = _BEACON_S / 10 if quick else _BEACON_S
            quick = max(0, quick - 1)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._beaconing.wait(), wait_s)
                self._beaconing.clear()
                quick = _QUICK_BEACONS

    async def _end_of_grace(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._complete.wait(), _GRACE_S if self.state.awaited else 0)
        if self.state.awaited:
            _LOG.warning("these switches did not come back: %s", sorted(self.state.awaited))
            # What they know nobody can tell: any resource whose messages switches copy by themselves.
            copied = [one.address for one in self.state.directory.resources.values() if not one.mode.asks]
            for switch in self.state.awaited:
                self.absences.left(switch, frozenset(copied))
            self._adopt(broker.awaited_no_longer(self.state))
        self._complete.set()

    def _remember(self) -> None:
        """What the network did cannot be refused: where it cannot be kept, it is said, and tried again next time."""
        try:
            self._store.save(remembered(self.state.secret, self.state.directory, self.state.network))
        except EnvironmentNotReady as fault:
            _LOG.warning("%s", fault.message)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
