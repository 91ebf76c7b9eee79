"""Load for the group `sdn`: runs `sdn_load.c` with sockets made in the hosts' namespaces, and reads what it says.

The program is compiled when it is needed: neither sending nor receiving in Python would be fast enough for a switch.
"""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from battlebrokers.errors import EnvironmentNotReady

_SOURCE = Path(__file__).with_name("sdn_load.c")
PAYLOAD_BYTES = 64
_QUIET_MS = 300
"""Nothing came for so long: what is missing is lost."""
LATEST_NS = 100_000_000
"""A copy that comes later than this after the last message was sent stood in a queue that was growing."""
_BEHIND = 1.05
"""A load that took this much longer than planned was not the load that was asked for."""


class Outcome(msgspec.Struct, frozen=True):
    """What came of one load."""

    sent: int
    publishers: int
    took_ns: int
    expected: int
    received: int
    fewest: int
    """Of any receiver."""
    twice: int
    out_of_order: int
    stray: int
    send_errors: int
    p50_ns: int
    p90_ns: int
    p99_ns: int
    max_ns: int
    last_after_ns: int
    """The last copy came so long after the last message was sent."""

    @property
    def lost(self) -> int:
        """Copies that never came."""
        return self.expected - self.received

    def was_carried(self, seconds: float) -> bool:
        """Everything came, once and in time, at the rate that was asked for."""
        clean = not (self.lost or self.twice or self.send_errors)
        return clean and self.last_after_ns <= LATEST_NS and self.took_ns <= seconds * _BEHIND * 1e9


@dataclass(frozen=True)
class Target:
    """Where each message goes: out of a socket, to an address (a stream has none)."""

    door: socket.socket
    ipv4: str = "0.0.0.0"
    port: int = 0
    publisher: int = 0


@dataclass(frozen=True)
class Traffic:
    """Who sends to whom; `prefix` makes it streams of frames that begin with it."""

    targets: Sequence[Target]
    receivers: Sequence[socket.socket]
    prefix: bytes = b""


@dataclass(frozen=True)
class Log:
    """Every message of the first publisher: when it was sent, and when it came to whom."""

    sent_ns: tuple[int, ...]
    received_ns: list[dict[int, int]] = field(default_factory=list)
    """For each receiver: message → when."""


class Loader:
    """The compiled program."""

    def __init__(self, folder: Path) -> None:
        self._program = folder / "sdn_load"
        if shutil.which("gcc") is None:
            raise EnvironmentNotReady(
                "gcc is not installed: the load is made by a C program", hint="apt-get install gcc libc6-dev"
            )
        words = ["gcc", "-O2", "-pthread", "-o", str(self._program), str(_SOURCE)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise EnvironmentNotReady(f"gcc failed: {done.stderr.strip()[:300]}", hint="apt-get install gcc libc6-dev")

    def run(self, traffic: Traffic, rate: float, seconds: float, *, nap_us: int = 1000) -> Outcome:
        """One load from beginning to end. With naps receiving costs less, and the latencies say nothing."""
        return _ended(self.start(traffic, rate, seconds, nap_us=nap_us), seconds + 30)

    def start(
        self, traffic: Traffic, rate: float, seconds: float, *, nap_us: int = 1000, log: Path | None = None
    ) -> subprocess.Popen[bytes]:
        """A load in the background."""
        doors = {target.door.fileno() for target in traffic.targets} | {one.fileno() for one in traffic.receivers}
        targets = ",".join(f"{one.door.fileno()}:{one.ipv4}:{one.port}:{one.publisher}" for one in traffic.targets)
        receivers = ",".join(str(one.fileno()) for one in traffic.receivers)
        words = [f"{rate}", f"{seconds}", str(PAYLOAD_BYTES), str(nap_us), str(_QUIET_MS), traffic.prefix.hex() or "-"]
        words += [str(log) if log else "-", targets, receivers]
        return subprocess.Popen([self._program, *words], pass_fds=sorted(doors), stdout=subprocess.PIPE)


class LoggedLoad:
    """A load under which something else happens; it lasts until `end`."""

    def __init__(self, loader: Loader, traffic: Traffic, rate: float, at_most_s: float, log: Path) -> None:
        self._log, self._receivers = log, len(traffic.receivers)
        self._process = loader.start(traffic, rate, at_most_s, nap_us=0, log=log)

    def end(self) -> tuple[Outcome, Log]:
        """No more messages; what came of it."""
        self._process.terminate()
        outcome = _ended(self._process, 60)
        return outcome, read_log(self._log.read_bytes(), self._receivers)

    def kill(self) -> None:
        """Whatever happened: it does not stay."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def read_log(raw: bytes, receivers: int) -> Log:
    """What the program wrote."""
    (count,) = struct.unpack_from("=Q", raw)
    sent = struct.unpack_from(f"={count}Q", raw, 8)
    log = Log(sent, [{} for _ in range(receivers)])
    for receiver, number, received_ns in struct.iter_unpack("=IIQ", raw[8 + 8 * count :]):
        log.received_ns[receiver][number] = received_ns
    return log


def _ended(process: subprocess.Popen[bytes], patience_s: float) -> Outcome:
    try:
        told, _ = process.communicate(timeout=patience_s)
    except BaseException:
        process.kill()
        process.wait()
        raise
    if process.returncode:
        raise EnvironmentNotReady(f"the load program ended with status {process.returncode}")
    return msgspec.json.decode(told, type=Outcome)
