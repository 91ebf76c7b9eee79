"""Templates of dialects, and the reading of answers."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.errors import InputError
from battlebrokers.protocols.phrase import MISSING, at_path, fits, payload_of, picked, plain, read_json, structure

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.text(), st.binary())
def test_whatever_is_put_into_a_json_structure_comes_out_of_it_again(text: str, payload: bytes) -> None:
    phrase = structure({"name": "a ${name} z", "list": [1, None, {"p": "${payload}"}], "n": "${seq|number}"})
    told = json.loads(phrase.render({"name": text, "payload": payload, "seq": 7}))
    assert told == {
        "name": f"a {text} z",
        "list": [1, None, {"p": base64.b64encode(payload).decode()}],
        "n": 7,
    }


def test_a_list_of_one_template_repeats_it_for_every_value() -> None:
    phrase = structure({"devices": ["${listener.uuid}"], "more": ["x", "${listener.uuid}"]})
    assert json.loads(phrase.render({"listener.uuid": ["a", 'b"', "c"]})) == {
        "devices": ["a", 'b"', "c"],
        "more": ["x", "a", 'b"', "c"],
    }


def test_what_is_known_is_folded_in_once() -> None:
    phrase = plain("/devices/${uuid}/x?t=${topic|url}", url=True).bind({"uuid": "ä/b"})
    assert phrase.names == {"topic"}
    assert phrase.render({"topic": "a/b c"}) == b"/devices/%C3%A4/b/x?t=a%2Fb%20c"


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("${topic|dots}", b"city.air.1"),
        ("${topic|flat}", b"city-air-1"),
        ("${topic}", b"city/air/1"),
        ("${payload|hex}", b"ff00"),
        ("${payload|base64}", b"/wA="),
        ("${payload}", b"\xff\x00"),
    ],
)
def test_filters_turn_values_into_what_a_place_needs(template: str, expected: bytes) -> None:
    assert plain(template).render({"topic": "city/air/1", "payload": b"\xff\x00"}) == expected


def test_an_unknown_filter_or_name_is_a_mistake_with_a_hint() -> None:
    with pytest.raises(InputError, match="no such filter") as wrong:
        plain("${topic|shout}")
    assert "base64" in wrong.value.hint
    with pytest.raises(InputError, match="uuid"):
        plain("${uuid} ${topic}").require("topic")


def test_paths_find_values_with_and_without_a_prefix() -> None:
    document = {"m2m:sgn": {"nev": {"rep": [{"con": "x"}, {"con": "y"}]}}}
    assert at_path(document, "$.m2m:sgn.nev.rep[1].con") == "y"
    assert at_path(document, "$.sgn.nev.rep[-1].con") == "y"
    assert at_path({"sgn": 1}, "$.m2m:sgn") == 1
    assert at_path(document, "$.m2m:sgn.nev.rep[2]") is MISSING
    assert at_path(["a", {"p": 1}], "$[1].p") == 1
    assert at_path(document, "$") is document


@given(json_values, st.text())
def test_no_document_and_no_path_is_an_exception(document: Any, path: str) -> None:
    at_path(document, path)
    fits(document, {path: None})
    picked(path, document, {}, 200)
    payload_of(at_path(document, path), "base64")


@given(st.binary())
def test_bytes_that_are_no_json_are_missing(body: bytes) -> None:
    assert read_json(b"\xff{" + body) is MISSING
    assert read_json(b"[" * 100_000) is MISSING


def test_patterns_compare_values_and_may_only_ask_for_presence() -> None:
    document = {"action": "insert", "n": 0}
    assert fits(document, {"$.action": "insert", "$.n": None})
    assert not fits(document, {"$.action": "delete"})
    assert not fits(document, {"$.missing": None})


def test_a_kept_value_may_come_from_a_header_a_status_or_a_part_of_a_text() -> None:
    headers = {"location": "/v2/subscriptions/51c0ac9ed714fb3b37d7d5a8"}
    assert picked("header:Location ~ ([^/]+)$", {}, headers, 201) == "51c0ac9ed714fb3b37d7d5a8"
    assert picked("header:Location ~ subs", {}, headers, 201) == "subs"
    assert picked("status", {}, {}, 201) == "201"
    assert picked("$.a", {"a": {"b": 1}}, {}, 200) is None
    assert picked("header:Nothing", {}, headers, 201) is None


@given(st.binary())
def test_payloads_come_back_as_they_were(payload: bytes) -> None:
    assert payload_of(base64.b64encode(payload).decode(), "base64") == payload
    assert payload_of(payload.hex(), "hex") == payload
    assert payload_of(payload, "raw") == payload
    assert payload_of("not base64!", "base64") is None


@pytest.mark.parametrize("found", [None, True, 12, 1.5, {"a": 1}, ["QUJD"], MISSING])
def test_what_is_no_text_was_never_written_as_base64_or_hex(found: Any) -> None:
    assert payload_of(found, "base64") is None
    assert payload_of(found, "hex") is None


def test_a_structure_in_the_place_of_a_plain_payload_is_its_json() -> None:
    assert payload_of({"a": [1, None]}, "raw") == b'{"a":[1,null]}'
    assert payload_of(12, "text") == b"12"
    assert payload_of(MISSING, "raw") is None
