from __future__ import annotations

from battlebrokers.run.phases import Timetable
from battlebrokers.scenario.nodes import PhasesPlan


def timetable(warm_up: int = 10, measure: int = 20, cool_down: int = 5) -> Timetable:
    return Timetable(PhasesPlan(0, warm_up, measure, cool_down, 50, 5))


def named(times: Timetable) -> list[tuple[str, int, int]]:
    return [(phase.name, phase.start_ns, phase.end_ns) for phase in times.phases()]


def test_before_anything_there_is_no_phase():
    assert named(timetable()) == []


def test_the_phases_follow_each_other_without_gaps():
    times = timetable()
    times.connecting(100)
    assert named(times) == [("connect", 100, 0)]
    times.loading(200)
    times.ended(240)
    assert named(times) == [
        ("connect", 100, 200),
        ("warm_up", 200, 210),
        ("measure", 210, 230),
        ("cool_down", 230, 235),
        ("drain", 235, 240),
    ]


def test_phases_of_no_length_are_left_out():
    times = timetable(warm_up=0, cool_down=0)
    times.connecting(100)
    times.loading(200)
    assert [name for name, _, _ in named(times)] == ["connect", "measure", "drain"]


def test_an_early_end_cuts_the_phase_it_falls_into_and_drops_those_after():
    times = timetable()
    times.connecting(100)
    times.loading(200)
    times.stopped(215)
    times.ended(216)
    assert named(times) == [("connect", 100, 200), ("warm_up", 200, 210), ("measure", 210, 215), ("drain", 215, 216)]


def test_stopping_while_connecting_leaves_only_that():
    times = timetable()
    times.connecting(100)
    times.stopped(150)
    times.ended(160)
    assert named(times) == [("connect", 100, 160)]


def test_it_knows_where_it_is():
    times = timetable()
    times.connecting(100)
    assert times.now_in(150) == ("connect", 0.0)
    times.loading(200)
    assert times.now_in(205) == ("warm_up", 0.5)
    assert times.now_in(220) == ("measure", 0.5)
    assert times.now_in(260) == ("drain", 0.05), "of ten times its planned length: so long it may last"
