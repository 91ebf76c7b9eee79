"""The page about captures without a run around them, as one self-contained HTML file. Called by `bb pcap`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from battlebrokers import __version__
from battlebrokers.analysis.wire import Wire, read_wire
from battlebrokers.clock import SECOND_NS
from battlebrokers.report.captures import closed_records
from battlebrokers.report.html import asset, json_island, page_environment
from battlebrokers.report.view import Tile
from battlebrokers.report.wire import wire_view
from battlebrokers.report.wording import duration_s, some
from battlebrokers.tables.run_folder import RunFolder
from battlebrokers.units import format_count, format_size

_MOST_KINDS = 12
_LATEST_S = 4_102_444_800
"""The year 2100: a clock beyond it is a damaged one, and not told as a date."""


def render_captures(folder: RunFolder, summary: Mapping[str, Any]) -> str:
    """The page; `summary` is what `bb pcap --json` prints."""
    return render_wire(folder, summary, read_wire(folder))


def render_wire(folder: RunFolder, summary: Mapping[str, Any], wire: Wire | None) -> str:
    """The same for what has been read already."""
    section = wire_view(wire) if wire else None
    charts = section["charts"] if section else {}
    kinds = [(protocol, kind, n) for protocol, found in summary["messages"].items() for kind, n in found.items()]
    kinds.sort(key=lambda row: (-row[2], row[0], row[1]))
    context: dict[str, Any] = {
        "version": __version__,
        "title": f"Captures in {folder.path.name} · BattleBrokers",
        "heading": folder.path.name,
        "place": str(folder.path),
        "sentences": _sentences(summary, wire),
        "facts": _facts(wire),
        "tiles": _tiles(summary),
        "messages": kinds[:_MOST_KINDS],
        "kinds_left_out": max(0, len(kinds) - _MOST_KINDS),
        "exchanges": list(summary["exchanges"].items()),
        "tcp": [(name.replace("_", " "), format_count(count)) for name, count in summary["tcp"].items()],
        "defects": summary.get("defects", []),
        "wire": section,
        "charts": charts,
        "descriptions": section["descriptions"] if section else {},
        "island": json_island({"charts": charts, "phases": [], "summaries": {"captures": summary}}),
        "css": asset("report.css"),
        "js": asset("report.js"),
        "wire_js": asset("wire.js"),
        "echarts": asset("echarts.min.js"),
    }
    return page_environment().get_template("captures.html.j2").render(context)


def _sentences(summary: Mapping[str, Any], wire: Wire | None) -> list[str]:
    said = sum(sum(kinds.values()) for kinds in summary["messages"].values())
    first = (
        f"{some(summary['packets'], 'packet')} in {some(summary['streams'], 'stream')}: "
        f"{some(said, 'message')} in {some(len(summary['messages']), 'protocol')}."
    )
    blamed = wire is not None and wire.explanation is not None and wire.explanation.culprit is not None
    closed = closed_records(summary)
    told = [first, f"TLS: {closed}."] if closed else [first]
    return [*told, *(wire.explanation.sentences() if blamed and wire and wire.explanation else [])]


def _facts(wire: Wire | None) -> list[str]:
    if wire is None or wire.conversations.captured_ns is None:
        return []
    first, last = (at / SECOND_NS for at in wire.conversations.captured_ns)
    facts = [f"{duration_s(last - first)} of traffic"]
    if 0 < first < _LATEST_S:
        facts.append(f"from {datetime.fromtimestamp(first, UTC).strftime('%-d %B %Y, %H:%M:%S UTC')}")
    if wire.followed:
        facts.append(f"{some(wire.followed, 'message')} followed")
    return facts


def _tiles(summary: Mapping[str, Any]) -> list[Tile]:
    answered, unanswered, uncertain = (
        sum(one[name] for one in summary["exchanges"].values()) for name in ("answered", "unanswered", "uncertain")
    )
    again = summary["tcp"].get("retransmissions", 0)
    lost = summary["tcp"].get("lost_segments", 0)
    strays = sum(summary.get("unread_packets", {}).values())
    tiles = [
        Tile("packets", format_count(summary["packets"]), f"in {some(summary['streams'], 'stream')}"),
        Tile("answered", format_count(answered + uncertain), f"{format_count(uncertain)} of them uncertain"),
        Tile("unanswered", format_count(unanswered), "requests", bool(unanswered)),
        Tile("retransmissions", format_count(again), f"{some(lost, 'segment')} missing", bool(again)),
        Tile("malformed", format_count(summary["malformed"]), "messages", bool(summary["malformed"])),
        Tile("undecoded", format_size(summary["undecoded_bytes"]), "of payload"),
    ]
    return (
        [*tiles, Tile("unread", format_count(strays), "packets: broken or unknown headers", True)] if strays else tiles
    )
