from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.errors import InputError, QuantityError
from battlebrokers.scenario.nodes import PayloadPlan
from battlebrokers.scenario.payloads import PayloadSource, check_encoding, mean_payload_bytes
from battlebrokers.scenario.sizes import parse_size

HEADER = bytes(16)


def source(kind: str, seed: int = 1, **settings: object) -> PayloadSource:
    return PayloadSource(PayloadPlan(kind, **settings), seed)  # type: ignore[arg-type]


PLANS = [
    PayloadPlan("random_bytes", size=parse_size(64)),
    PayloadPlan("random_bytes", size=parse_size(5)),
    PayloadPlan("random_bytes", size=parse_size(0)),
    PayloadPlan("random_bytes", size=parse_size(100_000)),
    PayloadPlan("random_bytes", size=parse_size("20..400")),
    PayloadPlan("random_bytes", size=parse_size("normal 500 ± 100"), encoding="base64"),
    PayloadPlan("text", text="hällo"),
    PayloadPlan("text", text="hi", size=parse_size([30, 60])),
    PayloadPlan("fixed", text="21.5", stamp=False),
    PayloadPlan("value", low=-1, high=3, decimals=1),
    PayloadPlan("template", text='{"seq": {seq}, "n": {int:0..9}}'),
]


@given(st.sampled_from(PLANS), st.integers(0, 2**62), st.integers(0, 5000), st.integers(1, 20))
def test_blocks_and_single_messages_say_the_same(plan: PayloadPlan, seed: int, first: int, count: int) -> None:
    speaker = PayloadSource(plan, seed)
    block = speaker.block(first, count)
    single = [bytes(speaker.one(first + n)) for n in range(count)]
    assert [bytes(payload) for payload in block] == single
    assert [bytes(payload) for payload in PayloadSource(plan, seed).block(first, count)] == single
    if speaker.fixed_bytes is not None:
        assert isinstance(block, np.ndarray)
        assert block.shape == (count, speaker.fixed_bytes)
    if speaker.stamped:
        assert all(payload[:16] == HEADER for payload in single)


@pytest.mark.parametrize("plan", [plan for plan in PLANS if PayloadSource(plan, 1).stamped])
def test_what_a_caller_writes_into_a_payload_is_not_seen_by_the_next(plan: PayloadPlan) -> None:
    speaker = PayloadSource(plan, 1)
    before = bytes(speaker.one(0))
    payload = speaker.one(0)
    assert isinstance(payload, bytearray)
    payload[:16] = b"x" * 16
    block = speaker.block(0, 2)
    block[0][:16] = block[0][:16] * 0 + 7 if isinstance(block, np.ndarray) else b"y" * 16
    assert bytes(speaker.one(0)) == before
    assert bytes(speaker.block(0, 1)[0]) == before


def test_random_bytes_count_with_their_header() -> None:
    for size in (16, 30, 4096):
        speaker = source("random_bytes", size=parse_size(size))
        assert (speaker.stamped, speaker.fixed_bytes) == (True, size)
    for size in (0, 15):
        speaker = source("random_bytes", size=parse_size(size))
        assert (speaker.stamped, speaker.fixed_bytes, len(speaker.one(0))) == (False, size, size)


def test_one_size_too_small_for_the_header_leaves_all_unstamped() -> None:
    assert not source("random_bytes", size=parse_size("8..100")).stamped
    assert not source("random_bytes", size=parse_size([8, 100])).stamped


def test_content_comes_after_the_header() -> None:
    assert bytes(source("text", text="hi").one(0)) == HEADER + b"hi"
    assert bytes(source("fixed", text="21.5", stamp=False).one(0)) == b"21.5"


def test_text_is_repeated_or_cut_to_its_size() -> None:
    assert bytes(source("text", text="abc", size=parse_size(21)).one(0)) == HEADER + b"abcab"
    assert bytes(source("text", text="abc", size=parse_size(2)).one(0)) == b"ab"


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("none", "hé".encode()),
        ("base64", base64.b64encode("hé".encode())),
        ("binhex", "hé".encode().hex().encode()),
        ("utf-16-le", "hé".encode("utf-16-le")),
        ("iso8859-1", b"h\xe9"),
    ],
)
def test_encodings_change_the_content_and_not_the_header(encoding: str, body: bytes) -> None:
    assert bytes(source("text", text="hé", encoding=encoding).one(0)) == HEADER + body


