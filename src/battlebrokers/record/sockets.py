"""Sockets: which connections each service of a contender opened, looked up once a second while a run is captured.

On loopback all services share one address, so packets alone do not tell who called whom. Run by the orchestrator in a
thread of its own, which works a small part of the time however many sockets there are.
"""

from __future__ import annotations

import ipaddress
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from battlebrokers.record.segments import SegmentWriter
from battlebrokers.tables import SOCKETS

_EVERY_S = 1.0
_MOST_OF_THE_TIME = 0.05
"""Looking may take no larger part of the time than this: the measurement needs the cores."""
_FLUSH_LOOKS = 10
_MOST = 100_000
"""Sockets remembered of one run."""

Socket = tuple[str, str, int, str, int]
"""Service, its own address and port, those of whom it called."""


class SocketWatch:
    """Looks until stopped; what was seen is on disk soon after, and with its last time at the end."""

    def __init__(self, folder: Path, now_ns: Callable[[], int], pids: Callable[[], Mapping[str, list[int]]]) -> None:
        self._now_ns = now_ns
        self._pids = pids
        self._writer = SegmentWriter(folder, SOCKETS, "orchestrator")
        self._seen: dict[Socket, list[int]] = {}
        """When first, and when last."""
        self._unwritten: list[Socket] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_until_stopped, name="sockets", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Look a last time and write everything."""
        self._stop.set()
        self._thread.join()
        self._write(self._seen)

    def _look_until_stopped(self) -> None:
        looks, stopped = 0, False
        while True:
            began = time.monotonic()
            self._look()
            looks += 1
            if stopped:
                return
            if looks % _FLUSH_LOOKS == 1 and self._unwritten:
                self._write(self._unwritten)
            took_s = time.monotonic() - began
            stopped = self._stop.wait(max(_EVERY_S - took_s, took_s / _MOST_OF_THE_TIME))

    def _look(self) -> None:
        for service, pids in self._pids().items():
            now_ns = self._now_ns()
            for found in calls(service, pids):
                if (times := self._seen.get(found)) is not None:
                    times[1] = now_ns
                elif len(self._seen) < _MOST:
                    self._seen[found] = [now_ns, now_ns]
                    self._unwritten.append(found)

    def _write(self, found: Iterable[Socket]) -> None:
        rows: list[tuple[Any, ...]] = [(*socket, *self._seen[socket]) for socket in found]
        self._unwritten = []
        if not rows:
            return
        try:
            self._writer.write(dict(zip(SOCKETS.column_names, zip(*rows, strict=True), strict=True)))
        except OSError:
            return  # a full disk shows in the event recorder's counters; all of them are written again at the end


def calls(service: str, pids: Iterable[int]) -> Iterator[Socket]:
    """The TCP connections these processes opened themselves; those they accepted have a port they listen on."""
    listens_on: set[int] = set()
    found: set[tuple[str, int, str, int]] = set()
    for pid in pids:
        try:
            sockets = psutil.Process(pid).net_connections("tcp")
        except (psutil.Error, OSError):
            continue
        for socket in sockets:
            if socket.status == psutil.CONN_LISTEN:
                listens_on.add(socket.laddr.port)
            elif socket.raddr:
                found.add((_plain(socket.laddr.ip), socket.laddr.port, _plain(socket.raddr.ip), socket.raddr.port))
    return ((service, *one) for one in found if one[1] not in listens_on)


def _plain(address: str) -> str:
    """As packets carry it: IPv4 on a socket for both kinds is IPv4."""
    try:
        mapped = ipaddress.IPv6Address(address).ipv4_mapped
    except ValueError:
        return address
    return str(mapped) if mapped is not None else str(ipaddress.IPv6Address(address))
