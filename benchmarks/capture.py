"""The group `capture`: from packets to exchanges, beside tshark and pyshark, on one and two cores, at three sizes."""

from __future__ import annotations

import multiprocessing
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path

import psutil

from battlebrokers.cli.pcap import start_analyst, write_report
from battlebrokers.errors import EnvironmentNotReady
from battlebrokers.tables.run_folder import RunFolder
from benchmarks.bench import Bench
from benchmarks.figure import AT_MOST, Figure, compared, judged
from benchmarks.synthetic_capture import write_capture

_MIB = 1 << 20
_SMALL_MIB, _MIDDLE_MIB, _LARGE_MIB = 100, 300, 1229
_SLICE_MIB = 2
"""What pyshark gets: more would take it minutes."""
_FIELDS = ("frame.time_epoch", "ip.src", "tcp.srcport", "tcp.seq_raw", "tcp.len")
_LOOK_S = 0.1
_NOISE = 1.2
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Took:
    """One capture, from its packets to the report."""

    seconds: float
    peak_bytes: int
    """Of all processes together: the command's, the analyst's, its JVM's, its Python workers'; report included."""


def figures(bench: Bench) -> Iterator[Figure]:
    """All figures of the group."""
    _require("tshark")
    shrink = 20 if bench.quick else 1
    small, middle, large = (_made_up(bench, mib // shrink) for mib in (_SMALL_MIB, _MIDDLE_MIB, _LARGE_MIB))
    rounds = 1 if bench.quick else _ROUNDS
    ours: list[Took] = []
    tshark: list[float] = []
    for _ in range(rounds):
        ours.append(_ours(bench, "local[2]", middle))
        tshark.append(_tshark(bench, middle))
    two = sorted(ours, key=lambda took: took.seconds)[rounds // 2]
    yield compared(
        "capture.vs_tshark", [middle.mib / took.seconds for took in ours], [middle.mib / took for took in tshark],
        target=5.0, unit="MiB/s",
        note=f"{middle.mib:.0f} MiB ({middle.packets:,} packets) to all tables and the report on local[2], Spark just "
        f"started ÷ tshark printing {len(_FIELDS)} fields",
    )  # fmt: skip
    if bench.wants("capture.two_cores"):
        one = _ours(bench, "local[1]", middle)
        yield judged(
            "capture.two_cores", middle.packets / two.seconds, middle.packets / one.seconds, target=1.2,
            unit="packets/s", note=f"local[2] ÷ local[1]; {middle.mib / one.seconds:.1f} MiB/s on one",
        )  # fmt: skip
    if bench.wants("capture.vs_pyshark"):
        yield _against_pyshark(bench, middle, two)
    if bench.wants("capture.flat_cost", "capture.flat_memory"):
        yield from _flat(bench, small, two, large)


def _flat(bench: Bench, small: Capture, middle: Took, large: Capture) -> Iterator[Figure]:
    first, last = _ours(bench, "local[2]", small), _ours(bench, "local[2]", large)
    yield judged(
        "capture.flat_cost", 1e9 * last.seconds / large.packets, 1e9 * first.seconds / small.packets, target=_NOISE,
        unit="ns/packet", bound=AT_MOST,
        note=f"one packet of {large.mib:.0f} MiB ÷ one of {small.mib:.0f} MiB, both on local[2]",
    )  # fmt: skip
    yield judged(
        "capture.flat_memory", last.peak_bytes / _MIB, middle.peak_bytes / _MIB, target=_NOISE, unit="MiB",
        bound=AT_MOST,
        note=f"peak memory of our processes, without mapped files, at {large.mib:.0f} MiB ÷ at {_MIDDLE_MIB} MiB",
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


def _against_pyshark(bench: Bench, capture: Capture, ours: Took) -> Figure:
    if find_spec("pyshark") is None:
        raise EnvironmentNotReady("pyshark is not installed", hint="make setup installs what benchmarks need")
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


def _ours(bench: Bench, master: str, capture: Capture) -> Took:
    """What `bb pcap` does after Spark's start, in a process of its own, watched until the report is written."""
    out = bench.folder / "out"
    spawn = multiprocessing.get_context("spawn")
    answer, teller = spawn.Pipe(duplex=False)
    child = spawn.Process(target=_decode, args=(master, str(capture.path), str(out), teller))
    child.start()
    teller.close()
    assert child.pid is not None
    try:
        with _Peak(child.pid) as peak:
            packets, stages = answer.recv()
    finally:
        child.join()
    seconds = sum(stages.values())
    if packets != capture.packets:
        raise RuntimeError(f"{packets} packets were found, {capture.packets} were written")
    shutil.rmtree(out)
    told = ", ".join(f"{name} {took:.1f} s" for name, took in stages.items())
    bench.say(f"{master}: {capture.mib:.0f} MiB in {seconds:.1f} s ({told}), {peak.bytes / _MIB:.0f} MiB of memory")
    return Took(seconds, peak.bytes)


def _decode(master: str, capture: str, out: str, teller: Connection) -> None:
    """Decode and report as the command does; tells the packets found and the seconds of each stage."""
    began: dict[str, float] = {}

    def note(stage: str, *_: int) -> None:
        began.setdefault(stage, time.monotonic())

    with start_analyst(master) as analyst:
        summary = analyst.decode([capture], out, {}, note)
        done = time.monotonic()
    stages = {"decoding": summary["seconds"]}
    if "following" in began:
        stages["following"] = done - began["following"]
        stages["decoding"] -= stages["following"]
    done = time.monotonic()
    write_report(RunFolder(Path(out)), summary)
    stages["report"] = time.monotonic() - done
    teller.send((summary["packets"], stages))


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
            try:
                family = [self._process, *self._process.children(recursive=True)]
            except psutil.Error:
                return  # it has ended
            self.bytes = max(self.bytes, sum(_own_bytes(process) for process in family))


def _own_bytes(process: psutil.Process) -> int:
    """Without pages of files, such as the capture's, which the system may take back at any time."""
    try:
        memory = process.memory_info()
        return int(memory.rss - memory.shared)
    except psutil.Error:
        return 0


def _tshark(bench: Bench, capture: Capture) -> float:
    fields = [word for field in _FIELDS for word in ("-e", field)]
    began = time.monotonic()
    subprocess.run(["tshark", "-r", str(capture.path), "-T", "fields", *fields], check=True, stdout=subprocess.DEVNULL)
    seconds = time.monotonic() - began
    bench.say(f"tshark: {seconds:.1f} s")
    return seconds


def _require(program: str) -> None:
    if shutil.which(program) is None:
        raise EnvironmentNotReady(f"{program} not found", hint=f"apt-get install {program}")
