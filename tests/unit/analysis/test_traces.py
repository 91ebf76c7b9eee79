"""Following single messages over wires, and naming who holds slow ones back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from battlebrokers.analysis.examples import read_examples
from battlebrokers.analysis.explanation import WIRE, explain
from battlebrokers.analysis.traces import Lost, Traces
from battlebrokers.errors import InputError
from battlebrokers.pipeline.stages.examples import ExampleSum
from battlebrokers.tables import EXAMPLES, HOPS, JOURNEYS
from battlebrokers.tables.run_folder import RunFolder

MS = 1_000_000


def leg(trace: int, number: int, parent: int | None, way: str, sent: float, received: float, **more: Any) -> dict:
    sender, receiver = way.split(">")
    before = more.pop("came", None)
    return {
        "trace": trace, "device": 1, "seq": trace, "leg": number, "parent": parent, "sender": sender,
        "receiver": receiver, "protocol": "mqtt", "kind": "PUBLISH", "name": "t", "stream": 5, "epoch": 0,
        "number": trace, "sent_ns": int(sent * MS), "received_ns": int(received * MS),
        "inside_ns": None if before is None else int((sent - before) * MS), "matched_by": "header", "confidence": 1.0,
        **more,
    }  # fmt: skip


def journey(trace: int, gateway_ms: float, queue_ms: float) -> list[dict]:
    """outside → gateway → queue → outside, 1 ms on each wire."""
    began = trace * 1000.0
    at_queue = began + 1 + gateway_ms
    leaves = at_queue + 1 + queue_ms
    return [
        leg(trace, 1, None, "outside>gateway", began, began + 1),
        leg(trace, 2, 1, "gateway>queue", at_queue, at_queue + 1, came=began + 1),
        leg(trace, 3, 2, "queue>outside", leaves, leaves + 1, came=at_queue + 1),
    ]


def folder(path: Path, rows: list[dict], lost: list[tuple[int, int]] | None = None) -> RunFolder:
    run = RunFolder(path)
    run.table(HOPS).mkdir(parents=True)
    legs = pa.Table.from_pylist(rows, schema=HOPS.arrow_schema())
    pq.write_table(legs, run.table(HOPS) / "a.parquet")
    chosen = ExampleSum()
    chosen.add(legs.sort_by([("trace", "ascending"), ("leg", "ascending")]))
    run.table(EXAMPLES).mkdir(parents=True)
    pq.write_table(chosen.table({row["sender"] for row in rows}), run.table(EXAMPLES) / "a.parquet")
    if lost is not None:
        run.table(JOURNEYS).mkdir(parents=True)
        journeys = pa.table(
            {
                "device": pa.array([device for device, _ in lost], pa.int32()),
                "seq": pa.array([seq for _, seq in lost], pa.int64()),
                "outcome": ["lost"] * len(lost),
            }
        )
        pq.write_table(journeys, run.table(JOURNEYS) / "a.parquet")
    return run


def test_the_slowest_come_first(tmp_path):
    rows = [row for n, wait in ((1, 5), (2, 50), (3, 10)) for row in journey(n, wait, 1)]
    found = Traces(folder(tmp_path, rows)).slowest(2)
    assert [trace.title for trace in found] == ["1:2", "1:3"]
    assert found[0].took_ns == (1 + 50 + 1 + 1 + 1) * MS


def test_a_message_is_found_by_its_name_and_by_its_id(tmp_path):
    traces = Traces(folder(tmp_path, journey(7, 1, 1)))
    assert traces.named("1:7") == traces.named("7")
    assert traces.named("1:8") == []
    for nonsense in ("one:two", "xyz", "1" * 40):
        with pytest.raises(InputError):
            traces.named(nonsense)


def test_lost_messages_are_shown_as_far_as_they_got(tmp_path):
    rows = [*journey(1, 1, 1), *journey(2, 1, 1)[:2]]
    found = Traces(folder(tmp_path / "run", rows, lost=[(1, 2), (1, 9)])).lost(10)
    assert (found.total, found.seen) == (2, 1)  # the other one was never on a wire
    assert found.traces[0].way()[-1].receiver == "queue"
    alone = Traces(folder(tmp_path / "capture", rows)).lost(10)
    assert (alone.total, alone.traces) == (1, found.traces)


def test_all_lost_messages_are_counted_though_few_are_shown(tmp_path):
    rows = [*journey(1, 1, 1), *(row for n in range(2, 9) for row in journey(n, 1, 1)[:2])]
    found = Traces(folder(tmp_path, rows)).lost(3)
    assert (found.total, found.seen, len(found.traces)) == (7, 7, 3)


def test_a_service_that_sends_nothing_on_is_where_messages_are_meant_to_end(tmp_path):
    rows = [*journey(1, 1, 1)[:2], leg(1, 3, 2, "queue>store", 9, 10, came=3), *journey(2, 1, 1)[:2]]
    found = Traces(folder(tmp_path, rows)).lost(10)
    assert [trace.title for trace in found.traces] == ["1:2"]


def test_the_deciding_way_is_the_one_that_arrived_last(tmp_path):
    fast = leg(1, 4, 2, "queue>outside", 2000, 2001, came=1990)
    (trace,) = Traces(folder(tmp_path, [*journey(1, 1, 1), fast])).slowest(1)
    assert [one.number for one in trace.way()] == [1, 2, 4]


def test_legs_that_name_each_other_as_parents_end(tmp_path):
    rows = [leg(1, 1, 2, "a>b", 1, 2, came=0), leg(1, 2, 1, "b>a", 1, 3, came=0)]
    (trace,) = Traces(folder(tmp_path, rows)).slowest(1)
    assert len(trace.way()) == 2


def test_the_service_in_which_slow_messages_wait_is_named(tmp_path):
    rows = [row for n in range(400) for row in journey(n, 2, 40 if n % 80 == 0 else 3)]
    explanation = explain(read_examples(folder(tmp_path, rows)))
    assert explanation.culprit is not None
    assert explanation.culprit.service == "queue"
    assert explanation.culprit.slow_mean_ns == pytest.approx(40 * MS)
    assert explanation.culprit.ordinary_mean_ns == pytest.approx(3 * MS)
    assert {share.service for share in explanation.shares} == {"gateway", "queue", WIRE}
    assert sum(share.slow for share in explanation.shares) == pytest.approx(1)
    assert "queue holds them back" in explanation.sentences()[1]
    assert [(one.service, one.inside_ns) for one in explanation.examples] == [("queue", 40 * MS)] * 3


def test_nobody_is_named_when_all_get_slower_together(tmp_path):
    rows = [row for n in range(400) for row in journey(n, *((30, 30) if n % 80 == 0 else (3, 3)))]
    explanation = explain(read_examples(folder(tmp_path, rows)))
    assert explanation.culprit is None
    assert "No single service" in explanation.sentences()[1]


def test_few_messages_explain_nothing(tmp_path):
    explanation = explain(read_examples(folder(tmp_path, journey(1, 1, 90))))
    assert explanation.culprit is None
    assert "too few" in explanation.sentences()[0]


@pytest.mark.parametrize("group_rows", [1, 2, 4, 100])
def test_messages_may_be_cut_apart_by_the_pieces_they_are_read_in(tmp_path, group_rows):
    rows = [row for n, wait in ((1, 5), (2, 50), (3, 10)) for row in journey(n, wait, 1)[: 2 if n == 3 else 3]]
    run = folder(tmp_path, rows)
    legs = pa.Table.from_pylist(rows, schema=HOPS.arrow_schema())
    pq.write_table(legs, run.table(HOPS) / "a.parquet", row_group_size=group_rows)
    traces = Traces(run)
    assert len(traces) == 3
    assert [(trace.title, len(trace.legs)) for trace in traces.slowest(3)] == [("1:2", 3), ("1:3", 2), ("1:1", 3)]
    assert [trace.title for trace in traces.lost().traces] == ["1:3"]
    assert len(traces.named("1:2")[0].legs) == 3


def test_followed_messages_are_never_all_in_memory(tmp_path):
    rows = [row for n in range(4000) for row in journey(n, n % 7, 1)]
    run = folder(tmp_path, rows)
    legs = pa.Table.from_pylist(rows, schema=HOPS.arrow_schema())
    pq.write_table(legs, run.table(HOPS) / "a.parquet", row_group_size=300)
    del rows
    before = pa.total_allocated_bytes()
    traces = Traces(run)
    assert pa.total_allocated_bytes() - before < legs.nbytes / 10
    assert len(traces.slowest(5)) == 5


def test_without_followed_messages_there_is_a_hint(tmp_path):
    with pytest.raises(InputError) as caught:
        Traces(RunFolder(tmp_path))
    assert "--capture" in caught.value.hint


def test_an_empty_table_is_no_error(tmp_path):
    run = folder(tmp_path, [])
    traces = Traces(run)
    assert (len(traces), traces.slowest(3), traces.lost(3)) == (0, [], Lost(0, 0, ()))
    assert explain(read_examples(run)).shares == ()
    assert explain(read_examples(run)).sentences() == ["No message was seen on two wires, so none could be followed."]
