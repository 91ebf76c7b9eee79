"""The report as one self-contained HTML file: template, styles, scripts and data in one, nothing fetched ever.

Called by `bb run`, `bb battle` and `bb report`. Everything a broker or user named is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from battlebrokers import __version__
from battlebrokers.analysis.conclusion import Conclusion, draw_conclusion
from battlebrokers.analysis.ranking import rank
from battlebrokers.analysis.story import tell, tell_notes
from battlebrokers.analysis.verdict import void_words
from battlebrokers.analysis.wire import read_wire
from battlebrokers.clock import SECOND_NS
from battlebrokers.errors import UsageError
from battlebrokers.report import view
from battlebrokers.report.charts import all_charts
from battlebrokers.report.middleware import section as middleware_section
from battlebrokers.report.pool import first_second, make_pools, waited_ns
from battlebrokers.report.sentences import describe_charts, verdict_sentence
from battlebrokers.report.wire import wire_view
from battlebrokers.report.wire_battle import battle_wire, link_to
from battlebrokers.report.wording import (
    KIND_ABOUT,
    KIND_NAMES,
    NOTHING,
    duration_s,
    level_text,
    point_text,
    ratio_text,
    some,
)
from battlebrokers.tables.run_folder import RunFolder, write_atomically
from battlebrokers.units import format_count, format_duration, format_percent, format_rate, format_size

PHASE_NAMES = {"warm_up": "warm-up", "cool_down": "cool-down"}


def write_report(folders: Sequence[RunFolder], out: Path) -> None:
    """Write the report of one run, or of several as a battle, to `out`."""
    conclusions = [draw_conclusion(folder) for folder in folders]
    write_atomically(out, render_report(conclusions, out.parent).encode())


def render_report(conclusions: Sequence[Conclusion], place: Path | None = None) -> str:
    """The page; if it is known in which folder it will lie, with links to the runs' own reports."""
    if not conclusions:
        raise UsageError("there is no run to report")
    first = conclusions[0].summary
    several = len(conclusions) > 1
    ranking = rank([conclusion.summary for conclusion in conclusions]) if several else None
    pools = make_pools(conclusions)
    if ranking:
        places = [standing.contender for standing in ranking.standings]
        pools.sort(key=lambda pool: places.index(pool.label))
    ranking_head, ranking_rows = view.ranking_rows(ranking) if ranking else ([], [])
    wire = None if several else _wire(conclusions[0])
    side_by_side = battle_wire(pools, place) if several else None
    captured = wire or side_by_side or {"charts": {}, "descriptions": {}}
    charts = all_charts(pools) | captured["charts"]
    phases = [
        {"name": p.name, "label": PHASE_NAMES.get(p.name, p.name), "start": p.start_s, "end": p.start_s + p.duration_s}
        for p in first.phases
    ]
    context: dict[str, Any] = {
        "version": __version__,
        "title": _title(conclusions),
        "conclusions": conclusions,
        "first": first,
        "pools": pools,
        "slots": {pool.label: slot for slot, pool in enumerate(pools)},
        "ranking": ranking,
        "untrusted": [pool.label for pool in pools if pool.is_void] if ranking else [],
        "ranking_head": ranking_head,
        "ranking_rows": ranking_rows,
        "ratio_rows": view.ratio_rows(ranking) if ranking else [],
        "story": tell(ranking) if ranking else [],
        "notes": tell_notes(ranking) if ranking else [],
        "sentence": verdict_sentence(first),
        "tiles": view.tiles(first),
        "measure_s": conclusions[0].facts.measure_s,
        "started": datetime.fromisoformat(first.started).strftime("%-d %B %Y, %H:%M UTC"),
        "clock_words": _clock_words(conclusions),
        "latency_rows": view.latency_rows(pools),
        "ledgers": [_ledger(pool) for pool in pools],
        "traffic": view.traffic(first),
        "failures": [(one.summary.run, rows) for one in conclusions if (rows := view.failure_rows(one))],
        "environment": view.environment(pools),
        "phase_rows": view.of_each(pools, _phase_rows),
        "words": [(name, KIND_ABOUT[kind]) for kind, name in KIND_NAMES.items()],
        "texts": _texts(conclusions, several=several),
        "charts": charts,
        "lost_anything": any(one.summary.latency_ms.response.lost for one in conclusions),
        "wire": wire,
        "battle_wire": side_by_side,
        "middleware": middleware_section([(pool.label, [one.summary for one in pool.conclusions]) for pool in pools]),
        "links": {one.summary.run: link_to(one, place) for one in conclusions} if several else {},
        "descriptions": describe_charts(pools) | captured["descriptions"],
        "island": json_island(
            {"charts": charts, "phases": phases, "summaries": {one.summary.run: one.summary for one in conclusions}}
        ),
        "css": asset("report.css"),
        "js": asset("report.js"),
        "wire_js": asset("wire.js") if captured["charts"] else "",
        "echarts": asset("echarts.min.js"),
    }
    return page_environment().get_template("report.html.j2").render(context)


