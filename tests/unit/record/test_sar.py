from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from battlebrokers.clock import SECOND_NS
from battlebrokers.errors import EnvironmentNotReady
from battlebrokers.record.sar import read_sar, rows_of
from battlebrokers.tables import RESOURCES


def sample(second: int, **more: Any) -> dict[str, Any]:
    """One sample in the form of sysstat 12 (`sadf -j`)."""
    return {
        "timestamp": {"date": "2026-01-02", "time": f"03:04:{second:02}", "utc": 1, "interval": 2},
        "cpu-load": [
            {"cpu": "all", "usr": 30.0, "sys": 10.0, "iowait": 5.0, "steal": 2.0, "idle": 55.0},
            {"cpu": "0", "usr": 50.0, "sys": 15.0, "iowait": 5.0, "steal": 3.0, "idle": 30.0},
            {"cpu": "1", "usr": 10.0, "sys": 5.0, "iowait": 5.0, "steal": 1.0, "idle": 80.0},
        ],
        "io": {"tps": 1.0, "io-reads": {"rtps": 1.0, "bread": 4.0}, "io-writes": {"wtps": 1.0, "bwrtn": 8.0}},
        "memory": {"memfree": 1, "memused": 2048},
        "queue": {"ldavg-1": 1.5},
        "network": {
            "net-dev": [{"iface": "lo", "rxkB": 9.0, "txkB": 9.0}, {"iface": "eth0", "rxkB": 1.0, "txkB": 2.0}]
        },
        **more,
    }


def told(*samples: Any) -> bytes:
    return json.dumps({"sysstat": {"hosts": [{"nodename": "db1", "statistics": list(samples)}]}}).encode()


def test_samples_become_rows_of_a_machine() -> None:
    first, second = (
        dict(zip(RESOURCES.column_names, row, strict=True)) for row in rows_of(told(sample(6), sample(8)), "f")
    )
    assert first["sampled_ns"] == int(datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC).timestamp()) * SECOND_NS
    assert (first["service"], first["role"]) == ("db1@sar", "observed")
    assert (first["cpu_percent"], first["busiest_thread_percent"]) == (80.0, 65.0)
    assert first["rss_bytes"] == 2048 * 1024
    assert (first["steal_percent"], first["load_1min"]) == (2.0, 1.5)
    assert (first["read_bytes"], first["written_bytes"]) == (2 * 4 * 512, 2 * 8 * 512)
    assert (second["received_bytes"], second["sent_bytes"]) == (2 * 2 * 1024, 2 * 4 * 1024)
    assert first["open_files"] is None


def test_what_was_not_recorded_is_null() -> None:
    bare = sample(6)
    for key in ("io", "memory", "queue", "network"):
        del bare[key]
    row = dict(zip(RESOURCES.column_names, rows_of(told(bare), "f")[0], strict=True))
    assert row["cpu_percent"] == 80.0
    assert {row[name] for name in ("read_bytes", "rss_bytes", "sent_bytes", "load_1min")} == {None}


@pytest.mark.parametrize("odd", [None, {}, [], "x", {"timestamp": {}}, sample(6, **{"cpu-load": [{}]}), sample(99)])
def test_damaged_samples_are_left_out(odd: Any) -> None:
    assert len(rows_of(told(odd, sample(8)), "f")) == 1


@pytest.mark.parametrize("odd", [b"", b"{}", b"[]", b"null", b'{"sysstat": 3}'])
def test_something_else_than_sadf_is_refused(odd: bytes) -> None:
    with pytest.raises(EnvironmentNotReady):
        rows_of(odd, "f")


def test_without_sadf_the_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentNotReady) as caught:
        read_sar(tmp_path / "sa01", 0, 1)
    assert "sysstat" in caught.value.hint
