"""What the page says about captures: charts as plain data, tables as rows in words. Pure: a `Wire` in, dicts out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from battlebrokers.analysis.conversations import Conversation
from battlebrokers.analysis.delays import LEVELS, Asked, Delay, merged
from battlebrokers.analysis.kinds import Kind, Spoken
from battlebrokers.analysis.quantiles import samples_for
from battlebrokers.analysis.traces import OUTSIDE, Leg, Trace
from battlebrokers.analysis.traffic import OTHERS, Line, Traffic
from battlebrokers.analysis.wire import Wire
from battlebrokers.clock import MILLISECOND_NS
from battlebrokers.report.map_layout import lay_out
from battlebrokers.report.wording import NOTHING, is_carried, point_text, some
from battlebrokers.units import format_count, format_duration, format_size

Chart = dict[str, Any]

_MOST_BOXES = {"peer": 12, "kind": 24}
_MOST_LEGS = 40
_MOST_KINDS = 60
_REST_SLOT = 6


def wire_view(
    wire: Wire,
    *,
    origin_second: int | None = None,
    since: int | None = None,
    used: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """All the section needs: `used` are the services' resources.

    `origin_second` is second 0 of the charts, `since` the second they begin with.
    """
    origin = wire.traffic.first_second if origin_second is None else origin_second
    slots = protocol_slots(wire.traffic.protocols)
    charts = wire_charts(wire, origin, slots, since)
    asked = [one for peers in wire.asked for one in peers.kinds]
    inside = kept_words(wire)
    return {
        "charts": charts,
        "descriptions": _descriptions(wire),
        "lede": _lede(wire),
        "explanation": wire.explanation.sentences() if wire.explanation else [],
        "shares": wire.explanation.shares if wire.explanation else (),
        "services": [_service_row(wire, name, (used or {}).get(name)) for name in wire.services],
        "used": any(name in (used or {}) for name in wire.services),
        "asked": [_asked_row(one) for one in asked[:200]],
        "asked_left_out": max(0, len(asked) - 200),
        "kinds": _kind_rows(wire),
        "kinds_left_out": max(0, sum(kind.part != "response" for kind in wire.kinds) - _MOST_KINDS),
        "unasked": any(line.unasked for line in wire.traffic.bands),
        "drawing": lay_out(wire.map, slots, inside),
        "map_words": map_words(wire),
        "arrows": wire.map.arrows,
        "folded": wire.map.folded,
        "undrawn": wire.map.undrawn,
        "protocols": [(line.name, slots.get(line.name, _REST_SLOT)) for line in wire.traffic.protocols],
        "totals": wire.conversations.totals,
        "streams": [_stream_row(one) for one in wire.conversations.busiest],
        "streams_in_all": wire.conversations.count,
        "journeys": _journeys(wire),
        "followed": wire.followed,
        "passages": wire.passages,
        "last_seen": wire.last_seen,
    }


def wire_charts(wire: Wire, origin: int, slots: Mapping[str, int], since: int | None = None) -> dict[str, Chart]:
    """Every chart that has something to show, by id."""
    traffic = wire.traffic
    own = {line.name: place for place, line in enumerate(traffic.services)}
    charts = [
        delays(wire.asked, slots),
        flow("wire-protocols", traffic, traffic.bands, slots, origin, since, stacked=True),
        flow("wire-services", traffic, traffic.services, own, origin, since),
    ]
    return {chart["id"]: chart for chart in charts if chart.get("series") or chart.get("boxes", {}).get("peer")}


def delays(asked: Sequence[Asked], slots: Mapping[str, int]) -> Chart:
    """One box per peer and direction; the same by kind of request for who looks closer."""
    peers = [one for one in asked if one.delay is not None]
    kinds = [kind for one in peers for kind in one.kinds if kind.delay is not None]
    kinds.sort(key=lambda one: (-one.n, one.asker, one.answerer, one.protocol, one.kind))
    return box_chart(
        {
            name: [box(one, one.delay, slots) for one in found if one.delay is not None]
            for name, found in (("peer", peers), ("kind", kinds))
        }
    )


def box_chart(boxes: Mapping[str, list[dict[str, Any]]]) -> Chart:
    """The chart of these boxes by peer and by kind, the first ones of each."""
    return {
        "id": "wire-delays",
        "kind": "boxes",
        "unit": "ms",
        "boxes": {name: found[: _MOST_BOXES[name]] for name, found in boxes.items()},
        "left_out": {name: max(0, len(found) - _MOST_BOXES[name]) for name, found in boxes.items()},
    }


def box(one: Asked, delay: Delay, slots: Mapping[str, int]) -> dict[str, Any]:
    """One box: a peer and direction, or a kind of request between two peers."""
    return {
        "name": f"{one.asker} → {one.answerer}",
        "what": f"{one.protocol} {one.kind}".strip(),
        "slot": slots.get(one.protocol, _REST_SLOT),
        "n": one.n,
        "answered": one.answered,
        "failed": one.failed,
        "unanswered": one.unanswered,
        "points": [
            round(point / MILLISECOND_NS, 6) if is_carried(delay.n, p) else None
            for point, p in zip(delay.points, LEVELS, strict=True)
        ],
        "needed": [0 if is_carried(delay.n, p) else samples_for(p) for p in LEVELS],
    }


def flow(
    name: str,
    traffic: Traffic,
    lines: Sequence[Line],
    slots: Mapping[str, int],
    origin: int,
    since: int | None = None,
    *,
    stacked: bool = False,
) -> Chart:
    """Bytes per second; `origin` is second 0, what was said before second `since` is left out."""
    first_second, width = traffic.first_second - origin, traffic.seconds_per_column
    skipped = 0 if since is None else min(max(0, (since - first_second) // width), traffic.columns - 1)
    return {
        "id": name,
        "kind": "flow",
        "unit": "bytes_per_s",
        "stacked": stacked,
        "first_second": first_second + skipped * width,
        "seconds_per_column": width,
        "columns": traffic.columns - skipped,
        "series": [
            {
                "name": f"{line.name}, unasked" if line.unasked else line.name,
                "slot": _REST_SLOT if line.name == OTHERS else slots.get(line.name, _REST_SLOT),
                "dash": "dashed" if line.unasked else "solid",
                "data": [round(value, 1) for value in line.bytes_per_s[skipped:]],
            }
            for line in lines
        ],
    }


def protocol_slots(protocols: Sequence[Line]) -> dict[str, int]:
    """A colour for each protocol, the same in all charts."""
    return {line.name: min(place, _REST_SLOT) for place, line in enumerate(protocols)}


def _descriptions(wire: Wire) -> dict[str, str]:
    boxes = [
        f"{one.asker} to {one.answerer} in {one.protocol}: "
        f"median {point_text(one.delay.p50_ns, one.delay.n, 0.5)}, "
        f"p95 {point_text(one.delay.p95_ns, one.delay.n, 0.95)}"
        for one in wire.asked[: _MOST_BOXES["peer"]]
        if one.delay
    ]
    peaks = "; ".join(f"{line.name} up to {format_size(line.peak)} per second" for line in wire.traffic.protocols)
    pushed = "; ".join(
        f"{line.name} up to {format_size(line.peak)} per second" for line in wire.traffic.bands if line.unasked
    )
    unasked = f" Of these neither request nor response: {pushed}." if pushed else ""
    senders = "; ".join(f"{line.name} up to {format_size(line.peak)} per second" for line in wire.traffic.services)
    return {
        "wire-delays": f"Time from request to response, one box per peer and direction. {'; '.join(boxes)}.",
        "wire-protocols": f"Bytes per second on the wires, stacked by protocol: {peaks}.{unasked}",
        "wire-services": f"Bytes per second sent by each service: {senders}.",
    }


def _lede(wire: Wire) -> str:
    found = wire.conversations
    packets = sum(total.packets for total in found.totals)
    spoken = [line.name for line in wire.traffic.protocols]
    words = f"{some(packets, 'packet')} in {some(found.count, 'stream')}"
    if spoken:
        words += f", in which {', '.join(spoken)} was spoken" if len(spoken) == 1 else f": {', '.join(spoken)}"
    return f"{words}. Seen on the wire, without touching any service."


def map_words(wire: Wire) -> str:
    """The map in words."""
    said = [f"{arrow.sender} to {arrow.receiver} in {arrow.protocol}" for arrow in wire.map.arrows[:12]]
    return f"Service map: {'; '.join(said)}." if said else "Service map: nothing was said."


def kept_words(wire: Wire) -> dict[str, str]:
    """A line under each service's name: how long it keeps followed messages."""
    found: dict[str, tuple[int, int]] = {}
    for passage in wire.passages:
        if passage.inside_p50_ns is not None and passage.n > found.get(passage.sender, (0, 0))[0]:
            found[passage.sender] = (passage.n, passage.inside_p50_ns)
    return {
        name: f"keeps messages {point_text(value, n, 0.5)}" for name, (n, value) in found.items() if name != OUTSIDE
    }


