"""Whether the measurement itself can be believed: one function per question, each answering in words.

Called by `summary`. Knows nothing of expectations. A check of level `void` voids the run; the limits stand here at the
top, each with its reason.
"""

from __future__ import annotations

import pyarrow.compute as pc

from battlebrokers.analysis.admission import count_connects, only_connects
from battlebrokers.analysis.clocks import clock_error_us
from battlebrokers.analysis.facts import MEASURE, Facts, where
from battlebrokers.analysis.latency import measured, needed_samples, per_second
from battlebrokers.analysis.model import Check, Latencies, Level, Messages, Percentiles, Publishing, Service, Trust
from battlebrokers.analysis.quantiles import Distribution
from battlebrokers.analysis.steadiness import SHORTEST_WINDOW_S, Steadiness, steadiness
from battlebrokers.analysis.strays import check_flood, check_foreign
from battlebrokers.analysis.vacuity import check_unheard, check_vacuous
from battlebrokers.clock import MILLISECOND_NS
from battlebrokers.units import format_count, format_duration, format_percent

LATE_FLOOR_MS = 1.0
"""A timer of an ordinary kernel is not more exact than this."""
LATE_OF_RESPONSE = 0.10
"""Lateness below a tenth of the median response does not change the picture."""
LATE_TICKS = 1.5
"""In a process that handles sends once a tick, lateness below this is the tick's doing, which `coarse-ticks` tells; the
half is for the turn itself."""
LATE_SHARE = 0.01
DISTORTION_FLOOR_MS = 2.0
"""On a small or shared machine one send in a hundred is easily late by a millisecond or two; the run is void only if
that moved the stated p99 (where too few messages carry it, the highest percentile below), i.e. response exceeds service
by more than this and by more than a tenth."""
SENT_SHARE = 0.99
GENERATOR_CPU_PERCENT = 90.0
IDLE_CPU_PERCENT = 50.0
"""A generator with half a core to spare was not late for want of CPU time: the machine woke it late."""
STEAL_PERCENT = 2.0
OTHER_LOAD_SHARE = 0.25
FEWEST_SAMPLES = 30
RISING_RATIO = 5.0
RISING_MS = 10.0

EVIDENCE = ("publishes", "acks", "deliveries", "operations", "nodes")
"""Tables without which the ledger is not whole."""


def judge_trust(
    facts: Facts, latencies: Latencies, messages: Messages, publishing: Publishing, services: list[Service]
) -> Trust:
    """Ask every question."""
    lag = measured(facts, "lag")
    tick_ms = facts.manifest.tick_ns / MILLISECOND_NS
    limit_ms = max(LATE_FLOOR_MS, LATE_OF_RESPONSE * (latencies.response.p50 or 0.0), LATE_TICKS * tick_ms)
    late_share = lag.share_above(limit_ms * MILLISECOND_NS)
    busiest = max((s for s in services if s.role == "generator"), key=_thread_percent, default=None)
    overflow = sum(worker.counters.get("recorder_overflow", 0) for worker in facts.manifest.workers)
    clock_us = clock_error_us(facts.clocks, len(facts.manifest.workers))
    steal = pc.max(where(facts.services, phase=MEASURE, role="host")["steal_max_percent"]).as_py()
    connects = count_connects(facts) if only_connects(facts) else None
    samples = messages.expected or messages.sent or connects or 0
    settled = steadiness(_medians_ms(facts))
    checks = [
        _complete(facts),
        _evidence(facts),
        _overflow(overflow, str(facts.manifest.settings.get("recorder_failure", ""))),
        _ticks(tick_ms),
        _qos(facts),
        _late(late_share, limit_ms, tick_ms, latencies, busiest),
        _short(messages, publishing),
        _connects(sum(worker.counters.get("connects_held", 0) for worker in facts.manifest.workers)),
        _generator_cpu(busiest),
        _samples(samples, "deliveries" if messages.expected else "sends") if connects is None else _connected(connects),
        check_flood(facts),
        check_foreign(facts.manifest.scenario.expect, messages),
        _steady(settled, planned=planned_changes(facts)),
        _rising(facts),
        _clock(clock_us, latencies),
        check_unheard(facts),
        check_vacuous(facts),
        _steal(steal),
        _other_load(facts, services),
    ]
    return Trust(
        ok=all(check.level != "void" for check in checks),
        late_share=round(late_share, 6),
        late_limit_ms=round(limit_ms, 4),
        lag_p99_ms=latencies.lag.p99,
        generator_cpu_percent=busiest.busiest_thread_mean_percent if busiest else None,
        recorder_overflow=overflow,
        clock_error_us=clock_us,
        steal_percent=steal,
        samples=samples,
        steady=settled.steady,
        checks=checks,
    )


