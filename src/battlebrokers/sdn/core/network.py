"""What the network looks like: switches, links, hosts, and the ways between them. Pure values.

Changed by the broker when a switch, port, link or host comes, goes or moves; read by the rules.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TypeAlias


@dataclass(frozen=True, slots=True, order=True)
class Port:
    """One port of one switch."""

    switch: int
    number: int

    def __str__(self) -> str:
        return f"s{self.switch}:{self.number}"


Tree: TypeAlias = dict[int, dict[int, Port]]
"""Switch → neighbour in the tree → the port that leads there."""
Forest: TypeAlias = tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Host:
    """Who was seen where."""

    mac: str
    ipv4: str
    port: Port


@dataclass(frozen=True, slots=True)
class Network:
    """Ports that are up, by switch; links by their first end (each link stands twice); hosts by MAC address."""

    ports: dict[int, frozenset[int]] = field(default_factory=dict)
    links: dict[Port, Port] = field(default_factory=dict)
    hosts: dict[str, Host] = field(default_factory=dict)
    serials: dict[int, str] = field(default_factory=dict)
    """What switches call themselves beside their number; only of those that do."""

    def with_switch(self, switch: int, ports: frozenset[int]) -> Network:
        """A switch came, or its ports changed: what no longer is up leads nowhere."""
        return _tidied(replace(self, ports=self.ports | {switch: ports}))

    def without_switch(self, switch: int) -> Network:
        """A switch left. Its hosts stay known: they are where they were when it comes back."""
        left = {other: ports for other, ports in self.ports.items() if other != switch}
        return _tidied(replace(self, ports=left))

    def with_serial(self, switch: int, serial: str) -> Network:
        """A switch told its serial number; those of switches nobody knows anything else of are forgotten."""
        told = self.serials | {switch: serial}
        still = {host.port.switch for host in self.hosts.values()} | set(self.ports)
        return replace(self, serials={other: one for other, one in told.items() if one and other in still})

    def with_other_switch(self, switch: int) -> Network:
        """Another switch has this one's number now: what was behind the old one is not behind it."""
        hosts = {mac: host for mac, host in self.hosts.items() if host.port.switch != switch}
        return replace(self.without_switch(switch), hosts=hosts)

    def with_link(self, one: Port, other: Port) -> Network:
        """Two ports face each other; what they faced before is forgotten."""
        faced = {self.links.get(one), self.links.get(other), one, other}
        links = {a: b for a, b in self.links.items() if a not in faced and b not in faced}
        return replace(self, links=links | {one: other, other: one})

    def without_link(self, end: Port) -> Network:
        """A link is no longer there."""
        other = self.links.get(end)
        return replace(self, links={a: b for a, b in self.links.items() if end not in (a, b) and other not in (a, b)})

    def with_host(self, host: Host) -> Network:
        """A host was seen."""
        return replace(self, hosts=self.hosts | {host.mac: host})

    def without_host(self, mac: str) -> Network:
        """A host is no longer known."""
        return replace(self, hosts={other: host for other, host in self.hosts.items() if other != mac})

    def without_hosts_down(self, switch: int) -> Network:
        """Hosts behind ports of a switch that are not up are forgotten: they may turn up elsewhere."""
        gone = {mac for mac, host in self.hosts.items() if host.port.switch == switch and not self.is_up(host.port)}
        return replace(self, hosts={mac: host for mac, host in self.hosts.items() if mac not in gone}) if gone else self

    def is_up(self, port: Port) -> bool:
        """Whether frames can leave there."""
        return port.number in self.ports.get(port.switch, ())

    def host_at(self, port: Port) -> Host | None:
        """The host known at a port."""
        return next((host for host in self.hosts.values() if host.port == port), None)

    def neighbours(self, switch: int) -> dict[int, Port]:
        """Switches one link away, each with the port that leads there: the lowest where several do."""
        found: dict[int, Port] = {}
        for end in sorted(self.links):
            if end.switch == switch:
                found.setdefault(self.links[end].switch, end)
        return found

    def ways_to(self, target: int) -> dict[int, Port]:
        """The port by which each switch sends what is meant for `target`, on a shortest way; unreachable ones miss."""
        ways: dict[int, Port] = {}
        waiting = deque([target] if target in self.ports else [])
        while waiting:
            nearer = waiting.popleft()
            for switch in sorted(self.neighbours(nearer)):
                if switch != target and switch not in ways:
                    ways[switch] = self.neighbours(switch)[nearer]
                    waiting.append(switch)
        return ways

    def farthest(self, target: int) -> int:
        """Links between `target` and the switch that is farthest from it."""
        return max(_distances(self._beside(), target).values()) if target in self.ports else 0

    def tree(self, root: int) -> Tree:
        """The shortest ways to `root` as a tree without directions."""
        tree: Tree = {root: {}} if root in self.ports else {}
        for switch, port in self.ways_to(root).items():
            neighbour = self.links[port].switch
            tree.setdefault(switch, {})[neighbour] = port
            tree.setdefault(neighbour, {})[switch] = self.links[port]
        return tree

    def forest(self) -> Forest:
        """One tree from the middle of each part of a network that fell apart; the same whoever subscribes."""
        beside = self._beside()
        trees: list[Tree] = []
        left = set(self.ports)
        while left:
            part = sorted(_distances(beside, min(left)))
            trees.append(self.tree(min(part, key=lambda switch: sum(_distances(beside, switch).values()))))
            left -= set(part)
        return tuple(trees)

    def _beside(self) -> dict[int, set[int]]:
        beside: dict[int, set[int]] = {switch: set() for switch in self.ports}
        for one, other in self.links.items():
            beside[one.switch].add(other.switch)
        return beside


def _distances(beside: dict[int, set[int]], start: int) -> dict[int, int]:
    """Links to every switch that can be reached."""
    found = {start: 0}
    waiting = deque([start])
    while waiting:
        one = waiting.popleft()
        for other in beside[one] - found.keys():
            found[other] = found[one] + 1
            waiting.append(other)
    return found


def _tidied(network: Network) -> Network:
    links = {one: other for one, other in network.links.items() if network.is_up(one) and network.is_up(other)}
    return replace(network, links=links)
