"""The temperature application without a network: its parts, its roles, and its picture."""

from __future__ import annotations

from collections import Counter
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.sdn.applications.temperature.application import (
    ACTUATORS,
    HOSTS,
    SUBSCRIBERS,
    TRIGGER,
    WINDOWS,
    Application,
    Event,
    Kind,
    Send,
    Topic,
    copies_missing,
    log_line,
    read_temperature,
)
from battlebrokers.sdn.applications.temperature.chart import at_work, ticks
from battlebrokers.sdn.applications.temperature.parts import Actuator, MovingAverage, Room, Trigger
from battlebrokers.sdn.applications.temperature.picture import Counted, Place, picture

PLACES = {host: Place(f"10.0.0.{number}", "s1") for number, host in enumerate(HOSTS, 1)}


def deliver(application: Application, sends: list[Send], at_s: float) -> None:
    """A network that loses nothing and takes no time."""
    for send in sends:
        for host in SUBSCRIBERS[send.topic]:
            deliver(application, application.heard(host, send.payload, at_s), at_s)


def played(seed: int = 1, threshold_c: float = 24.5, readings: int = 40) -> Application:
    application = Application(seed, threshold_c, 0.5)
    for number in range(readings):
        deliver(application, application.reading_due(number / 2), number / 2)
    return application


@pytest.mark.parametrize("size", [5, 10])
def test_a_moving_average_is_that_of_the_last_values_and_none_before(size: int) -> None:
    average = MovingAverage(size)
    values = [float(number * number) for number in range(25)]
    told = [average.add(value) for value in values]
    assert told[: size - 1] == [None] * (size - 1)
    assert told[size - 1 :] == [sum(values[end - size : end]) / size for end in range(size, 26)]


def test_the_five_readings_of_the_paper_average_to_its_figure_and_cross() -> None:
    average, trigger = MovingAverage(5), Trigger(24.5, 10)
    told = [average.add(value) for value in (24.88, 24.85, 24.12, 25.15, 24.73)]
    assert told[-1] == pytest.approx(24.75, abs=0.005)
    assert [trigger.judge(one) for one in told] == [False, False, False, False, True]


def test_a_trigger_fires_at_each_crossing_and_again_while_it_stays_too_warm() -> None:
    trigger = Trigger(20.0, 3)
    told = [trigger.judge(value) for value in (None, 20.0, 20.1, 21, 22, 23, 19, 20.5, 20.5)]
    assert told == [False, False, True, False, False, True, False, True, False]


def test_an_actuator_works_for_its_time_from_the_last_trigger_on() -> None:
    actuator = Actuator(5.0)
    assert not actuator.works(0.0)
    actuator.triggered(1.0)
    assert actuator.works(5.9)
    actuator.triggered(4.0)
    assert actuator.works(8.9)
    assert not actuator.works(9.0)


def test_the_same_seed_gives_the_same_weather_and_another_seed_another() -> None:
    def weather(seed: int) -> list[float]:
        room = Room(seed)
        return [room.read(0) for _ in range(30)]

    assert weather(7) == weather(7) != weather(8)


def test_a_room_warms_by_itself_and_two_actuators_cool_it() -> None:
    room = Room(1)
    warm = [room.read(0) for _ in range(20)]
    cool = [room.read(2) for _ in range(20)]
    assert warm[-1] > warm[0] + 3
    assert cool[-1] < cool[0] - 3


def test_every_monitor_hears_every_reading_and_the_actuators_every_trigger() -> None:
    application = played()
    counts = Counter((event.host, event.kind) for event in application.events)
    assert counts["sensor", Kind.PUBLISHED] == counts["monitor1", Kind.HEARD] == counts["monitor2", Kind.HEARD] == 40
    assert counts["monitor1", Kind.FIRED] == counts["actuator1", Kind.TRIGGERED] == counts["actuator2", Kind.TRIGGERED]
    assert counts["monitor1", Kind.FIRED] == 2
    assert copies_missing(application.events) == 0
    assert played().events == application.events


