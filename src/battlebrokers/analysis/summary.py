"""From a run folder to its summary: every figure, the trust in them, the verdict. Writes `summary.json`."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from battlebrokers.analysis import figures
from battlebrokers.analysis.admission import judge_admission
from battlebrokers.analysis.capacity import slow_readers
from battlebrokers.analysis.expectations import (
    Figures,
    judge_expectations,
    judge_overdue,
    judge_promises,
    judge_publishes,
)
from battlebrokers.analysis.facts import Facts, phase_ns, read_facts
from battlebrokers.analysis.latency import latencies
from battlebrokers.analysis.middleware import middleware
from battlebrokers.analysis.model import Contender, PhaseSpan, Summary
from battlebrokers.analysis.strays import judge_strays, judge_topics
from battlebrokers.analysis.trust import judge_trust
from battlebrokers.analysis.verdict import judge
from battlebrokers.clock import MILLISECOND_NS, SECOND_NS
from battlebrokers.tables.run_folder import RunFolder, write_atomically


def build_summary(folder: RunFolder) -> Summary:
    """The summary of an analysed run, computed anew from its measures."""
    return summarize(read_facts(folder))


def write_summary(folder: RunFolder, summary: Summary) -> None:
    """Put it into the run folder, in one step."""
    write_atomically(folder.summary_path, summary.to_json())


def summarize(facts: Facts) -> Summary:
    """The summary of facts already read."""
    manifest = facts.manifest
    seen = Figures(
        messages=figures.messages(facts),
        publishing=figures.publishing(facts),
        latencies=latencies(facts),
        rates=figures.rates(facts),
        actions=figures.actions(facts),
        groups=figures.groups(facts),
        tick_ms=manifest.tick_ns / MILLISECOND_NS,
    )
    volumes = figures.volumes(facts)
    services = figures.services(facts, volumes)
    trust = judge_trust(facts, seen.latencies, seen.messages, seen.publishing, services)
    expect = manifest.scenario.expect
    judged = [
        *judge_expectations(expect, seen),
        *judge_promises(seen.groups),
        *judge_overdue(expect, seen, slow_readers(facts)),
        *judge_publishes(expect, seen),
        *judge_admission(expect, facts),
        *judge_strays(expect, seen.messages),
        *judge_topics(expect, seen.messages),
    ]
    verdict, reasons = judge(manifest.state, manifest.state_detail, trust, judged)
    if verdict == "VOID":  # shown, but not judged: nothing measured here says anything about the broker
        judged = [msgspec.structs.replace(one, ok=None) for one in judged]
    ends = [phase.start_ns + phase_ns(phase) for phase in manifest.phases]
    return Summary(
        run=manifest.run,
        verdict=verdict,
        reasons=reasons,
        scenario=manifest.scenario.name,
        title=manifest.scenario.title or manifest.scenario.name,
        contender=Contender(
            name=manifest.contender.name, version=manifest.contender.version, profile=manifest.contender.profile
        ),
        messages=seen.messages,
        latency_ms=seen.latencies,
        rates=seen.rates,
        bytes=volumes,
        trust=trust,
        expectations=judged,
        state=manifest.state,
        started=datetime.fromtimestamp(manifest.started_ns / SECOND_NS, UTC).isoformat(timespec="seconds"),
        duration_s=round((max(ends) - manifest.started_ns) / SECOND_NS, 3) if ends else 0.0,
        seed=manifest.seed,
        plan_sha256=manifest.plan_sha256,
        devices=figures.count_nodes(facts, "device"),
        clients=figures.count_nodes(facts, "client"),
        phases=[
            PhaseSpan(
                name=phase.name,
                start_s=round((phase.start_ns - facts.load_start_ns) / SECOND_NS, 3),
                duration_s=round(phase_ns(phase) / SECOND_NS, 3),
            )
            for phase in manifest.phases
        ],
        publishing=seen.publishing,
        times_s=figures.times(facts),
        actions=seen.actions,
        groups=seen.groups,
        balance=figures.balance(facts),
        services=services,
        middleware=middleware(facts, seen.messages, seen.publishing, seen.latencies, volumes, seen.actions),
        battle=msgspec.structs.asdict(manifest.battle) if manifest.battle else None,
        tags=manifest.tags,
    )
