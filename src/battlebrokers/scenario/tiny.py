"""The same scenario in about two seconds: overrides that shrink counts, times and paces but keep its shape.

Called by tests and CI, which run every shipped scenario this way; `bb check --tiny` prints them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from battlebrokers.scenario.expansion import payload_plan
from battlebrokers.scenario.expectations import Expectation, parse_expectation
from battlebrokers.scenario.kinds import parse_duration_range
from battlebrokers.scenario.model import Clients, Fleet, Scenario
from battlebrokers.scenario.paces import messages_until, parse_pace
from battlebrokers.scenario.payloads import mean_payload_bytes
from battlebrokers.scenario.resolve import resolve
from battlebrokers.units import duration_text, parse_duration_ns

SECOND_NS = 1_000_000_000
_MOST_NODES = 4
_MOST_MESSAGES = 20
_LOAD_NS = 1_500_000_000
_PER_S = 10
_FAST_PER_S = 100
_LARGE_BYTES = 65_536
_LARGE_PER_S = 2


def tiny_overrides(scenario: Scenario) -> list[str]:
    """What to hand to `--set` so that a run takes about two seconds."""
    return list(_overrides(resolve(scenario)))


def _overrides(scenario: Scenario) -> Iterator[str]:
    phases = scenario.phases
    parts_ns = {name: parse_duration_ns(getattr(phases, name)) for name in ("warm_up", "measure", "cool_down")}
    factor = _LOAD_NS / max(sum(parts_ns.values()), 1)
    if phases.connect is not None:
        yield "phases.connect=null"
    for name, part_ns in parts_ns.items():
        if part_ns:
            yield f"phases.{name}={_shrunk(part_ns, factor)}"
    yield "phases.drain=5s"
    yield "phases.quiet=500ms"
    if scenario.repetitions > 1:
        yield "repetitions=1"
    kept = [text for text in scenario.expect if not _is_absolute(parse_expectation(text))]
    if kept != scenario.expect:
        yield f"expect={json.dumps(kept)}"
    for name, fleet in scenario.fleets.items():
        if fleet.devices > _MOST_NODES:
            yield f"fleets.{name}.devices={_MOST_NODES}"
        yield from _pace(f"fleets.{name}", fleet)
        yield from _times(f"fleets.{name}", fleet, factor)
    for name, group in scenario.clients.items():
        if group.count > _MOST_NODES:
            yield f"clients.{name}.count={_MOST_NODES}"
        yield from _times(f"clients.{name}", group, factor)


def _is_absolute(expectation: Expectation) -> bool:
    """Whether it names a number of messages that the small scenario cannot reach; `lost == 0` holds at any size."""
    return expectation.kind in ("count", "rate") and expectation.value > 0


def _pace(path: str, fleet: Fleet) -> Iterator[str]:
    """Slow devices speak often enough to be heard, fast ones seldom enough for any machine."""
    if fleet.every is None:
        return
    if fleet.at_most is not None and fleet.at_most > _MOST_MESSAGES:
        yield f"{path}.at_most={_MOST_MESSAGES}"
    pace = parse_pace(fleet.every)
    per_s = messages_until(pace, 10 * SECOND_NS) / 10
    if _PER_S <= per_s <= _FAST_PER_S and pace.kind != "ramp":
        return
    is_large = fleet.payload is not None and mean_payload_bytes(payload_plan(fleet.payload)) > _LARGE_BYTES
    gap = duration_text(SECOND_NS // (_LARGE_PER_S if is_large else _PER_S))
    yield f"{path}.every=" + {
        "uniform": "50ms..150ms",
        "poisson": f"poisson {gap}",
        "burst": "burst 3 every 300ms",
        "ramp": "ramp 5/s..20/s over 1s",
    }.get(pace.kind, gap)


def _times(path: str, group: Fleet | Clients, factor: float) -> Iterator[str]:
    if group.join is not None:
        yield f"{path}.join={_shrunk_range(group.join, factor)}"
    if group.away is not None:
        yield f"{path}.away.at={_shrunk_range(group.away.at, factor)}"
        yield f"{path}.away.for={_shrunk(parse_duration_ns(group.away.for_), factor)}"
        if group.away.every is not None:
            yield f"{path}.away.every={_shrunk(parse_duration_ns(group.away.every), factor)}"


def _shrunk(duration_ns: int, factor: float) -> str:
    milliseconds = int(duration_ns * factor) // 1_000_000
    return duration_text(max(milliseconds, 1) * 1_000_000 if duration_ns else 0)


def _shrunk_range(text: str, factor: float) -> str:
    low, high = parse_duration_range(text)
    return _shrunk(low, factor) if low == high else f"{_shrunk(low, factor)}..{_shrunk(high, factor)}"
