"""Resources from sysstat's files: what `sar` wrote down on some machine, read through `sadf -j`.

Called by the orchestrator after a run. Rates become counters again, because that is what `resources` keeps.
"""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from battlebrokers.clock import SECOND_NS
from battlebrokers.errors import EnvironmentNotReady
from battlebrokers.record.prometheus import OBSERVED, Row

_TIMEOUT_S = 60.0
_WANTED = ["-u", "ALL", "-P", "ALL", "-r", "-b", "-q", "-n", "DEV"]
_SECTOR_BYTES = 512
_KIBIBYTE = 1024


def read_sar(file: Path, start_ns: int, end_ns: int) -> list[Row]:
    """Rows of `resources` for every sample of the file between these moments."""
    try:
        told = subprocess.run(
            ["sadf", "-j", str(file), "--", *_WANTED], capture_output=True, timeout=_TIMEOUT_S, check=False
        )
    except FileNotFoundError:
        raise EnvironmentNotReady(
            f"{file} cannot be read: sadf is not installed",
            hint="as root: apt-get install -y --no-install-recommends sysstat",
        ) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentNotReady(f"{file} cannot be read: {error}") from error
    if told.returncode:
        words = told.stderr.decode(errors="replace").strip().splitlines()
        raise EnvironmentNotReady(f"{file} cannot be read: {words[0] if words else 'sadf gives no reason'}")
    return [row for row in rows_of(told.stdout, file.name) if start_ns <= row[0] <= end_ns]


def rows_of(told: bytes, name: str) -> list[Row]:
    """Every sample in what `sadf -j` printed; damaged ones are left out."""
    try:
        hosts = json.loads(told)["sysstat"]["hosts"]
    except (ValueError, LookupError, TypeError) as error:
        raise EnvironmentNotReady(f"sadf said something unexpected of {name}: {error!r}") from error
    rows: list[Row] = []
    for host in hosts if isinstance(hosts, list) else []:
        service = f"{host.get('nodename', 'host')}@sar"
        counters = dict.fromkeys(("read", "written", "received", "sent"), 0.0)
        for sample in host.get("statistics", []):
            row = _row(sample, service, counters)
            if row is not None:
                rows.append(row)
    return rows


def _row(sample: Any, service: str, counters: dict[str, float]) -> Row | None:
    try:
        stamp = sample["timestamp"]
        at = datetime.strptime(f"{stamp['date']} {stamp['time']}", "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
        interval_s = float(stamp["interval"])
        cpus = sample["cpu-load"]
        busy = {str(cpu["cpu"]): 100.0 - float(cpu["idle"]) - float(cpu.get("iowait", 0.0)) for cpu in cpus}
        steal = next((float(cpu["steal"]) for cpu in cpus if cpu["cpu"] == "all"), None)
        cores = {name: value for name, value in busy.items() if name != "all"}
        io, memory, devices = sample.get("io"), sample.get("memory"), sample.get("network", {}).get("net-dev")
        if io is not None:
            counters["read"] += interval_s * float(io["io-reads"]["bread"]) * _SECTOR_BYTES
            counters["written"] += interval_s * float(io["io-writes"]["bwrtn"]) * _SECTOR_BYTES
        for device in devices or []:
            if device.get("iface") != "lo":
                counters["received"] += interval_s * float(device["rxkB"]) * _KIBIBYTE
                counters["sent"] += interval_s * float(device["txkB"]) * _KIBIBYTE
        return (
            int(at.timestamp()) * SECOND_NS, service, OBSERVED,
            sum(cores.values()) if cores else busy.get("all"), max(cores.values(), default=None),
            None if memory is None else int(memory["memused"]) * _KIBIBYTE,
            None if io is None else round(counters["read"]), None if io is None else round(counters["written"]),
            None if devices is None else round(counters["received"]),
            None if devices is None else round(counters["sent"]),
            None, None, None, steal, sample.get("queue", {}).get("ldavg-1"),
        )  # fmt: skip
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
