"""A battle in the terminal: who is better, by how much, how sure that is; and two runs side by side."""

from __future__ import annotations

import math

from rich.console import Console
from rich.table import Table
from rich.text import Text

from battlebrokers.analysis.capture_cost import CaptureCost
from battlebrokers.analysis.comparison import Comparison, Row
from battlebrokers.analysis.metrics import METRICS
from battlebrokers.analysis.model import Summary
from battlebrokers.analysis.ranking import Ranking, Standing, label_of
from battlebrokers.analysis.story import tell, tell_notes
from battlebrokers.report.middleware import HEAD, costs, explain
from battlebrokers.report.terminal import VERDICT_STYLES, unfolded
from battlebrokers.report.wording import NOTHING, metric_text, ratio_text
from battlebrokers.units import format_count

_SHOWN = (
    "response_p50",
    "response_p99",
    "response_p999",
    "publish_p99",
    "delivered_rate",
    "sent_rate",
    "lost",
    "undelivered",
    "cpu",
    "rss",
)
_ANSWER_STYLES = {"better": "green", "worse": "red", "noise": "dim", "same": "dim", "not judged": "yellow"}


def print_battle(console: Console, ranking: Ranking) -> None:
    """Print the ranking, the sentences and what limits them."""
    console = unfolded(console)
    names = " against ".join(standing.contender for standing in ranking.standings)
    runs = sum(standing.runs for standing in ranking.standings)
    _say(
        console,
        Text.assemble(
            "  ",
            (" BATTLE ", "bold black on cyan"),
            "  ",
            (f"{ranking.title}: {names}", "bold"),
            ("    " + f"{runs} runs", "dim"),
        ),
    )
    for sentence in tell(ranking):
        _say(console, Text(f"  {sentence}", "bold"))
    console.print(ranking_table(ranking))
    _print_costs(console, ranking)
    for note in tell_notes(ranking):
        _say(console, Text(f"  note: {note}", "dim"))


def _print_costs(console: Console, ranking: Ranking) -> None:
    """What publishing costs, where it is not MQTT on both sides."""
    by_label: dict[str, list[Summary]] = {standing.contender: [] for standing in ranking.standings}
    for summary in ranking.summaries:
        by_label[label_of(summary, ranking.summaries)].append(summary)
    found = costs(list(by_label.items()))
    if all(set(cost.protocols.values()) <= {"mqtt"} for cost in found):
        return
    table = Table(box=None, padding=(0, 1), header_style="dim", pad_edge=True)
    for place, column in enumerate(("contender", *HEAD)):
        table.add_column(column, justify="left" if place < 2 else "right", overflow="fold")
    for cost in found:
        table.add_row(Text(cost.label, "bold"), *cost.cells)
    _say(console, Text(f"  {explain(found)}", "bold"))
    console.print(table)


def ranking_table(ranking: Ranking) -> Table:
    """One row per contender, medians over its trusted runs."""
    shown = [metric for metric in METRICS if metric.name in _SHOWN]
    shown = [metric for metric in shown if any(metric.name in {*s.values, *s.needed} for s in ranking.standings)]
    table = Table(box=None, padding=(0, 1), header_style="dim", pad_edge=True)
    table.add_column("#", justify="right")
    table.add_column("contender")
    table.add_column("runs")
    for metric in shown:
        table.add_column(metric.label, justify="right", overflow="fold")
    for standing in ranking.standings:
        values = [metric_text(m, standing.values.get(m.name), standing.needed.get(m.name)) for m in shown]
        versions = ", ".join(standing.versions)
        name = standing.contender if versions in standing.contender else f"{standing.contender} {versions}"
        table.add_row(standing.place, Text(name, "bold"), _verdicts(standing), *values)
    return table


def print_comparison(console: Console, comparison: Comparison) -> None:
    """Print two runs side by side."""
    console = unfolded(console)
    before, after = comparison.baseline, comparison.contender
    for label, run in (("baseline ", before), ("contender", after)):
        verdict = (f" {run.verdict} ", VERDICT_STYLES[run.verdict])
        name = f"{run.title} on {run.contender.name} {run.contender.version}"
        _say(console, Text.assemble("  ", (f"{label}  ", "dim"), verdict, f"  {run.run}  ", (name, "bold")))
    for reason in comparison.void:
        _say(console, Text.assemble("  ", ("not to be compared: ", "yellow"), reason))
    for reason in comparison.disturbed:
        _say(console, Text.assemble("  ", ("latency is not judged: ", "yellow"), reason))
    for difference in comparison.differences:
        _say(console, Text.assemble("  ", ("not made alike: ", "yellow"), difference))
    table = Table(box=None, padding=(0, 1), header_style="dim", pad_edge=True)
    for column in ("metric", "baseline", "contender", "contender ÷ baseline", ""):
        table.add_column(column, justify="left" if column in ("metric", "") else "right")
    for row in comparison.rows:
        ends = metric_text(row.metric, row.baseline, row.needed), metric_text(row.metric, row.contender, row.needed)
        table.add_row(row.metric.label, *ends, _change(row), Text(row.answer, _ANSWER_STYLES[row.answer]))
    console.print(table)
    note = (
        "noise: within ±5 %, or within what resampling the seconds of each run gives; repeats tell more (`bb battle`)"
    )
    if not comparison.void:
        _say(console, Text(f"  {note}", "dim"))
    if comparison.capture_cost is not None:
        _print_cost(console, comparison.capture_cost)


def _print_cost(console: Console, cost: CaptureCost) -> None:
    """What capturing did to latency and rate: how far to believe it first, then a line each."""
    did = f"{cost.captured} captured {format_count(cost.packets)} packets ({format_count(cost.dropped)} dropped)"
    _say(console, Text.assemble("  ", ("WHAT CAPTURING COST", "bold"), f"  {did}, the other run none"))
    if not cost.trusted:
        words = "not to be trusted, because a run is VOID or disturbed: the difference may have other causes"
        _say(console, Text(f"  {words}", "yellow"))
    table = Table(box=None, padding=(0, 1), header_style="dim", pad_edge=True)
    for column in ("metric", "without", "with capture", "change", ""):
        table.add_column(column, justify="left" if column in ("metric", "") else "right")
    for each in cost.costs:
        change = NOTHING if each.ratio is None else f"{100 * (each.ratio - 1):+.0f} %"
        answer = Text("noise", "dim") if each.noise else Text("")
        ends = metric_text(each.metric, each.without), metric_text(each.metric, each.with_capture)
        table.add_row(each.metric.label, *ends, change, answer)
    console.print(table)
    _say(console, Text("  one run each: what differs from run to run is in it; compare more pairs to be sure", "dim"))


def _change(row: Row) -> str:
    finite = row.low is not None and row.high is not None and math.isfinite(row.low) and math.isfinite(row.high)
    bounds = f" ({row.low:.2f}–{row.high:.2f})" if finite else ""
    return ratio_text(row.ratio) + bounds


def _verdicts(standing: Standing) -> Text:
    words = Text()
    for verdict in ("PASS", "FAIL", "VOID"):
        if count := standing.verdicts.get(verdict):
            style = {"PASS": "green", "FAIL": "red", "VOID": "yellow"}[verdict]
            words.append(f"{count} {verdict} ", style)
    words.rstrip()
    return words


def _say(console: Console, text: Text) -> None:
    console.print(text, soft_wrap=True, highlight=False)
