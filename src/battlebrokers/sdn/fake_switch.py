"""A switch in memory: obeys the core's orders and answers "which ports get this packet, rewritten how?".

For tests and for trying things out; it reads frames as Open vSwitch does. It knows no meters: it never loses a packet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from battlebrokers.sdn.core.frames import arp_answer, read_arp
from battlebrokers.sdn.core.instructions import (
    CONTROLLER,
    IN_PORT,
    Actions,
    AnswerArp,
    DropGroup,
    DropMeter,
    DropRule,
    Match,
    Order,
    Output,
    PutGroup,
    PutMeter,
    PutRule,
    Rewrite,
    Rule,
    Send,
    Tables,
    ToGroup,
)
from battlebrokers.sdn.packet import fields_of, rewritten


@dataclass(slots=True)
class Outcome:
    """What became of a frame."""

    sent: list[tuple[int, bytes]] = field(default_factory=list)
    """(port, frame), in the order they left."""
    asked: list[bytes] = field(default_factory=list)
    """Frames the controller is asked about."""


class FakeSwitch:
    """One switch with its ports; rules and groups as `Tables`, counters by the purpose of rules."""

    def __init__(self, ports: frozenset[int]) -> None:
        self.ports = ports
        self.tables = Tables()
        self.counted: Counter[str] = Counter()

    def obey(self, order: Order) -> Outcome:
        """Carry out one order; only `Send` has an outcome."""
        rules, groups, meters = self.tables.rules, self.tables.groups, self.tables.meters
        match order:
            case PutRule(rule):
                rules[rule.key] = rule
            case DropRule(rule):
                rules.pop(rule.key, None)
            case PutGroup(group, known):
                if known is not (group.id in groups):
                    raise ValueError(f"group {group.id}: known is {known}, but the switch sees it otherwise")
                groups[group.id] = group
            case DropGroup(number):
                groups.pop(number, None)
                for rule in list(rules.values()):
                    if ToGroup(number) in rule.actions:
                        del rules[rule.key]
            case PutMeter(meter, known):
                if known is not (meter.id in meters):
                    raise ValueError(f"meter {meter.id}: known is {known}, but the switch sees it otherwise")
                meters[meter.id] = meter
            case DropMeter(number):
                meters.pop(number, None)
                for rule in list(rules.values()):
                    if rule.meter == number:
                        del rules[rule.key]
            case Send(actions, frame, in_port):
                outcome = Outcome()
                self._act(actions, in_port, frame, outcome)
                return outcome
        return Outcome()

    def receive(self, in_port: int, frame: bytes) -> Outcome:
        """A frame came in."""
        outcome = Outcome()
        table: int | None = 0
        while table is not None:
            rule = self._rule_for(table, in_port, frame)
            if rule is None:
                break
            self.counted[rule.purpose] += 1
            self._act(rule.actions, in_port, frame, outcome)
            table = rule.goto
        return outcome

    def _rule_for(self, table: int, in_port: int, frame: bytes) -> Rule | None:
        fields = fields_of(in_port, frame)
        fitting = [rule for rule in self.tables.rules.values() if rule.table == table and _fits(rule.match, fields)]
        return max(fitting, key=lambda rule: rule.priority, default=None)

    def _act(self, actions: Actions, in_port: int, frame: bytes, outcome: Outcome) -> None:
        for action in actions:
            match action:
                case Output(port):
                    self._output(port, in_port, frame, outcome)
                case Rewrite(what, to):
                    frame = rewritten(frame, what, to)
                case ToGroup(number):
                    for bucket in self.tables.groups[number].buckets:
                        self._act(bucket, in_port, frame, outcome)
                case AnswerArp(address):
                    self._output(IN_PORT, in_port, _answer(frame, address), outcome)

    def _output(self, port: int, in_port: int, frame: bytes, outcome: Outcome) -> None:
        if port == CONTROLLER:
            outcome.asked.append(frame)
        elif port == IN_PORT:
            outcome.sent.append((in_port, frame))
        elif port != in_port and port in self.ports:
            outcome.sent.append((port, frame))


def _fits(match: Match, fields: Match) -> bool:
    return all(wanted is None or wanted == found for wanted, found in zip(_values(match), _values(fields), strict=True))


def _values(match: Match) -> Iterator[object]:
    return (getattr(match, name) for name in Match.__slots__)


def _answer(frame: bytes, address: str) -> bytes:
    question = read_arp(frame)
    if question is None or question.target_ipv4 != address:
        raise ValueError("a rule that answers ARP met something else")
    # The switch turns the frame round in place, so it stays as long as it was.
    return arp_answer(question)[:42] + frame[42:]
