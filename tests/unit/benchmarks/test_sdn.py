"""The pure parts of the network broker's benchmarks: search, line, verdicts about logs, page and tables."""

from __future__ import annotations

import struct
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest
from benchmarks.sdn_changes import Survived, Trial, judge
from benchmarks.sdn_network import description
from benchmarks.sdn_report import kept, markdown, page
from benchmarks.sdn_search import fitted, highest_carried
from benchmarks.sdn_story import Busy, Changes, Latency, Rate, Story, Uplink
from benchmarks.sdn_traffic import Outcome, read_log
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.sdn.lab.topology import parse_topology


@given(st.floats(100, 100_000), st.floats(100, 100_000))
def test_the_highest_rate_is_found_from_any_guess_not_too_far_away(limit: float, guess: float) -> None:
    tried: list[float] = []

    def carries(rate: float) -> bool:
        tried.append(rate)
        return rate <= limit

    found = highest_carried(carries, guess, within=1.1)
    assert len(tried) <= 14
    assert found <= limit
    if 0.3 < guess / limit < 3:
        assert found > limit / 1.1


def test_what_is_never_carried_is_nothing() -> None:
    assert highest_carried(lambda _: False, 1000) == 0


def test_when_it_is_late_what_is_carried_so_far_has_to_do() -> None:
    tried: list[float] = []
    assert highest_carried(lambda rate: not tried.append(rate), 100, is_late=lambda: len(tried) >= 3) == 225
    assert len(tried) == 3


def test_the_line_of_a_sweep_is_found_again() -> None:
    points = [(count, 1e6 / (40 + 7.5 * count)) for count in (1, 2, 4, 8, 16, 32, 64)]
    line = fitted(points)
    assert line is not None
    assert (line.a_us, line.b_us, line.r2) == pytest.approx((40, 7.5, 1.0))
    assert line.rate(8) == pytest.approx(1e4)
    assert fitted(points[:1]) is None
    assert fitted([(1, 0.0), (2, 5.0)]) is None


SENT = list(range(0, 1000, 10))
"""A message every 10 ns, number = time / 10."""


def _came(*numbers: int) -> dict[int, int]:
    return {number: number * 10 + 5 for number in numbers}


def test_a_trial_is_kept_when_everything_and_nothing_else_came() -> None:
    trial = Trial(asked_ns=100, answered_ns=202, left_ns=300, gone_ns=402)
    found = judge([trial], SENT, _came(*range(15, 33)), _came(*range(100)))
    assert (found.trials, found.unsubscribed, found.subscribed) == (1, 1, 1)
    assert found.answer_ns == [102]
    # Message 15 was there at 155, before the answer.
    assert found.join_ns == [155 - 202]


def test_a_copy_of_what_was_sent_after_the_answer_breaks_the_trial() -> None:
    trial = Trial(asked_ns=100, answered_ns=202, left_ns=300, gone_ns=402)
    # 40 was sent at 400, before the answer; 41 after it.
    assert judge([trial], SENT, _came(*range(15, 41)), _came(*range(100))).unsubscribed == 1
    assert judge([trial], SENT, _came(*range(15, 33), 41), _came(*range(100))).unsubscribed == 0


def test_a_message_missing_after_the_answer_breaks_the_trial_unless_the_neighbour_lacks_it_too() -> None:
    trial = Trial(asked_ns=100, answered_ns=202, left_ns=300, gone_ns=402)
    member = _came(*(number for number in range(15, 33) if number != 25))
    assert judge([trial], SENT, member, _came(*range(100))).subscribed == 0
    assert judge([trial], SENT, member, _came(*(n for n in range(100) if n != 25))).subscribed == 1
    # On its way when the subscription ended: either is right.
    late = _came(*range(100)) | {25: 301}
    assert judge([trial], SENT, member, late).subscribed == 1


def test_a_copy_of_the_next_trial_is_not_held_against_the_one_before() -> None:
    trials = [Trial(100, 202, 300, 402), Trial(500, 602, 700, 802)]
    found = judge(trials, SENT, _came(*range(15, 33), *range(55, 73)), _came(*range(100)))
    assert (found.unsubscribed, found.subscribed) == (2, 2)
    # 45 was sent in between, but copied only when the next subscription was being made.
    found = judge(trials, SENT, _came(*range(15, 33), 45, *range(55, 73)), _came(*range(100)) | {45: 505})
    assert (found.unsubscribed, found.subscribed) == (2, 2)