def planned_changes(facts: Facts) -> str:
    """What in the scenario makes latency move on purpose (absence, late join, slow reader, ramp), or nothing."""
    for part in ("fleets", "clients"):
        groups = facts.manifest.scenario.resolved.get(part)
        for group in groups.values() if isinstance(groups, dict) else ():
            if not isinstance(group, dict):
                continue
            said = next((key for key in ("away", "join", "reads") if group.get(key)), None)
            if said or str(group.get("every", "")).startswith("ramp"):
                return said or "ramp"
    return ""


def _complete(facts: Facts) -> Check:
    detail = f": {facts.manifest.state_detail}" if facts.manifest.state_detail else ""
    unfinished = {
        "interrupted": f"the run was interrupted{detail}",
        "failed": f"the run failed on our side{detail}",
        "starting": "the run never began: it was killed while its broker started, or is still at it",
        "killed": f"the run was killed{detail}",
        "running": "the run never finished: its process was killed, or is still at it",
    }.get(facts.manifest.state)
    if unfinished:
        return Check(id="incomplete", level="void", sentence=unfinished)
    if facts.measure is None and facts.manifest.state != "broker-failed":
        return Check(id="incomplete", level="void", sentence="the run never reached its measure phase")
    return Check(
        id="incomplete", level="ok", sentence="all phases were run to their end" if facts.measure else "cut short"
    )


def _evidence(facts: Facts) -> Check:
    holes = [defect for defect in facts.defects if any(name in defect.file for name in EVIDENCE)]
    others = [defect.file for defect in facts.defects if defect not in holes]
    if holes:
        names = ", ".join(defect.file for defect in holes[:3]) + (" …" if len(holes) > 3 else "")
        files = "1 recorded file" if len(holes) == 1 else f"{len(holes)} recorded files"
        sentence = f"{files} could not be read ({names}): what is not there looks like loss"
        return Check(id="evidence-damaged", level="void", sentence=sentence, measured=len(holes), limit=0)
    level: Level = "warning" if others else "ok"
    names = ", ".join(others[:3]) + (" …" if len(others) > 3 else "")
    sentence = f"could not be read, beside the evidence: {names}" if others else "every recorded file was read"
    return Check(id="evidence-damaged", level=level, sentence=sentence, measured=len(others), limit=0)


def _overflow(overflow: int, failure: str) -> Check:
    level: Level = "void" if overflow or failure else "ok"
    sentence = "the recorder kept every event"
    if failure:
        sentence = f"the recorder could not write everything: {failure}"
        sentence += f" ({format_count(overflow)} events are missing)" if overflow else ""
    elif overflow:
        sentence = f"{format_count(overflow)} events did not fit into the recorder"
    return Check(id="recorder-overflow", level=level, sentence=sentence, measured=overflow, limit=0)


def _ticks(tick_ms: float) -> Check:
    if not tick_ms:
        return Check(id="coarse-ticks", level="ok", sentence="sends and arrivals were handled as they came", measured=0)
    sentence = (
        f"each process had so much to do that it handled sends and arrivals every {_ms(tick_ms)}: sends were late by "
        f"up to that, response is up to {_ms(2 * tick_ms)} too long, service up to {_ms(tick_ms)}; more processes "
        "measure finer"
    )
    return Check(id="coarse-ticks", level="warning", sentence=sentence, measured=tick_ms)


def _qos(facts: Facts) -> Check:
    """Whether everybody had the QoS the scenario asks for; with `protocol: auto` it may be less."""
    lowered = facts.manifest.settings.get("lowered_qos") or {}
    if not lowered:
        return Check(id="lowered-qos", level="ok", sentence="everybody had the QoS that was asked for")
    said = ", ".join(f"{name} had QoS {words}" for name, words in lowered.items())
    sentence = f"{said}: {facts.manifest.contender.name} honours no more over what is spoken here"
    return Check(id="lowered-qos", level="warning", sentence=sentence, measured=len(lowered), limit=0)


def _late(late_share: float, limit_ms: float, tick_ms: float, latencies: Latencies, busiest: Service | None) -> Check:
    share = format_percent(late_share)
    said = f"{share} of the sends nothing held left more than {_ms(limit_ms)} after their planned time"
    level: Level = "ok"
    if late_share > LATE_SHARE:
        said += f" (limit {format_percent(LATE_SHARE)})"
        found = _highest_carried(latencies)
        if found is None:
            level = "void"
            said += "; too little arrived to tell what that did to latency, so the run is void"
        else:
            name, response, service = found
            moved_ms = max(0.0, response - service)
            allowed_ms = max(DISTORTION_FLOOR_MS, LATE_OF_RESPONSE * response, LATE_TICKS * tick_ms)
            level = "void" if moved_ms > allowed_ms else "warning"
            said += f"; that moved {name} by {_ms(moved_ms)}, from {_ms(service)} after the actual send to "
            said += f"{_ms(response)} after the planned one, and up to {_ms(allowed_ms)} is allowed, so the run is "
            said += "void" if level == "void" else "not void"
        said += _why_late(busiest)
    return Check(id="generator-late", level=level, sentence=said, measured=round(late_share, 6), limit=LATE_SHARE)


