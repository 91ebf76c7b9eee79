"""The page of capabilities: who cannot, whom our file does not say it of, and the cells that are tried."""

from __future__ import annotations

import pytest

from battlebrokers.contenders.capability_table import (
    LEFT_OUT,
    ROUTES,
    cannot,
    capabilities_reference,
    cells_of,
    left_out,
)
from battlebrokers.contenders.reader import find_contender, load_contenders, parse_contender

SECURED = """\
name: secured
about: Only over TLS, and publishing by HTTP.
run: {external: true}
ports: {mqtts: 8883, http: 80}
endpoints: {tls: "mqtts://${host}:${port.mqtts}", wss: "wss://${host}:${port.mqtts}", http: "http://${host}:${port.http}"}
speak: {http: {publish: {put: "/${topic}", text: "${payload}"}}}
"""


@pytest.mark.parametrize(
    ("name", "route", "what"),
    [
        ("acme-onem2m", "websocket", "publish"),
        ("acme-onem2m", "mqtt", "publish"),
        ("acme-onem2m", "coap", "subscribe"),
        ("devicehive", "mqtt over ws", "publish"),
    ],
)
def test_what_only_our_file_lacks_is_not_blamed_on_the_broker(name: str, route: str, what: str) -> None:
    contender = find_contender(name)
    assert cannot(contender, "", route, what)
    assert left_out(contender, route, what)
    assert "| not in our file (" in capabilities_reference([contender], {})


def test_what_a_broker_does_not_have_stays_its_own() -> None:
    assert left_out(find_contender("mosquitto"), "coap", "publish") == ""
    assert left_out(find_contender("acme-onem2m"), "coap", "publish") == "", "it is in our file"
    page = capabilities_reference([find_contender("mosquitto")], {})
    assert page.count("not in our file") == 1, "said in the introduction only"


def test_nothing_is_said_to_be_left_out_that_a_file_offers() -> None:
    shipped = {contender.name: contender for contender in load_contenders()}
    for name, known in LEFT_OUT.items():
        for place in known:
            route, _, what = place.partition(": ")
            assert route in ROUTES
            assert cannot(shipped[name], "", route, what or "publish"), (name, place)


def test_ways_in_over_tls_are_tried_and_one_of_them_stands_for_mqtt_in_bridges() -> None:
    cells = cells_of(parse_contender(SECURED, "secured.yaml"))
    assert {("mqtt over tls", "QoS 2"), ("mqtt over wss", "retain"), ("http", "exactly once")} <= set(cells)
    bridges = [(route, what) for route, what in cells if what.startswith("heard over")]
    assert bridges == [("http", "heard over mqtt over tls")]