def test_a_trial_that_tells_nothing_does_not_count() -> None:
    trial = Trial(asked_ns=100, answered_ns=202, left_ns=300, gone_ns=402)
    found = judge([trial], SENT, _came(*range(15, 33)), _came(*range(35)))
    assert (found.trials, found.unsubscribed, found.subscribed) == (0, 0, 0)


def test_a_log_is_read_as_the_program_writes_it() -> None:
    raw = struct.pack("=QQQ", 2, 100, 200) + struct.pack("=IIQ", 1, 0, 150) + struct.pack("=IIQ", 0, 1, 260)
    log = read_log(raw, 2)
    assert log.sent_ns == (100, 200)
    assert log.received_ns == [{1: 260}, {0: 150}]


def test_a_load_is_carried_only_when_all_came_once_in_time_and_at_the_rate() -> None:
    good = Outcome(100, 1, 1_000_000_000, 700, 700, 100, 0, 0, 0, 0, 1, 1, 1, 1, 5_000_000)
    assert good.was_carried(1.0)
    for broken in ({"received": 699}, {"twice": 1}, {"send_errors": 1}, {"last_after_ns": 200_000_000}):
        assert not msgspec.structs.replace(good, **broken).was_carried(1.0)
    assert not msgspec.structs.replace(good, took_ns=1_200_000_000).was_carried(1.0)


def test_seven_subscribers_sit_as_in_the_original_experiment() -> None:
    topology = parse_topology(description(7), "here")
    at = [host.port.switch for name, host in topology.hosts.items() if name.startswith("r")]
    assert sorted(at) == [1, 2, 2, 3, 3, 4, 4]
    assert topology.hosts["p1"].port.switch == 1
    # The first and the fifth are neighbours: one comes and goes, the other tells what it should have had.
    assert at[0] == at[4]


def full_story() -> Story:
    return Story(
        rates={"7": [Rate("tree", 84_000, [84_000.0]), Rate("reactive", 28_000, [28_000.0])]},
        sweep={"tree": [(1, 20_000.0), (64, 1_500.0)], "reactive": [(1, 9_000.0), (64, 0.0)]},
        latency=[Latency("tree", 246, 400, 756, 900, 0)],
        uplink=[Uplink("peer-to-peer", 2800, 2400, 2800, 2400, 0)],
        busy={"tree": Busy("tree", 7000, 1.0, 0, 0, 6, 6)},
        changes={"tree": Changes.of(2, [5_000_000, 7_000_000], [-1_000_000, 2_000_000], 2, 2)},
        killed={"tree": Survived(100, 100, 1.5, 2000)},
    )


def test_the_page_is_well_formed_needs_nothing_from_elsewhere_and_has_every_table() -> None:
    text = page(full_story())
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "src=" not in text
    for svg in text.split("<svg")[1:]:
        ET.fromstring("<svg" + svg.partition("</svg>")[0] + "</svg>")
    told = markdown(full_story())
    for words in ("84,000", "Latency", "| peer-to-peer | 2,800 | 2,800 | 2,400 | 2,400 |", "killed under load"):
        assert words in told
    assert page(Story())
    assert "make bench" in markdown(Story())


def test_what_was_not_measured_again_stays(tmp_path: Path) -> None:
    output = tmp_path / "latest.json"
    with kept(output) as story:
        story.killed["tree"] = Survived(10, 10, 1.0, 2000)
    with kept(output) as story:
        story.killed["group"] = Survived(5, 5, 1.0, 2000)
    assert set(msgspec.json.decode((tmp_path / "sdn.json").read_bytes(), type=Story).killed) == {"tree", "group"}
    assert "group" in (tmp_path / "sdn.md").read_text()
    assert (tmp_path / "sdn.html").exists()
    (tmp_path / "sdn.json").write_text('{"killed": {"tree": {"expected": 1}}}')
    with kept(output) as story:
        assert story == Story()
    with kept(None) as story:
        assert story == Story()
