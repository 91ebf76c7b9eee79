"""An engine: one process's share of the plan, from connecting to the last drained message.

Run by a worker, told what to do by control messages. It opens links, drives the crowd, records, and reports.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

from battlebrokers.clock import SECOND_NS, Anchor
from battlebrokers.devices.client import Client
from battlebrokers.devices.crowd import Crowd
from battlebrokers.devices.device import Device
from battlebrokers.devices.expected_topics import DeviceTopics, ExpectedTopics
from battlebrokers.devices.node import Node
from battlebrokers.devices.stopwatch import Stopwatch
from battlebrokers.pacing.schedule import NEVER, Schedule
from battlebrokers.protocols.base import Failure
from battlebrokers.record.recorder import Recorder
from battlebrokers.run.drain import is_drained
from battlebrokers.run.intake import most_arrivals
from battlebrokers.run.linking import Linking
from battlebrokers.run.messages import Control, Finished, Prepare, Prepared, Progress
from battlebrokers.scenario.nodes import PhasesPlan
from battlebrokers.scenario.payloads import PayloadSource
from battlebrokers.scenario.plan import ClientPlan, DevicePlan, Plan

_TURN_S = 0.25
_PROGRESS_TURNS = 2
_CONNECTING_AT_ONCE = 500
_MADE_AT_ONCE = 500
_OWED_BATCH = 16_384
_STOPPED_DRAIN_NS = SECOND_NS
_LEAVING_AT_ONCE = 5_000
"""Each may wait seconds for a broker that does not close: all together, not one crowd after the other."""


class Engine:
    """Lives through: `prepare` → `go` → (load, drain) → `finish`; `stop` cuts the load short."""

    def __init__(self, order: Prepare, anchor: Anchor, send: Callable[[Control], None]) -> None:
        self._order = order
        self._send = send
        self._plan = Plan.from_message(order.plan)
        self._anchor = anchor
        self._recorder = Recorder(
            Path(order.evidence), order.worker, keep=order.keep_events, most_arrivals=most_arrivals(self._plan)
        )
        self._stopwatch = Stopwatch(anchor, self._recorder)
        self._crowd = Crowd(self._stopwatch, anchor.shift_ns, order.tick_ns)
        self._clients: list[Client] = []
        self._devices: list[Device] = []
        self._stopped = asyncio.Event()
        self._turns = 0
        self._turning: asyncio.TimerHandle | None = None
        self._background: set[asyncio.Task[Any]] = set()
        self._failed_first = 0
        self._connects_held = 0
        self._linking = Linking(order, self._plan, self._stopwatch)
        self._silent_ns = 0

    async def prepare(self) -> Prepared:
        """Make everyone, connect clients first, then devices, at the planned rate."""
        rows = []
        for client_plan in self._plan.clients(self._order.share, self._order.of):
            link = self._linking.link("client", client_plan)
            client = Client(client_plan, link, self._stopwatch, self._linking.subscriptions(client_plan))
            self._clients.append(client)
            rows.append(_node_row("client", client_plan))
            await self._let_others_run(len(rows))
        for device_plan in self._plan.devices(self._order.share, self._order.of):
            device = self._device(device_plan)
            self._devices.append(device)
            self._crowd.add(device)
            rows.append(_node_row("device", device_plan))
            await self._let_others_run(len(rows))
        if rows:
            self._recorder.nodes(rows)
        if self._clients and "mqtt" not in self._order.scripts:
            # A dialect puts messages on topics of its own; between protocols a broker may rename them.
            planned = self._plan.topics_over("mqtt")
            self._stopwatch.expect(ExpectedTopics(DeviceTopics(*device) for device in planned))
        self._turn()
        await self._connect(client for client in self._clients if client.join_ns < 0)
        await self._connect(self._devices)
        connected = sum(node.connected for node in (*self._clients, *self._devices))
        return Prepared(
            devices=sum(device.connected for device in self._devices),
            clients=sum(client.connected for client in self._clients),
            failed=self._failed_first,
            errors=[] if connected or not rows else [self._why_nobody_connected()],
        )

    @staticmethod
    async def _let_others_run(made: int) -> None:
        """Many nodes take a while to make: the sign of life must get out meanwhile."""
        if not made % _MADE_AT_ONCE:
            await asyncio.sleep(0)

    def _why_nobody_connected(self) -> str:
        told = Counter(node.refusal for node in (*self._clients, *self._devices) if node.refusal)
        [(why, _)] = told.most_common(1) or [("", 0)]
        return f"nobody could connect: {why}" if why else "nobody could connect"

    async def go(self, load_start_ns: int) -> Finished:
        """Publish from `load_start_ns` on by plan, then drain and finish."""
        phases = self._plan.phases
        # Long-lived objects are many and garbage is little: a collection in the middle of a load would be a stall.
        gc.collect()
        gc.freeze()
        gc.disable()
        sys.setswitchinterval(0.0005)
        for node in (*self._clients, *self._devices):
            node.start_absences(load_start_ns)
        for client in self._clients:
            if client.join_ns >= 0:
                delay_s = (load_start_ns + client.join_ns - self._stopwatch.now_ns()) / SECOND_NS
                asyncio.get_running_loop().call_later(max(0.0, delay_s), self._join, client)
        self._crowd.start(load_start_ns)
        load_end_ns = load_start_ns + phases.load_ns
        await self._until(load_end_ns)
        self._crowd.stop()
        self._silent_ns = self._stopwatch.now_ns() if self._all_said else 0
        gc.enable()
        await self._record_owed(min(load_end_ns, self._stopwatch.now_ns()))
        await self._drain(phases)
        return await self.finish()

    async def finish(self) -> Finished:
        """Disconnect everyone and complete the evidence."""
        drain_end_ns = self._stopwatch.now_ns()
        if self._turning is not None:
            self._turning.cancel()
        for task in self._background:
            task.cancel()
        await _in_crowds((node.stop() for node in (*self._devices, *self._clients)), _LEAVING_AT_ONCE)
        await asyncio.to_thread(self._recorder.finish, self._stopwatch.now_ns())
        self._send(self._progress())
        recorder = self._recorder
        return Finished(drain_end_ns, self._counters(), recorder.failure, self._silent_ns, recorder.write_error)

    def stop(self) -> None:
        """End the load now and drain only briefly."""
        self._stopped.set()

    def _device(self, plan: DevicePlan) -> Device:
        schedule = Schedule(plan.pace, plan.seed, plan.at_most, self._plan.phases.load_ns)
        source = PayloadSource(plan.payload, plan.seed)
        link = self._linking.link("device", plan)
        return Device(plan, link, self._stopwatch, schedule, source, self._crowd.rearm)

    async def _connect(self, nodes: Iterable[Node]) -> None:
        """Open loop: the n-th connect counts from its planned time, however long the earlier ones take."""
        rate_per_s = self._plan.phases.connect_per_s / self._order.of
        loop = asyncio.get_running_loop()
        began_ns = self._stopwatch.now_ns()
        planned_ns: int | None = None
        room = asyncio.Semaphore(_CONNECTING_AT_ONCE)
        tasks = []

        async def connect(node: Node, planned_ns: int | None) -> None:
            try:
                if not await node.connect_or_return(planned_ns):
                    self._failed_first += 1
            finally:
                room.release()

        for place, node in enumerate(nodes):
            if self._stopped.is_set():
                break
            if rate_per_s:
                planned_ns = began_ns + int(place / rate_per_s * SECOND_NS)
                await asyncio.sleep(max(0, planned_ns - self._stopwatch.now_ns()) / SECOND_NS)
                self._connects_held += room.locked()
            await room.acquire()
            tasks.append(loop.create_task(connect(node, planned_ns)))
        if tasks:
            await asyncio.wait(tasks)
        # A broker that does not answer is recorded and no exception; a dialect that makes no sense is one.
        for task in tasks:
            if (error := task.exception()) is not None:
                raise error

    def _join(self, client: Client) -> None:
        if not self._stopped.is_set():
            task = asyncio.get_running_loop().create_task(client.connect_or_return())
            self._background.add(task)
            task.add_done_callback(self._background.discard)

    async def _until(self, moment_ns: int) -> None:
        while not self._all_said and (remaining_ns := moment_ns - self._stopwatch.now_ns()) > 0:
            # Looked at now and then only when it matters: otherwise it is one sleep.
            longest_ns = int(_TURN_S * SECOND_NS) if self._plan.until_silent else remaining_ns
            try:
                await asyncio.wait_for(self._stopped.wait(), timeout=min(remaining_ns, longest_ns) / SECOND_NS)
            except TimeoutError:
                continue
            return

    @property
    def _all_said(self) -> bool:
        """Whether the load is over because nobody has anything left to say."""
        return self._plan.until_silent and all(device.next_due_ns() == NEVER for device in self._devices)

    async def _record_owed(self, load_end_ns: int) -> None:
        for device in self._devices:
            while device.owed(load_end_ns, _OWED_BATCH):
                await asyncio.sleep(0)
                # Not on the clock any more: let the writer keep up instead of overflowing.
                while self._recorder.crowded:
                    self._recorder.turn(self._stopwatch.now_ns())
                    await asyncio.sleep(0.01)

    async def _drain(self, phases: PhasesPlan) -> None:
        began_ns = self._stopwatch.now_ns()
        stop_ns: int | None = None
        while True:
            now_ns = self._stopwatch.now_ns()
            if self._stopped.is_set() and stop_ns is None:
                stop_ns = now_ns + min(phases.drain_ns, _STOPPED_DRAIN_NS)
            if stop_ns is not None and now_ns >= stop_ns:
                return
            if is_drained(
                phases,
                waited_ns=now_ns - began_ns,
                silent_ns=now_ns - self._stopwatch.last_arrival_ns,
                open_acks=any(device.link.unacknowledged for device in self._devices),
            ):
                return
            await asyncio.sleep(0.05)

    def _turn(self) -> None:
        self._recorder.turn(self._stopwatch.now_ns())
        self._turns += 1
        if self._recorder.write_error and not self._stopped.is_set():
            # What is sent from now on could not be judged: end the load, keep what is written.
            self.stop()
            self._send(self._progress())
        if not self._turns % _PROGRESS_TURNS:
            self._send(self._progress())
        self._turning = asyncio.get_running_loop().call_later(_TURN_S, self._turn)

    def _progress(self) -> Progress:
        watch = self._stopwatch
        median_ms, tail_ms = watch.take_live_ms()
        connected = sum(node.connected for node in self._clients) + sum(node.connected for node in self._devices)
        error = self._recorder.write_error
        return Progress(connected, watch.sent, watch.acked, watch.received, median_ms, tail_ms, error)

    def _counters(self) -> dict[str, int]:
        watch = self._stopwatch
        nodes = (*self._clients, *self._devices)
        return {
            "recorder_overflow": self._recorder.overflow,
            "malformed": watch.wrong_arrivals[Failure.MALFORMED],
            "unreadable": watch.wrong_arrivals[Failure.UNEXPECTED],
            "stray_acknowledgements": sum(node.link.stray_acknowledgements for node in nodes),
            "oversized": watch.wrong_arrivals[Failure.OVERSIZED],
            "arrivals_not_recorded": self._recorder.arrivals_beyond,
            "sent": watch.sent,
            "acked": watch.acked,
            "refused": watch.refused,
            "failed": watch.failed,
            "received": watch.received,
            "rings": self._crowd.rings,
            "tick_sleeps": self._crowd.sleeps,
            "first_connects_failed": self._failed_first,
            "connects_held": self._connects_held,
            "reconnects": sum(max(0, node.attempts - 1) for node in nodes),
        }


def _node_row(role: str, plan: DevicePlan | ClientPlan) -> tuple[str, int, str, str, str, str | None]:
    connection = plan.connection
    protocol = f"{connection.protocol} {connection.version} {connection.transport}"
    will_topic = connection.will.topic if connection.will is not None else None
    return role, plan.number, plan.name, plan.fleet, protocol.rstrip(), will_topic


async def _in_crowds(actions: Iterable[Coroutine[Any, Any, None]], at_once: int) -> None:
    """Await many small actions, a crowd at a time, whatever each comes to."""
    crowd: list[Coroutine[Any, Any, None]] = []
    for action in actions:
        crowd.append(action)
        if len(crowd) == at_once:
            await asyncio.gather(*crowd, return_exceptions=True)
            crowd = []
    await asyncio.gather(*crowd, return_exceptions=True)
