"""A run in the terminal: headline, expectations, traffic, latency, ledger, resources, trust, what to do next.

Lines are Rich texts without wrapping, so that piped output is plain and greppable. Prints to the console given.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.text import Text

from battlebrokers.analysis.conclusion import Conclusion
from battlebrokers.analysis.model import Judged, Summary
from battlebrokers.catalog.entries import runs_directory
from battlebrokers.output import PlainConsole
from battlebrokers.report.sentences import only_connected
from battlebrokers.report.wording import LEVEL_NAMES, NOTHING, delivered_text, duration_s, level_text, some
from battlebrokers.units import format_count, format_duration, format_percent, format_rate, format_size

LABEL_WIDTH = 15
MOST_FINDINGS = 4
PIPE_WIDTH = 200
VERDICT_STYLES = {"PASS": "bold black on green", "FAIL": "bold white on red", "VOID": "bold black on yellow"}
_SEVERITY_STYLES = {"critical": "red", "warning": "yellow", "notice": "cyan", "info": "dim"}


def print_run(console: Console, conclusion: Conclusion) -> None:
    """Print one run."""
    for line in run_lines(conclusion):
        console.print(line, soft_wrap=True, highlight=False)


def run_lines(conclusion: Conclusion) -> Iterator[Text]:
    """The report, line by line."""
    summary = conclusion.summary
    yield _headline(summary)
    for reason in summary.reasons:
        yield _line("", ("because ", "dim"), (reason, ""))
    yield from _expectations(summary.expectations)
    yield _traffic(summary)
    yield from _latency(summary)
    yield _ledger(summary)
    if summary.messages.failures:
        kinds = "   ".join(f"{kind} {format_count(n)}" for kind, n in summary.messages.failures.items())
        yield _line("", ("publishes without success: ", "dim"), (kinds, "bold red"))
    for kind, action in summary.actions.items():
        if action.failures:
            why = "   ".join(f"{why} {format_count(n)}" for why, n in action.failures.items())
            words = "connections that broke" if kind == "lost" else f"{kind} without success"
            yield _line("", (f"{words}: ", "dim"), (why, "bold red"))
    if summary.messages.wrong_arrivals:
        kinds = "   ".join(f"{kind} {format_count(n)}" for kind, n in summary.messages.wrong_arrivals.items())
        yield _line("", ("arrivals that are no messages: ", "dim"), (kinds, "bold red"))
    yield from _cost(summary)
    yield from _resources(summary)
    yield from _trust(summary)
    for index, finding in enumerate(conclusion.findings[:MOST_FINDINGS]):
        yield _line("" if index else "FINDINGS", (finding.sentence, _SEVERITY_STYLES[finding.severity]))
    if len(conclusion.findings) > MOST_FINDINGS:
        yield _line("", (f"… and {len(conclusion.findings) - MOST_FINDINGS} more in the report", "dim"))
    yield _next(conclusion)


def unfolded(console: Console) -> Console:
    """The console itself, or, where it is no terminal, one wide enough for whole tables: pipes have no width."""
    return console if console.is_terminal else PlainConsole(file=console.file, width=PIPE_WIDTH)


def verdict_badge(verdict: str) -> tuple[str, str]:
    """The verdict as a coloured word."""
    return f" {verdict} ", VERDICT_STYLES.get(verdict, "bold")


def _headline(summary: Summary) -> Text:
    contender = summary.contender
    profile = "" if contender.profile in ("stock", "external") else f" ({contender.profile})"
    nodes = f"{some(summary.devices, 'device')} · {some(summary.clients, 'client')}"
    facts = f"run {summary.run} · {duration_s(summary.duration_s)} · {nodes} · seed {summary.seed}"
    name = f"{summary.title} on {contender.name} {contender.version}".rstrip() + profile
    return Text.assemble("  ", verdict_badge(summary.verdict), "  ", (name, "bold"), "    ", (facts, "dim"))


def _expectations(judged: list[Judged]) -> Iterator[Text]:
    marks = {True: ("✓", "green"), False: ("✗", "bold red"), None: ("·", "yellow")}
    width = max((len(one.text) for one in judged), default=0)
    for index, one in enumerate(judged):
        yield _line("" if index else "EXPECTATIONS", marks[one.ok], f" {one.text:<{width}}   ", (one.measured, "bold"))
    if not judged:
        yield _line("EXPECTATIONS", ("none given, and QoS 0 promises nothing", "dim"))


def _traffic(summary: Summary) -> Text:
    rates, volumes = summary.rates, summary.bytes
    parts = [f"planned {format_rate(rates.planned)}", f"sent {format_rate(rates.sent)}"]
    parts.append(f"delivered {format_rate(rates.delivered)}")
    parts.append(f"goodput {format_size(rates.goodput_bytes)}/s")
    if volumes.useful_share is not None:
        parts.append(f"useful bytes {format_percent(volumes.useful_share)} of {format_size(volumes.total)}")
    return _line("TRAFFIC", "   ".join(parts))


def _latency(summary: Summary) -> Iterator[Text]:
    latencies, error = summary.latency_ms, summary.trust.clock_error_us
    known = "one clock" if not error else f"± {format_duration(error * 1000)} clock error"
    clock = "clock error unknown" if error is None else known
    rows = [
        (latencies.response, f"delivery, from planned send time; {clock}"),
        (latencies.service, "from actual send time"),
        (latencies.publish, "publish to acknowledgement"),
        (latencies.last, "to the last listener"),
    ]
    if only_connected(summary):
        rows += [(action.latency_ms, f"{kind}, from asking to the answer") for kind, action in summary.actions.items()]
    shown = [(found, about) for found, about in rows if found.n]
    # To the last of one listener is the same as to the only one.
    shown = [(found, about) for found, about in shown if found is not latencies.last or found.n < latencies.response.n]
    levels = ("p50", "p90", "p99", "p999", "max")
    texts = [[f"{LEVEL_NAMES[level]} {level_text(found, level)}" for level in levels] for found, _ in shown]
    widths = [max(14, *map(len, column)) + 2 for column in zip(*texts, strict=True)]
    for index, (_, about) in enumerate(shown):
        aligned = "".join(f"{text:<{width}}" for text, width in zip(texts[index], widths, strict=True))
        yield _line("" if index else "LATENCY", (aligned, "" if index else "bold"), (about, "dim"))
    response = latencies.response
    if response.infinite:
        yield _line("", ("of those that arrived: ", "dim"), delivered_text(response))
    if not shown:
        yield _line("LATENCY", ("nothing was delivered or acknowledged", "dim"))


def _ledger(summary: Summary) -> Text:
    counts = summary.messages
    if only_connected(summary):
        connects, broken = summary.actions["connect"], summary.actions.get("lost")
        told = f"connects {format_count(connects.n)}   failed {format_count(connects.failed)}"
        told += f"   broken {format_count(broken.n if broken else 0)}"
        return _line("LEDGER", told, ("   nothing was to be sent", "dim"))
    if not counts.expected:
        acked = f"   acknowledged {format_count(counts.acked)}" if counts.acked else ""
        return _line("LEDGER", f"sent {format_count(counts.sent)}{acked}   nobody listens")
    parts: list[tuple[str, str]] = [
        (f"expected {format_count(counts.expected)}   delivered {format_count(counts.delivered)}   ", ""),
        (f"lost {format_count(counts.lost)}", "bold red" if counts.lost else ""),
    ]
    if counts.wrong_topic:
        parts.append((f"   wrong topic {format_count(counts.wrong_topic)}", "bold red"))
    others = (
        "overdue",
        "indeterminate",
        "duplicates",
        "reordered",
        "late",
        "unexpected",
        "recovered",
        "retained",
        "wills",
    )
    parts += [(f"   {name} {format_count(count)}", "") for name in others if (count := getattr(counts, name))]
    if counts.by_order:
        parts.append((f"   matched by topic and order {format_count(counts.by_order)}", ""))
    return _line("LEDGER", *parts)


def _cost(summary: Summary) -> Iterator[Text]:
    """What a publish costs, where it is more than an MQTT packet."""
    cost = summary.middleware
    if cost is None or cost.wire_bytes is None or set(cost.protocols.values()) <= {"mqtt"}:
        return
    spoken = ", ".join(f"{name} over {protocol}" for name, protocol in cost.protocols.items())
    sizes = f"structure {format_size(cost.structure_bytes or 0)}   address {format_size(cost.url_bytes or 0)}"
    times = f"   {format_count(cost.overhead)} × the payload" if cost.overhead is not None else ""
    rate = cost.generated_bytes_per_s
    generated = f"   generated {format_size(rate)}/s" if rate is not None else ""
    figures = f"{sizes}   wire {format_size(cost.wire_bytes)}{times}{generated}"
    yield _line("PUBLISHING", figures, (f"   {spoken}", "dim"))


def _resources(summary: Summary) -> Iterator[Text]:
    shown = [service for service in summary.services if service.role != "host"]
    width = max((len(service.service) for service in shown), default=0)
    for index, service in enumerate(shown):
        thread = f"busiest thread {service.busiest_thread_mean_percent:.0f} %"
        use = f"CPU {service.cpu_mean_percent:.0f} %   {thread}   memory {format_size(service.rss_max_bytes)}"
        about = ("  generator", "dim") if service.role == "generator" else ("", "")
        yield _line("" if index else "RESOURCES", f"{service.service:<{width}}   {use}", about)


def _trust(summary: Summary) -> Iterator[Text]:
    trust = summary.trust
    cpu = NOTHING if trust.generator_cpu_percent is None else f"{trust.generator_cpu_percent:.0f} %"
    steady = {True: "steady", False: "unsteady", None: "too short to call steady"}[trust.steady]
    late = f"late sends {format_percent(trust.late_share)}"
    figures = f"{late}   generator CPU {cpu}   recorder drops {format_count(trust.recorder_overflow)}   {steady}"
    yield _line("TRUST", f"{figures}   {format_count(trust.samples)} samples")
    for check in trust.checks:
        if check.level == "warning":
            yield _line("", ("warning: ", "yellow"), check.sentence)


def _next(conclusion: Conclusion) -> Text:
    """What to type next; runs that lie elsewhere are found by nobody who is not told where."""
    run, home = conclusion.summary.run, conclusion.folder.path.resolve().parent
    near = home.relative_to(Path.cwd()) if home.is_relative_to(Path.cwd()) else home
    where = "" if home == runs_directory().resolve() else f" --runs {shlex.quote(str(near))}"
    verbs = [f"report {run} --open", f"compare LAST~1 {run}", f"report {run} --csv {run}-csv"]
    if conclusion.facts.manifest.captures:
        verbs[1:1] = [f"explain {run}", f"trace {run}"]
    return Text.assemble("  ", ("next: ", "dim"), (" · ".join(f"bb {verb}{where}" for verb in verbs), "cyan"))


def _line(label: str, *parts: str | tuple[str, str]) -> Text:
    return Text.assemble("  ", (f"{label:<{LABEL_WIDTH}}", "bold dim" if label else ""), *parts)
