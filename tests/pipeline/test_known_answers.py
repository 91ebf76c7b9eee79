"""Hand-written evidence with hand-computed answers, rule by rule."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from battlebrokers.analysis.facts import read_facts
from battlebrokers.pipeline.graph import analyze
from battlebrokers.tables import (
    ACTIONS,
    BALANCE,
    DELIVERIES,
    DERIVED,
    JOURNEYS,
    LATENCIES,
    LEDGER,
    NODES,
    PUBLISHES,
    PUBLISHING,
    SERVICES,
    SLOTS,
    TIMELINE,
    Table,
)
from battlebrokers.tables.measures import BUCKET_LOST, bucket_of
from battlebrokers.tables.run_folder import RunFolder
from support.evidence import MS, Evidence, at

pytestmark = pytest.mark.spark


class Tables:
    """The tables of an analysed run as plain rows."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def rows(self, table: Table) -> list[dict[str, Any]]:
        return pq.read_table(self._folder / table.folder).to_pylist()

    def total(self, table: Table) -> Counter[str]:
        """All number columns added up."""
        sums: Counter[str] = Counter()
        for row in self.rows(table):
            sums.update({k: v for k, v in row.items() if isinstance(v, int) and not isinstance(v, bool)})
        return sums


@pytest.fixture
def analysed(spark: SparkSession):
    def run(folder: Path) -> Tables:
        analyze(spark, str(folder))
        return Tables(folder)

    return run


@pytest.fixture
def evidence(tmp_path) -> Evidence:
    made = Evidence(tmp_path / "run")
    made.connect(0)
    made.subscribe(0, "t")
    return made


def ledger(tables) -> dict[str, int]:
    return tables.total(LEDGER)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_delivered_lost_and_duplicates_are_told_apart(evidence, analysed, qos):
    for seq in range(10):
        evidence.publish(0, seq, 100 * seq, qos=qos)
    for seq in range(10):
        if seq not in (3, 4):
            evidence.deliver(0, 0, seq, 100 * seq, 100 * seq + 5, qos=qos)
    evidence.deliver(0, 0, 7, 700, 720, qos=qos)
    evidence.deliver(0, 0, 8, 800, 830, qos=qos, dup=True)
    tables = analysed(evidence.write())
    found = ledger(tables)
    assert (found["expected"], found["delivered"], found["lost"], found["indeterminate"]) == (10, 8, 2, 0)
    assert (found["duplicates"], found["duplicates_flagged"], found["unexpected"]) == (2, 1, 0)
    kept = {row["promise_kept"] for row in tables.rows(LEDGER)}
    assert kept == ({True} if qos == 0 else {False})


def test_what_was_never_acknowledged_is_indeterminate_or_recovered_not_lost(evidence, analysed):
    evidence.publish(0, 0, 100, acked=False)
    evidence.publish(0, 1, 200, acked=False)
    evidence.deliver(0, 0, 1, 200, 210)
    found = ledger(analysed(evidence.write()))
    assert (found["expected"], found["delivered"], found["lost"]) == (2, 1, 0)
    assert (found["indeterminate"], found["recovered"]) == (1, 1)


def test_a_late_acknowledgement_counts_and_a_resend_is_a_retry(evidence, analysed):
    evidence.publish(0, 0, 100, acked=False)
    evidence.ack(0, 0, 3000)
    evidence.ack(0, 0, 2000, outcome="resent")
    tables = analysed(evidence.write())
    assert ledger(tables)["lost"] == 1, "acknowledged and never seen"
    told = tables.total(PUBLISHING)
    assert (told["acked"], told["unacked"], told["retries"]) == (1, 0, 1)


def test_unsent_and_refused_messages_are_owed_to_nobody(evidence, analysed):
    evidence.publish(0, 0, 100, outcome="unsent", held="socket")
    evidence.publish(0, 1, 200, outcome="refused")
    tables = analysed(evidence.write())
    assert ledger(tables)["expected"] == 0
    told = tables.total(PUBLISHING)
    assert (told["planned"], told["unsent"], told["refused"], told["held_socket"]) == (2, 1, 1, 1)


