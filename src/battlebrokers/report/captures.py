"""Decoded captures in the terminal: what was seen, said, asked and answered, and how the network behaved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from battlebrokers.units import format_count, format_size

_LABEL_WIDTH = 12
_MOST_KINDS = 8
_FAULTS = {
    "fragment": "fragments of IP packets",
    "link": "their link layer is not one we read, or is broken",
    "ip": "their IP header is broken",
    "tcp": "their TCP header is broken",
    "udp": "their UDP header is broken",
}


def print_captures(console: Console, summary: Mapping[str, Any], place: str, *, report: str = "") -> None:
    """Print the summary of `bb pcap`."""
    for line in capture_lines(summary, place, report=report):
        console.print(line, soft_wrap=True, highlight=False)


def capture_lines(summary: Mapping[str, Any], place: str, *, report: str = "") -> Iterator[Text]:
    """The same, line by line."""
    yield _line("SEEN", f"{format_count(summary['packets'])} packets in {format_count(summary['streams'])} streams")
    for index, (protocol, kinds) in enumerate(summary["messages"].items()):
        most = sorted(kinds.items(), key=lambda kind: -kind[1])
        said = ", ".join(f"{format_count(count)} {kind}" for kind, count in most[:_MOST_KINDS])
        rest = f", and {len(most) - _MOST_KINDS} more kinds" if len(most) > _MOST_KINDS else ""
        yield _line("" if index else "MESSAGES", f"{protocol}: {said}{rest}")
    if not summary["messages"]:
        yield _line("MESSAGES", "none that a dissector could read")
    for index, (protocol, counts) in enumerate(summary["exchanges"].items()):
        said = ", ".join(f"{format_count(count)} {name}" for name, count in counts.items())
        yield _line("" if index else "EXCHANGES", f"{protocol}: {said}")
    odd = [f"{format_count(count)} {name.replace('_', ' ')}" for name, count in summary["tcp"].items() if count]
    yield _line("TCP", ", ".join(odd) or "nothing unusual")
    unread = (
        f"{format_count(summary['malformed'])} malformed messages, {format_size(summary['undecoded_bytes'])} undecoded"
    )
    yield _line("UNREAD", unread)
    for fault, count in summary.get("unread_packets", {}).items():
        yield _line(
            "", f"{format_count(count)} packets belong to no stream: {_FAULTS.get(fault, fault)}", style="yellow"
        )
    sealed = closed_records(summary)
    if sealed:
        yield _line("TLS", sealed, style="yellow")
    for defect in summary["defects"]:
        yield _line("DEFECT", f"{defect['file']}: {defect['reason']}", style="yellow")
    if report:
        yield _line("REPORT", report)
    yield _line("TABLES", f"{place}/decoded/   ({summary['seconds']:.1f} s)")


def closed_records(summary: Mapping[str, Any]) -> str:
    """That TLS was seen but not read, and what would help; empty if all of it was read."""
    count = summary["messages"].get("tls", {}).get("ApplicationData", 0)
    if not count:
        return ""
    return (
        f"{format_count(count)} records of application data were not decrypted "
        "(--tls-keys FILE opens those whose secrets are in a key log)"
    )


def _line(label: str, words: str, style: str = "") -> Text:
    return Text.assemble("  ", (f"{label:<{_LABEL_WIDTH}}", "bold"), (words, style))
