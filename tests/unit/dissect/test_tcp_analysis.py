"""TCP connections are judged by Wireshark's rules, and the vectorised short cut changes nothing."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.dissect import tcp_analysis, tcp_rules, tcp_state
from battlebrokers.dissect.round_trips import OUTSTANDING, SAMPLES, RoundTrips
from battlebrokers.dissect.segments import ACK, FIN, PSH, RST, SYN
from battlebrokers.dissect.tcp_analysis import TcpAnalysis
from battlebrokers.tables.streams import STREAMS
from support.capture_files import Packet, segments_of
from support.examples import examples
from support.tcp_flows import absurd_flow, lossy_flow, steady_flow

MS = 1_000_000
FLOWS = {"lossy": lossy_flow, "absurd": absurd_flow, "steady": steady_flow}


def talk(*rows: tuple[int, int, int, int, int], window: int = 1000, start_ms: int = 0) -> list[Packet]:
    """Rows are (milliseconds, sender, seq, ack, size)."""
    return [
        Packet((start_ms + ms) * MS, sender, seq, ack, ACK | (PSH if size else 0), window, size)
        for ms, sender, seq, ack, size in rows
    ]


def handshake(shifts: tuple[int, int] = (-1, -1), windows: tuple[int, int] = (1000, 1000)) -> list[Packet]:
    """The client begins at 100, the server at 500; a round trip takes 10 ms."""
    return [
        Packet(0, 0, 100, 0, SYN, windows[0], 0, shifts[0]),
        Packet(5 * MS, 1, 500, 101, SYN | ACK, windows[1], 0, shifts[1]),
        Packet(10 * MS, 0, 101, 501, ACK, windows[0], 0),
    ]


def names(mask: int) -> set[str]:
    return {name for name, bit in vars(tcp_state).items() if name.isupper() and "UNKNOWN" not in name and mask & bit}


def judged(packets: list[Packet]) -> list[set[str]]:
    return [names(int(mask)) for mask in TcpAnalysis().push(segments_of(packets))]


def last_of(packets: list[Packet]) -> set[str]:
    return judged(packets)[-1]


def remembered(side: tcp_state.Side) -> tuple[object, ...]:
    trips = side.trips
    values = tuple(getattr(side, name) for name in side.__slots__ if name != "trips")
    return (*values, list(trips.ends), list(trips.times_ns), trips.count, trips.stride, trips.samples)


@examples(100)
@given(
    kind=st.sampled_from(sorted(FLOWS)),
    seed=st.integers(0, 2**32),
    window=st.integers(1, 400),
    patience=st.integers(1, 40),
)
def test_the_short_cut_and_any_windows_agree_with_the_rules_packet_by_packet(kind, seed, window, patience):
    packets = segments_of(FLOWS[kind](Random(seed), 300))
    connection = tcp_state.Connection()
    expected = tcp_rules.judge(connection, packets)
    analysis = TcpAnalysis()
    with pytest.MonkeyPatch.context() as patch:
        # The shorter the way around, the more often both take turns.
        patch.setattr(tcp_analysis, "_SHORT", patience)
        patch.setattr(tcp_analysis, "_LONG", patience)
        patch.setattr(tcp_analysis, "_BLOCK", 3 * patience)
        patch.setattr(tcp_analysis, "_FEW", 0)
        parts = [analysis.push(packets.part(start, start + window)) for start in range(0, len(packets), window)]
    assert np.concatenate(parts).tolist() == expected.tolist()
    for mine, theirs in zip(analysis._connection.sides, connection.sides, strict=True):
        assert remembered(mine) == remembered(theirs)


def test_an_ordinary_connection_is_not_judged_packet_by_packet(monkeypatch):
    slow: list[int] = []
    judge = tcp_rules.judge

    def counting(connection, window):
        slow.append(len(window))
        return judge(connection, window)

    monkeypatch.setattr(tcp_rules, "judge", counting)
    analysis = TcpAnalysis()
    packets = segments_of(steady_flow(Random(1), 50_000))
    for start in range(0, len(packets), 10_000):
        analysis.push(packets.part(start, start + 10_000))
    assert sum(slow) < 500
    assert analysis.rtt_ns(0) is not None
    assert analysis.rtt_ns(1) is not None


def test_the_counts_are_columns_of_the_streams():
    assert set(TcpAnalysis().counts) <= {column.name for column in STREAMS.columns}
    assert len(TcpAnalysis().counts) == 10


def test_counts_add_up_over_windows():
    packets = segments_of([*handshake(), *talk((20, 0, 101, 501, 10), (400, 0, 101, 501, 10), (900, 0, 101, 501, 10))])
    analysis = TcpAnalysis()
    for start in range(len(packets)):
        analysis.push(packets.part(start, start + 1))
    assert analysis.counts["retransmissions"] == 2
    assert sum(analysis.counts.values()) == 2


def test_a_segment_sent_again_long_after_is_a_retransmission():
    assert last_of([*handshake(), *talk((20, 0, 101, 501, 10), (400, 0, 101, 501, 10))]) == {"RETRANSMISSION"}


def test_a_segment_shortly_behind_a_later_one_is_out_of_order():
    rows = [*handshake(), *talk((20, 0, 101, 501, 10), (21, 0, 121, 501, 10), (22, 0, 111, 501, 10))]
    assert judged(rows)[-2:] == [{"LOST_SEGMENT"}, {"OUT_OF_ORDER"}]


def test_after_two_duplicate_acknowledgements_it_is_a_fast_retransmission():
    lost = talk((20, 0, 111, 501, 10), (21, 1, 501, 101, 0), (22, 1, 501, 101, 0), (40, 0, 101, 501, 10))
    assert judged([*handshake(), *lost])[-4:] == [
        {"LOST_SEGMENT"}, {"DUPLICATE_ACK"}, {"DUPLICATE_ACK"}, {"RETRANSMISSION", "FAST_RETRANSMISSION"}
    ]  # fmt: skip


def test_what_was_acknowledged_already_is_a_spurious_retransmission():
    rows = talk((20, 0, 101, 501, 10), (25, 1, 501, 111, 0), (400, 0, 101, 501, 10))
    assert last_of([*handshake(), *rows]) == {"RETRANSMISSION", "SPURIOUS_RETRANSMISSION"}


def test_an_acknowledgement_of_what_is_not_there_is_said_once():
    rows = talk((20, 0, 101, 501, 10), (25, 1, 501, 300, 0), (26, 1, 501, 301, 0))
    assert [("ACKED_UNSEEN" in found) for found in judged([*handshake(), *rows])[-2:]] == [True, False]


def test_a_keep_alive_and_its_answer():
    rows = talk((20, 0, 101, 501, 10), (25, 1, 501, 111, 0), (9000, 0, 110, 501, 0), (9005, 1, 501, 111, 0))
    assert judged([*handshake(), *rows])[-2:] == [{"KEEP_ALIVE"}, {"KEEP_ALIVE_ACK"}]


def test_a_closed_window_its_probe_and_the_answer():
    closed = Packet(30 * MS, 1, 501, 111, ACK, 0, 0)
    probe = Packet(300 * MS, 0, 111, 501, ACK, 1000, 1)
    answer = Packet(301 * MS, 1, 501, 111, ACK, 0, 0)
    rows = [*handshake(), *talk((20, 0, 101, 501, 10)), closed, probe, answer]
    assert judged(rows)[-3:] == [{"ZERO_WINDOW"}, {"ZERO_WINDOW_PROBE"}, {"ZERO_WINDOW", "ZERO_WINDOW_PROBE_ACK"}]


@pytest.mark.parametrize(("shift", "size"), [(-1, 100), (0, 100), (3, 800)])
def test_a_segment_that_fills_the_scaled_window(shift, size):
    rows = [*handshake((shift, shift)), Packet(11 * MS, 1, 501, 101, ACK, 100, 0)]
    assert last_of([*rows, *talk((20, 0, 101, 501, size))]) == {"WINDOW_FULL"}
    assert last_of([*rows, *talk((20, 0, 101, 501, size - 1))]) == set()


def test_without_the_handshake_nobody_knows_when_a_window_is_full():
    assert last_of([*talk((0, 1, 501, 101, 0), window=100), *talk((1, 0, 101, 501, 100))]) == set()


def test_sequence_numbers_wrap_around():
    near = (1 << 32) - 10
    rows = talk(
        (0, 0, near, 501, 20), (1, 1, 501, 10, 0), (2, 0, 10, 501, 20), (3, 1, 501, 30, 0), (90, 0, near, 501, 20)
    )
    assert judged(rows) == [set(), set(), set(), set(), {"RETRANSMISSION", "SPURIOUS_RETRANSMISSION"}]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], 7),
        ([*talk((20, 0, 101, 501, 10))], 15),
        ([*talk((20, 0, 101, 501, 10)), Packet(30 * MS, 0, 111, 501, FIN | ACK, 1000, 0)], 31),
        ([Packet(30 * MS, 1, 501, 101, RST, 1000, 0)], 39),
    ],
)
def test_completeness_adds_up(rows, expected):
    analysis = TcpAnalysis()
    analysis.push(segments_of([*handshake(), *rows]))
    assert analysis.completeness == expected


def test_a_connection_seen_from_its_middle_has_no_initial_round_trip():
    analysis = TcpAnalysis()
    analysis.push(segments_of(talk((0, 0, 101, 501, 10), (3, 1, 501, 111, 0))))
    assert analysis.initial_rtt_ns is None
    assert analysis.rtt_ns(1) == 3 * MS
    assert analysis.rtt_ns(0) is None


def test_the_initial_round_trip_is_from_the_syn_to_its_last_answer():
    analysis = TcpAnalysis()
    analysis.push(segments_of(handshake()))
    assert analysis.initial_rtt_ns == 10 * MS


def test_no_round_trip_is_measured_on_what_was_sent_twice():
    analysis = TcpAnalysis()
    rows = talk(
        (20, 0, 101, 501, 10),
        (24, 1, 501, 111, 0),
        (30, 0, 111, 501, 10),
        (330, 0, 111, 501, 10),
        (333, 1, 501, 121, 0),
    )
    analysis.push(segments_of([*handshake(), *rows]))
    assert analysis.rtt_ns(1) == 4 * MS


def test_a_late_acknowledgement_counts_for_the_newest_segment_it_covers():
    analysis = TcpAnalysis()
    analysis.push(
        segments_of([*handshake(), *talk((20, 0, 101, 501, 10), (26, 0, 111, 501, 10), (30, 1, 501, 121, 0))])
    )
    assert analysis.rtt_ns(1) == 4 * MS


def test_round_trips_are_bounded_and_thinned_out_evenly():
    trips = RoundTrips()
    for n in range(5 * SAMPLES):
        trips.sent(n + 1, 10 * n)
        trips.acknowledged(n + 1, 11 * n)
    assert len(trips.samples) <= SAMPLES
    assert trips.median_ns() == pytest.approx(2.5 * SAMPLES, rel=0.01)
    for n in range(2 * OUTSTANDING):
        trips.sent(n, n)
    assert len(trips.ends) == OUTSTANDING


def test_nothing_in_is_nothing_out():
    analysis = TcpAnalysis()
    assert len(analysis.push(segments_of([]))) == 0
    assert analysis.completeness == 0
