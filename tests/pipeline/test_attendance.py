from __future__ import annotations

import itertools
import random

import pytest

from battlebrokers.clock import SECOND_NS
from battlebrokers.pipeline.attendance import (
    BEGINNING_NS,
    ENDLESS_NS,
    GRACE_NS,
    OFF,
    OWED,
    UNCERTAIN,
    Operation,
    Spell,
    attendance,
    group_spells,
)


def operation(kind: str, at_s: float, client: int = 0, **more: object) -> Operation:
    moment_ns = round(at_s * SECOND_NS)
    values: dict[str, object] = {
        "client": client, "kind": kind, "started_ns": moment_ns, "ended_ns": moment_ns, "outcome": "ok",
        "filter": "t" if "subscribe" in kind else None, "share": None, "granted_qos": 1, "session_present": None,
        "persistent": False,
    }  # fmt: skip
    return Operation(**(values | more))  # type: ignore[arg-type]


def owed(spells: list[Spell], at_s: float, qos: int) -> int:
    """What is owed for a message sent then; exactly one spell must answer."""
    sent_ns = round(at_s * SECOND_NS)
    (spell,) = [one for one in spells if one.since_ns <= sent_ns < one.until_ns]
    if not spell.start_ns < sent_ns < spell.end_ns:
        return OFF
    claim = spell.steady if sent_ns < spell.shaky_ns else spell.shaky
    return claim.higher if qos else claim.qos0


def test_a_subscription_is_owed_from_its_suback_to_the_end() -> None:
    spells = attendance([operation("connect", 1), operation("subscribe", 2)]).spells
    assert [owed(spells, at_s, 0) for at_s in (0, 2, 2.1, 1000)] == [OFF, OFF, OWED, OWED]


@pytest.mark.parametrize(("kind", "unsure"), [("lost", UNCERTAIN), ("disconnect", OFF)])
def test_a_clean_session_ends_with_its_connection(kind: str, unsure: int) -> None:
    operations = [operation("connect", 1), operation("subscribe", 2), operation(kind, 5), operation("connect", 7)]
    spells = attendance([*operations, operation("subscribe", 8)]).spells
    assert [owed(spells, at_s, 1) for at_s in (3, 4.9, 6, 7.5, 9)] == [OWED, unsure, OFF, OFF, OWED]


def test_a_persistent_session_outlives_its_connection_for_qos_1() -> None:
    operations = [
        operation("connect", 1, persistent=True),
        operation("subscribe", 2, persistent=True),
        operation("lost", 5, persistent=True),
        operation("connect", 7, persistent=True, session_present=True),
    ]
    spells = attendance(operations).spells
    assert [owed(spells, at_s, 1) for at_s in (3, 4.9, 6, 6.9, 7.1)] == [OWED] * 5
    assert [owed(spells, at_s, 0) for at_s in (3, 4.9, 6, 6.9, 7.1)] == [OWED, UNCERTAIN, OFF, OFF, OWED]


@pytest.mark.parametrize(
    ("back_s", "claim"),
    [(14.5, OWED), (14.9, UNCERTAIN), (15.1, UNCERTAIN), (15.5, OFF), (100, OFF)],
)
@pytest.mark.parametrize("present", [True, False])
def test_a_session_that_expired_owes_nothing_of_the_absence(back_s: float, claim: int, present: bool) -> None:
    lasting = {"persistent": True, "session_expiry_s": 10}
    operations = [
        operation("connect", 1, **lasting),
        operation("subscribe", 2, **lasting),
        operation("disconnect", 5, **lasting),
        operation("connect", back_s, session_present=present, **lasting),
        operation("subscribe", back_s + 1, **lasting),
    ]
    spells = attendance(operations).spells
    assert [owed(spells, at_s, 1) for at_s in (3, 4.9, 6, 14.4, back_s + 2)] == [OWED, claim, claim, claim, OWED]
    assert owed(spells, back_s + 0.5, 1) == (OWED if present else OFF)


