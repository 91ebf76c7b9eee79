"""OpenFlow: transactions, multipart replies, errors, and how long a controller takes for a packet."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.conversation import CLIENT, SERVER, Lost, heard, summary
from support.examples import examples

PORT = 6653
NONE = 0xFFFFFFFF
SWITCH, CONTROLLER = CLIENT, SERVER


def message(version: int, kind: int, identity: int, body: bytes = b"") -> bytes:
    return pack(">BBHI", version, kind, 8 + len(body), identity) + body


def packet_in(version: int, packet: bytes, buffer: int = NONE, identity: int = 0) -> bytes:
    if version == 1:
        return message(1, 10, identity, pack(">IHHBB", buffer, len(packet), 1, 0, 0) + packet)
    match = pack(">HHHHI", 1, 12, 0x8000, 4, 1) + b"\0" * 4
    return message(4, 10, identity, pack(">IHBBQ", buffer, len(packet), 0, 0, 0) + match + b"\0\0" + packet)


def packet_out(version: int, packet: bytes, buffer: int = NONE, identity: int = 0) -> bytes:
    if version == 1:
        return message(1, 13, identity, pack(">IHH", buffer, 1, 8) + b"\0" * 8 + packet)
    return message(4, 13, identity, pack(">IIH6x", buffer, 1, 16) + b"\0" * 16 + packet)


def flow_mod(version: int, buffer: int = NONE, identity: int = 0) -> bytes:
    if version == 1:
        return message(1, 14, identity, b"\0" * 48 + pack(">HHHHIHH", 0, 0, 0, 0, buffer, 0, 0))
    return message(4, 14, identity, b"\0" * 16 + pack(">BBHHHIIIH2x", 0, 0, 0, 0, 0, buffer, 0, 0, 0) + b"\0" * 8)


def talk(version: int):
    more = 2 if version == 1 else 0
    multipart, reply = (16, 17) if version == 1 else (18, 19)
    barrier = 18 if version == 1 else 20
    return [
        (SWITCH, message(version, 0, 1)), (CONTROLLER, message(version, 0, 1)),
        (CONTROLLER, message(version, 5, 2)), (SWITCH, message(version, 6, 2, b"\0" * 24)),
        (CONTROLLER, message(version, multipart, 3, b"\0\0\0\0" + b"\0" * (4 - more))),
        (SWITCH, message(version, reply, 3, b"\0\0\0\1" + b"\0" * 40)),
        (SWITCH, message(version, reply, 3, b"\0\0\0\0" + b"\0" * 4)),
        (SWITCH, packet_in(version, b"first packet", 77)), (SWITCH, packet_in(version, b"second packet")),
        (SWITCH, message(version, 2, 0, b"ping")),
        (CONTROLLER, packet_out(version, b"second packet") + flow_mod(version, 77)),
        (CONTROLLER, message(version, 3, 0, b"ping")),
        (CONTROLLER, flow_mod(version, identity=9) + message(version, barrier, 10)),
        (SWITCH, message(version, 1, 9, b"\0\1\0\2") + message(version, barrier + 1, 10)),
    ]  # fmt: skip


@pytest.mark.parametrize("version", [1, 4])
def test_a_whole_conversation_is_told_and_paired(version):
    said = heard(talk(version), PORT, protocol="openflow")
    assert said.stream.malformed == said.stream.undecoded_bytes == 0
    multipart = "STATS" if version == 1 else "MULTIPART"
    assert said.pairs == [
        ("FEATURES_REQUEST", "FEATURES_REPLY"), (f"{multipart}_REQUEST", f"{multipart}_REPLY"),
        ("PACKET_IN", "FLOW_MOD"), ("PACKET_IN", "PACKET_OUT"), ("ECHO_REQUEST", "ECHO_REPLY"), ("FLOW_MOD", "ERROR"),
        ("BARRIER_REQUEST", "BARRIER_REPLY"),
    ]  # fmt: skip
    assert {row.rule for row in said.exchanges} == {"id"}
    failed = [row.found for row in said.messages if row.found.failed]
    assert [(row.kind, row.name) for row in failed] == [("ERROR", "1/2")]


@pytest.mark.parametrize("version", [1, 4])
def test_all_parts_of_a_multipart_reply_count(version):
    turns = talk(version)
    said = heard(turns, PORT)
    row = next(row for row in said.exchanges if row.request.found.kind in ("STATS_REQUEST", "MULTIPART_REQUEST"))
    assert row.response_bytes == len(turns[5][1]) + len(turns[6][1])
    assert row.answered_ns < row.response.first_ns


@examples(60)
@given(st.sampled_from([1, 4]), st.lists(st.integers(1, 200), min_size=1, max_size=8))
def test_any_segmentation_gives_the_same_messages(version, cut):
    assert summary(heard(talk(version), PORT, cut=cut)) == summary(heard(talk(version), PORT))


def test_a_packet_nobody_answers_is_a_row_too():
    said = heard([*talk(4)[:2], (SWITCH, packet_in(4, b"lonely"))], PORT)
    assert said.pairs == [("PACKET_IN", "")]


def test_a_request_refused_by_an_error_is_answered_by_it():
    said = heard(
        [*talk(4)[:2], (CONTROLLER, message(4, 24, 5, b"\0" * 16)), (SWITCH, message(4, 1, 5, b"\0\1\0\3"))], PORT
    )
    assert said.pairs == [("ROLE_REQUEST", "ERROR")]


def test_reading_begins_again_after_a_gap_and_after_nonsense():
    turns = talk(4)
    said = heard([*turns[:2], (SWITCH, packet_in(4, b"x" * 50)[:30]), (SWITCH, Lost(60)), *turns[2:]], PORT)
    assert [pair for pair in said.pairs if pair[1]] == heard(turns, PORT).pairs
    said = heard([*turns[:4], (SWITCH, b"\xee" * 21), *turns[4:]], PORT)
    assert said.stream.malformed == 1
    assert len(said.pairs) == 7
