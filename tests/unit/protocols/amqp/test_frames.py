from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import body, commands, frame, header

from battlebrokers.protocols.amqp.frames import (
    Envelope,
    MalformedFrame,
    key_of_filter,
    key_of_topic,
    read_content,
    read_delivery,
    topic_of_key,
)
from support.examples import examples


def unmarshalled(data: bytes) -> list[object]:
    frames = []
    while data:
        consumed, channel, each = frame.unmarshal(data)
        assert channel == 2
        frames.append(each)
        data = data[consumed:]
    return frames


@pytest.mark.parametrize("sizes", [[0], [1], [100, 0, 7], [4088], [4089], [10_000, 3]])
def test_a_batch_is_what_pamqp_would_have_written(sizes: list[int]):
    payloads = [bytes([n]) * size for n, size in enumerate(sizes, 1)]
    properties = commands.Basic.Properties(delivery_mode=2)
    frames = unmarshalled(Envelope(2, "amq.topic", "a.b", properties).batch(payloads, 4096))
    for payload in payloads:
        method, head, *frames = frames
        assert isinstance(method, commands.Basic.Publish)
        assert (method.exchange, method.routing_key, method.mandatory) == ("amq.topic", "a.b", False)
        assert isinstance(head, header.ContentHeader)
        assert (head.body_size, head.properties.delivery_mode) == (len(payload), 2)
        got = b""
        while len(got) < len(payload):
            part, *frames = frames
            assert isinstance(part, body.ContentBody)
            assert len(part.value) <= 4096 - 8
            got += part.value
        assert got == payload
    assert not frames


def test_a_matrix_and_a_list_are_written_alike():
    rows = np.random.default_rng(3).integers(0, 256, (50, 33), np.uint8)
    envelope = Envelope(1, "x", "k", commands.Basic.Properties())
    assert envelope.batch(rows, 4096) == envelope.batch([row.tobytes() for row in rows], 4096)
    wide = rows.reshape(5, 330)
    assert envelope.batch(wide, 256) == envelope.batch([row.tobytes() for row in wide], 256)


@examples(100)
@given(st.text(alphabet="ab/.$ü", max_size=30))
def test_topics_survive_the_way_there_and_back(topic: str):
    assert topic_of_key(key_of_topic(topic.encode())) == topic.encode()


@pytest.mark.parametrize(
    ("topic_filter", "key"),
    [("a/b", "a.b"), ("a/+/c", "a.*.c"), ("#", "#"), ("a/#", "a.#"), ("a.b/+", "a/b.*"), ("+", "*")],
)
def test_filters_become_binding_keys(topic_filter: str, key: str):
    assert key_of_filter(topic_filter) == key


@examples(200)
@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_called_malformed(data: bytes):
    with contextlib.suppress(MalformedFrame):
        assert len(read_delivery(data, 0, len(data))[3]) <= len(data)
    with contextlib.suppress(MalformedFrame):
        assert 0 <= read_content(data, 0, len(data))[1] < 256


def test_a_delivery_is_read_in_place():
    method = frame.marshal(commands.Basic.Deliver("1", 77, True, "amq.topic", "a.b"), 1)
    assert read_delivery(method, 11, len(method) - 1) == (ord("1"), 77, 1, b"a.b")
    properties = commands.Basic.Properties(content_type="x/y", headers={"a": 1}, delivery_mode=2)
    head = frame.marshal(header.ContentHeader(0, 5, properties), 1)
    assert read_content(head, 7, len(head) - 1) == (5, 2)
