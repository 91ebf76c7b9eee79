"""A network with loops while messages flow: subscriptions change, cables are cut, switches cut off and removed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from battlebrokers.sdn.lab.open_vswitch import what_is_missing
from support.network_load import Load, changes_in_effect
from support.stage import Stage, stage
from support.waiting import until

_MISSING = what_is_missing()
pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(_MISSING is not None, reason=f"{_MISSING.message}: {_MISSING.hint}" if _MISSING else ""),
]
MODES = ("reactive", "direct", "group", "tree")


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("ring"), "ring") as made:
        yield made


def test_a_cut_cable_in_a_ring_costs_a_gap_and_no_more(ring: Stage) -> None:
    hosts = ("h2", "h3", "h4", "h5")
    for mode in MODES:
        resource = ring.create(mode, subscribers=hosts)
        with Load(ring, resource) as load:
            load.further(hosts, 100)
            before = len(load.sent_ns)
            ring.lab.cut(1)
            try:
                until(
                    lambda: len(ring.ask("GET", "/api/v1/topology")["links"]) == len(ring.topology.wires) - 1, what="it"
                )
                load.further(hosts, 200)
                sent = load.ended(hosts)
            finally:
                # The other tests of this file use the same network.
                ring.lab.cut(1, restore=True)
        for host in hosts:
            lost = load.missing(host)
            # Nothing before the cut but what was on its way, one gap, and everything after it.
            assert all(number > before - 30 for number in lost), (mode, host, lost, before)
            assert not lost or lost[-1] - lost[0] < (sent - before) / 2, (mode, host, lost, before, sent)
        assert load.twice == 0, mode
        until(lambda: ring.is_whole(), what="the cable back")


@pytest.mark.parametrize("mode", MODES)
def test_whoever_stays_notices_nothing_of_those_who_join_and_leave(ring: Stage, mode: str) -> None:
    # From the publisher's switch there are three ways to that of h4, and two to that of h5.
    changes_in_effect(ring, mode, 20, changing="h5", beside="h4", far="h3")


@pytest.mark.parametrize("mode", ["group", "tree"])
def test_a_switch_that_is_cut_off_is_named_and_told_when_it_is_back(ring: Stage, mode: str) -> None:
    resource = ring.create(mode, subscribers=("h6", "h4"))
    at, who = f"/api/v1/resources/{resource}", ring.hosts["h6"].mac
    ring.calls("s1", 1)
    until(lambda: not ring.is_whole(), what="the cut")
    status, told = ring.refused("DELETE", f"{at}/subscribers/{who}")
    assert (status, "switch 1 (away)" in told["message"]) == (503, True), told
    # It goes on: that is why.
    ring.publish("h1", resource, b"to one who left")
    assert ring.ask("GET", at)["pending"] == [1]
    ring.calls("s1", ring.openflow_port)
    until(ring.is_whole, what="the switch and its links")
    assert ring.ask("GET", at)["pending"] == []
    came = ring.heard()
    assert [payload for payload, _ in came["h6"]] == [b"to one who left"]
    ring.publish("h1", resource, b"as it should be")
    assert ring.heard() == {"h4": [(b"as it should be", ring.hosts["h1"].ipv4)]}


def test_a_switch_that_is_removed_is_gone_around(ring: Stage) -> None:
    """All ways lead over s2 as long as it is there. The last test: it does not come back."""
    hosts = ("h3", "h4", "h5")
    resources = {mode: ring.create(mode, subscribers=hosts) for mode in MODES}
    with Load(ring, *resources.values()) as load:
        load.further(hosts, 100)
        before = len(load.sent_ns)
        ring.lab.switching.run("ovs-vsctl", "--timeout=10", "del-br", "bbts2")
        until(lambda: len(ring.ask("GET", "/api/v1/topology")["links"]) == len(ring.topology.wires) - 3, what="it")
        load.further(hosts, 300)
        sent = load.ended(hosts)
    for number, mode in enumerate(MODES):
        for host in hosts:
            lost = [one for one in load.missing(host) if one % len(MODES) == number]
            assert all(one > before - 30 for one in lost), (mode, host, lost, before)
            assert not lost or lost[-1] - lost[0] < (sent - before) / 2, (mode, host, lost, before, sent)
            assert sent - 1 - (sent - 1 - number) % len(MODES) in load.came[host], (mode, host)
    assert load.twice == 0
    # It could be cut off only: changes name it, until somebody says that it will not come back.
    path = f"/api/v1/resources/{resources['tree']}/subscribers"
    status, told = ring.refused("DELETE", f"{path}/{ring.hosts['h3'].mac}")
    assert (status, "switch 2 (away)" in told["message"]) == (503, True), told
    ring.ask("DELETE", "/api/v1/switches/2")
    assert ring.refused("DELETE", "/api/v1/switches/2")[0] == 404
    ring.unsubscribe(resources["tree"], "h4")
    ring.publish("h1", resources["tree"], b"to the last")
    until(lambda: any(payload == b"to the last" for payload, _ in ring._drained("h5")), what="the last message")
