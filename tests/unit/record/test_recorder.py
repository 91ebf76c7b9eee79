"""What happens to evidence that cannot be written, whatever the reason."""

from __future__ import annotations

import errno
import subprocess
import sys

import pytest

from battlebrokers.record.publish_log import OUTCOME_SENT
from battlebrokers.record.recorder import Recorder


def test_what_cannot_be_written_counts_and_the_rest_is_written(tmp_path, monkeypatch):
    recorder = Recorder(tmp_path, "worker-0")
    nodes = recorder._writers["nodes"]
    write = nodes.write

    def fail_once(columns):
        monkeypatch.setattr(nodes, "write", write)
        raise ValueError("nobody foresaw this")

    monkeypatch.setattr(nodes, "write", fail_once)
    row = ("device", 0, "d-1", "air", "mqtt 3.1.1 tcp", None)
    recorder.nodes([row, row])
    while not recorder.failure:
        assert recorder._thread.is_alive()
    recorder.nodes([row])
    recorder.finish(0)
    assert recorder.overflow == 2
    assert "nobody foresaw this" in recorder.failure
    assert len(list(tmp_path.rglob("*.parquet"))) == 1


@pytest.mark.parametrize("table", ["publishes", "deliveries"])
def test_a_chunk_that_could_not_be_written_goes_back_once_and_its_events_count(tmp_path, monkeypatch, table):
    recorder = Recorder(tmp_path, "worker-0")
    log = getattr(recorder, table)
    taken = []

    def fail(columns):
        # The engine may take what was given back, and start over in it, before the write comes to its end.
        taken.append(log._pool.take())
        taken[0].reset(0, 0)
        raise OSError("the disk is full")

    monkeypatch.setattr(recorder._writers[table], "write", fail)
    for seq in range(3):
        if table == "publishes":
            log.add(1, 7, 0, seq, 100, 200, 64, 9, 1, 2, 0, OUTCOME_SENT)
        else:
            log.add(200, 0, 7, seq, 100, 0, 64, 80, 0)
    recorder.topic_id("t")
    recorder.finish(0)
    assert recorder.overflow == 3, "those it held when it was handed over"
    assert "the disk is full" in recorder.failure
    assert log._pool._free == [], "what the engine took in between is not given back a second time"


LIMITED = """
import resource, sys
from pathlib import Path
from battlebrokers.record import recorder as module
module._AGAIN_AFTER_S = 0.01
recorder = module.Recorder(Path(sys.argv[1]), "worker-0")
resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))
for seq in range(1000):
    recorder.deliveries.add(200, 0, 7, seq, 100, 0, 64, 80, 0)
recorder.finish(0)
print(recorder.write_error, recorder.overflow, sep=";")
"""


def test_a_limit_for_files_is_named_as_the_reason_and_leaves_no_half_of_a_file(tmp_path):
    words = [sys.executable, "-c", LIMITED, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "File too large;1000"
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_what_finds_room_a_moment_later_is_not_lost_and_the_reason_stays_known(tmp_path, monkeypatch):
    monkeypatch.setattr("battlebrokers.record.recorder._AGAIN_AFTER_S", 0.0)
    recorder = Recorder(tmp_path, "worker-0")
    writer = recorder._writers["deliveries"]
    write, failures = writer.write, [OSError(errno.ENOSPC, "No space left on device")]

    def fail_once(columns):
        if failures:
            raise failures.pop()
        return write(columns)

    monkeypatch.setattr(writer, "write", fail_once)
    recorder.topic_id("t")
    recorder.deliveries.add(200, 0, 7, 1, 100, 0, 64, 80, 0)
    recorder.finish(0)
    assert (recorder.overflow, recorder.failure) == (0, "")
    assert recorder.write_error == "No space left on device"
    assert list(tmp_path.rglob("*.parquet"))
