"""Networks drawn at random: switches, wires between them with loops and double links, and hosts."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from battlebrokers.sdn.core.network import Port


@dataclass(frozen=True)
class Town:
    """A drawn network with its hosts."""

    ports: dict[int, frozenset[int]]
    wires: list[tuple[Port, Port]]
    hosts: list[tuple[str, str, Port]]


@st.composite
def towns(draw: st.DrawFn) -> Town:
    """Connected networks of up to five switches, with loops and double links."""
    count = draw(st.integers(1, 5))
    pairs = [(draw(st.integers(1, switch - 1)), switch) for switch in range(2, count + 1)]
    if count > 1:
        switch = st.integers(1, count)
        pairs += [pair for pair in draw(st.lists(st.tuples(switch, switch), max_size=3)) if pair[0] != pair[1]]
    free = dict.fromkeys(range(1, count + 1), 1)

    def next_port(switch: int) -> Port:
        free[switch] += 1
        return Port(switch, free[switch] - 1)

    wires = [(next_port(one), next_port(other)) for one, other in pairs]
    homes = draw(st.lists(st.integers(1, count), min_size=2, max_size=6))
    hosts = [(f"00:00:00:00:01:{n:02x}", f"10.0.0.{n}", next_port(home)) for n, home in enumerate(homes, 1)]
    ports = {switch: frozenset(range(1, used)) for switch, used in free.items()}
    return Town(ports, wires, hosts)
