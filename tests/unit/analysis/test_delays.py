from __future__ import annotations

import pytest

from battlebrokers.analysis.delays import Delay, merged, read_asked
from support.wires import Wires


def delay(n, *points):
    return Delay(n, *points, mean_ns=float(points[2]))


def test_one_kind_keeps_its_exact_points(tmp_path):
    wires = Wires()
    wires.response("a", "b", "http", "GET", 10, [1, 2, 3, 4, 5, 6, 7])
    (one,) = read_asked(wires.write(tmp_path))
    assert one.delay is not None
    assert one.delay.points == (1_000, 2_000, 3_000, 4_000, 5_000, 6_000, 7_000)
    assert [kind.kind for kind in one.kinds] == ["GET"]


def test_kinds_of_one_peer_and_direction_become_one_entry_with_summed_counts(tmp_path):
    wires = Wires()
    wires.response("a", "b", "http", "GET", 10, [1] * 7, answered=8, unanswered=2, failed=1)
    wires.response("a", "b", "http", "PUT", 30, [2] * 7, uncertain=3)
    wires.response("b", "a", "http", "GET", 5, [1] * 7)
    first, second = read_asked(wires.write(tmp_path))
    assert (first.asker, first.answerer, first.n, first.answered) == ("a", "b", 40, 38)
    assert (first.unanswered, first.failed, first.uncertain) == (2, 1, 3)
    assert (first.request_bytes, first.response_bytes) == (4_000, 1_600)
    assert [kind.kind for kind in first.kinds] == ["PUT", "GET"]
    assert (second.asker, second.n) == ("b", 5)


def test_what_nobody_answered_has_no_delay(tmp_path):
    wires = Wires()
    wires.response("a", "b", "mqtt", "PUBLISH", 4, [], answered=0, unanswered=4)
    (one,) = read_asked(wires.write(tmp_path))
    assert one.delay is None
    assert one.unanswered == 4


def test_two_equal_distributions_merge_to_themselves():
    one = delay(50, 0, 25, 50, 75, 95, 99, 100)
    both = merged([one, one])
    assert both is not None
    assert (both.n, both.points) == (100, one.points)


def test_a_merge_weighs_each_kind_by_its_answers():
    # 75 answers spread evenly over 0…100, 25 over 100…200: below 100 lie 75 %, so p75 is 100; the median
    # is where 75 % · x/100 = 50 %, at 66.7; p95 where 75 % + 25 % · (x - 100)/100 = 95 %, at 180.
    even = (0, 25, 50, 75, 95, 99, 100)
    both = merged([delay(75, *even), delay(25, *(100 + point for point in even))])
    assert both is not None
    assert (both.min_ns, both.p50_ns, both.p75_ns, both.p95_ns, both.max_ns) == (0, 67, 100, 180, 200)
    assert both.mean_ns == pytest.approx(0.75 * 50 + 0.25 * 150)


def test_merged_points_never_decrease():
    both = merged([delay(3, 5, 5, 5, 5, 5, 5, 5), delay(1_000, 1, 1, 1, 2, 9, 9, 900), delay(1, 0, 0, 0, 0, 0, 0, 0)])
    assert both is not None
    assert list(both.points) == sorted(both.points)


def test_nothing_merges_to_nothing():
    assert merged([]) is None
