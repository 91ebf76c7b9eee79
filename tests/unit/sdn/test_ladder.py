"""The ladder of one message from made-up captures: every mode, both sources, and captures that are cut or damaged."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.errors import InputError
from battlebrokers.sdn.core.addresses import VIRTUAL_MAC
from battlebrokers.sdn.core.frames import Beacon, arp_answer, beacon_frame, mac_bytes, read_arp
from battlebrokers.sdn.ladder.conversation import PacketOut, Segment, messages_of, packet_in, packet_out
from battlebrokers.sdn.ladder.facts import Facts, HostAddresses, HostCable, OpenFlow, WireEnd, read_facts, write_facts
from battlebrokers.sdn.ladder.picture import page, svg
from battlebrokers.sdn.ladder.sightings import read_captures
from battlebrokers.sdn.ladder.steps import Ladder, build
from battlebrokers.sdn.ladder.words import as_json, heading, lines, remarks
from battlebrokers.sdn.openflow.wire import HEADER, PACKET_IN
from battlebrokers.sdn.openflow.wire import packet_out as packed_out
from support import capture_writer as writer
from support.datagrams import arp_frame, udp_frame

RESOURCE, PORT = "1.1.1.1", 6653
MARK = "ladder-0123456789abcdef"
PAYLOAD = f"{MARK} hello".encode()
MACS = {f"h{number}": f"00:00:00:00:00:0{number}" for number in range(1, 4)}
IPV4 = {f"h{number}": f"10.0.0.{number}" for number in range(1, 4)}
H1, H2, H3, S1_TO_S2, S2_TO_S1, LO = range(6)
PLACES = [
    HostCable(interface="h1", host="h1", switch="s1"),
    HostCable(interface="h2", host="h2", switch="s1"),
    HostCable(interface="h3", host="h3", switch="s2"),
    WireEnd(interface="w1", switch="s1", other="s2", cable=1),
    WireEnd(interface="w2", switch="s2", other="s1", cable=1),
    OpenFlow(interface="lo"),
]
Passed = tuple[int, int, bytes]
"""Microsecond, interface, frame."""


def facts(mode: str = "tree", subscribers: tuple[str, ...] = ("h2", "h3"), file: str = "all.pcapng") -> Facts:
    return Facts(
        resource=RESOURCE, mode=mode, source="publisher", publisher="h1", mark=MARK, openflow_port=PORT,
        switches={"s1": 1, "s2": 2}, hosts={name: HostAddresses(mac=MACS[name], ipv4=IPV4[name]) for name in MACS},
        subscribers=list(subscribers), files={file: PLACES},
    )  # fmt: skip


def capture(passed: list[Passed]) -> bytes:
    front = writer.section() + b"".join(writer.interface(resolution=9) for _ in PLACES)
    frames = (
        writer.Frame(1_700_000_000_000_000_000 + at * 1000, frame, interface=place) for at, place, frame in passed
    )
    return front + b"".join(writer.packet(frame, resolution=9) for frame in frames)


def told(folder: Path, passed: list[Passed] | bytes, said: Facts | None = None) -> Ladder:
    said = said or facts()
    (folder / "all.pcapng").write_bytes(passed if isinstance(passed, bytes) else capture(passed))
    return build(said, read_captures(folder, said))


def hops(ladder: Ladder) -> list[tuple[int, str, str, str]]:
    return [(step.time_ns // 1000, step.sender, step.receiver, step.what) for step in ladder.steps]


def published(to: str = RESOURCE, to_mac: str = VIRTUAL_MAC, mac: str = MACS["h1"], ipv4: str = IPV4["h1"]) -> bytes:
    return udp_frame(mac, ipv4, to, PAYLOAD, to_mac=to_mac)


def copy_for(host: str, *, from_resource: bool = False) -> bytes:
    if from_resource:
        return published(IPV4[host], MACS[host], VIRTUAL_MAC, RESOURCE)
    return published(IPV4[host], MACS[host])


def asked(in_port: int, frame: bytes, buffer: int = 0xFFFFFFFF) -> bytes:
    match = struct.pack("!HHII", 1, 12, 0x80000004, in_port) + bytes(4)
    body = struct.pack("!IHBBQ", buffer, len(frame), 1, 2, 0) + match + bytes(2) + frame
    return HEADER.pack(4, PACKET_IN, HEADER.size + len(body), 0) + body


def output(port: int) -> bytes:
    return struct.pack("!HHIH6x", 0, 16, port, 0xFFFF)


def rewrite(field: int, value: bytes) -> bytes:
    size = (8 + len(value) + 7) // 8 * 8
    return (struct.pack("!HHI", 25, size, field) + value).ljust(size, b"\0")


def copies(*hosts: tuple[str, int]) -> bytes:
    return b"".join(
        rewrite(0x80000606, mac_bytes(MACS[name])) + rewrite(0x80001804, bytes(map(int, IPV4[name].split("."))))
        + output(port) for name, port in hosts
    )  # fmt: skip


def segment(said: bytes, switch_port: int, seq: int, *, to_controller: bool) -> bytes:
    ports = (switch_port, PORT) if to_controller else (PORT, switch_port)
    return writer.ethernet(
        writer.ipv4(writer.tcp(*ports, seq=seq, payload=said, flags=24), source="127.0.0.1", destination="127.0.0.1")
    )


def beacon(switch: int) -> bytes:
    return packed_out(output(1), beacon_frame(Beacon(switch, 1, 5), b"secret"), 0xFFFFFFFD)


TREE: list[Passed] = [
    (0, H1, published()), (40, H2, copy_for("h2")), (50, S1_TO_S2, published()), (52, S2_TO_S1, published()),
    (90, H3, copy_for("h3")),
]  # fmt: skip


def test_a_tree_has_one_copy_per_link_and_rewrites_at_the_edge(tmp_path: Path) -> None:
    ladder = told(tmp_path, TREE)
    assert hops(ladder) == [
        (0, "h1", "s1", "UDP 10.0.0.1 → 1.1.1.1"),
        (40, "s1", "h2", "UDP 10.0.0.1 → 10.0.0.2"),
        (50, "s1", "s2", "UDP 10.0.0.1 → 1.1.1.1"),
        (90, "s2", "h3", "UDP 10.0.0.1 → 10.0.0.3"),
    ]
    assert [bool(step.note) for step in ladder.steps] == [False, True, False, True]
    assert ladder.steps[3].note == f"rewritten: destination 10.0.0.3 {MACS['h3']}"
    assert [line.name for line in ladder.lifelines] == ["h1", "s1", "s2", "h2", "h3"]
    assert ladder.missing == ()
    assert not ladder.unread


def test_the_end_that_saw_it_first_sent_it_whatever_comes_first_in_the_file(tmp_path: Path) -> None:
    ladder = told(tmp_path, [(52, S1_TO_S2, published()), (50, S2_TO_S1, published())])
    assert hops(ladder) == [(0, "s2", "s1", "UDP 10.0.0.1 → 1.1.1.1")]
    alone = told(tmp_path, [(52, S1_TO_S2, published())])
    assert hops(alone) == [(0, "s1", "s2", "UDP 10.0.0.1 → 1.1.1.1")]


def test_groups_rewrite_at_the_first_switch_and_only_there(tmp_path: Path) -> None:
    ladder = told(
        tmp_path,
        [
            (0, H1, published()),
            (50, S1_TO_S2, copy_for("h3")),
            (51, S2_TO_S1, copy_for("h3")),
            (90, H3, copy_for("h3")),
        ],
        facts("group"),
    )
    assert [(step.sender, step.receiver, bool(step.note)) for step in ladder.steps] == [
        ("h1", "s1", False), ("s1", "s2", True), ("s2", "h3", False),
    ]  # fmt: skip
    assert ladder.missing == ("h2",)
    assert "no copy was seen for h2" in list(remarks(ladder))


@pytest.mark.parametrize("beacons", [True, False])
def test_reactive_messages_go_through_the_controller(tmp_path: Path, beacons: bool) -> None:
    original = published()
    passed: list[Passed] = [
        (0, H1, original),
        (20, LO, segment(asked(1, original), 40001, 1000, to_controller=True)),
        (30, LO, segment(packed_out(copies(("h2", 2)), original, 0xFFFFFFFD), 40001, 5000, to_controller=False)),
        (31, LO, segment(packed_out(copies(("h3", 1)), original, 0xFFFFFFFD), 40002, 7000, to_controller=False)),
        (45, H2, copy_for("h2")), (46, H3, copy_for("h3")),
    ]  # fmt: skip
    if beacons:
        sent = len(packed_out(copies(("h2", 2)), original, 0))
        passed += [(60 + number, LO, segment(beacon(number), 40000 + number, seq + sent, to_controller=False))
                   for number, seq in ((1, 5000), (2, 7000))]  # fmt: skip
    ladder = told(tmp_path, passed, facts("reactive"))
    first, second = ("s1", "s2") if beacons else ("a switch", "a switch")
    size = len(original)
    assert hops(ladder)[:4] == [
        (0, "h1", "s1", "UDP 10.0.0.1 → 1.1.1.1"),
        (20, "s1", "controller", f"PACKET_IN port 1, no buffer, {size} B"),
        (30, "controller", first, f"PACKET_OUT 1 output, {size} B"),
        (31, "controller", second, f"PACKET_OUT 1 output, {size} B"),
    ]
    assert [step.note for step in ladder.steps[2:4]] == ["rewrite to 10.0.0.2", "rewrite to 10.0.0.3"]
    assert [line.kind for line in ladder.lifelines][:3] == ["host", "switch", "controller"]


def test_copies_from_the_resource_say_so(tmp_path: Path) -> None:
    ladder = told(tmp_path, [(0, H1, published()), (9, H2, copy_for("h2", from_resource=True))], facts("tree", ("h2",)))
    assert ladder.steps[1].what == "UDP 1.1.1.1 → 10.0.0.2"
    assert ladder.steps[1].note == f"rewritten: source 1.1.1.1 {VIRTUAL_MAC}, destination 10.0.0.2 {MACS['h2']}"


def test_questions_for_the_address_belong_to_it_but_others_do_not(tmp_path: Path) -> None:
    question = arp_frame(MACS["h1"], IPV4["h1"], RESOURCE)
    parsed = read_arp(question)
    assert parsed is not None
    answer = arp_answer(parsed)
    passed: list[Passed] = [
        (0, H2, arp_frame(MACS["h2"], IPV4["h2"], RESOURCE)),
        (1, H1, arp_frame(MACS["h1"], IPV4["h1"], "1.1.1.9")),
        (2, H1, question),
        (3, LO, segment(asked(1, question), 40001, 1, to_controller=True)),
        (4, LO, segment(packed_out(output(1), answer, 0xFFFFFFFD), 40001, 1, to_controller=False)),
        (5, H1, answer), (6, H1, published()), (7, H1, question),
        (8, LO, segment(beacon(1), 40001, 107, to_controller=False)),
    ]  # fmt: skip
    ladder = told(tmp_path, passed, facts("tree", ()))
    assert [(step.sender, step.receiver, step.kind) for step in ladder.steps] == [
        ("h1", "s1", "arp"), ("s1", "controller", "packet_in"), ("controller", "s1", "packet_out"),
        ("s1", "h1", "arp"), ("h1", "s1", "udp"),
    ]  # fmt: skip
    assert ladder.steps[3].what == f"ARP 1.1.1.1 is at {VIRTUAL_MAC}"


def test_openflow_is_put_together_from_segments_in_any_order_twice_and_from_the_middle() -> None:
    whole = [asked(number, published()) for number in range(1, 9)]
    stream = b"".join(whole)
    begin = len(whole[0]) // 2
    pieces = [(at, stream[at : at + 100]) for at in range(begin, len(stream), 100)]
    segments = [Segment(at, 40001, True, 77 + at, data) for at, data in [*pieces, *pieces[2:4]]]
    random.Random(3).shuffle(segments)
    segments.sort(key=lambda one: one.time_ns // 200)
    found, gap_bytes = messages_of(segments)
    assert [one.raw for one in found] == whole[1:]
    assert gap_bytes == 0
    found, gap_bytes = messages_of([one for one in segments if one.time_ns != pieces[3][0]])
    assert gap_bytes == 100
    assert len(found) >= 4
    assert {one.raw for one in found} <= set(whole)


def test_a_buffer_and_a_way_through_the_tables_are_said(tmp_path: Path) -> None:
    carried = packet_in(asked(3, b"frame", buffer=17))
    assert carried is not None
    assert (carried.in_port, carried.buffer, carried.frame) == (3, 17, b"frame")
    assert packet_out(packed_out(output(7) + output(8), b"x", 1)) == PacketOut((7, 8), (), b"x")
    passed: list[Passed] = [(0, LO, segment(packed_out(output(0xFFFFFFF9), published(), 1), 9, 1, to_controller=False))]
    assert told(tmp_path, passed).steps[0].what.startswith("PACKET_OUT through the tables")


@given(data=st.binary(max_size=120))
def test_nonsense_in_openflow_messages_is_no_message(data: bytes) -> None:
    for kind in (10, 13):
        raw = HEADER.pack(4, kind, HEADER.size + len(data), 0) + data
        packet_in(raw)
        packet_out(raw)
    messages_of([Segment(0, 1, True, 1, data), Segment(1, 1, False, 2**32 - 3, data)])


@given(seed=st.integers(0, 10_000), cut=st.floats(0, 1))
def test_damaged_captures_are_counted_and_never_stop_it(
    tmp_path_factory: pytest.TempPathFactory, seed: int, cut: float
) -> None:
    folder, dice = tmp_path_factory.mktemp("damaged"), random.Random(seed)
    raw = bytearray(capture([*TREE, (95, LO, segment(asked(1, published()), 40001, 1, to_controller=True))]))
    for _ in range(dice.randrange(8)):
        raw[dice.randrange(len(raw))] = dice.randrange(256)
    ladder = told(folder, bytes(raw[: int(len(raw) * cut)]))
    for text in (svg(ladder), page(ladder), heading(ladder), json.dumps(as_json(ladder))):
        assert text
    assert all(line.plain for line in lines(ladder, 100))


def test_what_could_not_be_read_is_told(tmp_path: Path) -> None:
    whole = capture(TREE)
    assert told(tmp_path, whole[:-30]).unread.damages == 1
    assert told(tmp_path, b"no capture at all").unread.files == ["all.pcapng"]
    gone = facts(file="gone.pcapng")
    ladder = build(gone, read_captures(tmp_path, gone))
    assert list(remarks(ladder)) == [
        "the message is not in these captures", "not read, for they are missing or no captures: gone.pcapng",
    ]  # fmt: skip
    cut = writer.section() + writer.interface(resolution=9)
    cut += writer.packet(writer.Frame(5, published()[:60], original=len(published())), resolution=9)
    cut += writer.packet(writer.Frame(6, published(), interface=0), resolution=9)
    (tmp_path / "all.pcapng").write_bytes(cut)
    assert read_captures(tmp_path, facts()).unread.cut_frames == 1


def test_a_subscriber_that_publishes_learns_why_nothing_came(tmp_path: Path) -> None:
    ladder = told(tmp_path, [(0, H1, published())], facts("tree", ("h1", "h2")))
    assert list(remarks(ladder)) == ["h1 subscribes to 1.1.1.1 itself, and a subscriber may not publish there"]


def test_facts_survive_a_file_and_wrong_ones_are_explained(tmp_path: Path) -> None:
    write_facts(tmp_path, facts())
    assert read_facts(tmp_path) == facts()
    (tmp_path / "ladder.json").write_text('{"resource": 5}')
    with pytest.raises(InputError, match="publisher: Field required"):
        read_facts(tmp_path)
    (tmp_path / "ladder.json").write_text(facts().model_dump_json().replace('"publisher":"h1"', '"publisher":"h9"'))
    with pytest.raises(InputError, match="no addresses: h9"):
        read_facts(tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        read_facts(tmp_path / "nowhere")


def test_the_terminal_gets_arrows_and_words_beside_or_above_them(tmp_path: Path) -> None:
    ladder = told(tmp_path, TREE)
    wide = [line.plain for line in lines(ladder, 200)]
    assert wide[0].split() == ["h1", "s1", "s2", "h2", "h3"]
    assert "├────▶" in wide[1]
    assert wide[1].rstrip().endswith("UDP 10.0.0.1 → 1.1.1.1")
    assert len(wide) == 5
    narrow = [line.plain for line in lines(ladder, 40)]
    assert len(narrow) == 9
    assert "µs" not in narrow[1]


def test_pictures_hold_every_step_and_load_nothing(tmp_path: Path) -> None:
    said = facts().model_copy(update={"resource": "<b>&"})
    for text in (svg(told(tmp_path, TREE, said)), page(told(tmp_path, TREE, said))):
        assert "<b>" not in text
        assert text.count('class="arrow udp" d="M') >= 4
        assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
        assert "<script" not in text
