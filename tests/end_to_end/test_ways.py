"""The same load over other ways: several processes, WebSocket, TLS, MQTT 5; evidence counted without the pipeline."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow.parquet as pq
import pytest

from battlebrokers.contenders.lifecycle import RunningContender, TlsServerFiles, start_contender
from battlebrokers.tables import DELIVERIES, NODES, OPERATIONS, PUBLISHES
from support.certificates import Authority
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


MUTUAL = "transport: {transport}\ntls: {{ca: {ca}, certificate: {certificate}, key: {key}}}"


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def mutual(tmp_path, authority, require_broker) -> Iterator[RunningContender]:
    """A Mosquitto that lets in only those with a certificate of the authority."""
    require_broker("mosquitto")
    files = TlsServerFiles(*authority.sign("server", server=True), client_ca=authority.path)
    with start_contender("mosquitto", "stock", tmp_path / "mutual", tls=files) as running:
        yield running


@pytest.mark.parametrize("transport", ["tls", "wss"])
def test_every_message_crosses_mutual_tls(tmp_path, authority, mutual, transport):
    certificate, key = authority.sign("client")
    extra = MUTUAL.format(transport=transport, ca=authority.path, certificate=certificate, key=key)
    scenario = write_scenario(tmp_path, SCENARIO.format(extra=extra))
    folder = run_for_real(scenario, mutual.endpoints[transport], tmp_path / "runs")
    manifest = folder.read_manifest()
    assert manifest.state == "finished", manifest.state_detail
    assert set(pq.read_table(folder.table(PUBLISHES))["outcome"].to_pylist()) == {"acked"}
    assert pq.read_table(folder.table(DELIVERIES)).num_rows == 1800
    assert all(name.endswith(transport) for name in pq.read_table(folder.table(NODES))["protocol"].to_pylist())


def test_without_a_certificate_nobody_gets_in_and_the_run_says_so(tmp_path, authority, mutual):
    scenario = write_scenario(tmp_path, SCENARIO.format(extra=f"transport: tls\ntls: {{ca: {authority.path}}}"))
    folder = run_for_real(scenario, mutual.endpoints["tls"], tmp_path / "runs")
    manifest = folder.read_manifest()
    assert manifest.state == "broker-failed"
    assert "nobody could connect" in manifest.state_detail
    tried = pq.read_table(folder.table(OPERATIONS)).to_pylist()
    assert {row["outcome"] for row in tried if row["kind"] == "connect"} == {"error"}
    assert any("certificate" in row["detail"] for row in tried)
