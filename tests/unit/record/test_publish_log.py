from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest

from battlebrokers.clock import SECOND_NS
from battlebrokers.record import publish_log
from battlebrokers.record.publish_log import (
    OUTCOME_ACKED,
    OUTCOME_FAILED,
    OUTCOME_REFUSED,
    OUTCOME_SENT,
    OUTCOME_UNACKED,
    PublishLog,
    shared_part,
)
from battlebrokers.record.recorder import Recorder
from battlebrokers.tables import ACKS, PUBLISHES


class Sink:
    def __init__(self) -> None:
        self.chunks = []
        self.late = []

    def log(self) -> PublishLog:
        return PublishLog(self.chunks.append, lambda *row: self.late.append(row))


def add_one(log: PublishLog, seq: int, now_ns: int = 1, outcome: int = OUTCOME_UNACKED) -> int:
    return log.add(now_ns, 7, 0, seq, 100 + seq, 200 + seq, 64, 9, 1, 2, 0, outcome)


def add_many(log: PublishLog, first_seq: int, count: int, now_ns: int = 1, outcome: int = OUTCOME_UNACKED) -> int:
    planned = np.arange(count, dtype=np.int64) + 100 + first_seq
    return log.add_many(now_ns, 7, 0, first_seq, planned, 200, 64, 9, 1, 2, 0, outcome)


def test_tokens_are_consecutive_over_single_and_bulk_rows_and_chunk_borders():
    sink = Sink()
    log = sink.log()
    assert add_one(log, 0) == 0
    assert add_many(log, 1, 70_000) == 1
    assert add_one(log, 70_001) == 70_001
    log.finish(2)
    rows = np.concatenate([chunk.rows[: chunk.used] for chunk in sink.chunks])
    assert rows["seq"].tolist() == list(range(70_002))
    assert (rows["planned_ns"] == rows["seq"] + 100).all()


def test_an_acknowledgement_completes_the_row_wherever_it_is():
    sink = Sink()
    log = sink.log()
    first = add_many(log, 0, 40_000)
    log.complete([first, first + 39_999], 999, OUTCOME_ACKED, 0)
    log.complete([first + 5], 888, OUTCOME_REFUSED, 0x97)
    log.finish(2)
    rows = np.concatenate([chunk.rows[: chunk.used] for chunk in sink.chunks])
    assert rows["acked_ns"][[0, 5, 39_999]].tolist() == [999, 888, 999]
    assert [publish_log.OUTCOMES[code] for code in rows["outcome"][[0, 1, 5]]] == ["acked", "unacked", "refused"]
    assert rows["reason"][5] == 0x97


def test_an_acknowledgement_after_the_row_was_written_becomes_a_row_of_acks_once():
    sink = Sink()
    log = sink.log()
    token = add_one(log, 3)
    log.turn(2 * SECOND_NS)
    log.turn(4 * SECOND_NS)
    assert len(sink.chunks) == 1
    log.resent([token])
    log.complete([token], 5 * SECOND_NS, OUTCOME_ACKED, 0)
    log.complete([token], 6 * SECOND_NS, OUTCOME_ACKED, 0)
    assert sink.late == [(7, 3, None, "resent", -1), (7, 3, 5 * SECOND_NS, "acked", 0)]


def test_a_late_failure_of_what_nobody_answers_becomes_a_row_of_acks_once():
    sink = Sink()
    log = sink.log()
    add_many(log, 0, 40_000, outcome=OUTCOME_SENT)
    tokens = [add_one(log, 40_000, outcome=OUTCOME_SENT), add_one(log, 40_001)]
    log.complete([tokens[1]], 9, OUTCOME_ACKED, 0)
    log.turn(2 * SECOND_NS)
    log.turn(4 * SECOND_NS)
    assert len(sink.chunks) == 2
    for chunk in sink.chunks:
        log.give_back(chunk)
    # Others use the memory again; what was written there is known all the same.
    add_many(log, 50_000, 100, outcome=OUTCOME_SENT)
    for _ in range(2):
        log.complete([3, *tokens], 5 * SECOND_NS, OUTCOME_FAILED, -3)
    log.complete([4], 6 * SECOND_NS, OUTCOME_REFUSED, 90)
    assert sink.late == [
        (7, 3, 5 * SECOND_NS, "failed", -3),
        (7, 40_000, 5 * SECOND_NS, "failed", -3),
        (7, 4, 6 * SECOND_NS, "refused", 90),
    ]


