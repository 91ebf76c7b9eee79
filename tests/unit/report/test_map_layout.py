from __future__ import annotations

from itertools import combinations

import pytest

from battlebrokers.analysis.service_map import draw_map
from battlebrokers.analysis.traffic import Flow
from battlebrokers.analysis.wire import read_wire
from battlebrokers.report.map_layout import arrow_words, lay_out
from support.wires import small_system


def drawing_of(pairs):
    flows = [Flow(sender, receiver, "http", 10, 0, 0, 100) for sender, receiver in pairs]
    return lay_out(draw_map(flows, [], 1), {"http": 0}, {})


SYSTEMS = {
    "one broker": [("outside", "broker"), ("broker", "outside")],
    "a chain": [("outside", "a"), ("a", "b"), ("b", "c"), ("c", "outside")],
    "a star": [("outside", "hub"), *(("hub", f"s{n}") for n in range(6)), *((f"s{n}", "hub") for n in range(6))],
    "deep": [("outside", "a"), ("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "f"), ("a", "f")],
}


@pytest.mark.parametrize("pairs", SYSTEMS.values(), ids=SYSTEMS)
def test_no_box_lies_over_another_or_under_a_label(pairs):
    drawing = drawing_of(pairs)
    areas = [box.area for box in drawing.boxes]
    assert all(one.overlap(other) == 0 for one, other in combinations(areas, 2))
    assert all(curve.label.overlap(area) == 0 for curve in drawing.curves for area in areas)


@pytest.mark.parametrize("pairs", SYSTEMS.values(), ids=SYSTEMS)
def test_labels_do_not_cover_each_other_and_everything_is_inside_the_picture(pairs):
    drawing = drawing_of(pairs)
    labels = [curve.label for curve in drawing.curves]
    assert all(one.overlap(other) == 0 for one, other in combinations(labels, 2))
    for area in [*labels, *(box.area for box in drawing.boxes)]:
        assert drawing.left <= area.x - area.width / 2
        assert area.x + area.width / 2 <= drawing.left + drawing.width
        assert drawing.top <= area.y - area.height / 2
        assert area.y + area.height / 2 <= drawing.top + drawing.height


def test_a_label_wider_than_the_room_between_neighbours_covers_neither():
    pairs = [("outside", "a"), ("a", "b"), ("a", "c"), ("b", "d"), ("d", "e")]
    flows = [Flow(sender, receiver, "http", 10, 0, 0, 100) for sender, receiver in pairs]
    flows.append(Flow("b", "c", "a-rather-long-protocol-name", 10, 0, 0, 100))
    drawing = lay_out(draw_map(flows, [], 1), {"http": 0}, {})
    assert len({box.area.y for box in drawing.boxes if box.name in "bc"}) == 1
    areas = [box.area for box in drawing.boxes]
    assert all(curve.label.overlap(area) == 0 for curve in drawing.curves for area in areas)


def test_the_same_map_is_drawn_the_same_whatever_the_order_it_was_read_in():
    assert drawing_of(SYSTEMS["a star"]) == drawing_of(SYSTEMS["a star"][::-1])


def test_few_layers_go_across_and_many_go_down():
    across, down = drawing_of(SYSTEMS["one broker"]), drawing_of(SYSTEMS["deep"])
    assert len({box.area.y for box in across.boxes}) == 1
    assert len({box.area.y for box in down.boxes}) == 6
    assert down.width < 1_200


def test_a_label_says_protocol_rate_delay_and_failures(tmp_path):
    wire = read_wire(small_system().write(tmp_path))
    drawing = lay_out(wire.map, {"redis": 0}, {"redis": "keeps messages 200 µs"})
    labels = {curve.title.split(":")[0]: (curve.text, curve.failures) for curve in drawing.curves}
    assert labels["gateway → redis"] == ("redis · 10/s · 80 µs", "1 unanswered")
    assert labels["redis → dispatcher"] == ("redis · 10/s", "")
    assert {box.name: box.about for box in drawing.boxes}["redis"] == "keeps messages 200 µs"


def test_a_slow_rate_is_not_rounded_away(tmp_path):
    (arrow,) = draw_map([Flow("a", "b", "http", 3, 0, 0, 100, first_second=0, last_second=99)], [], 200).arrows
    assert arrow_words(arrow) == "http · 0.03/s"


def test_what_was_said_within_a_second_has_no_rate(tmp_path):
    arrows = {(a.sender, a.receiver): a for a in read_wire(small_system().write(tmp_path)).map.arrows}
    assert arrow_words(arrows["dispatcher", "redis"]) == "redis · 1 message · – (n≥5)"


def test_long_names_are_shortened_in_the_box_and_whole_in_its_title():
    (_, box) = drawing_of([("outside", "[2001:db8::1234:5678:9abc]:8883")]).boxes
    assert len(box.name) == 21
    assert box.whole_name == "[2001:db8::1234:5678:9abc]:8883"


def test_an_empty_map_can_be_drawn():
    assert drawing_of([]).boxes == ()