def _highest_carried(latencies: Latencies) -> tuple[str, float, float] | None:
    """The highest percentile up to p99 that both have samples for, from the planned and from the actual send."""
    for name in ("p99", "p95", "p90", "p50"):
        response, service = _arrived(latencies.response, name), _arrived(latencies.service, name)
        if response is not None and service is not None:
            return name, response, service
    return None


def _arrived(found: Percentiles, name: str) -> float | None:
    """Milliseconds; of those that arrived where the stated one is infinite, for no lateness of ours made it so."""
    value: float | None = found.of_delivered.get(name) if name in found.infinite else getattr(found, name)
    return value


def _why_late(busiest: Service | None) -> str:
    """What was seen of the cause: a thread with time to spare that leaves late was woken late."""
    if busiest is None:
        return ""
    percent = busiest.busiest_thread_mean_percent
    used = f"; the generator's busiest thread used {percent:.0f} % of a core"
    return f"{used}: this machine woke it late" if percent < IDLE_CPU_PERCENT else used


def _short(messages: Messages, publishing: Publishing) -> Check:
    planned, shortfall = messages.planned, publishing.shortfall
    share = messages.sent / planned if planned else 1.0
    level: Level = "ok"
    sentence = f"{format_percent(share)} of the planned messages were sent"
    if shortfall > (1 - SENT_SHARE) * planned:
        level = "void"
        sentence += f"; {format_count(shortfall)} were held by nobody: the generator did not keep up"
    elif share < SENT_SHARE:
        level = "note"
        if publishing.backlog:
            sentence += f"; {format_count(publishing.backlog)} were held by the broker (window, socket or connection)"
        else:
            sentence += "; the rest belongs to planned absences, or became due just before the end"
    return Check(id="generator-short", level=level, sentence=sentence, measured=round(share, 6), limit=SENT_SHARE)


def _connects(held: int) -> Check:
    if not held:
        return Check(id="connects-held", level="ok", sentence="no connect had to wait for others", measured=0)
    noun = "connect" if held == 1 else "connects"
    sentence = f"{format_count(held)} {noun} had to wait until earlier ones were answered; they count from when due"
    return Check(id="connects-held", level="note", sentence=sentence, measured=held)


def _generator_cpu(busiest: Service | None) -> Check:
    if busiest is None:
        return Check(id="generator-cpu", level="note", sentence="the generator's CPU was not sampled")
    percent = busiest.busiest_thread_mean_percent
    sentence = f"the generator's busiest thread used {percent:.0f} % of a core"
    level: Level = "ok"
    if percent > GENERATOR_CPU_PERCENT:
        level, sentence = "void", f"{sentence} (limit {GENERATOR_CPU_PERCENT:.0f} %): it may have been the limit"
    return Check(id="generator-cpu", level=level, sentence=sentence, measured=percent, limit=GENERATOR_CPU_PERCENT)


def _connected(connects: int) -> Check:
    """Where nothing is to be sent; how many a percentile of theirs needs is asked where one is expected."""
    level: Level = "ok" if connects else "void"
    noun = "connect" if connects == 1 else "connects"
    sentence = f"{format_count(connects)} {noun} measured; nothing was to be sent"
    return Check(id="few-samples", level=level, sentence=sentence, measured=connects, limit=1)


def _samples(samples: int, noun: str) -> Check:
    level: Level = "void" if samples < FEWEST_SAMPLES else "ok"
    sentence = f"{format_count(samples)} {noun} measured" + (
        f"; fewer than {FEWEST_SAMPLES} say nothing" if level == "void" else ""
    )
    return Check(id="few-samples", level=level, sentence=sentence, measured=samples, limit=FEWEST_SAMPLES)


