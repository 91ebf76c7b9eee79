"""From what a switch knows to what it should know, in an order that never leads a message astray. Pure.

Called by the broker for every change; after a restart it is what keeps deliveries going: equal rules are not touched.
"""

from __future__ import annotations

from collections.abc import Iterator

from battlebrokers.sdn.core.instructions import (
    DropGroup,
    DropMeter,
    DropRule,
    Order,
    PutGroup,
    PutMeter,
    PutRule,
    Tables,
)


def difference(known: Tables, wanted: Tables) -> list[Order]:
    """The orders that make `wanted` of `known`.

    What a rule leads to is there before the rule, and goes after it: a group that vanished would take its rules along.
    """
    return list(_orders(known, wanted))


def _orders(known: Tables, wanted: Tables) -> Iterator[Order]:
    for meter in wanted.meters.values():
        if known.meters.get(meter.id) != meter:
            yield PutMeter(meter, meter.id in known.meters)
    for group in wanted.groups.values():
        if known.groups.get(group.id) != group:
            yield PutGroup(group, group.id in known.groups)
    # First what forbids: a message may rather be dropped than reach somebody it is not meant for.
    new = [rule for key, rule in wanted.rules.items() if known.rules.get(key) != rule]
    yield from (PutRule(rule) for rule in new if not rule.actions and rule.goto is None)
    yield from (DropRule(rule) for key, rule in known.rules.items() if key not in wanted.rules)
    yield from (PutRule(rule) for rule in new if rule.actions or rule.goto is not None)
    yield from (DropGroup(number) for number in known.groups if number not in wanted.groups)
    yield from (DropMeter(number) for number in known.meters if number not in wanted.meters)