def test_only_the_main_monitor_triggers_and_exactly_when_its_average_of_five_crosses() -> None:
    heard: list[float] = []
    above = False
    for event in played(seed=5, readings=120).events:
        if event.host == "monitor1" and event.kind is Kind.HEARD:
            assert event.value is not None
            heard.append(event.value)
            average = sum(heard[-5:]) / 5
            crossed, above = not above and len(heard) >= 5 and average > 24.5, average > 24.5
        if event.kind is Kind.FIRED:
            assert event.host == "monitor1"
            assert crossed


def test_the_room_is_cooled_only_while_actuators_work() -> None:
    never, cooled = played(threshold_c=99.0), played()
    last = {name: one.events[-1].value or 0 for name, one in (("never", never), ("cooled", cooled))}
    assert not any(event.kind is Kind.FIRED for event in never.events)
    assert last["never"] > last["cooled"] + 5


@given(st.sampled_from(HOSTS), st.binary(max_size=40))
def test_whatever_comes_to_a_host_it_lives_on_and_tells_what_was_not_for_it(host: str, payload: bytes) -> None:
    application = Application(1, 24.5, 0.5)
    assert application.heard(host, payload, 1.0) == []
    meant = (host in WINDOWS and read_temperature(payload) is not None) or (host in ACTUATORS and payload == TRIGGER)
    assert (application.events[0].kind is Kind.UNEXPECTED) is not meant
    assert log_line(application.events[0], "10.0.0.1", 24.5).isprintable()


@pytest.mark.parametrize("payload", [b"nan", b"inf", b"-inf", b"", b"24,5", b"9" * 400, b"\xff\xfe", TRIGGER])
def test_what_is_no_temperature_is_none(payload: bytes) -> None:
    assert read_temperature(payload) is None


def test_a_line_of_the_log_has_time_host_address_role_and_what() -> None:
    line = log_line(Event(1.5, "monitor2", Kind.HEARD, 24.73, 24.749), "10.0.0.3", 24.5)
    assert line.split(maxsplit=5) == [
        "1.500", "s", "monitor2", "10.0.0.3", "monitor", "hears 24.73 °C, moving average of 10: 24.75 °C",
    ]  # fmt: skip


def test_the_picture_has_every_count_and_every_reading() -> None:
    events = played().events
    resources = {
        Topic.MONITORING: Counted("1.1.1.1", "tree", 40, 80),
        Topic.ACTUATORS: Counted("1.1.1.2", "tree", 2, 4),
    }
    root = ET.fromstring(picture(events, PLACES, resources, 24.5, 20.0))
    texts = Counter(element.text for element in root.iter() if element.tag.endswith("text"))
    assert texts["40"] == 3
    assert texts["2"] == 3
    assert texts["40 in, 80 copies out"] == texts["2 in, 4 copies out"] == 1
    classes = Counter(element.get("class") for element in root.iter())
    assert (classes["dot"], classes["fired"], classes["work"]) == (40 + 1, 2 + 1, 4 + 1)  # and one in the legend
    for host in HOSTS:
        assert texts[host] >= 1


def test_a_picture_of_nothing_is_a_picture_too() -> None:
    assert ET.fromstring(picture([], PLACES, {}, 24.5, 0.0)).tag.endswith("svg")


def test_an_actuator_at_work_at_the_end_works_until_the_end() -> None:
    events = [Event(at_s, "actuator1", kind) for at_s, kind in
              ((1, Kind.TRIGGERED), (2, Kind.TRIGGERED), (5, Kind.RESTS), (8, Kind.TRIGGERED))]  # fmt: skip
    assert at_work(events, "actuator1", 10) == [(1, 5), (8, 10)]


@given(st.floats(-100, 100), st.floats(0.01, 1e5))
def test_ticks_are_few_and_within(low: float, span: float) -> None:
    found = ticks(low, low + span)
    assert 3 <= len(found) <= 12
    slack = span * 1e-6
    assert low - slack <= found[0] <= found[-1] <= low + span + slack