def test_what_the_broker_held_until_the_end_is_infinitely_late_and_lost_to_nobody(evidence, analysed):
    evidence.connect(1)
    evidence.subscribe(1, "#")
    evidence.subscribe(1, "t")
    evidence.connect(2)
    evidence.subscribe(2, "t", 7000)
    evidence.publish(0, 0, 100)
    for client in (0, 1):
        evidence.deliver(client, 0, 0, 100, 105)
    for seq, why in enumerate(["window", "socket", "offline"], 1):
        evidence.publish(0, seq, 1000 * seq, outcome="unsent", held=why)
    evidence.publish(0, 4, 4000, outcome="unsent", held="no")
    evidence.publish(0, 5, 5000, outcome="unsent", held="away")
    evidence.publish(0, 6, 9900, outcome="unsent", held="window")
    tables = analysed(evidence.write())
    told = tables.total(PUBLISHING)
    assert (told["unsent"], told["backlog"], told["shortfall"], told["held_offline"]) == (6, 3, 1, 2)
    found = ledger(tables)
    assert (found["expected"], found["delivered"], found["lost"], found["indeterminate"]) == (2, 2, 0, 0)
    late = Counter()
    for row in tables.rows(LATENCIES):
        late[row["kind"], row["client_fleet"], row["second"], row["bucket"] == BUCKET_LOST] += row["n"]
    assert {key: n for key, n in late.items() if key[0] in ("response", "last", "service")} == {
        ("response", "readers", 0, False): 2, ("service", "readers", 0, False): 2, ("last", "", 0, False): 1,
        **{("response", "readers", second, True): 2 for second in (1, 2, 3)},
        **{("last", "", second, True): 1 for second in (1, 2, 3)},
    }  # fmt: skip


def test_order_is_judged_per_device_topic_and_listener(evidence, analysed):
    evidence.subscribe(0, "u")
    for seq, topic in enumerate(["t", "t", "t", "u"]):
        evidence.publish(0, seq, 100 * seq, topic)
    evidence.deliver(0, 0, 1, 100, 150)
    evidence.deliver(0, 0, 3, 300, 160)
    evidence.deliver(0, 0, 0, 0, 170)
    evidence.deliver(0, 0, 2, 200, 250)
    tables = analysed(evidence.write())
    assert ledger(tables)["reordered"] == 1
    assert [row["seq"] for row in tables.rows(JOURNEYS) if row["reordered"]] == [0]


def test_an_arrival_after_the_drain_began_is_late(evidence, analysed):
    evidence.publish(0, 0, 9_900)
    evidence.deliver(0, 0, 0, 9_900, 10_050)
    assert ledger(analysed(evidence.write()))["late"] == 1


def test_what_nobody_asked_for_is_unexpected(evidence, analysed):
    evidence.publish(0, 0, 100, "elsewhere")
    evidence.deliver(0, 0, 0, 100, 110)
    evidence.deliver(0, 99, 5, 100, 120)
    found = ledger(analysed(evidence.write()))
    assert (found["unexpected"], found["expected"]) == (2, 0)


@pytest.mark.parametrize("retained", [False, True])
def test_a_last_will_is_neither_owed_nor_unexpected(evidence, analysed, retained):
    evidence.will(0, "gone/0")
    evidence.subscribe(0, "gone/#")
    evidence.publish(0, 0, 100)
    evidence.deliver(0, 0, 0, 100, 105)
    evidence.deliver(0, -1, -1, None, 2000, topic="gone/0", retained=retained)
    evidence.deliver(0, -1, -1, None, 2001, topic="gone/1", retained=retained)
    tables = analysed(evidence.write())
    found = ledger(tables)
    assert (found["expected"], found["delivered"], found["wills"], found["unexpected"]) == (1, 1, 1, 1)
    outcomes = {row["topic"]: row["outcome"] for row in tables.rows(JOURNEYS)}
    assert outcomes == {"t": "delivered", "gone/0": "will", "gone/1": "unexpected"}
    assert max(row["in_flight"] for row in tables.rows(TIMELINE)) == 0


def test_evidence_that_is_older_than_a_column_is_read_without_it(evidence, analysed):
    evidence.publish(0, 0, 100)
    evidence.deliver(0, 0, 0, 100, 105)
    folder = evidence.write()
    (nodes,) = (folder / NODES.folder).glob("*.parquet")
    pq.write_table(pq.read_table(nodes).drop_columns(["will_topic"]), nodes)
    assert ledger(analysed(folder))["delivered"] == 1
    assert json.loads((folder / "measures" / "defects.json").read_text()) == []
    assert read_facts(RunFolder(folder)).nodes["will_topic"].to_pylist() == [None, None]


def test_a_message_sent_before_the_subscription_is_not_owed_but_may_arrive(evidence, analysed):
    evidence.subscribe(1, "t", 500)
    evidence.connect(1, 400)
    evidence.publish(0, 0, 100)
    evidence.publish(0, 1, 1000)
    for client in (0, 1):
        evidence.deliver(client, 0, 1, 1000, 1010)
    evidence.deliver(0, 0, 0, 100, 110)
    found = ledger(analysed(evidence.write()))
    assert (found["expected"], found["delivered"], found["lost"], found["unexpected"]) == (3, 3, 0, 0)


