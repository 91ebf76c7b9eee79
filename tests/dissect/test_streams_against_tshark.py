"""What `bb pcap` says of TCP connections is what tshark says: how many there are, also where ports are used again, and
the sums of everything odd.

Deviations that are allowed, with their reasons:

- Out-of-order or retransmission (at most 1 %): see `test_tcp_against_tshark`.
- A port used again with the same first number after FIN or RST is a new connection to us, and the old one to tshark;
  the connections here all begin with another number, as those of real systems do.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest

from battlebrokers.dissect.segments import ACK, SYN
from battlebrokers.pipeline.client import Analyst
from battlebrokers.tables import STREAMS
from support.capture_files import Packet, write_capture
from support.lossy_path import lossy_path
from support.tcp_flows import lossy_flow
from support.wiretap import needs, tshark

pytestmark = [pytest.mark.slow, pytest.mark.spark, needs("tshark")]

FIELDS = {
    "retransmissions": "retransmission", "fast_retransmissions": "fast_retransmission", "out_of_order": "out_of_order",
    "spurious": "spurious_retransmission", "duplicate_acks": "duplicate_ack", "zero_windows": "zero_window",
    "lost_segments": "lost_segment",
}  # fmt: skip
"""Name in our summary → tshark's."""
COLUMNS = {"spurious": "spurious_retransmissions"}
BORDER = ("retransmissions", "fast_retransmissions", "out_of_order", "spurious")


@pytest.fixture(scope="module")
def analyst() -> Iterator[Analyst]:
    with Analyst.start("local[2]", expected_events=100_000, idle=False) as started:
        yield started


def tsharks(capture: Path) -> dict[int, Counter[str]]:
    """Connection by connection, in order of their beginnings: packets, and those of them that are odd."""
    found: dict[int, Counter[str]] = {}
    wanted = {name: f"tcp.analysis.{field}" for name, field in FIELDS.items()}
    for row in tshark(capture, ["tcp.stream", *wanted.values()], only="tcp"):
        counts = found.setdefault(int(row["tcp.stream"][0]), Counter())
        counts["packets"] += 1
        counts.update(name for name, field in wanted.items() if row[field])
    return found


def ours(analyst: Analyst, capture: Path, folder: Path) -> tuple[dict[str, Any], list[Counter[str]]]:
    """The summary, and the same of each stream."""
    summary = analyst.decode([str(capture)], str(folder), {})
    rows = sorted(pq.read_table(folder / STREAMS.folder).to_pylist(), key=lambda row: row["first_ns"])
    names = {name: COLUMNS.get(name, name) for name in FIELDS} | {"packets": "packets"}
    return summary, [Counter({name: row[column] for name, column in names.items()}) for row in rows]


def compare(found: Counter[str], theirs: Counter[str]) -> None:
    border = sum(theirs[name] for name in BORDER)
    for name in ("packets", *FIELDS):
        assert abs(found[name] - theirs[name]) <= (border / 100 if name in BORDER else 0), name


def begins(packet: Packet) -> bool:
    return packet.flags & (SYN | ACK) == SYN


def test_ports_that_are_used_again_make_the_connections_tshark_sees(tmp_path: Path, analyst: Analyst) -> None:
    random = Random(20_240_506)
    flows = [flow for flow in (lossy_flow(random, 150) for _ in range(80)) if begins(flow[0])]
    rows: list[tuple[int, Packet]] = []
    now_ns = flows[0][0].time_ns
    for flow in flows:
        shift_ns = now_ns - flow[0].time_ns
        port = random.choice((1024, 1024, 1024, 2048))
        rows += [(port, replace(packet, time_ns=packet.time_ns + shift_ns)) for packet in flow]
        now_ns = rows[-1][1].time_ns + 2 * 10**9
    capture = tmp_path / "again.pcap"
    write_capture(capture, rows)
    theirs = tsharks(capture)
    assert len(theirs) == len(flows) > 40
    summary, streams = ours(analyst, capture, tmp_path / "decoded")
    assert summary["streams"] == len(streams) == len(theirs)
    for found, expected in zip(streams, theirs.values(), strict=True):
        compare(found, expected)
    assert all(sum(one[name] for one in theirs.values()) > 5 for name in FIELDS)


@pytest.mark.root
def test_the_sums_of_a_real_capture_are_tsharks(tmp_path: Path, analyst: Analyst) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root for network namespaces")
    if missing := [tool for tool in ("ip", "nft", "tcpdump") if shutil.which(tool) is None]:
        pytest.skip(f"needs {', '.join(missing)} (apt install iproute2 nftables tcpdump)")
    with lossy_path(tmp_path) as path:
        capture = path.transfer("loss")
    theirs = tsharks(capture)
    summary, streams = ours(analyst, capture, tmp_path / "decoded")
    assert summary["streams"] == len(streams) == len(theirs)
    told = Counter(summary["tcp"]) | Counter({"packets": summary["packets"]})
    sums = sum(theirs.values(), Counter())
    compare(told, sums)
    assert set(summary["tcp"]) == set(FIELDS)
    assert min(sums["retransmissions"], sums["duplicate_acks"]) > 0
