from __future__ import annotations

import pytest

from battlebrokers.errors import UsageError
from battlebrokers.record.wire import Wire, parse_service, safe_file_name


def test_a_service_on_loopback_is_told_from_others_by_its_ports() -> None:
    assert Wire("broker", (1883, 9001), ("127.0.0.1",), "lo").filter == "port 1883 or port 9001"


def test_a_service_on_another_machine_is_told_by_address_and_port() -> None:
    wire = Wire("broker", (1883,), ("192.0.2.7", "2001:db8::7"), "eth0", narrow=True)
    assert wire.filter == "(host 192.0.2.7 or host 2001:db8::7) and (port 1883)"
    assert wire.addresses == ("192.0.2.7:1883", "[2001:db8::7]:1883")
    assert Wire("cache", hosts=("2001:DB8:0::7",)).addresses == ("2001:db8::7",)


def test_a_wire_of_its_own_needs_no_filter() -> None:
    assert Wire("redis", interface="veth12").filter == ""


def test_without_known_addresses_the_port_alone_is_the_name() -> None:
    assert Wire("redis", (6379,)).addresses == ("*:6379",)


def test_namespaces_are_names_or_paths() -> None:
    assert Wire("a", namespace="blue").namespace_path == "/run/netns/blue"
    assert Wire("a", namespace="/proc/12/ns/net").namespace_path == "/proc/12/ns/net"
    assert Wire("a").namespace_path == ""


def test_services_are_given_with_their_ports() -> None:
    assert parse_service("broker=1883,8883") == ("broker", (1883, 8883))
    assert parse_service("redis") == ("redis", ())


@pytest.mark.parametrize("text", ["broker=", "broker=0", "broker=65536", "broker=mqtt", "=1883", "../x=1", "a b=1"])
def test_a_service_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_service(text)


def test_no_service_name_leaves_the_folder() -> None:
    assert safe_file_name("../../etc/passwd") == "_.._etc_passwd"
    assert safe_file_name("") == "service"