def _wire(conclusion: Conclusion) -> dict[str, Any] | None:
    """What the run's captures tell, if it was captured."""
    facts = conclusion.facts
    found = read_wire(facts.folder, void_words(conclusion.summary))
    if found is None:
        return None
    used = {service.service: service for service in conclusion.summary.services if service.role == "contender"}
    origin_second = facts.load_start_ns // SECOND_NS
    return wire_view(found, origin_second=origin_second, since=first_second(facts), used=used)


def json_island(value: object) -> Markup:
    """JSON that is safe inside a script element, whatever strings it holds."""
    text = msgspec.json.encode(value).decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704 - nothing that could end the element is left


def page_environment() -> Environment:
    """The templates, with the filters they use; everything is escaped."""
    templates = str(files("battlebrokers.report") / "templates")
    environment = Environment(
        loader=FileSystemLoader(templates),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        count=format_count,
        percent=format_percent,
        size=format_size,
        seconds=duration_s,
        time=lambda value_ns: NOTHING if value_ns is None else format_duration(value_ns),
        rate=format_rate,
        point=point_text,
        level=level_text,
        ratio=ratio_text,
        some=some,
    )
    return environment


def asset(name: str) -> Markup:
    """A script or style sheet of ours, to be put into the page as it is."""
    return Markup((files("battlebrokers.report") / "assets" / name).read_text(encoding="utf-8"))  # noqa: S704 - our files


def _title(conclusions: Sequence[Conclusion]) -> str:
    first = conclusions[0].summary
    if len(conclusions) > 1:
        names = sorted({one.summary.contender.name for one in conclusions})
        return f"{first.title}: {', '.join(names)} · BattleBrokers"
    return f"{first.verdict} · {first.title} on {first.contender.name} · {first.run}"


def _clock_words(conclusions: Sequence[Conclusion]) -> str:
    errors = [one.summary.trust.clock_error_us for one in conclusions]
    if any(error is None for error in errors):
        return "The clock error between workers is unknown."
    worst = max(error or 0.0 for error in errors)
    if not worst:
        return "Sender and receiver read one clock: no clock error."
    return f"Clock error: at most {format_duration(worst * 1000)}."


def _phase_rows(conclusion: Conclusion) -> list[tuple[str, str]]:
    rows = []
    for phase in conclusion.summary.phases:
        words = f"{duration_s(phase.duration_s)}, from {phase.start_s:g} s"
        waited_s = waited_ns(conclusion.facts) / SECOND_NS
        if phase.name == "connect" and waited_s >= 1:
            words += f"; everybody was connected for the last {duration_s(waited_s)} of it"
        rows.append((PHASE_NAMES.get(phase.name, phase.name), words))
    return rows


def _ledger(pool: Any) -> dict[str, Any]:
    rows = view.ledger_rows(pool)
    return {
        "label": pool.label,
        "rows": rows,
        "total": rows[-1] if rows else {},
        "balance": pool.conclusions[0].summary.balance,
    }


def _texts(conclusions: Sequence[Conclusion], *, several: bool) -> list[tuple[str, str]]:
    found = [("The scenario as given", conclusions[0].facts.manifest.scenario.text)]
    seen = set()
    for conclusion in conclusions:
        contender = conclusion.facts.manifest.contender
        if contender.config_text and contender.config_text not in seen:
            seen.add(contender.config_text)
            name = f" of {contender.name} {contender.version}" if several else ""
            found.append((f"The configuration{name}", contender.config_text))
    return found
