"""Resources: what each service uses, sampled once a second from /proc through psutil, and from its control group.

Run by the orchestrator in its own thread during a run. A process that has gone is a zero sample, never an error.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from battlebrokers.record.group_meter import GroupMeter, GroupShare
from battlebrokers.record.segments import SegmentWriter
from battlebrokers.tables import RESOURCES

_FLUSH_SAMPLES = 10


class _ServiceMeter:
    """Remembers the last CPU readings of one service's threads to turn counters into percentages."""

    def __init__(self, name: str, role: str, pids: Callable[[], list[int]], group: str = "") -> None:
        self.name = name
        self.role = role
        self._pids = pids
        self._group = GroupMeter(group) if role == "contender" else None
        self._thread_seconds: dict[tuple[int, int], float] = {}
        self._process_seconds: dict[int, float] = {}
        self._read_at = time.monotonic()

    def sample(self, now_ns: int) -> tuple[Any, ...]:
        now = time.monotonic()
        elapsed = max(now - self._read_at, 1e-6)
        self._read_at = now
        seconds: dict[int, float] = {}
        thread_seconds: dict[tuple[int, int], float] = {}
        totals = dict.fromkeys(("rss", "read", "written", "received", "sent", "files", "threads"), 0)
        pids = self._pids()
        grouped = self._group.read(pids, elapsed) if self._group is not None else GroupShare()
        for pid in dict.fromkeys([*pids, *grouped.pids]):
            try:
                process = psutil.Process(pid)
                with process.oneshot():
                    times = process.cpu_times()
                    seconds[pid] = times.user + times.system
                    totals["rss"] += process.memory_info().rss
                    for thread in process.threads():
                        thread_seconds[pid, thread.id] = thread.user_time + thread.system_time
                        totals["threads"] += 1
                    counters = process.io_counters()
                    totals["read"] += counters.read_bytes
                    totals["written"] += counters.write_bytes
                    totals["received"] += counters.read_chars
                    totals["sent"] += counters.write_chars
                    totals["files"] += process.num_fds()
            except (psutil.Error, OSError):
                continue
        busy = sum(value - self._process_seconds.get(pid, value) for pid, value in seconds.items())
        busiest = max(
            (value - self._thread_seconds.get(key, value) for key, value in thread_seconds.items()), default=0.0
        )
        self._process_seconds = seconds
        self._thread_seconds = thread_seconds
        totals |= grouped.totals
        return (
            now_ns, self.name, self.role, _or(grouped.cpu_percent, 100 * busy / elapsed), 100 * busiest / elapsed,
            totals["rss"], totals["read"], totals["written"], totals["received"], totals["sent"], totals["files"],
            totals["threads"], len(seconds), None, None,
        )  # fmt: skip


class _HostMeter:
    """The whole machine: CPU, steal, load, network."""

    def __init__(self) -> None:
        self._times = psutil.cpu_times()
        self._per_cpu = psutil.cpu_times(percpu=True)

    def sample(self, now_ns: int) -> tuple[Any, ...]:
        times = psutil.cpu_times()
        per_cpu = psutil.cpu_times(percpu=True)
        cores = len(per_cpu)
        busy, steal = _busy_share(self._times, times)
        busiest = max((_busy_share(old, new)[0] for old, new in zip(self._per_cpu, per_cpu, strict=False)), default=0.0)
        self._times, self._per_cpu = times, per_cpu
        memory = psutil.virtual_memory()
        network = psutil.net_io_counters(nowrap=False)
        disk = psutil.disk_io_counters(nowrap=False)
        return (
            now_ns, "host", "host", 100 * busy * cores, 100 * busiest, memory.total - memory.available,
            disk.read_bytes if disk else 0, disk.write_bytes if disk else 0,
            network.bytes_recv if network else 0, network.bytes_sent if network else 0,
            0, 0, 1, 100 * steal, os.getloadavg()[0],
        )  # fmt: skip


def _busy_share(old: Any, new: Any) -> tuple[float, float]:
    total = sum(new[:8]) - sum(old[:8])
    if total <= 0:
        return 0.0, 0.0
    idle = (new.idle - old.idle) + (getattr(new, "iowait", 0.0) - getattr(old, "iowait", 0.0))
    return max(0.0, 1 - idle / total), max(0.0, (getattr(new, "steal", 0.0) - getattr(old, "steal", 0.0)) / total)


class ResourceSampler:
    """Samples until stopped; everything already sampled is on disk at most ten seconds later."""

    def __init__(self, folder: Path, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._writer = SegmentWriter(folder, RESOURCES, "orchestrator")
        self._meters: list[_ServiceMeter | _HostMeter] = [_HostMeter()]
        self._rows: list[tuple[Any, ...]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_stopped, name="resources", daemon=True)

    def watch(self, service: str, role: str, pids: Callable[[], list[int]], group: str = "") -> None:
        """Add a service; `pids` is asked at every sample, so children that come and go are seen.

        A contender's service is read from its control group, too: that of the name given, else its processes' own.
        """
        self._meters.append(_ServiceMeter(service, role, pids, group))

    def start(self) -> None:
        """Begin; the first sample only sets the counters."""
        for meter in self._meters:
            meter.sample(0)
        self._thread.start()

    def stop(self) -> None:
        """Take a last sample and write."""
        self._stop.set()
        self._thread.join()
        self._flush()

    def _sample_until_stopped(self) -> None:
        next_at = time.monotonic()
        while True:
            next_at += 1.0
            stopped = self._stop.wait(max(0.0, next_at - time.monotonic()))
            now_ns = self._now_ns()
            self._rows.extend(meter.sample(now_ns) for meter in self._meters)
            if stopped:
                return
            if len(self._rows) >= _FLUSH_SAMPLES * len(self._meters):
                self._flush()

    def _flush(self) -> None:
        rows, self._rows = self._rows, []
        if not rows:
            return
        try:
            self._writer.write(dict(zip(RESOURCES.column_names, zip(*rows, strict=True), strict=True)))
        except OSError:
            # A full disk shows in the event recorder's counters; samples are kept for the next try.
            self._rows = rows


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def process_tree(root: int) -> list[int]:
    """A process and all its descendants, as far as they still live."""
    try:
        process = psutil.Process(root)
        return [root, *(child.pid for child in process.children(recursive=True))]
    except psutil.Error:
        return []