def _steady(settled: Steadiness, *, planned: str) -> Check:
    if settled.steady is None:
        sentence = f"shorter than {SHORTEST_WINDOW_S} s: whether latency had settled cannot be said"
        return Check(id="unsteady", level="note", sentence=sentence)
    moved = f"the median went from {_ms(settled.first_ms)} in the first third to {_ms(settled.last_ms)} in the last"
    ratio = round(settled.last_ms / settled.first_ms, 3) if settled.first_ms > 0 else None
    if settled.steady:
        return Check(id="unsteady", level="ok", sentence=f"latency was steady: {moved}", measured=ratio)
    if planned:
        return Check(id="unsteady", level="note", sentence=f"{moved}, as planned (`{planned}`)", measured=ratio)
    advice = (
        "the load is more than this broker sustains, no percentile holds"
        if settled.last_ms > settled.first_ms
        else "lengthen the warm-up"
    )
    return Check(id="unsteady", level="void", sentence=f"latency never settled: {moved}; {advice}", measured=ratio)


def _rising(facts: Facts) -> Check:
    seconds = per_second(facts, "response", phase=MEASURE)
    middle = facts.measure_seconds[len(facts.measure_seconds) // 2] if len(facts.measure_seconds) else 0
    parts = [
        Distribution.merged(found for second, found in seconds.items() if (second >= middle) is late)
        for late in (False, True)
    ]
    halves = [part.quantile_ns(0.99, of_arrived=True) for part in parts]
    if any(part.arrived < needed_samples("p99") for part in parts):
        return Check(id="tail-rising", level="note", sentence="too few samples to compare both halves")
    first_ms, second_ms = (value / MILLISECOND_NS for value in halves if value is not None)
    sentence = f"p99 was {_ms(first_ms)} in the first half and {_ms(second_ms)} in the second"
    rising = second_ms > RISING_RATIO * first_ms and second_ms - first_ms > RISING_MS
    return Check(id="tail-rising", level="warning" if rising else "ok", sentence=sentence, measured=round(second_ms, 4))


def _clock(error_us: float | None, latencies: Latencies) -> Check:
    if error_us is None:
        return Check(id="clock", level="warning", sentence="the workers' clocks were never compared")
    p50_us = (latencies.response.p50 or 0.0) * 1000
    sentence = "all workers read one clock" if error_us == 0 else f"clocks agree within {_ms(error_us / 1000)}"
    level: Level = "ok"
    if error_us and p50_us and error_us > p50_us:
        level, sentence = (
            "void",
            f"clocks may be {_ms(error_us / 1000)} apart, more than the median latency of {_ms(p50_us / 1000)}",
        )
    elif error_us and p50_us < 3 * error_us:
        level, sentence = "warning", f"{sentence}, not much less than the median latency of {_ms(p50_us / 1000)}"
    return Check(id="clock", level=level, sentence=sentence, measured=error_us)


def _steal(steal: float | None) -> Check:
    if steal is None:
        return Check(id="steal", level="note", sentence="CPU steal was not sampled")
    sentence = f"the hypervisor took away up to {steal:.1f} % of the CPU"
    if steal <= STEAL_PERCENT:
        return Check(id="steal", level="ok", sentence=sentence, measured=steal, limit=STEAL_PERCENT)
    sentence += f" (limit {STEAL_PERCENT:.0f} %): neighbours disturb this machine"
    return Check(id="steal", level="warning", sentence=sentence, measured=steal, limit=STEAL_PERCENT)


def _other_load(facts: Facts, services: list[Service]) -> Check:
    """What neither broker nor generator used: a busy machine explains most late sends."""
    cores = facts.manifest.host.get("cpu_cores_usable") or facts.manifest.host.get("cpu_cores")
    host = next((service for service in services if service.role == "host"), None)
    if host is None or not isinstance(cores, int) or cores <= 0:
        return Check(id="other-load", level="note", sentence="how busy the machine was is not known")
    own = sum(service.cpu_mean_percent for service in services if service.role != "host")
    share = max(0.0, host.cpu_mean_percent - own) / 100 / cores
    sentence = f"others used {format_percent(share)} of this machine's {cores} cores"
    if unseen := facts.manifest.settings.get("broker_not_sampled"):
        sentence += f", perhaps the broker among them, which was not sampled ({unseen})"
    level: Level = "ok"
    if share > OTHER_LOAD_SHARE:
        level, sentence = (
            "warning",
            f"{sentence} (limit {format_percent(OTHER_LOAD_SHARE)}): they disturb the measurement",
        )
    return Check(id="other-load", level=level, sentence=sentence, measured=round(share, 4), limit=OTHER_LOAD_SHARE)


def _ms(value_ms: float) -> str:
    return format_duration(value_ms * MILLISECOND_NS)


def _medians_ms(facts: Facts) -> list[float]:
    seconds = per_second(facts, "response", phase=MEASURE) or per_second(facts, "publish", phase=MEASURE)
    medians = (found.quantile_ns(0.5, of_arrived=True) for _, found in sorted(seconds.items()))
    return [value / MILLISECOND_NS for value in medians if value is not None]


def _thread_percent(service: Service) -> float:
    return service.busiest_thread_mean_percent
