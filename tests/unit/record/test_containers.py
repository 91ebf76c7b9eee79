"""No container engine runs where these tests were written: the answers below have the form both engines document."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from battlebrokers.errors import EnvironmentNotReady
from battlebrokers.record.capture import located
from battlebrokers.record.containers import Container, find_container, match_veth, parse_inspect, veth_of
from battlebrokers.record.wire import Wire

DOCKER = json.dumps(
    [
        {
            "Id": "4fa6e0f0c678",
            "State": {"Status": "running", "Running": True, "Paused": False, "Pid": 4711},
            "HostConfig": {"NetworkMode": "bridge"},
            "NetworkSettings": {
                "IPAddress": "172.17.0.2",
                "GlobalIPv6Address": "",
                "Networks": {"bridge": {"IPAddress": "172.17.0.2", "GlobalIPv6Address": "2001:db8::2"}},
            },
        }
    ]
)
PODMAN = json.dumps(
    [
        {
            "State": {"Status": "running", "Pid": 815},
            "HostConfig": {"NetworkMode": "slirp4netns"},
            "NetworkSettings": {"IPAddress": "", "Networks": None},
        }
    ]
)
LINKS_INSIDE = json.dumps(
    [
        {"ifindex": 1, "ifname": "lo", "flags": ["LOOPBACK", "UP"], "link_type": "loopback"},
        {"ifindex": 12, "link_index": 13, "ifname": "eth0", "flags": ["BROADCAST", "UP"], "link_netnsid": 0},
    ]
)


def test_docker_tells_the_process_and_its_addresses() -> None:
    found = parse_inspect("redis", "docker", DOCKER)
    assert found == Container("redis", "docker", 4711, ("172.17.0.2", "2001:db8::2"), host_network=False)
    assert found.namespace == "/proc/4711/ns/net"


def test_podman_without_addresses_is_fine() -> None:
    assert parse_inspect("redis", "podman", PODMAN) == Container("redis", "podman", 815, (), host_network=False)


def test_a_container_on_the_hosts_network_has_no_namespace_of_its_own() -> None:
    found = parse_inspect("redis", "docker", DOCKER.replace('"bridge"}', '"host"}'))
    assert found.host_network
    assert found.namespace == ""


@pytest.mark.parametrize("told", ["", "[]", "{}", "[[]]", '[{"State": {}}]', '[{"State": {"Pid": "x"}}]', "null"])
def test_odd_answers_are_refused_in_words(told: str) -> None:
    with pytest.raises(EnvironmentNotReady, match="unexpected"):
        parse_inspect("redis", "docker", told)


def test_a_stopped_container_is_said_to_be_stopped() -> None:
    with pytest.raises(EnvironmentNotReady, match="not running") as caught:
        parse_inspect("redis", "docker", DOCKER.replace("4711", "0"))
    assert caught.value.hint == "start it: docker start redis"


def test_the_veth_is_the_interface_whose_index_is_the_iflink_inside() -> None:
    assert match_veth(LINKS_INSIDE, {"lo": 1, "eth0": 2, "docker0": 5, "veth9f2a": 13}) == "veth9f2a"


def test_without_a_veth_there_is_none() -> None:
    assert match_veth(LINKS_INSIDE, {"lo": 1, "eth0": 2}) == ""


def test_the_veth_is_found_through_the_containers_namespace(tmp_path: Path) -> None:
    for name, index in {"eth0": 2, "veth9f2a": 13}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "ifindex").write_text(f"{index}\n")
    asked: list[Sequence[str]] = []

    def answer(words: Sequence[str]) -> str:
        asked.append(words)
        return LINKS_INSIDE

    assert veth_of(parse_inspect("redis", "docker", DOCKER), answer, tmp_path) == "veth9f2a"
    assert asked == [["nsenter", "--net=/proc/4711/ns/net", "ip", "-json", "link", "show"]]


def test_whichever_engine_knows_it_is_asked() -> None:
    def answer(words: Sequence[str]) -> str:
        if words[0] == "docker":
            raise EnvironmentNotReady("docker inspect: Cannot connect to the Docker daemon")
        return PODMAN

    assert find_container("redis", answer, ["docker", "podman"]).engine == "podman"


def test_a_container_nobody_knows_is_explained() -> None:
    def answer(words: Sequence[str]) -> str:
        raise EnvironmentNotReady(f"{words[0]} inspect: no such container")

    with pytest.raises(EnvironmentNotReady, match="no such container") as caught:
        find_container("redis", answer, ["docker"])
    assert "docker ps" in caught.value.hint


def test_no_engine_is_said() -> None:
    with pytest.raises(EnvironmentNotReady, match="neither docker nor podman"):
        find_container("redis", engines=[])


def test_a_rootless_container_is_captured_in_its_own_namespace() -> None:
    def answer(words: Sequence[str]) -> str:
        return "[]" if words[0] == "nsenter" else PODMAN

    wire = located(Wire("redis", (6379,), container="redis"), answer, ["podman"])
    assert (wire.interface, wire.namespace) == ("any", "/proc/815/ns/net")


def test_an_interface_named_with_a_container_is_the_containers() -> None:
    wire = located(Wire("redis", interface="eth0", container="redis"), lambda _: DOCKER, ["docker"])
    assert (wire.interface, wire.namespace) == ("eth0", "/proc/4711/ns/net")
    assert wire.hosts == ("172.17.0.2", "2001:db8::2")
