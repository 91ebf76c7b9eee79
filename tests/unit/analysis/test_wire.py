from __future__ import annotations

import pytest

from battlebrokers.analysis.wire import read_wire
from battlebrokers.errors import RunFolderError
from battlebrokers.tables import STREAMS
from battlebrokers.tables.run_folder import RunFolder
from support.wires import MS, START_NS, US, Wires, small_system


def test_a_folder_without_captures_has_nothing_to_tell(tmp_path):
    assert read_wire(RunFolder(tmp_path)) is None


def test_the_services_are_those_with_a_name_or_a_server_the_busiest_first(tmp_path):
    assert read_wire(small_system().write(tmp_path)).services == ("gateway", "redis", "dispatcher", "web")


def test_a_named_service_nobody_could_read_is_still_there(tmp_path):
    wires = Wires()
    wires.stream(1, "sensor", None, None)
    assert read_wire(wires.write(tmp_path)).services == ("sensor",)


def test_the_slowest_messages_and_who_holds_them_are_found(tmp_path):
    wire = read_wire(small_system(400).write(tmp_path))
    assert wire.followed == 400
    # 1.3 ms on the way, and redis keeps every 20th for 30 ms more.
    assert {trace.took_ns for trace in wire.slowest} == {31_300 * US}
    assert wire.explanation.culprit.service == "redis"


def test_passages_tell_how_long_each_service_keeps_messages(tmp_path):
    found = {(one.sender, one.kind): one for one in read_wire(small_system().write(tmp_path)).passages}
    kept = found["redis", "message"]
    assert (kept.n, kept.inside_p50_ns, kept.inside_p95_ns) == (99, 200 * US, 30_200 * US)
    first = found["outside", "PUBLISH"]
    assert (first.n, first.inside_p50_ns) == (100, None)


def test_what_never_went_out_is_told_with_its_last_place(tmp_path):
    (gone,) = read_wire(small_system().write(tmp_path)).last_seen
    assert (gone.service, gone.n) == ("redis", 1)


def test_a_damaged_table_is_a_clear_error(tmp_path):
    folder = small_system().write(tmp_path)
    (folder.table(STREAMS) / "part-00000.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(RunFolderError, match=r"part-00000\.parquet cannot be read"):
        read_wire(folder)


def test_an_empty_capture_is_told_too(tmp_path):
    wire = read_wire(Wires().write(tmp_path))
    assert (wire.services, wire.followed, wire.slowest, wire.explanation) == ((), 0, (), None)


def test_rates_are_counted_while_two_peers_speak_but_over_a_second_at_least_and_the_capture_at_most(tmp_path):
    assert read_wire(small_system().write(tmp_path / "a")).span_s == 10.0
    wires = Wires()
    wires.stream(1, None, "a", "http", last_ns=START_NS + 2_500 * MS)
    for second in (0, 2):
        wires.talk(second, "outside", "a", "http", "request", 5, 100)
    wires.talk(1, "outside", "b", "http", "request", 7, 10)
    wire = read_wire(wires.write(tmp_path / "b"))
    # Three whole seconds were spoken in, but only two and a half captured.
    assert {arrow.receiver: (arrow.active_s, arrow.per_s) for arrow in wire.map.arrows} == {
        "a": (2.5, 4.0),
        "b": (1.0, 7.0),
    }
    assert wire.active_s("outside", "b", "http") == 1.0
    assert wire.active_s("nobody") == 2.5
    wires = Wires()
    wires.stream(1, None, "a", "http", last_ns=START_NS)
    assert read_wire(wires.write(tmp_path / "c")).span_s == 1.0