def test_a_session_may_expire_in_one_absence_and_not_in_the_next() -> None:
    lasting = {"persistent": True, "session_expiry_s": 2}
    operations = [
        operation("connect", 1, **lasting),
        operation("subscribe", 2, **lasting),
        operation("lost", 5, **lasting),
        operation("connect", 9, session_present=False, **lasting),
        operation("subscribe", 9.5, **lasting),
        operation("lost", 12, **lasting),
        operation("connect", 13, session_present=True, **lasting),
    ]
    spells = attendance(operations).spells
    assert [owed(spells, at_s, 1) for at_s in (4.9, 6, 10, 11.9, 12.5, 14)] == [UNCERTAIN, OFF, *[OWED] * 4]


def test_a_connection_taken_over_without_a_farewell_ends_a_clean_session() -> None:
    operations = [operation("connect", 1), operation("subscribe", 2), operation("connect", 5)]
    spells = attendance(operations).spells
    assert [owed(spells, at_s, 1) for at_s in (4, 4.9, 6)] == [OWED, UNCERTAIN, OFF]


def test_a_new_grant_replaces_the_old_one() -> None:
    operations = [operation("connect", 1), operation("subscribe", 2), operation("subscribe", 5, granted_qos=0)]
    spells = attendance(operations).spells
    assert [(one.granted_qos, one.start_ns // SECOND_NS) for one in spells] == [(1, 2), (0, 5)]
    assert [owed(spells, at_s, 1) for at_s in (4.9, 5.1)] == [OWED, OWED]


def test_what_did_not_succeed_has_no_effect() -> None:
    operations = [operation("connect", 1, outcome="timeout"), operation("subscribe", 2, outcome="refused")]
    assert attendance(operations).spells == []
    assert attendance(operations).connections == []


def test_operations_may_come_in_any_order_and_for_many_clients() -> None:
    told = [
        one
        for client in range(5)
        for one in (
            operation("connect", 1, client),
            operation("subscribe", 2, client),
            operation("lost", 5, client),
            operation("connect", 6, client),
            operation("subscribe", 7, client),
        )
    ]
    shuffled = random.Random(1).sample(told, len(told))
    assert attendance(shuffled) == attendance(told)
    assert {(one.connection, one.from_ns // SECOND_NS) for one in attendance(told).connections} == {(1, 1), (2, 6)}
    assert {(one.connection, one.ended_ns // SECOND_NS) for one in attendance(told).subscriptions} == {(1, 2), (2, 7)}


def test_spells_of_a_subscription_leave_no_gap_and_never_overlap() -> None:
    dice = random.Random(7)
    for _ in range(200):
        kinds = ["connect", "subscribe", "unsubscribe", "disconnect", "lost"]
        persistent = dice.random() < 0.5
        told = [
            operation(dice.choice(kinds), at_s, persistent=persistent, session_present=dice.choice([True, False, None]))
            for at_s in sorted(dice.uniform(0, 20) for _ in range(12))
        ]
        spells = attendance(told).spells
        if spells:
            borders = sorted((one.since_ns, one.until_ns) for one in spells)
            assert borders[0][0] == BEGINNING_NS
            assert borders[-1][1] == ENDLESS_NS
            assert all(a[1] == b[0] for a, b in itertools.pairwise(borders))


def test_a_group_is_owed_while_any_member_is_there_and_unsure_while_one_leaves() -> None:
    told = []
    for client, (join_s, leave_s) in enumerate([(1, 5), (3, 8)]):
        told += [operation("connect", join_s - 0.5, client), operation("subscribe", join_s, client, share="g")]
        told += [operation("lost", leave_s, client)]
    spells = group_spells(attendance(told).spells)
    moments = (0.9, 1.1, 4, 4.9, 5.1, 7, 7.9, 8.1)
    assert [owed(spells, at_s, 1) for at_s in moments] == [OFF, OWED, OWED, UNCERTAIN, OWED, OWED, UNCERTAIN, OFF]
    assert {(one.client, one.share) for one in spells} == {(-1, "g")}


def test_a_large_group_needs_few_spells() -> None:
    told = []
    for client in range(1000):
        told += [operation("connect", 1, client), operation("subscribe", 2 + client / 1e6, client, share="g")]
    assert len(group_spells(attendance(told).spells)) == 1


def test_the_grace_is_short() -> None:
    assert GRACE_NS == SECOND_NS // 4
