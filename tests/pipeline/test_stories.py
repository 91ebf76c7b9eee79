"""Known answers: what the ledger says about each thing that can happen to a message."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from battlebrokers.pipeline.graph import analyze
from battlebrokers.tables import BALANCE, FAILURES, JOURNEYS, LATENCIES, LEDGER, PUBLISHING
from battlebrokers.tables.measures import BUCKET_LOST
from pipeline.world import STORIES, Message, Result, Story, World, at, story

pytestmark = pytest.mark.spark

Telling = Generator[None, Result, None]


def journeys(result: Result, message: Message) -> list[dict[str, Any]]:
    return result.rows(JOURNEYS, device=message.device, seq=message.seq)


def journey(result: Result, message: Message, **equal: Any) -> dict[str, Any]:
    (found,) = [row for row in journeys(result, message) if all(row[name] == value for name, value in equal.items())]
    return found


_OTHERS = ("duplicates_flagged", "unexpected", "wrong_topic", "foreign", "late", "reordered", "retained", "by_order")


def ledger(result: Result, device: int) -> dict[str, int]:
    """The ledger's counts for a device, over all its listeners and phases."""
    rows = result.rows(LEDGER, device=device)
    counts = ("expected", "delivered", "lost", "overdue", "indeterminate", "recovered", "duplicates")
    return {name: sum(row[name] for row in rows) for name in (*counts, *_OTHERS)}


# -- what arrives, what does not ---------------------------------------------------------------------------------------


