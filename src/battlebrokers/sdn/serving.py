"""Lab and controller in one process tree: a network with its broker, up until a signal. Run by `bb sdn serve`.

What earlier ones left behind, killed or not, is taken down first. Nothing is remembered: the network ends with it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from battlebrokers import leftovers, signals
from battlebrokers.errors import EnvironmentNotReady
from battlebrokers.sdn.controller import OPENFLOW_PORT, Controller
from battlebrokers.sdn.core.resources import Mode
from battlebrokers.sdn.core.rules import REACTIVE_PER_S
from battlebrokers.sdn.lab.commands import Names
from battlebrokers.sdn.lab.laboratory import Laboratory
from battlebrokers.sdn.lab.open_vswitch import what_is_missing
from battlebrokers.sdn.lab.sweeping import lock_of, locked, take_down_the_dead
from battlebrokers.sdn.lab.topology import Topology
from battlebrokers.sdn.rest.application import application
from battlebrokers.sdn.rest.lab import lab_routes
from battlebrokers.sdn.service import HTTP_PORT, Access, Served, admission_at, answer, open_door
from battlebrokers.sdn.store import Store

_KNOWN_WITHIN_S: Final = 60.0
_LOOK_S: Final = 0.02
_AGAIN_S: Final = 1.0
_SWEEPING_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Serving:
    """What is to be served; port 0 is any free one."""

    topology: Topology
    folder: Path
    names: Names = field(default_factory=Names)
    mode: Mode = Mode.TREE
    host: str = "127.0.0.1"
    openflow_port: int = OPENFLOW_PORT
    http_port: int = HTTP_PORT
    reactive_per_s: int = REACTIVE_PER_S
    access: Access = field(default_factory=Access)


async def serve_lab(order: Serving, on_ready: Callable[[Served], None]) -> None:
    """Serve until the first signal; `on_ready` gets where it listens once every host is known."""
    missing = what_is_missing()
    if missing is not None:
        raise missing
    with signals.stopping() as stopping:
        await asyncio.to_thread(take_down_the_dead)
        with _alone(order), open_door(order.host, order.http_port) as door:
            laboratory = Laboratory(order.folder / "lab", order.names)
            controller = Controller(Store(None), order.reactive_per_s)
            openflow_port = await controller.start(order.host, order.openflow_port)
            try:
                await _build(laboratory, controller, order.topology, f"tcp:{order.host}:{openflow_port}", stopping)
                admission = admission_at(door, order.host, order.access)
                app = application(controller, order.mode, admission)
                app.include_router(lab_routes(controller, order.topology, order.names))
                served = Served(openflow_port, door.getsockname()[1], admission.token)
                await answer(app, door, stopping, lambda: on_ready(served))
            finally:
                await controller.stop()
                await asyncio.to_thread(laboratory.down)


async def _build(
    laboratory: Laboratory, controller: Controller, topology: Topology, calls: str, stopping: asyncio.Event
) -> None:
    """The network, with every switch, link and host known to the controller; or as much as there is when stopped."""
    # A thread cannot be stopped: whoever stops us waits until the network is there, and takes it down then.
    await asyncio.to_thread(laboratory.up, topology, calls)
    loop = asyncio.get_running_loop()
    until, again = loop.time() + _KNOWN_WITHIN_S, 0.0
    while not stopping.is_set():
        network, now = controller.state.network, loop.time()
        links_known = set(network.ports) >= set(topology.switches.values()) and (
            len(network.links) == 2 * len(topology.wires)
        )
        if links_known and {host.mac for host in topology.hosts.values()} <= set(network.hosts):
            return
        if now >= until:
            raise EnvironmentNotReady(
                f"after {_KNOWN_WITHIN_S:g} s only {len(controller.channels)} of {len(topology.switches)} switches and "
                f"{len(network.hosts)} of {len(topology.hosts)} hosts are known",
                hint="its switches' log is ovs/ovs-vswitchd.log in the folder of the lab",
            )
        if links_known and now >= again:
            await asyncio.to_thread(laboratory.announce, topology)
            again = loop.time() + _AGAIN_S
        await asyncio.sleep(_LOOK_S)


@contextmanager
def _alone(order: Serving) -> Iterator[None]:
    """Nobody else serves under this prefix; a lock dies with its process, so a crash does not keep it."""
    order.folder.mkdir(parents=True, exist_ok=True)
    place = lock_of(order.names.prefix)
    until = time.monotonic() + _SWEEPING_S
    while (lock := locked(place)) is None:
        # Somebody who takes the dead down looks at every lock for a moment.
        if time.monotonic() > until:
            raise EnvironmentNotReady(
                f"another network is served under the prefix '{order.names.prefix}'",
                hint="end that one, or choose another --prefix",
            )
        time.sleep(_LOOK_S)
    try:
        os.truncate(lock, 0)
        os.write(lock, str(order.folder.resolve()).encode())
        forget = leftovers.register(leftovers.Order.FILES, lambda _within_s: place.unlink(missing_ok=True))
        yield
        place.unlink(missing_ok=True)
        forget()
    finally:
        os.close(lock)
