from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.contenders.broker_url import is_url, parse_broker_url
from battlebrokers.errors import UsageError
from battlebrokers.secrets import Secret


@pytest.mark.parametrize(
    ("text", "transport", "host", "port", "url"),
    [
        ("mqtt://broker", "tcp", "broker", 1883, "mqtt://broker:1883"),
        ("mqtt://10.0.0.1:2883/", "tcp", "10.0.0.1", 2883, "mqtt://10.0.0.1:2883"),
        ("tcp://broker:1", "tcp", "broker", 1, "mqtt://broker:1"),
        ("MQTTS://broker", "tls", "broker", 8883, "mqtts://broker:8883"),
        ("ws://broker:9001", "ws", "broker", 9001, "ws://broker:9001/mqtt"),
        ("ws://broker:9001/", "ws", "broker", 9001, "ws://broker:9001/"),
        ("wss://broker/a/b?c=d", "wss", "broker", 443, "wss://broker:443/a/b?c=d"),
        ("mqtt://[::1]:1883", "tcp", "::1", 1883, "mqtt://[::1]:1883"),
    ],
)
def test_the_parts_of_a_url(text: str, transport: str, host: str, port: int, url: str) -> None:
    parsed = parse_broker_url(text)
    assert (parsed.transport, parsed.host, parsed.port, parsed.url) == (transport, host, port, url)


@pytest.mark.parametrize(
    ("text", "protocol", "key", "transport", "port", "path", "url"),
    [
        ("mqtt://broker", "mqtt", "tcp", "tcp", 1883, "", "mqtt://broker:1883"),
        ("wss://broker", "mqtt", "wss", "wss", 443, "/mqtt", "wss://broker:443/mqtt"),
        ("http://broker", "http", "http", "tcp", 80, "", "http://broker:80"),
        ("http://broker:3000/api/", "http", "http", "tcp", 3000, "/api", "http://broker:3000/api"),
        ("https://broker/api", "http", "http", "tls", 443, "/api", "https://broker:443/api"),
        ("coap://broker", "coap", "coap", "udp", 5683, "", "coap://broker:5683"),
        ("amqp://broker", "amqp", "amqp", "tcp", 5672, "", "amqp://broker:5672"),
        ("amqps://me:secret@broker/vhost", "amqp", "amqp", "tls", 5671, "/vhost", "amqps://broker:5671/vhost"),
        ("loopback://", "loopback", "loopback", "memory", 1, "", "loopback://"),
        ("udp://broker:9999", "udp", "udp", "udp", 9999, "", "udp://broker:9999"),
    ],
)  # fmt: skip
def test_a_url_tells_the_protocol_and_its_name_among_the_endpoints(
    text: str, protocol: str, key: str, transport: str, port: int, path: str, url: str
) -> None:
    parsed = parse_broker_url(text)
    assert (parsed.protocol, parsed.key, parsed.transport, parsed.port) == (protocol, key, transport, port)
    assert (parsed.path, parsed.url) == (path, url)
    assert parse_broker_url(parsed.url).url == url


def test_a_websocket_carries_mqtt_unless_the_contender_says_otherwise() -> None:
    bare = parse_broker_url("ws://broker:3000", key="websocket")
    assert (bare.protocol, bare.key, bare.transport, bare.url) == ("websocket", "websocket", "ws", "ws://broker:3000/")
    assert parse_broker_url("wss://broker/ws/v2", key="websocket").url == "wss://broker:443/ws/v2"
    assert parse_broker_url("ws://broker:3000", key="ws").path == "/mqtt"


def test_credentials_are_kept_apart_from_the_address() -> None:
    parsed = parse_broker_url("mqtt://me:p%40ss@broker")
    assert (parsed.username, parsed.password) == ("me", Secret("p@ss"))
    assert parsed.url == "mqtt://broker:1883"


@pytest.mark.parametrize(
    "text",
    [
        "ftp://broker",
        "udp://broker",
        "udp://broker:1/path",
        "loopback://somewhere",
        "loopback:///path",
        "mqtt://",
        "mqtt://broker:0",
        "mqtt://broker:x",
        "mqtt://broker:99999",
        "mqtt://broker/topic",
        "mqtt://[::1",
    ],
)
def test_what_is_no_broker_url_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_broker_url(text)
    assert "mqtt://" in caught.value.hint


@given(st.text())
def test_any_text_is_parsed_or_refused_and_parsing_its_url_again_gives_the_same(text: str) -> None:
    try:
        parsed = parse_broker_url(f"ws://{text}")
    except UsageError:
        return
    again = parse_broker_url(parsed.url)
    assert (again.transport, again.host, again.port) == (parsed.transport, parsed.host, parsed.port)


def test_names_are_no_urls() -> None:
    assert is_url("mqtt://x")
    assert not is_url("mosquitto")
