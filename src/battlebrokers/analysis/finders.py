"""The finders: each looks at one thing of a run and yields findings or nothing. `find` asks them all.

Pure: facts and summary in. A new finder is one function, added to `FINDERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow.compute as pc

from battlebrokers.analysis.attempts import WRONG_ARRIVALS
from battlebrokers.analysis.capacity import broker_behind, find_overload
from battlebrokers.analysis.columns import int64_array
from battlebrokers.analysis.facts import MEASURE, Facts, total, where
from battlebrokers.analysis.findings import SEVERITIES, Evidence, Finding, Severity
from battlebrokers.analysis.losses import where_lost
from battlebrokers.analysis.model import Action, Summary
from battlebrokers.analysis.ranking import other_load
from battlebrokers.analysis.stalls import stalls
from battlebrokers.analysis.trust import LATE_SHARE
from battlebrokers.analysis.vacuity import UNHEARD, VACUOUS
from battlebrokers.analysis.verdict import void_words
from battlebrokers.clock import MILLISECOND_NS, SECOND_NS
from battlebrokers.tables.slots import SLOT_NS
from battlebrokers.units import format_count, format_duration, format_percent, format_rate, format_size

BUSY_PERCENT = 90.0
SLOW_FLEET_RATIO, SLOW_FLEET_MS = 5.0, 5.0
LONG_TAIL_RATIO = 50.0
GROWTH_RATIO, GROWTH_BYTES = 1.5, 32 << 20
UNFAIR_JAIN = 0.9
_KINDS_SHOWN = 3
_STALLS_TOLD = 5

_IN_MEASURE = "phase = 'measure'"


def find(facts: Facts, summary: Summary) -> list[Finding]:
    """Everything found, the gravest first; of a VOID run that it is VOID before all else."""
    found = [finding for finder in FINDERS for finding in finder(facts, summary)]
    return [*_void(summary), *sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))]


def _void(summary: Summary) -> Iterator[Finding]:
    if reason := void_words(summary):
        sentence = (
            f"The run is VOID: {reason}. What is listed besides was recorded, but tells nothing about the broker."
        )
        yield _finding("void", "critical", sentence, "summary.json", "verdict, reasons", summary.verdict)


def _finding(name: str, severity: Severity, sentence: str, table: str, rows: str, value: Any) -> Finding:
    return Finding(name, severity, sentence, [Evidence(table, rows, value)])


def _broker_failed(facts: Facts, summary: Summary) -> Iterator[Finding]:
    if summary.state == "broker-failed":
        sentence = f"The broker failed: {facts.manifest.state_detail or 'it stopped answering'}."
        yield _finding("broker-failed", "critical", sentence, "manifest", "state", summary.state)


def _losses(facts: Facts, summary: Summary) -> Iterator[Finding]:
    counts = summary.messages
    if not counts.lost:
        return
    share = format_percent(counts.lost / counts.expected)
    sentence = f"{format_count(counts.lost)} of {format_count(counts.expected)} deliveries were lost ({share})."
    places = where_lost(where(facts.ledger, phase=MEASURE))
    if places:
        sentence += f" {format_percent(places[0].share)} of them {places[0].words}."
    evidence = [Evidence("measures/ledger", f"{_IN_MEASURE} AND {place.filter}", place.lost) for place in places]
    broken = any(not group.promise_kept for group in summary.groups)
    yield Finding(
        "loss",
        "critical" if broken else "warning",
        sentence,
        evidence or [Evidence("measures/ledger", _IN_MEASURE, counts.lost)],
    )


def _infinite(_facts: Facts, summary: Summary) -> Iterator[Finding]:
    response = summary.latency_ms.response
    if response.infinite:
        names = ", ".join({"p999": "p99.9"}.get(name, name) for name in response.infinite)
        verb, share = "is" if len(response.infinite) == 1 else "are", format_percent(response.lost / response.n)
        missed = "did not arrive before the drain ended" if summary.messages.overdue else "never arrived"
        sentence = f"{names} of delivery {verb} infinite, because {share} of the messages {missed}."
        yield _finding("infinite", "notice", sentence, "measures/latencies", "bucket = 2147483647", response.lost)


def _capacity(facts: Facts, summary: Summary) -> Iterator[Finding]:
    """A broker that is offered more than it delivers, and what it had not delivered when the drain ended."""
    overload = find_overload(facts)
    if overload is not None:
        offered, delivered = format_rate(overload.offered_per_s), format_rate(overload.delivered_per_s)
        begun, which = "The broker was over its capacity", f"of {offered} it delivered {delivered}"
        disturbed = other_load(summary)
        # Whoever else used the machine may be what held the broker back.
        if summary.verdict == "VOID" or disturbed is not None:
            begun, which = "Less arrived than was offered", f"of {offered} {delivered} arrived"
        if disturbed is not None:
            which += f" while others used {format_percent(disturbed.measured or 0.0)} of the machine"
        waiting = f"{format_count(overload.queued)} were waiting when the load ended"
        sentence = f"{begun} since second {overload.since}: {which}, and {waiting}."
        rows = f"side = 'deliver' AND second >= {overload.since}, sum of queued"
        yield _finding("over-capacity", "warning", sentence, "measures/timeline", rows, overload.queued)
    behind = broker_behind(facts)
    if behind is not None:
        about = f", about {format_duration(behind.seconds * SECOND_NS)}" if behind.seconds is not None else ""
        sentence = (
            f"{format_count(behind.messages)} deliveries were not in time: when the drain ended, messages were still "
            f"arriving without a gap. The broker was {format_count(behind.messages)} messages{about} behind."
        )
        yield _finding("behind", "warning", sentence, "measures/ledger", "sum of overdue", behind.messages)
    untaken = total(facts.ledger, "overdue") - (behind.messages if behind is not None else 0)
    if untaken:
        sentence = (
            f"{format_count(untaken)} deliveries were not in time, because clients that read slowly on purpose had "
            "not taken them when the drain ended."
        )
        yield _finding("slow-readers", "notice", sentence, "measures/ledger", "sum of overdue", untaken)


def _twice_at_qos_2(_facts: Facts, summary: Summary) -> Iterator[Finding]:
    for group in summary.groups:
        if group.qos == 2 and group.duplicates:
            way = f"from {group.fleet} to {group.client_fleet}"
            sentence = f"{format_count(group.duplicates)} messages came twice {way}; QoS 2 promises exactly once."
            rows = f"{_IN_MEASURE} AND fleet = '{group.fleet}' AND client_fleet = '{group.client_fleet}' AND qos = 2"
            yield _finding("duplicates-qos2", "critical", sentence, "measures/ledger", rows, group.duplicates)


def _stalled(facts: Facts, _summary: Summary) -> Iterator[Finding]:
    for stall in stalls(facts)[:_STALLS_TOLD]:
        long, share = format_duration(stall.seconds * SECOND_NS), format_percent(stall.share)
        sentence = f"Nothing arrived for {long} at second {int(stall.begin_s)}; {share} of the messages waited in it."
        if stall.to_the_end:
            sentence = (
                f"Nothing arrived any more from second {int(stall.begin_s)} on, {long} before the load ended; "
                f"{share} of the messages were due in that time."
            )
        first, last = (int(at * SECOND_NS // SLOT_NS) for at in (stall.begin_s, stall.end_s))
        rows = f"slot > {first} AND slot < {last}, sum of planned"
        yield _finding("stall", "warning", sentence, "measures/slots", rows, stall.due)


def _busy(facts: Facts, summary: Summary) -> Iterator[Finding]:
    cores = facts.manifest.host.get("cpu_cores_usable") or facts.manifest.host.get("cpu_cores")
    for service in summary.services:
        thread = service.busiest_thread_mean_percent
        if service.role == "contender" and thread >= BUSY_PERCENT:
            limit = "" if summary.verdict == "VOID" else ": it is at its limit"
            sentence = f"One thread of {service.service} was busy {thread:.0f} % of the time{limit}."
            rows = f"service = '{service.service}' AND {_IN_MEASURE}"
            yield _finding("busy-thread", "warning", sentence, "measures/services", rows, thread)
        whole = service.cpu_mean_percent
        if service.role == "host" and isinstance(cores, int) and whole >= BUSY_PERCENT * cores:
            percent = f"{whole / cores:.0f} % of {cores} cores"
            sentence = f"The whole machine was busy ({percent}){_who_was_slowed(summary)}."
            yield _finding(
                "busy-host", "warning", sentence, "measures/services", f"role = 'host' AND {_IN_MEASURE}", whole
            )


def _who_was_slowed(summary: Summary) -> str:
    """What is known of a full machine: others used it, or sends were late, or nothing shows that it mattered."""
    if (check := other_load(summary)) is not None:
        return f", {format_percent(check.measured or 0.0)} of it by others than broker and generator"
    if summary.trust.late_share > LATE_SHARE:
        late = format_percent(summary.trust.late_share)
        return f": broker and generator slow each other, {late} of the sends that nothing held left late"
    return "; sends left in time all the same"


def _held(_facts: Facts, summary: Summary) -> Iterator[Finding]:
    held, publishing, planned = summary.latency_ms.held, summary.publishing, summary.messages.planned
    if not held.n or not planned:
        return
    causes = {
        "the in-flight window was full": publishing.held_window,
        "the broker did not read": publishing.held_socket,
        "the device was not connected": publishing.held_offline,
    }
    words = " and ".join(f"{format_count(n)} because {why}" for why, n in causes.items() if n) or "held"
    waited = f", half of them for {_duration(held.p50)} or more" if held.p50 else ""
    sentence = f"{format_percent(held.n / planned)} of the messages had to wait before being sent ({words}){waited}."
    yield _finding("held", "notice", sentence, "measures/latencies", f"kind = 'held' AND {_IN_MEASURE}", held.n)


def _shape(facts: Facts, summary: Summary) -> Iterator[Finding]:
    response, service, last = summary.latency_ms.response, summary.latency_ms.service, summary.latency_ms.last
    if response.p99 and service.p99 and response.p99 > 1.5 * service.p99 and response.p99 - service.p99 > 1:
        sentence = (
            f"Most of the delivery p99 of {_duration(response.p99)} passed before the message was sent; "
            f"from then on it is {_duration(service.p99)}."
        )
        rows = f"kind = 'service' AND {_IN_MEASURE}"
        yield _finding("waiting-dominates", "notice", sentence, "measures/latencies", rows, service.p99)
    tailed = response.p50 and response.p999 and response.p999 > LONG_TAIL_RATIO * response.p50
    # A stall is told as such: how long it was says more than what it made of a percentile.
    if tailed and response.p50 and response.p999 and not stalls(facts):
        sentence = f"The tail is long: p99.9 is {response.p999 / response.p50:.0f} times the median."
        rows = f"kind = 'response' AND {_IN_MEASURE}"
        yield _finding("long-tail", "notice", sentence, "measures/latencies", rows, response.p999)
    if last.p50 and response.p50 and last.n < response.n and last.p50 > 1.5 * response.p50:
        sentence = (
            f"The last listener decides: reaching all of them took {_duration(last.p50)} or more for half of the "
            f"messages, a single delivery {_duration(response.p50)}."
        )
        yield _finding(
            "last-listener", "info", sentence, "measures/latencies", f"kind = 'last' AND {_IN_MEASURE}", last.p50
        )


def _slow_listeners(_facts: Facts, summary: Summary) -> Iterator[Finding]:
    """A fleet of listeners whose p99 is far above the best of the others."""
    worst: dict[str, tuple[float, float]] = {}
    for group in summary.groups:
        others = [other.response.p99 for other in summary.groups if other.client_fleet != group.client_fleet]
        best, mine = min((p99 for p99 in others if p99), default=None), group.response.p99
        if mine and best and mine > SLOW_FLEET_RATIO * best and mine - best > SLOW_FLEET_MS:
            worst[group.client_fleet] = max(worst.get(group.client_fleet, (0.0, 0.0)), (mine, best))
    for fleet, (mine, best) in worst.items():
        sentence = f"Listeners of {fleet} are slow: p99 {_duration(mine)}, the fastest others {_duration(best)}."
        rows = f"kind = 'response' AND client_fleet = '{fleet}' AND {_IN_MEASURE}"
        yield _finding("slow-listeners", "notice", sentence, "measures/latencies", rows, mine)


def _unfair(_facts: Facts, summary: Summary) -> Iterator[Finding]:
    for group in summary.balance:
        if group.jain is not None and group.jain < UNFAIR_JAIN:
            spread = f"the busiest member took {format_count(group.most)}, the least busy {format_count(group.least)}"
            sentence = f"The shared group {group.share} is uneven: {spread} (Jain index {group.jain:.2f})."
            yield _finding(
                "unfair-share", "notice", sentence, "measures/balance", f"share = '{group.share}'", group.jain
            )


def _connections(facts: Facts, summary: Summary) -> Iterator[Finding]:
    for kind, action in summary.actions.items():
        if kind == "lost":
            sentence = f"{format_count(action.n)} connections broke during the run{_why(action)}."
            yield _finding("connections-lost", "warning", sentence, "measures/actions", "kind = 'lost'", action.n)
        elif action.failed:
            tried = f"{format_count(action.failed)} of {format_count(action.n)}"
            done = "were refused or never answered" if kind == "subscribe" else "failed"
            sentence = f"{tried} {kind} attempts {done}{_why(action)}."
            rows = f"kind = '{kind}' AND outcome <> 'ok'"
            yield _finding(f"{kind}-failures", "warning", sentence, "measures/actions", rows, action.failed)
    counters: list[tuple[str, Severity, str]] = [
        *((name, "warning", words) for name, words in WRONG_ARRIVALS.items()),
        ("arrivals_not_recorded", "warning", "arrivals beyond what this scenario can cause were only counted"),
        ("reconnects", "info", "reconnects were needed"),
    ]
    for name, severity, words in counters:
        count = sum(worker.counters.get(name, 0) for worker in facts.manifest.workers)
        if count:
            sentence = f"{format_count(count)} {words}."
            yield _finding(name, severity, sentence, "manifest", f"workers.counters.{name}", count)


def _why(action: Action) -> str:
    kinds = [f"{kind} {format_count(n)}" for kind, n in action.failures.items()]
    return f" ({', '.join(kinds[:_KINDS_SHOWN])}{' …' if len(kinds) > _KINDS_SHOWN else ''})" if kinds else ""


def _memory(facts: Facts, _summary: Summary) -> Iterator[Finding]:
    if facts.measure is None:
        return
    rows, measure = where(facts.resources, role="contender"), facts.measure
    at = rows["sampled_ns"]
    start, end = int64_array([measure.start_ns, measure.end_ns])
    rows = rows.filter(pc.and_(pc.greater_equal(at, start), pc.less(at, end)))
    rows = rows.take(pc.sort_indices(rows, [("sampled_ns", "ascending")]))
    for service in sorted(set(rows["service"].to_pylist())):
        memory = where(rows, service=service)["rss_bytes"].to_pylist()
        if len(memory) >= 6 and memory[-1] > max(GROWTH_RATIO * memory[0], memory[0] + GROWTH_BYTES):
            grew = f"from {format_size(memory[0])} to {format_size(memory[-1])} in {facts.measure_s:.0f} s"
            sentence = f"Memory of {service} grew {grew}."
            yield _finding(
                "memory-growth", "warning", sentence, "recorded/resources", f"service = '{service}'", memory[-1]
            )


def _oddities(_facts: Facts, summary: Summary) -> Iterator[Finding]:
    counts, publishing = summary.messages, summary.publishing
    permitted = sum(group.duplicates for group in summary.groups if group.qos < 2)
    said: list[tuple[str, Severity, int, str]] = [
        ("refused", "warning", publishing.refused, "messages were refused by the broker"),
        ("failed", "warning", publishing.failed, "messages got no proper answer"),
        ("unsent", "warning", publishing.unsent, "messages never left their device"),
        (
            "indeterminate",
            "notice",
            counts.indeterminate,
            "deliveries never happened, and nobody can say whether the message was lost",
        ),
        ("reordered", "notice", counts.reordered, "messages arrived after a later one of the same device and topic"),
        ("unexpected", "notice", counts.unexpected, "arrivals were asked for by nobody"),
        (
            "wrong_topic",
            "critical",
            counts.wrong_topic,
            "arrivals were on another topic than their message was published on",
        ),
        ("wills", "info", counts.wills, "arrivals were last wills of devices or clients that vanished"),
        ("late", "notice", counts.late, "messages arrived only after the load had ended"),
        ("duplicates", "info", permitted, "arrivals were duplicates, which QoS 0 and 1 permit"),
        ("recovered", "info", counts.recovered, "messages arrived though the broker never acknowledged them"),
        ("retained", "info", counts.retained, "deliveries were kept messages, for those who subscribed later"),
        ("retries", "info", publishing.retries, "messages were sent again after a reconnect"),
        ("unstamped", "info", publishing.unstamped, "messages carried no header and were matched by topic and order"),
    ]
    for name, severity, count, words in said:
        if count:
            table = "measures/publishing" if hasattr(publishing, name) else "measures/ledger"
            yield _finding(
                name, severity, f"{format_count(count)} {words}.", table, f"{_IN_MEASURE}, sum of {name}", count
            )


def _shows_nothing(_facts: Facts, summary: Summary) -> Iterator[Finding]:
    for check in summary.trust.checks:
        if check.id in (VACUOUS, UNHEARD) and check.level == "warning":
            sentence = f"{check.sentence[0].upper()}{check.sentence[1:]}."
            yield _finding(check.id, "warning", sentence, "summary.json", "trust.checks", check.measured)


def _defects(facts: Facts, _summary: Summary) -> Iterator[Finding]:
    for defect in facts.defects[:5]:
        sentence = f"{defect.file} could not be read: {defect.reason}."
        yield _finding("defect", "warning", sentence, "measures/defects.json", defect.file, defect.reason)


def _captures(facts: Facts, summary: Summary) -> Iterator[Finding]:
    """Captures that are not told, or not whole: what, why, and what to do."""
    again = f"`bb analyze {summary.run}` decodes them"
    if facts.decoding in ("half", "never"):
        why = next((f": {one.reason}" for one in facts.defects if one.file == "recorded/captures"), "")
        said = {
            "half": f"The captures were decoded only in part, so nothing of them is shown{why}. {again} again.",
            "never": f"The captures were not decoded{why}. {again}.",
        }[facts.decoding]
        yield _finding("captures-undecoded", "warning", said, "decoded/summary.json", "missing", facts.decoding)
    for defect in facts.capture_defects[:5]:
        name = defect.file.rpartition("/")[2]
        sentence = f"The capture {name} is not whole: {defect.reason}. What the captures tell lacks that."
        yield _finding("capture-defect", "warning", sentence, "decoded/summary.json", defect.file, defect.reason)


def _duration(value_ms: float) -> str:
    return format_duration(value_ms * MILLISECOND_NS)


FINDERS: tuple[Callable[[Facts, Summary], Iterator[Finding]], ...] = (
    _broker_failed,
    _losses,
    _infinite,
    _capacity,
    _twice_at_qos_2,
    _connections,
    _stalled,
    _busy,
    _memory,
    _shows_nothing,
    _defects,
    _captures,
    _held,
    _shape,
    _slow_listeners,
    _unfair,
    _oddities,
)