def _service_row(wire: Wire, name: str, used: Any) -> dict[str, Any]:
    made = [one for one in wire.asked if one.asker == name]
    got = [one for one in wire.asked if one.answerer == name]
    answers = merged([one.delay for one in got if one.delay])
    flows = wire.traffic.flows
    return {
        "name": name,
        "streams": wire.conversations.count_of_service.get(name, 0),
        "sent_bytes": sum(flow.bytes for flow in flows if flow.sender == name),
        "received_bytes": sum(flow.bytes for flow in flows if flow.receiver == name),
        "made": sum(one.n for one in made),
        "made_pending": sum(one.unanswered for one in made),
        "made_failed": sum(one.failed for one in made),
        "got": sum(one.n for one in got),
        "got_pending": sum(one.unanswered for one in got),
        "got_failed": sum(one.failed for one in got),
        "p50": point_text(answers.p50_ns, answers.n, 0.5) if answers else NOTHING,
        "p99": point_text(answers.p99_ns, answers.n, 0.99) if answers else NOTHING,
        "request_bytes": sum(one.request_bytes for one in got) / max(1, sum(one.n for one in got)),
        "response_bytes": sum(one.response_bytes for one in got) / max(1, sum(one.answered for one in got)),
        "used": used,
    }


def _asked_row(one: Asked) -> dict[str, Any]:
    if one.delay is None:
        return {"one": one, "points": [NOTHING] * len(LEVELS)}
    n = one.delay.n
    points = [point_text(point, n, p) for point, p in zip(one.delay.points, LEVELS, strict=True)]
    return {"one": one, "points": points}


