from __future__ import annotations

import json

import pytest

from battlebrokers.record.route import interface_towards, parse_addresses, parse_route

ROUTE = '[{"dst":"192.0.2.7","gateway":"10.0.0.1","dev":"eth0","prefsrc":"10.0.0.5","flags":[],"uid":0,"cache":[]}]'
ADDRESSES = json.dumps(
    [
        {"ifname": "lo", "addr_info": [{"local": "127.0.0.1", "scope": "host"}, {"local": "::1", "scope": "host"}]},
        {"addr_info": [{"local": "10.0.0.5", "scope": "global"}, {"local": "fe80::1", "scope": "link"}]},
        {},
    ]
)  # fmt: skip


def test_the_interface_of_a_route_is_found() -> None:
    assert parse_route(ROUTE) == "eth0"


@pytest.mark.parametrize("told", ["", "[]", "{}", "null", '[{"dev": 3}]', "[1]"])
def test_when_nobody_can_tell_every_interface_is_meant(told: str) -> None:
    assert parse_route(told) == "any"


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_no_question(address: str) -> None:
    assert interface_towards(address, lambda _: pytest.fail("nobody has to be asked")) == "lo"


def test_addresses_of_one_link_only_are_left_out() -> None:
    assert parse_addresses(ADDRESSES) == ("127.0.0.1", "::1", "10.0.0.5")


@pytest.mark.parametrize("told", ["", "[]", "7", '[{"addr_info": null}]'])
def test_no_addresses_are_fine(told: str) -> None:
    assert parse_addresses(told) == ()