def test_a_chunk_waits_for_its_acknowledgements_but_not_for_ever():
    sink = Sink()
    log = sink.log()
    token = add_one(log, 0)
    log.turn(1 + SECOND_NS)
    assert not sink.chunks, "unacknowledged, still settling"
    log.complete([token], 5, OUTCOME_ACKED, 0)
    log.turn(1 + SECOND_NS)
    assert len(sink.chunks) == 1


def test_qos_0_rows_leave_as_soon_as_they_are_a_second_old():
    sink = Sink()
    log = sink.log()
    add_one(log, 0, outcome=OUTCOME_SENT)
    log.turn(2)
    assert not sink.chunks
    log.turn(1 + SECOND_NS)
    assert len(sink.chunks) == 1


def test_a_writer_that_never_gives_back_makes_the_log_overflow_and_count():
    sink = Sink()
    log = sink.log()
    rows = 32_768 * 60
    first = add_many(log, 0, rows, outcome=OUTCOME_SENT)
    assert first == 0
    assert log.overflow > 0
    assert sum(chunk.used for chunk in sink.chunks) + log.overflow <= rows
    log.finish(3)
    assert sum(chunk.used for chunk in sink.chunks) + log.overflow == rows
    assert add_one(log, rows) >= 0, "after the storm it goes on"


def test_rows_of_several_sizes_and_reasons_keep_their_own(tmp_path):
    sink = Sink()
    log = sink.log()
    planned = np.arange(40_000, dtype=np.int64)
    held = (planned % 3).astype(np.uint8)
    log.add_many(1, 7, 0, 0, planned, 200, 64, 9, 1, 2, held, OUTCOME_SENT, 80)
    log.add(1, 8, 3, 5, 100, 200, 65, 9, 2, 1, 2, OUTCOME_SENT, 90)
    log.add_many(1, 9, 4, 0, planned[:10], 300, 66, 8, 0, 0, 1, OUTCOME_SENT, 100)
    log.finish(1)
    rows = np.concatenate([chunk.rows[: chunk.used] for chunk in sink.chunks])
    assert rows["wire_bytes"].tolist() == [80] * 40_000 + [90] + [100] * 10
    assert rows["held"].tolist() == [*held.tolist(), 2, *[1] * 10]
    assert rows["payload_bytes"].tolist() == rows["structure_bytes"].tolist() == [64] * 40_000 + [65] + [66] * 10
    assert (rows["acked_ns"] == -1).all()
    assert (rows["reason"] == -1).all()
    assert set(rows["device"].tolist()) == {7, 8, 9}


def test_the_recorder_writes_complete_segments_that_match_the_table(tmp_path):
    recorder = Recorder(tmp_path, "worker-0")
    topic = recorder.topic_id("city/air/1")
    token = recorder.publishes.add(1, 7, topic, 0, 10, -1, 64, 9, 1, 3, 2, OUTCOME_UNACKED)
    recorder.publishes.add(1, 7, topic, 1, 11, 21, 64, 9, 0, 0, 0, OUTCOME_SENT)
    recorder.publishes.complete([token], 33, OUTCOME_ACKED, 0)
    recorder.operation(
        ("client", 1, "subscribe", 1, 2, "ok", None, "", "city/#", None, 1, 1, None, False, 1),
    )
    recorder.finish(5)
    table = pq.read_table(tmp_path / PUBLISHES.folder)
    assert table.schema.names == PUBLISHES.column_names
    first, second = table.to_pylist()
    assert first == {
        "worker": "worker-0", "device": 7, "seq": 0, "topic": "city/air/1", "qos": 1, "retain": True, "stamped": True,
        "planned_ns": 10, "sent_ns": None, "acked_ns": 33, "outcome": "acked", "reason": None, "held": "socket",
        "retries": 0, "payload_bytes": 64, "structure_bytes": 64, "url_bytes": 9, "wire_bytes": 0,
    }  # fmt: skip
    assert (second["outcome"], second["acked_ns"], second["held"]) == ("sent", None, "no")
    assert not list(tmp_path.rglob("*.tmp"))