def _kind_rows(wire: Wire) -> list[dict[str, Any]]:
    """One row a kind, with its name if it has one; below it the most frequent names if there are several."""
    rows = []
    for kind in [kind for kind in wire.kinds if kind.part != "response"][:_MOST_KINDS]:
        alone = len(kind.names) == 1
        about = kind.names[0].name if alone else some(len(kind.names) + kind.more_names, "name") if kind.names else ""
        spoke_s = wire.active_s(kind.sender, kind.receiver, kind.protocol)
        rows.append(_kind_row(kind, kind.all, about, spoke_s, first=True))
        rows += [_kind_row(kind, one, one.name, spoke_s, first=False) for one in kind.names if not alone]
    return rows


def _kind_row(kind: Kind, spoken: Spoken, about: str, spoke_s: float, *, first: bool) -> dict[str, Any]:
    return {
        "kind": kind,
        "spoken": spoken,
        "about": about,
        "first": first,
        "per_s": spoken.n / spoke_s,
        "followed": spoken.followed / spoken.n if spoken.followed else None,
        "p50": point_text(spoken.p50_ns, spoken.n, 0.5),
        "p99": point_text(spoken.p99_ns, spoken.n, 0.99),
    }


def _stream_row(one: Conversation) -> dict[str, Any]:
    """Cells with what to sort them by; None where nothing was measured."""
    row = one.row
    rtt = row["initial_rtt_ns"] if row["initial_rtt_ns"] is not None else row["server_rtt_ns"]
    return {
        "client": one.client,
        "client_at": f"{row['client']}:{row['client_port']}",
        "server": one.server,
        "server_at": f"{row['server']}:{row['server_port']}",
        "protocols": one.protocols,
        "said": [
            f"{protocol} {format_count(count)} in {some(one.packets[protocol], 'packet')}"
            if one.packets[protocol]
            else f"{protocol} {format_count(count)}"
            for protocol, count in one.messages.items()
        ],
        "packets": row["packets"],
        "bytes": one.bytes,
        "from_client": one.from_client,
        "from_server": one.from_server,
        "malformed": row["malformed"],
        "undecoded_bytes": row["undecoded_bytes"],
        "retransmissions": row["retransmissions"],
        "gap_bytes": row["gap_bytes"],
        "rtt_ns": rtt,
        "rtt": _time(rtt),
    }


