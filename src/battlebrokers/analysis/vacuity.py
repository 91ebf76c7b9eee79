"""What a run could not show although nothing failed: clients owed nothing, expectations nothing can break. Pure.

Called by `trust` and the finders. `scenario.vacuity` tells the same of a plan, before it runs.
"""

from __future__ import annotations

import pyarrow.compute as pc

from battlebrokers.analysis.capacity import groups_with
from battlebrokers.analysis.columns import int64_array
from battlebrokers.analysis.facts import Facts, where
from battlebrokers.analysis.model import Check
from battlebrokers.errors import QuantityError
from battlebrokers.scenario.expectations import parse_expectation
from battlebrokers.units import format_count

VACUOUS, UNHEARD = "vacuous-expectations", "unheard-clients"


def check_vacuous(facts: Facts) -> Check:
    """Whether every expectation could have failed."""
    has_wills = any(groups_with(facts, part, ("will",)) for part in ("fleets", "clients"))
    found = [text for text in facts.manifest.scenario.expect if _holds_always(text, has_wills=has_wills)]
    if not found:
        return Check(id=VACUOUS, level="ok", sentence="every expectation could have failed", measured=0)
    what, shows = ("the expectation", "shows") if len(found) == 1 else ("the expectations", "show")
    sentence = f"{what} {', '.join(found)} can never fail, and {shows} nothing"
    return Check(id=VACUOUS, level="warning", sentence=sentence, measured=len(found), limit=0)


def check_unheard(facts: Facts) -> Check:
    """Whether every client that subscribed was owed something by anything that was sent."""
    granted = where(facts.operations, kind="subscribe", role="client", outcome="ok")
    filters: dict[int, str] = {}
    for node, text in zip(granted["node"].to_pylist(), granted["filter"].to_pylist(), strict=True):
        filters.setdefault(node, text or "")
    concerned = facts.ledger.filter(
        pc.greater(pc.add(facts.ledger["expected"], facts.ledger["wills"]), int64_array([0])[0])
    )
    # A shared group is owed its messages as a whole.
    shared = set(where(concerned, client=-1)["client_fleet"].to_pylist())
    clients = where(facts.nodes, role="client")
    fleets = dict(zip(clients["node"].to_pylist(), clients["fleet"].to_pylist(), strict=True))
    heard = set(concerned["client"].to_pylist())
    unheard = [node for node in filters if node not in heard and fleets.get(node, "") not in shared]
    if not unheard or not facts.publishing.num_rows:
        return Check(id=UNHEARD, level="ok", sentence="every client that subscribed was owed messages", measured=0)
    names = sorted({fleets.get(node, "") for node in unheard})
    who = f"{format_count(len(unheard))} of {format_count(len(filters))} clients that subscribed"
    verb = "was" if len(unheard) == 1 else "were"
    sentence = (
        f"{who} {verb} owed nothing ({', '.join(names[:3])}; for example {filters[unheard[0]] or 'no filter'}): "
        "no message of this run matched"
    )
    return Check(id=UNHEARD, level="warning", sentence=sentence, measured=len(unheard), limit=0)


def _holds_always(text: str, *, has_wills: bool) -> bool:
    try:
        expectation = parse_expectation(text)
    except QuantityError:
        return False
    return expectation.holds_always or (expectation.metric == "wills" and not has_wills)
