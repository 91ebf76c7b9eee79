"""Everybody who names a service by where it lives spells it alike."""

from __future__ import annotations

import pytest

from battlebrokers.tables.endpoints import endpoint, respelled, split_endpoint


@pytest.mark.parametrize(
    ("address", "port", "spelled"),
    [
        ("10.0.0.5", 6379, "10.0.0.5:6379"),
        ("10.0.0.5", None, "10.0.0.5"),
        ("::1", 1883, "[::1]:1883"),
        ("[::1]", 1883, "[::1]:1883"),
        ("2001:DB8:0:0::5", 6379, "[2001:db8::5]:6379"),
        ("2001:DB8:0:0::5", None, "2001:db8::5"),
        ("::ffff:10.0.0.5", 1, "10.0.0.5:1"),
        ("::102:304", 1, "[::102:304]:1"),
        ("::1.2.3.4", 1, "[::102:304]:1"),
        ("fe80::1%eth0", 1, "[fe80::1]:1"),
        ("*", 1883, "*:1883"),
        ("Broker.Example", 1883, "broker.example:1883"),
    ],
)
def test_an_endpoint_has_one_spelling(address: str, port: int | None, spelled: str) -> None:
    assert endpoint(address, port) == spelled
    assert respelled(spelled) == spelled
    assert endpoint(*split_endpoint(spelled)) == spelled


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[2001:db8::5]:6379", ("2001:db8::5", 6379)),
        ("[2001:db8::5]", ("2001:db8::5", None)),
        ("2001:db8::5", ("2001:db8::5", None)),
        ("db.example:5432", ("db.example", 5432)),
        ("db.example", ("db.example", None)),
    ],
)
def test_addresses_and_ports_are_told_apart(text: str, parts: tuple[str, int | None]) -> None:
    assert split_endpoint(text) == parts


@pytest.mark.parametrize(
    "text", ["db:", "db:0", "db:65536", "db:mqtt", ":1883", "[::1", "[::1]1883", "[db]:1", "a:b:1"]
)
def test_what_is_no_endpoint_is_refused_or_left_alone(text: str) -> None:
    with pytest.raises(ValueError, match="is n"):
        split_endpoint(text)
    assert respelled(text) == text