def test_late_acknowledgements_are_written_to_their_own_table(tmp_path):
    recorder = Recorder(tmp_path, "worker-0")
    token = recorder.publishes.add(1, 7, recorder.topic_id("t"), 0, 10, 20, 64, 1, 1, 0, 0, OUTCOME_UNACKED)
    recorder.turn(3 * SECOND_NS)
    recorder.turn(6 * SECOND_NS)
    recorder.publishes.complete([token], 99, OUTCOME_ACKED, 0)
    recorder.finish(7 * SECOND_NS)
    assert pq.read_table(tmp_path / ACKS.folder).to_pylist() == [
        {"worker": "worker-0", "device": 7, "seq": 0, "acked_ns": 99, "outcome": "acked", "reason": None}
    ]


def test_failures_keep_their_kind_early_and_late_and_structures_their_size(tmp_path):
    recorder = Recorder(tmp_path, "worker-0")
    topic = recorder.topic_id("t")
    early = recorder.publishes.add(1, 7, topic, 0, 10, 20, 64, 9, 0, 0, 0, OUTCOME_UNACKED, 300, 150)
    late = recorder.publishes.add(1, 7, topic, 1, 10, 20, 64, 9, 0, 0, 0, OUTCOME_UNACKED, 300, 150)
    recorder.publishes.complete([early], 30, OUTCOME_FAILED, -2)
    recorder.turn(3 * SECOND_NS)
    recorder.turn(6 * SECOND_NS)
    recorder.publishes.complete([late], 99, OUTCOME_FAILED, -4)
    recorder.finish(7 * SECOND_NS)
    rows = pq.read_table(tmp_path / PUBLISHES.folder).to_pylist()
    assert [(row["outcome"], row["reason"], row["acked_ns"]) for row in rows] == [
        ("failed", -2, 30), ("unacked", None, None),
    ]  # fmt: skip
    assert {(row["payload_bytes"], row["structure_bytes"], row["wire_bytes"]) for row in rows} == {(64, 150, 300)}
    (ack,) = pq.read_table(tmp_path / ACKS.folder).to_pylist()
    assert (ack["seq"], ack["outcome"], ack["reason"]) == (1, "failed", -4)


def test_a_disk_that_fails_is_counted_and_told(tmp_path, monkeypatch: pytest.MonkeyPatch):
    recorder = Recorder(tmp_path, "worker-0")

    def full(*_args: object, **_options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("battlebrokers.record.segments.pq.write_table", full)
    recorder.publishes.add(1, 7, recorder.topic_id("t"), 0, 10, 20, 64, 1, 0, 0, 0, OUTCOME_SENT)
    recorder.finish(7)
    assert recorder.overflow == 1
    assert "No space left" in recorder.failure


def test_the_log_is_crowded_while_more_than_half_of_its_memory_waits_to_be_written():
    sink = Sink()
    log = sink.log()
    assert not log.crowded
    second = 1
    while not log.crowded:
        add_many(log, 0, 32_768, now_ns=second * SECOND_NS, outcome=OUTCOME_SENT)
        log.turn(second * SECOND_NS)
        second += 3
    assert log.overflow == 0
    for chunk in sink.chunks:
        log.give_back(chunk)
    assert not log.crowded


def test_messages_alike_become_the_rows_and_tokens_of_one_by_one(tmp_path):
    told = []
    for way in ("alike", "one by one"):
        recorder = Recorder(tmp_path / way, "w")
        log = recorder.publishes
        shared = shared_part(7, recorder.topic_id("t"), 64, 70, 9, 90, 1, 3, OUTCOME_UNACKED)
        for seq in range(40_000):
            if way == "alike":
                log.add_alike(seq, 10 + seq, 20 + seq, shared, OUTCOME_UNACKED)
            else:
                log.add(20 + seq, 7, 0, seq, 10 + seq, 20 + seq, 64, 9, 1, 3, 0, OUTCOME_UNACKED, 90, 70)
        assert log.next_token == 40_000
        log.complete([5, 39_999], 50, OUTCOME_ACKED, 0)
        recorder.finish(60)
        told.append(pq.read_table(tmp_path / way / PUBLISHES.folder))
    assert told[0].num_rows == 40_000
    assert told[0].equals(told[1])
