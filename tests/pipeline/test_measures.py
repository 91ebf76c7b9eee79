"""The measures of one small hand-written run, against numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from battlebrokers.pipeline import session
from battlebrokers.pipeline.graph import STEPS, analyze
from battlebrokers.tables import ACTIONS, BALANCE, DERIVED, LATENCIES, PUBLISHING, SERVICES, TIMELINE
from battlebrokers.tables.measures import bucket_of
from pipeline.world import Result, World, at

pytestmark = pytest.mark.spark

MS = 1_000_000


def a_small_run() -> World:
    world = World()
    device, client = world.device("talkers"), world.client("t/#", fleet="hearers")
    for second in (0, 3, 4):
        message = world.publish(device, "t/a", second + 0.25, qos=1)
        world.deliver(client, message, second + 1.5)
    held = world.publish(device, "t/a", 5.0, qos=1, sent=6.5, held="window")
    world.deliver(client, held, 6.75)
    world.deliver(client, held, 8.25, dup=True)
    world.publish(device, "t/a", 7.0, qos=1)
    world.publish(device, "t/a", 7.5, qos=1, outcome="unsent", held="offline")
    world.leave(client, "lost", 9.0, outcome="error", ended_ns=None)
    for number, when in enumerate((-0.5, 1.0, 2.5, 6.0, 11.0)):
        counter = number * 1000 if number < 4 else 500
        world.sample("broker", "contender", when, cpu_percent=10.0 * number, received_bytes=counter, sent_bytes=7)
    world.sample("host", "host", 3.0, steal_percent=1.5)
    return world


@pytest.fixture(scope="module")
def result(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder = a_small_run().write(Path(tmp_path_factory.mktemp("measures")) / "run")
    analyze(spark, str(folder.path))
    return Result(folder)


def test_every_table_has_exactly_the_columns_of_its_contract(result: Result) -> None:
    for table in DERIVED:
        found = pq.read_table(result.folder.table(table)).schema
        assert [(field.name, field.type) for field in found] == [
            (field.name, field.type) for field in table.arrow_schema()
        ]


def test_every_table_has_a_step_that_makes_it() -> None:
    assert {step.makes for step in STEPS if step.makes} == set(DERIVED)


def test_each_second_of_the_timeline_is_there_also_the_silent_ones(result: Result) -> None:
    publish = sorted(result.rows(TIMELINE, side="publish"), key=lambda row: row["second"])
    assert [row["second"] for row in publish] == list(range(8))
    assert [row["messages"] for row in publish] == [1, 0, 0, 1, 1, 0, 1, 1]
    assert [row["planned"] for row in publish] == [1, 0, 0, 1, 1, 1, 0, 2]
    assert [row["held"] for row in publish] == [0, 0, 0, 0, 0, 1, 0, 1]
    assert [row["unsent"] for row in publish] == [0, 0, 0, 0, 0, 0, 0, 1]
    assert [row["wire_bytes"] for row in publish] == [120, 0, 0, 120, 120, 0, 120, 120]
    assert [row["phase"] for row in publish] == ["warm_up"] * 2 + ["measure"] * 6
    assert {row["fleet"] for row in publish} == {"talkers"}


def test_the_timeline_counts_arrivals_and_what_is_in_flight(result: Result) -> None:
    deliver = sorted(result.rows(TIMELINE, side="deliver"), key=lambda row: row["second"])
    assert [row["second"] for row in deliver] == list(range(9))
    assert [row["messages"] for row in deliver] == [0, 1, 0, 0, 1, 1, 1, 0, 1]
    assert [row["payload_bytes"] for row in deliver] == [0, 100, 0, 0, 100, 100, 100, 0, 100]
    # Sent in 0, 3, 4, 6, 7; arrived in 1, 4, 5, 6; the last one never did.
    assert [row["in_flight"] for row in deliver] == [1, 0, 0, 1, 1, 0, 0, 1, 1]


def _spread(result: Result, kind: str) -> list[tuple[str, int, int, int]]:
    rows = result.rows(LATENCIES, kind=kind)
    return sorted((row["phase"], row["second"], row["bucket"], row["n"]) for row in rows)


def test_latencies_fall_into_the_right_buckets(result: Result) -> None:
    lost = 2**31 - 1
    assert _spread(result, "response") == [
        ("measure", 3, bucket_of(1250 * MS), 1),
        ("measure", 4, bucket_of(1250 * MS), 1),
        ("measure", 5, bucket_of(1750 * MS), 1),
        ("measure", 7, lost, 2),
        ("warm_up", 0, bucket_of(1250 * MS), 1),
    ]
    assert _spread(result, "service")[2] == ("measure", 5, bucket_of(250 * MS), 1)
    assert _spread(result, "last") == _spread(result, "response")
    assert _spread(result, "held") == [("measure", 5, bucket_of(1500 * MS), 1)]
    assert [row[3] for row in _spread(result, "lag")] == [1, 1, 1, 1]
    assert {row[2] for row in _spread(result, "lag")} == {bucket_of(1 * MS)}
    assert {row[2] for row in _spread(result, "publish")} == {bucket_of(2 * MS)}
    (held,) = result.rows(LATENCIES, kind="held")
    assert (held["sum_ns"], held["min_ns"], held["max_ns"], held["client_fleet"]) == (1.5e9, 1500 * MS, 1500 * MS, "")


def test_publishing_adds_up_each_phase(result: Result) -> None:
    rows = {row["phase"]: row for row in result.rows(PUBLISHING)}
    measure = rows["measure"]
    names = ("planned", "sent", "acked", "unsent", "backlog", "shortfall", "held_window", "held_offline")
    assert {name: measure[name] for name in names} == {
        "planned": 5, "sent": 4, "acked": 4, "unsent": 1, "backlog": 1, "shortfall": 0, "held_window": 1,
        "held_offline": 1,
    }  # fmt: skip
    assert (measure["payload_bytes"], measure["structure_bytes"], measure["url_bytes"]) == (400, 440, 12)
    assert (measure["first_sent_ns"], measure["last_sent_ns"]) == (at(3.251), at(7.001))
    assert measure["last_received_ns"] == at(6.75)
    assert rows["warm_up"]["planned"] == 1


def test_actions_say_how_long_connecting_and_subscribing_took(result: Result) -> None:
    rows: dict[str, dict[str, Any]] = {row["kind"]: row for row in result.rows(ACTIONS, role="client")}
    assert (rows["connect"]["n"], rows["connect"]["p50_ns"], rows["connect"]["mean_ns"]) == (1, 1.0 * MS, 1.0 * MS)
    assert (rows["subscribe"]["max_ns"], rows["subscribe"]["fleet"]) == (1 * MS, "hearers")
    assert (rows["lost"]["outcome"], rows["lost"]["p99_ns"], rows["lost"]["last_ns"]) == ("error", None, at(9.0))


def test_services_are_charged_what_each_phase_added(result: Result) -> None:
    rows = {row["phase"]: row for row in result.rows(SERVICES, service="broker")}
    assert {phase: row["received_bytes"] for phase, row in rows.items()} == {
        "connect": 0, "warm_up": 1000, "measure": 2000, "drain": 0,
    }  # fmt: skip
    assert (rows["measure"]["samples"], rows["measure"]["cpu_mean_percent"], rows["measure"]["cpu_max_percent"]) == (
        2,
        25.0,
        30.0,
    )
    assert result.rows(SERVICES, service="host")[0]["steal_max_percent"] == 1.5


def test_without_shared_groups_there_is_no_balance(result: Result) -> None:
    assert result.rows(BALANCE) == []


def test_compiled_and_interpreted_plans_give_the_same_tables(
    spark: SparkSession, result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "FEW_EVENTS", 0)
    analyze(spark, str(result.folder.path), str(tmp_path))
    for table in DERIVED:
        order = [(name, "ascending") for name in table.column_names]
        compiled = pq.read_table(tmp_path / table.folder).sort_by(order)
        assert compiled.to_pylist() == pq.read_table(result.folder.table(table)).sort_by(order).to_pylist(), table.name


def test_progress_names_every_step_once(spark: SparkSession, tmp_path: Path, result: Result) -> None:
    told: list[tuple[str, int, int]] = []
    outcome = analyze(spark, str(result.folder.path), (tmp_path / "out").as_uri(), lambda *news: told.append(news))
    assert [done for _, done, _ in told] == list(range(1, len(DERIVED) + 2))
    assert {of for *_, of in told} == {len(DERIVED) + 1}
    assert {name for name, *_ in told} == {"evidence", *(table.name for table in DERIVED)} == set(outcome.steps)
    assert (tmp_path / "out" / "measures" / "defects.json").read_bytes() == b"[]"
