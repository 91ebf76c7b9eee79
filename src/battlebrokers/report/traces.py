"""Followed messages in the terminal: one line a leg, a bar for when, and how long each service kept it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from battlebrokers.analysis.explanation import WIRE, Explanation
from battlebrokers.analysis.traces import Leg, Lost, Trace
from battlebrokers.report.wording import duration_ms, some
from battlebrokers.units import format_count

_BAR = 32
_MOST_LEGS = 40


def print_traces(console: Console, traces: Sequence[Trace]) -> None:
    """Print these messages' ways."""
    for trace in traces:
        for line in trace_lines(trace):
            console.print(line, soft_wrap=True, highlight=False)


def trace_lines(trace: Trace) -> Iterator[Text]:
    """One message, line by line."""
    sure = "" if trace.confidence >= 1 else f"   (confidence {trace.confidence:g})"
    yield Text.assemble(("  message ", "dim"), (trace.title, "bold"), f"   {_ms(trace.took_ns)}", (sure, "yellow"))
    way = trace.way()
    shown = trace.legs if len(trace.legs) <= _MOST_LEGS else way
    names = [f"{leg.sender} → {leg.receiver}" for leg in shown]
    width = max(len(name) for name in names)
    for leg, name in zip(shown, names, strict=True):
        kept = f"  {_ms(leg.inside_ns)} inside {leg.sender}" if leg.inside_ns is not None else ""
        said = f"{leg.protocol} {leg.kind} {leg.name}".rstrip()
        style = "" if leg in way else "dim"
        yield Text.assemble(
            "    ", (f"{name:<{width}}  ", style), (_bar(trace, leg), "cyan"), f"  {said}", (kept, "bold")
        )
    if len(shown) < len(trace.legs):
        yield Text(f"    … and {len(trace.legs) - len(shown)} more legs besides this one", style="dim")


def print_slowest(console: Console, traces: Sequence[Trace], followed: int) -> None:
    """Print the slowest messages, and of how many."""
    if not traces:
        _say(console, "No message was seen on two wires, so none could be followed.")
        return
    count = "the slowest" if len(traces) == 1 else f"the {len(traces)} slowest"
    _say(console, f"{some(followed, 'message')} followed; {count}:", style="dim")
    print_traces(console, traces)


def print_lost(console: Console, lost: Lost, followed: int) -> None:
    """Print messages that never arrived, as far as they got."""
    if not lost.total:
        _say(console, f"No message was lost on its way; {some(followed, 'message')} followed.")
        return
    for trace in lost.traces:
        print_traces(console, [trace])
        _say(console, f"  last seen going to {max(trace.legs, key=_arrival).receiver}", style="yellow")
    _say(console, f"{some(lost.total, 'message')} lost, {format_count(lost.seen)} of them seen on a wire.")
    if lost.seen > len(lost.traces):
        _say(console, f"Shown are {len(lost.traces)}; --json prints all.", style="dim")


def _arrival(leg: Leg) -> int:
    return leg.received_ns


def _say(console: Console, words: str, style: str = "") -> None:
    console.print(Text(f"  {words}", style=style), soft_wrap=True, highlight=False)


def print_explanation(console: Console, explanation: Explanation, reference: str = "RUN") -> None:
    """Print who holds the slow messages back; `reference` is what the reader calls the run."""
    for sentence in explanation.sentences():
        _say(console, sentence)
    width = max([len("time inside"), *(len(share.service) for share in explanation.shares)])
    if explanation.shares:
        head = f"  {'time inside':<{width}}   {'slowest hundredth':>17}   {'faster half':>17}"
        console.print(Text(head, style="dim"), soft_wrap=True)
    for share in explanation.shares:
        slow, ordinary = _ms(share.slow_mean_ns), _ms(share.ordinary_mean_ns)
        cells = f"{slow:>10} {100 * share.slow:>4.0f} %   {ordinary:>10} {100 * share.ordinary:>4.0f} %"
        console.print(f"  {share.service:<{width}}   {cells}", soft_wrap=True, highlight=False)
    if not explanation.examples:
        return
    _say(console, f"the slowest, each of which `bb trace {reference} --id ID` shows leg by leg:", style="dim")
    longest = max((len(one.id) for one in explanation.examples), default=0)
    for one in explanation.examples:
        where = "on the wire" if one.service == WIRE else f"inside {one.service}"
        _say(console, f"  {one.id:<{longest}}   {_ms(one.took_ns)}, {_ms(one.inside_ns)} of it {where}")


def _bar(trace: Trace, leg: Leg) -> str:
    whole = max(1, trace.took_ns)
    start = min(_BAR - 1, int((leg.sent_ns - trace.began_ns) * _BAR / whole))
    end = max(start + 1, min(_BAR, round((leg.received_ns - trace.began_ns) * _BAR / whole)))
    return "·" * start + "█" * (end - start) + "·" * (_BAR - end)


def _ms(value_ns: float) -> str:
    return duration_ms(value_ns / 1e6)
