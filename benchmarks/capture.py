"""The group `capture`: from packets to exchanges, beside tshark and pyshark, on one and two cores, at three sizes."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psutil

from battlebrokers.errors import EnvironmentNotReady
from battlebrokers.pipeline.client import Analyst
from benchmarks.bench import Bench
from benchmarks.figure import AT_MOST, Figure, judged
from benchmarks.synthetic_capture import write_capture

_MIB = 1 << 20
_SMALL_MIB, _MIDDLE_MIB, _LARGE_MIB = 100, 300, 1229
_SLICE_MIB = 2
"""What pyshark gets: more would take it minutes."""
_FIELDS = ("frame.time_epoch", "ip.src", "tcp.srcport", "tcp.seq_raw", "tcp.len")
_LOOK_S = 0.1
_NOISE = 1.2


@dataclass(frozen=True, slots=True)
class Took:
    """One decoding of one capture."""

    seconds: float
    peak_bytes: int
    """Of the analyst, its JVM and its Python workers together."""


def figures(bench: Bench) -> Iterator[Figure]:
    """All figures of the group."""
    _require("tshark")
    shrink = 20 if bench.quick else 1
    small, middle, large = (_made_up(bench, mib // shrink) for mib in (_SMALL_MIB, _MIDDLE_MIB, _LARGE_MIB))
    two = _ours(bench, "local[2]", small, middle, large)
    (one,) = _ours(bench, "local[1]", middle)
    yield from _against_tshark(bench, middle, two[1], one)
    if find_spec("pyshark") is None:
        bench.say("pyshark is not installed, so nothing is compared with it: pip install pyshark")
    elif bench.wants("capture.vs_pyshark"):
        yield _against_pyshark(bench, middle, two[1])
    per_packet = [took.seconds / capture.packets for took, capture in zip(two, (small, middle, large), strict=True)]
    yield judged(
        "capture.flat_cost", 1e9 * per_packet[2], 1e9 * per_packet[0], target=_NOISE, unit="ns/packet", bound=AT_MOST,
        note=f"one packet of {large.mib:.0f} MiB ÷ one of {small.mib:.0f} MiB, both on local[2]",
    )  # fmt: skip
    yield judged(
        "capture.flat_memory", two[2].peak_bytes / _MIB, two[1].peak_bytes / _MIB, target=_NOISE, unit="MiB",
        bound=AT_MOST, note=f"peak memory of all our processes at {large.mib:.0f} MiB ÷ at {middle.mib:.0f} MiB",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Capture:
    """A made-up capture."""

    path: Path
    packets: int

    @property
    def mib(self) -> float:
        return self.path.stat().st_size / _MIB


def _made_up(bench: Bench, mib: int) -> Capture:
    path = bench.folder / f"{mib}.pcap"
    bench.say(f"making up a capture of {mib} MiB")
    return Capture(path, write_capture(path, mib * _MIB))


def _against_tshark(bench: Bench, capture: Capture, two: Took, one: Took) -> Iterator[Figure]:
    seconds = _tshark(capture)
    bench.say(f"tshark: {seconds:.1f} s")
    yield judged(
        "capture.vs_tshark", capture.mib / two.seconds, capture.mib / seconds, target=5.0, unit="MiB/s",
        note=f"{capture.mib:.0f} MiB to packets, streams, messages, exchanges and hops on local[2] (Spark running) ÷ "
        f"tshark printing {len(_FIELDS)} fields",
    )  # fmt: skip
    yield judged(
        "capture.two_cores", capture.packets / two.seconds, capture.packets / one.seconds, target=1.0, unit="packets/s",
        note="local[2] ÷ local[1]; the JVM's and the workers' threads share two cores in both",
    )  # fmt: skip


def _against_pyshark(bench: Bench, capture: Capture, ours: Took) -> Figure:
    part = bench.folder / "slice.pcap"
    write_capture(part, _SLICE_MIB * _MIB)
    script = (
        "import pyshark, sys\n"
        "capture = pyshark.FileCapture(sys.argv[1], keep_packets=False)\n"
        "print(sum(int(packet.tcp.len) >= 0 for packet in capture))"
    )
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", script, str(part)], check=True, stdout=subprocess.DEVNULL)
    seconds = time.monotonic() - began
    bench.say(f"pyshark: {seconds:.1f} s for {_SLICE_MIB} MiB")
    return judged(
        "capture.vs_pyshark", capture.mib / ours.seconds, part.stat().st_size / _MIB / seconds, target=100.0,
        unit="MiB/s", note=f"the same ÷ pyshark reading one field of {_SLICE_MIB} MiB of it",
    )  # fmt: skip


def _ours(bench: Bench, master: str, *captures: Capture) -> list[Took]:
    found = []
    warm = bench.folder / "warm.pcap"
    write_capture(warm, _MIB)
    with Analyst.start(master, idle=False) as analyst:
        analyst.decode([str(warm)], str(bench.folder / "warm"), {})
        for capture in captures:
            out = bench.folder / "out"
            with _Peak(analyst.pid) as peak:
                summary = analyst.decode([str(capture.path)], str(out), {})
            if summary["packets"] != capture.packets:
                raise RuntimeError(f"{summary['packets']} packets were found, {capture.packets} were written")
            shutil.rmtree(out)
            found.append(Took(summary["seconds"], peak.bytes))
            bench.say(f"{master}: {capture.mib:.0f} MiB in {summary['seconds']:.1f} s, {peak.bytes / _MIB:.0f} MiB")
    return found


class _Peak:
    """The most memory a process and all its children had at one moment."""

    def __init__(self, pid: int) -> None:
        self.bytes = 0
        self._process = psutil.Process(pid)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(_LOOK_S):
            family = [self._process, *self._process.children(recursive=True)]
            self.bytes = max(self.bytes, sum(_rss(process) for process in family))


def _rss(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _tshark(capture: Capture) -> float:
    fields = [word for field in _FIELDS for word in ("-e", field)]
    began = time.monotonic()
    subprocess.run(["tshark", "-r", str(capture.path), "-T", "fields", *fields], check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def _require(program: str) -> None:
    if shutil.which(program) is None:
        raise EnvironmentNotReady(f"{program} not found", hint=f"apt-get install {program}")
