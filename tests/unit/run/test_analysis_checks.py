"""What Spark needs is known before the load, and not when there is something to lose."""

from __future__ import annotations

from dataclasses import replace

import pytest

from battlebrokers.errors import EnvironmentNotReady
from battlebrokers.run.analysis_checks import analysis
from battlebrokers.run.machine import Machine
from battlebrokers.run.preflight import Needs, require

GIB = 1 << 30
GOOD = Machine(
    open_files_soft=1024, open_files_hard=4096, memory_bytes=16 * GIB, scratch_folder="tmp", scratch_free_bytes=10 * GIB
)
SMALL = Needs(connections=10, events=100_000)


@pytest.mark.parametrize(
    ("lack", "name"),
    [
        ({"open_files_soft": 256, "open_files_hard": 256}, "Java files"),
        ({"address_space_bytes": 2 * GIB}, "address space"),
        ({"scratch_free_bytes": 0}, "scratch"),
        ({"scratch_folder": ""}, "scratch"),
    ],
)
def test_what_it_lacks_is_told_with_its_fix(lack: dict[str, object], name: str) -> None:
    checks = analysis(replace(GOOD, **lack), SMALL)
    (check,) = [each for each in checks if each.state == "fail"]
    assert check.name == name
    assert check.fix
    with pytest.raises(EnvironmentNotReady, match=name):
        require(checks)


def test_a_larger_load_needs_a_larger_heap_and_more_room() -> None:
    tight = replace(GOOD, address_space_bytes=4 * GIB, scratch_free_bytes=100 << 20)
    assert [each.state for each in analysis(tight, SMALL)] == ["ok", "ok", "ok"]
    assert [each.state for each in analysis(tight, Needs(events=100_000_000))] == ["ok", "fail", "fail"]
