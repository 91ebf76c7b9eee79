"""What captures tell, ready to be shown: who asked whom, how much was said, single streams, slow messages.

Called by the report and `bb pcap`. Reads Parquet with pyarrow; whatever the captures' size, what comes out is small.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow.compute as pc

from battlebrokers.analysis.conversations import Conversations, read_conversations
from battlebrokers.analysis.delays import Asked, read_asked
from battlebrokers.analysis.examples import Examples, read_examples
from battlebrokers.analysis.explanation import Explanation, explain
from battlebrokers.analysis.kinds import Kind, read_kinds
from battlebrokers.analysis.passages import MOST, LastSeen, Passage, read_last_seen, read_passages
from battlebrokers.analysis.service_map import ServiceMap, draw_map
from battlebrokers.analysis.stored import is_decoded, is_run, is_stored, pieces
from battlebrokers.analysis.traces import OUTSIDE, Trace, Traces
from battlebrokers.analysis.traffic import Traffic, active_s, read_traffic
from battlebrokers.clock import SECOND_NS
from battlebrokers.tables import EXAMPLES, HOPS, STREAMS
from battlebrokers.tables.run_folder import RunFolder

_LOST = 5
_MOST_SERVICES = 64


@dataclass(frozen=True, slots=True)
class Wire:
    """Everything the page and the text files say about captures."""

    traffic: Traffic
    asked: tuple[Asked, ...]
    map: ServiceMap
    conversations: Conversations
    span_s: float
    """From the first packet to the last, but at least a second."""
    services: tuple[str, ...]
    """Whoever has a name or serves, the busiest first."""
    followed: int
    slowest: tuple[Trace, ...]
    median: Trace | None
    """A message that took as long as half of them at most."""
    lost: tuple[Trace, ...]
    """A few that never arrived, as far as they got."""
    explanation: Explanation | None
    passages: tuple[Passage, ...]
    last_seen: tuple[LastSeen, ...]
    kinds: tuple[Kind, ...]
    """What was said, the most frequent kind first."""

    def active_s(self, sender: str = "", receiver: str = "", protocol: str = "") -> float:
        """What rates are counted over: first to last message between these peers; empty is any."""
        mine = (
            flow
            for flow in self.traffic.flows
            if sender in ("", flow.sender) and receiver in ("", flow.receiver) and protocol in ("", flow.protocol)
        )
        return active_s(mine, self.span_s)


def read_wire(folder: RunFolder, void: str = "") -> Wire | None:
    """What the folder's captures tell, and if it is VOID why; None if it has none that were decoded to the end."""
    if not is_decoded(folder):
        return None
    traffic = read_traffic(folder)
    asked = read_asked(folder)
    services = _services(folder, traffic)
    conversations = read_conversations(folder, services)
    span_s = _span_s(conversations, traffic)
    examples = read_examples(folder) if is_stored(folder, EXAMPLES) else Examples(0)
    passages = read_passages(folder)
    return Wire(
        traffic,
        tuple(asked),
        draw_map(traffic.flows, asked, span_s),
        conversations,
        span_s,
        services,
        examples.followed,
        examples.slowest,
        examples.median,
        _lost(folder, examples),
        explain(examples, void) if examples.followed else None,
        tuple(passages[:MOST]),
        tuple(read_last_seen(folder)),
        tuple(read_kinds(folder, asked, passages)),
    )


def _lost(folder: RunFolder, examples: Examples) -> tuple[Trace, ...]:
    """Of a run it is known which messages never arrived."""
    if is_run(folder) and is_stored(folder, HOPS):
        return Traces(folder).lost(_LOST).traces
    return examples.stuck


def _span_s(conversations: Conversations, traffic: Traffic) -> float:
    if conversations.captured_ns is None:
        return float(max(1, traffic.seconds))
    first_ns, last_ns = conversations.captured_ns
    return max(1.0, (last_ns - first_ns) / SECOND_NS)


def _services(folder: RunFolder, traffic: Traffic) -> tuple[str, ...]:
    busy: dict[str, int] = {}
    for piece in pieces(folder, STREAMS, ("client_service", "server_service")):
        busy |= {name: 0 for column in piece.columns for name in pc.unique(column).to_pylist() if name is not None}
    for flow in traffic.flows:
        for peer in (flow.sender, flow.receiver):
            busy[peer] = busy.get(peer, 0) + flow.bytes
    busy.pop(OUTSIDE, None)
    return tuple(sorted(busy, key=lambda peer: (-busy[peer], peer))[:_MOST_SERVICES])
