from __future__ import annotations

import pyarrow as pa

from battlebrokers.analysis.clocks import clock_error_us
from battlebrokers.tables import CLOCKS


def probes(*rows: tuple[str, bool, int]) -> pa.Table:
    made = [
        {"worker": w, "same_clock": same, "t1_ns": 0, "t2_ns": 5, "t3_ns": 5, "t4_ns": trip_ns}
        for w, same, trip_ns in rows
    ]
    return pa.Table.from_pylist(made, schema=CLOCKS.arrow_schema())


def test_one_worker_has_one_clock():
    assert clock_error_us(probes(), workers=1) == 0


def test_workers_of_one_machine_have_one_clock():
    assert clock_error_us(probes(("a", True, 90_000), ("b", True, 80_000)), workers=2) == 0


def test_the_fastest_probes_of_the_two_worst_workers_add_up():
    found = clock_error_us(
        probes(("a", False, 200_000), ("a", False, 40_000), ("b", False, 60_000), ("c", True, 9)), workers=3
    )
    assert found == 20 + 30


def test_a_worker_never_probed_leaves_the_error_unknown():
    assert clock_error_us(probes(("a", False, 10)), workers=2) is None
