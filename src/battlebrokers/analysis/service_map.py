"""Who talks to whom: services as nodes, what they say unasked (requests, pushes) as arrows; answers are not drawn.

Put together from `traffic` and `responses`. Layers count the steps from outside; the page draws from left to right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from battlebrokers.analysis.delays import Asked
from battlebrokers.analysis.traces import OUTSIDE
from battlebrokers.analysis.traffic import OTHERS, Flow, active_s

_MOST_NODES = 12
_MOST_ARROWS = 40


@dataclass(frozen=True, slots=True)
class Arrow:
    """What one service says to another in one protocol, of its own accord."""

    sender: str
    receiver: str
    protocol: str
    messages: int
    """Requests and messages nobody asked for and nobody answers."""
    active_s: float
    """From the first message to the last: what the rate is counted over."""
    bytes: int
    """Of all it sent there, answers included."""
    asked: Asked | None
    """None where nothing was asked, or peers were put together."""

    @property
    def per_s(self) -> float:
        """Messages per second while it spoke."""
        return self.messages / self.active_s

    @property
    def p50_ns(self) -> int | None:
        """Median time to the answer."""
        return self.asked.delay.p50_ns if self.asked and self.asked.delay else None

    @property
    def failures(self) -> int:
        """Requests that failed or were never answered."""
        return self.asked.failed + self.asked.unanswered if self.asked else 0


@dataclass(frozen=True, slots=True)
class Node:
    """One service, or `outside`, or all `others`."""

    name: str
    layer: int
    sent_bytes: int
    received_bytes: int


@dataclass(frozen=True, slots=True)
class ServiceMap:
    """The map, layer by layer."""

    nodes: tuple[Node, ...]
    arrows: tuple[Arrow, ...]
    """The one with most messages first."""
    folded: int
    """Peers put together as `others`."""
    undrawn: int
    """Arrows beyond the busiest few."""


def draw_map(flows: Sequence[Flow], asked: Sequence[Asked], span_s: float) -> ServiceMap:
    """The map of the busiest services; `span_s` is how long was captured."""
    kept, folded = _kept(flows)
    name = {peer: peer if peer in kept else OTHERS for flow in flows for peer in (flow.sender, flow.receiver)}
    delays = {(one.asker, one.answerer, one.protocol): one for one in asked}
    sums: dict[tuple[str, str, str], list[Flow]] = {}
    sent: dict[str, int] = {}
    received: dict[str, int] = {}
    for flow in flows:
        sender, receiver = name[flow.sender], name[flow.receiver]
        sent[sender] = sent.get(sender, 0) + flow.bytes
        received[receiver] = received.get(receiver, 0) + flow.bytes
        sums.setdefault((sender, receiver, flow.protocol), []).append(flow)
    arrows = [
        Arrow(
            *key,
            messages,
            active_s(together, span_s),
            sum(flow.bytes for flow in together),
            None if OTHERS in key[:2] else delays.get(key),
        )
        for key, together in sums.items()
        if (messages := sum(flow.requests + flow.others for flow in together)) and key[0] != key[1]
    ]
    arrows.sort(key=lambda arrow: (-arrow.messages, arrow.sender, arrow.receiver, arrow.protocol))
    layers = _layers(sorted(set(name.values())), arrows)
    nodes = [Node(peer, layer, sent.get(peer, 0), received.get(peer, 0)) for peer, layer in layers.items()]
    drawn = tuple(arrows[:_MOST_ARROWS])
    return ServiceMap(
        tuple(sorted(nodes, key=lambda node: (node.layer, node.name))), drawn, folded, len(arrows) - len(drawn)
    )


def _kept(flows: Sequence[Flow]) -> tuple[set[str], int]:
    busy: dict[str, int] = {}
    for flow in flows:
        for peer in (flow.sender, flow.receiver):
            busy[peer] = busy.get(peer, 0) + flow.bytes
    order = sorted(busy, key=lambda peer: (peer != OUTSIDE, -busy[peer], peer))
    kept = order if len(order) <= _MOST_NODES else order[: _MOST_NODES - 1]
    return set(kept), len(order) - len(kept)


def _layers(peers: Sequence[str], arrows: Sequence[Arrow]) -> dict[str, int]:
    """Steps from outside along the arrows; from whoever speaks most where nothing comes from outside."""
    onward: dict[str, set[str]] = {}
    for arrow in arrows:
        onward.setdefault(arrow.sender, set()).add(arrow.receiver)
    layers: dict[str, int] = {}
    starts = [OUTSIDE] if OUTSIDE in peers else []
    starts += [arrow.sender for arrow in arrows] + list(peers)
    for start in starts:
        if start in layers:
            continue
        layers[start] = 0
        edge = [start]
        while edge:
            reached = sorted({peer for one in edge for peer in onward.get(one, ()) if peer not in layers})
            layers.update(dict.fromkeys(reached, layers[edge[0]] + 1))
            edge = reached
    return layers
