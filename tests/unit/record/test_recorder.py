"""What happens to evidence that cannot be written, whatever the reason."""

from __future__ import annotations

from battlebrokers.record.recorder import Recorder


def test_what_cannot_be_written_counts_and_the_rest_is_written(tmp_path, monkeypatch):
    recorder = Recorder(tmp_path, "worker-0")
    nodes = recorder._writers["nodes"]
    write = nodes.write

    def fail_once(columns):
        monkeypatch.setattr(nodes, "write", write)
        raise ValueError("nobody foresaw this")

    monkeypatch.setattr(nodes, "write", fail_once)
    row = ("device", 0, "d-1", "air", "mqtt 3.1.1 tcp")
    recorder.nodes([row, row])
    while not recorder.failure:
        assert recorder._thread.is_alive()
    recorder.nodes([row])
    recorder.finish(0)
    assert recorder.overflow == 2
    assert "nobody foresaw this" in recorder.failure
    assert len(list(tmp_path.rglob("*.parquet"))) == 1