@story
def a_message_that_arrives_is_delivered(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device("a-fleet"), world.client(topic, qos=0, fleet="b-fleet")
    message = world.publish(device, topic, 3.0, qos=1)
    world.deliver(client, message, 3.25)
    result = yield
    found = journey(result, message)
    assert found == {
        "device": device, "seq": 0, "topic": topic, "share": None, "client": client, "fleet": "a-fleet",
        "client_fleet": "b-fleet", "qos": 0, "phase": "measure", "second": 3, "planned_ns": at(3.0),
        "sent_ns": at(3.001), "acked_ns": at(3.003), "received_ns": at(3.25), "outcome": "delivered",
        "doubtful": False, "recovered": False, "late": False, "reordered": False, "duplicates": 0,
        "duplicates_flagged": 0, "retained": False, "matched_by": "header", "payload_bytes": 100,
    }  # fmt: skip
    (row,) = result.rows(LEDGER, device=device)
    assert row["promise_kept"]
    assert row["payload_bytes"] == 100


@story
def a_qos_0_message_sent_and_never_seen_is_lost_without_breaking_a_promise(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device("lossy-0"), world.client(topic)
    message = world.publish(device, topic, 3.0)
    result = yield
    assert journey(result, message)["outcome"] == "lost"
    assert journey(result, message)["client"] == client
    (row,) = result.rows(LEDGER, device=device)
    assert (row["expected"], row["lost"], row["qos"], row["promise_kept"]) == (1, 1, 0, True)
    lost = result.rows(LATENCIES, fleet="lossy-0", bucket=BUCKET_LOST)
    assert {(row["kind"], row["n"], row["sum_ns"], row["min_ns"]) for row in lost} == {
        ("response", 1, 0.0, None), ("service", 1, 0.0, None), ("last", 1, 0.0, None),
    }  # fmt: skip


@story
def an_acknowledged_qos_1_message_never_seen_breaks_the_promise(world: World) -> Telling:
    topic = world.topic()
    device, _ = world.device(), world.client(topic)
    message = world.publish(device, topic, 3.0, qos=1)
    result = yield
    assert journey(result, message)["outcome"] == "lost"
    assert not result.rows(LEDGER, device=device)[0]["promise_kept"]


@story
def an_acknowledged_qos_1_message_to_a_qos_0_subscriber_can_be_lost(world: World) -> Telling:
    topic = world.topic()
    device, _ = world.device(), world.client(topic, qos=0)
    message = world.publish(device, topic, 3.0, qos=1)
    result = yield
    assert (journey(result, message)["outcome"], journey(result, message)["qos"]) == ("lost", 0)


@story
def an_unacknowledged_message_never_seen_is_indeterminate(world: World) -> Telling:
    topic = world.topic()
    device, _ = world.device("unsure"), world.client(topic)
    message = world.publish(device, topic, 3.0, qos=2, outcome="unacked")
    result = yield
    assert journey(result, message)["outcome"] == "indeterminate"
    never = {row["kind"]: (row["bucket"], row["n"]) for row in result.rows(LATENCIES, fleet="unsure")}
    assert never["response"] == never["service"] == never["last"] == (BUCKET_LOST, 1)
    (row,) = result.rows(PUBLISHING, fleet="unsure")
    assert (row["planned"], row["sent"], row["acked"], row["unacked"]) == (1, 1, 0, 1)


# -- what had not arrived when the drain ended -------------------------------------------------------------------------


@story
def what_is_missing_behind_a_gapless_sequence_that_still_arrives_is_overdue(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device("slow"), world.client(topic, qos=0)
    came = [world.publish(device, topic, 3.0 + n) for n in range(3)]
    for n, message in enumerate(came):
        world.deliver(client, message, 10.1 + 0.9 * n)
    outstanding = [world.publish(device, topic, 6.0 + n / 10) for n in range(4)]
    result = yield
    assert {journey(result, message)["outcome"] for message in outstanding} == {"overdue"}
    counts = ledger(result, device)
    assert (counts["expected"], counts["delivered"], counts["overdue"], counts["lost"]) == (7, 3, 4, 0)
    never = result.rows(LATENCIES, fleet="slow", bucket=BUCKET_LOST)
    assert {row["kind"]: row["n"] for row in result.rows(LATENCIES, fleet="slow", bucket=BUCKET_LOST, second=6)} == {
        "response": 4, "service": 4, "last": 4,
    }  # fmt: skip
    assert sum(row["n"] for row in never) == 12


@story
def what_is_overdue_at_qos_1_is_not_lost_and_breaks_no_promise(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device(), world.client(topic)
    world.deliver(client, world.publish(device, topic, 3.0, qos=1), 11.5)
    outstanding = world.publish(device, topic, 4.0, qos=1)
    unanswered = world.publish(device, topic, 5.0, qos=1, outcome="unacked")
    result = yield
    assert journey(result, outstanding)["outcome"] == "overdue"
    assert journey(result, unanswered)["outcome"] == "indeterminate"
    assert all(row["promise_kept"] for row in result.rows(LEDGER, device=device))


@story
def a_hole_before_a_later_arrival_is_lost_and_nobody_can_say_what_became_of_the_rest(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device(), world.client(topic, qos=0)
    world.deliver(client, world.publish(device, topic, 3.0), 9.0)
    hole = world.publish(device, topic, 4.0)
    world.deliver(client, world.publish(device, topic, 5.0), 11.5)
    rest = world.publish(device, topic, 6.0)
    result = yield
    assert (journey(result, hole)["outcome"], journey(result, rest)["outcome"]) == ("lost", "indeterminate")


@story
def a_hole_of_one_device_does_not_make_the_messages_of_another_doubtful(world: World) -> Telling:
    topic = world.topic()
    holed, whole, client = world.device(), world.device(), world.client(topic, qos=0)
    hole = world.publish(holed, topic, 4.0)
    world.deliver(client, world.publish(holed, topic, 5.0), 11.5)
    outstanding = world.publish(whole, topic, 6.0)
    result = yield
    assert (journey(result, hole)["outcome"], journey(result, outstanding)["outcome"]) == ("lost", "overdue")


@story
def what_is_missing_at_a_listener_that_had_fallen_silent_is_lost(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device(), world.client(topic, qos=0)
    world.deliver(client, world.publish(device, topic, 3.0), 9.9)
    missing = world.publish(device, topic, 4.0)
    result = yield
    assert journey(result, missing)["outcome"] == "lost"


@story
def a_hole_of_a_shared_group_that_still_receives_may_wait_at_a_slower_member(world: World) -> Telling:
    topic = world.topic()
    device = world.device()
    members = [world.client(topic, qos=0, share="g-behind") for _ in range(2)]
    waiting = world.publish(device, topic, 3.0)
    world.deliver(members[1], world.publish(device, topic, 4.0), 11.5)
    result = yield
    assert journey(result, waiting)["outcome"] == "indeterminate"


@story
def a_message_nobody_can_say_was_owed_is_not_infinitely_late(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device("at-the-border"), world.client(topic, qos=0)
    message = world.publish(device, topic, 3.9)
    world.leave(client, "lost", 4.0, outcome="error")
    result = yield
    assert (journey(result, message)["outcome"], journey(result, message)["doubtful"]) == ("indeterminate", True)
    assert not result.rows(LATENCIES, fleet="at-the-border", kind="response")


@story
def the_measure_phase_counts_what_arrives_in_it_whenever_it_was_planned(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device(), world.client(topic, qos=0)
    for planned, arrived in ((1.5, 1.9), (1.8, 2.1), (3.0, 3.1), (9.0, 9.9), (9.5, 10.2)):
        world.deliver(client, world.publish(device, topic, planned), arrived)
    result = yield
    rows = result.rows(LEDGER, device=device)
    assert sum(row["delivered"] for row in rows if row["phase"] == "measure") == 3
    assert sum(row["in_measure"] for row in rows) == 3
    assert {row["phase"]: row["in_measure"] for row in rows} == {"warm_up": 1, "measure": 2}
    assert sum(row["in_measure_bytes"] for row in rows) == 300


@story
def a_message_of_another_run_is_told_from_one_of_ours_that_went_astray(world: World) -> Telling:
    topic, elsewhere = world.topic(), world.topic()
    device, client = world.device(), world.client(topic, qos=0)
    stray = world.publish(device, elsewhere, 3.0)
    world.deliver(client, stray, 3.1)
    theirs = Message(device, 17, at(3.0) + 12_345, topic, stamped=True, qos=0)
    world.deliver(client, theirs, 3.2)
    world.deliver(client, theirs, 3.3, dup=True)
    result = yield
    counts = ledger(result, device)
    assert (counts["unexpected"], counts["foreign"]) == (3, 2)


@story
def a_message_on_a_wrong_topic_is_delivered_to_nobody_and_lost(world: World) -> Telling:
    topic, elsewhere = world.topic("right"), world.topic("wrong")
    device, client = world.device("misled"), world.client(topic, elsewhere, fleet="misled-readers")
    astray = world.publish(device, topic, 3.0, qos=1)
    world.deliver(client, astray, 3.1, topic=elsewhere)
    result = yield
    rows = {row["outcome"]: row for row in journeys(result, astray)}
    assert set(rows) == {"lost", "wrong_topic"}
    assert (rows["lost"]["topic"], rows["lost"]["received_ns"]) == (topic, None)
    assert rows["wrong_topic"]["topic"] == elsewhere
    assert (rows["wrong_topic"]["client"], rows["wrong_topic"]["received_ns"]) == (client, at(3.1))
    counts = ledger(result, device)
    names = ("expected", "delivered", "lost", "wrong_topic", "unexpected", "duplicates")
    assert [counts[name] for name in names] == [1, 0, 1, 1, 0, 0]
    assert any(not row["promise_kept"] for row in result.rows(LEDGER, device=device))
    (never,) = result.rows(LATENCIES, kind="response", client_fleet="misled-readers")
    assert (never["bucket"], never["n"]) == (BUCKET_LOST, 1)


@story
def a_message_that_arrives_on_both_its_own_and_a_wrong_topic_is_delivered_once(world: World) -> Telling:
    topic, elsewhere = world.topic("right"), world.topic("wrong")
    device, client = world.device(), world.client(topic, elsewhere)
    message = world.publish(device, topic, 3.0, qos=1)
    world.deliver(client, message, 3.1, topic=elsewhere)
    world.deliver(client, message, 3.2)
    world.deliver(client, message, 3.3, topic=elsewhere, dup=True)
    result = yield
    assert journey(result, message, outcome="delivered")["received_ns"] == at(3.2)
    counts = ledger(result, device)
    assert [counts[name] for name in ("expected", "delivered", "lost", "wrong_topic", "duplicates")] == [1, 1, 0, 2, 0]


@story
def a_topic_recorded_though_it_is_the_right_one_changes_nothing(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device(), world.client(topic)
    message = world.publish(device, topic, 3.0, qos=1)
    world.deliver(client, message, 3.1, topic=topic)
    result = yield
    assert journey(result, message)["outcome"] == "delivered"
    assert ledger(result, device)["wrong_topic"] == 0


@story
def a_kept_message_on_a_wrong_topic_does_not_pay_for_the_right_one(world: World) -> Telling:
    topic, elsewhere = world.topic("right"), world.topic("wrong")
    device = world.device()
    message = world.publish(device, topic, 2.5, qos=1, retain=True)
    client = world.client(topic, subscribed=5.0)
    world.deliver(client, message, 5.1, topic=elsewhere, retained=True)
    result = yield
    assert {row["outcome"] for row in journeys(result, message)} == {"lost", "wrong_topic"}


@story
def a_message_of_another_run_on_any_topic_is_foreign_and_not_on_a_wrong_topic(world: World) -> Telling:
    topic, elsewhere = world.topic(), world.topic()
    device, client = world.device(), world.client(topic, qos=0)
    world.deliver(client, world.publish(device, topic, 3.0), 3.1)
    theirs = Message(device, 19, at(3.0) + 54_321, topic, stamped=True, qos=0)
    world.deliver(client, theirs, 3.2, topic=elsewhere)
    result = yield
    counts = ledger(result, device)
    assert [counts[name] for name in ("delivered", "unexpected", "foreign", "wrong_topic")] == [1, 1, 1, 0]


@story
def a_shared_groups_message_on_a_wrong_topic_is_lost_to_the_group(world: World) -> Telling:
    topic, elsewhere = world.topic("right"), world.topic("wrong")
    device = world.device()
    members = [world.client(topic, qos=1, share="g-misled") for _ in range(2)]
    message = world.publish(device, topic, 3.0, qos=1)
    world.deliver(members[1], message, 3.1, topic=elsewhere)
    result = yield
    assert {row["outcome"]: row["share"] for row in journeys(result, message)} == {
        "lost": "g-misled", "wrong_topic": None,
    }  # fmt: skip


@story
def an_unacknowledged_message_that_arrives_is_recovered(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device(), world.client(topic)
    message = world.publish(device, topic, 3.0, qos=1, outcome="unacked")
    world.deliver(client, message, 3.1)
    result = yield
    assert journey(result, message)["recovered"]
    assert ledger(result, device)["recovered"] == 1


@story
def a_qos_0_message_that_arrives_is_not_called_recovered(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device(), world.client(topic)
    message = world.publish(device, topic, 3.0)
    world.deliver(client, message, 3.1)
    result = yield
    assert not journey(result, message)["recovered"]


@story
def a_refused_message_is_owed_to_nobody(world: World) -> Telling:
    topic = world.topic()
    device, _ = world.device("refused"), world.client(topic)
    message = world.publish(device, topic, 3.0, qos=1, outcome="refused")
    result = yield
    assert journeys(result, message) == []
    assert result.rows(PUBLISHING, fleet="refused")[0]["refused"] == 1


@story
def a_message_that_never_left_is_owed_to_nobody(world: World) -> Telling:
    topic = world.topic()
    device, _ = world.device("stuck"), world.client(topic)
    message = world.publish(device, topic, 3.0, qos=1, outcome="unsent", held="offline")
    result = yield
    assert journeys(result, message) == []
    (row,) = result.rows(PUBLISHING, fleet="stuck")
    assert (row["planned"], row["sent"], row["unsent"], row["held_offline"], row["payload_bytes"]) == (1, 0, 1, 1, 0)


@story
def a_message_nobody_subscribed_to_makes_no_journey(world: World) -> Telling:
    device = world.device()
    message = world.publish(device, world.topic(), 3.0, qos=1)
    result = yield
    assert journeys(result, message) == []


@story
def nobody_can_say_what_became_of_a_publish_without_a_proper_answer(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device("failing"), world.client(topic)
    arrived = world.publish(device, topic, 3.0, outcome="failed", reason=-2)
    gone = world.publish(device, topic, 3.1, outcome="failed", reason=-4)
    late = world.publish(device, topic, 3.2, outcome="unacked")
    world.ack(late, 5.0, "failed")
    world.deliver(client, arrived, 3.2)
    result = yield
    assert journey(result, arrived)["recovered"]
    assert journey(result, gone)["outcome"] == "indeterminate"
    assert journey(result, late)["outcome"] == "indeterminate"
    (row,) = result.rows(PUBLISHING, fleet="failing")
    assert (row["failed"], row["unacked"], row["refused"]) == (3, 0, 0)
    told = {(row["outcome"], row["reason"]): row["n"] for row in result.rows(FAILURES, fleet="failing")}
    assert told == {("failed", -2): 1, ("failed", -4): 1, ("failed", None): 1}


# -- late acknowledgements ---------------------------------------------------------------------------------------------


@story
def a_late_acknowledgement_counts_and_resends_are_retries(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device("late-acks"), world.client(topic)
    delivered = world.publish(device, topic, 3.0, qos=1, outcome="unacked")
    lost = world.publish(device, topic, 3.1, qos=1, outcome="unacked", retries=1)
    refused = world.publish(device, topic, 3.2, qos=1, outcome="unacked")
    world.ack(delivered, 4.5)
    world.ack(lost, None, "resent")
    world.ack(lost, None, "resent")
    world.ack(lost, 5.0)
    world.ack(refused, 5.0, "refused")
    world.deliver(client, delivered, 3.2)
    result = yield
    assert journey(result, delivered)["acked_ns"] == at(4.5)
    assert not journey(result, delivered)["recovered"]
    assert journey(result, lost)["outcome"] == "lost"
    assert journeys(result, refused) == []
    (row,) = result.rows(PUBLISHING, fleet="late-acks")
    assert (row["acked"], row["refused"], row["unacked"], row["retries"]) == (2, 1, 0, 3)
    publish = result.rows(LATENCIES, fleet="late-acks", kind="publish")
    assert sorted(row["max_ns"] for row in publish) == [at(4.5) - at(3.001), at(5.0) - at(3.201), at(5.0) - at(3.101)]


@story
def a_late_failure_of_what_nobody_acknowledges_counts_too(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device("late-failures"), world.client(topic, qos=0)
    delivered = world.publish(device, topic, 3.0)
    failed = world.publish(device, topic, 3.1)
    refused = world.publish(device, topic, 3.2)
    world.ack(failed, 5.0, "failed")
    world.ack(refused, 5.0, "refused")
    world.deliver(client, delivered, 3.2)
    result = yield
    (row,) = result.rows(PUBLISHING, fleet="late-failures")
    assert (row["sent"], row["failed"], row["refused"], row["acked"], row["unacked"]) == (3, 1, 1, 0, 0)
    told = {(row["outcome"], row["reason"]): row["n"] for row in result.rows(FAILURES, fleet="late-failures")}
    assert told == {("failed", None): 1, ("refused", None): 1}
    assert journey(result, delivered)["outcome"] == "delivered"
    assert journey(result, failed)["outcome"] == "indeterminate"
    assert journeys(result, refused) == []


# -- copies, order, lateness -------------------------------------------------------------------------------------------


@story
def copies_are_counted_with_and_without_the_dup_flag(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device(), world.client(topic, qos=2)
    message = world.publish(device, topic, 3.0, qos=2)
    world.deliver(client, message, 3.3, dup=True)
    world.deliver(client, message, 3.1)
    world.deliver(client, message, 3.2)
    result = yield
    found = journey(result, message)
    assert (found["received_ns"], found["duplicates"], found["duplicates_flagged"]) == (at(3.1), 2, 1)
    (row,) = result.rows(LEDGER, device=device)
    assert (row["delivered"], row["duplicates"], row["promise_kept"]) == (1, 2, False)


@story
def a_first_arrival_with_the_dup_flag_is_no_copy(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device(), world.client(topic)
    message = world.publish(device, topic, 3.0, qos=1)
    world.deliver(client, message, 3.1, dup=True)
    result = yield
    assert (journey(result, message)["duplicates"], journey(result, message)["duplicates_flagged"]) == (0, 0)


@story
def a_copy_at_qos_1_keeps_the_promise(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device(), world.client(topic)
    message = world.publish(device, topic, 3.0, qos=1)
    world.deliver(client, message, 3.1)
    world.deliver(client, message, 3.2, dup=True)
    result = yield
    assert result.rows(LEDGER, device=device)[0]["promise_kept"]


@story
def a_message_overtaken_by_a_later_one_is_reordered(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device(), world.client(topic)
    messages = [world.publish(device, topic, 3.0 + n / 10, qos=1) for n in range(4)]
    for message, when in zip(messages, (3.5, 3.7, 3.6, 3.8), strict=True):
        world.deliver(client, message, when)
    # A copy that comes late is no reordering: order is judged on first arrivals.
    world.deliver(client, messages[0], 4.0, dup=True)
    result = yield
    assert [journey(result, message)["reordered"] for message in messages] == [False, True, False, False]
    assert ledger(result, device)["reordered"] == 1


@story
def messages_found_in_one_chunk_are_in_order(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device(), world.client(topic)
    messages = [world.publish(device, topic, 3.0 + n / 10, qos=1) for n in range(3)]
    for message in messages:
        world.deliver(client, message, 3.5)
    result = yield
    assert not any(journey(result, message)["reordered"] for message in messages)


@story
def order_is_kept_per_topic_not_across_topics(world: World) -> Telling:
    one, other = world.topic("one"), world.topic("other")
    device, client = world.device(), world.client(one, other)
    first, second = world.publish(device, one, 3.0), world.publish(device, other, 3.1)
    world.deliver(client, first, 3.5)
    world.deliver(client, second, 3.4)
    result = yield
    assert not journey(result, first)["reordered"]
    assert not journey(result, second)["reordered"]


@story
def an_arrival_in_the_drain_is_late(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device(), world.client(topic)
    message = world.publish(device, topic, 9.9, qos=1)
    world.deliver(client, message, 10.5)
    result = yield
    assert journey(result, message)["late"]
    assert journey(result, message)["outcome"] == "delivered"
    assert ledger(result, device)["late"] == 1


# -- what nobody asked for ---------------------------------------------------------------------------------------------


@story
def an_arrival_on_a_topic_the_client_did_not_ask_for_is_unexpected(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device(), world.client(topic)
    stray = world.publish(device, world.topic("elsewhere"), 3.0, qos=1)
    world.deliver(client, stray, 3.1)
    result = yield
    found = journey(result, stray)
    assert (found["outcome"], found["client"], found["phase"], found["second"]) == ("unexpected", client, "measure", 3)
    assert found["payload_bytes"] == 100
    (row,) = result.rows(LEDGER, device=device, client=client)
    assert (row["expected"], row["delivered"], row["unexpected"]) == (0, 0, 1)


@story
def a_header_of_another_run_is_unexpected_and_does_not_hide_a_loss(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device(), world.client(topic)
    message = world.publish(device, topic, 3.0, qos=1)
    foreign = Message(device, message.seq, message.planned_ns - 86_400_000_000_123, topic, True, 1)
    world.deliver(client, foreign, 3.1)
    result = yield
    assert sorted(row["outcome"] for row in journeys(result, message)) == ["lost", "unexpected"]


@story
def headers_with_impossible_numbers_are_unexpected_and_harmless(world: World) -> Telling:
    client = world.client(world.topic(), fleet="garbage-in")
    world.deliver(client, Message(12_345_678, 4_294_967_295, -(2**63), "", True, 0), 3.1)
    world.deliver(client, Message(16_777_215, 0, 2**63 - 1, "", True, 2), 3.2)
    world.deliver(client, Message(16_777_215, 0, 2**63 - 1, "", True, 2), 3.3)
    result = yield
    rows = result.rows(JOURNEYS, client=client)
    assert [(row["outcome"], row["device"], row["seq"], row["fleet"]) for row in rows] == [
        ("unexpected", -1, -1, None)
    ] * 2
    assert sum(row["unexpected"] for row in result.rows(LEDGER, client=client)) == 3


@story
def an_untraceable_arrival_without_header_is_unexpected(world: World) -> Telling:
    client = world.client(world.topic(), fleet="riddles")
    world.deliver(client, Message(-1, -1, 0, "nobody/published/this", False, 0), 3.1)
    world.deliver(client, Message(-1, -1, 0, "nobody/published/this", False, 0), 3.2)
    result = yield
    rows = result.rows(JOURNEYS, client=client)
    assert [(row["outcome"], row["device"], row["matched_by"]) for row in rows] == [("unexpected", -1, "order")] * 2


# -- when a client listens ---------------------------------------------------------------------------------------------


@story
def nothing_is_owed_before_the_suback(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device(), world.client(topic, subscribed=5.0)
    early = world.publish(device, topic, 4.0, qos=1)
    in_time = world.publish(device, topic, 5.1, qos=1)
    world.deliver(client, in_time, 5.2)
    result = yield
    assert journeys(result, early) == []
    assert journey(result, in_time)["outcome"] == "delivered"


@story
def an_arrival_proves_that_the_subscription_was_there(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device(), world.client(topic, subscribed=5.0)
    just_before = world.publish(device, topic, 4.99, qos=1)
    world.deliver(client, just_before, 5.01)
    result = yield
    assert journey(result, just_before)["outcome"] == "delivered"
    assert ledger(result, device)["expected"] == 1


@story
def a_refused_subscription_owes_nothing(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device(), world.client()
    world.subscribe(client, topic, -0.5, outcome="refused")
    message = world.publish(device, topic, 3.0, qos=1)
    result = yield
    assert journeys(result, message) == []


@story
def after_unsubscribe_nothing_is_owed(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device(), world.client(topic)
    world.leave(client, "unsubscribe", 5.0, filter=topic)
    owed = world.publish(device, topic, 4.0, qos=1)
    just_before = world.publish(device, topic, 4.9, qos=1)
    after = world.publish(device, topic, 5.5, qos=1)
    result = yield
    assert journey(result, owed)["outcome"] == "lost"
    assert journeys(result, just_before) == []
    assert journeys(result, after) == []


@story
def around_a_broken_connection_nobody_can_say(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device(), world.client(topic)
    world.leave(client, "lost", 5.0, outcome="error")
    owed = world.publish(device, topic, 4.0)
    just_before = world.publish(device, topic, 4.9)
    while_away = world.publish(device, topic, 5.5)
    world.connect(client, 6.0)
    not_yet_subscribed = world.publish(device, topic, 6.2)
    world.subscribe(client, topic, 6.5)
    again = world.publish(device, topic, 7.0)
    result = yield
    assert journey(result, owed)["outcome"] == "lost"
    assert journey(result, just_before)["outcome"] == "indeterminate"
    assert journeys(result, while_away) == []
    assert journeys(result, not_yet_subscribed) == []
    assert journey(result, again)["outcome"] == "lost"


@story
def a_persistent_session_is_owed_qos_1_while_away(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device(), world.client(topic, persistent=True)
    world.leave(client, "disconnect", 4.0, persistent=True)
    qos0 = world.publish(device, topic, 5.0)
    kept = world.publish(device, topic, 5.1, qos=1)
    forgotten = world.publish(device, topic, 5.2, qos=1)
    world.connect(client, 6.0, persistent=True, session_present=True)
    world.deliver(client, kept, 6.1)
    back = world.publish(device, topic, 7.0)
    result = yield
    assert journeys(result, qos0) == []
    assert journey(result, kept)["outcome"] == "delivered"
    assert journey(result, forgotten)["outcome"] == "lost"
    assert journey(result, back)["outcome"] == "lost"


@story
def a_persistent_session_granted_qos_0_is_owed_nothing_while_away(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device(), world.client(topic, qos=0, persistent=True)
    world.leave(client, "lost", 4.0, persistent=True)
    away = world.publish(device, topic, 5.0, qos=1)
    world.connect(client, 6.0, persistent=True, session_present=True)
    result = yield
    assert journeys(result, away) == []


@story
def a_persistent_session_is_owed_qos_1_even_just_before_the_loss(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device(), world.client(topic, persistent=True)
    world.leave(client, "lost", 4.0, persistent=True)
    qos1 = world.publish(device, topic, 3.9, qos=1)
    qos0 = world.publish(device, topic, 3.95)
    world.connect(client, 6.0, persistent=True, session_present=True)
    result = yield
    assert journey(result, qos1)["outcome"] == "lost"
    assert journey(result, qos0)["outcome"] == "indeterminate"


@story
def a_session_the_broker_forgot_owes_again_only_after_the_new_subscribe(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device(), world.client(topic, persistent=True)
    world.leave(client, "lost", 4.0, persistent=True)
    away = world.publish(device, topic, 5.0, qos=1)
    world.connect(client, 6.0, persistent=True, session_present=False)
    between = world.publish(device, topic, 6.2, qos=1)
    world.subscribe(client, topic, 6.5, persistent=True)
    again = world.publish(device, topic, 7.0, qos=1)
    result = yield
    assert journey(result, away)["outcome"] == "lost"
    assert journeys(result, between) == []
    assert journey(result, again)["outcome"] == "lost"


@story
def a_client_that_never_comes_back_leaves_its_messages_undecided(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device(), world.client(topic, persistent=True)
    world.leave(client, "disconnect", 4.0, persistent=True)
    away = world.publish(device, topic, 5.0, qos=1)
    result = yield
    assert journey(result, away)["outcome"] == "indeterminate"


# -- filters and groups ------------------------------------------------------------------------------------------------


@story
def overlapping_filters_make_one_expectation_with_the_higher_qos(world: World) -> Telling:
    topic = world.topic("a/b")
    device, client = world.device(), world.client(topic, qos=0)
    world.subscribe(client, topic.replace("a/b", "#"), -0.4, qos=2)
    world.subscribe(client, topic.replace("a", "+"), -0.4, qos=1)
    message = world.publish(device, topic, 3.0, qos=2)
    world.deliver(client, message, 3.1)
    result = yield
    assert journey(result, message)["qos"] == 2
    assert ledger(result, device)["expected"] == 1


@story
def every_listener_has_its_own_journey_and_the_last_one_counts(world: World) -> Telling:
    topic = world.topic()
    device = world.device("fan-out")
    clients = [world.client(topic) for _ in range(3)]
    all_got, one_missed = world.publish(device, topic, 3.0, qos=1), world.publish(device, topic, 3.5, qos=1)
    for n, client in enumerate(clients):
        world.deliver(client, all_got, 3.1 + n / 10)
    for client in clients[:2]:
        world.deliver(client, one_missed, 3.6)
    result = yield
    assert len(journeys(result, all_got)) == 3
    last = {row["bucket"]: row for row in result.rows(LATENCIES, fleet="fan-out", kind="last")}
    assert sum(row["n"] for row in last.values()) == 2
    assert last.pop(BUCKET_LOST)["n"] == 1
    (arrived,) = last.values()
    assert (arrived["min_ns"], arrived["client_fleet"], arrived["qos"]) == (300_000_000, "", 1)
    assert sum(row["n"] for row in result.rows(LATENCIES, fleet="fan-out", kind="response")) == 6


@story
def a_shared_group_is_owed_each_message_once(world: World) -> Telling:
    topic = world.topic()
    device = world.device()
    members = [world.client(topic, share="crew", fleet="workers") for _ in range(3)]
    taken = [world.publish(device, topic, 3.0 + n / 10, qos=1) for n in range(4)]
    for n, message in enumerate(taken[:3]):
        world.deliver(members[n % 2], message, 3.5 + n / 10)
    world.deliver(members[1], taken[0], 3.9)
    result = yield
    found = [journey(result, message) for message in taken]
    assert [row["outcome"] for row in found] == ["delivered"] * 3 + ["lost"]
    assert [row["client"] for row in found] == [members[0], members[1], members[0], -1]
    assert [row["duplicates"] for row in found] == [1, 0, 0, 0]
    assert {row["share"] for row in found} == {"crew"}
    assert {row["client_fleet"] for row in found} == {"workers"}
    (row,) = result.rows(LEDGER, device=device)
    assert (row["client"], row["share"], row["expected"], row["delivered"], row["lost"]) == (-1, "crew", 4, 3, 1)
    assert {row["client"]: row["delivered"] for row in result.rows(BALANCE, share="crew")} == {
        members[0]: 2, members[1]: 1, members[2]: 0,
    }  # fmt: skip


@story
def a_shared_group_is_owed_as_long_as_one_member_is_there(world: World) -> Telling:
    topic = world.topic()
    device = world.device()
    stays, leaves = world.client(topic, share="pair"), world.client(topic, share="pair")
    world.leave(leaves, "disconnect", 4.0)
    one_there = world.publish(device, topic, 5.0, qos=1)
    world.leave(stays, "disconnect", 6.0)
    none_there = world.publish(device, topic, 7.0, qos=1)
    result = yield
    assert journey(result, one_there)["outcome"] == "lost"
    assert journeys(result, none_there) == []


@story
def a_client_that_listens_for_itself_and_for_a_group_serves_both(world: World) -> Telling:
    topic = world.topic()
    device = world.device()
    both = world.client(topic)
    world.subscribe(both, topic, -0.4, share="double")
    twice, once = world.publish(device, topic, 3.0, qos=1), world.publish(device, topic, 3.5, qos=1)
    world.deliver(both, twice, 3.1)
    world.deliver(both, twice, 3.2)
    world.deliver(both, once, 3.6)
    result = yield
    served = {row["share"]: (row["outcome"], row["duplicates"]) for row in journeys(result, twice)}
    assert served == {None: ("delivered", 0), "double": ("delivered", 0)}
    assert journey(result, once, share=None)["outcome"] == "delivered"
    assert journey(result, once, share="double")["outcome"] == "lost"


# -- kept messages -----------------------------------------------------------------------------------------------------


@story
def a_client_that_subscribes_later_is_owed_the_last_kept_message(world: World) -> Telling:
    topic = world.topic()
    device, early, late = world.device("keeper"), world.client(topic), world.client(topic, subscribed=6.0)
    old = world.publish(device, topic, 3.0, qos=1, retain=True)
    last = world.publish(device, topic, 4.0, qos=1, retain=True)
    for message in (old, last):
        world.deliver(early, message, message.seq + 3.1)
    world.deliver(late, last, 6.05, retained=True)
    result = yield
    assert not journey(result, last, client=early)["retained"]
    kept = journey(result, last, client=late)
    assert (kept["outcome"], kept["retained"], kept["received_ns"]) == ("delivered", True, at(6.05))
    assert [row["client"] for row in journeys(result, old)] == [early]
    assert sum(row["n"] for row in result.rows(LATENCIES, fleet="keeper", kind="response")) == 2
    assert ledger(result, device)["retained"] == 1


@story
def a_kept_message_that_does_not_come_is_lost(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device(), world.client(topic, subscribed=6.0)
    message = world.publish(device, topic, 3.0, retain=True)
    result = yield
    assert (journey(result, message)["outcome"], journey(result, message)["client"]) == ("lost", client)


@story
def an_empty_payload_wipes_what_was_kept(world: World) -> Telling:
    topic = world.topic()
    device, _ = world.device(), world.client(topic, subscribed=6.0)
    message = world.publish(device, topic, 3.0, retain=True)
    world.publish(device, topic, 4.0, retain=True, payload_bytes=0)
    result = yield
    assert journeys(result, message) == []


@story
def a_kept_message_on_its_way_while_subscribing_may_come_either_way(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device("racing"), world.client(topic, subscribed=6.0)
    older = world.publish(device, topic, 3.0, retain=True)
    newer = world.publish(device, topic, 5.95, retain=True)
    world.deliver(client, older, 6.01, retained=True)
    world.deliver(client, newer, 6.02)
    result = yield
    assert (journey(result, older)["outcome"], journey(result, older)["retained"]) == ("delivered", True)
    assert (journey(result, newer)["outcome"], journey(result, newer)["retained"]) == ("delivered", False)


@story
def each_new_connection_is_owed_the_kept_message_again(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device(), world.client(topic, subscribed=4.0)
    message = world.publish(device, topic, 3.0, retain=True)
    world.deliver(client, message, 4.1, retained=True)
    world.leave(client, "lost", 5.0)
    world.connect(client, 6.0)
    world.subscribe(client, topic, 6.5)
    world.deliver(client, message, 6.6, retained=True)
    result = yield
    found = journeys(result, message)
    assert [(row["outcome"], row["retained"], row["duplicates"]) for row in found] == [("delivered", True, 0)] * 2


@story
def a_live_message_wrongly_marked_as_kept_is_still_a_live_one(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device(), world.client(topic)
    message = world.publish(device, topic, 3.0, retain=True)
    world.deliver(client, message, 3.1, retained=True)
    result = yield
    assert (journey(result, message)["outcome"], journey(result, message)["retained"]) == ("delivered", False)


# -- without header ----------------------------------------------------------------------------------------------------


@story
def messages_without_header_are_matched_by_topic_and_order(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device("tiny-payloads"), world.client(topic)
    messages = [world.publish(device, topic, 3.0 + n / 10, stamped=False, payload_bytes=3) for n in range(3)]
    for n, message in enumerate(messages[:2]):
        world.deliver(client, message, 4.0 + n)
    result = yield
    found = [journey(result, message) for message in messages]
    assert [row["outcome"] for row in found] == ["delivered", "delivered", "lost"]
    assert [row["received_ns"] for row in found] == [at(4.0), at(5.0), None]
    assert {row["matched_by"] for row in found} == {"order"}
    assert result.rows(PUBLISHING, fleet="tiny-payloads")[0]["unstamped"] == 3
    assert ledger(result, device)["by_order"] == 2


@story
def surplus_arrivals_without_header_are_copies(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device(), world.client(topic)
    message = world.publish(device, topic, 3.0, stamped=False, payload_bytes=3)
    for n in range(3):
        world.deliver(client, message, 3.1 + n / 10, dup=n == 2)
    result = yield
    found = journey(result, message)
    assert (found["duplicates"], found["duplicates_flagged"], found["received_ns"]) == (2, 1, at(3.1))


@story
def several_listeners_without_header_are_matched_each_for_itself(world: World) -> Telling:
    topic = world.topic()
    device, one, late = world.device(), world.client(topic), world.client(topic, subscribed=5.0)
    first = world.publish(device, topic, 3.0, stamped=False, payload_bytes=3)
    second = world.publish(device, topic, 6.0, stamped=False, payload_bytes=3)
    world.deliver(one, first, 3.1)
    world.deliver(one, second, 6.1)
    world.deliver(late, second, 6.2)
    result = yield
    assert [row["client"] for row in journeys(result, first)] == [one]
    assert {row["client"]: row["received_ns"] for row in journeys(result, second)} == {one: at(6.1), late: at(6.2)}


@story
def a_kept_message_without_header_is_found_by_its_topic(world: World) -> Telling:
    topic = world.topic()
    device, client = world.device(), world.client(topic, subscribed=6.0)
    message = world.publish(device, topic, 3.0, stamped=False, retain=True, payload_bytes=3)
    world.deliver(client, message, 6.1, retained=True)
    result = yield
    found = journey(result, message)
    assert (found["outcome"], found["retained"], found["matched_by"]) == ("delivered", True, "order")


# -- the stage ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def told(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Result, dict[str, Generator[None, Result, None]]]]:
    world = World()
    tellings = {function.__name__: function(world) for function in STORIES}
    for telling in tellings.values():
        next(telling)
    folder = world.write(Path(tmp_path_factory.mktemp("stories")) / "run")
    analyze(spark, str(folder.path))
    yield Result(folder), tellings
    for telling in tellings.values():
        telling.close()


@pytest.mark.parametrize("told_story", STORIES, ids=lambda function: function.__name__)
def test_story(told: tuple[Result, dict[str, Generator[None, Result, None]]], told_story: Story) -> None:
    result, tellings = told
    with pytest.raises(StopIteration):
        tellings[told_story.__name__].send(result)


def test_expected_is_always_delivered_plus_lost_plus_overdue_plus_indeterminate(
    told: tuple[Result, dict[str, Generator[None, Result, None]]],
) -> None:
    rows = told[0].rows(LEDGER)
    assert rows
    for row in rows:
        assert row["expected"] == row["delivered"] + row["lost"] + row["overdue"] + row["indeterminate"]
