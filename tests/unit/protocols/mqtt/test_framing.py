"""Cutting a stream into frames: however it is chunked, nothing is lost, nothing is invented, nothing hangs."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from battlebrokers.protocols.mqtt.encode import encode
from battlebrokers.protocols.mqtt.framing import equal_frames, split_frames
from battlebrokers.protocols.mqtt.packets import PubAck, Publish
from battlebrokers.protocols.mqtt.varint import encode_varint
from support.examples import examples

SIZES = [0, 1, 2, 125, 126, 127, 128, 129, 16_383, 16_384, 16_385]


def frame(size: int, first_byte: int = 0x30) -> bytes:
    """A frame with a body of `size` bytes."""
    return bytes((first_byte,)) + encode_varint(size) + bytes(size)


def by_hand(buffer: bytes, start: int) -> tuple[list[tuple[int, int, int]], int]:
    """The plain reading of the specification, to compare with."""
    frames = []
    while True:
        body, length, shift = start + 1, 0, 0
        while body < len(buffer) and shift < 28:
            length |= (buffer[body] & 0x7F) << shift
            shift += 7
            body += 1
            if buffer[body - 1] < 0x80:
                break
        else:
            return frames, start
        if body + length > len(buffer):
            return frames, start
        frames.append((start, body, body + length))
        start = body + length


@pytest.mark.parametrize("size", [*SIZES, 2_097_151, 2_097_152])
def test_a_frame_of_each_length_form_is_cut_exactly(size: int) -> None:
    raw = frame(size)
    head = len(raw) - size
    assert split_frames(raw + raw) == (
        [(0, head, len(raw)), (len(raw), len(raw) + head, 2 * len(raw))],
        2 * len(raw),
        0,
        None,
    )


@pytest.mark.parametrize("size", SIZES)
def test_an_unfinished_frame_says_how_much_it_wants(size: int) -> None:
    raw = frame(size)
    for cut in {1, 2, 3, len(raw) - 1} & set(range(len(raw))):
        split = split_frames(b"\xc0\x00" + raw[:cut])
        assert (split.frames, split.consumed, split.fault) == ([(0, 2, 2)], 2, None)
        assert split.wanted_bytes == (len(raw) if cut >= len(raw) - size else 0)


def test_an_empty_buffer_has_no_frames() -> None:
    assert split_frames(b"") == ([], 0, 0, None)
    assert split_frames(b"\xc0\x00", 2) == ([], 2, 0, None)


def test_reading_starts_where_told_and_bytearrays_will_do() -> None:
    assert split_frames(bytearray(b"xyz\xc0\x00\xd0\x00\x30"), 3) == ([(3, 5, 5), (5, 7, 7)], 7, 0, None)


@given(st.lists(st.sampled_from(SIZES[:-3]), max_size=12), st.data())
def test_chunks_cut_anywhere_give_the_same_frames(sizes: list[int], data: st.DataObject) -> None:
    stream = b"".join(frame(size, 0x30 + index % 2) for index, size in enumerate(sizes))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    rest, found = b"", []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        rest += stream[begin:end]
        split = split_frames(rest)
        found += [rest[start:stop] for start, _, stop in split.frames]
        rest = rest[split.consumed :]
    assert b"".join(found) == stream
    assert [len(piece) for piece in found] == [len(frame(size)) for size in sizes]
    assert rest == b""


@pytest.mark.parametrize("length", ["ffffffff7f", "8080808001", "ffffffff", "80808080"])
@pytest.mark.parametrize("version", [4, 5])
def test_a_length_over_four_bytes_is_a_fault_behind_the_good_frames(length: str, version: int) -> None:
    split = split_frames(b"\xc0\x00\x30" + bytes.fromhex(length) + b"abc", version=version)
    assert (split.frames, split.consumed, split.wanted_bytes) == ([(0, 2, 2)], 2, 0)
    assert split.fault is not None
    assert split.fault.reason == 0x81


def test_the_largest_length_is_none() -> None:
    split = split_frames(b"\x30\xff\xff\xff\x7f")
    assert (split.consumed, split.wanted_bytes, split.fault) == (0, 268_435_460, None)


@pytest.mark.parametrize("length", ["8000", "808000", "80808000", "8200"])
def test_padded_lengths_are_valid_in_3_1_1_and_a_fault_in_5(length: str) -> None:
    raw = b"\x30" + bytes.fromhex(length) + b"abc"
    assert split_frames(raw, version=4).frames[0][1] == 1 + len(length) // 2
    split = split_frames(raw, version=5)
    assert split.frames == []
    assert split.fault is not None


@pytest.mark.parametrize("size", [0, 8, 98, 126, 127, 128, 129, 197, 198, 19_997])
def test_no_frame_over_the_agreed_size_passes(size: int) -> None:
    raw = frame(size)
    for most in (1, 2, 10, 100, 128, 129, 130, 131, 200, 20_000):
        for seen in (raw, raw[:4]):
            split = split_frames(seen, max_frame_bytes=most)
            if len(raw) > most:
                assert split.frames == [], most
                assert split.fault is not None, most
                assert split.fault.reason == 0x95, most
            else:
                assert split.fault is None, most
                assert split.frames or split.wanted_bytes == len(raw), most


@examples(300)
@given(st.binary(max_size=300), st.integers(0, 300), st.sampled_from([4, 5]))
def test_any_bytes_split_into_sane_frames(buffer: bytes, start: int, version: int) -> None:
    start = min(start, len(buffer))
    split = split_frames(buffer, start, version=version)
    place = start
    for begin, body, end in split.frames:
        assert begin == place < body <= end <= len(buffer)
        place = end
    assert place == split.consumed
    if version == 4:
        assert (split.frames, split.consumed) == by_hand(buffer, start)
    if split.fault is None and split.consumed < len(buffer):
        assert split.wanted_bytes == 0 or split.wanted_bytes > len(buffer) - split.consumed


# --- runs of equal frames ---


def publish(payload: bytes, topic: str = "city/air/1", qos: int = 0) -> bytes:
    """A PUBLISH frame."""
    return encode(Publish(topic, payload, qos, packet_id=7 if qos else None), 4)


@pytest.mark.parametrize("size", [0, 1, 64, 113, 114, 200, 20_000])
@pytest.mark.parametrize("count", [8, 9, 40])
def test_equal_publishes_are_found(size: int, count: int) -> None:
    frames = [publish(bytes([index]) * size) for index in range(count)]
    whole = len(frames[0])
    expected = (count, whole, 2 if whole < 130 else 3 if whole < 16_000 else 4)
    assert equal_frames(b"".join(frames)) == expected
    assert equal_frames(b"".join(frames) + frames[0][:-1]) == expected
    assert equal_frames(b"\xc0\x00" + b"".join(frames), 2) == expected


def test_seven_are_too_few() -> None:
    assert equal_frames(publish(b"x") * 7) is None
    assert equal_frames(publish(b"x") * 8) == (8, 15, 2)


def test_acknowledgements_are_equal_whatever_their_identifier() -> None:
    assert equal_frames(b"".join(encode(PubAck(number), 4) for number in range(1, 101))) == (100, 4, 2)


def test_a_run_ends_at_the_first_different_frame() -> None:
    good = publish(b"12345678")
    for other in (
        publish(b"12345678", "city/air/2"),
        publish(b"12345678", "city/air/22"),
        publish(b"123456789"),
        publish(b"123456", qos=1),
    ):
        assert equal_frames(good * 12 + other + good * 12) == (12, len(good), 2)
        assert equal_frames(good * 5 + other + good * 12) is None
        assert equal_frames(good + other + good * 12) is None


def test_topics_of_one_length_are_a_run_when_asked_for() -> None:
    mixed = b"".join(publish(b"abc", f"city/air/{number}") for number in range(10))
    assert equal_frames(mixed) is None
    assert equal_frames(mixed, same_topic=False) == (10, 17, 2)


@pytest.mark.parametrize(
    "raw",
    [b"", b"\x30", b"\x30\x80", b"\x30\xff\xff\xff\xff", b"\x30\x00" * 9, b"\x30\x01\x00" * 9, b"\x30\x02\x00\x01" * 9],
)
def test_what_is_no_publish_is_no_run(raw: bytes) -> None:
    assert equal_frames(raw) is None


@examples(300)
@given(st.binary(min_size=1, max_size=12), st.integers(1, 30), st.binary(max_size=40), st.booleans())
@example(b"\xc0\x00", 20, b"", True)
@example(b"\x30\x03\x00\x01t", 20, b"\x30", True)
def test_a_run_is_always_what_split_frames_says(unit: bytes, times: int, tail: bytes, same_topic: bool) -> None:
    buffer = unit * times + tail
    run = equal_frames(buffer, same_topic=same_topic)
    if run is None:
        return
    count, size, body_offset = run
    assert count >= 8
    frames = split_frames(buffer).frames[:count]
    assert frames == [(index * size, index * size + body_offset, (index + 1) * size) for index in range(count)]
    assert len({buffer[start] for start, _, _ in frames}) == 1
