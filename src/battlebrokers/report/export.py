"""A run for other programs: CSV of every measure, JUnit XML for CI, Markdown for pull requests, JSON for scripts."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from battlebrokers.analysis.columns import int64_array
from battlebrokers.analysis.conclusion import Conclusion
from battlebrokers.analysis.facts import Facts
from battlebrokers.analysis.interval import CONFIDENCE
from battlebrokers.analysis.model import Judged, Summary
from battlebrokers.analysis.quantiles import samples_for
from battlebrokers.analysis.ranking import Ranking, rank
from battlebrokers.analysis.stored import is_decoded, pieces, stored_as
from battlebrokers.analysis.story import tell, tell_notes
from battlebrokers.analysis.wire import Wire, read_wire
from battlebrokers.errors import UsageError
from battlebrokers.report.sentences import verdict_sentence
from battlebrokers.report.view import LEVELS, ranking_rows
from battlebrokers.report.wording import KIND_NAMES, LEVEL_NAMES, is_carried, level_text
from battlebrokers.tables import (
    ENDINGS,
    EXCHANGES,
    FOLLOWED,
    HOPS,
    MESSAGES,
    PACKETS,
    PASSAGES,
    RESPONSES,
    SERVICE_PEERS,
    STREAMS,
    TRAFFIC,
)
from battlebrokers.tables.run_folder import RunFolder, write_atomically
from battlebrokers.units import format_count, format_percent

CSV_TABLES = ("latencies", "ledger", "timeline", "slots", "publishing", "actions", "balance", "services", "resources")
WIRE_CSV_TABLES = (
    PACKETS, STREAMS, MESSAGES, EXCHANGES, HOPS, FOLLOWED, SERVICE_PEERS, RESPONSES, TRAFFIC, PASSAGES, ENDINGS,
)  # fmt: skip
"""Of captures; those that are not there are left out."""
KIND_COLUMNS = (
    "sender", "receiver", "protocol", "kind", "part", "name", "messages", "bytes", "payload_bytes", "per_s",
    "p50_ns", "p99_ns", "followed", "p50_needs", "p99_needs",
)  # fmt: skip
PERCENTILE_COLUMNS: dict[str, tuple[str, dict[str, float]]] = {
    "actions": ("n", {"p50_ns": 0.5, "p99_ns": 0.99}),
    RESPONSES.name: ("answered", {"p25_ns": 0.25, "p50_ns": 0.5, "p75_ns": 0.75, "p95_ns": 0.95, "p99_ns": 0.99}),
    SERVICE_PEERS.name: ("answered", {"response_p50_ns": 0.5, "response_p95_ns": 0.95, "response_p99_ns": 0.99}),
    PASSAGES.name: ("n", {"inside_p50_ns": 0.5, "inside_p95_ns": 0.95}),
}
"""By table: the column that counts the samples, and which quantile each column of percentiles holds."""
_HUGE = 1e15
"""Ratios and figures beyond this are infinite ones."""
_MARKS = {True: "✓", False: "✗", None: "·"}


def write_csv(facts: Facts, folder: Path) -> list[Path]:
    """Write every measures table, the resource samples and what captures told, as one CSV file each."""
    _make(folder)
    written = []
    for name in CSV_TABLES:
        table = _carried_only(name, getattr(facts, name))
        path = folder / f"{name}.csv"
        sink = pa.BufferOutputStream()
        pyarrow.csv.write_csv(table, sink)
        write_atomically(path, sink.getvalue().to_pybytes())
        written.append(path)
    return written + write_wire_csv(facts.folder, folder)


def write_wire_csv(decoded: RunFolder, folder: Path, wire: Wire | None = None) -> list[Path]:
    """Write the tables that captures were told in, piece by piece, and what was said kind by kind; none if nothing
    was captured. `wire` is what they tell, if that has been read already."""
    _make(folder)
    written: list[Path] = []
    for wanted in WIRE_CSV_TABLES if is_decoded(decoded) else ():
        if (table := stored_as(decoded, wanted)) is None:
            continue
        path = folder / f"{table.name}.csv"
        beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            schema = table.arrow_schema()
            with pyarrow.csv.CSVWriter(beside, _carried_only(table.name, schema.empty_table()).schema) as sink:
                for piece in pieces(decoded, table):
                    sink.write_table(_carried_only(table.name, piece.cast(schema)))
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
        written.append(path)
    wire = wire or read_wire(decoded)
    if wire is not None:
        path = folder / "kinds.csv"
        write_atomically(path, _kinds_csv(wire).encode())
        written.append(path)
    return written


def _kinds_csv(wire: Wire) -> str:
    sink = io.StringIO()
    rows = csv.DictWriter(sink, KIND_COLUMNS)
    rows.writeheader()
    rows.writerows(kind_records(wire))
    return sink.getvalue()


def kind_records(wire: Wire) -> Iterator[dict[str, Any]]:
    """What was said: for each kind of message a row with an empty `name`, then one for each of its busiest names."""
    for kind in wire.kinds:
        spoke_s = wire.active_s(kind.sender, kind.receiver, kind.protocol)
        for spoken in (kind.all, *kind.names):
            place = (kind.sender, kind.receiver, kind.protocol, kind.kind, kind.part, spoken.name)
            counts = (spoken.n, spoken.bytes, spoken.payload_bytes, round(spoken.n / spoke_s, 6))
            delays = ((spoken.p50_ns, 0.5), (spoken.p99_ns, 0.99))
            stated = (value_ns if is_carried(spoken.n, p) else None for value_ns, p in delays)
            needs = (None if value_ns is None or is_carried(spoken.n, p) else samples_for(p) for value_ns, p in delays)
            yield dict(zip(KIND_COLUMNS, (*place, *counts, *stated, spoken.followed, *needs), strict=True))


def _carried_only(name: str, table: pa.Table) -> pa.Table:
    """The table without the percentiles that its samples do not carry; a `…_needs` column tells how many they need."""
    count, quantiles = PERCENTILE_COLUMNS.get(name, ("", {}))
    for column, p in quantiles.items():
        needed = int64_array([samples_for(p)])[0]  # pa.scalar of a number would load pandas
        few = pc.and_(pc.is_valid(table[column]), pc.less(table[count], needed))
        place, field = table.schema.get_field_index(column), table.schema.field(column)
        kept = pc.if_else(few, pa.nulls(1, field.type)[0], table[column])
        table = table.set_column(place, field, kept)
        needs = pc.if_else(few, needed, pa.nulls(1, pa.int64())[0])
        table = table.append_column(pa.field(f"{column.removesuffix('_ns')}_needs", pa.int64()), needs)
    return table


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made: {error.strerror}") from error


def to_json(conclusions: Sequence[Conclusion]) -> bytes:
    """One run: its summary object. Several: a list of them."""
    if len(conclusions) == 1:
        return conclusions[0].summary.to_json()
    return msgspec.json.format(msgspec.json.encode([one.summary for one in conclusions]), indent=2) + b"\n"


def ranking_json(ranking: Ranking, battle: str, report: Path | None) -> str:
    """What `bb battle --json` prints: standings, ratios and sentences; infinite figures are null."""
    plain = {
        "battle": battle,
        "scenario": ranking.scenario,
        "title": ranking.title,
        "decided_by": ranking.decided_by.name,
        "standings": [
            {
                "rank": standing.rank,
                "contender": standing.contender,
                "versions": list(standing.versions),
                "runs": standing.runs,
                "verdicts": standing.verdicts,
                "values": {name: _finite(value) for name, value in standing.values.items()},
                "needed": standing.needed,
                "void_reason": standing.void_reason or None,
            }
            for standing in ranking.standings
        ],
        "ratios": [
            {
                "metric": found.metric.name,
                "of": found.of,
                "to": found.to,
                "ratio": _finite(found.ratio),
                "low": _finite(found.low),
                "high": _finite(found.high),
                "confidence": CONFIDENCE if found.confident else None,
                "blocks": found.blocks,
                "answer": found.answer,
            }
            for found in ranking.ratios
        ],
        "unranked_on_latency": ranking.disturbed or None,
        "sentences": tell(ranking),
        "notes": tell_notes(ranking),
        "runs": [summary.run for summary in ranking.summaries],
        "report": str(report) if report else None,
    }
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode()


def _finite(value: float) -> float | None:
    return round(value, 6) if value < _HUGE else None


def to_junit(conclusions: Sequence[Conclusion]) -> bytes:
    """JUnit XML: a suite per run, a case per expectation; VOID and a dead broker are errors of the suite."""
    root = ET.Element("testsuites", name="battlebrokers")
    for conclusion in conclusions:
        root.append(_suite(conclusion.summary))
    ET.indent(root)
    written: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def _suite(summary: Summary) -> ET.Element:
    name = _clean(f"{summary.title} on {summary.contender.name} {summary.contender.version}".strip())
    untrusted = summary.verdict == "VOID" or summary.state == "broker-failed"
    cases = [_case(name, one, summary) for one in summary.expectations]
    whole = ET.Element("testcase", classname=name, name="verdict", time=f"{summary.duration_s:.3f}")
    if untrusted:
        kind = "void" if summary.verdict == "VOID" else "broker-failed"
        error = ET.SubElement(whole, "error", type=kind, message=_clean("; ".join(summary.reasons)))
        error.text = _clean(verdict_sentence(summary))
    failures = sum(1 for case in cases if case.find("failure") is not None)
    skipped = sum(1 for case in cases if case.find("skipped") is not None)
    suite = ET.Element(
        "testsuite",
        name=name,
        tests=str(len(cases) + 1),
        failures=str(failures),
        errors=str(int(untrusted)),
        skipped=str(skipped),
        time=f"{summary.duration_s:.3f}",
        timestamp=summary.started,
    )
    properties = ET.SubElement(suite, "properties")
    for key, value in (("run", summary.run), ("verdict", summary.verdict), ("seed", str(summary.seed))):
        ET.SubElement(properties, "property", name=key, value=_clean(value))
    for check in summary.trust.checks:
        if check.level == "warning":
            ET.SubElement(properties, "property", name=f"warning {check.id}", value=_clean(check.sentence))
    suite.extend([whole, *cases])
    return suite


def _case(suite: str, one: Judged, summary: Summary) -> ET.Element:
    case = ET.Element("testcase", classname=suite, name=_clean(one.text), time="0")
    if summary.verdict == "VOID" or one.ok is None:
        ET.SubElement(case, "skipped", message=_clean(f"not judged: {one.measured}"))
    elif not one.ok:
        ET.SubElement(case, "failure", message=_clean(f"measured {one.measured}"), type="expectation")
    return case


def _clean(text: str) -> str:
    """XML has no way to write control characters."""
    return "".join(
        c for c in text if c in "\t\n" or (c >= " " and c not in "\ufffe\uffff" and not "\ud800" <= c <= "\udfff")
    )


def to_markdown(conclusions: Sequence[Conclusion]) -> str:
    """A run, or a battle, for a pull request."""
    return _battle_markdown(conclusions) if len(conclusions) > 1 else _run_markdown(conclusions[0])


def _run_markdown(conclusion: Conclusion) -> str:
    summary = conclusion.summary
    contender = f"{summary.contender.name} {summary.contender.version}".strip()
    lines = [f"### {summary.verdict}: {_escape(summary.title)} on {_escape(contender)}", ""]
    lines += [_escape(verdict_sentence(summary)), ""]
    if summary.expectations:
        rows = [[_MARKS[one.ok], one.text, one.measured] for one in summary.expectations]
        lines += [*_table(["", "expectation", "measured"], rows), ""]
    rows = []
    for kind in ("response", "service", "publish", "lag"):
        found = getattr(summary.latency_ms, kind)
        if found.n:
            rows.append([KIND_NAMES[kind], *(level_text(found, level) for level in LEVELS)])
    lines += [*_table(["latency", *(LEVEL_NAMES[level] for level in LEVELS)], rows), ""]
    counts = summary.messages
    names = ("planned", "sent", "acked", "expected", "delivered", "lost", "overdue", "duplicates", "reordered")
    lines += [*_table(list(names), [[format_count(getattr(counts, name)) for name in names]]), ""]
    lines += [f"- {_escape(finding.sentence)}" for finding in conclusion.findings]
    late = format_percent(summary.trust.late_share)
    lines += [
        "",
        f"Run `{summary.run}`, seed {summary.seed}; late sends {late}, {format_count(summary.trust.samples)} samples.",
    ]
    return "\n".join(lines) + "\n"


def _battle_markdown(conclusions: Sequence[Conclusion]) -> str:
    ranking = rank([conclusion.summary for conclusion in conclusions])
    head, rows = ranking_rows(ranking)
    lines = [
        f"### Battle: {_escape(ranking.title)}",
        "",
        *(f"{_escape(sentence)}  " for sentence in tell(ranking)),
        "",
    ]
    cells: list[list[Any]] = [
        [row["standing"].place, row["standing"].contender, *(cell["text"] for cell in row["cells"])] for row in rows
    ]
    lines += [*_table(["#", "contender", *head], cells), ""]
    lines += [f"- {_escape(note)}" for note in tell_notes(ranking)]
    return "\n".join(lines).rstrip() + "\n"


def _table(head: list[str], rows: list[list[Any]]) -> list[str]:
    def line(cells: Sequence[Any]) -> str:
        return "| " + " | ".join(_escape(str(cell)) for cell in cells) + " |"

    return [line(head), "|" + "|".join(" --- " for _ in head) + "|", *(line(row) for row in rows)]


def _escape(text: str) -> str:
    for character in "\\|<>*_`":
        text = text.replace(character, "\\" + character)
    return text.replace("\n", " ")
