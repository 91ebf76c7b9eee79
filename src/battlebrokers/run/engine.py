"""An engine: one process's share of the plan, from connecting to the last drained message.

Run by a worker, told what to do by control messages. It opens links, drives the crowd, records, and reports.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from battlebrokers.clock import SECOND_NS, Anchor
from battlebrokers.contenders.broker_url import parse_broker_url
from battlebrokers.devices.client import Client
from battlebrokers.devices.crowd import Crowd
from battlebrokers.devices.device import Device
from battlebrokers.devices.node import Node
from battlebrokers.devices.stopwatch import Stopwatch
from battlebrokers.pacing.schedule import Schedule
from battlebrokers.protocols.base import Endpoint, Link, LinkOptions, TlsFiles, Will
from battlebrokers.protocols.registry import make_link
from battlebrokers.record.recorder import Recorder
from battlebrokers.run.messages import Control, Finished, Prepare, Prepared, Progress
from battlebrokers.scenario.payloads import PayloadSource
from battlebrokers.scenario.plan import ClientPlan, ConnectionPlan, DevicePlan, Plan

_TURN_S = 0.25
_PROGRESS_TURNS = 2
_CONNECTING_AT_ONCE = 500
_CONNECTIONS_PER_ADDRESS = 20_000
_OWED_BATCH = 16_384
_STOPPED_DRAIN_NS = SECOND_NS


class Engine:
    """Lives through: `prepare` → `go` → (load, drain) → `finish`; `stop` cuts the load short."""

    def __init__(self, order: Prepare, anchor: Anchor, send: Callable[[Control], None]) -> None:
        self._order = order
        self._send = send
        self._plan = Plan.from_message(order.plan)
        self._anchor = anchor
        self._recorder = Recorder(Path(order.evidence), order.worker, keep=order.keep_events)
        self._stopwatch = Stopwatch(anchor, self._recorder)
        self._crowd = Crowd(self._stopwatch, anchor.shift_ns, order.tick_ns)
        self._clients: list[Client] = []
        self._devices: list[Device] = []
        self._stopped = asyncio.Event()
        self._turns = 0
        self._turning: asyncio.TimerHandle | None = None
        self._background: set[asyncio.Task[Any]] = set()
        self._failed_first = 0
        self._nodes = self._plan.device_count + self._plan.client_count

    async def prepare(self) -> Prepared:
        """Make everyone, connect clients first, then devices, at the planned rate."""
        rows = []
        for client_plan in self._plan.clients(self._order.share, self._order.of):
            link = self._link(client_plan.connection, self._plan.device_count + client_plan.number)
            client = Client(client_plan, link, self._stopwatch)
            self._clients.append(client)
            rows.append(_node_row("client", client_plan))
        for device_plan in self._plan.devices(self._order.share, self._order.of):
            device = self._device(device_plan)
            self._devices.append(device)
            self._crowd.add(device)
            rows.append(_node_row("device", device_plan))
        if rows:
            self._recorder.nodes(rows)
        self._turn()
        await self._connect(client for client in self._clients if client.join_ns < 0)
        await self._connect(self._devices)
        connected = sum(node.connected for node in (*self._clients, *self._devices))
        return Prepared(
            devices=sum(device.connected for device in self._devices),
            clients=sum(client.connected for client in self._clients),
            failed=self._failed_first,
            errors=[] if connected or not rows else ["nobody could connect"],
        )

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
        gc.enable()
        await self._record_owed(min(load_end_ns, self._stopwatch.now_ns()))
        await self._drain(phases.drain_ns, phases.quiet_ns)
        return await self.finish()

    async def finish(self) -> Finished:
        """Disconnect everyone and complete the evidence."""
        drain_end_ns = self._stopwatch.now_ns()
        if self._turning is not None:
            self._turning.cancel()
        for task in self._background:
            task.cancel()
        await _in_crowds((node.stop() for node in (*self._devices, *self._clients)), _CONNECTING_AT_ONCE)
        await asyncio.to_thread(self._recorder.finish, self._stopwatch.now_ns())
        self._send(self._progress())
        return Finished(drain_end_ns=drain_end_ns, counters=self._counters(), failure=self._recorder.failure)

    def stop(self) -> None:
        """End the load now and drain only briefly."""
        self._stopped.set()

    def _device(self, plan: DevicePlan) -> Device:
        schedule = Schedule(plan.pace, plan.seed, plan.at_most, self._plan.phases.load_ns)
        source = PayloadSource(plan.payload, plan.seed)
        link = self._link(plan.connection, plan.number)
        return Device(plan, link, self._stopwatch, schedule, source, self._crowd.rearm)

    def _link(self, plan: ConnectionPlan, place: int) -> Link:
        endpoints = self._order.endpoints
        # A broker given by URL has one endpoint, and that decides the transport.
        url = endpoints[plan.transport] if plan.transport in endpoints else next(iter(endpoints.values()))
        options = _link_options(plan)
        if plan.username is None and self._order.username is not None:
            options = replace(options, username=self._order.username, password=self._order.password)
        where = parse_broker_url(url)
        endpoint = Endpoint(where.transport, where.host, where.port, where.path)
        if options.source_address is None:
            options = replace(options, source_address=source_address(where.host, place, self._nodes))
        return make_link(plan.protocol, endpoint, options, self._stopwatch)

    async def _connect(self, nodes: Iterable[Node]) -> None:
        """Open loop: the n-th connect starts at its planned time, however long the earlier ones take."""
        rate_per_s = self._plan.phases.connect_per_s / self._order.of
        loop = asyncio.get_running_loop()
        started = loop.time()
        room = asyncio.Semaphore(_CONNECTING_AT_ONCE)
        tasks = []

        async def connect(node: Node) -> None:
            try:
                if not await node.connect_or_return():
                    self._failed_first += 1
            finally:
                room.release()

        for place, node in enumerate(nodes):
            if self._stopped.is_set():
                break
            if rate_per_s:
                await asyncio.sleep(max(0.0, started + place / rate_per_s - loop.time()))
            await room.acquire()
            tasks.append(loop.create_task(connect(node)))
        if tasks:
            await asyncio.wait(tasks)

    def _join(self, client: Client) -> None:
        if not self._stopped.is_set():
            task = asyncio.get_running_loop().create_task(client.connect_or_return())
            self._background.add(task)
            task.add_done_callback(self._background.discard)

    async def _until(self, moment_ns: int) -> None:
        remaining_s = (moment_ns - self._stopwatch.now_ns()) / SECOND_NS
        try:
            await asyncio.wait_for(self._stopped.wait(), timeout=max(0.0, remaining_s))
        except TimeoutError:
            return

    async def _record_owed(self, load_end_ns: int) -> None:
        for device in self._devices:
            while device.owed(load_end_ns, _OWED_BATCH):
                await asyncio.sleep(0)
                # Not on the clock any more: let the writer keep up instead of overflowing.
                while self._recorder.crowded:
                    self._recorder.turn(self._stopwatch.now_ns())
                    await asyncio.sleep(0.01)

    async def _drain(self, drain_ns: int, quiet_ns: int) -> None:
        began_ns = self._stopwatch.now_ns()
        limit_ns = began_ns + (min(drain_ns, _STOPPED_DRAIN_NS) if self._stopped.is_set() else drain_ns)
        while self._stopwatch.now_ns() < limit_ns:
            silent_ns = self._stopwatch.now_ns() - max(self._stopwatch.last_arrival_ns, began_ns)
            open_acks = any(device.link.unacknowledged for device in self._devices)
            if silent_ns >= quiet_ns and not open_acks:
                return
            await asyncio.sleep(0.05)
            if self._stopped.is_set():
                limit_ns = min(limit_ns, self._stopwatch.now_ns() + _STOPPED_DRAIN_NS)

    def _turn(self) -> None:
        self._recorder.turn(self._stopwatch.now_ns())
        self._turns += 1
        if not self._turns % _PROGRESS_TURNS:
            self._send(self._progress())
        self._turning = asyncio.get_running_loop().call_later(_TURN_S, self._turn)

    def _progress(self) -> Progress:
        watch = self._stopwatch
        median_ms, tail_ms = watch.take_live_ms()
        connected = sum(node.connected for node in self._clients) + sum(node.connected for node in self._devices)
        return Progress(connected, watch.sent, watch.acked, watch.received, median_ms, tail_ms)

    def _counters(self) -> dict[str, int]:
        watch = self._stopwatch
        nodes = (*self._clients, *self._devices)
        return {
            "recorder_overflow": self._recorder.overflow,
            "malformed": watch.malformed_packets,
            "sent": watch.sent,
            "acked": watch.acked,
            "refused": watch.refused,
            "received": watch.received,
            "rings": self._crowd.rings,
            "tick_sleeps": self._crowd.sleeps,
            "first_connects_failed": self._failed_first,
            "reconnects": sum(max(0, node.attempts - 1) for node in nodes),
        }


def source_address(broker_host: str, place: int, nodes: int) -> str | None:
    """The loopback address a node connects from: one address has only some 28 000 ports towards one broker."""
    if nodes <= _CONNECTIONS_PER_ADDRESS or not broker_host.startswith("127."):
        return None
    third, fourth = divmod(place // _CONNECTIONS_PER_ADDRESS, 250)
    return f"127.0.{third}.{fourth + 2}"


def _node_row(role: str, plan: DevicePlan | ClientPlan) -> tuple[str, int, str, str, str]:
    connection = plan.connection
    protocol = f"{connection.protocol} {connection.version} {connection.transport}"
    return role, plan.number, plan.name, plan.fleet, protocol


def _link_options(plan: ConnectionPlan) -> LinkOptions:
    will = plan.will
    tls = plan.tls
    return LinkOptions(
        client_id=plan.client_id,
        version=plan.version,
        username=plan.username,
        password=plan.password,
        clean=plan.clean,
        session_expiry_s=plan.session_expiry_s,
        keep_alive_s=plan.keep_alive_s,
        inflight=plan.inflight,
        receive_maximum=plan.receive_maximum,
        topic_alias=plan.topic_alias,
        will=Will(will.topic, will.payload.encode(), will.qos, will.retain, will.delay_s) if will else None,
        tls=TlsFiles(
            Path(tls.ca) if tls.ca else None,
            Path(tls.certificate) if tls.certificate else None,
            Path(tls.key) if tls.key else None,
            tls.check_hostname,
        )
        if tls
        else None,
        source_address=plan.source_address,
    )


async def _in_crowds(actions: Iterable[Coroutine[Any, Any, None]], at_once: int) -> None:
    """Await many small actions, a crowd at a time, whatever each comes to."""
    crowd: list[Coroutine[Any, Any, None]] = []
    for action in actions:
        crowd.append(action)
        if len(crowd) == at_once:
            await asyncio.gather(*crowd, return_exceptions=True)
            crowd = []
    await asyncio.gather(*crowd, return_exceptions=True)