def _journeys(wire: Wire) -> list[dict[str, Any]]:
    """The slowest, one as fast as most, and a few that never arrived; each once."""
    ends = {trace.id: max(trace.legs, key=lambda leg: leg.received_ns).receiver for trace in wire.lost}
    told = [_journey(trace, "the slowest" if not place else "") for place, trace in enumerate(wire.slowest)]
    if wire.median is not None and wire.median not in wire.slowest:
        told.append(_journey(wire.median, "the median"))
    lost = [trace for trace in wire.lost if trace not in wire.slowest]
    return told + [_journey(trace, f"lost, last seen going to {ends[trace.id]}") for trace in lost]


def _journey(trace: Trace, remark: str) -> dict[str, Any]:
    """One waterfall: places as percent of the whole time."""
    way = trace.way()
    legs = trace.legs if len(trace.legs) <= _MOST_LEGS else way[:_MOST_LEGS]
    whole = max(1, trace.took_ns)
    ends = {leg.number: leg.received_ns for leg in trace.legs}
    return {
        "title": trace.title,
        "remark": remark,
        "took": _time(trace.took_ns),
        "confidence": trace.confidence,
        "legs": [_leg_row(leg, trace.began_ns, whole, ends, on_way=leg in way) for leg in legs],
        "left_out": len(trace.legs) - len(legs),
        "ticks": [_time(whole * part / 4) if part else "0" for part in range(5)],
    }


def _leg_row(leg: Leg, began_ns: int, whole: int, ends: Mapping[int, int], *, on_way: bool) -> dict[str, Any]:
    def percent(value_ns: float) -> float:
        return round(min(100.0, max(0.0, 100 * value_ns / whole)), 3)

    came_ns = ends.get(leg.parent, leg.sent_ns) if leg.parent is not None else leg.sent_ns
    kept = leg.inside_ns is not None
    return {
        "sender": leg.sender,
        "receiver": leg.receiver,
        "what": f"{leg.protocol} {leg.kind} {leg.name}".rstrip(),
        "on_way": on_way,
        "inside": _time(leg.inside_ns),
        "wire": _time(leg.received_ns - leg.sent_ns) if leg.received_ns > leg.sent_ns else "one packet",
        "at": _time(leg.sent_ns - began_ns),
        "kept_left": percent(came_ns - began_ns) if kept else 0.0,
        "kept_width": percent(leg.sent_ns - came_ns) if kept else 0.0,
        "left": percent(leg.sent_ns - began_ns),
        "width": percent(leg.received_ns - leg.sent_ns),
    }


def _time(value_ns: float | None) -> str:
    return NOTHING if value_ns is None else format_duration(value_ns)