def test_a_shared_group_is_owed_each_message_once_whoever_gets_it(tmp_path, analysed):
    evidence = Evidence(tmp_path / "run")
    for client in (0, 1):
        evidence.connect(client)
        evidence.subscribe(client, "t", share="g")
    for seq in range(5):
        evidence.publish(0, seq, 100 * seq)
    for seq, client in ((0, 0), (1, 1), (2, 0), (3, 0)):
        evidence.deliver(client, 0, seq, 100 * seq, 100 * seq + 5)
    evidence.deliver(1, 0, 3, 300, 320)
    tables = analysed(evidence.write())
    found = ledger(tables)
    assert (found["expected"], found["delivered"], found["lost"], found["duplicates"]) == (5, 4, 1, 1)
    assert {row["client"]: row["delivered"] for row in tables.rows(BALANCE)} == {0: 3, 1: 1}


def test_overlapping_filters_owe_one_copy(evidence, analysed):
    evidence.subscribe(0, "#", qos=2)
    evidence.publish(0, 0, 100, qos=2)
    evidence.deliver(0, 0, 0, 100, 110, qos=2)
    tables = analysed(evidence.write())
    assert ledger(tables)["expected"] == 1
    assert [row["qos"] for row in tables.rows(LEDGER)] == [2]


@pytest.mark.parametrize("persistent", [True, False])
def test_an_absent_client_is_owed_what_its_session_promises(tmp_path, analysed, persistent):
    evidence = Evidence(tmp_path / "run")
    evidence.connect(0, persistent=persistent)
    evidence.subscribe(0, "t", persistent=persistent)
    evidence.publish(0, 0, 100)
    evidence.deliver(0, 0, 0, 100, 110)
    evidence.leave(0, 1000, persistent=persistent)
    evidence.publish(0, 1, 3000)
    evidence.connect(0, 5000, persistent=persistent, present=persistent)
    if not persistent:
        evidence.subscribe(0, "t", 5100)
    evidence.publish(0, 2, 7000)
    evidence.deliver(0, 0, 2, 7000, 7010)
    if persistent:
        evidence.deliver(0, 0, 1, 3000, 5050)
    found = ledger(analysed(evidence.write()))
    assert (found["expected"], found["delivered"], found["lost"]) == ((3, 3, 0) if persistent else (2, 2, 0))


def test_what_an_expired_session_missed_is_not_lost(tmp_path, analysed):
    evidence = Evidence(tmp_path / "run")
    evidence.connect(0, persistent=True, expiry_s=2)
    evidence.subscribe(0, "t", persistent=True, expiry_s=2)
    evidence.publish(0, 0, 100)
    evidence.deliver(0, 0, 0, 100, 110)
    evidence.leave(0, 1000, persistent=True)
    for seq, at_ms in enumerate([1500, 3500], 1):
        evidence.publish(0, seq, at_ms)
    evidence.connect(0, 5000, persistent=True, expiry_s=2)
    evidence.subscribe(0, "t", 5100, persistent=True, expiry_s=2)
    evidence.publish(0, 3, 7000)
    evidence.deliver(0, 0, 3, 7000, 7010)
    found = ledger(analysed(evidence.write()))
    assert (found["expected"], found["delivered"], found["lost"], found["indeterminate"]) == (2, 2, 0, 0)


def test_a_kept_message_is_owed_to_whoever_subscribes_later(tmp_path, analysed):
    evidence = Evidence(tmp_path / "run")
    evidence.publish(0, 0, 100, retain=True)
    evidence.publish(0, 1, 200, retain=True)
    evidence.connect(0, 1000)
    evidence.subscribe(0, "t", 1100)
    evidence.deliver(0, 0, 1, 200, 1110, retained=True)
    tables = analysed(evidence.write())
    found = ledger(tables)
    assert (found["expected"], found["delivered"], found["retained"], found["lost"]) == (1, 1, 1, 0)
    assert not [row for row in tables.rows(LATENCIES) if row["kind"] == "response"], "waiting is not latency"


def test_payloads_without_header_are_matched_by_topic_and_order(evidence, analysed):
    for seq in range(3):
        evidence.publish(0, seq, 100 * seq, stamped=False)
    for seq in range(2):
        evidence.deliver(0, -1, -1, None, 100 * seq + 7, topic="t")
    tables = analysed(evidence.write())
    found = ledger(tables)
    assert (found["expected"], found["delivered"], found["lost"], found["by_order"]) == (3, 2, 1, 2)
    assert {row["matched_by"] for row in tables.rows(JOURNEYS)} == {"order"}


