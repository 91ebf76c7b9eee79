"""A topology: which switches, hosts and links there are, with every port and address numbered. Pure but for reading.

Read from a file, shipped under a name, or generated from words such as `chain:4x2`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final, Literal, cast, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from battlebrokers.errors import InputError
from battlebrokers.scenario.document import Document, read_document
from battlebrokers.scenario.patterns import nearest
from battlebrokers.sdn.core.network import Port

SHIPPED: Final = Path(__file__).parent.parent / "topologies"
_MOST_HOSTS: Final = 250
_MOST_SWITCHES: Final = 100
_GENERATED = re.compile(r"(chain|ring|star|tree):(\d{1,3})x(\d{1,3})")

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9]{0,9}$")]
"""Short: it becomes part of the name of an interface."""
Cables = Literal["veth", "patch"]
"""Cables between switches: pairs of interfaces, which can be captured and cut, or short cuts inside Open vSwitch."""


class TopologyFile(BaseModel):
    """What a file says."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
    title: str = ""
    switches: Annotated[list[Name], Field(min_length=1, max_length=_MOST_SWITCHES)]
    hosts: Annotated[dict[Name, Name], Field(max_length=_MOST_HOSTS)]
    links: list[Annotated[list[Name], Field(min_length=2, max_length=2)]] = []
    cables: Cables = "veth"


@dataclass(frozen=True, slots=True)
class LabHost:
    """A host with its place and addresses."""

    name: str
    mac: str
    ipv4: str
    port: Port


@dataclass(frozen=True, slots=True)
class Topology:
    """Everything numbered: switches from 1 on, ports of each switch from 1 on, hosts from 10.0.0.1 on."""

    name: str
    title: str
    switches: dict[str, int]
    hosts: dict[str, LabHost]
    wires: tuple[tuple[Port, Port], ...]
    cables: Cables = "veth"

    @property
    def ports(self) -> dict[int, frozenset[int]]:
        """The ports of every switch."""
        ends = [host.port for host in self.hosts.values()] + [end for wire in self.wires for end in wire]
        return {
            number: frozenset(end.number for end in ends if end.switch == number) for number in self.switches.values()
        }


def shipped_topologies() -> list[str]:
    """The names of those that come with us."""
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def find_topology(name: str, cables: str = "") -> Topology:
    """By shipped name, by file, or generated from words; with the cables it says, or with others."""
    found = _found(name)
    if not cables:
        return found
    if cables not in get_args(Cables):
        raise InputError(f"there are no cables '{cables}'", hint=f"one of {', '.join(get_args(Cables))}")
    return replace(found, cables=cast("Cables", cables))


def _found(name: str) -> Topology:
    generated = _GENERATED.fullmatch(name)
    if generated:
        return _numbered(_generate(generated[1], int(generated[2]), int(generated[3])))
    path = SHIPPED / f"{name}.yaml"
    if name not in shipped_topologies():
        path = Path(name)
        if path.suffix not in (".yaml", ".yml") and not path.exists():
            raise InputError(
                f"there is no topology '{name}'",
                hint=f"{nearest(name, shipped_topologies())}; or chain:4x2, ring:5x1, star:6x1, tree:7x2; or a file",
            )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise InputError(
            f"{path} cannot be read: {fault}", hint="give a YAML file or the name of a topology"
        ) from fault
    return parse_topology(text, str(path))


def parse_topology(text: str, where: str) -> Topology:
    """The topology a text describes, or an InputError with every mistake in it."""
    document = read_document(text, where)
    if not document.mistakes:
        try:
            said = TopologyFile.model_validate(document.data)
        except ValidationError as error:
            for each in error.errors(include_url=False):
                _note(document, tuple(each["loc"]), each["type"], each["msg"])
        else:
            _check(document, said)
            if not document.mistakes:
                return _numbered(said)
    raise InputError(
        "\n".join(str(mistake) for mistake in document.mistakes),
        hint="for example: {name: two, switches: [s1, s2], hosts: {h1: s1, h2: s2}, links: [[s1, s2]]}",
    )


def _note(document: Document, path: tuple[str | int, ...], kind: str, message: str) -> None:
    if kind == "extra_forbidden":
        document.mistake(path, "is not a key here", nearest(str(path[-1]), list(TopologyFile.model_fields)))
    elif kind == "missing":
        document.mistake(path, "is missing")
    elif kind == "string_pattern_mismatch":
        place = tuple(part for part in path if part != "[key]")
        document.mistake(place, "is no name", "small letters and digits, a letter first, at most ten")
    else:
        document.mistake(path, message)


def _check(document: Document, said: TopologyFile) -> None:
    known = set(said.switches)
    for place, switch in enumerate(said.switches):
        if switch in said.switches[:place]:
            document.mistake(("switches", place), f"{switch} is named twice")
    for host, switch in said.hosts.items():
        if switch not in known:
            document.mistake(("hosts", host), f"there is no switch {switch}", nearest(switch, sorted(known)))
        if host in known:
            document.mistake(("hosts", host), f"{host} is a switch already", "give the host another name")
    for place, (one, other) in enumerate(said.links):
        for end in (one, other):
            if end not in known:
                document.mistake(("links", place), f"there is no switch {end}", nearest(end, sorted(known)))
        if one == other:
            document.mistake(("links", place), f"{one} is linked to itself", "a link joins two switches")


def _numbered(said: TopologyFile) -> Topology:
    numbers = {name: number for number, name in enumerate(said.switches, 1)}
    used = dict.fromkeys(said.switches, 0)

    def next_port(switch: str) -> Port:
        used[switch] += 1
        return Port(numbers[switch], used[switch])

    hosts = {
        name: LabHost(name, f"00:00:00:00:00:{number:02x}", f"10.0.0.{number}", next_port(switch))
        for number, (name, switch) in enumerate(said.hosts.items(), 1)
    }
    wires = tuple((next_port(one), next_port(other)) for one, other in said.links)
    return Topology(said.name, said.title or said.name, numbers, hosts, wires, said.cables)


def _generate(shape: str, switches: int, hosts_each: int) -> TopologyFile:
    if not 1 <= switches <= _MOST_SWITCHES or switches * hosts_each > _MOST_HOSTS:
        raise InputError(
            f"{shape}:{switches}x{hosts_each} cannot be built",
            hint=f"1 to {_MOST_SWITCHES} switches and at most {_MOST_HOSTS} hosts in all",
        )
    names = [f"s{number}" for number in range(1, switches + 1)]
    links = [[names[_parent(shape, at)], names[at]] for at in range(1, switches)]
    if shape == "ring" and switches > 2:
        links.append([names[-1], names[0]])
    hosts = {f"h{number}": names[(number - 1) // hosts_each] for number in range(1, switches * hosts_each + 1)}
    title = f"{switches} switches as a {shape}, {hosts_each} hosts each"
    return TopologyFile(name=f"{shape}-{switches}x{hosts_each}", title=title, switches=names, hosts=hosts, links=links)


def _parent(shape: str, at: int) -> int:
    """Whom the switch at a place hangs on."""
    if shape == "star":
        return 0
    return (at - 1) // 2 if shape == "tree" else at - 1
