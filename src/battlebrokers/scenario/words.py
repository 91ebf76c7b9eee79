"""A plan in words, as `bb check` and the start of a run say it. Pure: plan in, sentences out."""

from __future__ import annotations

import math

from battlebrokers.scenario.model import Clients, Fleet
from battlebrokers.scenario.plan import Plan
from battlebrokers.units import format_count, format_duration, format_size


def tell(plan: Plan) -> str:
    """The plan in one sentence."""
    facts = plan.estimate
    who = _and(_counted(facts.devices, "device"), _counted(facts.clients, "client"))
    joining = f"{who} join{_s(facts.connections)} {_joining(facts.connect_ns)}"
    load = format_duration(_rounded(facts.measure_ns) if plan.until_silent else facts.measure_ns)
    if facts.messages:
        rate = _about(facts.messages_per_s)
        noun, verb = ("message", "is") if rate == "1" else ("messages", "are")
        talk = f"about {rate} {noun}/s of {format_size(facts.payload_bytes)} on average {verb} sent for {load}"
        if facts.deliveries:
            becomes = "becomes" if verb == "is" else "become"
            heard = _about(facts.deliveries_per_s)
            talk += f" and {becomes} about {heard} {'delivery' if heard == '1' else 'deliveries'}/s"
        else:
            talk += ", and nobody listens"
    else:
        talk = f"nothing is sent, the connections are held for {load}"
    return f"{joining}; {talk}; the run takes about {format_duration(_rounded(facts.duration_ns))}."


def notes(plan: Plan) -> list[str]:
    """What the sentence leaves out and a reader should know."""
    facts = plan.estimate
    scenario = plan.scenario
    lines = [f"{name}: payloads carry no header and are matched by topic and order." for name in facts.unstamped]
    for name, fleet in scenario.fleets.items():
        if fleet.devices > 1 and not fleet.staggered and fleet.every and "poisson" not in fleet.every:
            lines.append(f"{name}: all {format_count(fleet.devices)} devices speak at the same moment (not staggered).")
        if fleet.at_most is not None:
            lines.append(f"{name}: each device falls silent after {_counted(fleet.at_most, 'message')}.")
    groups: dict[str, Fleet | Clients] = {**scenario.fleets, **scenario.clients}
    for name, group in groups.items():
        lines += _absences(name, group)
    lines += [f"{name}: reads only {clients.reads}." for name, clients in scenario.clients.items() if clients.reads]
    lines += [
        f"{name}: shared group `{clients.share}`, each message goes to one of {format_count(clients.count)}."
        for name, clients in scenario.clients.items()
        if clients.share
    ]
    if facts.deliveries and plan.phases.drain_ns:
        drain, longest = (format_duration(ns) for ns in (plan.phases.drain_ns, plan.phases.longest_drain_ns))
        lines.append(f"After the load it waits up to {drain} for messages, up to {longest} while they keep arriving.")
    if scenario.phases.until_silent:
        lines.append("The load ends as soon as every device has said all it may.")
    if scenario.repetitions > 1:
        lines.append(f"All of it {scenario.repetitions} times.")
    return lines


def _absences(name: str, group: Fleet | Clients) -> list[str]:
    lines = []
    if group.join is not None:
        verb = "begin to speak" if isinstance(group, Fleet) else "connect and subscribe"
        lines.append(f"{name}: {verb} {group.join} after the start of the load.")
    if group.away is not None:
        how = "drop their connections" if group.away.how == "abrupt" else "say goodbye"
        again = f", again every {group.away.every}" if group.away.every else ""
        lines.append(f"{name}: {how} at {group.away.at} and come back {group.away.for_} later{again}.")
    return lines


def _counted(number: int, noun: str) -> str:
    return f"{format_count(number)} {noun}{'' if number == 1 else 's'}" if number else ""


def _and(*parts: str) -> str:
    return " and ".join(part for part in parts if part) or "Nobody"


def _s(number: int) -> str:
    return "s" if number <= 1 else ""


def _joining(connect_ns: int) -> str:
    return f"in {format_duration(_rounded(connect_ns))}" if connect_ns else "at once"


def _rounded(duration_ns: int) -> float:
    """Two digits are enough for an estimate, whole seconds beyond ten, whole minutes beyond ten."""
    if duration_ns >= 600_000_000_000:
        return round(duration_ns / 60e9) * 60e9
    if duration_ns >= 10_000_000_000:
        return round(duration_ns, -9)
    digits = math.floor(math.log10(duration_ns)) if duration_ns else 0
    return round(duration_ns, 1 - digits)


def _about(number: float) -> str:
    """Three digits are enough."""
    if number <= 0:
        return "0"
    return format_count(round(number, 2 - math.floor(math.log10(number))))
