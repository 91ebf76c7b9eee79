"""Floods on real Open vSwitch: what reaches the controller is bounded by the switches themselves, and counted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from battlebrokers.sdn.core.network import Port
from battlebrokers.sdn.core.resources import Directory, Mode
from battlebrokers.sdn.core.rules import QUESTIONS, burst_of, meter_of
from battlebrokers.sdn.observer import Observer
from support.datagrams import udp_frame
from support.dummy_switches import DummySwitches, LoopInBackground, RealNetwork, background, needs_open_vswitch, ovs
from support.waiting import until

__all__ = ["background", "ovs"]
pytestmark = [pytest.mark.slow, pytest.mark.broker, needs_open_vswitch]

PUBLISHER, SUBSCRIBER = HOSTS = [
    ("00:00:00:00:01:01", "10.0.0.1", Port(1, 1)),
    ("00:00:00:00:01:02", "10.0.0.2", Port(1, 2)),
]
PER_S = 20
FLOOD = 600


@pytest.fixture
def real(ovs: DummySwitches, background: LoopInBackground, tmp_path: Path) -> Iterator[RealNetwork]:
    network = RealNetwork(ovs, tmp_path, background, {1: frozenset({1, 2})}, [], reactive_per_s=PER_S)
    try:
        network.start()
        network.announce(HOSTS)
        yield network
    finally:
        network.stop()


@pytest.mark.parametrize("mode", [Mode.REACTIVE, Mode.DIRECT])
def test_a_flood_on_one_resource_is_held_back_in_the_switch_and_counted(
    real: RealNetwork, background: LoopInBackground, mode: Mode
) -> None:
    observer = Observer(real.controller)
    directory, flooded = Directory().created(mode)
    directory, other = directory.created(mode)
    for resource in (flooded, other):
        directory = directory.subscribed(resource.address, *SUBSCRIBER[:2])
    real.change(directory)
    mac, ipv4, port = PUBLISHER
    counts = real.controller.channels[1].counts
    asked, began = counts.packet_ins, time.monotonic()
    for number in range(FLOOD):
        real.inject(port, udp_frame(mac, ipv4, flooded.address, b"flood %d" % number))
    real.inject(port, udp_frame(mac, ipv4, other.address, b"not held back"))
    until(lambda: any(b"not held back" in frame for _, frame in real.came()), what="a message on another resource")
    # What is sent in more time than this, may take more time.
    allowed = burst_of(PER_S) + PER_S * (time.monotonic() - began + 1) + 1
    assert counts.packet_ins - asked <= allowed

    def held_back() -> int:
        background.run(observer._take_in())
        return observer.sums().lost[flooded.address]

    until(lambda: held_back() >= FLOOD - allowed, what="the switch to have counted what it held back")
    sums = observer.sums()
    assert sums.delivered[flooded.address] + sums.lost[flooded.address] == FLOOD
    assert sums.dropped["over the limit"] == sums.lost[flooded.address]
    assert sums.lost[other.address] == 0


def test_another_limit_changes_the_meter_and_keeps_the_rules(real: RealNetwork, ovs: DummySwitches) -> None:
    directory, resource = Directory().created(Mode.REACTIVE)
    real.change(directory)
    before = real.tables()[1].rules
    real.stop_controller()
    real._limits["reactive_per_s"] = 500
    real.state = None
    real.start_controller()
    until(lambda: 1 in real.controller.channels, what="the switch")
    real.change(directory)
    real.announce(HOSTS)
    assert real.tables()[1].rules == before
    told = ovs.run("ovs-ofctl", "-O", "OpenFlow13", "dump-meters", "s1")
    assert f"meter={QUESTIONS.id} " in told
    assert f"meter={meter_of(resource)} " in told
    assert "rate=500" in told
    assert (real.controller.channels[1].counts.errors, real.controller.channels[1].refused) == (0, "")
