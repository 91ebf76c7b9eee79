"""The peer in C: `mosquitto_pub -l` and `mosquitto_sub`, two processes, one message a line.

Its deliveries are counted from outside, by the bytes the subscriber has read from its socket, so that its output may
go to /dev/null and counting costs it nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

from battlebrokers.errors import EnvironmentNotReady
from benchmarks.rates import Sample, steady_rate

TOPIC = "bench/0"
_LOOK_S = 0.02
_SILENT_S = 1.0


def require_c_pair() -> None:
    """Raise a clear error unless both programs are here."""
    missing = [name for name in ("mosquitto_pub", "mosquitto_sub") if shutil.which(name) is None]
    if missing:
        raise EnvironmentNotReady(f"{' and '.join(missing)} not found", hint="apt-get install mosquitto-clients")


def run_c_pair(host: str, port: int, payload_bytes: int, messages: int, folder: Path) -> tuple[float, float]:
    """Publish so many lines as fast as it goes, QoS 0; returns deliveries per second and CPU µs per message of both.

    The rate is that of the middle of the run.
    """
    lines = folder / "lines"
    lines.write_bytes((b"x" * payload_bytes + b"\n") * messages)
    frame_bytes = 2 + 2 + len(TOPIC) + payload_bytes
    where = ["-h", host, "-p", str(port), "-t", TOPIC]
    with subprocess.Popen(["mosquitto_sub", *where, "-C", str(messages)], stdout=subprocess.DEVNULL) as subscriber:
        time.sleep(0.3)
        before = _read_bytes(subscriber.pid)
        with lines.open("rb") as feed, subprocess.Popen(["mosquitto_pub", *where, "-l"], stdin=feed) as publisher:
            samples = _watch(subscriber, before, frame_bytes, messages)
            publisher_s = _end(publisher)
        subscriber_s = _end(subscriber)
    lines.unlink()
    delivered = max(1.0, samples[-1][1])
    return steady_rate(samples), 1e6 * (publisher_s / messages + subscriber_s / delivered)


def _watch(subscriber: subprocess.Popen[bytes], before: int, frame_bytes: int, messages: int) -> list[Sample]:
    """Deliveries over time, until all have come or none comes any more."""
    samples: list[Sample] = [(time.monotonic(), 0.0)]
    grown_at = time.monotonic()
    while samples[-1][1] < messages:
        time.sleep(_LOOK_S)
        now = time.monotonic()
        try:
            count = (_read_bytes(subscriber.pid) - before) / frame_bytes
        except OSError:
            # It leaves by itself after the last message.
            count = float(messages)
        if count > samples[-1][1]:
            grown_at = now
        elif now - grown_at > _SILENT_S:
            break
        samples.append((now, min(count, float(messages))))
    return samples


def _read_bytes(pid: int) -> int:
    text = Path(f"/proc/{pid}/io").read_text()
    return int(text.partition("rchar:")[2].split(maxsplit=1)[0])


def _end(process: subprocess.Popen[bytes]) -> float:
    """Stop it if it still runs; returns the CPU seconds it took."""
    status = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if status is None:
        process.terminate()
    _, code, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(code)
    return usage.ru_utime + usage.ru_stime
