"""Conversations captured at both ends are found once, with answers worked out by hand. Needs no Spark."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.pipeline.twins import SCHEMA, twins
from battlebrokers.tables import STREAMS
from support.examples import examples

MS, SECOND = 1_000_000, 1_000_000_000
NOW = 1_790_000_000 * SECOND
_ABSENT = {c.name: None if c.nullable else {"string": "", "bool": False}.get(c.kind, 0) for c in STREAMS.columns}


def seen(stream: int, file: int, begin_s: float = 0.0, lasting_s: float = 10.0, **values: Any) -> dict[str, Any]:
    """A connection from the broker to the database, seen on one wire."""
    first_ns = NOW + round(begin_s * SECOND)
    base = {
        "stream": stream, "file": file, "transport": "tcp", "client": "10.0.0.1", "client_port": 40_000,
        "client_service": "broker", "server": "10.0.0.2", "server_port": 5432, "server_service": "database",
        "first_ns": first_ns, "last_ns": first_ns + round(lasting_s * SECOND), "packets": 100, "client_packets": 50,
        "client_bytes": 20_000, "server_bytes": 80_000, "completeness": 31,
    }  # fmt: skip
    return {**_ABSENT, **base, **values}


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=STREAMS.arrow_schema())


def found(*rows: dict[str, Any]) -> dict[tuple[int, int], tuple[int, int]]:
    told = twins(table(*rows)).to_pylist()
    answer = {(row["stream"], row["epoch"]): (row["twin_of_stream"], row["twin_of_epoch"]) for row in told}
    assert len(answer) == len(told)
    return answer


def test_of_two_ends_the_servers_is_kept() -> None:
    assert found(seen(1, 0, service="broker"), seen(2, 1, service="database")) == {(1, 0): (2, 0)}


def test_of_two_ends_the_one_with_fewer_gaps_is_kept() -> None:
    at_server = seen(2, 1, service="database", gap_bytes=3000, server_bytes=77_000)
    assert found(seen(1, 0, service="broker"), at_server) == {(2, 0): (1, 0)}


def test_where_nobody_said_whose_wire_it_is_the_first_file_is_kept() -> None:
    assert found(seen(7, 1), seen(9, 0)) == {(7, 0): (9, 0)}


def test_a_wire_that_saw_only_the_second_half_is_left_out_wherever_it_is() -> None:
    late = seen(2, 1, 5, 5, service="database", client_bytes=10_000, server_bytes=40_000, packets=50, completeness=8)
    assert found(seen(1, 0, service="broker"), late) == {(2, 0): (1, 0)}


def test_who_took_the_server_for_the_client_is_understood() -> None:
    turned = seen(
        2, 1, 3, 7, client="10.0.0.2", client_port=5432, server="10.0.0.1", server_port=40_000, client_bytes=60_000,
        server_bytes=15_000,
    )  # fmt: skip
    assert found(seen(1, 0), turned) == {(2, 0): (1, 0)}


@pytest.mark.parametrize("shift_s", [-0.9, -0.05, 0.0001, 0.3, 0.9])
@pytest.mark.parametrize("lasting_s", [0.0, 0.02, 10])
def test_clocks_may_differ_by_less_than_a_second(shift_s: float, lasting_s: float) -> None:
    assert found(seen(1, 0, 0, lasting_s), seen(2, 1, shift_s, lasting_s)) == {(2, 0): (1, 0)}


def test_another_time_or_another_end_is_another_conversation() -> None:
    first = seen(1, 0, 0, 1)
    assert found(first, seen(2, 1, 60, 1)) == {}
    assert found(first, seen(2, 1, 0, 1, client_port=40_001)) == {}
    assert found(first, seen(2, 1, 0, 1, client="10.0.0.3")) == {}
    assert found(first, seen(2, 1, 0, 1, transport="udp")) == {}
    assert found(first, seen(2, 1, 0, 1, client_port=5432, server_port=40_000)) == {}


def test_as_long_but_with_much_more_said_is_another_conversation() -> None:
    assert found(seen(1, 0), seen(2, 1, server_bytes=400_000)) == {}


def test_packets_count_only_where_nothing_was_said() -> None:
    """The sender's card cuts large packets, the receiver's joins them again."""
    assert found(seen(1, 0, packets=100), seen(2, 1, packets=9)) == {(2, 0): (1, 0)}
    silent = {"client_bytes": 0, "server_bytes": 0}
    assert found(seen(1, 0, packets=100, **silent), seen(2, 1, packets=9, **silent)) == {}
    assert found(seen(1, 0, packets=3, **silent), seen(2, 1, packets=2, **silent)) == {(2, 0): (1, 0)}


def test_loopback_of_two_machines_is_not_one_conversation() -> None:
    inside = {"client": "127.0.0.1", "server": "127.0.0.1"}
    assert found(seen(1, 0, 0, 0.01, **inside), seen(2, 1, 0.2, 0.01, **inside)) == {}
    assert found(seen(1, 0, 0, 0.01, **inside), seen(2, 1, 0, 0.01, **inside)) == {(2, 0): (1, 0)}


def test_lost_datagrams_do_not_hide_a_twin() -> None:
    talk = {"transport": "udp", "server_port": 5683, "completeness": 0}
    sent = seen(1, 0, service="broker", **talk)
    received = seen(2, 1, service="database", client_bytes=18_500, server_bytes=78_000, packets=95, **talk)
    assert found(sent, received) == {(1, 0): (2, 0)}


def test_uses_of_one_port_on_one_wire_are_never_twins() -> None:
    assert found(*(seen(1, 0, n * 0.1, 0.05, epoch=n) for n in range(20))) == {}


@pytest.mark.parametrize("shift_s", [-0.9, 0.0, 0.35, 0.9])
def test_each_use_of_a_port_finds_its_own_twin(shift_s: float) -> None:
    """The port is used again every 70 s, as Linux does at its soonest; file 1 continues on file 3."""
    here = [seen(1, 0, n * 70, 60, epoch=n) for n in range(30)]
    there = [seen(2, 1 if n < 10 else 3, n * 70 + shift_s, 60, epoch=n, gap_bytes=1) for n in range(30)]
    rows = here + there
    random.Random(1).shuffle(rows)
    assert found(*rows) == {(2, n): (1, n) for n in range(30)}


@pytest.mark.parametrize("shift_s", [0.0, 0.3, -0.3])
def test_ports_reused_faster_than_clocks_agree_are_paired_by_what_other_connections_tell(shift_s: float) -> None:
    here = [seen(1, 0, n * 0.5, 0.01, epoch=n) for n in range(8)]
    there = [seen(2, 1, n * 0.5 + shift_s, 0.01, epoch=n + 2) for n in range(1, 8)]
    others = [
        row
        for port in range(5)
        for row in (
            seen(10 + port, 0, port, 1, client_port=50_000 + port),
            seen(20 + port, 1, port + shift_s, 1, client_port=50_000 + port),
        )
    ]
    expected = {(2, n + 2): (1, n) for n in range(1, 8)} | {(20 + n, 0): (10 + n, 0) for n in range(5)}
    assert found(*here, *there, *others) == expected


def test_what_was_said_tells_uses_apart_whose_times_do_not() -> None:
    here = [seen(1, 0, n * 0.2, 0.05, epoch=n, server_bytes=1000 + n) for n in range(3)]
    there = [seen(2, 1, 0.4 + n * 0.2, 0.05, epoch=n, server_bytes=1000 + n) for n in range(3)]
    assert found(*here, *there) == {(2, n): (1, n) for n in range(3)}


def test_three_wires_keep_one() -> None:
    rows = [seen(1, 0, gap_bytes=5), seen(2, 1, 0.001, service="database"), seen(3, 2, 0.002)]
    assert found(*rows) == {(1, 0): (2, 0), (3, 0): (2, 0)}


def test_nothing_has_no_twins() -> None:
    assert twins(table()).schema == SCHEMA
    assert len(twins(table())) == 0
    assert found(seen(1, 0)) == {}


def many(pairs: int, single: int) -> pa.Table:
    """Connections seen at both ends, and such that were seen once, as columns."""
    rows = 2 * pairs + single
    number = np.arange(rows)
    ends = np.where(number < 2 * pairs, number // 2, number)
    first = NOW + ends * MS + np.where(number % 2, 40_000, 0)
    base = table(seen(0, 0)).take(pa.array(np.zeros(rows, dtype=np.int64)))
    clients = pa.array([f"10.1.{end // 30_000}.{end % 250}" for end in ends.tolist()])
    columns = {
        "stream": number, "file": number % 2, "client_port": 1024 + ends % 30_000, "first_ns": first,
        "last_ns": first + SECOND,
    }  # fmt: skip
    for name, values in columns.items():
        place = base.schema.get_field_index(name)
        base = base.set_column(place, base.schema.field(name), pa.array(values, type=base.schema.field(name).type))
    return base.set_column(base.schema.get_field_index("client"), base.schema.field("client"), clients)


@pytest.mark.parametrize(("pairs", "single"), [(100, 99_800), (50_000, 0)])
def test_a_hundred_thousand_streams_take_less_than_a_second(pairs: int, single: int) -> None:
    streams = many(pairs, single)
    begin = time.process_time()
    told = twins(streams)
    assert time.process_time() - begin < 1
    assert told.column("stream").to_pylist() == list(range(1, 2 * pairs, 2))
    assert told.column("twin_of_stream").to_pylist() == list(range(0, 2 * pairs, 2))


def test_one_port_reused_without_end_takes_no_longer() -> None:
    rows = [seen(wire, wire, n * 0.0001, 0.00005, epoch=n) for n in range(10_000) for wire in (0, 1)]
    streams = table(*rows)
    begin = time.process_time()
    told = twins(streams)
    assert time.process_time() - begin < 2
    assert told.num_rows == 10_000


@examples(100)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.integers(0, 2), st.integers(0, 2), st.integers(0, 5000), st.integers(0, 3000),
            st.integers(0, 20_000), st.integers(0, 2),
        ),
        max_size=40,
    )
)  # fmt: skip
def test_whatever_was_seen_each_twin_has_one_kept_row_of_another_wire(drawn: list[tuple[int, ...]]) -> None:
    rows = [
        seen(
            port * 10 + wire, wire, begin / 1000, lasting / 1000, epoch=number, client_port=port, server_bytes=said,
            gap_bytes=gap, packets=said % 7, service=("broker", "database", None)[extra],
        )
        for number, (port, wire, extra, begin, lasting, said, gap) in enumerate(drawn)
    ]  # fmt: skip
    told = found(*rows)
    keys = {(row["stream"], row["epoch"]) for row in rows}
    assert told.keys() | set(told.values()) <= keys
    assert not told.keys() & set(told.values())
    for kept in set(told.values()):
        wires = [kept[0], *(twin[0] for twin, of in told.items() if of == kept)]
        assert len(set(wires)) == len(wires)
        assert len({wire // 10 for wire in wires}) == 1
    random.Random(1).shuffle(rows)
    assert found(*rows) == told
