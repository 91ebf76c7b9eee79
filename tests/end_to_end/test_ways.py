"""The same load over other ways: several processes, WebSocket, MQTT 5; evidence counted without the pipeline."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from battlebrokers.tables import DELIVERIES, NODES, PUBLISHES
from support.runs import run_for_real, write_scenario

pytestmark = [pytest.mark.broker, pytest.mark.slow]

SCENARIO = """
name: ways
{extra}
fleets:
  sensor: {{devices: 6, topic: "ways/{{device}}", payload: {{random_bytes: 20..2000}}, every: 50/s, qos: 1}}
clients:
  listener: {{count: 3, subscribe: ["ways/#"], qos: 1}}
phases: {{measure: 2s, drain: 5s, quiet: 1s}}
"""


@pytest.mark.parametrize(
    ("extra", "processes"),
    [("", 1), ("", 3), ("transport: ws", 1), ("version: 5", 1), ("version: 5\ntransport: ws", 2)],
)
def test_every_message_is_counted_once_whatever_the_way(tmp_path, require_broker, extra, processes):
    require_broker("mosquitto")
    scenario = write_scenario(tmp_path, SCENARIO.format(extra=extra))
    folder = run_for_real(scenario, "mosquitto", tmp_path / "runs", processes=processes)
    manifest = folder.read_manifest()
    assert manifest.state == "finished", manifest.state_detail
    assert manifest.workers[0].counters["recorder_overflow"] == 0
    sent = pq.read_table(folder.table(PUBLISHES))
    arrived = pq.read_table(folder.table(DELIVERIES))
    assert sent.num_rows == 600
    assert set(sent["outcome"].to_pylist()) == {"acked"}
    assert arrived.num_rows == 1800
    keys = set(
        zip(arrived["client"].to_pylist(), arrived["device"].to_pylist(), arrived["seq"].to_pylist(), strict=True)
    )
    assert len(keys) == 1800
    assert len(set(sent["worker"].to_pylist())) == processes
    assert pq.read_table(folder.table(NODES)).num_rows == 9
