"""The broker inside a ring of real switches: cables are cut and put back, messages find their way."""

from __future__ import annotations

from pathlib import Path

import pytest

from battlebrokers.errors import InputError
from battlebrokers.sdn.lab.open_vswitch import what_is_missing
from support.stage import stage
from support.waiting import until

_MISSING = what_is_missing()
pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(_MISSING is not None, reason=f"{_MISSING.message}: {_MISSING.hint}" if _MISSING else ""),
]
MODES = ("reactive", "group", "tree")


def test_a_cut_cable_in_a_ring_is_gone_around(tmp_path: Path) -> None:
    with stage(tmp_path, "ring") as ring:
        whole = len(ring.topology.wires)
        resources = {mode: ring.create(mode, subscribers=("h3", "h4", "h5")) for mode in MODES}
        for cable in (1, 2, 4):
            ring.lab.cut(cable)
            until(lambda: len(ring.ask("GET", "/api/v1/topology")["links"]) == whole - 1, what="the cut")
            said = {f"{mode} around {cable}".encode() for mode in MODES}
            for mode, resource in resources.items():
                ring.publish("h1", resource, f"{mode} around {cable}".encode())
            came = ring.heard()
            for host in ("h3", "h4", "h5"):
                assert {payload for payload, _ in came[host]} == said
                assert len(came[host]) == len(MODES)
            ring.lab.cut(cable, restore=True)
            until(lambda: len(ring.ask("GET", "/api/v1/topology")["links"]) == whole, what="the cable back")
        assert ring.errors() == 0


def test_cables_inside_the_switch_carry_the_same_copies(tmp_path: Path) -> None:
    with stage(tmp_path, "ring", "patch") as ring:
        resources = {mode: ring.create(mode, subscribers=("h3", "h5")) for mode in MODES}
        for mode, resource in resources.items():
            ring.publish("h1", resource, mode.encode())
        came = ring.heard()
        assert set(came) == {"h3", "h5"}
        for host in came:
            assert sorted(payload.decode() for payload, _ in came[host]) == sorted(MODES)
        assert ring.errors() == 0
        with pytest.raises(InputError):
            ring.lab.cut(1)
