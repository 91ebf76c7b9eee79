"""The orchestrator's hold on its contender: started, watched, its last words. Who gives up finds nothing left."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from battlebrokers.contenders.broker_url import parse_broker_url
from battlebrokers.contenders.handshake import accepts
from battlebrokers.contenders.lifecycle import Listener, RunningContender, start_contender
from battlebrokers.contenders.spec import Profile
from battlebrokers.errors import BattleError, Interrupted
from battlebrokers.record.capture_tool import Limits
from battlebrokers.record.resources import ResourceSampler, process_tree
from battlebrokers.record.sockets import SocketWatch

_REACH_S = 2.0


async def start_patiently(
    broker: str, profile: Profile, folder: Path, listener: Listener | None, given_up: Callable[[], bool]
) -> RunningContender:
    """The contender, ready; raises `Interrupted`, with the contender gone again, once the user has given up."""
    starting = asyncio.create_task(
        asyncio.to_thread(start_contender, broker, profile, folder, listener=listener, given_up=given_up)
    )
    try:
        contender = await asyncio.shield(starting)
    except asyncio.CancelledError:
        # The thread ends when it sees that nobody waits any longer; what it has started by then ends with it.
        with contextlib.suppress(BattleError):
            await asyncio.to_thread((await starting).stop)
        raise
    if given_up():
        await asyncio.to_thread(contender.stop)
        raise Interrupted("interrupted while the broker was starting; nothing was measured")
    return contender


@dataclass(frozen=True, slots=True)
class Sampling:
    """All that looks at the contender's processes from time to time."""

    resources: ResourceSampler
    sockets: SocketWatch | None

    def start(self) -> None:
        """Begin."""
        self.resources.start()
        if self.sockets is not None:
            self.sockets.start()

    def stop(self) -> None:
        """Look a last time and write."""
        if self.sockets is not None:
            self.sockets.stop()
        self.resources.stop()


def sampler_of(
    contender: RunningContender, worker_pid: int, place: Path, now_ns: Callable[[], int], capture: Limits | None = None
) -> Sampling:
    """Who samples the contender's services and our worker; while it is captured, also whom its services call."""
    sampler = ResourceSampler(place, now_ns)
    for name, _ in contender.services:
        sampler.watch(name, "contender", partial(_pids_of, contender, name), contender.group_of(name))
    sampler.watch("worker-0", "generator", lambda: process_tree(worker_pid))
    # One service alone calls nobody whose wire is watched.
    several = capture is not None and len(contender.services) > 1
    return Sampling(sampler, SocketWatch(place, now_ns, contender.service_pids) if several else None)


def death_notice(contender: RunningContender) -> str:
    """How the contender ended, and its last words."""
    status = contender.exit_status
    how = f"was killed by signal {-status}" if status is not None and status < 0 else f"ended with status {status}"
    last = contender.last_lines(1)
    # Some pad their lines to the width of a terminal.
    words = " ".join(last[0].split()).rstrip(".") if last else ""
    return f"{contender.name} {how} during the run" + (f"; its last words: {words}" if words else "")


def gone_elsewhere(contender: RunningContender, protocols: Collection[str]) -> str:
    """What to tell when a broker that somebody else runs is gone at the end; empty when it is there or none can ask.

    One whose process is ours is watched all the time. Of datagrams nobody can say whether anybody listens.
    """
    urls = [parse_broker_url(url, key=key) for key, url in contender.endpoints.items()]
    asked = [url for url in urls if url.protocol in protocols and url.connects]
    if contender.process is not None or not asked or any(accepts(url.host, url.port, _REACH_S) for url in asked):
        return ""
    return f"{contender.name} stopped answering during the run: nobody listens at {asked[0].shown} any more"


def _pids_of(contender: RunningContender, service: str) -> list[int]:
    return contender.service_pids().get(service, [])
