from __future__ import annotations

import tracemalloc

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from battlebrokers.analysis.traffic import OTHERS, read_traffic
from battlebrokers.tables import TRAFFIC
from battlebrokers.tables.run_folder import RunFolder
from support.wires import START_S, Wires, small_system


def test_bytes_are_added_up_per_second_and_protocol(tmp_path):
    wires = Wires()
    wires.talk(0, "a", "b", "http", "request", 1, 100)
    wires.talk(0, "b", "a", "http", "response", 1, 50)
    wires.talk(2, "a", "b", "http", "request", 1, 30)
    wires.talk(2, "b", "a", "redis", "other", 7, 700)
    traffic = read_traffic(wires.write(tmp_path))
    assert (traffic.first_second, traffic.columns, traffic.seconds_per_column, traffic.seconds) == (START_S, 3, 1, 3)
    assert {line.name: line.bytes_per_s for line in traffic.protocols} == {"redis": (0, 0, 700), "http": (150, 0, 30)}
    assert {line.name: line.bytes_per_s for line in traffic.services} == {"b": (50, 0, 700), "a": (100, 0, 30)}


def test_what_is_neither_request_nor_response_is_a_band_of_its_own(tmp_path):
    traffic = read_traffic(small_system().write(tmp_path))
    pushed = [(line.name, line.peak) for line in traffic.bands if line.unasked]
    assert pushed == [("redis", 1100), ("websocket", 1050)]
    order = [line.name for line in traffic.protocols]
    assert [line.name for line in traffic.bands if not line.unasked] == order
    places = [(order.index(line.name), line.unasked) for line in traffic.bands]
    assert places == sorted(places)


def test_the_bands_of_a_protocol_add_up_to_it_also_beyond_six(tmp_path):
    wires = Wires()
    for number in range(9):
        wires.talk(0, "a", "b", f"p{number}", "request", 1, 1000 - number)
        wires.talk(1, "a", "b", f"p{number}", "other", 1, 100 - number)
    traffic = read_traffic(wires.write(tmp_path))
    for line in traffic.protocols:
        mine = [band.bytes_per_s for band in traffic.bands if band.name == line.name]
        assert tuple(sum(values) for values in zip(*mine, strict=True)) == line.bytes_per_s
    assert {line.name for line in traffic.bands} == {line.name for line in traffic.protocols}


def test_flows_count_messages_by_their_part(tmp_path):
    flows = {(f.sender, f.receiver, f.protocol): f for f in read_traffic(small_system().write(tmp_path)).flows}
    pushed = flows["redis", "dispatcher", "redis"]
    assert (pushed.requests, pushed.responses, pushed.others, pushed.bytes) == (0, 0, 100, 11_000)
    assert flows["dispatcher", "outside", "websocket"].messages == 101


def test_a_long_capture_is_told_in_a_bounded_number_of_columns(tmp_path):
    wires = Wires()
    wires.talk(0, "a", "b", "http", "request", 1, 100)
    wires.talk(86_399, "a", "b", "http", "request", 1, 1440)
    traffic = read_traffic(wires.write(tmp_path))
    assert (traffic.seconds_per_column, traffic.columns) == (144, 600)
    assert traffic.protocols[0].bytes_per_s[-1] == 10.0
    assert sum(traffic.protocols[0].bytes_per_s) * 144 == pytest.approx(1540)


def test_beyond_six_protocols_the_rest_is_one_line(tmp_path):
    wires = Wires()
    for number in range(9):
        wires.talk(0, "a", "b", f"p{number}", "request", 1, 1000 - number)
    lines = read_traffic(wires.write(tmp_path)).protocols
    assert [line.name for line in lines] == ["p0", "p1", "p2", "p3", "p4", "p5", OTHERS]
    assert lines[-1].bytes_per_s == (994 + 993 + 992,)


def test_silence_is_no_error(tmp_path):
    traffic = read_traffic(Wires().write(tmp_path))
    assert (traffic.columns, traffic.seconds, traffic.protocols, traffic.flows) == (0, 0, (), ())


def test_the_length_of_a_capture_takes_no_memory(tmp_path):
    folder, seconds = RunFolder(tmp_path), 50_000
    columns = {
        "second": list(range(START_S, START_S + seconds)), "sender": ["a"] * seconds, "receiver": ["b"] * seconds,
        "protocol": ["http"] * seconds, "part": ["request"] * seconds, "messages": [1] * seconds,
        "bytes": [7] * seconds,
    }  # fmt: skip
    folder.table(TRAFFIC).mkdir(parents=True)
    rows = pa.table(columns).cast(TRAFFIC.arrow_schema())
    pq.write_table(rows, folder.table(TRAFFIC) / "a.parquet", row_group_size=2000)
    del columns, rows
    tracemalloc.start()
    try:
        traffic = read_traffic(folder)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(traffic.protocols[0].bytes_per_s) * traffic.seconds_per_column == pytest.approx(7 * seconds)
    assert peak_bytes < 2_000_000
