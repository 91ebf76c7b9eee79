from __future__ import annotations

import pytest

from battlebrokers.errors import InputError
from battlebrokers.protocols.base import Endpoint, LinkOptions
from battlebrokers.protocols.loopback import LoopbackLink
from battlebrokers.protocols.mqtt.link import MqttLink
from battlebrokers.protocols.registry import capabilities_of, link_class, make_link, protocol_names
from support.links import Ear


def test_protocols_are_found_by_their_files():
    assert {"loopback", "mqtt"} <= set(protocol_names())
    assert not {"base", "backoff", "registry"} & set(protocol_names())


@pytest.mark.parametrize("name", protocol_names())
def test_every_protocol_says_what_it_can_do(name: str):
    capabilities = capabilities_of(name)
    assert capabilities.protocol == name
    assert set(capabilities.completion) == capabilities.qos
    assert capabilities.transports


def test_links_are_made_by_name():
    options = LinkOptions("x")
    assert link_class("loopback") is LoopbackLink
    assert isinstance(make_link("mqtt", Endpoint("wss", "h", 1), options, Ear()), MqttLink)


def test_an_unknown_protocol_names_the_nearest():
    with pytest.raises(InputError) as caught:
        link_class("mqqt")
    assert "mqtt" in caught.value.hint
    with pytest.raises(InputError) as caught:
        link_class("smoke-signals")
    assert "loopback" in caught.value.hint


def test_a_transport_a_protocol_does_not_run_over_is_refused():
    with pytest.raises(InputError, match="does not run over 'wss'"):
        make_link("loopback", Endpoint("wss", "h", 1), LinkOptions("x"), Ear())
