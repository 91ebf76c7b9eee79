from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq

from battlebrokers.record.recorder import Recorder
from battlebrokers.tables import DELIVERIES


def test_single_and_bulk_arrivals_become_the_same_kind_of_rows(tmp_path):
    recorder = Recorder(tmp_path, "worker-0")
    recorder.deliveries.add(500, 3, 7, 1, 400, -1, 64, 90, 0b1011)
    recorder.deliveries.add_many(
        600, 3, np.full(40_000, 7, np.int32), np.arange(40_000, dtype=np.int64), np.full(40_000, 450, np.int64), -1,
        np.full(40_000, 64), np.full(40_000, 90), np.full(40_000, 0b0010, np.uint8),
    )  # fmt: skip
    recorder.deliveries.add(700, 3, -1, -1, -1, recorder.topic_id("tiny"), 5, 12, 0)
    recorder.finish(1)
    table = pq.read_table(tmp_path / DELIVERIES.folder)
    assert table.schema.names == DELIVERIES.column_names
    rows = table.to_pylist()
    assert len(rows) == 40_002
    assert rows[0] == {
        "worker": "worker-0", "client": 3, "device": 7, "seq": 1, "planned_ns": 400, "received_ns": 500, "topic": None,
        "qos": 1, "dup": True, "retained": True, "payload_bytes": 64, "wire_bytes": 90,
    }  # fmt: skip
    assert [row["seq"] for row in rows[1:40_001]] == list(range(40_000))
    assert rows[1]["qos"] == 1
    assert not rows[1]["dup"]
    assert rows[-1]["topic"] == "tiny"
    assert (rows[-1]["device"], rows[-1]["planned_ns"]) == (-1, None)


def test_what_the_writer_cannot_take_in_time_is_counted(tmp_path, monkeypatch):
    recorder = Recorder(tmp_path, "worker-0")
    taken = []
    monkeypatch.setattr(recorder.deliveries, "_write", taken.append)
    block = 32_768
    for _ in range(70):
        recorder.deliveries.add_many(
            600, 3, np.zeros(block, np.int32), np.arange(block, dtype=np.int64), np.zeros(block, np.int64), -1,
            np.zeros(block, np.int64), np.zeros(block, np.int64), np.zeros(block, np.uint8),
        )  # fmt: skip
    kept = sum(chunk.used for chunk in taken) + recorder.deliveries._current.used
    assert recorder.deliveries.overflow > 0
    assert kept + recorder.deliveries.overflow == 70 * block
    monkeypatch.undo()
    recorder.finish(1)
