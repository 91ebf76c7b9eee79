from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq

from battlebrokers.record.publish_log import OUTCOME_UNACKED
from battlebrokers.record.recorder import Recorder
from battlebrokers.tables import DELIVERIES, OPERATIONS, PUBLISHES


def test_a_recorder_that_keeps_nothing_hands_out_the_same_tokens_and_writes_only_operations(tmp_path):
    recorder = Recorder(tmp_path, "w", keep=False)
    log = recorder.publishes
    assert log.add(1, 7, 0, 0, 10, 20, 64, 9, 1, 3, 2, OUTCOME_UNACKED, 70) == 0
    assert log.add_many(1, 7, 0, 1, np.arange(5), 20, 64, 9, 1, 3, 2, OUTCOME_UNACKED, 70) == 1
    assert log.add(1, 7, 0, 6, 10, 20, 64, 9, 1, 3, 2, OUTCOME_UNACKED, 70) == 6
    log.add_alike(7, 10, 20, b"", OUTCOME_UNACKED)
    assert log.next_token == 8
    log.complete([0, 5, 6], 30, False, 0)
    log.resent([1])
    recorder.deliveries.add(500, 3, 7, 1, 400, -1, 64, 90, 0)
    recorder.operation(("client", 1, "connect", 1, 2, "ok", None, "", None, None, None, None, None, False, None, 1))
    recorder.turn(10**10)
    recorder.finish(10**10)
    assert recorder.overflow == 0
    assert not list((tmp_path / PUBLISHES.folder).iterdir())
    assert not list((tmp_path / DELIVERIES.folder).iterdir())
    assert pq.read_table(tmp_path / OPERATIONS.folder).num_rows == 1
