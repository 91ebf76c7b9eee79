from __future__ import annotations

import pytest
from benchmarks.figure import AT_MOST, compared, judged, markdown, merged, read, table, write


def figure(name="engine.x", ours=2.0, peer=1.0, **more):
    return judged(name, ours, peer, **{"target": 1.5, "unit": "msg/s", "note": "a ÷ b", **more})


def test_a_ratio_is_met_on_the_side_its_bound_says():
    assert figure().met
    assert not figure(ours=1.4).met
    assert not figure(bound=AT_MOST).met
    assert figure(ours=1.4, bound=AT_MOST).met


def test_a_peer_of_nothing_is_never_met():
    assert not figure(peer=0.0).met
    assert not figure(peer=0.0, bound=AT_MOST).met


def test_a_condition_besides_the_ratio_can_forbid_it():
    assert not figure(provided=False).met


def test_rounds_are_compared_pairwise_and_the_median_pair_is_told():
    told = compared("engine.x", [10, 90, 40], [10, 30, 20], target=2.0, unit="u", note="n")
    assert (told.ours, told.peer, told.ratio, told.met) == (40, 20, 2.0, True)


def test_with_an_even_number_of_rounds_the_worse_of_the_middle_counts():
    told = compared("engine.x", [1, 3], [1, 1], target=2.0, unit="u", note="n")
    assert (told.ratio, told.met) == (1.0, False)
    told = compared("engine.x", [1, 3], [1, 1], target=2.0, unit="u", note="n", bound=AT_MOST)
    assert (told.ratio, told.met) == (3.0, False)


def test_sides_with_different_numbers_of_rounds_cannot_be_compared():
    with pytest.raises(ValueError, match="rounds"):
        compared("engine.x", [1.0], [], target=1.0, unit="u", note="n")


def test_what_is_written_can_be_read_again_and_keeps_what_was_not_measured_anew(tmp_path):
    path = tmp_path / "latest.json"
    assert read(path) == []
    write(path, [figure("b.x"), figure("a.y", ours=1.0)])
    write(path, merged(read(path), [figure("a.y", ours=3.0)]))
    assert [(each.name, each.ours) for each in read(path)] == [("a.y", 3.0), ("b.x", 2.0)]


def test_the_tables_tell_every_figure_with_its_target():
    figures = [figure(), figure("engine.longer_name", ours=123_456.0, bound=AT_MOST)]
    lines = table(figures).splitlines()
    assert len(lines) == 3
    assert "≥ 1.5" in lines[1]
    assert "NO" in lines[2]
    assert "| `engine.longer_name` | a ÷ b | 123,500 msg/s |" in markdown(figures)
