"""Frames built in bulk are byte for byte what the codec writes one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.protocols.mqtt.encode import encode
from battlebrokers.protocols.mqtt.packets import Publish
from battlebrokers.protocols.mqtt.properties import Properties
from battlebrokers.protocols.mqtt.publishing import alias_properties, frame_bytes, joined_frames, matrix_frames

NOTHING = {4: b"", 5: b"\x00"}


def expected(
    topic: str, payloads: list[bytes], qos: int, retain: bool, dup: bool, first_id: int, version: int
) -> bytes:
    return b"".join(
        encode(Publish(topic, payload, qos, retain, dup, first_id + at if qos else None), version)
        for at, payload in enumerate(payloads)
    )


@given(
    st.sampled_from([4, 5]),
    st.integers(0, 2),
    st.booleans(),
    st.integers(1, 60_000),
    st.sampled_from([0, 1, 2, 90, 130, 17_000]),
    st.integers(1, 20),
    st.sampled_from(["t", "city/parking/17", "ä/日"]),
)
def test_a_matrix_of_payloads(version: int, qos: int, retain: bool, first_id: int, size: int, count: int, topic: str):
    rows = np.random.default_rng(size).integers(0, 256, (count, size), np.uint8)
    frames = matrix_frames(topic.encode(), 0x30 | qos << 1 | retain, NOTHING[version], rows, first_id)
    wanted = expected(topic, [row.tobytes() for row in rows], qos, retain, False, first_id, version)
    assert frames.tobytes() == wanted
    assert frames.shape[1] == frame_bytes(topic.encode(), qos, NOTHING[version], size)


@given(
    st.sampled_from([4, 5]),
    st.integers(0, 2),
    st.booleans(),
    st.integers(1, 60_000),
    st.lists(st.binary(max_size=200), min_size=1, max_size=12),
)
def test_payloads_of_several_sizes(version: int, qos: int, dup: bool, first_id: int, payloads: list[bytes]):
    dup = dup and qos > 0
    frames = joined_frames(b"a/b", 0x30 | dup << 3 | qos << 1, NOTHING[version], payloads, first_id)
    assert frames == expected("a/b", payloads, qos, False, dup, first_id, version)


@pytest.mark.parametrize("size", [0, 120, 121, 122, 123, 16_375, 16_376, 16_377, 2_097_143, 2_097_144, 2_097_145])
def test_sizes_around_the_borders_of_the_length_field(size: int):
    payload = bytes(size)
    frame = joined_frames(b"t/1", 0x30, b"", [payload], 0)
    assert frame == encode(Publish("t/1", payload), 4)
    assert len(frame) == frame_bytes(b"t/1", 0, b"", size)


def test_a_topic_named_by_number():
    frame = joined_frames(b"", 0x32, alias_properties(513), [b"x"], 7)
    assert frame == encode(Publish("", b"x", 1, packet_id=7, properties=Properties(topic_alias=513)), 5)
