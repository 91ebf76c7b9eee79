"""Every packet survives encode and decode, in both versions; mutated bytes never do worse than MalformedPacket."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.protocols.mqtt.decode import decode
from battlebrokers.protocols.mqtt.encode import encode
from battlebrokers.protocols.mqtt.framing import split_frames
from battlebrokers.protocols.mqtt.malformed import MalformedPacket
from battlebrokers.protocols.mqtt.packets import Packet, PacketType
from support.examples import examples

ValidPackets = Callable[[PacketType, int], st.SearchStrategy[Packet]]
CASES = [(kind, version) for version in (4, 5) for kind in PacketType if (kind, version) != (PacketType.AUTH, 4)]
each_packet = pytest.mark.parametrize(("kind", "version"), CASES, ids=[f"{k.name}-{v}" for k, v in CASES])

HAVE_SHORT_FORMS = {
    PacketType.PUBACK,
    PacketType.PUBREC,
    PacketType.PUBREL,
    PacketType.PUBCOMP,
    PacketType.DISCONNECT,
}


def read(frame: bytes, version: int) -> Packet:
    """Cut a frame open and decode it."""
    split = split_frames(frame, version=version)
    ((start, body, end),) = split.frames
    assert (start, end, split.consumed, split.fault) == (0, len(frame), len(frame), None)
    return decode(frame[0], memoryview(frame)[body:end], version)


@each_packet
@examples(60)
@given(data=st.data())
def test_decode_undoes_encode(valid_packets: ValidPackets, kind: PacketType, version: int, data: st.DataObject) -> None:
    packet = data.draw(valid_packets(kind, version))
    frame = encode(packet, version)
    assert frame[0] >> 4 == kind
    assert read(frame, version) == packet


@each_packet
@examples(30)
@given(data=st.data())
def test_a_packet_cut_short_or_made_longer_is_not_the_same_packet(
    valid_packets: ValidPackets, kind: PacketType, version: int, data: st.DataObject
) -> None:
    packet = data.draw(valid_packets(kind, version))
    frame = encode(packet, version)
    _, body, end = split_frames(frame).frames[0]
    cut = data.draw(st.integers(body, end))
    for changed in (frame[body:cut], frame[body:end] + b"\0"):
        if changed == frame[body:]:
            continue
        try:
            other = decode(frame[0], changed, version)
        except MalformedPacket:
            continue
        # Some are valid (a shorter payload), but only MQTT 5's optional endings leave the meaning as it was.
        assert other != packet or (version == 5 and kind in HAVE_SHORT_FORMS)


@each_packet
@examples(60)
@given(data=st.data())
def test_mutated_packets_decode_or_are_malformed(
    valid_packets: ValidPackets, kind: PacketType, version: int, data: st.DataObject
) -> None:
    frame = encode(data.draw(valid_packets(kind, version)), version)
    _, body, _ = split_frames(frame).frames[0]
    mutated = bytearray(frame[body:])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(mutated)))
        mutated[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    for spoken in (4, 5):
        with suppress(MalformedPacket):
            packet = decode(frame[0], bytes(mutated), spoken)
            # What decode lets through, encode can say again, and it means the same.
            assert read(encode(packet, spoken), spoken) == packet


@examples(500)
@given(st.integers(0, 255), st.binary(max_size=200), st.sampled_from([4, 5]))
def test_random_bytes_decode_or_are_malformed(first_byte: int, body: bytes, version: int) -> None:
    with suppress(MalformedPacket):
        packet = decode(first_byte, body, version)
        assert read(encode(packet, version), version) == packet


def test_a_malformed_packet_is_a_value_error_with_a_reason() -> None:
    with pytest.raises(ValueError, match="reserved flags") as caught:
        decode(0xC1, b"", 4)
    assert isinstance(caught.value, MalformedPacket)
    assert caught.value.reason == 0x81
