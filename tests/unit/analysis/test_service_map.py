from __future__ import annotations

from battlebrokers.analysis.delays import read_asked
from battlebrokers.analysis.service_map import draw_map
from battlebrokers.analysis.traffic import OTHERS, Flow, read_traffic
from support.wires import Wires, small_system


def of(wires, path):
    folder = wires.write(path)
    traffic = read_traffic(folder)
    return draw_map(traffic.flows, read_asked(folder), max(1, traffic.seconds))


def flow(sender, receiver, protocol="http", requests=1, responses=0, others=0, size=100):
    return Flow(sender, receiver, protocol, requests, responses, others, size)


def test_arrows_are_what_is_said_of_ones_own_accord(tmp_path):
    arrows = {(a.sender, a.receiver, a.protocol): a for a in of(small_system(), tmp_path).arrows}
    assert set(arrows) == {
        ("outside", "gateway", "mqtt"), ("gateway", "redis", "redis"), ("redis", "dispatcher", "redis"),
        ("dispatcher", "redis", "redis"), ("dispatcher", "outside", "websocket"), ("outside", "dispatcher", "http"),
        ("web", "gateway", "http"),
    }  # fmt: skip
    asked = arrows["gateway", "redis", "redis"]
    assert (asked.messages, asked.per_s, asked.p50_ns, asked.failures, asked.bytes) == (100, 10.0, 80_000, 1, 12_000)
    pushed = arrows["redis", "dispatcher", "redis"]
    assert (pushed.messages, pushed.p50_ns, pushed.failures) == (100, None, 0)
    assert arrows["web", "gateway", "http"].failures == 2


def test_layers_count_the_steps_from_outside(tmp_path):
    layers = {node.name: node.layer for node in of(small_system(), tmp_path).nodes}
    assert layers == {"outside": 0, "web": 0, "gateway": 1, "dispatcher": 1, "redis": 2}


def test_a_ring_of_services_ends():
    ring = [flow("outside", "a"), flow("a", "b"), flow("b", "c"), flow("c", "a")]
    assert {node.name: node.layer for node in draw_map(ring, [], 1).nodes} == {"outside": 0, "a": 1, "b": 2, "c": 3}


def test_without_an_outside_the_busiest_speaker_begins():
    flows = [flow("b", "c", requests=9), flow("a", "b", requests=5)]
    layers = {node.name: node.layer for node in draw_map(flows, [], 1).nodes}
    assert layers == {"b": 0, "c": 1, "a": 0}


def test_beyond_twelve_the_quietest_peers_are_drawn_as_one():
    flows = [flow("outside", f"10.0.0.{n}:80", size=1_000 - n) for n in range(40)]
    found = draw_map(flows, [], 10)
    assert len(found.nodes) == 12
    assert found.folded == 30
    (others,) = [arrow for arrow in found.arrows if arrow.receiver == OTHERS]
    assert (others.messages, others.per_s) == (30, 3.0)


def test_answers_alone_draw_no_arrow():
    found = draw_map([flow("a", "b"), flow("b", "a", requests=0, responses=5)], [], 1)
    assert [(arrow.sender, arrow.receiver) for arrow in found.arrows] == [("a", "b")]


def test_an_empty_capture_has_an_empty_map(tmp_path):
    found = of(Wires(), tmp_path)
    assert (found.nodes, found.arrows) == ((), ())
