"""The controller: switches on one side, REST on the other, the core's decisions in between.

Started by `bb sdn controller`. It decides nothing itself: it listens, tells, waits until a change is in effect, and
keeps the broker's memory.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any, Final, Protocol

from battlebrokers.errors import EnvironmentNotReady
from battlebrokers.sdn.core import broker
from battlebrokers.sdn.core.addresses import VIRTUAL_MAC
from battlebrokers.sdn.core.frames import udp_frame
from battlebrokers.sdn.core.instructions import CONTROLLER, THROUGH_TABLES, Match, Order, Output, Send, Tables
from battlebrokers.sdn.core.network import Port
from battlebrokers.sdn.core.resources import Directory, Mode, Resource, Source
from battlebrokers.sdn.openflow.channel import Channel
from battlebrokers.sdn.openflow.codec import action_bytes
from battlebrokers.sdn.openflow.introduction import Counts, Introduction
from battlebrokers.sdn.openflow.lobby import Lobby
from battlebrokers.sdn.refused_port import cannot_listen
from battlebrokers.sdn.store import Store, remembered

_LOG = logging.getLogger(__name__)
OPENFLOW_PORT: Final = 6653
SETTLE_S: Final = 0.02
"""Open vSwitch answers a barrier when its tables are changed; what it cached of the old ones lives up to 10 ms on."""
_SETTLE_STEPS: Final = 20
_PATIENCE: Final = 2.0
"""How much longer than that, for each second the barriers took."""
_BEACON_S: Final = 1.0
_QUICK_BEACONS: Final = 5
"""The first rounds come quickly: links are found within a second."""
_GRACE_S: Final = 10.0
"""After a restart: how long the switches of before may take to call again before the network is taken as it is now."""
_SEEK_S: Final = 0.5
"""How long a host may take to answer that is subscribed before anybody has seen it."""
_QUESTIONS_PER_S: Final = 2000
_QUESTIONS_BURST: Final = 400
_MOST_PLANS: Final = 10_000
_MOST_SWITCHES: Final = 1000
_IPV4: Final = b"\x08\x00"


@dataclass(slots=True)
class Traffic:
    """Of one resource in reactive mode, where no switch counts."""

    published: int = 0
    delivered: int = 0


class _Allowance:
    """At most so many a second, with a burst: a flood of questions costs no more than this."""

    def __init__(self) -> None:
        self._left = float(_QUESTIONS_BURST)
        self._at = time.monotonic()

    def take(self) -> bool:
        now = time.monotonic()
        self._left = min(float(_QUESTIONS_BURST), self._left + (now - self._at) * _QUESTIONS_PER_S)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is done with every message of one kind in reactive mode; good until anything changes."""

    legs: tuple[tuple[Channel, bytes, int], ...]
    copies: int
    traffic: Traffic | None
    dropped: str = ""


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

    def __init__(self, store: Store) -> None:
        self._store = store
        memory = store.load()
        network = memory.network
        self.state = broker.State(
            memory.secret, memory.directory, network,
            link_seen_ms=dict.fromkeys(network.links, _now_ms()), awaited=frozenset(network.ports),
        )  # fmt: skip
        self.channels: dict[int, Channel] = {}
        self.introductions: dict[int, Introduction] = {}
        self.traffic: dict[str, Traffic] = {}
        self.drops: Counter[str] = Counter()
        """Frames that reached the controller and went no further, by kind."""
        self.refused_questions = 0
        self.watcher: Watcher | None = None
        """Whoever counts."""
        self.lobby = Lobby()
        self.past = Counts()
        """Of all channels that are gone."""
        self._complete = asyncio.Event()
        """No switch of before is awaited any longer."""
        self._allowances: dict[int, _Allowance] = {}
        self._plans: dict[tuple[int, int, bytes], _Plan] = {}
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
        """Change resources or subscriptions; returns once that is in effect in every switch."""
        await self._complete.wait()
        async with self._changing:
            sought_before = set(broker.unseen(self.state))
            directory = change(self.state.directory)
            # Kept first: what cannot be kept is refused, not half done.
            self._store.save(remembered(self.state.secret, directory, self.state.network))
            await self._in_effect(self._adopt(broker.directory_changed(self.state, directory)))
        if fresh := set(broker.unseen(self.state)) - sought_before:
            await self._seek(fresh)

    async def create(self, mode: Mode = Mode.TREE, source: Source = Source.PUBLISHER, name: str = "") -> Resource:
        """A new resource at the next free address; publishing on it works from now on."""
        made: list[Resource] = []

        def created(directory: Directory) -> Directory:
            directory, resource = directory.created(mode, source, name)
            made.append(resource)
            return directory

        await self.change(created)
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
            await self._in_effect(touched)

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
        before = self.channels.get(switch)
        self.channels[switch] = channel
        self.introductions[switch] = introduction
        self._allowances[switch] = _Allowance()
        if before is not None and before is not channel:
            before.is_joined = False
            before.close()
        self._spawn(channel.watch())
        self._plans.clear()
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
            self._adopt(broker.switch_left(self.state, channel.switch))

    def hung_up(self, channel: Channel) -> None:
        """A connection ended."""
        self.past.packet_ins += channel.counts.packet_ins
        self.past.packet_outs += channel.counts.packet_outs
        self.past.errors += channel.counts.errors
        self.past.malformed += channel.counts.malformed
        self.past.unsent += channel.counts.unsent

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
            self._copy(channel, in_port, frame)
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

    def _copy(self, channel: Channel, in_port: int, frame: bytes) -> None:
        key = (channel.switch, in_port, frame[30:34])
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            plan = self._plans[key] = self._planned(*key)
        for leg, actions, leg_port in plan.legs:
            leg.send_frame(actions, frame, leg_port)
        if plan.traffic is not None:
            plan.traffic.published += 1
            plan.traffic.delivered += plan.copies
        else:
            self.drops[plan.dropped] += 1

    def _planned(self, switch: int, in_port: int, target: bytes) -> _Plan:
        address = str(IPv4Address(target)) if len(target) == 4 else ""
        copies = broker.reactive_copies(self.state, Port(switch, in_port), address, "")
        if isinstance(copies, str):
            return _Plan((), 0, None, copies)
        legs = tuple(
            (self.channels[other], action_bytes(actions), in_port if other == switch else CONTROLLER)
            for other, actions in copies.items()
            if other in self.channels
        )
        count = sum(isinstance(action, Output) for actions in copies.values() for action in actions)
        return _Plan(legs, count, self.traffic.setdefault(address, Traffic()))

    def _adopt(self, decision: broker.Decision, read: dict[int, Tables] | None = None) -> list[Channel]:
        """Make a decision ours and tell the switches; returns those that were told something.

        `read` is what switches that just came said of themselves.
        """
        before = self.state
        known = before.known | (read or {})
        self.state, orders = decision
        if self.state.network is not before.network or self.state.directory is not before.directory:
            self._plans.clear()
        told = []
        for switch, listed in orders.items():
            channel = self.channels.get(switch)
            if channel is not None:
                if self.watcher is not None:
                    self.watcher.before_orders(channel, before.directory, known.get(switch, Tables()), listed)
                channel.tell(listed)
                told.append(channel)
        return told

    async def _in_effect(self, channels: Iterable[Channel]) -> None:
        """Wait until every switch has done what it was told; one that went away meanwhile is told when it returns."""
        await asyncio.gather(*map(_obeyed, channels), return_exceptions=True)

    def _search(self) -> bool:
        """Ask for subscribers nobody has seen; False when there is nobody to ask."""
        orders = broker.searches(self.state, _now_ms())
        for switch, listed in orders.items():
            if (channel := self.channels.get(switch)) is not None:
                channel.tell(listed)
        return bool(orders)

    async def _seek(self, sought: set[str]) -> None:
        """Subscribed and never seen: those that are there answer at once, and get every message from then on."""
        if not self._search():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_SEEK_S):
                while sought & set(broker.unseen(self.state)):
                    self._seen.clear()
                    await self._seen.wait()
        await self._in_effect(list(self.channels.values()))

    async def _beacon_for_ever(self) -> None:
        quick = 0
        while True:
            for switch, orders in broker.beacons(self.state, _now_ms()).items():
                channel = self.channels.get(switch)
                if channel is not None:
                    channel.tell(orders)
            self._adopt(broker.links_aged(self.state, _now_ms()))
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


async def _obeyed(channel: Channel) -> None:
    began = time.monotonic()
    await channel.barrier()
    # A switch that is slow to answer is as slow to forget.
    slow_s = _PATIENCE * (time.monotonic() - began)
    # In steps: where processors are scarce each takes longer than it should, for us as for the switch that forgets.
    for _ in range(_SETTLE_STEPS):
        await asyncio.sleep(SETTLE_S / _SETTLE_STEPS)
    await asyncio.sleep(slow_s)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
