from __future__ import annotations

from battlebrokers.analysis.conversations import Questions, read_conversations
from support.wires import START_NS, Wires, small_system


def busiest(wires, path, services=()):
    return read_conversations(wires.write(path), services)


def test_each_stream_tells_what_both_sides_asked(tmp_path):
    found = {one.row["stream"]: one for one in busiest(small_system(), tmp_path).busiest}
    assert found[1].from_client == Questions(asked=101, answered=101)
    assert found[2].from_client == Questions(asked=100, answered=99, uncertain=1)
    assert found[2].from_client.pending == 1
    assert found[4].from_server == Questions(asked=1, answered=0)
    assert found[5].from_client == Questions(asked=10, answered=10, failed=2)
    assert found[6].from_client == Questions()


def test_an_upgraded_stream_names_both_protocols(tmp_path):
    found = {one.row["stream"]: one for one in busiest(small_system(), tmp_path).busiest}
    assert found[4].messages == {"websocket": 102, "http": 2}
    assert found[4].protocols == "websocket, http"
    assert found[6].protocols == "udp, unknown"


def test_both_ends_are_named_as_the_pipeline_names_them(tmp_path):
    found = {one.row["stream"]: one for one in busiest(small_system(), tmp_path).busiest}
    assert (found[2].client, found[2].server) == ("gateway", "redis")
    assert (found[6].client, found[6].server) == ("outside", "198.51.100.7:9")


def test_the_uses_of_a_port_are_apart(tmp_path):
    wires = Wires()
    for epoch in (0, 1):
        wires.stream(1, None, None, "mqtt", epoch=epoch, client_bytes=10 - epoch)
        wires.said(1, "mqtt", 2 + epoch, epoch=epoch)
    wires.asked(1, "mqtt", "answered", 1, epoch=1)
    first, second = busiest(wires, tmp_path).busiest
    assert (first.messages, second.messages) == ({"mqtt": 2}, {"mqtt": 3})
    assert (first.from_client.asked, second.from_client.asked) == (0, 1)


def test_all_streams_are_added_up_though_only_the_busiest_are_kept(tmp_path):
    wires = Wires()
    for number in range(450):
        wires.stream(number, None, "redis" if number < 150 else None, "redis", client_bytes=number, retransmissions=1)
    found = busiest(wires, tmp_path, ["redis", "nobody"])
    assert (found.count, len(found.busiest)) == (450, 200)
    assert [one.row["stream"] for one in found.busiest] == list(range(449, 249, -1))
    assert (found.totals[0].streams, found.totals[0].retransmissions, found.totals[0].packets) == (450, 450, 4_500)
    assert found.totals[0].bytes == sum(range(450))
    assert found.count_of_service == {"redis": 150, "nobody": 0}
    assert [one.row["stream"] for one in found.of_service["redis"]] == list(range(149, 49, -1))


def test_packets_are_told_per_protocol(tmp_path):
    found = busiest(small_system(), tmp_path)
    told = {total.protocol: (total.streams, total.packets) for total in found.totals}
    assert told == {"redis": (2, 650), "mqtt": (1, 420), "websocket": (1, 260), "http": (1, 40), "unknown": (1, 2)}
    assert found.captured_ns == (START_NS, START_NS + 10_000_000_000)


def test_an_empty_capture_has_no_conversations(tmp_path):
    found = busiest(Wires(), tmp_path)
    assert (found.busiest, found.count, found.totals, found.captured_ns) == ((), 0, (), None)


def test_packets_are_told_by_what_they_carried(tmp_path):
    found = {one.row["stream"]: one for one in busiest(small_system(), tmp_path).busiest}
    assert found[4].packets == {"websocket": 102, "http": 2}
    assert found[4].bare_packets == 260 - 104
    assert (found[6].packets, found[6].bare_packets) == ({}, 2)


def test_packets_inside_one_another_carry_both_protocols_and_are_bare_once(tmp_path):
    wires = Wires()
    wires.stream(1, None, None, "websocket", packets=30)
    wires.said(1, "websocket", 10)
    wires.said(1, "mqtt", 10)  # in the same packets, and each of them a second time
    (one,) = busiest(wires, tmp_path).busiest
    assert one.packets == {"mqtt": 20, "websocket": 20}
    assert one.bare_packets == 10


def test_packets_of_an_earlier_use_of_the_ports_are_not_counted(tmp_path):
    wires = Wires()
    for epoch in (0, 1):
        wires.stream(1, None, None, "mqtt", epoch=epoch, client_bytes=10 - epoch)
        wires.said(1, "mqtt", 4 + epoch, epoch=epoch, from_ms=100 * epoch)
    first, second = busiest(wires, tmp_path).busiest
    assert (first.packets, second.packets) == ({"mqtt": 4}, {"mqtt": 5})