def test_characters_a_charset_lacks_are_replaced() -> None:
    assert bytes(source("text", text="a€", encoding="latin-1", stamp=False).one(0)) == b"a?"


def test_charsets_have_one_name_and_nonsense_none() -> None:
    assert check_encoding("UTF8") == "utf-8"
    for name in ("klingon", "rot13", "zlib", "", "\0", "x" * 200):
        with pytest.raises(QuantityError):
            check_encoding(name)


def test_values_stay_in_their_range_and_reach_its_ends() -> None:
    speaker = source("value", low=-1.0, high=1.0, decimals=1, stamp=False)
    values = {float(speaker.one(seq)) for seq in range(2000)}
    assert min(values) == -1
    assert max(values) == 1
    assert len(values) == 21


def test_templates_are_filled_for_each_message() -> None:
    text = (
        '{"d": "{device}", "s": {seq}, "t": "{time}", "ms": {unix_ms}, "i": {int:-3..3}, '
        '"f": {float:1..2:3}, "c": "{choice:a|b}", "h": "{hex:8}", "x": "{text:5}"}'
    )
    plan = PayloadPlan("template", text=text, stamp=False, variables=(("device", "air-1"),))
    speaker = PayloadSource(plan, 4)
    assert speaker.wants_time
    said = [json.loads(speaker.one(seq, planned_ns=1_700_000_000_123_456_789)) for seq in range(200)]
    assert {line["d"] for line in said} == {"air-1"}
    assert [line["s"] for line in said] == list(range(200))
    assert said[0]["t"] == "2023-11-14T22:13:20.123456+00:00"
    assert said[0]["ms"] == 1_700_000_000_123
    assert {line["i"] for line in said} == set(range(-3, 4))
    assert all(1 <= line["f"] <= 2 for line in said)
    assert {line["c"] for line in said} == {"a", "b"}
    assert all(re.fullmatch("[0-9a-f]{8}", line["h"]) for line in said)
    assert len({line["x"] for line in said}) > 190
    block = speaker.block(0, 2, np.array([1_700_000_000_123_456_789] * 2))
    assert json.loads(bytes(block[0])) == said[0]


@pytest.mark.parametrize(
    "text", ["{itn:0..1}", "{int}", "{int:9..1}", "{float:a}", "{hex:x}", "{hex:99999999}", "{seq:3}"]
)
def test_unknown_fields_are_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        source("template", text=text)


def test_a_file_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "body.bin"
    path.write_bytes(b"\x00\xffdata")
    speaker = source("file", path=path, stamp=False)
    path.unlink()
    assert bytes(source("file", path=path, stamp=False).one(0)) == bytes(speaker.one(0)) == b"\x00\xffdata"
    with pytest.raises(InputError):
        source("file", path=tmp_path / "absent")


def test_devices_of_a_fleet_share_their_content() -> None:
    plan = PayloadPlan("random_bytes", size=parse_size(4096))
    one, two = PayloadSource(plan, 1), PayloadSource(plan, 2)
    assert one._content is two._content
    named = [
        PayloadSource(PayloadPlan("template", text="{device}", variables=(("device", str(n)),)), n) for n in range(2)
    ]
    assert named[0]._content is named[1]._content
    assert bytes(named[1].one(0)) == HEADER + b"1"


def test_random_bodies_differ_from_message_to_message() -> None:
    speaker = source("random_bytes", size=parse_size(64))
    assert speaker.one(0) != speaker.one(1)


def test_a_mebibyte_and_more_is_possible() -> None:
    speaker = source("random_bytes", size=parse_size("3MiB..4MiB"))
    assert 3 << 20 <= len(speaker.one(0)) <= 4 << 20
    assert len(source("random_bytes", size=parse_size("1MiB")).one(0)) == 1 << 20


@pytest.mark.parametrize("plan", PLANS)
def test_the_mean_size_is_what_is_said_on_average(plan: PayloadPlan) -> None:
    speaker = PayloadSource(plan, 3)
    mean = sum(len(speaker.one(seq)) for seq in range(500)) / 500
    assert mean_payload_bytes(plan) == pytest.approx(mean, rel=0.1)