def test_latencies_are_buckets_with_exact_sums_and_lost_is_infinite(evidence, analysed):
    delays_ms = [1, 2, 3, 20, 400]
    for seq, delay in enumerate(delays_ms):
        evidence.publish(0, seq, 1000 + 100 * seq, lag_ms=0.5)
        evidence.deliver(0, 0, seq, 1000 + 100 * seq, 1000 + 100 * seq + delay)
    evidence.publish(0, 5, 1900, lag_ms=0.5)
    tables = analysed(evidence.write())
    response = [row for row in tables.rows(LATENCIES) if row["kind"] == "response"]
    assert {row["bucket"]: row["n"] for row in response} == {
        **{bucket_of(delay * MS): 1 for delay in delays_ms},
        BUCKET_LOST: 1,
    }
    assert sum(row["sum_ns"] for row in response) == sum(delays_ms) * MS
    assert max(row["max_ns"] or 0 for row in response) == 400 * MS
    lag = [row for row in tables.rows(LATENCIES) if row["kind"] == "lag"]
    assert sum(row["n"] for row in lag) == 6
    last = [row for row in tables.rows(LATENCIES) if row["kind"] == "last"]
    assert sum(row["n"] for row in last if row["bucket"] == BUCKET_LOST) == 1


def test_the_timeline_counts_by_the_second(evidence, analysed):
    for seq in range(4):
        evidence.publish(0, seq, 500 * seq)
        evidence.deliver(0, 0, seq, 500 * seq, 500 * seq + 600)
    rows = {(row["side"], row["second"]): row for row in analysed(evidence.write()).rows(TIMELINE)}
    assert [rows["publish", second]["messages"] for second in (0, 1)] == [2, 2]
    assert [rows["deliver", second]["messages"] for second in (0, 1, 2)] == [1, 2, 1]
    assert rows["deliver", 0]["in_flight"] == 1


def test_slots_tell_when_what_was_due_arrived(evidence, analysed):
    for seq in range(4):
        evidence.publish(0, seq, 100 * seq)
        evidence.deliver(0, 0, seq, 100 * seq, 850 + seq)
    rows = {row["slot"]: row for row in analysed(evidence.write()).rows(SLOTS)}
    assert {slot: (row["planned"], row["sent"], row["arrived"]) for slot, row in rows.items()} == {
        **dict.fromkeys(range(4), (1, 1, 0)),
        8: (0, 0, 4),
    }
    assert rows[8]["last_ns"] - rows[8]["first_ns"] == 3_000_000
    assert rows[0]["first_ns"] is None


def test_a_run_that_ended_abnormally_does_not_call_the_last_messages_lost(tmp_path, analysed):
    evidence = Evidence(tmp_path / "run", state="broker-failed")
    evidence.connect(0)
    evidence.subscribe(0, "t")
    evidence.publish(0, 0, 100)
    evidence.deliver(0, 0, 0, 100, 110)
    evidence.publish(0, 1, 5000)
    evidence.leave(0, 5001)
    found = ledger(analysed(evidence.write()))
    assert (found["lost"], found["indeterminate"] + found["delivered"]) == (0, found["expected"])


def test_damaged_segments_are_left_out_and_named(evidence, analysed):
    for seq in range(5):
        evidence.publish(0, seq, 100 * seq)
        evidence.deliver(0, 0, seq, 100 * seq, 100 * seq + 5)
    folder = evidence.write()
    (folder / DELIVERIES.folder / "torn-00001.parquet").write_bytes(b"PAR1 not really")
    whole = next((folder / PUBLISHES.folder).glob("*.parquet")).read_bytes()
    (folder / PUBLISHES.folder / "rent-00001.parquet").write_bytes(whole[: len(whole) // 2])
    assert ledger(analysed(folder))["delivered"] == 5
    named = json.loads((folder / "measures" / "defects.json").read_text())
    assert sorted(one["file"].rsplit("/", 1)[-1] for one in named) == ["rent-00001.parquet", "torn-00001.parquet"]


def test_a_run_without_any_event_still_has_all_its_tables(tmp_path, analysed):
    tables = analysed(Evidence(tmp_path / "run").write())
    for table in DERIVED:
        rows = tables.rows(table)
        assert rows == [] or table is SERVICES


def test_operations_are_added_up_by_fleet(evidence, analysed):
    evidence.connect(1)
    told = {(row["kind"], row["outcome"]): row["n"] for row in analysed(evidence.write()).rows(ACTIONS)}
    assert told == {("connect", "ok"): 2, ("subscribe", "ok"): 1}
    assert at(0) > 0
