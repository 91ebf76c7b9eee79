"""Networks as files: every mistake is told with its line and what was probably meant."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from battlebrokers.errors import InputError
from battlebrokers.sdn.lab.commands import Names, outside_lines, switch_command, up_lines
from battlebrokers.sdn.lab.topology import find_topology, parse_topology, shipped_topologies

GOOD = """\
name: net
switches: [s1, s2]
hosts: {h1: s1, h2: s2}
links: [[s1, s2]]
"""


def test_everything_is_numbered() -> None:
    net = parse_topology(GOOD, "net.yaml")
    assert net.switches == {"s1": 1, "s2": 2}
    assert [(host.name, host.ipv4, str(host.port)) for host in net.hosts.values()] == [
        ("h1", "10.0.0.1", "s1:1"), ("h2", "10.0.0.2", "s2:1"),
    ]  # fmt: skip
    assert [(str(one), str(other)) for one, other in net.wires] == [("s1:2", "s2:2")]


def test_cables_are_interfaces_or_short_cuts_inside_the_switch() -> None:
    names = Names("xyz")
    net = parse_topology(GOOD, "net.yaml")
    assert "xyzw1-2" in " ".join(outside_lines(names, net))
    assert "type=patch" not in switch_command(names, net, "tcp:127.0.0.1:1", "netdev", "b1")
    short = parse_topology(GOOD + "cables: patch\n", "net.yaml")
    assert short == replace(net, cables="patch")
    assert "xyzw1-2" not in " ".join([*outside_lines(names, short), *up_lines(names, short)])
    words = " ".join(switch_command(names, short, "tcp:127.0.0.1:1", "netdev", "b1"))
    for end, other in (("xyzw1-2", "xyzw2-2"), ("xyzw2-2", "xyzw1-2")):
        assert f"set interface {end} ofport_request=2 type=patch options:peer={other}" in words
    assert find_topology("chain:2x1", "patch").cables == "patch"
    with pytest.raises(InputError) as told:
        find_topology("chain:2x1", "string")
    assert "there are no cables 'string'" in told.value.message


@pytest.mark.parametrize("name", [*shipped_topologies(), "chain:4x2", "ring:5x1", "star:6x1", "tree:7x2", "chain:1x0"])
def test_what_we_ship_and_generate_can_be_built(name: str) -> None:
    net = find_topology(name)
    ends = [host.port for host in net.hosts.values()] + [end for wire in net.wires for end in wire]
    assert len(set(ends)) == len(ends)
    assert len({host.mac for host in net.hosts.values()}) == len({host.ipv4 for host in net.hosts.values()})
    assert {end.switch for end in ends} <= set(net.switches.values())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD.replace("links:", "linsk:"), ["net.yaml:4", "linsk", "did you mean `links`?"]),
        (GOOD.replace("name: net\n", ""), ["name", "is missing"]),
        (GOOD.replace("[s1, s2]\n", "s1\n", 1), ["net.yaml:2", "switches"]),
        (GOOD.replace("[s1, s2]\n", "[]\n", 1), ["net.yaml:2", "switches"]),
        (GOOD.replace("[s1, s2]", "[s1, 7]", 1), ["net.yaml:2"]),
        (GOOD.replace("[s1, s2]", "[s1, s1]", 1), ["net.yaml:2", "s1 is named twice"]),
        (GOOD.replace("h2: s2", "h2: s9"), ["net.yaml:3", "there is no switch s9"]),
        (GOOD.replace("h2: s2", "s1: s2"), ["net.yaml:3", "s1 is a switch already"]),
        (GOOD.replace("h2:", "averylonghostname:"), ["net.yaml:3", "averylonghostname"]),
        (GOOD.replace("[[s1, s2]]", "[[s1, s1]]"), ["net.yaml:4", "s1 is linked to itself"]),
        (GOOD.replace("[[s1, s2]]", "[[s1]]"), ["net.yaml:4"]),
        (GOOD.replace("[[s1, s2]]", "[[s1, s3]]"), ["net.yaml:4", "there is no switch s3"]),
        (GOOD.replace("{h1", "{h1: s1, h1"), ["net.yaml:3", "h1"]),
        (GOOD + "cables: string\n", ["net.yaml:5", "cables"]),
        ("name: [net\n", ["net.yaml"]),
        ("- a list\n", ["net.yaml"]),
        ("", ["net.yaml"]),
    ],
)
def test_mistakes_are_told_where_they_are(text: str, said: list[str]) -> None:
    with pytest.raises(InputError) as told:
        parse_topology(text, "net.yaml")
    for words in said:
        assert words in told.value.message
    assert told.value.hint.startswith("for example")


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(InputError) as told:
        parse_topology(GOOD.replace("s1, s2]\n", "s1, 7]\n", 1).replace("links", "link"), "net.yaml")
    assert len(told.value.message.splitlines()) == 2


def test_what_is_no_text_is_told(tmp_path: Path) -> None:
    path = tmp_path / "net.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot be read"):
        find_topology(str(path))
