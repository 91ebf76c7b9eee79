"""Beacons that did not cross a link of ours just now make none: guessed, kept for later, or where a host lives."""

from __future__ import annotations

import pytest

from battlebrokers.sdn.core import broker
from battlebrokers.sdn.core.broker import BEACON_LIFE_MS
from battlebrokers.sdn.core.frames import Beacon, beacon_frame
from battlebrokers.sdn.core.instructions import Send
from battlebrokers.sdn.core.network import Port
from battlebrokers.sdn.fake_network import FakeNetwork
from support.datagrams import arp_frame

HOST, OTHER, FREE = Port(1, 1), Port(2, 1), Port(2, 2)
"""Where hosts live, and a port where nobody is known."""


@pytest.fixture
def network() -> FakeNetwork:
    made = FakeNetwork({1: frozenset({1, 3, 4}), 2: frozenset({1, 2, 3})}, [(Port(1, 3), Port(2, 3))])
    made.start()
    for number, port in enumerate((HOST, OTHER), 1):
        made.inject(port, arp_frame(f"00:00:00:00:01:0{number}", f"10.0.0.{number}", f"10.0.0.{number}"))
    made.now_ms = 100_000
    made.discover()
    assert set(made.state.network.links) == {Port(1, 3), Port(2, 3)}
    return made


def forged_from(network: FakeNetwork, port: Port, frame: bytes) -> int:
    """How many more forged links were counted; none is believed."""
    before = network.state.drops.get("forged link", 0)
    links = network.state.network.links
    assert network.inject(port, frame) == []
    assert network.state.network.links == links
    return network.state.drops.get("forged link", 0) - before


def true_beacon(network: FakeNetwork, port: Port) -> bytes:
    """What a host overhears at a port where nobody is known."""
    orders = broker.beacons(network.state, network.now_ms)[port.switch]
    (frame,) = [one.frame for one in orders if isinstance(one, Send) and f"Output(port={port.number})" in str(one)]
    return frame


def test_one_signed_with_another_key_is_counted_by_the_controller(network: FakeNetwork) -> None:
    assert forged_from(network, FREE, beacon_frame(Beacon(1, 4, network.now_ms), b"a guess")) == 1


def test_one_whose_place_was_changed_is_none(network: FakeNetwork) -> None:
    frame = true_beacon(network, Port(1, 4))
    said = frame.index(b"\x00\xbb\xbb\x01") + 4
    assert forged_from(network, FREE, frame[: said + 11] + b"\x03" + frame[said + 12 :]) == 1


@pytest.mark.parametrize("later_ms", [BEACON_LIFE_MS + 1, -1])
def test_one_that_was_kept_or_comes_from_the_future_is_none(network: FakeNetwork, later_ms: int) -> None:
    kept = true_beacon(network, Port(1, 4))
    network.now_ms += later_ms
    assert forged_from(network, FREE, kept) == 1


def test_a_true_and_fresh_one_is_none_at_a_port_where_a_host_lives(network: FakeNetwork) -> None:
    frame = true_beacon(network, Port(1, 4))
    assert forged_from(network, OTHER, frame) == 0
    assert network.switches[2].counted["forged link"] == 1
    # The controller does not believe it either, should the switch not know of the host yet.
    state, orders = broker.packet_came(network.state, OTHER, frame, network.now_ms)
    assert (state.network.links, orders) == (network.state.network.links, {})
    assert state.drops["forged link"] == 1


def test_one_that_names_a_port_where_a_host_lives_is_none(network: FakeNetwork) -> None:
    """Only we could have signed it, before the host was known."""
    frame = beacon_frame(Beacon(HOST.switch, HOST.number, network.now_ms), network.state.secret)
    assert forged_from(network, FREE, frame) == 1


def test_one_that_comes_back_to_where_it_was_sent_is_none(network: FakeNetwork) -> None:
    assert forged_from(network, FREE, true_beacon(network, FREE)) == 1
