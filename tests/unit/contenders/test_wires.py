from __future__ import annotations

import pytest

from battlebrokers.contenders.broker_url import parse_broker_url
from battlebrokers.contenders.reader import SPECS, find_contender, parse_contender
from battlebrokers.contenders.spec import Contender
from battlebrokers.contenders.wires import wires_of, wires_of_url
from battlebrokers.errors import InputError
from battlebrokers.record.wire import Wire

MOSQUITTO = (SPECS / "mosquitto.yaml").read_text()
PORTS = {"mqtt": 4001, "ws": 4002}


def with_services(text: str) -> Contender:
    return parse_contender(MOSQUITTO.replace('services: {mosquitto: ["*"]}', f"services: {text}"), "mine.yaml")


def test_one_service_has_all_ports_on_loopback() -> None:
    assert wires_of(find_contender("mosquitto"), PORTS, "127.0.0.1") == [
        Wire("mosquitto", (4001, 4002), ("127.0.0.1",), "lo")
    ]


def test_a_port_belongs_to_the_service_that_names_it() -> None:
    ports = {"mqtt": 1, "ws": 2, "amqp": 3, "dist": 4, "epmd": 5}
    found = {wire.service: wire.ports for wire in wires_of(find_contender("rabbitmq"), ports, "127.0.0.1")}
    assert found == {"rabbitmq": (1, 2, 3, 4), "epmd": (5,)}


def test_a_service_that_listens_nowhere_has_no_wire() -> None:
    contender = with_services('{mosquitto: ["*"], watcher: [watch]}')
    assert [wire.service for wire in wires_of(contender, PORTS, "127.0.0.1")] == ["mosquitto"]


def test_ports_may_be_numbers_of_things_we_did_not_start() -> None:
    contender = with_services('{mosquitto: ["*"], redis: {ports: [6379]}}')
    assert wires_of(contender, PORTS, "127.0.0.1")[1] == Wire("redis", (6379,), ("127.0.0.1",), "lo")


def test_a_namespace_an_interface_and_a_container_are_taken_as_they_are() -> None:
    contender = with_services(
        '{mosquitto: {processes: ["*"], namespace: blue}, db: {container: pg}, cache: {interface: eth1, ports: [6379]}}'
    )
    assert wires_of(contender, PORTS, "127.0.0.1") == [
        Wire("mosquitto", (4001, 4002), namespace="blue"),
        Wire("db", container="pg"),
        Wire("cache", (6379,), interface="eth1"),
    ]


def test_a_port_nobody_has_is_a_mistake_with_the_nearest() -> None:
    with pytest.raises(InputError, match="mqqt is not one of ports"):
        with_services('{mosquitto: {processes: ["*"], ports: [mqqt]}}')


@pytest.mark.parametrize(
    "text", ['{mosquitto: {processes: ["*"], ports: [0]}}', '{mosquitto: {processes: ["*"], bogus: 1}}']
)
def test_what_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        with_services(text)


def test_a_broker_by_url_is_told_by_its_address_and_port() -> None:
    assert wires_of_url(parse_broker_url("mqtt://127.0.0.1:1883")) == [
        Wire("broker", (1883,), ("127.0.0.1",), "lo", narrow=True)
    ]


def test_a_host_without_an_address_has_no_wire() -> None:
    assert wires_of_url(parse_broker_url("mqtt://nowhere.invalid:1883")) == []


def test_the_name_of_a_host_becomes_its_addresses() -> None:
    (wire,) = wires_of(find_contender("mosquitto"), {"mqtt": 1883}, "localhost")
    assert wire.interface == "lo"
    assert wire.hosts
    assert set(wire.addresses) <= {"127.0.0.1:1883", "[::1]:1883"}


def test_services_on_ipv6_are_told_in_one_spelling() -> None:
    (wire,) = wires_of(find_contender("mosquitto"), {"mqtt": 1883}, "0:0::1")
    assert (wire.interface, wire.addresses) == ("lo", ("[::1]:1883",))
    (wire,) = wires_of_url(parse_broker_url("mqtt://[0:0::1]:1883"))
    assert (wire.interface, wire.addresses) == ("lo", ("[::1]:1883",))


def test_a_service_may_say_which_packets_are_its_own() -> None:
    switches = {wire.service: wire for wire in wires_of(find_contender("sdn"), {"http": 8080, "openflow": 6653}, "::1")}
    assert switches["switches"].interface == "any"
    assert switches["switches"].filter == "udp portrange 20000-29999"
    assert switches["controller"].filter == "port 6653"
