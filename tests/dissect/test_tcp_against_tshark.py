"""Our judgement of every TCP packet is tshark's.

Compared packet by packet: all fourteen flags, then completeness and initial round trip per connection. Deviations that
are allowed, with their reasons:

- Out-of-order or retransmission (at most 1 % of what either calls so): versions of Wireshark draw this line
  differently; 4.0, whose rules ours are, does not look at selective acknowledgements, later ones do.
- None else. Not compared, because tshark only says it about connections that nobody has: a FIN behind ten thousand
  unacknowledged segments (Wireshark stops counting there, ours goes on).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from battlebrokers.dissect import tcp_state
from battlebrokers.dissect.tcp_analysis import TcpAnalysis
from support.capture_files import Packet, read_capture, segments_of, write_capture
from support.lossy_path import Path as LossyPath
from support.lossy_path import lossy_path
from support.tcp_flows import absurd_flow, lossy_flow, steady_flow

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed (apt install tshark)"),
]

FIELDS = {
    "retransmission": tcp_state.RETRANSMISSION,
    "fast_retransmission": tcp_state.FAST_RETRANSMISSION,
    "spurious_retransmission": tcp_state.SPURIOUS_RETRANSMISSION,
    "out_of_order": tcp_state.OUT_OF_ORDER,
    "duplicate_ack": tcp_state.DUPLICATE_ACK,
    "zero_window": tcp_state.ZERO_WINDOW,
    "zero_window_probe": tcp_state.ZERO_WINDOW_PROBE,
    "zero_window_probe_ack": tcp_state.ZERO_WINDOW_PROBE_ACK,
    "window_full": tcp_state.WINDOW_FULL,
    "window_update": tcp_state.WINDOW_UPDATE,
    "keep_alive": tcp_state.KEEP_ALIVE,
    "keep_alive_ack": tcp_state.KEEP_ALIVE_ACK,
    "lost_segment": tcp_state.LOST_SEGMENT,
    "ack_lost_segment": tcp_state.ACKED_UNSEEN,
}
BORDER = (
    tcp_state.RETRANSMISSION
    | tcp_state.FAST_RETRANSMISSION
    | tcp_state.SPURIOUS_RETRANSMISSION
    | tcp_state.OUT_OF_ORDER
)


def tsharks(capture: Path) -> dict[int, tuple[int, int, float]]:
    """Per frame number: its mask, its connection's completeness, its connection's initial round trip in seconds."""
    fields = [
        "frame.number",
        "tcp.completeness",
        "tcp.analysis.initial_rtt",
        *(f"tcp.analysis.{name}" for name in FIELDS),
    ]
    command = ["tshark", "-2", "-n", "-r", str(capture), "-Y", "tcp", "-T", "fields"]
    command += [word for field in fields for word in ("-e", field)]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    result = {}
    for line in output.splitlines():
        number, completeness, initial_rtt, *found = line.split("\t")
        mask = sum(bit for bit, value in zip(FIELDS.values(), found, strict=True) if value)
        result[int(number)] = (mask, int(completeness), float(initial_rtt or 0))
    return result


def names(mask: int) -> tuple[str, ...]:
    return tuple(name for name, bit in FIELDS.items() if mask & bit)


class Comparison:
    """Both judgements of many connections side by side."""

    def __init__(self, expected: dict[int, tuple[int, int, float]]) -> None:
        self.expected = expected
        self.seen: Counter[str] = Counter()
        self.wrong: Counter[tuple[tuple[str, ...], tuple[str, ...]]] = Counter()
        self.border = self.border_wrong = 0

    def add(self, frames: list[int], packets: list[Packet], window: int = 1000) -> None:
        analysis = TcpAnalysis()
        segments = segments_of(packets)
        found = [
            int(mask)
            for start in range(0, len(packets), window)
            for mask in analysis.push(segments.part(start, start + window))
        ]
        for frame, ours in zip(frames, found, strict=True):
            theirs = self.expected[frame][0]
            self.seen.update(names(theirs))
            self.border += bool((ours | theirs) & BORDER)
            if ours != theirs:
                if ours & ~BORDER == theirs & ~BORDER and ours & BORDER and theirs & BORDER:
                    self.border_wrong += 1
                else:
                    self.wrong[(names(theirs), names(ours))] += 1
        assert analysis.completeness == self.expected[frames[-1]][1]
        initial = max(self.expected[frame][2] for frame in frames)
        assert (analysis.initial_rtt_ns or 0) / 1e9 == pytest.approx(initial, abs=2e-9)
        for name, bit in tcp_state_counts().items():
            assert analysis.counts[name] == sum(1 for mask in found if mask & bit)

    def settle(self) -> None:
        assert not self.wrong
        assert self.border_wrong <= self.border / 100


def tcp_state_counts() -> dict[str, int]:
    return {
        "retransmissions": tcp_state.RETRANSMISSION,
        "duplicate_acks": tcp_state.DUPLICATE_ACK,
        "lost_segments": tcp_state.LOST_SEGMENT,
        "acked_unseen": tcp_state.ACKED_UNSEEN,
    }


def compared(flows: list[list[Packet]], folder: Path) -> Comparison:
    capture = folder / "flows.pcap"
    write_capture(capture, ((1024 + n, packet) for n, flow in enumerate(flows) for packet in flow))
    comparison = Comparison(tsharks(capture))
    first = 1
    for flow in flows:
        comparison.add(list(range(first, first + len(flow))), flow)
        first += len(flow)
    comparison.settle()
    return comparison


def test_connections_over_a_bad_network_are_judged_alike(tmp_path):
    random = Random(20_240_501)
    seen = compared([lossy_flow(random, 250) for _ in range(80)], tmp_path).seen
    assert all(seen[name] > 10 for name in FIELDS)


def test_connections_nobody_would_make_are_judged_alike(tmp_path):
    random = Random(20_240_502)
    seen = compared([absurd_flow(random, random.choice((10, 100, 300))) for _ in range(150)], tmp_path).seen
    assert all(seen[name] > 5 for name in FIELDS)


def test_healthy_connections_are_judged_alike(tmp_path):
    random = Random(20_240_503)
    compared([steady_flow(random, 3000) for _ in range(6)], tmp_path)


def test_connections_seen_from_their_middle_are_judged_alike(tmp_path):
    random = Random(20_240_504)
    flows = [lossy_flow(random, 200) for _ in range(40)]
    compared([flow[random.randrange(1, 150) :] for flow in flows], tmp_path)


def test_one_direction_alone_is_judged_alike(tmp_path):
    random = Random(20_240_505)
    flows = [lossy_flow(random, 300) for _ in range(30)]
    compared([[packet for packet in flow if packet.sender == n % 2] for n, flow in enumerate(flows)], tmp_path)


@pytest.fixture
def path(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root for network namespaces")
    if missing := [tool for tool in ("ip", "nft", "tcpdump") if shutil.which(tool) is None]:
        pytest.skip(f"needs {', '.join(missing)} (apt install iproute2 nftables tcpdump)")
    with lossy_path(tmp_path) as path:
        yield path


@pytest.mark.root
@pytest.mark.parametrize("trouble", ["loss", "delay", "slow_reader"])
def test_real_traffic_between_namespaces_is_judged_alike(path: LossyPath, trouble):
    capture = path.transfer(trouble)
    comparison = Comparison(tsharks(capture))
    for frames, packets in read_capture(capture).values():
        comparison.add(frames, packets)
    comparison.settle()
    expected = {"loss": "retransmission", "delay": "out_of_order", "slow_reader": "zero_window"}
    assert comparison.seen[expected[trouble]] > 0
